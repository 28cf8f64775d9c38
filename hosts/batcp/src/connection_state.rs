// SPDX-License-Identifier: Apache-2.0
//! LockedState of a connection that its subflows, its path manager and its program share: data only. `transport.rs` decides upon it,
//! `subflow_io.rs` moves its bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Instant;

use serde::Serialize;
use tokio::sync::Notify;

use super::Options;
use super::coupling::{Group, uncoupled};
use super::hello::Keys;
use super::reassembly::Reassembly;
use super::scheduler::RoundRobin;
use super::sender::{Segment, Sender};
use super::subflow::Subflow;

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
pub struct ConnectionState {
    pub options: Options,
    /// The four-digit connection id (section 3).
    pub id: u16,
    pub keys: Keys,
    pub token: u64,
    state: Mutex<LockedState>,
    pub coupled: Option<Group>,
    /// Tells the path manager that something changed.
    pub changed: Notify,
    /// Told when all tasks have ended.
    pub ended: Notify,
}

pub struct LockedState {
    pub sender: Sender,
    pub receiver: Reassembly,
    pub subflows: BTreeMap<u32, Subflow>,
    pub next_subflow: u32,
    pub robin: RoundRobin,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub error: Option<(io::ErrorKind, String)>,
    /// A reset has come from the peer, so none is sent.
    pub reset_by_peer: bool,
    /// The program has let go of the connection.
    pub dropped: Option<Instant>,
    pub heard: Instant,
    /// When frames came last.
    pub arrived: Instant,
    /// What the peer was last told that it may send.
    pub told_limit: u64,
    pub totals: BTreeMap<u8, Totals>,
    pub joins: JoinWindow,
    /// The path manager sleeps long, as nothing is on its way.
    pub resting: bool,
    pub ended: bool,
}

/// What an interface has carried so far, over all its subflows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// The interface's name at the end that opened the connection; the other end knows only its number.
    pub interface: String,
    /// Payload with its repetitions, in bytes.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub segments_sent: u64,
    pub segments_received: u64,
    /// Subflows that were opened, and that died.
    pub subflows: u64,
    pub lost: u64,
    /// As last seen: the round-trip time, and the filtered throughput in kbit/s (section 3.5).
    pub rtt_ms: f64,
    pub throughput_kbit: f64,
}

impl Totals {
    pub(super) fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), ..Self::default() }
    }
}

/// Which joins a connection has seen: the newest sequence number, and which of the 64 before it (as RFC 6479 does).
#[derive(Default)]
pub struct JoinWindow {
    newest: u32,
    seen: u64,
}

impl JoinWindow {
    /// Whether `sequence` is new; it is not the next time. What is older than the last 64 counts as seen.
    pub fn is_new(&mut self, sequence: u32) -> bool {
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

impl ConnectionState {
    /// `limit`: bytes that the peer takes at first.
    pub fn new(options: Options, id: u16, keys: Keys, token: u64, limit: u64) -> Arc<Self> {
        let state = LockedState {
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
        let coupled = options.coupling.as_ref().map(Group::new).transpose().unwrap_or_else(uncoupled);
        Arc::new(Self { options, id, keys, token, state: Mutex::new(state), coupled, changed, ended })
    }

    pub fn state(&self) -> MutexGuard<'_, LockedState> {
        self.state.lock().expect("no thread panics while it holds the state")
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
