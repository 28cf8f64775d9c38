// SPDX-License-Identifier: Apache-2.0
//! Table entries between P4Runtime messages and the control API (P4Runtime 1.4, "TableEntry").

use super::error::{Checked, Refusal, refuse};
use super::profile;
use super::proto::p4::config::v1::meter_spec;
use super::proto::p4::v1 as p4;
use super::schema::{Action, MatchField, Schema, Scope, Table, TableAction};
use super::value;
use crate::control::{
    ActionCall, CounterValue, EntryAction, EntryKey, EntryView, KeyField, MatchKind, MeterConfig, TableEntry, Value,
};
use bytes::Bytes;

/// The key of `message`; its match fields may come in any order, "don't care" fields are left out.
pub fn key(table: &Table, message: &p4::TableEntry) -> Checked<EntryKey> {
    let fields = match_fields(&table.name, &table.fields, &message.r#match)?;
    Ok(EntryKey { fields, priority: priority(table, message.priority)? })
}

fn priority(table: &Table, priority: i32) -> Checked<i32> {
    match (table.has_priority, priority) {
        (true, 1..) | (false, 0) => Ok(priority),
        (true, _) => refuse!(InvalidArgument, "table {} needs a priority above 0, not {priority}", table.name),
        (false, _) => refuse!(InvalidArgument, "table {} takes no priority", table.name),
    }
}

/// `of`: the table or value set whose `known` fields these are.
pub fn match_fields(of: &str, known: &[MatchField], matches: &[p4::FieldMatch]) -> Checked<Vec<KeyField>> {
    let any = |field: &MatchField| match field.stored {
        MatchKind::Exact => KeyField::Exact(Value::ZERO),
        MatchKind::Lpm => KeyField::Lpm { value: Value::ZERO, prefix_len: 0 },
        MatchKind::Ternary => KeyField::Ternary { value: Value::ZERO, mask: Value::ZERO },
        MatchKind::Range => KeyField::Range { low: Value::ZERO, high: Value::ones(field.width) },
        MatchKind::Optional => KeyField::Optional(None),
    };
    let mut fields: Vec<KeyField> = known.iter().map(any).collect();
    let mut given = 0u64;
    for field_match in matches {
        let Some(i) = known.iter().position(|field| field.id == field_match.field_id) else {
            return refuse!(InvalidArgument, "{of} has no match field {}", field_match.field_id);
        };
        let field = &known[i];
        if given & 1 << i != 0 {
            return refuse!(InvalidArgument, "{of} {} is given twice", field.name);
        }
        given |= 1 << i;
        fields[i] = match_field(field, field_match.field_match_type.as_ref())
            .map_err(|e| e.at(format_args!("{of} {}", field.name)))?;
    }
    for (i, field) in known.iter().enumerate() {
        if field.kind == MatchKind::Exact && given & 1 << i == 0 {
            return refuse!(InvalidArgument, "{of} {}: an exact field cannot be left out", field.name);
        }
    }
    Ok(fields)
}

fn match_field(field: &MatchField, given: Option<&p4::field_match::FieldMatchType>) -> Checked<KeyField> {
    use p4::field_match::FieldMatchType as Given;
    let MatchField { kind, width, .. } = *field;
    let read = |bytes: &[u8]| value::to_value(bytes, width);
    match (kind, given) {
        (MatchKind::Exact, Some(Given::Exact(exact))) => Ok(KeyField::Exact(read(&exact.value)?)),
        (MatchKind::Optional, Some(Given::Optional(optional))) => {
            let value = read(&optional.value)?;
            Ok(match field.stored {
                MatchKind::Ternary => KeyField::Ternary { value, mask: Value::ones(width) },
                _ => KeyField::Optional(Some(value)),
            })
        }
        (MatchKind::Lpm, Some(Given::Lpm(lpm))) => {
            let value = read(&lpm.value)?;
            let prefix_len = match u16::try_from(lpm.prefix_len) {
                Ok(0) => return refuse!(InvalidArgument, "leave the field out instead of a prefix of length 0"),
                Ok(length) if u32::from(length) <= width => length,
                _ => return refuse!(InvalidArgument, "prefix length {} of {width} bits", lpm.prefix_len),
            };
            match value.is_within(&Value::prefix(prefix_len.into(), width)) {
                true => Ok(KeyField::Lpm { value, prefix_len }),
                false => refuse!(InvalidArgument, "bits beyond the prefix are set"),
            }
        }
        (MatchKind::Ternary, Some(Given::Ternary(ternary))) => {
            let (value, mask) = (read(&ternary.value)?, read(&ternary.mask)?);
            match value.is_within(&mask) {
                _ if mask.is_zero() => refuse!(InvalidArgument, "leave the field out instead of a mask of 0"),
                true => Ok(KeyField::Ternary { value, mask }),
                false => refuse!(InvalidArgument, "bits outside the mask are set"),
            }
        }
        (MatchKind::Range, Some(Given::Range(range))) => {
            let (low, high) = (read(&range.low)?, read(&range.high)?);
            if low > high {
                return refuse!(InvalidArgument, "the range ends before it starts");
            }
            if is_all(&low, &high, width) {
                return refuse!(InvalidArgument, "leave the field out instead of the whole range");
            }
            Ok(KeyField::Range { low, high })
        }
        (_, None) => refuse!(InvalidArgument, "no match is given"),
        _ => refuse!(InvalidArgument, "the field is matched as {kind:?}"),
    }
}

/// Whether the range is all that a field can hold.
fn is_all(low: &Value, high: &Value, width: u32) -> bool {
    low.is_zero() && *high == Value::ones(width)
}

/// Whether an action is asked for as an entry's or as the table's default.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Entry,
    Default,
}

pub fn action(schema: &Schema, table: &Table, place: Place, message: &p4::TableAction) -> Checked<ActionCall> {
    use p4::table_action::Type;
    match &message.r#type {
        Some(Type::Action(action)) => call(schema, &table.name, &table.actions, place, action),
        Some(_) => refuse!(InvalidArgument, "table {} has no action profile", table.name),
        None => refuse!(InvalidArgument, "table {}: the action is empty", table.name),
    }
}

/// `of`: the table or action profile whose actions these are.
pub fn call(
    schema: &Schema,
    of: &str,
    choices: &[TableAction],
    place: Place,
    call: &p4::Action,
) -> Checked<ActionCall> {
    let Some(choice) = choices.iter().find(|choice| choice.id == call.action_id) else {
        return refuse!(InvalidArgument, "{of} has no action {:#x}", call.action_id);
    };
    let Some(action) = schema.actions.get(&choice.id) else {
        return refuse!(Internal, "action {:#x} is not in the P4Info", choice.id);
    };
    match (choice.scope, place) {
        (Scope::DefaultOnly, Place::Entry) => {
            return refuse!(PermissionDenied, "{} is a default action of {of} only", action.name);
        }
        (Scope::EntryOnly, Place::Default) => {
            return refuse!(PermissionDenied, "{} cannot be the default action of {of}", action.name);
        }
        _ => {}
    }
    Ok(ActionCall { action: choice.target, params: params(action, &call.params)? })
}

fn params(action: &Action, given: &[p4::action::Param]) -> Checked<Vec<Value>> {
    let mut values = vec![Value::ZERO; action.params.len()];
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
        values[i] = value::to_value(&param.value, known.width)
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
pub fn entry(table: &Table, key: EntryKey, action: EntryAction, message: &p4::TableEntry) -> Checked<TableEntry> {
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
    message.action = Some(profile::entry_action_message(schema, table, &view.entry.action)?);
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
        r#match: match_messages(&table.fields, &entry.key.fields),
        priority: entry.key.priority,
        controller_metadata,
        metadata,
        idle_timeout_ns: signed(entry.idle_timeout_ns),
        ..Default::default()
    }
}

/// The key of a request that has passed [`key`], with canonical values and nothing else.
pub fn canonical_key(request: p4::TableEntry) -> p4::TableEntry {
    use p4::field_match::FieldMatchType as Given;
    let mut matches = request.r#match;
    for given in matches.iter_mut().filter_map(|field_match| field_match.field_match_type.as_mut()) {
        match given {
            Given::Exact(exact) => value::shorten(&mut exact.value),
            Given::Optional(optional) => value::shorten(&mut optional.value),
            Given::Lpm(lpm) => value::shorten(&mut lpm.value),
            Given::Ternary(ternary) => {
                value::shorten(&mut ternary.value);
                value::shorten(&mut ternary.mask);
            }
            Given::Range(range) => {
                value::shorten(&mut range.low);
                value::shorten(&mut range.high);
            }
            Given::Other(_) => {}
        }
    }
    p4::TableEntry { table_id: request.table_id, r#match: matches, priority: request.priority, ..Default::default() }
}

pub fn match_messages(fields: &[MatchField], parts: &[KeyField]) -> Vec<p4::FieldMatch> {
    use p4::field_match::{self as m, FieldMatchType};
    let message = |(field, part): (&MatchField, &KeyField)| {
        let bytes = value::from_value;
        let given = match part {
            KeyField::Exact(v) => FieldMatchType::Exact(m::Exact { value: bytes(v) }),
            KeyField::Lpm { prefix_len: 0, .. } | KeyField::Optional(None) => return None,
            KeyField::Ternary { mask, .. } if mask.is_zero() => return None,
            KeyField::Range { low, high } if is_all(low, high, field.width) => return None,
            KeyField::Lpm { value, prefix_len } => {
                FieldMatchType::Lpm(m::Lpm { value: bytes(value), prefix_len: (*prefix_len).into() })
            }
            KeyField::Ternary { value: v, .. } if field.kind == MatchKind::Optional => {
                FieldMatchType::Optional(m::Optional { value: bytes(v) })
            }
            KeyField::Ternary { value, mask } => {
                FieldMatchType::Ternary(m::Ternary { value: bytes(value), mask: bytes(mask) })
            }
            KeyField::Range { low, high } => FieldMatchType::Range(m::Range { low: bytes(low), high: bytes(high) }),
            KeyField::Optional(Some(v)) => FieldMatchType::Optional(m::Optional { value: bytes(v) }),
        };
        Some(p4::FieldMatch { field_id: field.id, field_match_type: Some(given) })
    };
    fields.iter().zip(parts).filter_map(message).collect()
}

pub fn action_message(schema: &Schema, table: &Table, call: &ActionCall) -> Option<p4::TableAction> {
    let action = call_message(schema, &table.actions, call)?;
    Some(p4::TableAction { r#type: Some(p4::table_action::Type::Action(action)) })
}

pub fn call_message(schema: &Schema, choices: &[TableAction], call: &ActionCall) -> Option<p4::Action> {
    let choice = choices.iter().find(|choice| choice.target == call.action)?;
    let params = schema.actions.get(&choice.id)?.params.iter().zip(&call.params);
    let params = params.map(|(param, v)| p4::action::Param { param_id: param.id, value: value::from_value(v) });
    Some(p4::Action { action_id: choice.id, params: params.collect() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ActionId, TableId};
    use crate::p4rt::schema::Param;
    use p4::field_match::{self as m, FieldMatchType};
    use proptest::prelude::*;
    use tonic::Code;

    const KINDS: [MatchKind; 5] =
        [MatchKind::Exact, MatchKind::Lpm, MatchKind::Ternary, MatchKind::Range, MatchKind::Optional];

    /// A 12-bit field of each kind, with ids 1 to 5, and as number 6 an optional one as p4c writes it.
    fn table() -> Table {
        let field = |id: u32, kind, stored| MatchField { id, name: format!("{kind:?}"), width: 12, kind, stored };
        let mut fields: Vec<MatchField> = (1..).zip(KINDS).map(|(id, kind)| field(id, kind, kind)).collect();
        fields.push(field(6, MatchKind::Optional, MatchKind::Ternary));
        let action = |id, scope| TableAction { id, target: ActionId(id as usize), scope };
        Table {
            id: 7,
            name: "t".into(),
            target: TableId(0),
            fields,
            has_priority: true,
            actions: vec![action(1, Scope::Anywhere), action(2, Scope::DefaultOnly), action(3, Scope::EntryOnly)],
            is_const: false,
            const_default: false,
            has_counter: false,
            meter: None,
            has_idle_timeout: false,
            profile: None,
        }
    }

    fn schema() -> Schema {
        let param = |id, width| Param { id, name: format!("p{id}"), width };
        let mut schema = Schema::default();
        for id in 1..=3 {
            schema.actions.insert(id, Action { name: format!("a{id}"), params: vec![param(1, 9), param(2, 32)] });
        }
        schema
    }

    fn field(id: u32, field_match_type: FieldMatchType) -> p4::FieldMatch {
        p4::FieldMatch { field_id: id, field_match_type: Some(field_match_type) }
    }

    fn exact(value: &'static [u8]) -> p4::FieldMatch {
        field(1, FieldMatchType::Exact(m::Exact { value: value.into() }))
    }

    fn code(extra: &[p4::FieldMatch]) -> Code {
        let matches = [&[exact(b"\x01")], extra].concat();
        match_fields("t", &table().fields, &matches).map_or_else(|refusal| refusal.code, |_| Code::Ok)
    }

    #[test]
    fn match_fields_are_checked() {
        let lpm = |value: &'static [u8], prefix_len| {
            field(2, FieldMatchType::Lpm(m::Lpm { value: value.into(), prefix_len }))
        };
        assert_eq!(code(&[lpm(b"\x0f\x00", 4)]), Code::Ok);
        assert_eq!(code(&[lpm(b"\x0f\x01", 4)]), Code::InvalidArgument, "bits beyond the prefix");
        assert_eq!(code(&[lpm(b"\x00", 0)]), Code::InvalidArgument, "don't care is left out");
        assert_eq!(code(&[lpm(b"\x00", 13)]), Code::InvalidArgument);
        assert_eq!(code(&[lpm(b"\x00", -1)]), Code::InvalidArgument);

        let ternary = |value: &'static [u8], mask: &'static [u8]| {
            field(3, FieldMatchType::Ternary(m::Ternary { value: value.into(), mask: mask.into() }))
        };
        assert_eq!(code(&[ternary(b"\x01", b"\x03")]), Code::Ok);
        assert_eq!(code(&[ternary(b"\x04", b"\x03")]), Code::InvalidArgument, "bits outside the mask");
        assert_eq!(code(&[ternary(b"\x00", b"\x00")]), Code::InvalidArgument, "don't care is left out");
        assert_eq!(code(&[ternary(b"\x00", b"\x10\x00")]), Code::OutOfRange, "13 bits in 12");

        let range = |low: &'static [u8], high: &'static [u8]| {
            field(4, FieldMatchType::Range(m::Range { low: low.into(), high: high.into() }))
        };
        assert_eq!(code(&[range(b"\x01", b"\x01")]), Code::Ok);
        assert_eq!(code(&[range(b"\x02", b"\x01")]), Code::InvalidArgument);
        assert_eq!(code(&[range(b"\x00", b"\x0f\xff")]), Code::InvalidArgument, "don't care is left out");

        let optional = field(5, FieldMatchType::Optional(m::Optional { value: b"\x00\x00\x09"[..].into() }));
        assert_eq!(code(std::slice::from_ref(&optional)), Code::Ok);
        assert_eq!(code(&[optional.clone(), optional]), Code::InvalidArgument, "given twice");
        assert_eq!(
            code(&[field(9, FieldMatchType::Exact(m::Exact::default()))]),
            Code::InvalidArgument,
            "no such field"
        );
        assert_eq!(code(&[p4::FieldMatch { field_id: 5, field_match_type: None }]), Code::InvalidArgument);
        assert_eq!(
            code(&[field(5, FieldMatchType::Exact(m::Exact::default()))]),
            Code::InvalidArgument,
            "another kind"
        );
        assert_eq!(
            match_fields("t", &table().fields, &[]).unwrap_err().code,
            Code::InvalidArgument,
            "exact fields have no don't care"
        );
        assert_eq!(match_fields("t", &table().fields, &[exact(b"")]).unwrap_err().code, Code::OutOfRange);
    }

    #[test]
    fn priorities_are_checked() {
        let mut table = table();
        let check = |table: &Table, priority| super::priority(table, priority).map_err(|refusal| refusal.code);
        assert_eq!(check(&table, 1), Ok(1));
        assert_eq!(check(&table, 0), Err(Code::InvalidArgument));
        assert_eq!(check(&table, -1), Err(Code::InvalidArgument));
        table.has_priority = false;
        assert_eq!(check(&table, 0), Ok(0));
        assert_eq!(check(&table, 1), Err(Code::InvalidArgument));
    }

    #[test]
    fn actions_are_checked() {
        let call = |action_id, place, params: &[(u32, &'static [u8])]| {
            let params =
                params.iter().map(|&(param_id, value)| p4::action::Param { param_id, value: value.into() }).collect();
            let call = p4::table_action::Type::Action(p4::Action { action_id, params });
            action(&schema(), &table(), place, &p4::TableAction { r#type: Some(call) }).map_err(|refusal| refusal.code)
        };
        let good: [(u32, &[u8]); 2] = [(2, b"\x00\x07"), (1, b"\x01\xff")];
        assert_eq!(
            call(1, Place::Entry, &good),
            Ok(ActionCall { action: ActionId(1), params: vec![511u32.into(), 7u32.into()] })
        );
        assert_eq!(call(9, Place::Entry, &good), Err(Code::InvalidArgument));
        assert_eq!(call(2, Place::Entry, &good), Err(Code::PermissionDenied));
        assert_eq!(call(3, Place::Default, &good), Err(Code::PermissionDenied));
        assert_eq!(call(1, Place::Entry, &good[..1]), Err(Code::InvalidArgument), "one is missing");
        assert_eq!(
            call(1, Place::Entry, &[good[0], good[1], good[1]]),
            Err(Code::InvalidArgument),
            "one is given twice"
        );
        assert_eq!(
            call(1, Place::Entry, &[good[0], good[1], (3, b"\x01")]),
            Err(Code::InvalidArgument),
            "one is unknown"
        );
        assert_eq!(call(1, Place::Entry, &[good[0], (1, b"\x02\x00")]), Err(Code::OutOfRange));
        let group = p4::TableAction { r#type: Some(p4::table_action::Type::ActionProfileGroupId(1)) };
        assert_eq!(action(&schema(), &table(), Place::Entry, &group).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn meters_are_checked() {
        use meter_spec::Type::*;
        let check = |kind, cir, cburst, pir, pburst, eburst| {
            meter_config(kind, &p4::MeterConfig { cir, cburst, pir, pburst, eburst })
                .map(drop)
                .map_err(|refusal| refusal.code)
        };
        assert_eq!(check(TwoRateThreeColor, 1, 2, 3, 4, 0), Ok(()));
        assert_eq!(check(TwoRateThreeColor, 1, 2, 3, 4, 5), Err(Code::InvalidArgument));
        assert_eq!(check(TwoRateThreeColor, 3, 2, 1, 4, 0), Err(Code::InvalidArgument));
        assert_eq!(check(TwoRateThreeColor, -1, 2, 1, 4, 0), Err(Code::InvalidArgument));
        assert_eq!(check(SingleRateTwoColor, 1, 2, 1, 2, 0), Ok(()));
        assert_eq!(check(SingleRateTwoColor, 1, 2, 3, 4, 0), Err(Code::InvalidArgument));
        assert_eq!(check(SingleRateThreeColor, 1, 2, 1, 2, 3), Err(Code::Unimplemented));
    }

    fn key_field(kind: MatchKind) -> BoxedStrategy<KeyField> {
        let value = (0u64..1 << 12).prop_map(Value::from);
        match kind {
            MatchKind::Exact => value.prop_map(KeyField::Exact).boxed(),
            MatchKind::Lpm => (value, 0u16..=12)
                .prop_map(|(v, prefix_len)| KeyField::Lpm {
                    value: &v & &Value::prefix(prefix_len.into(), 12),
                    prefix_len,
                })
                .boxed(),
            MatchKind::Ternary => {
                (value.clone(), value).prop_map(|(v, mask)| KeyField::Ternary { value: &v & &mask, mask }).boxed()
            }
            MatchKind::Range => (value.clone(), value)
                .prop_map(|(a, b)| KeyField::Range { low: a.clone().min(b.clone()), high: a.max(b) })
                .boxed(),
            MatchKind::Optional => proptest::option::of(value).prop_map(KeyField::Optional).boxed(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            mut fields in KINDS.map(key_field).to_vec(),
            optional in proptest::option::of((0u64..1 << 12).prop_map(Value::from)),
            cookie_number: u64,
            metadata: Vec<u8>,
        ) {
            let table = table();
            fields.push(match optional {
                Some(value) => KeyField::Ternary { value, mask: Value::ones(12) },
                None => KeyField::Ternary { value: Value::ZERO, mask: Value::ZERO },
            });
            let key = EntryKey { fields, priority: 1 };
            let messages = match_messages(&table.fields, &key.fields);
            prop_assert_eq!(match_fields("t", &table.fields, &messages), Ok(key.fields));
            let (number, bytes) = split_cookie(&cookie(cookie_number, &metadata));
            prop_assert_eq!((number, &bytes[..]), (cookie_number, &metadata[..]));
        }
    }
}
