// SPDX-License-Identifier: Apache-2.0
//! Table entries between P4Runtime messages and the control API (P4Runtime 1.4, "TableEntry").

use super::error::{Checked, Refusal, refuse};
use super::proto::p4::config::v1::meter_spec;
use super::proto::p4::v1 as p4;
use super::schema::{Action, Schema, Scope, Table};
use super::value;
use crate::control::{
    ActionCall, CounterValue, EntryKey, EntryView, KeyField, MatchKind, MeterConfig, TableEntry, Value,
};
use bytes::Bytes;

/// The key of `message`; its match fields may come in any order, "don't care" fields are left out.
pub fn key(table: &Table, message: &p4::TableEntry) -> Checked<EntryKey> {
    Ok(EntryKey { fields: match_fields(table, &message.r#match)?, priority: priority(table, message.priority)? })
}

fn priority(table: &Table, priority: i32) -> Checked<i32> {
    match (table.has_priority, priority) {
        (true, 1..) | (false, 0) => Ok(priority),
        (true, _) => refuse!(InvalidArgument, "table {} needs a priority above 0, not {priority}", table.name),
        (false, _) => refuse!(InvalidArgument, "table {} takes no priority", table.name),
    }
}

pub fn match_fields(table: &Table, matches: &[p4::FieldMatch]) -> Checked<Vec<KeyField>> {
    let any = |field: &super::schema::MatchField| match field.kind {
        MatchKind::Exact => KeyField::Exact(0),
        MatchKind::Lpm => KeyField::Lpm { value: 0, prefix_len: 0 },
        MatchKind::Ternary => KeyField::Ternary { value: 0, mask: 0 },
        MatchKind::Range => KeyField::Range { low: 0, high: all_ones(field.width) },
        MatchKind::Optional => KeyField::Optional(None),
    };
    let mut fields: Vec<KeyField> = table.fields.iter().map(any).collect();
    let mut given = 0u64;
    for field_match in matches {
        let Some(i) = table.fields.iter().position(|field| field.id == field_match.field_id) else {
            return refuse!(InvalidArgument, "table {} has no match field {}", table.name, field_match.field_id);
        };
        let field = &table.fields[i];
        if given & 1 << i != 0 {
            return refuse!(InvalidArgument, "{} {} is given twice", table.name, field.name);
        }
        given |= 1 << i;
        fields[i] = match_field(field.kind, field.width, field_match.field_match_type.as_ref())
            .map_err(|e| e.at(format_args!("{} {}", table.name, field.name)))?;
    }
    for (i, field) in table.fields.iter().enumerate() {
        if field.kind == MatchKind::Exact && given & 1 << i == 0 {
            return refuse!(InvalidArgument, "{} {}: an exact field cannot be left out", table.name, field.name);
        }
    }
    Ok(fields)
}

fn match_field(kind: MatchKind, width: u32, given: Option<&p4::field_match::FieldMatchType>) -> Checked<KeyField> {
    use p4::field_match::FieldMatchType as Given;
    let read = |bytes: &[u8]| value::to_u128(bytes, width);
    match (kind, given) {
        (MatchKind::Exact, Some(Given::Exact(exact))) => Ok(KeyField::Exact(read(&exact.value)?)),
        (MatchKind::Optional, Some(Given::Optional(optional))) => Ok(KeyField::Optional(Some(read(&optional.value)?))),
        (MatchKind::Lpm, Some(Given::Lpm(lpm))) => {
            let value = read(&lpm.value)?;
            let prefix_len = match u16::try_from(lpm.prefix_len) {
                Ok(0) => return refuse!(InvalidArgument, "leave the field out instead of a prefix of length 0"),
                Ok(length) if u32::from(length) <= width => length,
                _ => return refuse!(InvalidArgument, "prefix length {} of {width} bits", lpm.prefix_len),
            };
            let host_bits = width - u32::from(prefix_len);
            match value & all_ones(host_bits) {
                0 => Ok(KeyField::Lpm { value, prefix_len }),
                _ => refuse!(InvalidArgument, "bits beyond the prefix are set"),
            }
        }
        (MatchKind::Ternary, Some(Given::Ternary(ternary))) => {
            let (value, mask) = (read(&ternary.value)?, read(&ternary.mask)?);
            match (mask, value & !mask) {
                (0, _) => refuse!(InvalidArgument, "leave the field out instead of a mask of 0"),
                (_, 0) => Ok(KeyField::Ternary { value, mask }),
                _ => refuse!(InvalidArgument, "bits outside the mask are set"),
            }
        }
        (MatchKind::Range, Some(Given::Range(range))) => {
            let (low, high) = (read(&range.low)?, read(&range.high)?);
            match (low, high) {
                _ if low > high => refuse!(InvalidArgument, "the range ends before it starts"),
                (0, _) if high == all_ones(width) => {
                    refuse!(InvalidArgument, "leave the field out instead of the whole range")
                }
                _ => Ok(KeyField::Range { low, high }),
            }
        }
        (_, None) => refuse!(InvalidArgument, "no match is given"),
        _ => refuse!(InvalidArgument, "the field is matched as {kind:?}"),
    }
}

fn all_ones(width: u32) -> Value {
    if width == 0 { 0 } else { Value::MAX >> (Value::BITS - width) }
}

/// Whether an action is asked for as an entry's or as the table's default.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Entry,
    Default,
}

pub fn action(schema: &Schema, table: &Table, place: Place, message: &p4::TableAction) -> Checked<ActionCall> {
    use p4::table_action::Type;
    let call = match &message.r#type {
        Some(Type::Action(call)) => call,
        Some(_) => return refuse!(InvalidArgument, "table {} has no action profile", table.name),
        None => return refuse!(InvalidArgument, "table {}: the action is empty", table.name),
    };
    let Some(choice) = table.actions.iter().find(|choice| choice.id == call.action_id) else {
        return refuse!(InvalidArgument, "table {} has no action {:#x}", table.name, call.action_id);
    };
    let Some(action) = schema.actions.get(&choice.id) else {
        return refuse!(Internal, "action {:#x} is not in the P4Info", choice.id);
    };
    match (choice.scope, place) {
        (Scope::DefaultOnly, Place::Entry) => {
            return refuse!(PermissionDenied, "{} is a default action of table {} only", action.name, table.name);
        }
        (Scope::EntryOnly, Place::Default) => {
            return refuse!(PermissionDenied, "{} cannot be the default action of table {}", action.name, table.name);
        }
        _ => {}
    }
    Ok(ActionCall { action: choice.target, params: params(action, &call.params)? })
}

fn params(action: &Action, given: &[p4::action::Param]) -> Checked<Vec<Value>> {
    let mut values = vec![0; action.params.len()];
    let mut seen = 0u64;
    for param in given {
        let Some(i) = action.params.iter().position(|known| known.id == param.param_id) else {
            return refuse!(InvalidArgument, "action {} has no parameter {}", action.name, param.param_id);
        };
        let known = &action.params[i];
        if seen & 1 << i != 0 {
            return refuse!(InvalidArgument, "{} {} is given twice", action.name, known.name);
        }
        seen |= 1 << i;
        values[i] = value::to_u128(&param.value, known.width)
            .map_err(|bad| Refusal::from(bad).at(format_args!("{} {}", action.name, known.name)))?;
    }
    match action.params.iter().enumerate().find(|(i, _)| seen & 1 << i == 0) {
        None => Ok(values),
        Some((_, missing)) => refuse!(InvalidArgument, "{} {} is missing", action.name, missing.name),
    }
}

/// A meter configuration as written. `eburst` belongs to single-rate three-colour meters, which run here as two-rate
/// meters and so cannot have one.
pub fn meter_config(kind: meter_spec::Type, config: &p4::MeterConfig) -> Checked<MeterConfig> {
    let p4::MeterConfig { cir, cburst, pir, pburst, eburst } = *config;
    let [Ok(cir), Ok(cburst), Ok(pir), Ok(pburst), Ok(eburst)] = [cir, cburst, pir, pburst, eburst].map(u64::try_from)
    else {
        return refuse!(InvalidArgument, "a meter's rates and bursts cannot be negative");
    };
    match kind {
        _ if eburst != 0 && kind == meter_spec::Type::SingleRateThreeColor => {
            refuse!(Unimplemented, "an excess burst is not supported")
        }
        _ if eburst != 0 => refuse!(InvalidArgument, "this meter takes no excess burst"),
        meter_spec::Type::TwoRateThreeColor if pir < cir => {
            refuse!(InvalidArgument, "the peak rate is below the committed rate")
        }
        meter_spec::Type::TwoRateThreeColor => Ok(MeterConfig { cir, cburst, pir, pburst }),
        _ if (pir, pburst) != (cir, cburst) => {
            refuse!(InvalidArgument, "a single-rate meter's peak rate and burst equal the committed ones")
        }
        _ => Ok(MeterConfig { cir, cburst, pir, pburst }),
    }
}

pub fn counter_value(data: &p4::CounterData) -> Checked<CounterValue> {
    match (u64::try_from(data.packet_count), u64::try_from(data.byte_count)) {
        (Ok(packets), Ok(bytes)) => Ok(CounterValue { packets, bytes }),
        _ => refuse!(InvalidArgument, "a counter cannot be negative"),
    }
}

/// What the controller keeps with an entry, as the control API carries it.
pub fn cookie(controller_metadata: u64, metadata: &[u8]) -> Vec<u8> {
    match (controller_metadata, metadata) {
        (0, []) => Vec::new(),
        _ => [&controller_metadata.to_be_bytes(), metadata].concat(),
    }
}

pub fn split_cookie(cookie: &[u8]) -> (u64, Bytes) {
    match cookie.split_first_chunk() {
        Some((number, metadata)) => (u64::from_be_bytes(*number), Bytes::copy_from_slice(metadata)),
        None => (0, Bytes::new()),
    }
}

/// A whole entry, for INSERT (`action` is that of the message) and MODIFY.
pub fn entry(table: &Table, key: EntryKey, action: ActionCall, message: &p4::TableEntry) -> Checked<TableEntry> {
    let meter = match (&message.meter_config, table.meter) {
        (Some(config), Some(kind)) => Some(meter_config(kind, config).map_err(|e| e.at(&table.name))?),
        (Some(_), None) => return refuse!(InvalidArgument, "table {} has no direct meter", table.name),
        (None, _) => None,
    };
    let counter = match &message.counter_data {
        Some(data) if table.has_counter => Some(counter_value(data)?),
        Some(_) => return refuse!(InvalidArgument, "table {} has no direct counter", table.name),
        None => None,
    };
    check_idle_timeout(table, message)?;
    #[allow(deprecated)]
    let cookie = cookie(message.controller_metadata, &message.metadata);
    Ok(TableEntry {
        table: table.target,
        key,
        action,
        meter,
        counter,
        idle_timeout_ns: message.idle_timeout_ns as u64,
        cookie,
    })
}

fn check_idle_timeout(table: &Table, message: &p4::TableEntry) -> Checked<()> {
    if message.time_since_last_hit.is_some() {
        return refuse!(InvalidArgument, "time_since_last_hit cannot be written");
    }
    match message.idle_timeout_ns {
        0 => Ok(()),
        1.. if table.has_idle_timeout => Ok(()),
        1.. => refuse!(InvalidArgument, "table {} has no idle timeout", table.name),
        _ => refuse!(InvalidArgument, "the idle timeout is negative"),
    }
}

/// Which parts of a read entry were asked for.
pub struct Wanted {
    pub counter: bool,
    pub meter: bool,
    pub time_since_last_hit: bool,
}

/// The message for an entry as it is now; `None` when its action is not in the P4Info.
pub fn to_message(schema: &Schema, table: &Table, view: &EntryView, wanted: &Wanted) -> Option<p4::TableEntry> {
    let mut message = key_message(table, &view.entry);
    message.action = Some(action_message(schema, table, &view.entry.action)?);
    message.is_const = view.is_const;
    if wanted.counter {
        message.counter_data = view.entry.counter.map(counter_message);
    }
    if wanted.meter {
        message.meter_config = view.entry.meter.map(meter_message);
    }
    if wanted.time_since_last_hit {
        message.time_since_last_hit = Some(p4::table_entry::IdleTimeout { elapsed_ns: signed(view.idle_ns) });
    }
    Some(message)
}

/// The part of an entry that names it: key, metadata and idle timeout.
#[allow(deprecated)]
pub fn key_message(table: &Table, entry: &TableEntry) -> p4::TableEntry {
    let (controller_metadata, metadata) = split_cookie(&entry.cookie);
    p4::TableEntry {
        table_id: table.id,
        r#match: match_messages(table, &entry.key),
        priority: entry.key.priority,
        controller_metadata,
        metadata,
        idle_timeout_ns: signed(entry.idle_timeout_ns),
        ..Default::default()
    }
}

fn match_messages(table: &Table, key: &EntryKey) -> Vec<p4::FieldMatch> {
    use p4::field_match::{self as m, FieldMatchType};
    let message = |(field, part): (&super::schema::MatchField, &KeyField)| {
        let bytes = value::from_u128;
        let given = match *part {
            KeyField::Exact(v) => FieldMatchType::Exact(m::Exact { value: bytes(v) }),
            KeyField::Lpm { prefix_len: 0, .. } | KeyField::Ternary { mask: 0, .. } | KeyField::Optional(None) => {
                return None;
            }
            KeyField::Range { low: 0, high } if high == all_ones(field.width) => return None,
            KeyField::Lpm { value, prefix_len } => {
                FieldMatchType::Lpm(m::Lpm { value: bytes(value), prefix_len: prefix_len.into() })
            }
            KeyField::Ternary { value, mask } => {
                FieldMatchType::Ternary(m::Ternary { value: bytes(value), mask: bytes(mask) })
            }
            KeyField::Range { low, high } => FieldMatchType::Range(m::Range { low: bytes(low), high: bytes(high) }),
            KeyField::Optional(Some(v)) => FieldMatchType::Optional(m::Optional { value: bytes(v) }),
        };
        Some(p4::FieldMatch { field_id: field.id, field_match_type: Some(given) })
    };
    table.fields.iter().zip(&key.fields).filter_map(message).collect()
}

pub fn action_message(schema: &Schema, table: &Table, call: &ActionCall) -> Option<p4::TableAction> {
    let choice = table.actions.iter().find(|choice| choice.target == call.action)?;
    let action = schema.actions.get(&choice.id)?;
    let params = action
        .params
        .iter()
        .zip(&call.params)
        .map(|(param, &v)| p4::action::Param { param_id: param.id, value: value::from_u128(v) })
        .collect();
    let action = p4::Action { action_id: choice.id, params };
    Some(p4::TableAction { r#type: Some(p4::table_action::Type::Action(action)) })
}

pub fn counter_message(value: CounterValue) -> p4::CounterData {
    p4::CounterData { byte_count: signed(value.bytes), packet_count: signed(value.packets) }
}

pub fn meter_message(config: MeterConfig) -> p4::MeterConfig {
    p4::MeterConfig {
        cir: signed(config.cir),
        cburst: signed(config.cburst),
        pir: signed(config.pir),
        pburst: signed(config.pburst),
        eburst: 0,
    }
}

/// P4Runtime's numbers are signed; a counter that outgrows them stays at the largest.
fn signed(value: u64) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
