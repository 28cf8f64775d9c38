// SPDX-License-Identifier: Apache-2.0
//! One queue or lane of a port.

use std::collections::VecDeque;

use crate::flow_queues::{FlowQueues, Queued};
use crate::scheduler::QUEUES;

/// Flows of a lane hold together what it sends in so long (s), each of them an equal part, but no less than so many bytes: a
/// window does not fall below two segments.
const LANE_SECONDS: u64 = 1;
const MIN_OF_FLOW: u64 = 2 * 1514;

/// Packets in their order: that of their arrival, and in a lane that of its flows' turns.
enum Held<T> {
    Fifo(VecDeque<Queued<T>>),
    Flows(FlowQueues<T>),
}

/// A queue or lane with the limits of its own; those of queue 0 are for its lanes, too.
pub struct Queue<T> {
    held: Held<T>,
    pub bytes: u64,
    pub limit_packets: usize,
    pub limit_bytes: u64,
}

impl<T> Queue<T> {
    pub fn new(place: usize) -> Queue<T> {
        let held = if place < QUEUES { Held::Fifo(VecDeque::new()) } else { Held::Flows(FlowQueues::default()) };
        Queue { held, bytes: 0, limit_packets: usize::MAX, limit_bytes: u64::MAX }
    }

    pub fn len(&self) -> usize {
        match &self.held {
            Held::Fifo(fifo) => fifo.len(),
            Held::Flows(flows) => flows.len(),
        }
    }

    pub fn front(&self) -> Option<&Queued<T>> {
        match &self.held {
            Held::Fifo(fifo) => fifo.front(),
            Held::Flows(flows) => flows.front(),
        }
    }

    pub fn push(&mut self, flow: u32, packet: Queued<T>) {
        match &mut self.held {
            Held::Fifo(fifo) => fifo.push_back(packet),
            Held::Flows(flows) => flows.push(flow, packet),
        }
    }

    pub fn pop(&mut self) -> Option<Queued<T>> {
        match &mut self.held {
            Held::Fifo(fifo) => fifo.pop_front(),
            Held::Flows(flows) => flows.pop(),
        }
    }

    /// Bytes of the packet that [`Queue::drop_first`] takes of no flow in particular.
    pub fn first_to_drop(&self) -> u32 {
        let bytes = match &self.held {
            Held::Fifo(fifo) => fifo.front().map(|packet| packet.bytes),
            Held::Flows(flows) => flows.first_to_drop(),
        };
        bytes.unwrap_or(0)
    }

    /// Returns true if a flow takes so many bytes more, in a lane that sends at a rate (bit/s).
    pub fn flow_has_room(&self, flow: u32, bytes: u32, rate: u64) -> bool {
        match &self.held {
            Held::Fifo(_) => true,
            Held::Flows(flows) => {
                let held = flows.bytes_of(flow);
                let part = rate / 8 * LANE_SECONDS / flows.waiting().max(1) as u64;
                held == 0 || held + bytes as u64 <= part.max(MIN_OF_FLOW)
            }
        }
    }

    /// Takes the first packet, in a lane that of a flow, or of its longest.
    pub fn drop_first(&mut self, flow: Option<u32>) -> Option<Queued<T>> {
        match &mut self.held {
            Held::Fifo(fifo) => fifo.pop_front(),
            Held::Flows(flows) => match flow {
                Some(flow) => flows.drop_first_of(flow),
                None => flows.drop_first(),
            },
        }
    }

    /// Takes the last packet of a FIFO.
    pub fn drop_last(&mut self) -> Option<Queued<T>> {
        match &mut self.held {
            Held::Fifo(fifo) => fifo.pop_back(),
            Held::Flows(_) => None,
        }
    }
}
