// SPDX-License-Identifier: Apache-2.0
//! Entries that packets hit: keys that the reference has seen, some of them changed.

use std::collections::BTreeMap;

use apswitch_dataplane::control::*;
use apswitch_reference::packet_trace::Event;
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
        Some(digits) => Value::parse(digits, 16),
        None if digits.len() < text.len() => Value::parse(&digits, 16),
        None => Value::parse(text, 10),
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
            let all = Value::ones(key.field.width.into());
            let value = values.map_or_else(|| any(key.field.width, rng), |values| &values[index] & &all);
            field(key.kind, value, key.field.width, rng)
        });
        let fields: Vec<KeyField> = fields.collect();
        if fields.is_empty() {
            return None;
        }
        // Among equal priorities nobody promises an order.
        let priority = if info.needs_priority() { rng.i32(1..i32::MAX) } else { 0 };
        let action = entry_action(program, table, rng)?;
        let entry = TableEntry {
            table,
            key: EntryKey { fields, priority },
            action,
            meter: None,
            counter: None,
            idle_timeout_ns: 0,
            cookie: Vec::new(),
        };
        Some(Update::InsertEntry(entry))
    }
}

/// Any number of so many bits.
fn any(width: u16, rng: &mut Rng) -> Value {
    let words: Vec<u64> = (0..width.div_ceil(64)).map(|_| rng.u64(..)).collect();
    &Value::from_words(&words) & &Value::ones(width.into())
}

/// Mostly one that the value hits.
fn field(kind: MatchKind, value: Value, width: u16, rng: &mut Rng) -> KeyField {
    match kind {
        MatchKind::Exact => KeyField::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = rng.u16(..=width);
            KeyField::Lpm { value: &value & &Value::prefix(prefix_len.into(), width.into()), prefix_len }
        }
        MatchKind::Ternary => {
            let mask = match rng.u8(..4) {
                0 => Value::ZERO,
                1 => Value::ones(width.into()),
                _ => any(width, rng),
            };
            KeyField::Ternary { value: &value & &mask, mask }
        }
        MatchKind::Range => {
            let (low, high) = (any(width, rng).min(value.clone()), any(width, rng).max(value));
            KeyField::Range { low, high }
        }
        MatchKind::Optional => KeyField::Optional(rng.bool().then_some(value)),
    }
}

/// Any action of the table with any parameters, small ones more often.
pub fn action(program: &Program, table: TableId, rng: &mut Rng) -> Option<ActionCall> {
    let action = *rng.choice(&program.tables[table.0].actions)?;
    let params = program.actions[action.0].params.iter().map(|param| {
        let value = if rng.bool() { rng.u16(..PORTS.end + 2).into() } else { any(param.width, rng) };
        &value & &Value::ones(param.width.into())
    });
    Some(ActionCall { action, params: params.collect() })
}

/// Guesses an entry's action: in a table with an action profile, members and groups of [`profiles`] or a group of its
/// own.
fn entry_action(program: &Program, table: TableId, rng: &mut Rng) -> Option<EntryAction> {
    let Some(profile) = program.tables[table.0].profile else { return action(program, table, rng).map(Into::into) };
    let groups = program.profiles[profile.0].has_selector;
    Some(match rng.u8(..3) {
        0 if groups => EntryAction::Group(rng.u32(1..3)),
        1 if groups => {
            let call = |rng: &mut Rng| {
                Some(WeightedCall { call: action(program, table, rng)?, weight: rng.u32(1..3), watch: None })
            };
            EntryAction::OneShot((0..rng.u8(..4)).filter_map(|_| call(rng)).collect())
        }
        _ => EntryAction::Member(rng.u32(1..4)),
    })
}

/// Three members and two groups of every action profile, some values of every value set. What a profile with groups of
/// entries' own does not take is refused later.
pub fn profiles(program: &Program, rng: &mut Rng) -> Vec<Update> {
    let mut updates = Vec::new();
    for (index, info) in program.profiles.iter().enumerate() {
        let profile = ProfileId(index);
        let table = program.tables.iter().position(|table| table.profile == Some(profile)).map(TableId);
        if info.has_selector && rng.u8(..3) == 0 {
            continue;
        }
        for member in 1..4 {
            let action = table.and_then(|table| action(program, table, rng));
            updates.extend(action.map(|action| Update::InsertMember { profile, member, action }));
        }
        for group in 1..3 {
            let members = (1..4).filter(|_| rng.bool()).collect::<Vec<_>>();
            let member = |member| GroupMember { member, weight: rng.u32(1..3), watch: None };
            let value = ProfileGroup { members: members.into_iter().map(member).collect(), max_size: 0 };
            updates.push(Update::InsertGroup { profile, group, value });
        }
    }
    for (index, info) in program.value_sets.iter().enumerate() {
        let member = |rng: &mut Rng| -> Vec<KeyField> {
            let field = |&width: &u16| {
                let value = if rng.bool() { rng.u16(..64).into() } else { any(width, rng) };
                let value = &value & &Value::ones(width.into());
                field([MatchKind::Exact, MatchKind::Ternary, MatchKind::Range][rng.usize(..3)], value, width, rng)
            };
            info.widths.iter().map(field).collect()
        };
        let members = (0..rng.usize(..4)).map(|_| member(rng)).collect();
        updates.push(Update::SetValueSet { set: ValueSetId(index), members });
    }
    updates
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
        let config = CloneSession {
            replicas: replicas(3),
            packet_length_bytes: if id == 2 { 20 } else { 0 },
            class_of_service: 2 * (id == 2) as u8,
        };
        updates.push(Update::InsertCloneSession { session: id, config });
    }
    updates
}
