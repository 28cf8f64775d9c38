// SPDX-License-Identifier: Apache-2.0
//! One queue or lane of a port.

use std::collections::VecDeque;

use crate::flow_queues::{FlowQueues, Queued};
use crate::scheduler::QUEUES;

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

    /// Bytes of the packet that [`Queue::drop_first`] takes.
    pub fn first_to_drop(&self) -> u32 {
        let bytes = match &self.held {
            Held::Fifo(fifo) => fifo.front().map(|packet| packet.bytes),
            Held::Flows(flows) => flows.first_to_drop(),
        };
        bytes.unwrap_or(0)
    }

    /// Takes the first packet, in a lane that of its longest flow.
    pub fn drop_first(&mut self) -> Option<Queued<T>> {
        match &mut self.held {
            Held::Fifo(fifo) => fifo.pop_front(),
            Held::Flows(flows) => flows.drop_first(),
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
