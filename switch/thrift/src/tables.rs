// SPDX-License-Identifier: Apache-2.0
//! Methods about tables: entries, default entries, their counters, meters and timeouts.

use std::sync::Arc;

use apswitch_dataplane::control::{
    CounterValue, EntryAction, EntryKey, EntryView, Program, TableEntry, TableId, Update,
};

use crate::Handler;
use crate::arrays::{counter_value, rates, written_counter, written_rates};
use crate::call::{Answered, Call, Codes, Refusal, declared};
use crate::code;
use crate::keys;
use crate::message::{Fields, Value};

/// Entries in one answer.
pub const MAX_ENTRIES: usize = 1 << 16;

const ENTRY: Codes = Codes {
    exists: code::DUPLICATE_ENTRY,
    not_found: code::INVALID_HANDLE,
    full: code::TABLE_FULL,
    denied: code::IMMUTABLE_TABLE_ENTRIES,
    ..Codes::all(code::ERROR)
};
const DEFAULT: Codes = Codes { denied: code::DEFAULT_ENTRY_IS_CONST, ..ENTRY };
const BY_KEY: Codes = Codes { not_found: code::BAD_MATCH_KEY, ..ENTRY };
const MEMBER: Codes = Codes { not_found: code::INVALID_MBR_HANDLE, ..ENTRY };
const GROUP: Codes = Codes { not_found: code::INVALID_GRP_HANDLE, ..ENTRY };

/// Reads the action of an entry, whose arguments begin at a place.
type Action = fn(&Program, TableId, &Call, i16) -> Result<EntryAction, Refusal>;

impl Handler<'_> {
    /// The table that argument 2 names, and the program.
    fn table(&self, call: &Call) -> Result<(Arc<Program>, TableId), Refusal> {
        let (name, program) = (call.text(2)?, self.program()?);
        let unknown = || declared(code::INVALID_TABLE_NAME, format!("there is no table {name:.80?}"));
        let table = program.table(name).ok_or_else(unknown)?;
        Ok((program, table))
    }

    pub fn tables(&mut self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mt_get_num_entries" => self.number_of_entries(call).map(|(_, number)| Some(Value::I64(number as i64))),
            "bm_mt_clear_entries" => self.clear_entries(call),
            "bm_mt_add_entry" => self.add_entry(call, 6, Self::to_action),
            "bm_mt_indirect_add_entry" => self.add_entry(call, 5, Self::to_member),
            "bm_mt_indirect_ws_add_entry" => self.add_entry(call, 5, Self::to_group),
            "bm_mt_modify_entry" => self.modify_entry(call, Self::to_action, None),
            "bm_mt_indirect_modify_entry" => self.modify_entry(call, Self::to_member, None),
            "bm_mt_indirect_ws_modify_entry" => self.modify_entry(call, Self::to_group, None),
            "bm_mt_set_entry_ttl" | "bm_mt_indirect_set_entry_ttl" => call.i32(4).and_then(|ms| {
                let timeout = u64::try_from(ms).map_err(|_| declared(code::ERROR, format!("a timeout of {ms} ms")))?;
                self.modify_entry(call, Self::to_same, Some(timeout * 1_000_000))
            }),
            "bm_mt_delete_entry" | "bm_mt_indirect_delete_entry" => self.delete_entry(call),
            "bm_mt_set_default_action" => self.set_default(call),
            "bm_mt_reset_default_entry" | "bm_mt_indirect_reset_default_entry" => {
                self.table(call).and_then(|(_, table)| self.reset_default(table)).map(|()| None)
            }
            "bm_mt_indirect_set_default_member" | "bm_mt_indirect_ws_set_default_group" => {
                Err(declared(code::ERROR, "the default entry of a table with a profile is NoAction, constant"))
            }
            "bm_mt_get_entries" => self.entries(call),
            "bm_mt_get_entry" => self.entry(call),
            "bm_mt_get_entry_from_key" => self.entry_of_key(call),
            "bm_mt_get_default_entry" => {
                self.table(call).and_then(|(program, table)| self.default_action(&program, table)).map(Some)
            }
            "bm_mt_read_counter" => self.read_entry_counter(call),
            "bm_mt_write_counter" => self.write_entry_counter(call),
            "bm_mt_reset_counters" => self.reset_entry_counters(call),
            "bm_mt_set_meter_rates" => self.set_entry_rates(call),
            "bm_mt_get_meter_rates" => self.entry_rates(call),
            _ => return None,
        })
    }

    fn to_action(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        if program.tables[table.0].profile.is_some() {
            return Err(declared(code::WRONG_TABLE_TYPE, "the table's entries name members or groups of a profile"));
        }
        let find = |name: &str| program.table_action(table, name);
        keys::action(call, program, find, at, at + 1).map(EntryAction::Call)
    }

    fn to_member(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        Self::indirect(program, table)?;
        Ok(EntryAction::Member(keys::id(call.i32(at)?)))
    }

    fn to_group(program: &Program, table: TableId, call: &Call, at: i16) -> Result<EntryAction, Refusal> {
        Self::indirect(program, table)?;
        Ok(EntryAction::Group(keys::id(call.i32(at)?)))
    }

    fn indirect(program: &Program, table: TableId) -> Result<(), Refusal> {
        let wrong = || declared(code::WRONG_TABLE_TYPE, "the table's entries name actions, not members or groups");
        program.tables[table.0].profile.map(drop).ok_or_else(wrong)
    }

    fn to_same(program: &Program, table: TableId, _: &Call, _: i16) -> Result<EntryAction, Refusal> {
        match program.tables[table.0].support_timeout {
            true => Ok(EntryAction::Same),
            false => Err(declared(code::AGEING_DISABLED, "the program gives the table no support of timeouts")),
        }
    }

    fn add_entry(&mut self, call: &Call, options: i16, action: Action) -> Answered {
        let (program, table) = self.table(call)?;
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
        if self.state.entries(table).len() > program.tables[table.0].max_size {
            self.views(table)?;
        }
        Ok(Some(Value::I32(self.state.entries(table).handle(&key))))
    }

    /// Entries of a table with their handles, in the order of these; handles of other entries are forgotten.
    fn views(&mut self, table: TableId) -> Result<Vec<(i32, EntryView)>, Refusal> {
        let snapshot = ENTRY.check(self.dataplane.snapshot(table))?;
        let entries = self.state.entries(table);
        let mut views: Vec<_> = snapshot.map(|view| (entries.handle(&view.entry.key), view)).collect();
        entries.keep(&views.iter().map(|(handle, _)| *handle).collect());
        views.sort_by_key(|(handle, _)| *handle);
        Ok(views)
    }

    /// The entry of the table that the handle in argument 3 names.
    fn found(&mut self, call: &Call, program: &Program, table: TableId) -> Result<EntryView, Refusal> {
        let handle = call.i32(3)?;
        let unknown =
            || declared(code::INVALID_HANDLE, format!("table {} has no entry {handle}", program.tables[table.0].name));
        let key = self.state.entries(table).key(handle).cloned().ok_or_else(unknown)?;
        self.dataplane.entry(table, &key).map_err(|_| unknown())
    }

    fn modify_entry(&mut self, call: &Call, action: Action, timeout: Option<u64>) -> Answered {
        let (program, table) = self.table(call)?;
        let action = action(&program, table, call, 4)?;
        let view = self.found(call, &program, table)?;
        let codes = codes(&action);
        let idle_timeout_ns = timeout.unwrap_or(view.entry.idle_timeout_ns);
        let entry = TableEntry { action, idle_timeout_ns, counter: None, ..view.entry };
        self.write(Update::ModifyEntry(entry), codes).map(|()| None)
    }

    fn delete_entry(&mut self, call: &Call) -> Answered {
        let (program, table) = self.table(call)?;
        let view = self.found(call, &program, table)?;
        self.write(Update::DeleteEntry { table, key: view.entry.key }, ENTRY)?;
        self.state.entries(table).remove(call.i32(3)?);
        Ok(None)
    }

    fn clear_entries(&mut self, call: &Call) -> Answered {
        let (_, table) = self.table(call)?;
        let snapshot = ENTRY.check(self.dataplane.snapshot(table))?;
        self.write_each(snapshot.map(|view| Update::DeleteEntry { table, key: view.entry.key }), ENTRY)?;
        self.state.entries(table).keep(&Default::default());
        if call.bool(3)? {
            self.reset_default(table)?;
        }
        Ok(None)
    }

    fn set_default(&mut self, call: &Call) -> Answered {
        let (program, table) = self.table(call)?;
        let find = |name: &str| program.table_action(table, name);
        let action = Some(keys::action(call, &program, find, 3, 4)?);
        self.write(Update::SetDefault { table, action }, DEFAULT).map(|()| None)
    }

    /// A constant one has not changed.
    fn reset_default(&self, table: TableId) -> Result<(), Refusal> {
        match self.write(Update::SetDefault { table, action: None }, DEFAULT) {
            Err(Refusal { code: Some(code::DEFAULT_ENTRY_IS_CONST), .. }) => Ok(()),
            other => other,
        }
    }

    fn number_of_entries(&self, call: &Call) -> Result<(TableId, usize), Refusal> {
        let (_, table) = self.table(call)?;
        let (number, _) = ENTRY.check(self.dataplane.snapshot_size(table))?;
        Ok((table, number))
    }

    fn entries(&mut self, call: &Call) -> Answered {
        let (table, number) = self.number_of_entries(call)?;
        if number > MAX_ENTRIES {
            let text = format!("{number} entries: {MAX_ENTRIES} go into an answer; read them over P4Runtime, in parts");
            return Err(declared(code::ERROR, text));
        }
        let (program, views) = (self.program()?, self.views(table)?);
        Ok(Some(Value::structs(views.iter().map(|(handle, view)| written(&program, *handle, view)))))
    }

    fn entry(&mut self, call: &Call) -> Answered {
        let (program, table) = self.table(call)?;
        let view = self.found(call, &program, table)?;
        Ok(Some(Value::Struct(written(&program, call.i32(3)?, &view))))
    }

    /// An empty key means the default entry.
    fn entry_of_key(&mut self, call: &Call) -> Answered {
        let (program, table) = self.table(call)?;
        if call.list(3)?.is_empty() {
            let none = Value::Struct(vec![(1, Value::I32(-1))]);
            let action = self.default_action(&program, table)?;
            return Ok(Some(Value::Struct(vec![(1, Value::structs([])), (2, none), (3, Value::I32(-1)), (4, action)])));
        }
        let key = keys::key(call, &program, table, 3, 4)?;
        let view = BY_KEY.check(self.dataplane.entry(table, &key))?;
        let handle = self.state.entries(table).handle(&key);
        Ok(Some(Value::Struct(written(&program, handle, &view))))
    }

    /// The default entry; a table with a profile has none by a member or group.
    fn default_action(&self, program: &Program, table: TableId) -> Result<Value, Refusal> {
        let action = ENTRY.check(self.dataplane.default_action(table))?;
        let action = action.filter(|_| program.tables[table.0].profile.is_none());
        Ok(keys::written_entry_action(program, action.map(EntryAction::Call).as_ref()))
    }

    /// The entry of a handle in a table that counts.
    fn counted(&mut self, call: &Call) -> Result<(TableId, EntryKey), Refusal> {
        let (program, table) = self.table(call)?;
        counts(&program, table)?;
        let view = self.found(call, &program, table)?;
        Ok((table, view.entry.key))
    }

    fn read_entry_counter(&mut self, call: &Call) -> Answered {
        let (table, key) = self.counted(call)?;
        let value = ENTRY.check(self.dataplane.direct_counter(table, Some(&key)))?;
        Ok(Some(written_counter(value)))
    }

    fn write_entry_counter(&mut self, call: &Call) -> Answered {
        let (table, key) = self.counted(call)?;
        let value = counter_value(call.fields(4)?);
        self.write(Update::SetDirectCounter { table, key: Some(key), value }, ENTRY).map(|()| None)
    }

    fn reset_entry_counters(&mut self, call: &Call) -> Answered {
        let (program, table) = self.table(call)?;
        counts(&program, table)?;
        let snapshot = ENTRY.check(self.dataplane.snapshot(table))?;
        let keys = snapshot.map(|view| Some(view.entry.key)).chain([None]);
        let value = CounterValue::default();
        self.write_each(keys.map(|key| Update::SetDirectCounter { table, key, value }), ENTRY).map(|()| None)
    }

    /// The entry of a handle in a table with meters.
    fn metered(&mut self, call: &Call) -> Result<(TableId, EntryView), Refusal> {
        let (program, table) = self.table(call)?;
        let disabled = || declared(code::METERS_DISABLED, "the table has no direct meter");
        program.tables[table.0].meter.ok_or_else(disabled)?;
        let view = self.found(call, &program, table)?;
        Ok((table, view))
    }

    fn set_entry_rates(&mut self, call: &Call) -> Answered {
        let (table, view) = self.metered(call)?;
        let config = Some(rates(call.list(4)?).map_err(|(_, text)| declared(code::ERROR, text))?);
        self.write(Update::SetDirectMeter { table, key: Some(view.entry.key), config }, ENTRY).map(|()| None)
    }

    fn entry_rates(&mut self, call: &Call) -> Answered {
        let (_, view) = self.metered(call)?;
        Ok(Some(written_rates(view.entry.meter)))
    }
}

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
    if entry.idle_timeout_ns > 0 {
        let ms = |ns: u64| Value::I32(i32::try_from(ns / 1_000_000).unwrap_or(i32::MAX));
        fields.push((5, Value::Struct(vec![(1, ms(entry.idle_timeout_ns)), (2, ms(view.idle_ns))])));
    }
    fields
}
