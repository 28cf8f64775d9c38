// SPDX-License-Identifier: Apache-2.0
//! Keys, actions and their parameters, from and to the structs of BMv2's `standard.thrift`.

use apswitch_dataplane::control::{
    ActionCall, ActionId, EntryAction, EntryKey, KeyField, MatchKind, Program, TableId, Value,
};
use thrift::protocol::TType;

use crate::call::{Call, Refusal, bytes_field, declared, field, i32_field};
use crate::code;
use crate::message::{Fields, Value as Wire};

/// BMv2's priorities are taken from this, as its own server of P4Runtime does: the smaller one wins there.
const MAX_PRIORITY: i32 = i32::MAX;
const NO_PRIORITY: i32 = -1;

/// `BmMatchParamType`.
const EXACT: i32 = 0;
const LPM: i32 = 1;
const TERNARY: i32 = 2;
const VALID: i32 = 3;
const RANGE: i32 = 4;

/// `BmActionEntryType`.
const NONE: i32 = 0;
const ACTION_DATA: i32 = 1;
const MEMBER: i32 = 2;
const GROUP: i32 = 3;

/// Returns the key of the arguments `key` and `options`.
pub fn key(call: &Call, program: &Program, table: TableId, key: i16, options: i16) -> Result<EntryKey, Refusal> {
    let info = &program.tables[table.0];
    let given = call.list(key)?;
    if info.key.is_empty() {
        return Err(declared(code::NO_TABLE_KEY, format!("table {} has no key, so that it has no entries", info.name)));
    }
    if given.len() != info.key.len() {
        let text = format!("table {} has {} key fields, not {}", info.name, info.key.len(), given.len());
        return Err(declared(code::BAD_MATCH_KEY, text));
    }
    let fields = info.key.iter().zip(given).map(|(own, given)| {
        let bad = |why: &str| declared(code::BAD_MATCH_KEY, format!("table {}, {}: {why}", info.name, own.field.name));
        let Wire::Struct(given) = given else { return Err(bad("no match parameter")) };
        key_field(own.kind, own.field.width, given).map_err(bad)
    });
    let fields = fields.collect::<Result<_, _>>()?;
    let priority = match i32_field(call.fields(options)?, 1) {
        _ if !info.needs_priority() => 0,
        Some(given) if (0..MAX_PRIORITY).contains(&given) => MAX_PRIORITY - given,
        given => {
            let given = given.map_or("none".into(), |given| given.to_string());
            let text = format!("table {} needs a priority from 0 to {}, not {given}", info.name, MAX_PRIORITY - 1);
            return Err(declared(code::ERROR, text));
        }
    };
    Ok(EntryKey { fields, priority })
}

fn key_field(kind: MatchKind, width: u16, given: &Fields) -> Result<KeyField, &'static str> {
    let part = |id: i16| match field(given, id) {
        Some(Wire::Struct(fields)) => Ok(fields),
        _ => Err("the parameter has not the value that its type says"),
    };
    let number = |fields: &Fields, id| {
        let number = bytes_field(fields, id).map(Value::from_bytes).ok_or("a number is missing")?;
        if number.bits() <= width.into() { Ok(number) } else { Err("the number has more bits than the field") }
    };
    let all = Value::ones(width.into());
    Ok(match (kind, i32_field(given, 1)) {
        (MatchKind::Exact, Some(EXACT)) => KeyField::Exact(number(part(2)?, 1)?),
        (MatchKind::Exact, Some(VALID)) => match field(part(5)?, 1) {
            Some(Wire::Bool(is_valid)) => KeyField::Exact((*is_valid).into()),
            _ => return Err("whether the header is valid is missing"),
        },
        (MatchKind::Lpm, Some(LPM)) => {
            let fields = part(3)?;
            let length = i32_field(fields, 2).and_then(|length| u16::try_from(length).ok());
            let prefix_len = length.filter(|length| *length <= width).ok_or("the prefix is longer than the field")?;
            let value = &number(fields, 1)? & &Value::prefix(prefix_len.into(), width.into());
            KeyField::Lpm { value, prefix_len }
        }
        (MatchKind::Ternary, Some(TERNARY)) => {
            let mask = number(part(4)?, 2)?;
            KeyField::Ternary { value: &number(part(4)?, 1)? & &mask, mask }
        }
        (MatchKind::Optional, Some(TERNARY)) => match number(part(4)?, 2)? {
            mask if mask.is_zero() => KeyField::Optional(None),
            mask if mask == all => KeyField::Optional(Some(number(part(4)?, 1)?)),
            _ => return Err("an optional field has a mask of all bits or of none"),
        },
        (MatchKind::Range, Some(RANGE)) => KeyField::Range { low: number(part(6)?, 1)?, high: number(part(6)?, 2)? },
        _ => return Err("the parameter is of another kind than the field"),
    })
}

/// Bytes of a number of this width.
pub fn bytes(value: &Value, width: u16) -> Wire {
    Wire::Bytes(value.to_bytes(usize::from(width).div_ceil(8)))
}

/// Returns a key as `BmMatchParams`, and the priority as `BmAddEntryOptions`.
pub fn written_key(program: &Program, table: TableId, key: &EntryKey) -> (Wire, Wire) {
    let info = &program.tables[table.0];
    let params = info.key.iter().zip(&key.fields).map(|(own, field)| {
        let number = |value: &Value| bytes(value, own.field.width);
        let param = |kind, id, fields| vec![(1, Wire::I32(kind)), (id, Wire::Struct(fields))];
        let ternary = |value: &Value, mask: &Value| param(TERNARY, 4, vec![(1, number(value)), (2, number(mask))]);
        match field {
            KeyField::Exact(value) => param(EXACT, 2, vec![(1, number(value))]),
            KeyField::Lpm { value, prefix_len } => {
                param(LPM, 3, vec![(1, number(value)), (2, Wire::I32((*prefix_len).into()))])
            }
            KeyField::Ternary { value, mask } => ternary(value, mask),
            KeyField::Optional(Some(value)) => ternary(value, &Value::ones(own.field.width.into())),
            KeyField::Optional(None) => ternary(&Value::ZERO, &Value::ZERO),
            KeyField::Range { low, high } => param(RANGE, 6, vec![(1, number(low)), (2, number(high))]),
        }
    });
    let params = Wire::structs(params);
    // Clients compare it with 0 in any case.
    let priority = if info.needs_priority() { MAX_PRIORITY - key.priority } else { NO_PRIORITY };
    (params, Wire::Struct(vec![(1, Wire::I32(priority))]))
}

/// Returns the call of an action by the arguments `name` and `data`; `find` is that of the table or profile.
pub fn action(
    call: &Call,
    program: &Program,
    find: impl Fn(&str) -> Option<ActionId>,
    name: i16,
    data: i16,
) -> Result<ActionCall, Refusal> {
    let name = call.text(name)?;
    let action =
        find(name).ok_or_else(|| declared(code::INVALID_ACTION_NAME, format!("there is no action {name:?}")))?;
    let (own, given) = (&program.actions[action.0].params, call.list(data)?);
    let bad = |text: String| declared(code::BAD_ACTION_DATA, text);
    if given.len() != own.len() {
        return Err(bad(format!("action {name} has {} parameters, not {}", own.len(), given.len())));
    }
    let params = own.iter().zip(given).map(|(own, given)| match given {
        Wire::Bytes(bytes) => match Value::from_bytes(bytes) {
            value if value.bits() <= own.width.into() => Ok(value),
            _ => Err(bad(format!("action {name}, {}: more than {} bits", own.name, own.width))),
        },
        _ => Err(bad(format!("action {name}, {}: not a binary", own.name))),
    });
    Ok(ActionCall { action, params: params.collect::<Result<_, _>>()? })
}

/// Returns an action's name and its parameters, without their leading zeros, as BMv2 does.
pub fn written_action(program: &Program, call: &ActionCall) -> (Wire, Wire) {
    let info = &program.actions[call.action.0];
    let params = call.params.iter().map(|value| Wire::Bytes(value.to_bytes(value.bits().div_ceil(8).max(1) as usize)));
    (info.name.as_str().into(), Wire::List(TType::String, params.collect()))
}

/// Returns what an entry or a default entry does as `BmActionEntry`.
pub fn written_entry_action(program: &Program, action: Option<&EntryAction>) -> Wire {
    Wire::Struct(match action {
        Some(EntryAction::Call(call)) => {
            let (name, data) = written_action(program, call);
            vec![(1, Wire::I32(ACTION_DATA)), (2, name), (3, data)]
        }
        Some(EntryAction::Member(member)) => vec![(1, Wire::I32(MEMBER)), (4, Wire::I32(handle(*member)))],
        Some(EntryAction::Group(group)) => vec![(1, Wire::I32(GROUP)), (5, Wire::I32(handle(*group)))],
        // A group of the entry's own has no handle.
        Some(EntryAction::OneShot(_) | EntryAction::Same) | None => vec![(1, Wire::I32(NONE))],
    })
}

/// Returns the handle of a member or group: BMv2's begin at 0, P4Runtime's ids at 1.
pub fn handle(id: u32) -> i32 {
    id.wrapping_sub(1) as i32
}

/// Returns the id of a member or group by its handle.
pub fn id(handle: i32) -> u32 {
    (handle as u32).wrapping_add(1)
}
