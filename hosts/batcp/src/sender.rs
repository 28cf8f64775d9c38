// SPDX-License-Identifier: Apache-2.0
//! The sending end of a connection: cuts the stream into numbered segments and keeps each until it is acknowledged.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::segment::{HEADER, MAX_FRAME, MAX_OUTSTANDING, Malformed};

/// Bytes that writes are gathered in: the payload of the longest segment; a segment never spans two pieces.
pub const PIECE: usize = MAX_FRAME - HEADER;

/// Transmission of a segment on a subflow; `position`: bytes that the subflow has carried up to its end. Once the
/// peer's kernel has acknowledged so many, the segment has arrived there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    pub subflow: u32,
    pub position: u64,
}

struct Outstanding {
    payload: Bytes,
    /// Subflows that carry it; each at most once.
    carriers: Vec<Carrier>,
}

/// Segment to be written to a subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub number: u64,
    pub payload: Bytes,
}

/// Sending end of a connection's stream.
pub struct Sender {
    window: usize,
    unsent: VecDeque<Bytes>,
    /// The last bytes, to which more are added.
    tail: BytesMut,
    unsent_bytes: usize,
    /// Segments from `first` on that are not acknowledged.
    outstanding: VecDeque<Outstanding>,
    outstanding_bytes: usize,
    first: u64,
    /// Segments whose carriers are lost or stalled.
    lost: BTreeSet<u64>,
    /// Bytes cut into segments so far, and how many may be.
    cut: u64,
    limit: u64,
    /// The program has closed its end.
    closed: bool,
    /// The peer has acknowledged the end too.
    finished: bool,
    repeated: u64,
}

impl Sender {
    /// `window`: bytes that may be kept, sent or not. `limit`: bytes that the peer takes before it says more.
    pub fn new(window: usize, limit: u64) -> Self {
        Self {
            window,
            unsent: VecDeque::new(),
            tail: BytesMut::new(),
            unsent_bytes: 0,
            outstanding: VecDeque::new(),
            outstanding_bytes: 0,
            first: 0,
            lost: BTreeSet::new(),
            cut: 0,
            limit,
            closed: false,
            finished: false,
            repeated: 0,
        }
    }

    fn room(&self) -> usize {
        self.window.saturating_sub(self.unsent_bytes + self.outstanding_bytes)
    }

    /// Copies as much of `from` as there is room for; returns how much.
    pub fn write(&mut self, from: &[u8]) -> usize {
        let from = &from[..self.room().min(from.len())];
        let mut rest = from;
        while !rest.is_empty() {
            let spare = self.tail.capacity() - self.tail.len();
            if spare == 0 {
                self.cut_tail();
                self.tail = BytesMut::with_capacity(rest.len().clamp(4096, PIECE));
                continue;
            }
            let (now, later) = rest.split_at(spare.min(rest.len()));
            self.tail.extend_from_slice(now);
            rest = later;
        }
        self.unsent_bytes += from.len();
        from.len()
    }

    /// Takes as much of `from` as there is room for, without a copy; returns how much. Little is not worth a segment of its own.
    pub fn give(&mut self, from: &mut Bytes) -> usize {
        let length = self.room().min(from.len());
        if length < from.len().min(PIECE).min(self.window / 2) {
            return 0;
        }
        self.cut_tail();
        self.unsent.push_back(from.split_to(length));
        self.unsent_bytes += length;
        length
    }

    fn cut_tail(&mut self) {
        if !self.tail.is_empty() {
            self.unsent.push_back(self.tail.split().freeze());
        }
    }

    /// End the stream: no more will be written.
    pub fn close(&mut self) {
        self.closed = true;
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Cuts the next segment, of `length` bytes at most. None: nothing unsent, or the peer's window or the bound of segments is full.
    pub fn take_new(&mut self, length: usize) -> Option<Segment> {
        let allowed = usize::try_from(self.limit.saturating_sub(self.cut)).unwrap_or(usize::MAX);
        if allowed == 0 || self.outstanding.len() as u64 >= MAX_OUTSTANDING {
            return None;
        }
        let payload = match self.unsent.front_mut() {
            Some(piece) => {
                // Equal parts: a short rest would cost as much as a long one.
                let parts = piece.len().div_ceil(length.min(allowed));
                let payload = piece.split_to(piece.len().div_ceil(parts));
                if piece.is_empty() {
                    self.unsent.pop_front();
                }
                payload
            }
            None if self.tail.is_empty() => return None,
            None => self.tail.split_to(length.min(allowed).min(self.tail.len())).freeze(),
        };
        let number = self.next();
        self.unsent_bytes -= payload.len();
        self.outstanding_bytes += payload.len();
        self.cut += payload.len() as u64;
        self.outstanding.push_back(Outstanding { payload: payload.clone(), carriers: Vec::new() });
        Some(Segment { number, payload })
    }

    /// Take the oldest lost segment that `subflow` does not carry already.
    pub fn take_lost(&mut self, subflow: u32) -> Option<Segment> {
        let carries = |number: &u64| self.carriers(*number).iter().any(|carrier| carrier.subflow == subflow);
        let number = *self.lost.iter().find(|number| !carries(number))?;
        self.lost.remove(&number);
        self.repeated += 1;
        Some(Segment { number, payload: self.outstanding[(number - self.first) as usize].payload.clone() })
    }

    /// Copy for `subflow` a segment that only other subflows carry: the oldest (`newest` false: it holds up the
    /// receiver) or the newest one (it would come last) for which `worth` returns true, given its carriers and length.
    pub fn take_again(
        &mut self,
        subflow: u32,
        newest: bool,
        worth: impl Fn(&[Carrier], usize) -> bool,
    ) -> Option<Segment> {
        let fits = |entry: &Outstanding| {
            !entry.carriers.is_empty()
                && entry.carriers.iter().all(|carrier| carrier.subflow != subflow)
                && worth(&entry.carriers, entry.payload.len())
        };
        let index =
            if newest { self.outstanding.iter().rposition(fits) } else { self.outstanding.iter().position(fits) }?;
        self.repeated += 1;
        let number = self.first + index as u64;
        self.lost.remove(&number);
        Some(Segment { number, payload: self.outstanding[index].payload.clone() })
    }

    /// Record that `carrier` takes the segment.
    pub fn carried(&mut self, number: u64, carrier: Carrier) {
        if let Some(entry) = number.checked_sub(self.first).and_then(|index| self.outstanding.get_mut(index as usize)) {
            entry.carriers.push(carrier);
        }
    }

    fn carriers(&self, number: u64) -> &[Carrier] {
        &self.outstanding[(number - self.first) as usize].carriers
    }

    /// Mark as lost the segments that only `subflow` carries, which is dead (`dead`) or stalled, until they are
    /// acknowledged. `delivered`: bytes that the subflow's peer has acknowledged; it does not count for a dead one, as
    /// unread bytes are gone. `hopeless`: other stalled subflows.
    pub fn lose(&mut self, subflow: u32, delivered: u64, dead: bool, hopeless: &[u32]) {
        for (number, entry) in (self.first..).zip(&mut self.outstanding) {
            let concerned = entry
                .carriers
                .iter()
                .any(|carrier| carrier.subflow == subflow && (dead || carrier.position > delivered));
            if dead {
                entry.carriers.retain(|carrier| carrier.subflow != subflow);
            }
            let hope = |carrier: &Carrier| carrier.subflow != subflow && !hopeless.contains(&carrier.subflow);
            if concerned && !entry.carriers.iter().any(hope) {
                self.lost.insert(number);
            }
        }
    }

    /// Unmark the lost segments of a subflow that has recovered.
    pub fn recovered(&mut self, subflow: u32) {
        let Self { lost, outstanding, first, .. } = self;
        lost.retain(|number| {
            outstanding[(number - *first) as usize].carriers.iter().all(|carrier| carrier.subflow != subflow)
        });
    }

    /// Process an acknowledgement: the peer has all segments before `expected` and takes `limit` bytes in all. Return
    /// the newly acknowledged bytes. Errors: it acknowledges segments that were never sent.
    pub fn acknowledge(&mut self, expected: u64, limit: u64) -> Result<usize, Malformed> {
        let next = self.next();
        if expected > next + u64::from(self.closed) || expected > next && self.unsent_bytes > 0 {
            return Err(Malformed("an acknowledgement of what was never sent"));
        }
        self.limit = self.limit.max(limit);
        self.finished |= expected > next;
        let before = self.outstanding_bytes;
        while self.first < expected.min(next) {
            let entry = self.outstanding.pop_front().expect("as many as numbers");
            self.outstanding_bytes -= entry.payload.len();
            self.first += 1;
        }
        self.lost = self.lost.split_off(&self.first);
        Ok(before - self.outstanding_bytes)
    }

    /// Return the number after the last segment that was cut.
    pub fn next(&self) -> u64 {
        self.first + self.outstanding.len() as u64
    }

    /// Return the number after the connection's last segment, once that is known: the number of an end frame.
    pub fn end(&self) -> Option<u64> {
        (self.closed && self.unsent_bytes == 0).then(|| self.next())
    }

    /// True if the peer has acknowledged everything and the end.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// True if the peer's window or the bound of segments blocks unsent bytes.
    pub fn is_blocked(&self) -> bool {
        self.unsent_bytes > 0 && (self.cut >= self.limit || self.outstanding.len() as u64 >= MAX_OUTSTANDING)
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    pub fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes
    }

    /// Return the bytes that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.cut - self.outstanding_bytes as u64
    }

    /// Return the number of segments that were given to a second subflow.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reassembly::Reassembly;
    use proptest::prelude::*;

    fn take(sender: &mut Sender, length: usize, subflow: u32, position: u64) -> Segment {
        let segment = sender.take_new(length).unwrap();
        sender.carried(segment.number, Carrier { subflow, position });
        segment
    }

    #[test]
    fn segments_are_kept_until_acknowledged() {
        let mut sender = Sender::new(10, 8);
        assert_eq!(sender.write(b"0123456789ab"), 10);
        assert_eq!(take(&mut sender, 4, 1, 12), Segment { number: 0, payload: Bytes::from_static(b"0123") });
        assert_eq!(take(&mut sender, 9, 2, 12).payload, "4567", "the peer's limit holds");
        assert!(sender.is_blocked() && sender.take_new(1).is_none());
        assert_eq!(sender.acknowledge(1, 20), Ok(4));
        assert_eq!(sender.write(b"xyz123"), 4);
        assert_eq!(sender.acknowledge(3, 20), Err(Malformed("an acknowledgement of what was never sent")));
        assert_eq!((sender.acknowledged(), sender.outstanding_bytes(), sender.unsent_bytes()), (4, 4, 6));
    }

    #[test]
    fn a_dead_subflows_segments_are_repeated_once() {
        let mut sender = Sender::new(100, 100);
        sender.write(b"aabbcc");
        take(&mut sender, 2, 1, 10);
        take(&mut sender, 2, 2, 10);
        take(&mut sender, 2, 1, 20);
        sender.lose(1, 10, false, &[]);
        assert_eq!(sender.take_lost(1), None, "it carries it already");
        assert_eq!(sender.take_lost(2).unwrap().number, 2, "number 0 has arrived at the peer");
        sender.carried(2, Carrier { subflow: 2, position: 20 });
        sender.lose(1, 10, true, &[]);
        assert_eq!(sender.take_lost(2).unwrap().number, 0, "number 2 is on another subflow");
        assert_eq!(sender.take_lost(2), None);
    }

    #[test]
    fn a_recovered_subflow_needs_no_repetition() {
        let mut sender = Sender::new(100, 100);
        sender.write(b"aabb");
        take(&mut sender, 2, 1, 10);
        sender.lose(1, 0, false, &[]);
        sender.recovered(1);
        assert_eq!(sender.take_lost(2), None);
        assert_eq!(sender.take_again(2, true, |_, _| false), None);
        assert_eq!(sender.take_again(2, true, |carriers, _| carriers[0].subflow == 1).unwrap().number, 0);
    }

    #[test]
    fn the_end_counts_as_a_segment() {
        let mut sender = Sender::new(100, 100);
        sender.write(b"ab");
        sender.close();
        assert_eq!(sender.end(), None);
        take(&mut sender, 9, 1, 2);
        assert_eq!(sender.end(), Some(1));
        assert_eq!(sender.acknowledge(1, 100), Ok(2));
        assert!(!sender.is_finished());
        sender.acknowledge(2, 100).unwrap();
        assert!(sender.is_finished());
        assert!(sender.acknowledge(3, 100).is_err());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        Send(u32, usize),
        Deliver(u32),
        Kill(u32),
        Stall(u32),
        Recover(u32),
        Read(usize),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1usize..5000).prop_map(Step::Write),
            (0u32..3, 1usize..900).prop_map(|(subflow, length)| Step::Send(subflow, length)),
            (0u32..3).prop_map(Step::Deliver),
            (0u32..3).prop_map(Step::Deliver),
            (0u32..3).prop_map(Step::Kill),
            (0u32..3).prop_map(Step::Stall),
            (0u32..3).prop_map(Step::Recover),
            (1usize..3000).prop_map(Step::Read),
        ]
    }

    /// Sends what the sender has for a subflow onto it: lost segments first.
    fn send(sender: &mut Sender, wire: &mut VecDeque<(Segment, u64)>, position: &mut u64, subflow: u32, length: usize) {
        let segment = sender.take_lost(subflow).or_else(|| sender.take_new(length));
        if let Some(segment) = segment {
            *position += segment.payload.len() as u64;
            sender.carried(segment.number, Carrier { subflow, position: *position });
            wire.push_back((segment, *position));
        }
    }

    proptest! {
        /// Three subflows that die (and come back under a new id), stall and recover at random: the stream arrives whole and
        /// in order, within both windows.
        #[test]
        fn no_byte_is_lost(script in prop::collection::vec(steps(), 0..400)) {
            let window = 4000;
            let (mut sender, mut receiver) = (Sender::new(window, window as u64), Reassembly::new(window));
            let (mut ids, mut wires, mut sent) = ([0u32, 1, 2], [VecDeque::new(), VecDeque::new(), VecDeque::new()], [0u64; 3]);
            let (mut written, mut got, mut octet) = (Vec::new(), Vec::new(), 0u8);
            let mut stalled = [false; 3];
            let mut buffer = [0; 3000];
            for step in script {
                match step {
                    Step::Write(length) => {
                        let bytes: Vec<u8> = (0..length).map(|_| { octet = octet.wrapping_mul(5).wrapping_add(3); octet }).collect();
                        let taken = sender.write(&bytes);
                        written.extend_from_slice(&bytes[..taken]);
                    }
                    Step::Send(k, length) if !stalled[k as usize] => {
                        let k = k as usize;
                        send(&mut sender, &mut wires[k], &mut sent[k], ids[k], length);
                    }
                    Step::Deliver(k) if !stalled[k as usize] => if let Some((segment, _)) = wires[k as usize].pop_front() {
                        receiver.accept(segment.number, segment.payload.clone()).unwrap();
                        let (expected, limit) = receiver.acknowledgement();
                        sender.acknowledge(expected, limit).unwrap();
                    },
                    Step::Kill(k) => {
                        let k = k as usize;
                        wires[k].clear();
                        sender.lose(ids[k], u64::MAX, true, &[]);
                        (ids[k], sent[k], stalled[k]) = (ids[k] + 3, 0, false);
                    }
                    Step::Stall(k) if !stalled[k as usize] => {
                        let k = k as usize;
                        stalled[k] = true;
                        let delivered = wires[k].front().map_or(sent[k], |(s, p): &(Segment, u64)| p - s.payload.len() as u64);
                        let hopeless: Vec<u32> = (0..3).filter(|&other| stalled[other]).map(|other| ids[other]).collect();
                        sender.lose(ids[k], delivered, false, &hopeless);
                    }
                    Step::Recover(k) if stalled[k as usize] => {
                        stalled[k as usize] = false;
                        sender.recovered(ids[k as usize]);
                    }
                    Step::Read(length) => {
                        let length = receiver.read(&mut buffer[..length]);
                        got.extend_from_slice(&buffer[..length]);
                        let (expected, limit) = receiver.acknowledgement();
                        sender.acknowledge(expected, limit).unwrap();
                    }
                    _ => {}
                }
            }
            // Only subflow 0 is left; a fair run to the end.
            for k in [1, 2] {
                sender.lose(ids[k], u64::MAX, true, &[]);
            }
            sender.recovered(ids[0]);
            sender.close();
            for _ in 0..10_000 {
                send(&mut sender, &mut wires[0], &mut sent[0], ids[0], 500);
                if let Some((segment, _)) = wires[0].pop_front() {
                    receiver.accept(segment.number, segment.payload.clone()).unwrap();
                }
                if let Some(end) = sender.end() {
                    receiver.finish(end).unwrap();
                }
                let length = receiver.read(&mut buffer);
                got.extend_from_slice(&buffer[..length]);
                let (expected, limit) = receiver.acknowledgement();
                sender.acknowledge(expected, limit).unwrap();
                if sender.is_finished() && receiver.readable() == 0 {
                    break;
                }
            }
            prop_assert!(sender.is_finished());
            prop_assert_eq!(got, written);
        }
    }
}
