// SPDX-License-Identifier: Apache-2.0
//! Table entries between P4Runtime messages and the control API (P4Runtime 1.4, "TableEntry").

use apswitch_dataplane::control::{
    ActionCall, ColourCounts, CounterValue, EntryAction, EntryKey, EntryView, MeterConfig, TableEntry, Value,
    WeightedCall,
};

use super::error::{Checked, refuse};
use super::matching::{self, Seen, numbered};
use super::names::Naming;
use super::proto::p4::config::v1::meter_spec;
use super::proto::p4::v1 as p4;
use super::schema::{Action, Profile, Schema, Scope, Table, TableAction};
use super::value;
use bytes::Bytes;

/// The key of `message`; its match fields may come in any order, "don't care" fields are left out. `naming`: of values
/// that have no name yet.
pub fn key(table: &Table, message: &p4::TableEntry, naming: Naming) -> Checked<EntryKey> {
    let fields = matching::match_fields(&table.name, &table.fields, &message.r#match, naming)?;
    Ok(EntryKey { fields, priority: priority(table, message.priority)? })
}

/// Checks that a default entry has neither match nor priority.
pub fn default_has_no_key(table: &Table, message: &p4::TableEntry) -> Checked<()> {
    match message.r#match.is_empty() && message.priority == 0 {
        true => Ok(()),
        false => refuse!(InvalidArgument, "the default entry of table {} has neither match nor priority", table.name),
    }
}

fn priority(table: &Table, priority: i32) -> Checked<i32> {
    match (table.has_priority, priority) {
        (true, 1..) | (false, 0) => Ok(priority),
        (true, _) => refuse!(InvalidArgument, "table {} needs a priority above 0, not {priority}", table.name),
        (false, _) => refuse!(InvalidArgument, "table {} takes no priority", table.name),
    }
}

/// Kind of entry that an action belongs to: an ordinary one or the table's default.
#[derive(Clone, Copy, PartialEq)]
pub enum EntryKind {
    Entry,
    Default,
}

pub fn action(schema: &Schema, table: &Table, kind: EntryKind, message: &p4::TableAction) -> Checked<ActionCall> {
    use p4::table_action::Type;
    match &message.r#type {
        Some(Type::Action(action)) => call(schema, &table.name, &table.actions, kind, action),
        Some(_) => refuse!(InvalidArgument, "table {} has no action profile", table.name),
        None => refuse!(InvalidArgument, "table {}: the action is empty", table.name),
    }
}

/// `of`: the table or action profile whose actions these are.
pub fn call(
    schema: &Schema,
    of: &str,
    choices: &[TableAction],
    kind: EntryKind,
    call: &p4::Action,
) -> Checked<ActionCall> {
    let Some(choice) = choices.iter().find(|choice| choice.id == call.action_id) else {
        return refuse!(InvalidArgument, "{of} has no action {:#x}", call.action_id);
    };
    let Some(action) = schema.actions.get(&choice.id) else {
        return refuse!(Internal, "action {:#x} is not in the P4Info", choice.id);
    };
    match (choice.scope, kind) {
        (Scope::DefaultOnly, EntryKind::Entry) => {
            return refuse!(PermissionDenied, "{} is a default action of {of} only", action.name);
        }
        (Scope::EntryOnly, EntryKind::Default) => {
            return refuse!(PermissionDenied, "{} cannot be the default action of {of}", action.name);
        }
        _ => {}
    }
    Ok(ActionCall { action: choice.target, params: params(action, &call.params)? })
}

fn params(action: &Action, given: &[p4::action::Param]) -> Checked<Vec<Value>> {
    let mut values = vec![Value::ZERO; action.params.len()];
    let mut seen = Seen::default();
    for param in given {
        let Some(i) = numbered(&action.params, param.param_id, |known| known.id) else {
            return refuse!(InvalidArgument, "action {} has no parameter {}", action.name, param.param_id);
        };
        let known = &action.params[i];
        if !seen.insert(i) {
            return refuse!(InvalidArgument, "{} {} is given twice", action.name, known.name);
        }
        values[i] = (known.sdn_type)
            .decode(&param.value, known.width, Naming::Give)
            .map_err(|bad| bad.at(format_args!("{} {}", action.name, known.name)))?;
    }
    match action.params.iter().enumerate().find(|&(i, _)| !seen.contains(i)) {
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

/// Encodes the controller's metadata of an entry as the control API carries it.
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

pub fn direct_meter(table: &Table, message: &p4::TableEntry) -> Checked<Option<MeterConfig>> {
    match (&message.meter_config, table.meter) {
        (Some(config), Some(kind)) => Ok(Some(meter_config(kind, config).map_err(|e| e.at(&table.name))?)),
        (Some(_), None) => refuse!(InvalidArgument, "table {} has no direct meter", table.name),
        (None, _) => Ok(None),
    }
}

pub fn direct_counter(table: &Table, message: &p4::TableEntry) -> Checked<Option<CounterValue>> {
    match &message.counter_data {
        Some(data) if table.has_counter => counter_value(data).map(Some),
        Some(_) => refuse!(InvalidArgument, "table {} has no direct counter", table.name),
        None => Ok(None),
    }
}

/// Returns true if the counts of the entry's meter are to be cleared.
pub fn clears_colours(table: &Table, message: &p4::TableEntry) -> Checked<bool> {
    match (&message.meter_counter_data, table.meter) {
        (Some(_), None) => refuse!(InvalidArgument, "table {} has no direct meter", table.name),
        (data, _) => clears(data.as_ref()).map_err(|e| e.at(&table.name)),
    }
}

/// Counts by colour can be set to 0 alone.
pub fn clears(data: Option<&p4::MeterCounterData>) -> Checked<bool> {
    let Some(data) = data else { return Ok(false) };
    let zero = p4::CounterData::default();
    match [&data.green, &data.yellow, &data.red].into_iter().flatten().all(|count| *count == zero) {
        true => Ok(true),
        false => refuse!(InvalidArgument, "what a meter has coloured can only be set to 0"),
    }
}

/// A whole entry, for INSERT (`action` is that of the message) and MODIFY.
pub fn entry(table: &Table, key: EntryKey, action: EntryAction, message: &p4::TableEntry) -> Checked<TableEntry> {
    let (meter, counter) = (direct_meter(table, message)?, direct_counter(table, message)?);
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

/// Parts of a read entry that were asked for.
pub struct Wanted {
    pub counter: bool,
    pub meter: bool,
    pub colours: bool,
    pub time_since_last_hit: bool,
}

/// The message for an entry as it is now; `None` when its action is not in the P4Info.
pub fn to_message(schema: &Schema, table: &Table, view: &EntryView, wanted: &Wanted) -> Option<p4::TableEntry> {
    let mut message = key_message(table, &view.entry);
    message.action = Some(entry_action_message(schema, table, &view.entry.action)?);
    message.is_const = view.is_const;
    if wanted.counter {
        message.counter_data = view.entry.counter.map(counter_message);
    }
    if wanted.meter {
        message.meter_config = view.entry.meter.map(meter_message);
    }
    if wanted.colours {
        message.meter_counter_data = view.colours.map(colours_message);
    }
    if wanted.time_since_last_hit {
        message.time_since_last_hit = Some(p4::table_entry::IdleTimeout { elapsed_ns: signed(view.idle_ns) });
    }
    Some(message)
}

/// The message for what an entry does; `None` when its action is not in the P4Info.
pub fn entry_action_message(schema: &Schema, table: &Table, action: &EntryAction) -> Option<p4::TableAction> {
    use p4::table_action::Type;
    let message = match action {
        EntryAction::Call(call) => return action_message(schema, table, call),
        EntryAction::Member(id) => Type::ActionProfileMemberId(*id),
        EntryAction::Group(id) => Type::ActionProfileGroupId(*id),
        EntryAction::Same => return None,
        EntryAction::OneShot(calls) => {
            let profile = schema.profiles.get(&table.profile?)?;
            let message = |call: &WeightedCall| {
                Some(p4::ActionProfileAction {
                    action: Some(call_message(schema, &table.actions, &call.call)?),
                    weight: weight_message(profile, call.weight),
                    watch_kind: call
                        .watch
                        .map(|port| p4::action_profile_action::WatchKind::WatchPort(value::from_value(&port.into()))),
                })
            };
            let actions: Option<_> = calls.iter().map(message).collect();
            Type::ActionProfileActionSet(p4::ActionProfileActionSet {
                action_profile_actions: actions?,
                ..Default::default()
            })
        }
    };
    Some(p4::TableAction { r#type: Some(message) })
}

/// The weight as the client gave it.
pub fn weight_message(profile: &Profile, weight: u32) -> i32 {
    if profile.no_weights { 0 } else { weight as i32 }
}

/// The part of an entry that names it: key, metadata and idle timeout.
#[allow(deprecated)]
pub fn key_message(table: &Table, entry: &TableEntry) -> p4::TableEntry {
    let (controller_metadata, metadata) = split_cookie(&entry.cookie);
    p4::TableEntry {
        table_id: table.id,
        r#match: matching::match_messages(&table.fields, &entry.key.fields),
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

pub fn action_message(schema: &Schema, table: &Table, call: &ActionCall) -> Option<p4::TableAction> {
    let action = call_message(schema, &table.actions, call)?;
    Some(p4::TableAction { r#type: Some(p4::table_action::Type::Action(action)) })
}

/// Returns the message for NoAction, if the table has it.
pub fn no_action(schema: &Schema, table: &Table) -> Option<p4::TableAction> {
    let is_it = |choice: &&TableAction| schema.actions.get(&choice.id).is_some_and(|action| action.name == "NoAction");
    let action = p4::Action { action_id: table.actions.iter().find(is_it)?.id, params: Vec::new() };
    Some(p4::TableAction { r#type: Some(p4::table_action::Type::Action(action)) })
}

pub fn call_message(schema: &Schema, choices: &[TableAction], call: &ActionCall) -> Option<p4::Action> {
    let choice = choices.iter().find(|choice| choice.target == call.action)?;
    let params = schema.actions.get(&choice.id)?.params.iter().zip(&call.params);
    let params = params.map(|(param, v)| p4::action::Param { param_id: param.id, value: param.sdn_type.encode(v) });
    Some(p4::Action { action_id: choice.id, params: params.collect() })
}

pub fn counter_message(value: CounterValue) -> p4::CounterData {
    p4::CounterData { byte_count: signed(value.bytes), packet_count: signed(value.packets) }
}

pub fn colours_message(colours: ColourCounts) -> p4::MeterCounterData {
    let [green, yellow, red] = colours.map(|count| Some(counter_message(count)));
    p4::MeterCounterData { green, yellow, red }
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
    use crate::error::Code;
    use crate::schema::Param;
    use crate::translation::SdnType;
    use apswitch_dataplane::control::{ActionId, TableId};
    use proptest::prelude::*;

    fn table() -> Table {
        let action = |id, scope| TableAction { id, target: ActionId(id as usize), scope };
        Table {
            id: 7,
            name: "t".into(),
            target: TableId(0),
            fields: Vec::new(),
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
        let param = |id, width| Param { id, name: format!("p{id}"), width, sdn_type: SdnType::Plain };
        let mut schema = Schema::default();
        for id in 1..=3 {
            schema.actions.insert(id, Action { name: format!("a{id}"), params: vec![param(1, 9), param(2, 32)] });
        }
        schema
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
        let call = |action_id, kind, params: &[(u32, &'static [u8])]| {
            let params =
                params.iter().map(|&(param_id, value)| p4::action::Param { param_id, value: value.into() }).collect();
            let call = p4::table_action::Type::Action(p4::Action { action_id, params });
            action(&schema(), &table(), kind, &p4::TableAction { r#type: Some(call) }).map_err(|refusal| refusal.code)
        };
        let good: [(u32, &[u8]); 2] = [(2, b"\x00\x07"), (1, b"\x01\xff")];
        assert_eq!(
            call(1, EntryKind::Entry, &good),
            Ok(ActionCall { action: ActionId(1), params: vec![511u32.into(), 7u32.into()] })
        );
        assert_eq!(call(9, EntryKind::Entry, &good), Err(Code::InvalidArgument));
        assert_eq!(call(2, EntryKind::Entry, &good), Err(Code::PermissionDenied));
        assert_eq!(call(3, EntryKind::Default, &good), Err(Code::PermissionDenied));
        assert_eq!(call(1, EntryKind::Entry, &good[..1]), Err(Code::InvalidArgument), "one is missing");
        assert_eq!(
            call(1, EntryKind::Entry, &[good[0], good[1], good[1]]),
            Err(Code::InvalidArgument),
            "one is given twice"
        );
        assert_eq!(
            call(1, EntryKind::Entry, &[good[0], good[1], (3, b"\x01")]),
            Err(Code::InvalidArgument),
            "one is unknown"
        );
        assert_eq!(call(1, EntryKind::Entry, &[good[0], (1, b"\x02\x00")]), Err(Code::OutOfRange));
        let group = p4::TableAction { r#type: Some(p4::table_action::Type::ActionProfileGroupId(1)) };
        assert_eq!(action(&schema(), &table(), EntryKind::Entry, &group).unwrap_err().code, Code::InvalidArgument);
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

    proptest! {
        #[test]
        fn cookies_are_read_as_they_were_written(number: u64, metadata: Vec<u8>) {
            let (found, bytes) = split_cookie(&cookie(number, &metadata));
            prop_assert_eq!((found, &bytes[..]), (number, &metadata[..]));
        }
    }
}
