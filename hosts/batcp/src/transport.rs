// SPDX-License-Identifier: Apache-2.0
//! Decisions of a connection: which subflow sends what, what a received frame changes, which subflows live (paper 003,
//! sections 3.2 to 3.6). No socket is read or written here.

use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::task::AbortHandle;

use super::Scheduler;
use super::connection_state::{ConnectionState, LockedState, MAX_SUBFLOWS, Totals, Work};
use super::scheduler::loads;
use super::segment::{self, Frame, HEADER, Malformed, WireSequence, continue_number};
use super::sender::{Carrier, Segment};
use super::subflow::{GRAIN, SAMPLE, Subflow};
use super::uplink::Direction;

/// Received segments are acknowledged together, after this time or when the window needs it.
const ACK_DELAY: Duration = Duration::from_millis(20);
const ACK_BYTES: usize = 131_072;
/// Pause before a subflow checks again if it can help others at the end.
const RECHECK: Duration = Duration::from_millis(20);
/// A subflow stalls when nothing arrives for this long, or three round-trip times.
const STALL: Duration = Duration::from_secs(1);
/// An end that cannot open subflows closes one that is stalled for this long, while others live: the other end opens a
/// new one. By what it sees alone the path may be good: it drops this end's long packets only.
const HOPELESS: Duration = Duration::from_secs(3);
/// Time for which a reading of the kernel's queues serves to choose between subflows.
const FRESH: Duration = Duration::from_millis(1);
/// Pause between two polls of the sockets of a connection that has nothing to send.
const REST: Duration = Duration::from_millis(500);
/// An arrival that is later by less, in seconds, is no reason to let a subflow rest: on fast paths estimates are no better.
const SLACK: f64 = 0.005;
/// An interface that is twice as dear as others helps when these would take longer than this, in seconds, for all that
/// waits; one that is k times as dear, k / 2 times as long.
const OVERFLOW: f64 = 0.25;

impl ConnectionState {
    /// Remove a dead subflow: other subflows carry its segments. Its socket closes.
    pub fn remove(&self, id: u32) {
        let mut state = self.state();
        let Some(subflow) = state.subflows.remove(&id) else { return };
        subflow.tasks.iter().for_each(AbortHandle::abort);
        if !state.is_done() {
            let now = Instant::now();
            subflow.link.discard();
            // Neither a reset nor a quota says anything of the path.
            if state.error.is_none() && !subflow.link.uplink.is_used_up() {
                subflow.link.uplink.fails(now);
            }
            let others = state.stalled();
            state.sender.lose(id, 0, true, &others);
            state.totals.entry(subflow.number).or_insert_with(|| Totals::new(&subflow.interface.name)).lost += 1;
            state.subflows.values_mut().for_each(|other| other.acknowledge_at(now));
        }
        state.weigh();
        state.wake_writers();
        drop(state);
        self.changed.notify_one();
    }

    /// Remove subflows that have been stalled for long, unless all are.
    pub fn drop_stalled(&self, now: Instant) {
        let state = self.state();
        let hopeless = |subflow: &Subflow| subflow.stalled && now - subflow.progress.1 > HOPELESS;
        let ids: Vec<u32> = state.subflows.iter().filter(|(_, s)| hopeless(s)).map(|(&id, _)| id).collect();
        let alive = state.is_alive();
        drop(state);
        ids.into_iter().filter(|_| alive).for_each(|id| self.remove(id));
    }

    /// Remove the subflows of interfaces whose quota is used up; with them the connection, if there is no other.
    pub fn spare_quotas(&self) {
        let state = self.state();
        let used_up = |subflow: &Subflow| subflow.link.uplink.is_used_up();
        let ids: Vec<u32> = state.subflows.iter().filter(|(_, s)| used_up(s)).map(|(&id, _)| id).collect();
        let all = !ids.is_empty() && ids.len() == state.subflows.len();
        drop(state);
        if all {
            self.fail(io::ErrorKind::QuotaExceeded, "the quota of the last interface is used up".into());
        } else {
            ids.into_iter().for_each(|id| self.remove(id));
        }
    }

    /// Return true if an authentic join of this interface is admitted: its sequence number is new (this marks it as
    /// seen), and there is room for a subflow.
    pub fn admits(&self, number: u8, sequence: u32) -> bool {
        let mut state = self.state();
        let replaces = state.subflows.values().any(|subflow| subflow.number == number);
        state.joins.is_new(sequence) && (replaces || state.subflows.len() < MAX_SUBFLOWS)
    }

    /// Return the next task of a subflow's writer. Called when the subflow can take bytes.
    pub fn work(&self, id: u32) -> Work {
        self.state().work(id, self.options.scheduler)
    }

    /// Process the whole frames among a subflow's read bytes. Errors: the peer has reset the connection.
    pub fn received(&self, id: u32, buffer: &mut BytesMut) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        if state.error.is_some() {
            buffer.clear(); // only the reset is still to be sent
            return Ok(());
        }
        let outcome = state.take_frames(id, buffer);
        if let Err(Malformed(what)) = outcome {
            state.fail(io::ErrorKind::InvalidData, format!("the peer broke the protocol: {what}"));
        }
        if state.error.is_some() || state.is_done() {
            self.changed.notify_one();
        }
        if state.reset_by_peer { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// End the connection with an error, at both ends.
    pub fn fail(&self, kind: io::ErrorKind, text: String) {
        self.state().fail(kind, text);
        self.changed.notify_one();
    }
}

impl LockedState {
    /// True if both directions are complete and acknowledged.
    pub fn is_done(&self) -> bool {
        self.sender.is_finished() && self.receiver.is_complete()
    }

    fn stalled(&self) -> Vec<u32> {
        self.subflows.iter().filter(|(_, subflow)| subflow.stalled).map(|(&id, _)| id).collect()
    }

    /// True if at least one subflow is not stalled.
    pub fn is_alive(&self) -> bool {
        self.subflows.values().any(|subflow| !subflow.stalled)
    }

    /// Wake the program's reads and writes.
    pub fn wake_program(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    /// Wake the writers of all subflows.
    pub fn wake_writers(&mut self) {
        self.subflows.values_mut().for_each(Subflow::wake);
    }

    /// End the connection with an error, at both ends; the first error stays.
    pub fn fail(&mut self, kind: io::ErrorKind, text: String) {
        if self.error.is_none() && !self.ended {
            self.error = Some((kind, text));
        }
        self.wake_program();
        self.wake_writers();
    }

    fn work(&mut self, id: u32, scheduler: Scheduler) -> Work {
        let now = Instant::now();
        let (failed, reset, done) = (self.error.is_some(), self.reset_by_peer, self.is_done());
        let Some(subflow) = self.subflows.get_mut(&id) else { return Work::Finish };
        subflow.idle = false;
        if failed {
            if subflow.reset_sent || reset {
                return Work::Finish;
            }
            subflow.reset_sent = true;
            return Work::Control(segment::encode(&Frame::Reset { reason: 1 }));
        }
        if subflow.ack_at.is_some_and(|at| at <= now) {
            (subflow.ack_at, subflow.ack_bytes) = (None, 0);
            let (expected, limit) = self.receiver.acknowledgement();
            self.announced_limit = limit;
            return self.control(id, &Frame::Acknowledgement { expected, limit });
        }
        let ack_at = subflow.ack_at;
        if done {
            return Work::Finish;
        }
        let batch = self.subflows[&id].batch();
        let mut segments = Vec::new();
        let later = loop {
            if let Some(at) = self.subflows[&id].link.uplink.wait(Direction::Up, now) {
                break Some(at);
            }
            let (segment, later) = self.pick(id, now, scheduler);
            let Some(segment) = segment else { break later };
            let subflow = self.subflows.get_mut(&id).expect("it was there");
            let octets = HEADER + segment.payload.len() + subflow.link.overhead();
            subflow.committed += octets as u64;
            subflow.link.uplink.pass(Direction::Up, octets, now);
            let carrier = Carrier { subflow: id, position: subflow.committed };
            let total = self.totals.get_mut(&subflow.number).expect("made with the subflow");
            total.segments_sent += 1;
            total.bytes_sent += segment.payload.len() as u64;
            self.sender.carried(segment.number, carrier);
            segments.push(segment);
            if segments.len() == batch {
                break None;
            }
        };
        if !segments.is_empty() {
            return Work::Segments(segments);
        }
        let subflow = self.subflows.get_mut(&id).expect("it was there");
        if let Some(number) = self.sender.end()
            && !subflow.end_sent
        {
            subflow.end_sent = true;
            return self.control(id, &Frame::End { number });
        }
        subflow.idle = true;
        subflow.starved = true;
        Work::Idle([ack_at, later].into_iter().flatten().min())
    }

    fn control(&mut self, id: u32, frame: &Frame) -> Work {
        let octets = segment::encode(frame);
        let subflow = self.subflows.get_mut(&id).expect("it was there");
        subflow.committed += (octets.len() + subflow.link.overhead()) as u64;
        Work::Control(octets)
    }

    /// Choose the segment for a subflow that can take one, or the time to check again.
    fn pick(&mut self, id: u32, now: Instant, scheduler: Scheduler) -> (Option<Segment>, Option<Instant>) {
        let subflow = &self.subflows[&id];
        if subflow.stalled {
            return (None, None);
        }
        if let Some(segment) = self.sender.take_lost(id) {
            return (Some(segment), None);
        }
        let length = subflow.segment_length();
        match scheduler {
            Scheduler::Paper => {
                if self.robin.turn() != Some(id) {
                    return (None, None);
                }
                let segment = self.sender.take_new(length);
                if segment.is_some() {
                    self.robin.advance();
                    if let Some(next) = self.robin.turn()
                        && let Some(next) = self.subflows.get_mut(&next)
                    {
                        next.wake();
                    }
                }
                (segment, None)
            }
            Scheduler::Earliest => self.pick_earliest(id, now, length),
        }
    }

    /// Choose a new segment, if it arrives on this subflow before the others could have sent everything; else, when
    /// nothing new may be sent, a copy of one that another subflow would deliver later. A dearer subflow does neither
    /// until cheaper ones would take long.
    fn pick_earliest(&mut self, id: u32, now: Instant, length: usize) -> (Option<Segment>, Option<Instant>) {
        let Self { subflows, sender, .. } = self;
        for subflow in subflows.values_mut().filter(|subflow| now - subflow.refreshed > FRESH) {
            subflow.refresh(now);
        }
        let subflow = &subflows[&id];
        let unsent = sender.unsent_bytes();
        // Dearer ones leave it to this one.
        let others = || {
            let lives = |(other, subflow): &(&u32, &Subflow)| **other != id && !subflow.stalled;
            subflows.iter().filter(lives).map(|(_, other)| other).filter(|other| other.price <= subflow.price)
        };
        let cheapest = others().map(|other| other.price).fold(f64::INFINITY, f64::min);
        let patience = if cheapest < subflow.price { OVERFLOW * subflow.price / cheapest / 2.0 } else { 0.0 };
        let blocked = sender.is_blocked();
        if unsent > 0 && !blocked {
            let rate: f64 = others().map(Subflow::throughput).sum();
            let queued: u64 = others().map(Subflow::queued).sum();
            let without = (queued + unsent as u64) as f64 / rate;
            let least = others().map(|other| other.arrival(0)).fold(f64::INFINITY, f64::min);
            let earlier = subflow.arrival(length.min(unsent)) <= without.max(least) + SLACK;
            if rate > 0.0 && (without < patience || !earlier) {
                return (None, Some(now + RECHECK));
            }
            return (sender.take_new(length), None);
        }
        if sender.outstanding_bytes() == 0 || subflows.len() < 2 {
            return (None, None);
        }
        // Time of the bytes before a segment on its carrier; a segment that has arrived needs no copy.
        let remaining = |carrier: &Carrier| match subflows.get(&carrier.subflow) {
            Some(other) => carrier.position.saturating_sub(other.progress.0) as f64 / other.throughput(),
            None => f64::INFINITY,
        };
        let margin = patience.max(GRAIN.as_secs_f64());
        let worth = |carriers: &[Carrier], length: usize| {
            let first = carriers.iter().map(remaining).fold(f64::INFINITY, f64::min);
            first > 0.0 && 1.25 * subflow.arrival(length) + margin < first
        };
        (sender.take_again(id, !blocked, worth), Some(now + RECHECK))
    }

    fn take_frames(&mut self, id: u32, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let now = Instant::now();
        (self.last_alive, self.last_frame) = (now, now);
        loop {
            let (expected, _) = self.receiver.acknowledgement();
            let ours = self.sender.next();
            let near = |sequence: &WireSequence| match *sequence {
                WireSequence::Received(digits) => continue_number(digits, expected),
                WireSequence::Sent(digits) => continue_number(digits, ours),
            };
            let Some(frame) = segment::decode(buffer, near)? else { return Ok(()) };
            let Some(subflow) = self.subflows.get_mut(&id) else { return Ok(()) };
            match frame {
                Frame::Segment { number, payload } => {
                    if self.dropped.is_some() {
                        self.fail(io::ErrorKind::ConnectionReset, "data came after the reader ended".into());
                        return Ok(());
                    }
                    let total = self.totals.get_mut(&subflow.number).expect("made with the subflow");
                    total.segments_received += 1;
                    total.bytes_received += payload.len() as u64;
                    subflow.ack_bytes += payload.len();
                    let urgent = subflow.ack_bytes >= ACK_BYTES;
                    self.receiver.accept(number, payload)?;
                    subflow.acknowledge_at(if urgent { now } else { now + ACK_DELAY });
                    if self.receiver.readable() > 0
                        && let Some(reader) = self.reader.take()
                    {
                        reader.wake();
                    }
                    self.check_complete(now);
                }
                Frame::Acknowledgement { expected, limit } => {
                    let blocked = self.sender.is_blocked();
                    let bytes = self.sender.acknowledge(expected, limit)?;
                    if bytes > 0 || self.sender.is_finished() {
                        self.writer.take().into_iter().for_each(Waker::wake);
                    }
                    if blocked && !self.sender.is_blocked() || self.is_done() {
                        self.wake_writers();
                    }
                }
                Frame::End { number } => {
                    self.receiver.finish(number)?;
                    self.check_complete(now);
                }
                Frame::Reset { .. } => {
                    self.reset_by_peer = true;
                    self.fail(io::ErrorKind::ConnectionReset, "the peer has reset the connection".into());
                    return Ok(());
                }
            }
        }
    }

    /// Acknowledge on each subflow at once when all segments have come: the last may be the only one that is alive.
    fn check_complete(&mut self, now: Instant) {
        if self.receiver.is_complete() {
            self.subflows.values_mut().for_each(|subflow| subflow.acknowledge_at(now));
            self.reader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Announce the limit to the peer after the program has read, if that opens the window by a quarter.
    pub fn opened(&mut self, window: usize) {
        let (_, limit) = self.receiver.acknowledgement();
        if limit - self.announced_limit >= window as u64 / 4 {
            self.announced_limit = limit;
            let now = Instant::now();
            self.subflows.values_mut().filter(|subflow| !subflow.stalled).for_each(|s| s.acknowledge_at(now));
        }
    }

    /// Recompute loads after a change of the subflows or their throughputs (equations 1 to 4).
    pub fn weigh(&mut self) {
        let live = || self.subflows.iter().filter(|(_, subflow)| !subflow.stalled);
        let ids: Vec<u32> = live().map(|(&id, _)| id).collect();
        let loads = loads(&live().map(|(_, s)| (&s.interface, s.throughput())).collect::<Vec<_>>());
        for (id, load) in ids.iter().zip(&loads) {
            self.subflows.get_mut(id).expect("it is listed").load = *load;
        }
        self.robin.set(ids.into_iter().zip(loads));
        if let Some(turn) = self.robin.turn()
            && let Some(subflow) = self.subflows.get_mut(&turn)
        {
            subflow.wake();
        }
    }

    /// Poll every subflow's socket: sample the throughput, detect stalled subflows and a vanished peer. Return the time
    /// until the next poll.
    pub fn poll_subflows(&mut self, now: Instant, timeout: Duration, peer: &str) -> Duration {
        let mut changed = Vec::new();
        for (&id, subflow) in &mut self.subflows {
            subflow.refresh(now);
            let before = std::mem::replace(&mut subflow.path, subflow.link.path());
            if let Some(received) = now.checked_sub(subflow.path.silence) {
                self.last_alive = self.last_alive.max(received);
            }
            let patience = STALL.max(3 * subflow.path.rtt);
            // Nothing arrives, or, for an end that has nothing to send, the peer's kernel no longer answers.
            let mute = subflow.path.silence > subflow.link.keepalive + 2 * patience;
            let stalled = mute || now - subflow.progress.1 > patience;
            if stalled != subflow.stalled {
                subflow.stalled = stalled;
                if stalled {
                    subflow.link.uplink.fails(now);
                }
                changed.push((id, subflow.progress.0, stalled));
            }
            subflow.sample(now);
            let total = self.totals.get_mut(&subflow.number).expect("made with the subflow");
            total.tcp_bytes_sent += subflow.path.sent.saturating_sub(before.sent);
            total.tcp_bytes_retransmitted += subflow.path.retransmitted.saturating_sub(before.retransmitted);
            total.rtt_ms = subflow.path.rtt.as_secs_f64() * 1e3;
            total.throughput_kbit = subflow.throughput() * 8e-3;
        }
        let stalled = self.stalled();
        for &(id, delivered, stalls) in &changed {
            match stalls {
                true => self.sender.lose(id, delivered, false, &stalled),
                false => self.sender.recovered(id),
            }
            // An acknowledgement or an end may wait in the stalled one's queue.
            self.subflows.values_mut().for_each(|subflow| subflow.acknowledge_at(now));
        }
        self.weigh();
        if !changed.is_empty() {
            self.wake_writers();
        }
        if now.saturating_duration_since(self.last_alive) > timeout && !self.is_done() {
            let text = format!("{peer} has not answered on any interface for {} s", timeout.as_secs_f64());
            self.fail(io::ErrorKind::TimedOut, text);
        }
        let busy = self.sender.unsent_bytes() + self.sender.outstanding_bytes() > 0;
        self.resting = !busy && self.is_alive();
        if !self.resting {
            return SAMPLE / 2;
        }
        if now.saturating_duration_since(self.last_frame) > REST {
            self.receiver.rest();
        }
        REST
    }
}
