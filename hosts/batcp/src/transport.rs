// SPDX-License-Identifier: Apache-2.0
//! A connection as its subflows and its program share it: who sends what, what came, who lives (paper 003, sections 3.2 to 3.6).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use hosts_base::log::report;

use super::coupling::Group;
use super::hello::Keys;
use super::link::Link;
use super::reassembly::Reassembly;
use super::scheduler::{RoundRobin, dearness, loads};
use super::segment::{self, Frame, HEADER, Malformed, WireSequence, continue_number};
use super::sender::{Carrier, Segment, Sender};
use super::status::Totals;
use super::subflow::{self, GRAIN, SAMPLE, Subflow};
use super::{Interface, Options, Scheduler};

/// Received segments are acknowledged together, after this time or when the window needs it.
const ACK_DELAY: Duration = Duration::from_millis(20);
const ACK_BYTES: usize = 131_072;
/// How often a subflow asks again whether to help others at the end.
const RECHECK: Duration = Duration::from_millis(20);
/// A subflow stalls when nothing arrives for this long, or three round-trip times.
const STALL: Duration = Duration::from_secs(1);
/// What is known of the kernel's queues serves for this time to choose between subflows.
const FRESH: Duration = Duration::from_millis(1);
/// Between two looks at the sockets of a connection that has nothing to send.
const REST: Duration = Duration::from_millis(500);
/// An arrival that is later by less, in seconds, is no reason to let a subflow rest: on fast paths estimates are no better.
const SLACK: f64 = 0.005;
/// A dear interface rests no longer than this between two segments, in seconds.
const MAX_REST: f64 = 60.0;
/// Subflows of a connection: each may hold a read buffer of some segments.
pub const MAX_SUBFLOWS: usize = 16;
/// What a subflow's writer is to do.
pub enum Work {
    Control(Vec<u8>),
    Segments(Vec<Segment>),
    /// Nothing before it is told so, or before that time.
    Idle(Option<Instant>),
    /// All is done: send TCP's FIN.
    Finish,
}

/// One connection. Its tasks and its program hold it.
pub struct Shared {
    pub options: Options,
    /// The four-digit connection id (section 3).
    pub id: u16,
    pub keys: Keys,
    pub token: u64,
    state: Mutex<State>,
    coupled: Option<Group>,
    /// Tells the keeper that something changed.
    pub changed: Notify,
    /// Told when all tasks have ended.
    pub ended: Notify,
}

pub struct State {
    pub sender: Sender,
    pub receiver: Reassembly,
    pub subflows: BTreeMap<u32, Subflow>,
    next_subflow: u32,
    robin: RoundRobin,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub error: Option<(io::ErrorKind, String)>,
    /// A reset has come from the peer, so none is sent.
    reset_by_peer: bool,
    /// The program has let go of the connection.
    pub dropped: Option<Instant>,
    heard: Instant,
    /// When frames came last.
    arrived: Instant,
    /// What the peer was last told that it may send.
    told_limit: u64,
    pub totals: BTreeMap<u8, Totals>,
    joins: JoinWindow,
    /// The keeper sleeps long, as nothing is on its way.
    pub resting: bool,
    pub ended: bool,
}

/// Which joins a connection has seen: the newest sequence number, and which of the 64 before it (as RFC 6479 does).
#[derive(Default)]
struct JoinWindow {
    newest: u32,
    seen: u64,
}

impl JoinWindow {
    /// Whether `sequence` is new; it is not the next time. What is older than the last 64 counts as seen.
    fn is_new(&mut self, sequence: u32) -> bool {
        if sequence > self.newest {
            self.seen = self.seen.checked_shl(sequence - self.newest).unwrap_or(0) | 1;
            self.newest = sequence;
            return true;
        }
        let bit = 1u64.checked_shl(self.newest - sequence).unwrap_or(0);
        let new = bit != 0 && self.seen & bit == 0;
        self.seen |= bit;
        new
    }
}

impl Shared {
    /// `limit`: bytes that the peer takes at first.
    pub fn new(options: Options, id: u16, keys: Keys, token: u64, limit: u64) -> Arc<Self> {
        let state = State {
            sender: Sender::new(options.window, limit),
            receiver: Reassembly::new(options.window),
            subflows: BTreeMap::new(),
            next_subflow: 0,
            robin: RoundRobin::default(),
            reader: None,
            writer: None,
            error: None,
            reset_by_peer: false,
            dropped: None,
            heard: Instant::now(),
            arrived: Instant::now(),
            told_limit: options.window as u64,
            totals: BTreeMap::new(),
            joins: JoinWindow::default(),
            resting: false,
            ended: false,
        };
        let (changed, ended) = (Notify::new(), Notify::new());
        let coupled = options.coupling.as_ref().map(Group::new).transpose().unwrap_or_else(alone);
        Arc::new(Self { options, id, keys, token, state: Mutex::new(state), coupled, changed, ended })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the state")
    }

    /// Takes in a subflow whose hello is done. It takes the place of an earlier one of the same interface, which the other end may
    /// have lost without our knowing.
    pub fn add(self: &Arc<Self>, number: u8, interface: Interface, link: Link) {
        let mut state = self.state();
        if state.ended {
            return;
        }
        let now = Instant::now();
        let link = Arc::new(link);
        let id = state.next_subflow;
        state.next_subflow += 1;
        let total = state.totals.entry(number).or_insert_with(|| Totals::new(&interface.name));
        total.subflows += 1;
        let part = Group::free(|part| state.subflows.values().any(|other| other.part == part));
        if let Some(group) = &self.coupled {
            group.join(&link.stream, part).unwrap_or_else(alone);
        }
        let mut subflow = Subflow::new(number, part, interface, link.clone(), now);
        let (shared, writer) = (self.clone(), link.clone());
        let write = tokio::spawn(async move {
            let result = subflow::write(shared.clone(), id, writer).await;
            if result.is_err() {
                shared.remove(id);
            }
        });
        let shared = self.clone();
        let read = tokio::spawn(async move {
            let _ = subflow::read(shared.clone(), id, link).await;
            shared.remove(id);
        });
        subflow.tasks = vec![write.abort_handle(), read.abort_handle()];
        let old: Vec<u32> = state.subflows.iter().filter(|(_, s)| s.number == number).map(|(&id, _)| id).collect();
        state.subflows.insert(id, subflow);
        state.heard = now;
        state.weigh();
        drop(state);
        old.into_iter().for_each(|id| self.remove(id));
        self.changed.notify_one();
    }

    /// A subflow is dead: what it carried goes to others. Its socket closes.
    pub fn remove(&self, id: u32) {
        let mut state = self.state();
        let Some(subflow) = state.subflows.remove(&id) else { return };
        subflow.tasks.iter().for_each(AbortHandle::abort);
        if !state.is_done() {
            subflow.link.discard();
            let others = state.stalled();
            state.sender.lose(id, 0, true, &others);
            state.totals.entry(subflow.number).or_insert_with(|| Totals::new(&subflow.interface.name)).lost += 1;
            let now = Instant::now();
            state.subflows.values_mut().for_each(|other| other.acknowledge_at(now));
        }
        state.weigh();
        state.wake_writers();
        drop(state);
        self.changed.notify_one();
    }

    /// Whether an authentic join of this interface may come in: its sequence number is new (it is not the next time), and
    /// there is room for a subflow.
    pub fn admits(&self, number: u8, sequence: u32) -> bool {
        let mut state = self.state();
        let replaces = state.subflows.values().any(|subflow| subflow.number == number);
        state.joins.is_new(sequence) && (replaces || state.subflows.len() < MAX_SUBFLOWS)
    }

    /// What the writer of a subflow does next. It is asked when the subflow can take bytes.
    pub fn work(&self, id: u32) -> Work {
        self.state().work(id, self.options.scheduler)
    }

    /// Takes the whole frames out of what a subflow has read. Errors: the peer has reset the connection.
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

    /// Ends the connection with an error, at both ends.
    pub fn fail(&self, kind: io::ErrorKind, text: String) {
        self.state().fail(kind, text);
        self.changed.notify_one();
    }
}

/// What cannot be coupled goes by itself.
fn alone<T: Default>(error: io::Error) -> T {
    report(format_args!("coupled congestion control: {error}"));
    T::default()
}

impl State {
    /// Whether both directions are complete and acknowledged.
    pub fn is_done(&self) -> bool {
        self.sender.is_finished() && self.receiver.is_complete()
    }

    fn stalled(&self) -> Vec<u32> {
        self.subflows.iter().filter(|(_, subflow)| subflow.stalled).map(|(&id, _)| id).collect()
    }

    pub fn is_alive(&self) -> bool {
        self.subflows.values().any(|subflow| !subflow.stalled)
    }

    pub fn wake_program(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    pub fn wake_writers(&mut self) {
        self.subflows.values_mut().for_each(Subflow::wake);
    }

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
            self.told_limit = limit;
            return self.control(id, &Frame::Acknowledgement { expected, limit });
        }
        let ack_at = subflow.ack_at;
        if done {
            return Work::Finish;
        }
        let batch = self.subflows[&id].batch();
        let mut segments = Vec::new();
        let later = loop {
            let (segment, later) = self.pick(id, now, scheduler);
            let Some(segment) = segment else { break later };
            let subflow = self.subflows.get_mut(&id).expect("it was there");
            subflow.committed += (HEADER + segment.payload.len() + subflow.link.overhead()) as u64;
            let carrier = Carrier { subflow: id, position: subflow.committed };
            if subflow.dearness > 1.0 {
                let time = segment.payload.len() as f64 * subflow.dearness / subflow.throughput();
                subflow.not_before = subflow.not_before.max(now) + Duration::from_secs_f64(time.min(MAX_REST));
            }
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

    /// The segment for a subflow that can take one, or when to ask again.
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

    /// A new segment, if it arrives on this subflow before the others could have sent everything; else, when nothing
    /// new may be sent, a copy of one that another subflow would deliver later.
    fn pick_earliest(&mut self, id: u32, now: Instant, length: usize) -> (Option<Segment>, Option<Instant>) {
        let Self { subflows, sender, .. } = self;
        for subflow in subflows.values_mut().filter(|subflow| now - subflow.asked > FRESH) {
            subflow.refresh(now);
        }
        let subflow = &subflows[&id];
        if subflow.not_before > now {
            return (None, Some(subflow.not_before));
        }
        let unsent = sender.unsent_bytes();
        let others = || subflows.iter().filter(|(other, subflow)| **other != id && !subflow.stalled);
        let blocked = sender.is_blocked();
        if unsent > 0 && !blocked {
            let rate: f64 = others().map(|(_, other)| other.throughput() / other.dearness).sum();
            let queued: u64 = others().map(|(_, other)| other.queued()).sum();
            let without = (queued + unsent as u64) as f64 / rate;
            let least = others().map(|(_, other)| other.arrival(0)).fold(f64::INFINITY, f64::min);
            if rate > 0.0 && subflow.arrival(length.min(unsent)) > without.max(least) + SLACK {
                return (None, Some(now + RECHECK));
            }
            return (sender.take_new(length), None);
        }
        if sender.outstanding_bytes() == 0 || subflows.len() < 2 {
            return (None, None);
        }
        // What a carrier still has before a segment, in time; a segment that has arrived needs no copy.
        let remaining = |carrier: &Carrier| match subflows.get(&carrier.subflow) {
            Some(other) => carrier.position.saturating_sub(other.progress.0) as f64 / other.throughput(),
            None => f64::INFINITY,
        };
        let margin = GRAIN.as_secs_f64();
        let worth = |carriers: &[Carrier], length: usize| {
            let first = carriers.iter().map(remaining).fold(f64::INFINITY, f64::min);
            first > 0.0 && 1.25 * subflow.arrival(length) + margin < first
        };
        (sender.take_again(id, !blocked, worth), Some(now + RECHECK))
    }

    fn take_frames(&mut self, id: u32, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let now = Instant::now();
        (self.heard, self.arrived) = (now, now);
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
                        self.fail(io::ErrorKind::ConnectionReset, "data came that nobody reads".into());
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

    /// Once all segments have come, each subflow says so at once: the last may be the only one that gets through.
    fn check_complete(&mut self, now: Instant) {
        if self.receiver.is_complete() {
            self.subflows.values_mut().for_each(|subflow| subflow.acknowledge_at(now));
            self.reader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// The program has read: the peer is told when that opens the window noticeably.
    pub fn opened(&mut self, window: usize) {
        let (_, limit) = self.receiver.acknowledgement();
        if limit - self.told_limit >= window as u64 / 4 {
            self.told_limit = limit;
            let now = Instant::now();
            self.subflows.values_mut().filter(|subflow| !subflow.stalled).for_each(|s| s.acknowledge_at(now));
        }
    }

    /// Recomputes loads and dearness after a change of the subflows or their throughputs (equations 1 to 4).
    fn weigh(&mut self) {
        let live = || self.subflows.iter().filter(|(_, subflow)| !subflow.stalled);
        let ids: Vec<u32> = live().map(|(&id, _)| id).collect();
        let loads = loads(&live().map(|(_, s)| (&s.interface, s.throughput())).collect::<Vec<_>>());
        let dearness = dearness(&live().map(|(_, s)| &s.interface).collect::<Vec<_>>());
        for ((id, load), dearness) in ids.iter().zip(&loads).zip(dearness) {
            let subflow = self.subflows.get_mut(id).expect("it is listed");
            (subflow.load, subflow.dearness) = (*load, dearness);
        }
        self.robin.set(ids.into_iter().zip(loads));
        if let Some(turn) = self.robin.turn()
            && let Some(subflow) = self.subflows.get_mut(&turn)
        {
            subflow.wake();
        }
    }

    /// Looks at every subflow's socket: samples the throughput, finds what stalls, and whether the peer has vanished.
    /// Returns how long to wait before the next look.
    pub fn look(&mut self, now: Instant, timeout: Duration, peer: &str) -> Duration {
        let mut changed = Vec::new();
        for (&id, subflow) in &mut self.subflows {
            subflow.refresh(now);
            subflow.path = subflow.link.path();
            if let Some(heard) = now.checked_sub(subflow.path.silence) {
                self.heard = self.heard.max(heard);
            }
            let patience = STALL.max(3 * subflow.path.rtt);
            // Nothing arrives, or, for an end that has nothing to send, the peer's kernel no longer answers.
            let mute = subflow.path.silence > subflow.link.keepalive + 2 * patience;
            let stalled = mute || now - subflow.progress.1 > patience;
            if stalled != subflow.stalled {
                subflow.stalled = stalled;
                changed.push((id, subflow.progress.0, stalled));
            }
            subflow.sample(now);
            let total = self.totals.get_mut(&subflow.number).expect("made with the subflow");
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
        if now.saturating_duration_since(self.heard) > timeout && !self.is_done() {
            let text = format!("{peer} has not answered on any interface for {} s", timeout.as_secs_f64());
            self.fail(io::ErrorKind::TimedOut, text);
        }
        let busy = self.sender.unsent_bytes() + self.sender.outstanding_bytes() > 0;
        self.resting = !busy && self.is_alive();
        if !self.resting {
            return SAMPLE / 2;
        }
        if now.saturating_duration_since(self.arrived) > REST {
            self.receiver.rest();
        }
        REST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_serves_once() {
        let mut joins = JoinWindow::default();
        for (sequence, new) in [
            (1, true),
            (1, false),
            (3, true),
            (2, true),
            (2, false),
            (3, false),
            (70, true),
            (7, true),
            (6, false),
            (7, false),
            (u32::MAX, true),
            (70, false),
            (u32::MAX - 63, true),
            (u32::MAX, false),
        ] {
            assert_eq!(joins.is_new(sequence), new, "{sequence}");
        }
    }
}
