// SPDX-License-Identifier: Apache-2.0
//! The canonical copy of everything written to the data plane. Checks an update, records it, and says what the packet
//! thread has to change. Slots of entries are given out here, so that a change cannot fail there.

mod carry;
mod copies;
mod undo;
mod views;

use std::collections::HashMap;
use std::sync::Arc;

pub use carry::{Carried, share};
pub use undo::Reach;

use foldhash::fast::RandomState;

use copies::Copies;

use crate::change::{Change, DigestConfig, MeterConfig};
use crate::machine::Shared;
use crate::machine::code::Matching;
use crate::machine::table::RowShape;
use crate::port::PortNumber;
use crate::profiles::{OneShot, ProfileStore};
use crate::program::{ActionCall, ActionId, EntryKey, KeyField, ProfileId, Program, TableId, TableInfo, ValueSetId};
use crate::rows::{check_index, check_width, pack_field, prefix_length};
use crate::update::{EntryAction, TableEntry, Update, UpdateError};
use crate::value::words;
use crate::value_sets;

type Result<T> = std::result::Result<T, UpdateError>;

struct Stored {
    entry: TableEntry,
    /// Of an entry with a one-shot group.
    shot: Option<OneShot>,
    is_const: bool,
    /// When the entry was inserted, modified or last reported as idle; ns.
    seen: u64,
}

struct TableStore {
    /// Packed key and priority to slot.
    slots: HashMap<Box<[u64]>, u32, RandomState>,
    entries: Vec<Option<Stored>>,
    free: Vec<u32>,
    default: Option<ActionCall>,
    /// Of misses.
    default_meter: Option<MeterConfig>,
    /// Entries that can time out.
    ageing: usize,
}

/// What belongs to one committed program.
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

/// Cells of an array, entries of a table and members of a profile at most; and of all of them together.
const MOST_CELLS: usize = 1 << 24;
const MOST_CELLS_TOGETHER: usize = 1 << 26;
/// Bytes that a client may keep with an entry.
const LONGEST_COOKIE: usize = 4096;

/// Whether there is memory for all that the program declares.
pub fn check_size(program: &Program) -> Result<()> {
    let tables = program.tables.iter().map(|table| (&table.name, table.max_size));
    let profiles = program.profiles.iter().map(|profile| (&profile.name, profile.size));
    let counters = program.counters.iter().map(|counter| (&counter.name, counter.size));
    let meters = program.meters.iter().map(|meter| (&meter.name, meter.size));
    let registers = program.registers.iter().map(|register| (&register.name, register.size));
    let mut together = 0;
    for (name, size) in tables.chain(profiles).chain(counters).chain(meters).chain(registers) {
        if size > MOST_CELLS {
            return invalid(format!("`{name}` has a size of {size}: {MOST_CELLS} is the largest"));
        }
        together += size;
    }
    match together > MOST_CELLS_TOGETHER {
        true => invalid(format!(
            "the sizes of all tables and arrays are {together} together: {MOST_CELLS_TOGETHER} are the most"
        )),
        false => Ok(()),
    }
}

fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(UpdateError::InvalidArgument(reason.into()))
}

impl Store {
    /// An empty store, and the changes that the program itself asks for.
    pub fn new(program: Arc<Program>, shared: Arc<Shared>) -> Result<(Store, Vec<Change>)> {
        let table = |default: &Option<ActionCall>| TableStore {
            slots: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            default: default.clone(),
            default_meter: None,
            ageing: 0,
        };
        let mut store = Store {
            tables: program.defaults.iter().map(table).collect(),
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
            let action = match default {
                Some(call) => Some(store.pack_action(TableId(table), call)?.into()),
                None => None,
            };
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
                match written.entries.get_mut(slot as usize) {
                    Some(Some(stored)) if key.is_some() => stored.entry.meter = config,
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
        let identity = self.identity(id, &entry.key)?;
        let mut row = identity[..identity.len() - 1].to_vec();
        self.check_entry(&entry)?;
        let info = &self.program.tables[id.0];
        let table = &self.tables[id.0];
        if table.slots.contains_key(&identity[..]) {
            return Err(UpdateError::AlreadyExists(format!("this entry of table `{}`", info.name)));
        }
        if table.free.is_empty() && table.entries.len() >= info.max_size {
            let reason = format!("table `{}` is full ({} entries)", info.name, info.max_size);
            return Err(UpdateError::ResourceExhausted(reason));
        }
        let priority = match self.program.code.tables[id.0].matching {
            Matching::Masked if !info.needs_priority() => prefix_length(&entry.key),
            _ => entry.key.priority,
        };
        let (action, shot) = self.acquire(id, &entry.action, None, changes)?;
        row.extend(action);
        let table = &mut self.tables[id.0];
        let slot = table.free.pop().unwrap_or_else(|| {
            table.entries.push(None);
            table.entries.len() as u32 - 1
        });
        changes.push(Change::InsertEntry { table: id.0, slot, row: row.into(), priority });
        if let Some(config) = entry.meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config: Some(config) });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        table.slots.insert(identity.into(), slot);
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        table.entries[slot as usize] = Some(Stored { entry, shot, is_const, seen: now });
        Ok(())
    }

    fn modify(&mut self, mut entry: TableEntry, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        let id = entry.table;
        self.check_writable(id)?;
        let slot = self.find(id, &entry.key)?;
        self.check_entry(&entry)?;
        let before = self.tables[id.0].entries[slot as usize].as_ref();
        if let (EntryAction::Same, Some(stored)) = (&entry.action, before) {
            entry.action = stored.entry.action.clone();
        }
        let before = before.and_then(|stored| stored.shot.clone());
        let (action, shot) = self.acquire(id, &entry.action, before.as_ref(), changes)?;
        let table = &mut self.tables[id.0];
        let Some(stored) = &mut table.entries[slot as usize] else {
            return Err(UpdateError::NotFound("entry".into()));
        };
        changes.push(Change::ModifyEntry { table: id.0, slot, action: action.into() });
        // An unchanged meter keeps its buckets.
        if stored.entry.meter != entry.meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config: entry.meter });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        table.ageing -= (stored.entry.idle_timeout_ns > 0) as usize;
        let old = std::mem::replace(stored, Stored { entry, shot, is_const: false, seen: now });
        self.release(id, old);
        Ok(())
    }

    fn delete(&mut self, id: TableId, key: &EntryKey, changes: &mut Vec<Change>) -> Result<()> {
        self.check_writable(id)?;
        let identity = self.identity(id, key)?;
        let table = &mut self.tables[id.0];
        let Some(slot) = table.slots.remove(&identity[..]) else {
            return Err(self.no_entry(id));
        };
        table.free.push(slot);
        changes.push(Change::RemoveEntry { table: id.0, slot });
        if let Some(stored) = table.entries[slot as usize].take() {
            table.ageing -= (stored.entry.idle_timeout_ns > 0) as usize;
            self.release(id, stored);
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
        let packed = match &action {
            Some(call) => Some(self.pack_action(id, call)?.into()),
            None => None,
        };
        self.tables[id.0].default = action;
        changes.push(Change::SetDefault { table: id.0, action: packed });
        Ok(())
    }

    fn table(&self, id: TableId) -> Result<&TableInfo> {
        self.program.tables.get(id.0).ok_or_else(|| UpdateError::NotFound(format!("table {}", id.0)))
    }

    fn no_entry(&self, id: TableId) -> UpdateError {
        UpdateError::NotFound(format!("entry in table `{}`", self.program.tables[id.0].name))
    }

    fn find(&self, id: TableId, key: &EntryKey) -> Result<u32> {
        let identity = self.identity(id, key)?;
        self.tables[id.0].slots.get(&identity[..]).copied().ok_or_else(|| self.no_entry(id))
    }

    /// Where an entry's counter and meter are; without a key: those of the default entry.
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

    /// What an entry says beside its key and action.
    fn check_entry(&self, entry: &TableEntry) -> Result<()> {
        if entry.meter.is_some() {
            self.check_meter(entry.table)?;
        }
        if entry.counter.is_some() {
            self.check_counter(entry.table)?;
        }
        if entry.cookie.len() > LONGEST_COOKIE {
            return exhausted(format!("{} bytes of metadata: {LONGEST_COOKIE} are the most", entry.cookie.len()));
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

    /// What stands in a row for the action; what it names is in use from now on.
    /// `replaced`: the one-shot group that the entry has so far.
    fn acquire(
        &mut self,
        id: TableId,
        action: &EntryAction,
        replaced: Option<&OneShot>,
        changes: &mut Vec<Change>,
    ) -> Result<(Vec<u64>, Option<OneShot>)> {
        let info = self.table(id)?;
        let Some(ProfileId(profile)) = info.profile else {
            return match action {
                EntryAction::Call(call) => Ok((self.pack_action(id, call)?, None)),
                EntryAction::Same => invalid(format!("table `{}`: a new entry needs an action", info.name)),
                _ => invalid(format!("table `{}` has no action profile", info.name)),
            };
        };
        let mixed = format!("table `{}`: its action profile is programmed the other way", info.name);
        let packed = match action {
            EntryAction::OneShot(calls) => {
                calls.iter().map(|w| self.pack_action(id, &w.call)).collect::<Result<Vec<_>>>()?
            }
            _ => Vec::new(),
        };
        let store = &mut self.profiles[profile];
        match action {
            EntryAction::Call(_) | EntryAction::Same => {
                invalid(format!("table `{}` takes members of its action profile", self.program.tables[id.0].name))
            }
            EntryAction::Member(_) | EntryAction::Group(_) if store.has_shots() => invalid(mixed),
            EntryAction::Member(member) => Ok((vec![store.use_member(*member)?], None)),
            EntryAction::Group(group) => Ok((vec![store.use_group(*group)?], None)),
            EntryAction::OneShot(_) if store.has_members() => invalid(mixed),
            EntryAction::OneShot(calls) => {
                let (reference, shot) = store.shoot(calls, packed, replaced, changes)?;
                Ok((vec![reference], Some(shot)))
            }
        }
    }

    /// What an entry that is gone has named is no longer in use.
    fn release(&mut self, id: TableId, stored: Stored) {
        let Some(ProfileId(profile)) = self.program.tables[id.0].profile else { return };
        let store = &mut self.profiles[profile];
        match stored.entry.action {
            EntryAction::Member(member) => store.release_member(member),
            EntryAction::Group(group) => store.release_group(group),
            EntryAction::Call(_) | EntryAction::OneShot(_) | EntryAction::Same => {}
        }
        if let Some(shot) = stored.shot {
            store.release_shot(shot);
        }
    }

    /// A member's action as it stands in its profile.
    fn pack_member(&self, id: ProfileId, call: &ActionCall) -> Result<Vec<u64>> {
        match self.program.profiles.get(id.0) {
            Some(info) => self.pack_call(&info.actions, &info.name, call),
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

    /// Action index and parameters as they stand in a row.
    fn pack_action(&self, id: TableId, call: &ActionCall) -> Result<Vec<u64>> {
        let info = self.table(id)?;
        let mut packed = self.pack_call(&info.actions, &info.name, call)?;
        packed.resize(1 + self.program.code.tables[id.0].param_words.max(packed.len() - 1), 0);
        Ok(packed)
    }

    /// The index among `actions` and the parameters.
    fn pack_call(&self, actions: &[ActionId], of: &str, call: &ActionCall) -> Result<Vec<u64>> {
        let Some(index) = actions.iter().position(|&action| action == call.action) else {
            return invalid(format!("`{of}` does not have this action"));
        };
        let action = &self.program.actions[call.action.0];
        if action.params.len() != call.params.len() {
            let (needs, has) = (action.params.len(), call.params.len());
            return invalid(format!("action `{}` takes {needs} parameters, not {has}", action.name));
        }
        let mut packed = vec![index as u64];
        for (param, value) in action.params.iter().zip(&call.params) {
            check_width(format_args!("parameter `{}`", param.name), value, param.width)?;
            packed.extend((0..words(param.width)).map(|word| value.word(word)));
        }
        Ok(packed)
    }

    /// What identifies an entry: the key as it stands in a row, and the priority.
    fn identity(&self, id: TableId, key: &EntryKey) -> Result<Vec<u64>> {
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
        let mut identity = vec![0; shape.action + 1];
        let row = &mut identity[..shape.action];
        for ((field, place), key) in key.fields.iter().zip(&code.places).zip(&info.key) {
            pack_field(field, place, key.kind, key.field.width, &key.field.name, code, row)?;
        }
        identity[shape.action] = key.priority as u64;
        Ok(identity)
    }
}

fn exhausted<T>(reason: String) -> Result<T> {
    Err(UpdateError::ResourceExhausted(reason))
}
