// SPDX-License-Identifier: Apache-2.0
//! Table keys, entries and defaults.

use std::collections::HashMap;

use super::expr::{hex, number};
use super::json::{self, Document};
use super::phv::{Field, Phv};
use super::{LoadError, Objects, meter_unit, place, place_of, profiles, refuse};
use crate::program::{
    ActionCall, ActionId, EntryKey, FieldInfo, KeyField, KeyInfo, MatchKind, MeterUnit, Program, TableInfo, Value,
};
use crate::state::code::{KeyChunk, KeyPlace, Matching, RangeField, TableAction, TableCode, key_places};
use crate::state::op::Reg;
use crate::value::words;

/// Ternary tables up to this size are searched entry by entry.
const SCAN_SIZE: usize = 64;
/// Exact keys up to this many bits, such as a port and a class, index an array.
const DIRECT_BITS: u32 = 12;

/// Words of a key at most: so many stand on the stack while it is looked up.
const MAX_KEY_WORDS: usize = 1024;
/// Entries of a table at most that are counted at all; far more than there is memory for.
const MAX_ENTRIES: usize = u32::MAX as usize;

/// The parts of a table that do not depend on the control flow.
pub fn compile(
    table: &json::Table,
    doc: &Document,
    phv: &Phv,
    action_ids: &HashMap<u64, ActionId>,
    objects: &Objects,
    program: &mut Program,
) -> Result<(TableInfo, TableCode), LoadError> {
    let where_ = place_of("table", &table.name, &table.source_info);
    if table.max_size > MAX_ENTRIES {
        return refuse(where_, format!("a size of {} entries is not supported", table.max_size));
    }
    let mut actions = Vec::new();
    for id in &table.action_ids {
        match action_ids.get(id) {
            Some(&action) => actions.push(action),
            None => return refuse(where_, format!("unknown action id {id}")),
        }
    }
    let profile = profiles::of_table(table, &mut actions, objects, program)?;
    let words = |action: &ActionId| -> usize { program.actions[action.0].params.iter().map(|p| words(p.width)).sum() };
    // Entries of indirect tables hold a reference.
    let param_words = if profile.is_some() { 0 } else { actions.iter().map(words).max().unwrap_or(0) };
    let mut code = TableCode {
        matching: Matching::None,
        key_words: 0,
        key_bits: 0,
        chunks: Vec::new(),
        ranges: Vec::new(),
        places: Vec::new(),
        actions: Vec::new(),
        param_words,
        max_size: if table.key.is_empty() { 0 } else { table.max_size },
        counter: table.with_counters,
        timeout: table.support_timeout,
        meter: None,
        profile: profile.map(|profile| profile.0),
        no_action: TableAction::default(),
    };
    let mut used = Vec::new();
    let mut key = Vec::new();
    for field in &table.key {
        key.push(key_field(field, phv, &where_, &mut used, &mut code)?);
        let in_ranges: usize = code.ranges.iter().map(|range| range.words.len()).sum();
        if used.len() + in_ranges > MAX_KEY_WORDS {
            return refuse(where_, format!("a key of more than {} bits is not supported", 64 * MAX_KEY_WORDS));
        }
    }
    code.key_words = used.len();
    code.key_bits = used.iter().sum();
    let has = |kind: MatchKind| key.iter().any(|k: &KeyInfo| k.kind == kind);
    code.matching = if key.is_empty() {
        Matching::None
    } else if has(MatchKind::Range) {
        Matching::Scan
    } else if has(MatchKind::Ternary) || has(MatchKind::Optional) {
        if table.max_size <= SCAN_SIZE { Matching::Scan } else { Matching::Masked }
    } else if has(MatchKind::Lpm) {
        Matching::Masked
    } else if used.len() == 1 && used[0] <= DIRECT_BITS {
        Matching::Direct
    } else {
        Matching::Exact
    };
    let mut meter = None;
    if let Some(name) = &table.direct_meters {
        let found = doc.meter_arrays.iter().find(|m| m.name == *name);
        let Some((array, target)) = found.and_then(|m| Some((m, m.result_target.as_ref()?))) else {
            return refuse(where_, format!("direct meter `{name}` has no result target"));
        };
        let Some(field) = phv.field(&target.0, &target.1).filter(|f| f.length.is_none()) else {
            return refuse(where_, format!("direct meter `{name}` writes to an unknown field"));
        };
        let unit = meter_unit(array)?;
        meter = Some(unit);
        code.meter = Some((place(field), unit == MeterUnit::Bytes));
    }
    let info = TableInfo {
        name: table.name.clone(),
        key,
        max_size: code.max_size,
        actions,
        has_counter: table.with_counters,
        meter,
        support_timeout: table.support_timeout,
        const_entries: table.entries.is_some() && !table.writable,
        profile,
        in_egress: doc.pipelines.iter().any(|p| p.name == "egress" && p.tables.iter().any(|t| t.name == table.name)),
        const_default: profile.is_some() || table.default_entry.as_ref().is_some_and(|d| d.action_const),
    };
    Ok((info, code))
}

/// `used`: bits taken of each word of the packed key.
fn key_field(
    key: &json::Key,
    phv: &Phv,
    where_: &str,
    used: &mut Vec<u32>,
    code: &mut TableCode,
) -> Result<KeyInfo, LoadError> {
    let kind = match key.match_type.as_str() {
        "exact" => MatchKind::Exact,
        "lpm" => MatchKind::Lpm,
        "ternary" => MatchKind::Ternary,
        "range" => MatchKind::Range,
        "optional" => MatchKind::Optional,
        other => return refuse(where_, format!("match kind `{other}` is not supported")),
    };
    let field = phv.field_of(&key.target, where_)?;
    let static_mask = match &key.mask {
        Some(mask) => hex(mask, where_)?.magnitude().into(),
        None => Value::ones(field.width.into()),
    };
    let name = match &key.name {
        Some(name) => name.clone(),
        None => format!("{}.{}", key.target[0].as_str().unwrap_or(""), key.target[1].as_str().unwrap_or("")),
    };
    if kind == MatchKind::Range {
        let first = code.ranges.iter().map(|range| range.words.len()).sum();
        code.places.push(KeyPlace::Range(first, words(field.width)));
        let mask = &static_mask & &Value::ones(field.width.into());
        let words = (0..field.words()).rev().map(|word| (field.reg + word, mask.word(word.into()))).collect();
        code.ranges.push(RangeField { words, valid: phv.valid(field.header) });
    } else {
        code.places.push(pack(field, &static_mask, phv.valid(field.header), used, &mut code.chunks));
    }
    Ok(KeyInfo { field: FieldInfo { name, width: field.width }, kind })
}

/// Reads each register of the field into its place in the key.
fn pack(field: Field, mask: &Value, valid: Reg, used: &mut Vec<u32>, chunks: &mut Vec<KeyChunk>) -> KeyPlace {
    let places = key_places(field.width, used);
    chunks.extend((0..).zip(&places).map(|(index, &(word, shift, bits))| {
        let mask = mask.word(index as usize) & (u64::MAX >> (64 - bits));
        KeyChunk { reg: field.reg + index, mask, valid, word, shift }
    }));
    KeyPlace::Packed(places)
}

/// The default action that the program asks for.
pub fn default_action(
    table: &json::Table,
    info: &TableInfo,
    action_ids: &HashMap<u64, ActionId>,
    program: &Program,
) -> Result<Option<ActionCall>, LoadError> {
    let where_ = place_of("table", &table.name, &table.source_info);
    match &table.default_entry {
        None => Ok(None),
        Some(entry) => action_call(entry.action_id, &entry.action_data, info, &where_, action_ids, program).map(Some),
    }
}

fn action_call(
    id: u64,
    data: &[String],
    info: &TableInfo,
    where_: &str,
    action_ids: &HashMap<u64, ActionId>,
    program: &Program,
) -> Result<ActionCall, LoadError> {
    let Some(&action) = action_ids.get(&id) else {
        return refuse(where_, format!("unknown action id {id}"));
    };
    if !info.actions.contains(&action) {
        return refuse(where_, format!("action id {id} is not one of table `{}`", info.name));
    }
    let params = &program.actions[action.0].params;
    if params.len() != data.len() {
        return refuse(where_, format!("action id {id} takes {} parameters, not {}", params.len(), data.len()));
    }
    let value = |(text, param): (&String, &FieldInfo)| number(text, param.width, where_);
    let params = data.iter().zip(params).map(value).collect::<Result<_, LoadError>>()?;
    Ok(ActionCall { action, params })
}

/// The entries that are compiled into the program.
pub fn const_entries(
    table: &json::Table,
    info: &TableInfo,
    action_ids: &HashMap<u64, ActionId>,
    program: &Program,
) -> Result<Vec<(EntryKey, ActionCall)>, LoadError> {
    let entries = table.entries.as_deref().unwrap_or_default();
    // In the JSON the smaller number wins.
    let last = entries.iter().map(|e| e.priority).max().unwrap_or(0);
    let mut result = Vec::new();
    for entry in entries {
        let where_ = place_of("entry of table", &table.name, &entry.source_info);
        if entry.match_key.len() != info.key.len() {
            return refuse(where_, "its key has another number of fields than the table's");
        }
        let fields = entry.match_key.iter().zip(&info.key).map(|(field, key)| entry_field(field, key, &where_));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let priority = match i32::try_from(i128::from(last) - i128::from(entry.priority) + 1) {
            _ if !info.needs_priority() => 0,
            Ok(priority) => priority,
            Err(_) => return refuse(where_, format!("priority {} is too far from {last}", entry.priority)),
        };
        let call = &entry.action_entry;
        let action = action_call(call.action_id, &call.action_data, info, &where_, action_ids, program)?;
        result.push((EntryKey { fields, priority }, action));
    }
    Ok(result)
}

fn entry_field(field: &json::EntryKey, key: &KeyInfo, where_: &str) -> Result<KeyField, LoadError> {
    let width = key.field.width;
    let part = |value: &Option<String>| number(value.as_deref().unwrap_or_default(), width, where_);
    let value = || match &field.key {
        Some(serde_json::Value::String(text)) => number(text, width, where_),
        Some(serde_json::Value::Bool(value)) => Ok((*value).into()),
        _ => refuse(where_, "a key field without a value"),
    };
    Ok(match (key.kind, field.match_type.as_str()) {
        (MatchKind::Exact, "exact") => KeyField::Exact(value()?),
        (MatchKind::Lpm, "lpm") => {
            let prefix_len = field.prefix_length.unwrap_or(width);
            if prefix_len > width {
                return refuse(where_, format!("a prefix of {prefix_len} bits is longer than its field of {width}"));
            }
            // p4c leaves the bits behind the prefix as they stand in the source.
            let value = &value()? & &Value::prefix(prefix_len.into(), width.into());
            KeyField::Lpm { value, prefix_len }
        }
        (MatchKind::Ternary | MatchKind::Optional, "ternary" | "optional") => {
            let mask = part(&field.mask)?;
            let value = &value()? & &mask;
            match key.kind {
                MatchKind::Optional if mask.is_zero() => KeyField::Optional(None),
                MatchKind::Optional => KeyField::Optional(Some(value)),
                _ => KeyField::Ternary { value, mask },
            }
        }
        (MatchKind::Range, "range") => KeyField::Range { low: part(&field.start)?, high: part(&field.end)? },
        (kind, other) => return refuse(where_, format!("a key field of kind `{other}` where {kind} is needed")),
    })
}
