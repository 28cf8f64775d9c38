// SPDX-License-Identifier: Apache-2.0
//! The canonical copy of everything written to the data plane. Checks an update, records it, and says what the packet
//! thread has to change. Slots of entries are given out here, so that a change cannot fail there.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::change::{Change, CloneSession, CounterValue, DigestConfig, MeterConfig, Replica};
use crate::control::{EntryView, TableEntry, Update, UpdateError};
use crate::machine::Shared;
use crate::machine::code::{KeyPlace, Matching, TableCode};
use crate::machine::table::RowShape;
use crate::program::{ActionCall, EntryKey, KeyField, MatchKind, Program, TableId, TableInfo, Value};

type Result<T> = std::result::Result<T, UpdateError>;

struct Stored {
    entry: TableEntry,
    is_const: bool,
    /// When the entry was inserted, modified or last reported as idle; ns.
    seen: u64,
}

struct TableStore {
    /// Packed key and priority to slot.
    slots: HashMap<Box<[u64]>, u32>,
    entries: Vec<Option<Stored>>,
    free: Vec<u32>,
    default: Option<ActionCall>,
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
    pub groups: BTreeMap<u32, Vec<Replica>>,
    pub sessions: BTreeMap<u32, CloneSession>,
}

fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(UpdateError::InvalidArgument(reason.into()))
}

impl Store {
    /// An empty store, and the changes that the program itself asks for.
    pub fn new(program: Arc<Program>, shared: Arc<Shared>) -> Result<(Store, Vec<Change>)> {
        let table = |default: &Option<ActionCall>| TableStore {
            slots: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            default: default.clone(),
            ageing: 0,
        };
        let mut store = Store {
            tables: program.defaults.iter().map(table).collect(),
            meters: program.meters.iter().map(|meter| vec![None; meter.size]).collect(),
            digests: vec![None; program.digests.len()],
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
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
                action: action.clone(),
                meter: None,
                counter: None,
                idle_timeout_ns: 0,
                cookie: Vec::new(),
            };
            store.insert(entry, true, 0, &mut changes)?;
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
            Update::SetDefault { table, action } => self.set_default(table, action, changes),
            Update::SetDirectCounter { table, key, value } => {
                let slot = self.find(table, &key)?;
                self.check_counter(table)?;
                changes.push(Change::SetEntryCounter { table: table.0, slot, value });
                Ok(())
            }
            Update::SetDirectMeter { table, key, config } => {
                let slot = self.find(table, &key)?;
                self.check_meter(table)?;
                if let Some(stored) = &mut self.tables[table.0].entries[slot as usize] {
                    stored.entry.meter = config;
                }
                changes.push(Change::SetEntryMeter { table: table.0, slot, config });
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
            Update::SetRegister { register, index, value } => {
                let info = self.program.registers.get(register.0);
                check_index("register", info.map(|r| r.size), index)?;
                check_width("register value", value as Value, info.map_or(64, |r| r.width))?;
                changes.push(Change::SetRegister { register: register.0, index, value });
                Ok(())
            }
            Update::InsertMulticastGroup { group, .. } if self.groups.contains_key(&group) => {
                Err(UpdateError::AlreadyExists(format!("multicast group {group}")))
            }
            Update::ModifyMulticastGroup { group, .. } | Update::DeleteMulticastGroup { group }
                if !self.groups.contains_key(&group) =>
            {
                Err(UpdateError::NotFound(format!("multicast group {group}")))
            }
            Update::InsertMulticastGroup { group, replicas } | Update::ModifyMulticastGroup { group, replicas } => {
                if group == 0 || group > u16::MAX as u32 {
                    return invalid(format!("multicast group {group}: groups are numbered from 1 to 65535"));
                }
                check_replicas(&replicas)?;
                self.groups.insert(group, replicas.clone());
                changes.push(Change::SetMulticastGroup { group, replicas: Some(replicas) });
                Ok(())
            }
            Update::DeleteMulticastGroup { group } => {
                self.groups.remove(&group);
                changes.push(Change::SetMulticastGroup { group, replicas: None });
                Ok(())
            }
            Update::InsertCloneSession { session, .. } if self.sessions.contains_key(&session) => {
                Err(UpdateError::AlreadyExists(format!("clone session {session}")))
            }
            Update::ModifyCloneSession { session, .. } | Update::DeleteCloneSession { session }
                if !self.sessions.contains_key(&session) =>
            {
                Err(UpdateError::NotFound(format!("clone session {session}")))
            }
            Update::InsertCloneSession { session, config } | Update::ModifyCloneSession { session, config } => {
                check_replicas(&config.replicas)?;
                self.sessions.insert(session, config.clone());
                changes.push(Change::SetCloneSession { session, config: Some(config) });
                Ok(())
            }
            Update::DeleteCloneSession { session } => {
                self.sessions.remove(&session);
                changes.push(Change::SetCloneSession { session, config: None });
                Ok(())
            }
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
        let (mut row, key) = self.pack_key(id, &entry.key)?;
        self.check_entry(&entry)?;
        let action = self.pack_action(id, &entry.action)?;
        let info = &self.program.tables[id.0];
        let table = &mut self.tables[id.0];
        if table.slots.contains_key(&key) {
            return Err(UpdateError::AlreadyExists(format!("this entry of table `{}`", info.name)));
        }
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None if table.entries.len() < info.max_size => {
                table.entries.push(None);
                table.entries.len() as u32 - 1
            }
            None => {
                let reason = format!("table `{}` is full ({} entries)", info.name, info.max_size);
                return Err(UpdateError::ResourceExhausted(reason));
            }
        };
        row.extend(action);
        let priority = match self.program.code.tables[id.0].matching {
            Matching::Masked if !info.needs_priority() => prefix_length(&entry.key),
            _ => entry.key.priority,
        };
        changes.push(Change::InsertEntry { table: id.0, slot, row: row.into(), priority });
        if let Some(config) = entry.meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config: Some(config) });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        table.slots.insert(key, slot);
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        table.entries[slot as usize] = Some(Stored { entry, is_const, seen: now });
        Ok(())
    }

    fn modify(&mut self, entry: TableEntry, now: u64, changes: &mut Vec<Change>) -> Result<()> {
        let id = entry.table;
        self.check_writable(id)?;
        let slot = self.find(id, &entry.key)?;
        self.check_entry(&entry)?;
        let action = self.pack_action(id, &entry.action)?.into();
        let table = &mut self.tables[id.0];
        let Some(stored) = &mut table.entries[slot as usize] else {
            return Err(UpdateError::NotFound("entry".into()));
        };
        changes.push(Change::ModifyEntry { table: id.0, slot, action });
        // An unchanged meter keeps its buckets.
        if stored.entry.meter != entry.meter {
            changes.push(Change::SetEntryMeter { table: id.0, slot, config: entry.meter });
        }
        if let Some(value) = entry.counter {
            changes.push(Change::SetEntryCounter { table: id.0, slot, value });
        }
        table.ageing += (entry.idle_timeout_ns > 0) as usize;
        table.ageing -= (stored.entry.idle_timeout_ns > 0) as usize;
        *stored = Stored { entry, is_const: false, seen: now };
        Ok(())
    }

    fn delete(&mut self, id: TableId, key: &EntryKey, changes: &mut Vec<Change>) -> Result<()> {
        self.check_writable(id)?;
        let (_, packed) = self.pack_key(id, key)?;
        let table = &mut self.tables[id.0];
        let Some(slot) = table.slots.remove(&packed) else {
            return Err(self.no_entry(id));
        };
        if let Some(stored) = table.entries[slot as usize].take() {
            table.ageing -= (stored.entry.idle_timeout_ns > 0) as usize;
        }
        table.free.push(slot);
        changes.push(Change::RemoveEntry { table: id.0, slot });
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

    pub fn entry(&self, id: TableId, key: &EntryKey, now: u64) -> Result<EntryView> {
        let slot = self.find(id, key)?;
        self.view(id, slot, now).ok_or_else(|| self.no_entry(id))
    }

    pub fn direct_counter(&self, id: TableId, key: &EntryKey) -> Result<CounterValue> {
        self.check_counter(id)?;
        let slot = self.find(id, key)?;
        let stats = self.shared.entries[id.0].get(slot as usize).ok_or_else(|| self.no_entry(id))?;
        Ok(CounterValue { packets: stats.packets.load(Relaxed), bytes: stats.bytes.load(Relaxed) })
    }

    pub fn entries(&self, id: TableId, now: u64) -> Result<Vec<EntryView>> {
        self.table(id)?;
        let slots = 0..self.tables[id.0].entries.len() as u32;
        Ok(slots.filter_map(|slot| self.view(id, slot, now)).collect())
    }

    fn view(&self, id: TableId, slot: u32, now: u64) -> Option<EntryView> {
        let stored = self.tables[id.0].entries[slot as usize].as_ref()?;
        let info = &self.program.tables[id.0];
        let mut entry = stored.entry.clone();
        let mut idle_ns = 0;
        if let Some(stats) = self.shared.entries[id.0].get(slot as usize) {
            entry.counter = info
                .has_counter
                .then(|| CounterValue { packets: stats.packets.load(Relaxed), bytes: stats.bytes.load(Relaxed) });
            if info.support_timeout {
                idle_ns = now.saturating_sub(stats.last_hit.load(Relaxed));
            }
        }
        Some(EntryView { entry, idle_ns, is_const: stored.is_const })
    }

    pub fn default_action(&self, id: TableId) -> Result<Option<ActionCall>> {
        self.table(id)?;
        Ok(self.tables[id.0].default.clone())
    }

    pub fn counters(&self, counter: usize, range: Range<usize>) -> Result<Vec<CounterValue>> {
        let cells = self.shared.counters.get(counter).and_then(|cells| cells.get(range.clone()));
        let value = |cell: &crate::machine::CounterCell| CounterValue {
            packets: cell.packets.load(Relaxed),
            bytes: cell.bytes.load(Relaxed),
        };
        Ok(cells.ok_or_else(|| no_cells("counter", range))?.iter().map(value).collect())
    }

    pub fn meters(&self, meter: usize, range: Range<usize>) -> Result<Vec<Option<MeterConfig>>> {
        let cells = self.meters.get(meter).and_then(|cells| cells.get(range.clone()));
        Ok(cells.ok_or_else(|| no_cells("meter", range))?.to_vec())
    }

    pub fn registers(&self, register: usize, range: Range<usize>) -> Result<Vec<u64>> {
        let cells = self.shared.registers.get(register).and_then(|cells| cells.get(range.clone()));
        Ok(cells.ok_or_else(|| no_cells("register", range))?.iter().map(|cell| cell.load(Relaxed)).collect())
    }

    pub fn digest_config(&self, digest: usize) -> Result<Option<DigestConfig>> {
        self.digests.get(digest).copied().ok_or_else(|| UpdateError::NotFound(format!("digest {digest}")))
    }

    /// Entries of the slots `range` of a table that have been idle for their timeout; none is told twice within it.
    pub fn idle(&mut self, table: usize, range: Range<usize>, now: u64) -> Vec<TableEntry> {
        let (info, store) = (&self.program.tables[table], &mut self.tables[table]);
        let mut idle = Vec::new();
        if !info.support_timeout || store.ageing == 0 {
            return idle;
        }
        let range = range.start.min(store.entries.len())..range.end.min(store.entries.len());
        for (slot, stored) in range.clone().zip(&mut store.entries[range]) {
            let Some(stored) = stored else { continue };
            let last_hit = self.shared.entries[table][slot].last_hit.load(Relaxed);
            let timeout = stored.entry.idle_timeout_ns;
            if timeout > 0 && now.saturating_sub(last_hit.max(stored.seen)) >= timeout {
                stored.seen = now;
                idle.push(stored.entry.clone());
            }
        }
        idle
    }

    fn table(&self, id: TableId) -> Result<&TableInfo> {
        self.program.tables.get(id.0).ok_or_else(|| UpdateError::NotFound(format!("table {}", id.0)))
    }

    fn no_entry(&self, id: TableId) -> UpdateError {
        UpdateError::NotFound(format!("entry in table `{}`", self.program.tables[id.0].name))
    }

    fn find(&self, id: TableId, key: &EntryKey) -> Result<u32> {
        let (_, packed) = self.pack_key(id, key)?;
        self.tables[id.0].slots.get(&packed).copied().ok_or_else(|| self.no_entry(id))
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
        let info = self.table(entry.table)?;
        if entry.idle_timeout_ns > 0 && !info.support_timeout {
            return invalid(format!("table `{}` does not support idle timeouts", info.name));
        }
        Ok(())
    }

    /// Action index and parameters as they stand in a row.
    fn pack_action(&self, id: TableId, call: &ActionCall) -> Result<Vec<u64>> {
        let info = self.table(id)?;
        let Some(index) = info.actions.iter().position(|&action| action == call.action) else {
            return invalid(format!("table `{}` does not have this action", info.name));
        };
        let action = &self.program.actions[call.action.0];
        if action.params.len() != call.params.len() {
            let (needs, has) = (action.params.len(), call.params.len());
            return invalid(format!("action `{}` takes {needs} parameters, not {has}", action.name));
        }
        let mut packed = vec![index as u64];
        for (param, &value) in action.params.iter().zip(&call.params) {
            check_width(format_args!("parameter `{}`", param.name), value, param.width)?;
            packed.push(value as u64);
            if param.width > 64 {
                packed.push((value >> 64) as u64);
            }
        }
        packed.resize(1 + self.program.code.tables[id.0].param_words, 0);
        Ok(packed)
    }

    /// The key as it stands in a row, and that with the priority as what identifies an entry.
    fn pack_key(&self, id: TableId, key: &EntryKey) -> Result<(Vec<u64>, Box<[u64]>)> {
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
        let mut row = vec![0; shape.action];
        for ((field, place), key) in key.fields.iter().zip(&code.places).zip(&info.key) {
            pack_field(field, place, key.kind, key.field.width, &key.field.name, code, &mut row)?;
        }
        let mut identity = row.clone();
        identity.push(key.priority as u64);
        Ok((row, identity.into()))
    }
}

fn pack_field(
    field: &KeyField,
    place: &KeyPlace,
    kind: MatchKind,
    width: u16,
    name: &str,
    code: &TableCode,
    row: &mut [u64],
) -> Result<()> {
    let all = Value::MAX >> (128 - width);
    let what = NamedField(name);
    let (value, mask) = match (kind, field) {
        (MatchKind::Exact, KeyField::Exact(value)) => (*value, all),
        (MatchKind::Lpm, KeyField::Lpm { value, prefix_len }) => {
            if *prefix_len > width {
                return invalid(format!("{what}: a prefix of {prefix_len} bits is longer than {width}"));
            }
            (*value, all & !all.checked_shr(*prefix_len as u32).unwrap_or(0))
        }
        (MatchKind::Ternary, KeyField::Ternary { value, mask }) => {
            check_width(format_args!("{what}, mask"), *mask, width)?;
            (*value, *mask)
        }
        // The format calls optional fields ternary.
        (MatchKind::Optional | MatchKind::Ternary, KeyField::Optional(value)) => {
            (value.unwrap_or(0), if value.is_some() { all } else { 0 })
        }
        (MatchKind::Range, KeyField::Range { low, high }) => {
            check_width(&what, *low, width)?;
            check_width(&what, *high, width)?;
            if low > high {
                return invalid(format!("{what}: the range {low}..{high} is empty"));
            }
            let KeyPlace::Range(index) = place else { return invalid(format!("{what}: not a range")) };
            let at = RowShape::new(code).ranges + 2 * index;
            row[at..at + 2].copy_from_slice(&[*low as u64, *high as u64]);
            return Ok(());
        }
        (kind, _) => return invalid(format!("{what} has to be of kind {kind:?}")),
    };
    check_width(&what, value, width)?;
    if value & !mask != 0 {
        return invalid(format!("{what}: value {value:#x} has bits outside its mask"));
    }
    let KeyPlace::Packed(places) = place else { return invalid(format!("{what}: a range is needed")) };
    let shape = RowShape::new(code);
    for (index, &(word, shift, bits)) in places.iter().enumerate() {
        let cut = |value: Value| ((value >> (64 * index)) as u64 & (u64::MAX >> (64 - bits))) << shift;
        row[word as usize] |= cut(value);
        if shape.ranges > shape.mask {
            row[shape.mask + word as usize] |= cut(mask);
        }
    }
    Ok(())
}

/// The longest prefix wins.
fn prefix_length(key: &EntryKey) -> i32 {
    let length = |field: &KeyField| match field {
        KeyField::Lpm { prefix_len, .. } => *prefix_len as i32,
        _ => 0,
    };
    key.fields.iter().map(length).sum()
}

/// Formatted only for a refusal: keys are packed for every update and query.
struct NamedField<'a>(&'a str);

impl fmt::Display for NamedField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key field `{}`", self.0)
    }
}

fn check_width(what: impl fmt::Display, value: Value, width: u16) -> Result<()> {
    if width < 128 && value >> width != 0 {
        return Err(UpdateError::OutOfRange(format!("{what}: {value:#x} does not fit in {width} bits")));
    }
    Ok(())
}

fn check_index(what: &str, size: Option<usize>, index: usize) -> Result<()> {
    match size {
        Some(size) if index < size => Ok(()),
        Some(size) => Err(UpdateError::OutOfRange(format!("{what} index {index} is not below {size}"))),
        None => Err(UpdateError::NotFound(what.to_string())),
    }
}

fn no_cells(what: &str, range: Range<usize>) -> UpdateError {
    UpdateError::OutOfRange(format!("{what} has no cells {}..{}", range.start, range.end))
}

fn check_replicas(replicas: &[Replica]) -> Result<()> {
    for (index, replica) in replicas.iter().enumerate() {
        if replicas[..index].contains(replica) {
            return invalid(format!("port {} occurs twice with instance {}", replica.port, replica.rid));
        }
    }
    Ok(())
}
