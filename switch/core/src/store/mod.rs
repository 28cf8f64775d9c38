// SPDX-License-Identifier: Apache-2.0
//! The canonical copy of everything written to the data plane. Checks an update, records it, and says what the packet
//! thread has to change. Slots of entries are given out here, so that a change cannot fail there.

mod packed;
mod reconcile;
mod replication;
mod size;
mod undo;
mod unpack;
mod views;

use std::sync::Arc;

pub use reconcile::{MovedCounts, share};
pub use size::check_size;
pub use undo::PipelineScope;
pub use unpack::Snapshot;

use packed::{EntryExtras, OneShotGroup, Packed, Stored};
use replication::Copies;
use unpack::Rows;

use crate::dataplane_ops::{Change, DigestConfig, MeterConfig};
use crate::key_codec::{check_index, check_width, pack_field, prefix_length};
use crate::port::PortNumber;
use crate::profiles::{OneShot, ProfileStore};
use crate::program::{ActionCall, ActionId, EntryKey, KeyField, ProfileId, Program, TableId, TableInfo, ValueSetId};
use crate::state::Shared;
use crate::state::code::{Matching, TableCode};
use crate::state::profile::GROUP;
use crate::state::table::RowShape;
use crate::value;
use crate::value_sets;
use crate::write_api::{EntryAction, TableEntry, Update, UpdateError, WeightedCall};

type Result<T> = std::result::Result<T, UpdateError>;

struct TableStore {
    entries: Packed,
    default: Option<ActionCall>,
    /// Meter configuration of misses.
    default_meter: Option<MeterConfig>,
    /// Entries that can time out.
    ageing: usize,
}

/// State that was written under one committed program.
pub struct Store {
    pub program: Arc<Program>,
    pub shared: Arc<Shared>,
    tables: Vec<TableStore>,
    meters: Vec<Vec<Option<MeterConfig>>>,
    digests: Vec<Option<DigestConfig>>,
    profiles: Vec<ProfileStore>,
    /// Members as written.
    value_sets: Vec<Vec<Vec<KeyField>>>,
    copies: Copies,
}

/// Bytes that a client may keep with an entry.
const MAX_COOKIE_LEN: usize = 4096;

fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(UpdateError::InvalidArgument(reason.into()))
}

impl Store {
    /// An empty store, and the changes that the program itself asks for.
    pub fn new(program: Arc<Program>, shared: Arc<Shared>) -> Result<(Store, Vec<Change>)> {
        let tables = program.code.tables.iter().zip(&program.tables).zip(&program.defaults);
        let table = |((code, info), default): ((&TableCode, &TableInfo), &Option<ActionCall>)| TableStore {
            entries: Packed::new(code, info.needs_priority()),
            default: default.clone(),
            default_meter: None,
            ageing: 0,
        };
        let mut store = Store {
            tables: tables.map(table).collect(),
            meters: program.meters.iter().map(|meter| vec![None; meter.size]).collect(),
            digests: vec![None; program.digests.len()],
            profiles: program.profiles.iter().enumerate().map(|(at, info)| ProfileStore::new(at, info)).collect(),
            value_sets: vec![Vec::new(); program.value_sets.len()],
            copies: Copies::default(),
            shared,
            program: program.clone(),
        };
        let mut changes = Vec::new();
        for (table, default) in program.defaults.iter().enumerate() {
            let action = store.pack_default(TableId(table), default.as_ref())?;
            changes.push(Change::SetDefault { table, action });
        }
        for (table, key, action) in &program.const_entries {
            let entry = TableEntry {
                table: *table,
                key: key.clone(),
                action: action.clone().into(),
                meter: None,
                counter: None,
                idle_timeout_ns: 0,
                cookie: Vec::new(),
            };
            let is_const = program.tables[table.0].const_entries;
            store.insert(entry, is_const, 0, &mut changes)?;
        }
        Ok((store, changes))
    }

    /// Records the update and appends what the packet thread has to do. Nothing is recorded on an error.
    pub fn update(&mut self, update: Update, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        match update {
            Update::InsertEntry(entry) => {
                self.check_writable(entry.table)?;
                self.insert(entry, false, now, changes)
            }
            Update::ModifyEntry(entry) => self.modify(entry, now, changes),
            Update::DeleteEntry { table, key } => self.delete(table, &key, changes),
            Update::FindEntry { table, key } => self.find(table, &key).map(|_| ()),
            Update::SetDefault { table, action } => self.set_default(table, action, changes),
            Update::SetDirectCounter { table, key, value } => {
                self.check_counter(table)?;
                let slot = self.slot(table, key.as_ref())?;
                changes.push(Change::SetEntryCounter { table: table.0, slot, value });
                Ok(())
            }
            Update::SetDirectMeter { table, key, config } => {
                self.check_meter(table)?;
                let slot = self.slot(table, key.as_ref())?;
                let written = &mut self.tables[table.0];
                match written.entries.get_mut(slot) {
                    Some(stored) if key.is_some() => stored.set_meter(config),
                    _ => written.default_meter = config,
                }
                changes.push(Change::SetEntryMeter { table: table.0, slot, config });
                Ok(())
            }
            Update::SetDirectColours { table, key, value } => {
                self.check_meter(table)?;
                let slot = self.slot(table, key.as_ref())?;
                changes.push(Change::SetEntryColours { table: table.0, slot, value });
                Ok(())
            }
            Update::SetCounter { counter, index, value } => {
                let size = self.program.counters.get(counter.0).map(|c| c.size);
                check_index("counter", size, index)?;
                changes.push(Change::SetCounter { counter: counter.0, index, value });
                Ok(())
            }
            Update::SetMeter { meter, index, config } => {
                let size = self.program.meters.get(meter.0).map(|m| m.size);
                check_index("meter", size, index)?;
                self.meters[meter.0][index] = config;
                changes.push(Change::SetMeter { meter: meter.0, index, config });
                Ok(())
            }
            Update::SetColours { meter, index, value } => {
                let size = self.program.meters.get(meter.0).map(|m| m.size);
                check_index("meter", size, index)?;
                changes.push(Change::SetColours { meter: meter.0, index, value });
                Ok(())
            }
            Update::SetRegister { register, index, value } => {
                let info = self.program.registers.get(register.0);
                check_index("register", info.map(|r| r.size), index)?;
                check_width("register value", &value, info.map_or(0, |r| r.width))?;
                changes.push(Change::SetRegister { register: register.0, index, value });
                Ok(())
            }
            Update::InsertMulticastGroup { .. }
            | Update::ModifyMulticastGroup { .. }
            | Update::DeleteMulticastGroup { .. }
            | Update::InsertCloneSession { .. }
            | Update::ModifyCloneSession { .. }
            | Update::DeleteCloneSession { .. }
            | Update::SetBackups { .. } => self.copies.update(update, changes),
            Update::InsertMember { profile, member, action } => {
                let packed = self.pack_member(profile, &action)?;
                self.profile_mut(profile)?.insert_member(member, action, packed, changes)
            }
            Update::ModifyMember { profile, member, action } => {
                let packed = self.pack_member(profile, &action)?;
                self.profile_mut(profile)?.modify_member(member, action, packed, changes)
            }
            Update::DeleteMember { profile, member } => self.profile_mut(profile)?.delete_member(member),
            Update::InsertGroup { profile, group, value } => {
                self.profile_mut(profile)?.insert_group(group, value, changes)
            }
            Update::ModifyGroup { profile, group, value } => {
                self.profile_mut(profile)?.modify_group(group, value, changes)
            }
            Update::DeleteGroup { profile, group } => self.profile_mut(profile)?.delete_group(group),
            Update::SetValueSet { set, members } => self.set_value_set(set, members, changes),
            Update::SetDigest { digest, config } => {
                check_index("digest", Some(self.digests.len()), digest.0)?;
                self.digests[digest.0] = config;
                changes.push(Change::SetDigest { digest: digest.0, config });
                Ok(())
            }
            Update::AckDigest { digest, sequences } => {
                check_index("digest", Some(self.digests.len()), digest.0)?;
                changes.push(Change::AckDigest { digest: digest.0, sequences });
                Ok(())
            }
        }
    }

    fn insert(&mut self, entry: TableEntry, is_const: bool, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        let id = entry.table;
        let mut row = self.pack_key(id, &entry.key)?;
        self.check_entry(&entry)?;
        let info = &self.program.tables[id.0];
        let entries = &self.tables[id.0].entries;
        if entries.find(&row, entry.key.priority).is_some() {
            return Err(UpdateError::AlreadyExists(format!("this entry of table `{}`", info.name)));
        }
        if entries.len() >= info.max_size {
            let reason = format!("table `{}` is full ({} entries)", info.name, info.max_size);
            return Err(UpdateError::ResourceExhausted(reason));
        }
        let priority = match self.program.code.tables[id.0].matching {
            Matching::Masked if !info.needs_priority() => prefix_length(&entry.key),
            _ => entry.key.priority,
        };
        let one_shot = self.acquire(id, &entry.action, None, &mut row, changes)?;
        let table = &mut self.tables[id.0];
        let stored = Stored::new(entry.idle_timeout_ns, now, is_const, extras(&entry, one_shot));
        let slot = table.entries.insert(&row, entry.key.priority, stored);
        if let Some(reference) = reference(&entry.action) {
            table.entries.set_action(slot, &[reference]);
        }
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        changes.push(Change::InsertEntry { table: id.0, slot, row: row.into(), priority });
        if let Some(config) = entry.meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config: Some(config) });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        Ok(())
    }

    fn modify(&mut self, mut entry: TableEntry, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        let id = entry.table;
        self.check_writable(id)?;
        let slot = self.find(id, &entry.key)?;
        self.check_entry(&entry)?;
        if entry.action == EntryAction::Same {
            entry.action = self.rows(id).action(slot);
        }
        let before = self.tables[id.0].entries.get(slot).and_then(|stored| Some(stored.one_shot()?.slots.clone()));
        let mut action = Vec::new();
        let one_shot = self.acquire(id, &entry.action, before.as_ref(), &mut action, changes)?;
        let table = &mut self.tables[id.0];
        let before = table.entries.action(slot)[0];
        let Some(stored) = table.entries.get_mut(slot) else {
            return Err(UpdateError::NotFound("entry".into()));
        };
        // An unchanged meter keeps its buckets.
        let meter = (stored.meter() != entry.meter).then_some(entry.meter);
        let new = Stored::new(entry.idle_timeout_ns, now, false, extras(&entry, one_shot));
        let old = std::mem::replace(stored, new);
        match reference(&entry.action) {
            Some(reference) => table.entries.set_action(slot, &[reference]),
            None => table.entries.set_action(slot, &action),
        }
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        table.ageing -= (old.idle_timeout > 0) as usize;
        self.release(id, before, &old);
        changes.push(Change::ModifyEntry { table: id.0, slot, action: action.into() });
        if let Some(config) = meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        Ok(())
    }

    fn delete(&mut self, id: TableId, key: &EntryKey, changes: &mut Vec<Change>) -> Result<()> {
        self.check_writable(id)?;
        let slot = self.find(id, key)?;
        let table = &mut self.tables[id.0];
        let action = table.entries.action(slot)[0];
        changes.push(Change::RemoveEntry { table: id.0, slot });
        if let Some(stored) = table.entries.remove(slot) {
            table.ageing -= (stored.idle_timeout > 0) as usize;
            self.release(id, action, &stored);
        }
        Ok(())
    }

    fn set_default(&mut self, id: TableId, action: Option<ActionCall>, changes: &mut Vec<Change>) -> Result<()> {
        let info = self.table(id)?;
        if info.const_default {
            let reason = format!("the default action of table `{}` is constant", info.name);
            return Err(UpdateError::PermissionDenied(reason));
        }
        let action = action.or_else(|| self.program.defaults[id.0].clone());
        let packed = self.pack_default(id, action.as_ref())?;
        self.tables[id.0].default = action;
        changes.push(Change::SetDefault { table: id.0, action: packed });
        Ok(())
    }

    fn pack_default(&self, id: TableId, action: Option<&ActionCall>) -> Result<Option<Box<[u64]>>> {
        let Some(call) = action else { return Ok(None) };
        let mut packed = Vec::new();
        self.pack_action(id, call, &mut packed)?;
        Ok(Some(packed.into()))
    }

    fn table(&self, id: TableId) -> Result<&TableInfo> {
        self.program.tables.get(id.0).ok_or_else(|| UpdateError::NotFound(format!("table {}", id.0)))
    }

    fn no_entry(&self, id: TableId) -> UpdateError {
        UpdateError::NotFound(format!("entry in table `{}`", self.program.tables[id.0].name))
    }

    fn find(&self, id: TableId, key: &EntryKey) -> Result<u32> {
        let row = self.pack_key(id, key)?;
        self.tables[id.0].entries.find(&row, key.priority).ok_or_else(|| self.no_entry(id))
    }

    /// Returns the slot of an entry's counter and meter; without a key: the default entry's.
    fn slot(&self, id: TableId, key: Option<&EntryKey>) -> Result<u32> {
        match key {
            Some(key) => self.find(id, key),
            None => Ok(self.table(id)?.max_size as u32),
        }
    }

    fn check_writable(&self, id: TableId) -> Result<()> {
        let info = self.table(id)?;
        if info.const_entries {
            let reason = format!("the entries of table `{}` are constant", info.name);
            return Err(UpdateError::PermissionDenied(reason));
        }
        if info.key.is_empty() {
            return invalid(format!("table `{}` has no key and so no entries", info.name));
        }
        Ok(())
    }

    fn check_counter(&self, id: TableId) -> Result<()> {
        let info = self.table(id)?;
        if info.has_counter { Ok(()) } else { invalid(format!("table `{}` has no direct counter", info.name)) }
    }

    fn check_meter(&self, id: TableId) -> Result<()> {
        let info = self.table(id)?;
        if info.meter.is_some() { Ok(()) } else { invalid(format!("table `{}` has no direct meter", info.name)) }
    }

    /// Checks an entry's fields other than key and action.
    fn check_entry(&self, entry: &TableEntry) -> Result<()> {
        if entry.meter.is_some() {
            self.check_meter(entry.table)?;
        }
        if entry.counter.is_some() {
            self.check_counter(entry.table)?;
        }
        if entry.cookie.len() > MAX_COOKIE_LEN {
            return exhausted(format!("{} bytes of metadata: {MAX_COOKIE_LEN} are the most", entry.cookie.len()));
        }
        let info = self.table(entry.table)?;
        if entry.idle_timeout_ns > 0 && !info.support_timeout {
            return invalid(format!("table `{}` does not support idle timeouts", info.name));
        }
        Ok(())
    }

    pub fn profile(&self, id: ProfileId) -> Result<&ProfileStore> {
        self.profiles.get(id.0).ok_or_else(|| UpdateError::NotFound(format!("action profile {}", id.0)))
    }

    fn profile_mut(&mut self, id: ProfileId) -> Result<&mut ProfileStore> {
        self.profiles.get_mut(id.0).ok_or_else(|| UpdateError::NotFound(format!("action profile {}", id.0)))
    }

    /// Appends what stands in a row for the action; what it names is in use from now on.
    /// `replaced`: the one-shot group that the entry has so far.
    fn acquire(
        &mut self,
        id: TableId,
        action: &EntryAction,
        replaced: Option<&OneShot>,
        row: &mut Vec<u64>,
        changes: &mut Vec<Change>,
    ) -> Result<Option<Box<OneShotGroup>>> {
        let info = self.table(id)?;
        let Some(ProfileId(profile)) = info.profile else {
            return match action {
                EntryAction::Call(call) => self.pack_action(id, call, row).map(|()| None),
                EntryAction::Same => invalid(format!("table `{}`: a new entry needs an action", info.name)),
                _ => invalid(format!("table `{}` has no action profile", info.name)),
            };
        };
        let mixed = || invalid(format!("table `{}`: its action profile is programmed the other way", info.name));
        let has_shots = self.profiles[profile].has_shots();
        match action {
            EntryAction::Call(_) | EntryAction::Same => {
                invalid(format!("table `{}` takes members of its action profile", info.name))
            }
            EntryAction::Member(_) | EntryAction::Group(_) if has_shots => mixed(),
            EntryAction::Member(member) => {
                row.push(self.profiles[profile].use_member(*member)?);
                Ok(None)
            }
            EntryAction::Group(group) => {
                row.push(self.profiles[profile].use_group(*group)?);
                Ok(None)
            }
            EntryAction::OneShot(_) if self.profiles[profile].has_members() => mixed(),
            EntryAction::OneShot(calls) => {
                let pack = |weighted: &WeightedCall| {
                    let mut packed = Vec::new();
                    self.pack_action(id, &weighted.call, &mut packed).map(|()| packed)
                };
                let packed = calls.iter().map(pack).collect::<Result<Vec<_>>>()?;
                let (reference, slots) = self.profiles[profile].shoot(calls, packed, replaced, changes)?;
                row.push(reference);
                Ok(Some(Box::new(OneShotGroup { calls: calls.clone(), slots })))
            }
        }
    }

    /// Releases what an entry that is gone has named. `action`: the first word of its action.
    fn release(&mut self, id: TableId, action: u64, stored: &Stored) {
        let Some(ProfileId(profile)) = self.program.tables[id.0].profile else { return };
        let store = &mut self.profiles[profile];
        match stored.one_shot() {
            Some(one_shot) => store.release_shot(&one_shot.slots),
            None if action & GROUP != 0 => store.release_group(action as u32),
            None => store.release_member(action as u32),
        }
    }

    /// The entries of a table, as they stand in their rows.
    fn rows(&self, id: TableId) -> Rows<'_> {
        Rows { program: &self.program, table: id, entries: &self.tables[id.0].entries }
    }

    /// A member's action as it stands in its profile.
    fn pack_member(&self, id: ProfileId, call: &ActionCall) -> Result<Vec<u64>> {
        match self.program.profiles.get(id.0) {
            Some(info) => {
                let mut packed = Vec::new();
                self.pack_call(&info.actions, &info.name, call, &mut packed).map(|()| packed)
            }
            None => Err(UpdateError::NotFound(format!("action profile {}", id.0))),
        }
    }

    fn set_value_set(&mut self, id: ValueSetId, members: Vec<Vec<KeyField>>, changes: &mut Vec<Change>) -> Result<()> {
        let Some(info) = self.program.value_sets.get(id.0) else {
            return Err(UpdateError::NotFound(format!("value set {}", id.0)));
        };
        let packed = value_sets::pack(info, &members)?;
        self.value_sets[id.0] = members;
        changes.push(Change::SetValueSet { set: id.0, members: packed });
        Ok(())
    }

    /// The changes that make groups, sessions and digests what they are here.
    pub fn beside_the_machine(&self) -> Vec<Change> {
        let digests = self.digests.iter().enumerate();
        let digests = digests.map(|(digest, &config)| Change::SetDigest { digest, config });
        self.copies.changes().chain(digests).collect()
    }

    /// A port's interface came or went.
    pub fn set_port(&mut self, port: PortNumber, up: bool, changes: &mut Vec<Change>) {
        self.profiles.iter_mut().for_each(|profile| profile.set_port(port, up, changes));
        self.copies.set_port(port, up, changes);
    }

    /// Appends action index and parameters as they stand in a row.
    fn pack_action(&self, id: TableId, call: &ActionCall, row: &mut Vec<u64>) -> Result<()> {
        let info = self.table(id)?;
        let start = row.len();
        self.pack_call(&info.actions, &info.name, call, row)?;
        row.resize(row.len().max(start + 1 + self.program.code.tables[id.0].param_words), 0);
        Ok(())
    }

    /// Appends the index among `actions` and the parameters.
    fn pack_call(&self, actions: &[ActionId], of: &str, call: &ActionCall, row: &mut Vec<u64>) -> Result<()> {
        let Some(index) = actions.iter().position(|&action| action == call.action) else {
            return invalid(format!("`{of}` does not have this action"));
        };
        let action = &self.program.actions[call.action.0];
        if action.params.len() != call.params.len() {
            let (needs, has) = (action.params.len(), call.params.len());
            return invalid(format!("action `{}` takes {needs} parameters, not {has}", action.name));
        }
        row.push(index as u64);
        for (param, value) in action.params.iter().zip(&call.params) {
            check_width(format_args!("parameter `{}`", param.name), value, param.width)?;
            row.extend((0..value::words(param.width)).map(|word| value.word(word)));
        }
        Ok(())
    }

    /// The key as it stands in a row, with room for the rest of it. Key and priority are all that names an entry.
    fn pack_key(&self, id: TableId, key: &EntryKey) -> Result<Vec<u64>> {
        let info = self.table(id)?;
        let code = &self.program.code.tables[id.0];
        if key.fields.len() != info.key.len() {
            let (needs, has) = (info.key.len(), key.fields.len());
            return invalid(format!("the key of table `{}` has {needs} fields, not {has}", info.name));
        }
        match (info.needs_priority(), key.priority) {
            (true, ..1) => return invalid(format!("an entry of table `{}` needs a priority of at least 1", info.name)),
            (false, 0) | (true, _) => {}
            (false, _) => return invalid(format!("entries of table `{}` have no priority", info.name)),
        }
        let shape = RowShape::new(code);
        let mut row = Vec::with_capacity(shape.len);
        row.resize(shape.action, 0);
        for ((field, place), key) in key.fields.iter().zip(&code.places).zip(&info.key) {
            pack_field(field, place, key.kind, key.field.width, &key.field.name, code, &mut row)?;
        }
        Ok(row)
    }
}

/// Returns what an entry of a table with an action profile refers to.
fn reference(action: &EntryAction) -> Option<u64> {
    match action {
        EntryAction::Member(member) => Some((*member).into()),
        EntryAction::Group(group) => Some(GROUP | u64::from(*group)),
        EntryAction::Call(_) | EntryAction::OneShot(_) | EntryAction::Same => None,
    }
}

fn extras(entry: &TableEntry, one_shot: Option<Box<OneShotGroup>>) -> EntryExtras {
    EntryExtras { meter: entry.meter, cookie: entry.cookie.as_slice().into(), one_shot }
}

fn exhausted<T>(reason: String) -> Result<T> {
    Err(UpdateError::ResourceExhausted(reason))
}
