// SPDX-License-Identifier: Apache-2.0
//! Entries, multicast groups and clone sessions as the P4 tutorials write them in JSON.

use std::net::IpAddr;

use apswitch_dataplane::control::{
    ActionCall, CloneSession, EntryKey, KeyField, MatchKind, Program, Replica, TableEntry, TableId, Update, Value,
};
use serde_json::Value as Json;

type Result<T> = std::result::Result<T, String>;

/// Updates and what each is called in messages.
pub fn parse(json: &[u8], program: &Program) -> Result<Vec<(String, Update)>> {
    let document: Json = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let mut updates = Vec::new();
    for (index, entry) in list("table_entries").iter().enumerate() {
        let what = format!("table entry {}", index + 1);
        let update = table_entry(entry, program).map_err(|e| format!("{what}: {e}"))?;
        updates.push((what, update));
    }
    for group in list("multicast_group_entries") {
        let id = small(&group["multicast_group_id"]).map_err(|e| format!("multicast_group_id: {e}"))?;
        let replicas = replicas(&group)?;
        updates.push((format!("multicast group {id}"), Update::InsertMulticastGroup { group: id, replicas }));
    }
    for session in list("clone_session_entries") {
        let id = small(&session["clone_session_id"]).map_err(|e| format!("clone_session_id: {e}"))?;
        let length = &session["packet_length_bytes"];
        let packet_length_bytes = if length.is_null() { 0 } else { small(length)? };
        let config = CloneSession { replicas: replicas(&session)?, packet_length_bytes, ..Default::default() };
        updates.push((format!("clone session {id}"), Update::InsertCloneSession { session: id, config }));
    }
    Ok(updates)
}

fn table_entry(entry: &Json, program: &Program) -> Result<Update> {
    let name = entry["table"].as_str().unwrap_or_default();
    let table = program.tables.iter().position(|table| is_named(&table.name, name)).map(TableId);
    let Some(table) = table else {
        let known = program.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(format!("there is no table `{name}`: the program has {known}"));
    };
    let action = action(entry, program, table)?;
    if entry["default_action"] == true {
        return Ok(Update::SetDefault { table, action: Some(action) });
    }
    let info = &program.tables[table.0];
    let given = entry["match"].as_object().cloned().unwrap_or_default();
    if let Some(unknown) = given.keys().find(|name| info.key.iter().all(|key| key.field.name != **name)) {
        let known = info.key.iter().map(|key| key.field.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(format!("`{name}` has no key field `{unknown}`: it has {known}"));
    }
    let fields = info.key.iter().map(|key| {
        let field = &key.field.name;
        key_field(given.get(field), key.kind, key.field.width).map_err(|e| format!("key field `{field}`: {e}"))
    });
    let fields = fields.collect::<Result<_>>()?;
    let priority = entry["priority"].as_i64().unwrap_or(0) as i32;
    Ok(Update::InsertEntry(TableEntry {
        table,
        key: EntryKey { fields, priority },
        action: action.into(),
        meter: None,
        counter: None,
        idle_timeout_ns: 0,
        cookie: Vec::new(),
    }))
}

/// Returns true if a name is the whole name or its last parts.
fn is_named(full: &str, name: &str) -> bool {
    full.strip_suffix(name).is_some_and(|rest| !name.is_empty() && (rest.is_empty() || rest.ends_with('.')))
}

fn action(entry: &Json, program: &Program, table: TableId) -> Result<ActionCall> {
    let name = entry["action_name"].as_str().unwrap_or_default();
    let mut actions = program.tables[table.0].actions.iter().copied();
    let names = actions.clone().map(|action| program.actions[action.0].name.as_str()).collect::<Vec<_>>();
    let Some(action) = actions.find(|action| is_named(&program.actions[action.0].name, name)) else {
        return Err(format!("there is no action `{name}`: the table has {}", names.join(", ")));
    };
    let params = program.actions[action.0].params.iter().map(|param| {
        let given = &entry["action_params"][&param.name];
        number(given).map_err(|e| format!("parameter `{}` of `{name}`: {e}", param.name))
    });
    Ok(ActionCall { action, params: params.collect::<Result<_>>()? })
}

fn key_field(given: Option<&Json>, kind: MatchKind, width: u16) -> Result<KeyField> {
    let pair = |given: &Json| match given.as_array().map(Vec::as_slice) {
        Some([first, second]) => Ok((number(first)?, number(second)?)),
        _ => Err(format!("{given} is not a pair")),
    };
    Ok(match (kind, given) {
        (MatchKind::Exact, Some(given)) => KeyField::Exact(number(given)?),
        (MatchKind::Exact, None) => return Err("an exact field needs a value".into()),
        (MatchKind::Lpm, None) => KeyField::Lpm { value: Value::ZERO, prefix_len: 0 },
        (MatchKind::Lpm, Some(given)) => {
            let (value, prefix_len) = pair(given)?;
            KeyField::Lpm { value, prefix_len: narrow(&prefix_len)? }
        }
        (MatchKind::Ternary, None) => KeyField::Ternary { value: Value::ZERO, mask: Value::ZERO },
        (MatchKind::Ternary, Some(given)) => {
            let (value, mask) = pair(given)?;
            KeyField::Ternary { value, mask }
        }
        (MatchKind::Range, None) => KeyField::Range { low: Value::ZERO, high: Value::ones(width.into()) },
        (MatchKind::Range, Some(given)) => {
            let (low, high) = pair(given)?;
            KeyField::Range { low, high }
        }
        (MatchKind::Optional, given) => KeyField::Optional(given.map(number).transpose()?),
    })
}

fn replicas(object: &Json) -> Result<Vec<Replica>> {
    let replicas = object["replicas"].as_array().cloned().unwrap_or_default();
    let replica = |replica: &Json| {
        let port = small(&replica["egress_port"]).map_err(|e| format!("egress_port: {e}"))?;
        let rid = if replica["instance"].is_null() { 0 } else { small(&replica["instance"])? };
        Ok(Replica { port, rid })
    };
    replicas.iter().map(replica).collect()
}

/// A number that its type can hold.
fn small<T: TryFrom<u64>>(json: &Json) -> Result<T> {
    narrow(&number(json)?)
}

fn narrow<T: TryFrom<u64>>(value: &Value) -> Result<T> {
    let number = u64::try_from(value).ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{value} is too large"))
}

/// 5, "5", "0x1f", "10.0.1.1", "2001:db8::1", "08:00:00:00:01:11"; also as a list of one.
fn number(json: &Json) -> Result<Value> {
    match json {
        Json::Number(number) => value(&number.to_string()),
        Json::String(text) => value(text),
        Json::Array(list) if list.len() == 1 => number(&list[0]),
        Json::Null => Err("is missing".into()),
        _ => Err(format!("{json} is not a value")),
    }
}

/// A number, or an address of IPv4, IPv6 or Ethernet.
pub fn value(text: &str) -> Result<Value> {
    let hex = |digits: &str| Value::parse(digits, 16);
    let value = match text.strip_prefix("0x") {
        Some(digits) => hex(digits),
        None if text.len() == 17 && text.matches(':').count() == 5 => hex(&text.replace(':', "")),
        None => match text.parse() {
            Ok(IpAddr::V4(address)) => Some(address.to_bits().into()),
            Ok(IpAddr::V6(address)) => Some(address.to_bits().into()),
            Err(_) => Value::parse(text, 10),
        },
    };
    value.ok_or_else(|| format!("`{text}` is not a number, an address or 0x.."))
}
