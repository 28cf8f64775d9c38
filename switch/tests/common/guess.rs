// SPDX-License-Identifier: Apache-2.0
//! Entries that packets hit: keys that the reference has seen, some of them changed.

use std::collections::BTreeMap;

use apswitch::control::*;
use apswitch::reference::story::Event;
use fastrand::Rng;

use super::pair::{PORTS, Pair};

/// Keys by table, as numbers.
#[derive(Default)]
pub struct Seen {
    keys: BTreeMap<String, Vec<Vec<Value>>>,
}

/// 5, 0x1f or 02:00:00:00:00:01, as a story shows a value.
fn parse(text: &str) -> Option<Value> {
    let digits = text.replace(':', "");
    match digits.strip_prefix("0x") {
        Some(digits) => Value::from_str_radix(digits, 16).ok(),
        None if digits.len() < text.len() => Value::from_str_radix(&digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Seen {
    /// Looks at the tables that the frame meets.
    pub fn watch(&mut self, pair: &mut Pair, port: u16, frame: &[u8]) {
        for event in pair.scout(port, frame) {
            if let Event::Table { name, key, .. } = event
                && let Some(values) = key.iter().map(|(_, value)| parse(value)).collect()
            {
                self.keys.entry(name).or_default().push(values);
            }
        }
    }

    /// An entry of the table; `None`: it has no key or no action.
    pub fn entry(&self, program: &Program, table: TableId, rng: &mut Rng) -> Option<Update> {
        let info = &program.tables[table.0];
        let seen = self.keys.get(&info.name).map_or(&[][..], Vec::as_slice);
        let values = rng.choice(seen);
        let fields = info.key.iter().enumerate().map(|(index, key)| {
            let all = Value::MAX >> (128 - key.field.width);
            let value = values.map_or_else(|| rng.u128(..) & all, |values| values[index] & all);
            field(key.kind, value, key.field.width, rng)
        });
        let fields: Vec<KeyField> = fields.collect();
        if fields.is_empty() {
            return None;
        }
        // Among equal priorities nobody promises an order.
        let priority = if info.needs_priority() { rng.i32(1..i32::MAX) } else { 0 };
        let action = action(program, table, rng)?;
        let entry = TableEntry {
            table,
            key: EntryKey { fields, priority },
            action: action.into(),
            meter: None,
            counter: None,
            idle_timeout_ns: 0,
            cookie: Vec::new(),
        };
        Some(Update::InsertEntry(entry))
    }
}

/// Mostly one that the value hits.
fn field(kind: MatchKind, value: Value, width: u16, rng: &mut Rng) -> KeyField {
    let all = Value::MAX >> (128 - width);
    match kind {
        MatchKind::Exact => KeyField::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = rng.u16(..=width);
            let rest = u32::from(width - prefix_len);
            let value = value.checked_shr(rest).unwrap_or(0).checked_shl(rest).unwrap_or(0);
            KeyField::Lpm { value, prefix_len }
        }
        MatchKind::Ternary => {
            let mask = match rng.u8(..4) {
                0 => 0,
                1 => all,
                _ => rng.u128(..) & all,
            };
            KeyField::Ternary { value: value & mask, mask }
        }
        MatchKind::Range => KeyField::Range { low: rng.u128(..=value), high: rng.u128(value..=all) },
        MatchKind::Optional => KeyField::Optional(rng.bool().then_some(value)),
    }
}

/// Any action of the table with any parameters, small ones more often.
pub fn action(program: &Program, table: TableId, rng: &mut Rng) -> Option<ActionCall> {
    let action = *rng.choice(&program.tables[table.0].actions)?;
    let params = program.actions[action.0].params.iter().map(|param| {
        let all = Value::MAX >> (128 - param.width);
        let value = if rng.bool() { rng.u128(..u128::from(PORTS.end) + 2) } else { rng.u128(..) };
        value & all
    });
    Some(ActionCall { action, params: params.collect() })
}

/// Groups and sessions 1 to 3 and 7, each to some ports.
pub fn copies(rng: &mut Rng) -> Vec<Update> {
    let mut replicas = |most: u16| -> Vec<Replica> {
        (0..rng.u16(..=most))
            .map(|rid| Replica { port: if rid == 2 { super::CPU_PORT } else { rng.u16(PORTS) }, rid })
            .collect()
    };
    let mut updates = Vec::new();
    for id in [1, 2, 3, 7] {
        updates.push(Update::InsertMulticastGroup { group: id, replicas: replicas(4) });
        let config = CloneSession { replicas: replicas(3), packet_length_bytes: if id == 2 { 20 } else { 0 } };
        updates.push(Update::InsertCloneSession { session: id, config });
    }
    updates
}
