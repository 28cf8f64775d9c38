// SPDX-License-Identifier: Apache-2.0
//! A loaded program: what the control plane may ask about it, and the code that the packet thread runs; `loader` makes
//! it.
//!
//! Names are the fully qualified ones of the BMv2 JSON, which are those of the P4Info (`Preamble.name`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::jit::Native;
pub use crate::jit::check_native_code;
use crate::state::code::{Code, FieldRef};
use crate::state::op::Reg;
pub use crate::value::Value;

/// Index into [`Program::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub usize);
/// Index into [`Program::actions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub usize);
/// Index into [`Program::counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub usize);
/// Index into [`Program::meters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeterId(pub usize);
/// Index into [`Program::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegisterId(pub usize);
/// Index into [`Program::digests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DigestId(pub usize);

/// Index into [`Program::profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileId(pub usize);
/// Index into [`Program::value_sets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueSetId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    Exact,
    Lpm,
    Ternary,
    Range,
    Optional,
}

impl fmt::Display for MatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MatchKind::Exact => "exact",
            MatchKind::Lpm => "lpm",
            MatchKind::Ternary => "ternary",
            MatchKind::Range => "range",
            MatchKind::Optional => "optional",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    Bytes,
    Packets,
}

impl fmt::Display for MeterUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MeterUnit::Bytes => "bytes",
            MeterUnit::Packets => "packets",
        })
    }
}

/// A named value: key field, action parameter or digest field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    pub name: String,
    /// Bits, 1 to 128.
    pub width: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub field: FieldInfo,
    pub kind: MatchKind,
}

/// A field of a header on the wire, but for a varbit.
#[derive(Clone, Debug)]
pub struct HeaderField {
    pub header: String,
    pub name: String,
    pub(crate) place: FieldRef,
    /// Register that is 1 while the header is valid.
    pub(crate) valid: Reg,
}

#[derive(Clone, Debug)]
pub struct TableInfo {
    pub name: String,
    pub key: Vec<KeyInfo>,
    pub max_size: usize,
    /// The actions that an entry or the default may use. Ids differ between tables also for one name (`NoAction`).
    pub actions: Vec<ActionId>,
    pub has_counter: bool,
    pub meter: Option<MeterUnit>,
    pub support_timeout: bool,
    /// The entries are compiled in and cannot be written.
    pub const_entries: bool,
    /// The default action cannot be written.
    pub const_default: bool,
    /// Entries name members or groups of it.
    pub profile: Option<ProfileId>,
    /// Applied in egress; the others in ingress.
    pub in_egress: bool,
}

impl TableInfo {
    /// Entries may overlap, so that each needs a priority (P4Runtime, 9.1.1).
    pub fn needs_priority(&self) -> bool {
        let overlap = |kind| matches!(kind, MatchKind::Ternary | MatchKind::Range | MatchKind::Optional);
        self.key.iter().any(|key| overlap(key.kind))
    }
}

#[derive(Clone, Debug)]
pub struct ActionInfo {
    pub name: String,
    pub params: Vec<FieldInfo>,
}

/// An indirect counter array; direct ones are [`TableInfo::has_counter`].
#[derive(Clone, Debug)]
pub struct CounterInfo {
    pub name: String,
    pub size: usize,
}

/// An indirect meter array; direct ones are [`TableInfo::meter`].
#[derive(Clone, Debug)]
pub struct MeterInfo {
    pub name: String,
    pub size: usize,
    pub unit: MeterUnit,
}

#[derive(Clone, Debug)]
pub struct RegisterInfo {
    pub name: String,
    pub size: usize,
    pub width: u16,
}

/// A learn list. Several `digest` calls may share the name (the struct's), each with an id of its own.
#[derive(Clone, Debug)]
pub struct DigestInfo {
    pub name: String,
    pub fields: Vec<FieldInfo>,
}

/// An action profile, or a selector.
#[derive(Clone, Debug)]
pub struct ProfileInfo {
    pub name: String,
    /// Sum of the weights of all groups' members, and number of members, at most.
    pub size: usize,
    /// Members can be grouped, and a hash chooses one.
    pub has_selector: bool,
    /// Sizes count the members of groups, not their weights. What the control plane says; the JSON does not.
    pub counts_members: bool,
    /// Actions of one of its tables; those of the others have the same names in the same order.
    pub actions: Vec<ActionId>,
}

/// A parser value set.
#[derive(Clone, Debug)]
pub struct ValueSetInfo {
    pub name: String,
    /// Bits of the fields that a member is made of.
    pub widths: Vec<u16>,
    /// Members at most.
    pub max_size: usize,
}

/// One field of a table key. The variant has to agree with the table's [`MatchKind`] for that field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyField {
    Exact(Value),
    /// `prefix_len` 0 matches everything.
    Lpm {
        value: Value,
        prefix_len: u16,
    },
    /// Bits of `value` outside `mask` have to be 0; mask 0 matches everything.
    Ternary {
        value: Value,
        mask: Value,
    },
    /// Both ends belong to the range.
    Range {
        low: Value,
        high: Value,
    },
    /// `None` matches everything.
    Optional(Option<Value>),
}

/// Identity of an entry within its table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// In the order of the table's key.
    pub fields: Vec<KeyField>,
    /// The larger wins. At least 1 in tables with a ternary, range or optional field, 0 in all others.
    pub priority: i32,
}

/// An action with its parameters, in the order of [`ActionInfo::params`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    pub action: ActionId,
    pub params: Vec<Value>,
}

/// Refusal of a program: the construct and its place in the source, when the compiler told it.
#[derive(Clone, Debug, Error)]
pub struct LoadError {
    /// Such as ``table `ingress.flows` (ap.p4:120)``.
    pub place: String,
    pub reason: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// A program that is ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub tables: Vec<TableInfo>,
    pub actions: Vec<ActionInfo>,
    pub counters: Vec<CounterInfo>,
    pub meters: Vec<MeterInfo>,
    pub registers: Vec<RegisterInfo>,
    pub digests: Vec<DigestInfo>,
    pub profiles: Vec<ProfileInfo>,
    pub value_sets: Vec<ValueSetInfo>,
    /// Types of headers of fixed length, as they stand on the wire.
    pub headers: Vec<Vec<FieldInfo>>,
    /// For each table, the default action that the program asks for.
    pub defaults: Vec<Option<ActionCall>>,
    pub const_entries: Vec<(TableId, EntryKey, ActionCall)>,
    /// JSON that the program was loaded from, where its owner keeps it: packets are explained with it.
    pub source: Bytes,
    pub(crate) code: Arc<Code>,
    /// `None` only while it is being loaded.
    pub(crate) native: Option<Arc<Native>>,
}

impl Program {
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.tables.iter().position(|t| t.name == name).map(TableId)
    }

    /// The action of that name among those that `table` may use.
    pub fn table_action(&self, table: TableId, name: &str) -> Option<ActionId> {
        self.tables[table.0].actions.iter().copied().find(|a| self.actions[a.0].name == name)
    }
}
