// SPDX-License-Identifier: Apache-2.0
//! Methods about tables: entries, default entries, their counters, meters and timeouts.

use std::sync::Arc;

use apswitch_dataplane::control::{
    CounterValue, EntryAction, EntryKey, EntryView, Program, TableEntry, TableId, Update,
};

use crate::Server;
use crate::arrays::{counter_value, rates, written_counter, written_rates};
use crate::call::{Answered, Call, Codes, Refusal, declared};
use crate::handles::State;
use crate::keys;
use crate::message::{Fields, Value};

/// `TableOperationErrorCode`.
pub mod code {
    pub const TABLE_FULL: i32 = 1;
    pub const INVALID_HANDLE: i32 = 2;
    pub const COUNTERS_DISABLED: i32 = 4;
    pub const METERS_DISABLED: i32 = 5;
    pub const AGEING_DISABLED: i32 = 6;
    pub const INVALID_TABLE_NAME: i32 = 7;
    pub const INVALID_ACTION_NAME: i32 = 8;
    pub const WRONG_TABLE_TYPE: i32 = 9;
    pub const INVALID_MBR_HANDLE: i32 = 10;
    pub const MBR_ALREADY_IN_GRP: i32 = 12;
    pub const MBR_NOT_IN_GRP: i32 = 13;
    pub const INVALID_GRP_HANDLE: i32 = 14;
    pub const DUPLICATE_ENTRY: i32 = 17;
    pub const BAD_MATCH_KEY: i32 = 18;
    pub const DEFAULT_ENTRY_IS_CONST: i32 = 21;
    pub const INVALID_ACTION_PROFILE_NAME: i32 = 23;
    pub const NO_ACTION_PROFILE_SELECTION: i32 = 24;
    pub const IMMUTABLE_TABLE_ENTRIES: i32 = 25;
    pub const BAD_ACTION_DATA: i32 = 26;
    pub const ERROR: i32 = 100;
}

/// Entries in one answer.
const MAX_ENTRIES: usize = 1 << 16;
/// Updates in one write.
pub const BATCH: usize = 4096;

const ENTRY: Codes = Codes {
    exists: code::DUPLICATE_ENTRY,
    not_found: code::INVALID_HANDLE,
    full: code::TABLE_FULL,
    denied: code::IMMUTABLE_TABLE_ENTRIES,
    other: code::ERROR,
};
const DEFAULT: Codes = Codes { denied: code::DEFAULT_ENTRY_IS_CONST, ..ENTRY };
const MEMBER: Codes = Codes { not_found: code::INVALID_MBR_HANDLE, ..ENTRY };
const GROUP: Codes = Codes { not_found: code::INVALID_GRP_HANDLE, ..ENTRY };

impl Server {
    /// Writes the update, or refuses it by these codes.
    pub fn write(&self, update: Update, codes: Codes) -> Result<(), Refusal> {
        self.write_all(vec![update], codes)
    }

    /// Writes updates, at most [`BATCH`], to the first that is refused.
    pub fn write_all(&self, updates: Vec<Update>, codes: Codes) -> Result<(), Refusal> {
        let results = self.dataplane.write_blocking(updates);
        results.into_iter().collect::<Result<(), _>>().map_err(|error| codes.refusal(&error))
    }

    /// The table that argument 2 names, and the program.
    fn table(state: &State, call: &Call) -> Result<(Arc<Program>, TableId), Refusal> {
        let name = call.text(2)?;
        let invalid = |text| declared(code::INVALID_TABLE_NAME, text);
        let program = state.program.clone().ok_or_else(|| invalid("no program is loaded".into()))?;
        let table = program.table(name).ok_or_else(|| invalid(format!("there is no table {name:?}")))?;
        Ok((program, table))
    }

    pub fn tables(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mt_get_num_entries" => self.number_of_entries(call),
            "bm_mt_clear_entries" => self.clear_entries(call),
            "bm_mt_add_entry" => self.add_entry(call, 6, Self::called),
            "bm_mt_indirect_add_entry" => self.add_entry(call, 5, Self::member),
            "bm_mt_indirect_ws_add_entry" => self.add_entry(call, 5, Self::group),
            "bm_mt_modify_entry" => self.modify_entry(call, Self::called, None),
            "bm_mt_indirect_modify_entry" => self.modify_entry(call, Self::member, None),
            "bm_mt_indirect_ws_modify_entry" => self.modify_entry(call, Self::group, None),
            "bm_mt_set_entry_ttl" | "bm_mt_indirect_set_entry_ttl" => call.i32(4).and_then(|ms| {
                let timeout = u64::try_from(ms).map_err(|_| declared(code::ERROR, format!("a timeout of {ms} ms")))?;
                self.modify_entry(call, Self::same, Some(timeout * 1_000_000))
            }),
            "bm_mt_delete_entry" | "bm_mt_indirect_delete_entry" => self.delete_entry(call),
            "bm_mt_set_default_action" => self.set_default(call, true),
            "bm_mt_reset_default_entry" | "bm_mt_indirect_reset_default_entry" => self.set_default(call, false),
            "bm_mt_get_entries" => self.entries(call),
            "bm_mt_get_entry" => self.entry(call, false),
            "bm_mt_get_entry_from_key" => self.entry(call, true),
            "bm_mt_get_default_entry" => self.default_entry(call),
            "bm_mt_read_counter" => self.read_entry_counter(call),
            "bm_mt_write_counter" => self.write_entry_counter(call),
            "bm_mt_reset_counters" => self.reset_entry_counters(call),
            "bm_mt_set_meter_rates" => self.set_entry_rates(call),
            "bm_mt_get_meter_rates" => self.entry_rates(call),
            _ => return None,
        })
    }

    fn called(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        if program.tables[table.0].profile.is_some() {
            return Err(declared(code::WRONG_TABLE_TYPE, "the table's entries name members or groups of a profile"));
        }
        let find = |name: &str| program.table_action(table, name);
        keys::action(call, program, find, at, at + 1).map(EntryAction::Call)
    }

    fn member(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        Self::indirect(program, table)?;
        Ok(EntryAction::Member(keys::id(call.i32(at)?)))
    }

    fn group(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        Self::indirect(program, table)?;
        Ok(EntryAction::Group(keys::id(call.i32(at)?)))
    }

    fn indirect(program: &Program, table: TableId) -> Result<(), Refusal> {
        let wrong = || declared(code::WRONG_TABLE_TYPE, "the table's entries name actions, not members or groups");
        program.tables[table.0].profile.map(drop).ok_or_else(wrong)
    }

    fn same(program: &Program, table: TableId, _: &Call, _: i16) -> Result<EntryAction, Refusal> {
        match program.tables[table.0].support_timeout {
            true => Ok(EntryAction::Same),
            false => Err(declared(code::AGEING_DISABLED, "the program gives the table no support of timeouts")),
        }
    }

    fn add_entry(&self, call: &Call, options: i16, action: Action) -> Answered {
        let mut state = self.state();
        let (program, table) = Self::table(&state, call)?;
        let key = keys::key(call, &program, table, 3, options)?;
        let action = action(&program, table, call, 4)?;
        let codes = codes(&action);
        let entry = TableEntry {
            table,
            key: key.clone(),
            action,
            meter: None,
            counter: None,
            idle_timeout_ns: 0,
            cookie: Vec::new(),
        };
        self.write(Update::InsertEntry(entry), codes)?;
        let handle = state.written(&self.dataplane, table, &key, program.tables[table.0].max_size);
        Ok(Some(Value::I32(handle)))
    }

    /// The entry of the handle in argument 3.
    fn found(&self, state: &mut State, call: &Call) -> Result<(Arc<Program>, TableId, i32, EntryView), Refusal> {
        let (program, table) = Self::table(state, call)?;
        let handle = call.i32(3)?;
        let unknown =
            || declared(code::INVALID_HANDLE, format!("table {} has no entry {handle}", call.text(2).unwrap_or("")));
        let key = state.entries(table).key(handle).cloned().ok_or_else(unknown)?;
        let view = self.dataplane.entry(table, &key).map_err(|_| unknown())?;
        Ok((program, table, handle, view))
    }

    fn modify_entry(&self, call: &Call, action: Action, timeout: Option<u64>) -> Answered {
        let mut state = self.state();
        let (program, table, _, view) = self.found(&mut state, call)?;
        let action = action(&program, table, call, 4)?;
        let codes = codes(&action);
        let idle_timeout_ns = timeout.unwrap_or(view.entry.idle_timeout_ns);
        let entry = TableEntry { action, idle_timeout_ns, counter: None, ..view.entry };
        self.write(Update::ModifyEntry(entry), codes).map(|()| None)
    }

    fn delete_entry(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (_, table, handle, view) = self.found(&mut state, call)?;
        self.write(Update::DeleteEntry { table, key: view.entry.key }, ENTRY)?;
        state.entries(table).remove(handle);
        Ok(None)
    }

    fn clear_entries(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (_, table) = Self::table(&state, call)?;
        let views = self.dataplane.entries(table).map_err(|error| ENTRY.refusal(&error))?;
        for views in views.chunks(BATCH) {
            let delete = |view: &EntryView| Update::DeleteEntry { table, key: view.entry.key.clone() };
            self.write_all(views.iter().map(delete).collect(), ENTRY)?;
        }
        *state.entries(table) = Default::default();
        if call.bool(3)? {
            self.write(Update::SetDefault { table, action: None }, DEFAULT)?;
        }
        Ok(None)
    }

    fn set_default(&self, call: &Call, is_given: bool) -> Answered {
        let state = self.state();
        let (program, table) = Self::table(&state, call)?;
        let find = |name: &str| program.table_action(table, name);
        let action = if is_given { Some(keys::action(call, &program, find, 3, 4)?) } else { None };
        self.write(Update::SetDefault { table, action }, DEFAULT).map(|()| None)
    }

    fn number_of_entries(&self, call: &Call) -> Answered {
        let (_, table) = Self::table(&self.state(), call)?;
        let (entries, _) = self.dataplane.snapshot_size(table).map_err(|error| ENTRY.refusal(&error))?;
        Ok(Some(Value::I64(entries as i64)))
    }

    fn entries(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (program, table) = Self::table(&state, call)?;
        let (number, _) = self.dataplane.snapshot_size(table).map_err(|error| ENTRY.refusal(&error))?;
        if number > MAX_ENTRIES {
            let text = format!("{number} entries: {MAX_ENTRIES} go into an answer; read them over P4Runtime, in parts");
            return Err(declared(code::ERROR, text));
        }
        let views = self.dataplane.entries(table).map_err(|error| ENTRY.refusal(&error))?;
        let with_handle = |view: EntryView| (state.entries(table).handle(&view.entry.key), view);
        let mut views: Vec<_> = views.into_iter().map(with_handle).collect();
        views.sort_by_key(|(handle, _)| *handle);
        Ok(Some(Value::structs(views.iter().map(|(handle, view)| written(&program, *handle, view)))))
    }

    fn entry(&self, call: &Call, by_key: bool) -> Answered {
        let mut state = self.state();
        let (program, handle, view) = if by_key {
            let (program, table) = Self::table(&state, call)?;
            let key = keys::key(call, &program, table, 3, 4)?;
            let view = self.dataplane.entry(table, &key).map_err(|error| ENTRY.refusal(&error))?;
            (program, state.entries(table).handle(&key), view)
        } else {
            let (program, _, handle, view) = self.found(&mut state, call)?;
            (program, handle, view)
        };
        Ok(Some(Value::Struct(written(&program, handle, &view))))
    }

    fn default_entry(&self, call: &Call) -> Answered {
        let (program, table) = Self::table(&self.state(), call)?;
        let action = self.dataplane.default_action(table).map_err(|error| ENTRY.refusal(&error))?;
        Ok(Some(keys::written_entry_action(&program, action.map(EntryAction::Call).as_ref())))
    }

    fn read_entry_counter(&self, call: &Call) -> Answered {
        let (table, key) = self.counted(call)?;
        let value = self.dataplane.direct_counter(table, Some(&key)).map_err(|error| ENTRY.refusal(&error))?;
        Ok(Some(written_counter(value)))
    }

    fn write_entry_counter(&self, call: &Call) -> Answered {
        let (table, key) = self.counted(call)?;
        let value = counter_value(call.fields(4)?);
        self.write(Update::SetDirectCounter { table, key: Some(key), value }, ENTRY).map(|()| None)
    }

    /// The entry of a handle in a table that counts.
    fn counted(&self, call: &Call) -> Result<(TableId, EntryKey), Refusal> {
        let (program, table, _, view) = self.found(&mut self.state(), call)?;
        counts(&program, table)?;
        Ok((table, view.entry.key))
    }

    fn reset_entry_counters(&self, call: &Call) -> Answered {
        let (program, table) = Self::table(&self.state(), call)?;
        counts(&program, table)?;
        let views = self.dataplane.entries(table).map_err(|error| ENTRY.refusal(&error))?;
        let keys: Vec<_> = views.into_iter().map(|view| Some(view.entry.key)).chain([None]).collect();
        for keys in keys.chunks(BATCH) {
            let reset = |key: &Option<EntryKey>| Update::SetDirectCounter {
                table,
                key: key.clone(),
                value: CounterValue::default(),
            };
            self.write_all(keys.iter().map(reset).collect(), ENTRY)?;
        }
        Ok(None)
    }

    fn set_entry_rates(&self, call: &Call) -> Answered {
        let (program, table, _, view) = self.found(&mut self.state(), call)?;
        meters(&program, table)?;
        let config = Some(rates(call.list(4)?).map_err(|(_, text)| declared(code::ERROR, text))?);
        self.write(Update::SetDirectMeter { table, key: Some(view.entry.key), config }, ENTRY).map(|()| None)
    }

    fn entry_rates(&self, call: &Call) -> Answered {
        let (program, table, _, view) = self.found(&mut self.state(), call)?;
        meters(&program, table)?;
        Ok(Some(written_rates(view.entry.meter)))
    }
}

/// Reads the action of an entry, whose arguments begin at a place.
type Action = fn(&Program, TableId, &Call, i16) -> Result<EntryAction, Refusal>;

/// Codes of a write of an entry with this action: what is not found may be the member or the group.
fn codes(action: &EntryAction) -> Codes {
    match action {
        EntryAction::Member(_) => MEMBER,
        EntryAction::Group(_) => GROUP,
        _ => ENTRY,
    }
}

fn counts(program: &Program, table: TableId) -> Result<(), Refusal> {
    match program.tables[table.0].has_counter {
        true => Ok(()),
        false => Err(declared(code::COUNTERS_DISABLED, "the table has no direct counter")),
    }
}

fn meters(program: &Program, table: TableId) -> Result<(), Refusal> {
    let disabled = || declared(code::METERS_DISABLED, "the table has no direct meter");
    program.tables[table.0].meter.map(drop).ok_or_else(disabled)
}

/// Returns an entry as `BmMtEntry`.
fn written(program: &Program, handle: i32, view: &EntryView) -> Fields {
    let entry = &view.entry;
    let (key, options) = keys::written_key(program, entry.table, &entry.key);
    let mut fields = vec![
        (1, key),
        (2, options),
        (3, Value::I32(handle)),
        (4, keys::written_entry_action(program, Some(&entry.action))),
    ];
    if program.tables[entry.table.0].support_timeout {
        let ms = |ns: u64| Value::I32(i32::try_from(ns / 1_000_000).unwrap_or(i32::MAX));
        fields.push((5, Value::Struct(vec![(1, ms(entry.idle_timeout_ns)), (2, ms(view.idle_ns))])));
    }
    fields
}
