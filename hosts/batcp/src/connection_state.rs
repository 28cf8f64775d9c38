// SPDX-License-Identifier: Apache-2.0
//! State of a connection that its subflows, its path manager and its program share: data only. `transport.rs` decides
//! upon it, `subflow_io.rs` moves its bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Instant;

use serde::Serialize;
use tokio::sync::Notify;

use super::Options;
use super::coupling::{Group, uncoupled};
use super::dscp::Dscp;
use super::hello::Keys;
use super::reassembly::Reassembly;
use super::scheduler::RoundRobin;
use super::sender::{Segment, Sender};
use super::subflow::Subflow;

/// Subflows of a connection: each may hold a read buffer of some segments.
pub const MAX_SUBFLOWS: usize = 16;

/// Next task of a subflow's writer.
pub enum Work {
    Control(Vec<u8>),
    Segments(Vec<Segment>),
    /// Nothing to write until notified, or until that time.
    Idle(Option<Instant>),
    /// Everything is sent and acknowledged: send TCP's FIN.
    Finish,
}

/// Connection as its tasks and its program hold it.
pub struct ConnectionState {
    pub options: Options,
    /// The four-digit connection id (section 3).
    pub id: u16,
    pub keys: Keys,
    pub token: u64,
    state: Mutex<LockedState>,
    pub coupled: Option<Group>,
    /// Notified when something changed; the path manager waits for it.
    pub changed: Notify,
    /// Notified when all tasks have ended.
    pub ended: Notify,
}

/// Part of a connection's state behind its lock.
pub struct LockedState {
    pub sender: Sender,
    pub receiver: Reassembly,
    pub subflows: BTreeMap<u32, Subflow>,
    pub next_subflow: u32,
    pub robin: RoundRobin,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub error: Option<(io::ErrorKind, String)>,
    /// The peer sent a reset, so none is sent.
    pub reset_by_peer: bool,
    /// Time when the program dropped the connection.
    pub dropped: Option<Instant>,
    /// Time of the peer's last sign of life, keepalives included.
    pub last_alive: Instant,
    /// Time of the last received frame.
    pub last_frame: Instant,
    /// Last limit that the peer received: bytes of payload that it may send in all.
    pub announced_limit: u64,
    pub totals: BTreeMap<u8, Totals>,
    pub joins: JoinWindow,
    /// DSCP of all subflows, that of the program's connection.
    pub dscp: Dscp,
    /// The path manager sleeps for `REST`, as nothing is in flight.
    pub resting: bool,
    pub ended: bool,
}

/// Counters of an interface over all its subflows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// The interface's name at the end that opened the connection; the other end knows only its number.
    pub interface: String,
    /// Payload with retransmissions, in bytes.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub segments_sent: u64,
    pub segments_received: u64,
    /// Bytes that TCP has sent, hellos, heads and seals among them, and of these again.
    pub tcp_bytes_sent: u64,
    pub tcp_bytes_retransmitted: u64,
    /// Subflows that were opened, and that died.
    pub subflows: u64,
    pub lost: u64,
    /// Last round-trip time, and filtered throughput in kbit/s (section 3.5).
    pub rtt_ms: f64,
    pub throughput_kbit: f64,
}

impl Totals {
    pub(super) fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), ..Self::default() }
    }
}

/// Replay window of joins: the newest sequence number, and a bit for each of the 64 up to it (as RFC 6479 does).
#[derive(Default)]
pub struct JoinWindow {
    newest: u32,
    seen: u64,
}

impl JoinWindow {
    /// Return true if `sequence` is new, and mark it as seen. Numbers older than the last 64 count as seen.
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
    /// Make a connection without subflows. `limit`: bytes of payload that the peer takes at first.
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
            last_alive: Instant::now(),
            last_frame: Instant::now(),
            announced_limit: options.window as u64,
            totals: BTreeMap::new(),
            joins: JoinWindow::default(),
            dscp: Dscp::default(),
            resting: false,
            ended: false,
        };
        let (changed, ended) = (Notify::new(), Notify::new());
        let coupled = options.coupling.as_ref().map(Group::new).transpose().unwrap_or_else(uncoupled);
        Arc::new(Self { options, id, keys, token, state: Mutex::new(state), coupled, changed, ended })
    }

    /// Lock the state.
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
