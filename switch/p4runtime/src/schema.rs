// SPDX-License-Identifier: Apache-2.0
//! The P4Info of the running pipeline, indexed by P4Runtime id and tied to the objects of the loaded program.
//!
//! Building a [`Schema`] (`p4info_check`) is the check that P4Info and device config describe the same program: every
//! object that the P4Info names has to exist in the program with the same shape. Later code may then rely on it.

mod p4info_check;

use std::collections::BTreeMap;
use std::sync::Arc;

use apswitch_dataplane::control::{
    ActionId, CounterId, DigestId, MatchKind, MeterId, ProfileId, RegisterId, TableId, ValueSetId,
};

use super::data::DataType;
use super::error::{Checked, refuse};
use super::header::HeaderField;
use super::names::Names;
use super::proto::p4::config::v1 as info;
use super::proto::p4::config::v1::action_profile::SelectorSizeSemantics as SizeSemantics;
use super::proto::p4::v1 as p4;
use super::translation::SdnType;

pub struct MatchField {
    pub id: u32,
    pub name: String,
    /// Bits of the data plane's value.
    pub width: u32,
    pub sdn_type: SdnType,
    /// As in the P4Info.
    pub kind: MatchKind,
    /// As in the device config: p4c writes optional fields as ternary ones.
    pub stored: MatchKind,
}

/// Entries in which an action may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Anywhere,
    EntryOnly,
    DefaultOnly,
}

impl Scope {
    fn of(reference: &info::ActionRef) -> Scope {
        match reference.scope() {
            info::action_ref::Scope::TableAndDefault => Scope::Anywhere,
            info::action_ref::Scope::TableOnly => Scope::EntryOnly,
            info::action_ref::Scope::DefaultOnly => Scope::DefaultOnly,
        }
    }
}

pub struct TableAction {
    /// P4Info id of the action.
    pub id: u32,
    pub target: ActionId,
    pub scope: Scope,
}

pub struct Table {
    pub id: u32,
    pub name: String,
    pub target: TableId,
    pub fields: Vec<MatchField>,
    /// Some field is ternary, range or optional.
    pub has_priority: bool,
    pub actions: Vec<TableAction>,
    pub is_const: bool,
    pub const_default: bool,
    pub has_counter: bool,
    pub meter: Option<info::meter_spec::Type>,
    pub has_idle_timeout: bool,
    /// Id of its action profile.
    pub profile: Option<u32>,
}

pub struct Profile {
    pub name: String,
    pub target: ProfileId,
    /// Actions of its members.
    pub actions: Vec<TableAction>,
    pub has_selector: bool,
    /// Sum of the weights, or number of members, in a group at most; 0: as many as the profile holds.
    pub max_group_size: u32,
    pub counts_members: bool,
    /// Weight of a member at most; 0: any.
    pub max_weight: u32,
    /// Clients leave weights out: all are equal.
    pub no_weights: bool,
}

pub struct ValueSet {
    pub name: String,
    pub target: ValueSetId,
    pub fields: Vec<MatchField>,
}

pub struct Param {
    pub id: u32,
    pub name: String,
    /// Bits of the data plane's value.
    pub width: u32,
    pub sdn_type: SdnType,
}

pub struct Action {
    pub name: String,
    pub params: Vec<Param>,
}

pub struct Counter {
    pub name: String,
    pub target: CounterId,
    pub size: usize,
}

pub struct Meter {
    pub name: String,
    pub target: MeterId,
    pub size: usize,
    pub kind: info::meter_spec::Type,
}

pub struct Register {
    pub name: String,
    pub target: RegisterId,
    pub size: usize,
    pub element: DataType,
}

pub struct Digest {
    pub name: String,
    /// One for each `digest` call of the program that sends this type.
    pub targets: Vec<DigestId>,
    pub data: DataType,
}

#[derive(Default)]
pub struct Schema {
    /// By the types that are strings for clients.
    pub names: BTreeMap<String, Arc<Names>>,
    pub tables: BTreeMap<u32, Table>,
    pub actions: BTreeMap<u32, Action>,
    pub counters: BTreeMap<u32, Counter>,
    pub meters: BTreeMap<u32, Meter>,
    pub registers: BTreeMap<u32, Register>,
    pub digests: BTreeMap<u32, Digest>,
    pub profiles: BTreeMap<u32, Profile>,
    pub value_sets: BTreeMap<u32, ValueSet>,
    /// Names of tables that p4c left out of the device config, as no packet can meet them.
    pub left_out: BTreeMap<u32, String>,
    /// In header order; empty when the program has no such header.
    pub packet_in: Vec<HeaderField>,
    pub packet_out: Vec<HeaderField>,
}

impl Schema {
    pub fn table_of(&self, target: TableId) -> Option<&Table> {
        self.tables.values().find(|table| table.target == target)
    }

    /// The digest whose type a sample of this call has.
    pub fn digest_of(&self, target: DigestId) -> Option<(u32, &Digest)> {
        self.digests.iter().find(|(_, digest)| digest.targets.contains(&target)).map(|(&id, digest)| (id, digest))
    }
}

/// The sizes of the profile count members, not weights.
pub fn counts_members(profile: &info::ActionProfile) -> bool {
    matches!(profile.selector_size_semantics, Some(SizeSemantics::SumOfMembers(_)))
}

/// The table of that id, or an error.
pub fn table(schema: &Schema, id: u32) -> Checked<&Table> {
    if let Some(name) = schema.left_out.get(&id) {
        return refuse!(
            InvalidArgument,
            "table {name}: p4c left it out of the device config, as no packet meets it: it has no entries"
        );
    }
    known(&schema.tables, "table", id)
}

/// The object of that id.
pub fn known<'a, T>(objects: &'a BTreeMap<u32, T>, kind: &str, id: u32) -> Checked<&'a T> {
    match objects.get(&id) {
        Some(object) => Ok(object),
        None => refuse!(InvalidArgument, "there is no {kind} with id {id:#x} in the P4Info"),
    }
}

/// The cells that an index names: one, or all when it is left out.
pub fn cells(name: &str, index: Option<&p4::Index>, size: usize) -> Checked<std::ops::Range<usize>> {
    match index.map(|index| (index.index, usize::try_from(index.index))) {
        None => Ok(0..size),
        Some((_, Ok(index))) if index < size => Ok(index..index + 1),
        Some((index, Ok(_))) => refuse!(OutOfRange, "{name} has {size} cells: index {index} is beyond them"),
        Some((index, Err(_))) => refuse!(InvalidArgument, "{name}: the index {index} is negative"),
    }
}
