// SPDX-License-Identifier: Apache-2.0
//! The control API: everything that the control plane may ask of the data plane.
//!
//! A [`Dataplane`] is a cheap handle (`Clone + Send + Sync`). It holds the canonical copy of what was written; writes
//! are checked here, applied by the packet thread between two batches, and acknowledged once they are in effect.
//! Reads never reach the packet thread: counters, registers and last-hit times are shared relaxed atomics.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::mpsc;

pub use crate::engine::{EngineConfig, StartError};
pub use crate::port::{PortConfig, PortNumber, PortStats};
pub use crate::program::{
    ActionCall, ActionId, CounterId, DigestId, EntryKey, KeyField, LoadError, MatchKind, MeterId, MeterUnit, Program,
    RegisterId, TableId, Value,
};

/// RFC 2698 two-rate three-colour meter: rates in bytes/s or packets/s, bursts in bytes or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    pub cir: u64,
    pub cburst: u64,
    pub pir: u64,
    pub pburst: u64,
}

/// Both units are always counted; which of them the program asked for is in the P4Info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    pub packets: u64,
    pub bytes: u64,
}

/// A table entry as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    pub table: TableId,
    pub key: EntryKey,
    pub action: ActionCall,
    /// `None`: unconfigured, always green. Only in tables with a direct meter.
    pub meter: Option<MeterConfig>,
    /// Written with the entry when `Some`; a new entry starts at 0. Only in tables with a direct counter.
    pub counter: Option<CounterValue>,
    /// ns without a hit until [`Notice::IdleTimeout`]; 0: never. Only in tables with idle timeout support.
    pub idle_timeout_ns: u64,
    /// Kept for the owner of the entry, never read here (P4Runtime `controller_metadata` and `metadata`).
    pub cookie: Vec<u8>,
}

/// A [`TableEntry`] as it is now.
#[derive(Clone, Debug)]
pub struct EntryView {
    /// `entry.counter` is the present value where the table has a direct counter.
    pub entry: TableEntry,
    /// ns since the last hit, or since the insertion; 0 in tables without idle timeout support.
    pub idle_ns: u64,
    /// Compiled into the program; cannot be written.
    pub is_const: bool,
}

/// One copy of a multicast packet; `rid` becomes `egress_rid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub port: PortNumber,
    pub rid: u16,
}

/// Where the packets of a clone session go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSession {
    pub replicas: Vec<Replica>,
    /// Bytes of each clone that are kept; 0: all.
    pub packet_length_bytes: u32,
}

/// P4Runtime DigestEntry.Config, as far as the data plane takes part: it does not send a value again that is not
/// yet acknowledged. Lists are assembled by the owner of [`Events::digests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestConfig {
    /// ns after which an unacknowledged value may be sent again; 0: nothing is ever suppressed.
    pub ack_timeout_ns: u64,
}

/// One atomic change.
#[derive(Clone, Debug)]
pub enum Update {
    InsertEntry(TableEntry),
    /// Replaces action, meter configuration and idle timeout; the counter stays unless given.
    ModifyEntry(TableEntry),
    DeleteEntry {
        table: TableId,
        key: EntryKey,
    },
    /// `None`: the program's own default.
    SetDefault {
        table: TableId,
        action: Option<ActionCall>,
    },
    SetDirectCounter {
        table: TableId,
        key: EntryKey,
        value: CounterValue,
    },
    SetDirectMeter {
        table: TableId,
        key: EntryKey,
        config: Option<MeterConfig>,
    },
    SetCounter {
        counter: CounterId,
        index: usize,
        value: CounterValue,
    },
    SetMeter {
        meter: MeterId,
        index: usize,
        config: Option<MeterConfig>,
    },
    SetRegister {
        register: RegisterId,
        index: usize,
        value: u64,
    },
    InsertMulticastGroup {
        group: u32,
        replicas: Vec<Replica>,
    },
    ModifyMulticastGroup {
        group: u32,
        replicas: Vec<Replica>,
    },
    DeleteMulticastGroup {
        group: u32,
    },
    InsertCloneSession {
        session: u32,
        config: CloneSession,
    },
    ModifyCloneSession {
        session: u32,
        config: CloneSession,
    },
    DeleteCloneSession {
        session: u32,
    },
    /// `None`: disabled, which is where a program starts.
    SetDigest {
        digest: DigestId,
        config: Option<DigestConfig>,
    },
    /// The samples with these [`Digest::sequence`] numbers may be sent again.
    AckDigest {
        digest: DigestId,
        sequences: Vec<u64>,
    },
}

/// Why an update was refused; the old state is kept.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UpdateError {
    #[error("{0} exists already")]
    AlreadyExists(String),
    #[error("no such {0}")]
    NotFound(String),
    #[error("{0}")]
    ResourceExhausted(String),
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    OutOfRange(String),
    #[error("{0}")]
    PermissionDenied(String),
    #[error("no program is loaded")]
    NoProgram,
    #[error("the data plane has stopped")]
    Stopped,
}

/// A frame that left through the CPU port, as its deparser wrote it (with the packet-in header, if the program has one).
#[derive(Clone, Debug)]
pub struct PacketIn {
    pub frame: Vec<u8>,
}

/// One sample of a digest.
#[derive(Clone, Debug)]
pub struct Digest {
    pub digest: DigestId,
    /// Names the sample in [`Update::AckDigest`].
    pub sequence: u64,
    /// In the order of [`crate::program::DigestInfo::fields`].
    pub values: Vec<Value>,
    /// µs since the start of the switch.
    pub timestamp_us: u64,
}

/// Rare events.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The entry was not hit for its idle timeout; told again after each further timeout.
    IdleTimeout(Box<TableEntry>),
    PortState {
        port: PortNumber,
        up: bool,
    },
}

/// What the data plane tells, each stream bounded: what does not fit is dropped and counted.
pub struct Events {
    pub packet_ins: mpsc::Receiver<PacketIn>,
    pub digests: mpsc::Receiver<Digest>,
    pub notices: mpsc::Receiver<Notice>,
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortView {
    pub number: PortNumber,
    /// Interface name, or what stands for one.
    pub interface: String,
    pub up: bool,
    pub stats: PortStats,
}

/// The handle.
#[derive(Clone)]
pub struct Dataplane {
    _shared: Arc<()>,
}

impl Dataplane {
    /// Opens the ports and starts the packet thread; without a program it drops every packet.
    pub fn start(_config: EngineConfig) -> Result<(Dataplane, Events), StartError> {
        unimplemented!()
    }

    /// Stops the packet thread and closes the ports; idempotent.
    pub fn stop(&self) {
        unimplemented!()
    }

    /// Replaces the pipeline. All entries, groups, sessions and counters start anew; queued packets are dropped.
    /// Returns when the new program processes packets.
    pub async fn commit(&self, _program: Program) -> Result<(), UpdateError> {
        unimplemented!()
    }

    /// The running program.
    pub fn program(&self) -> Option<Arc<Program>> {
        unimplemented!()
    }

    /// Applies the updates in order, each on its own; one result for each. Returns when all are in effect.
    pub async fn write(&self, _updates: Vec<Update>) -> Vec<Result<(), UpdateError>> {
        unimplemented!()
    }

    /// As [`Dataplane::write`], for callers without an async runtime.
    pub fn write_blocking(&self, _updates: Vec<Update>) -> Vec<Result<(), UpdateError>> {
        unimplemented!()
    }

    /// A packet-out: the frame enters ingress on the CPU port.
    pub fn inject(&self, _frame: Vec<u8>) -> Result<(), UpdateError> {
        unimplemented!()
    }

    pub fn entry(&self, _table: TableId, _key: &EntryKey) -> Result<EntryView, UpdateError> {
        unimplemented!()
    }

    /// All entries of the table, const ones too, in no order.
    pub fn entries(&self, _table: TableId) -> Result<Vec<EntryView>, UpdateError> {
        unimplemented!()
    }

    /// The default action in effect; `None`: the table has none.
    pub fn default_action(&self, _table: TableId) -> Result<Option<ActionCall>, UpdateError> {
        unimplemented!()
    }

    /// The cells `range` of an indirect counter.
    pub fn counters(
        &self,
        _counter: CounterId,
        _range: std::ops::Range<usize>,
    ) -> Result<Vec<CounterValue>, UpdateError> {
        unimplemented!()
    }

    pub fn meters(
        &self,
        _meter: MeterId,
        _range: std::ops::Range<usize>,
    ) -> Result<Vec<Option<MeterConfig>>, UpdateError> {
        unimplemented!()
    }

    pub fn registers(&self, _register: RegisterId, _range: std::ops::Range<usize>) -> Result<Vec<u64>, UpdateError> {
        unimplemented!()
    }

    pub fn multicast_groups(&self) -> BTreeMap<u32, Vec<Replica>> {
        unimplemented!()
    }

    pub fn clone_sessions(&self) -> BTreeMap<u32, CloneSession> {
        unimplemented!()
    }

    pub fn digest_config(&self, _digest: DigestId) -> Result<Option<DigestConfig>, UpdateError> {
        unimplemented!()
    }

    pub fn ports(&self) -> Vec<PortView> {
        unimplemented!()
    }

    /// µs since the start of the switch, the clock of every timestamp that P4 sees.
    pub fn now_us(&self) -> u64 {
        unimplemented!()
    }
}
