// SPDX-License-Identifier: Apache-2.0
//! The packets of a lane: a FIFO for each flow, and these share the lane equally, by deficit round robin over bytes. A flow is
//! a number that comes with the packet; those whose packets bring none are one flow.
//!
//! As fq_codel (RFC 8290) and CAKE do it, without their priority of flows that just begin and their control of delay: these
//! are the program's.

use std::collections::VecDeque;

/// Flows that a lane tells apart while their packets wait.
const FLOWS: usize = 1024;
/// Places that a flow may have. Where all are taken it shares the first, and so does each that begins there until that is
/// empty: a flow stays in order.
const WAYS: usize = 8;
/// Bytes of a flow's turn.
const QUANTUM: i64 = 1514;

/// No slot.
const NONE: u32 = u32::MAX;

/// A packet that waits.
pub struct Queued<T> {
    pub item: T,
    pub bytes: u32,
    pub enqueued: u64,
}

struct Slot<T> {
    packet: Option<Queued<T>>,
    /// The next packet of the flow, or the next free slot.
    next: u32,
}

#[derive(Clone, Copy)]
struct Flow {
    number: u32,
    first: u32,
    last: u32,
    bytes: u64,
    /// Bytes that it may send in its turn; negative: debt, which stays when it has sent all.
    credit: i64,
    /// Another flow's packets have joined it since it was empty.
    shared: bool,
}

/// Flows of one lane. Takes memory with its first packet.
pub struct FlowQueues<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot.
    free: u32,
    flows: Vec<Flow>,
    /// Flows that have packets, in the order of their turns. The first has credit.
    turns: VecDeque<u16>,
    packets: usize,
}

impl<T> Default for FlowQueues<T> {
    fn default() -> FlowQueues<T> {
        FlowQueues { slots: Vec::new(), free: NONE, flows: Vec::new(), turns: VecDeque::new(), packets: 0 }
    }
}

impl<T> FlowQueues<T> {
    pub fn len(&self) -> usize {
        self.packets
    }

    /// The next packet.
    pub fn front(&self) -> Option<&Queued<T>> {
        let flow = &self.flows[*self.turns.front()? as usize];
        self.slots[flow.first as usize].packet.as_ref()
    }

    pub fn push(&mut self, flow: u32, packet: Queued<T>) {
        if self.flows.is_empty() {
            self.flows = vec![Flow { number: 0, first: NONE, last: NONE, bytes: 0, credit: 0, shared: false }; FLOWS];
        }
        let at = self.find(flow);
        let bytes = packet.bytes;
        let slot = self.fill(packet);
        let to = &mut self.flows[at];
        to.bytes += bytes as u64;
        if to.first == NONE {
            (to.number, to.shared, to.first, to.credit) = (flow, false, slot, to.credit.min(0) + QUANTUM);
            self.turns.push_back(at as u16);
        } else {
            to.shared |= to.number != flow;
            self.slots[to.last as usize].next = slot;
        }
        to.last = slot;
        self.packets += 1;
        self.pass_on();
    }

    pub fn pop(&mut self) -> Option<Queued<T>> {
        let at = *self.turns.front()? as usize;
        let packet = self.take_first(at)?;
        self.flows[at].credit -= packet.bytes as i64;
        if self.flows[at].first == NONE {
            self.turns.pop_front();
        }
        self.pass_on();
        Some(packet)
    }

    /// Bytes of the packet that [`FlowQueues::drop_first`] takes.
    pub fn first_to_drop(&self) -> Option<u32> {
        let at = self.turns[self.longest()?] as usize;
        self.slots[self.flows[at].first as usize].packet.as_ref().map(|packet| packet.bytes)
    }

    /// Takes the first packet of the longest flow.
    pub fn drop_first(&mut self) -> Option<Queued<T>> {
        let turn = self.longest()?;
        let at = self.turns[turn] as usize;
        let packet = self.take_first(at);
        if self.flows[at].first == NONE {
            self.turns.remove(turn);
        }
        self.pass_on();
        packet
    }

    /// The turn of the flow that holds most.
    fn longest(&self) -> Option<usize> {
        let held = |turn: &usize| self.flows[self.turns[*turn] as usize].bytes;
        (0..self.turns.len()).max_by_key(held)
    }

    /// The place of a flow: its own, a free one, or one that it shares.
    fn find(&self, number: u32) -> usize {
        // Numbers in a row are as far apart as hashes.
        let start = (number.wrapping_mul(0x9E37_79B1) >> 22) as usize;
        let mut free = None;
        for way in 0..WAYS {
            let at = (start + way) % FLOWS;
            match &self.flows[at] {
                flow if flow.first == NONE => free = free.or(Some(at)),
                flow if flow.number == number => return at,
                _ => {}
            }
        }
        let first = &self.flows[start];
        free.filter(|_| first.first == NONE || !first.shared).unwrap_or(start)
    }

    fn fill(&mut self, packet: Queued<T>) -> u32 {
        let slot = Slot { packet: Some(packet), next: NONE };
        match self.free {
            NONE => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
            at => {
                self.free = std::mem::replace(&mut self.slots[at as usize], slot).next;
                at
            }
        }
    }

    fn take_first(&mut self, at: usize) -> Option<Queued<T>> {
        let flow = &mut self.flows[at];
        let slot = self.slots.get_mut(flow.first as usize)?;
        let packet = slot.packet.take()?;
        let first = std::mem::replace(&mut flow.first, slot.next);
        slot.next = std::mem::replace(&mut self.free, first);
        flow.bytes -= packet.bytes as u64;
        self.packets -= 1;
        Some(packet)
    }

    /// Ends the turns of flows without credit.
    fn pass_on(&mut self) {
        while let Some(&at) = self.turns.front()
            && self.flows[at as usize].credit <= 0
        {
            self.flows[at as usize].credit += QUANTUM;
            self.turns.rotate_left(1);
        }
    }
}
