// SPDX-License-Identifier: Apache-2.0
//! Entries that the control plane has written, looked up in the plainest way.

use std::collections::HashMap;

use num_bigint::BigUint;

use apswitch_core::dataplane_ops::{CounterValue, MeterConfig};
use apswitch_core::program::{ActionCall, EntryKey, KeyField, Value};
use apswitch_core::state::meter::Meter;

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: EntryKey,
    /// One, or those of a group, each as often as its weight says.
    pub actions: Vec<ActionCall>,
    pub direct: Direct,
}

/// Direct resources of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct {
    pub config: Option<MeterConfig>,
    pub meter: Option<Meter>,
    pub counter: CounterValue,
}

impl Direct {
    /// An unchanged meter keeps its buckets. `now`: ns.
    pub fn configure(&mut self, config: Option<MeterConfig>, now: u64) {
        if self.config != config {
            (self.config, self.meter) = (config, config.map(|config| config.meter(now)));
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub entries: Vec<Entry>,
    pub default: Option<ActionCall>,
    /// Counter and meter of the default entry.
    pub missed: Direct,
    /// Entries of which every field is exact, by their values.
    exact: HashMap<Vec<Value>, usize>,
}

impl Entries {
    /// Takes the entries' place; what is the same keeps its counter and its meter's state. `now`: ns.
    pub fn replace(&mut self, new: Vec<(EntryKey, Vec<ActionCall>, Option<MeterConfig>)>, now: u64) {
        let mut old: HashMap<EntryKey, Entry> =
            self.entries.drain(..).map(|entry| (entry.key.clone(), entry)).collect();
        self.exact.clear();
        for (key, actions, config) in new {
            let mut direct = old.remove(&key).map(|entry| entry.direct).unwrap_or_default();
            direct.configure(config, now);
            if let Some(values) = exact_values(&key) {
                self.exact.insert(values, self.entries.len());
            }
            self.entries.push(Entry { key, actions, direct });
        }
    }

    /// The best entry for the values of a key of these widths.
    pub fn find(&self, values: &[Value], widths: &[u32]) -> Option<usize> {
        if self.exact.len() == self.entries.len() {
            return self.exact.get(values).copied();
        }
        let hits = |entry: &Entry| {
            entry.key.fields.iter().zip(values).zip(widths).all(|((field, value), &width)| matches(field, value, width))
        };
        let found = self.entries.iter().enumerate().filter(|(_, entry)| hits(entry));
        // The first one of equals.
        found.rev().max_by_key(|(_, entry)| rank(&entry.key)).map(|(index, _)| index)
    }
}

fn exact_values(key: &EntryKey) -> Option<Vec<Value>> {
    let value = |field: &KeyField| match field {
        KeyField::Exact(value) => Some(value.clone()),
        _ => None,
    };
    key.fields.iter().map(value).collect()
}

pub fn matches(field: &KeyField, value: &Value, width: u32) -> bool {
    match field {
        KeyField::Exact(wanted) => value == wanted,
        KeyField::Lpm { value: wanted, prefix_len } => {
            let rest = width - u32::from(*prefix_len);
            BigUint::from(value) >> rest == BigUint::from(wanted) >> rest
        }
        KeyField::Ternary { value: wanted, mask } => value & mask == *wanted,
        KeyField::Range { low, high } => (low..=high).contains(&value),
        KeyField::Optional(wanted) => wanted.as_ref().is_none_or(|wanted| value == wanted),
    }
}

/// The priority, or where there is none the length of the prefix.
fn rank(key: &EntryKey) -> (i32, u16) {
    let prefix = key.fields.iter().map(|field| match field {
        KeyField::Lpm { prefix_len, .. } => *prefix_len,
        _ => 0,
    });
    (key.priority, if key.priority == 0 { prefix.sum() } else { 0 })
}

/// An entry's key in words.
pub fn show(key: &EntryKey, names: &[String]) -> String {
    let field = |(field, name): (&KeyField, &String)| match field {
        KeyField::Exact(value) => format!("{name} {value:#x}"),
        KeyField::Lpm { value, prefix_len } => format!("{name} {value:#x}/{prefix_len}"),
        KeyField::Optional(None) => format!("{name} any"),
        KeyField::Ternary { mask, .. } if mask.is_zero() => format!("{name} any"),
        KeyField::Ternary { value, mask } => format!("{name} {value:#x} &&& {mask:#x}"),
        KeyField::Range { low, high } => format!("{name} {low:#x}..{high:#x}"),
        KeyField::Optional(Some(value)) => format!("{name} {value:#x}"),
    };
    let fields = key.fields.iter().zip(names).map(field).collect::<Vec<_>>().join(", ");
    if key.priority == 0 { format!("[{fields}]") } else { format!("[{fields}; priority {}]", key.priority) }
}
