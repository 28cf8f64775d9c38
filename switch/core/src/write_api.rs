// SPDX-License-Identifier: Apache-2.0
//! Updates of the data plane, and the errors that refuse them.

use std::fmt;

use thiserror::Error;

use crate::dataplane_ops::{CloneSession, ColourCounts, CounterValue, DigestConfig, MeterConfig, Replica};
use crate::port::PortNumber;
use crate::program::{
    ActionCall, CounterId, DigestId, EntryKey, KeyField, MeterId, ProfileId, RegisterId, TableId, Value, ValueSetId,
};

/// Action of an entry: a call in direct tables, one of the others in tables with an action profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAction {
    Call(ActionCall),
    Member(u32),
    /// The selector's hash chooses a member. Only in profiles with a selector, as also the next.
    Group(u32),
    /// A group of the entry's own.
    OneShot(Vec<WeightedCall>),
    /// Action that it had: only in [`Update::ModifyEntry`].
    Same,
}

impl From<ActionCall> for EntryAction {
    fn from(call: ActionCall) -> EntryAction {
        EntryAction::Call(call)
    }
}

/// A member of a one-shot group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedCall {
    pub call: ActionCall,
    /// At least 1.
    pub weight: u32,
    /// The member is left out while this port is down.
    pub watch: Option<PortNumber>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    pub member: u32,
    /// At least 1.
    pub weight: u32,
    /// The member is left out while this port is down.
    pub watch: Option<PortNumber>,
}

/// Members of a selector among which its hash chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileGroup {
    pub members: Vec<GroupMember>,
    /// Sum of the weights at most, never changed; 0: what the selector can hold.
    pub max_size: u32,
}

/// A table entry as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    pub table: TableId,
    pub key: EntryKey,
    pub action: EntryAction,
    /// `None`: unconfigured, always green. Only in tables with a direct meter.
    pub meter: Option<MeterConfig>,
    /// Written with the entry when `Some`; a new entry starts at 0. Only in tables with a direct counter.
    pub counter: Option<CounterValue>,
    /// ns without a hit until its owner is notified; 0: never. Only in tables with idle timeout support.
    pub idle_timeout_ns: u64,
    /// Kept for the owner of the entry, never read here (P4Runtime `controller_metadata` and `metadata`).
    pub cookie: Vec<u8>,
}

/// A [`TableEntry`] as it is now.
#[derive(Clone, Debug)]
pub struct EntryView {
    /// `entry.counter` is the present value where the table has a direct counter.
    pub entry: TableEntry,
    /// Counts of the direct meter, if the table has one.
    pub colours: Option<ColourCounts>,
    /// ns since the last hit, or since the insertion; 0 in tables without idle timeout support.
    pub idle_ns: u64,
    /// Compiled into the program; cannot be written.
    pub is_const: bool,
}

/// Object that makes copies of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replicated {
    Group(u32),
    Session(u32),
}

impl fmt::Display for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replicated::Group(id) => write!(f, "multicast group {id}"),
            Replicated::Session(id) => write!(f, "clone session {id}"),
        }
    }
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
    /// Changes nothing: an error when there is no such entry.
    FindEntry {
        table: TableId,
        key: EntryKey,
    },
    /// `None`: the program's own default.
    SetDefault {
        table: TableId,
        action: Option<ActionCall>,
    },
    /// Sets a direct counter; without a key: of the default entry, as also the next two.
    SetDirectCounter {
        table: TableId,
        key: Option<EntryKey>,
        value: CounterValue,
    },
    SetDirectMeter {
        table: TableId,
        key: Option<EntryKey>,
        config: Option<MeterConfig>,
    },
    /// Sets the packets that the direct meter has coloured.
    SetDirectColours {
        table: TableId,
        key: Option<EntryKey>,
        value: ColourCounts,
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
    /// Sets the packets that the meter has coloured.
    SetColours {
        meter: MeterId,
        index: usize,
        value: ColourCounts,
    },
    SetRegister {
        register: RegisterId,
        index: usize,
        value: Value,
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
    /// Sets, for each replica of a group or session, in their order, those that take its place while its port is down,
    /// the preferred ones first. A group or session that is inserted or modified has none.
    SetBackups {
        of: Replicated,
        backups: Vec<Vec<Replica>>,
    },
    InsertMember {
        profile: ProfileId,
        member: u32,
        action: ActionCall,
    },
    ModifyMember {
        profile: ProfileId,
        member: u32,
        action: ActionCall,
    },
    DeleteMember {
        profile: ProfileId,
        member: u32,
    },
    InsertGroup {
        profile: ProfileId,
        group: u32,
        value: ProfileGroup,
    },
    ModifyGroup {
        profile: ProfileId,
        group: u32,
        value: ProfileGroup,
    },
    DeleteGroup {
        profile: ProfileId,
        group: u32,
    },
    /// Replaces all members; each has a field for each of the set's.
    SetValueSet {
        set: ValueSetId,
        members: Vec<Vec<KeyField>>,
    },
    /// `None`: disabled, which is where a program starts.
    SetDigest {
        digest: DigestId,
        config: Option<DigestConfig>,
    },
    /// The samples with these [`Digest::sequence`](crate::dataplane_ops::Digest::sequence) numbers may be sent again.
    AckDigest {
        digest: DigestId,
        sequences: Vec<u64>,
    },
}

/// Refusal of an update; the old state is kept.
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
    #[error("{0}")]
    FailedPrecondition(String),
    #[error("no program is loaded")]
    NoProgram,
    #[error("the data plane has stopped")]
    Stopped,
}
