// SPDX-License-Identifier: Apache-2.0
//! Match-action tables: finding the entry of a key, and changing entries without ever leaving a table half changed.
//!
//! An entry lives in a slot chosen by the control plane. Its row holds, in 64-bit words:
//! packed key | mask (not in exact tables) | low and high of each range, high word first | action index | parameters.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::FixedState;

use super::bounds;
use super::chains::Chains;
use super::code::{Matching, TableCode, is_whole};
use super::masks::Masks;
use super::meter::Meter;

/// Counts of an entry, read by all threads. Only the packet thread writes.
#[derive(Default, Debug)]
pub struct EntryStats {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
    /// ns since the start of the switch.
    pub last_hit: AtomicU64,
}

/// Offsets of the parts of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowShape {
    pub mask: usize,
    pub ranges: usize,
    pub action: usize,
    pub len: usize,
}

impl RowShape {
    pub fn new(code: &TableCode) -> RowShape {
        let key = code.key_words;
        let mask_words = match code.matching {
            Matching::Masked | Matching::Scan => key,
            Matching::None | Matching::Direct | Matching::Exact => 0,
        };
        let ranges = key + mask_words;
        let action = ranges + 2 * code.ranges.iter().map(|range| range.words.len()).sum::<usize>();
        RowShape { mask: key, ranges, action, len: action + 1 + code.param_words }
    }
}

pub const NO_SLOT: u32 = u32::MAX;

enum Index {
    None,
    /// By key; [`NO_SLOT`] where there is no entry.
    Direct(Box<[u32]>),
    Exact(Chains),
    Masked(Box<Masks>),
    /// By descending priority.
    Scan(Vec<u32>),
}

/// Addresses of the parts that native code reads itself; right after every change.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Parts {
    pub rows: usize,
    /// Address of the slots by key, of a table that is indexed directly.
    pub slots: usize,
    pub stats: usize,
    /// 0: nothing happens on a miss.
    pub default: usize,
}

pub struct Table {
    pub parts: Parts,
    shape: RowShape,
    key_words: usize,
    /// Words of each range field, if one of them has more than one.
    long_ranges: Option<Box<[usize]>>,
    index: Index,
    rows: Vec<u64>,
    priorities: Vec<i32>,
    hasher: FixedState,
    /// By slot, and behind them that of the default entry. `None`: not configured, as most are.
    pub meters: Vec<Option<Box<Meter>>>,
    stats: Arc<[EntryStats]>,
    /// Action index and parameters; `None`: nothing happens on a miss.
    default: Option<Box<[u64]>>,
    /// Words of each action's parameters.
    params: Box<[usize]>,
}

impl Table {
    /// `seed` makes the hash differ between runs. `stats` has a cell for each slot and the default entry, or none.
    pub fn new(code: &TableCode, stats: Arc<[EntryStats]>, seed: u64) -> Table {
        let shape = RowShape::new(code);
        let index = match code.matching {
            Matching::None => Index::None,
            Matching::Direct => Index::Direct(vec![NO_SLOT; 1 << code.key_bits].into()),
            Matching::Exact => Index::Exact(Chains::new(code.max_size)),
            Matching::Masked => Index::Masked(Box::new(Masks::new(code.max_size, seed))),
            Matching::Scan => Index::Scan(Vec::with_capacity(code.max_size)),
        };
        let range_words: Box<[usize]> = code.ranges.iter().map(|range| range.words.len()).collect();
        let mut table = Table {
            long_ranges: range_words.iter().any(|&words| words > 1).then_some(range_words),
            parts: Parts::default(),
            shape,
            key_words: code.key_words,
            index,
            rows: vec![0; code.max_size * shape.len],
            priorities: vec![0; code.max_size],
            hasher: FixedState::with_seed(seed),
            meters: vec![None; if code.meter.is_some() { code.max_size + 1 } else { 0 }],
            stats,
            default: None,
            params: code.params(),
        };
        table.locate();
        table
    }

    fn locate(&mut self) {
        let slots = if let Index::Direct(slots) = &self.index { slots.as_ptr().expose_provenance() } else { 0 };
        self.parts = Parts {
            rows: self.rows.as_ptr().expose_provenance(),
            slots,
            stats: self.stats.as_ptr().expose_provenance(),
            default: self.default.as_ref().map_or(0, |action| action.as_ptr().expose_provenance()),
        };
    }

    /// All these bytes are of rows, of what is indexed directly or of the default action.
    pub fn holds(&self, address: usize, bytes: usize) -> bool {
        let slots = if let Index::Direct(slots) = &self.index { &slots[..] } else { &[] };
        bounds::within(&self.rows[..], address, bytes)
            || bounds::within(slots, address, bytes)
            || self.default.as_ref().is_some_and(|action| bounds::within(&**action, address, bytes))
    }

    /// Returns the slot of the default entry's counter and meter.
    pub fn default_slot(&self) -> usize {
        self.priorities.len()
    }

    /// Action index and parameters of an entry.
    pub fn action(&self, slot: u32) -> &[u64] {
        let row = slot as usize * self.shape.len;
        &self.rows[row + self.shape.action..row + self.shape.len]
    }

    /// The default action; the old one goes into its place.
    pub fn swap_default(&mut self, action: &mut Option<Box<[u64]>>) {
        assert!(
            action.as_ref().is_none_or(|action| is_whole(action, &self.params)),
            "a default action lacks parameters"
        );
        std::mem::swap(&mut self.default, action);
        self.locate();
    }

    /// The slot of the best entry for the packed key, behind which stand the values of the range fields.
    #[inline]
    pub fn lookup(&self, values: &[u64]) -> Option<u32> {
        let key = &values[..self.key_words];
        match &self.index {
            Index::None => None,
            Index::Direct(slots) => slots.get(key[0] as usize).copied().filter(|&slot| slot != NO_SLOT),
            Index::Exact(chains) => {
                chains.slots(self.hash(0, key.iter().copied())).find(|&slot| equal(self.key(slot), key))
            }
            Index::Masked(masks) => self.lookup_masked(masks, key),
            Index::Scan(order) => order.iter().copied().find(|&slot| self.matches(slot, values)),
        }
    }

    fn lookup_masked(&self, masks: &Masks, key: &[u64]) -> Option<u32> {
        let mut best: Option<(i32, u32)> = None;
        for (highest, group, mask) in masks.groups() {
            if best.is_some_and(|(priority, _)| priority >= highest) {
                break;
            }
            let masked = || key.iter().zip(mask).map(|(key, mask)| key & mask);
            for slot in masks.entries.slots(self.hash(group, masked())) {
                let priority = self.priorities[slot as usize];
                let row = &self.rows[slot as usize * self.shape.len..][..self.shape.ranges];
                let (value, of_mask) = row.split_at(self.key_words);
                if value.iter().copied().eq(masked())
                    && equal(of_mask, mask)
                    && best.is_none_or(|(other, _)| priority > other)
                {
                    best = Some((priority, slot));
                }
            }
        }
        best.map(|(_, slot)| slot)
    }

    #[inline]
    fn matches(&self, slot: u32, values: &[u64]) -> bool {
        let row = slot as usize * self.shape.len;
        let row = &self.rows[row..row + self.shape.len];
        let (key, in_ranges) = values.split_at(self.key_words);
        let masks = &row[self.shape.mask..self.shape.ranges];
        let ranges = &row[self.shape.ranges..self.shape.action];
        row.iter().zip(masks).zip(key).all(|((value, mask), key)| key & mask == *value)
            && match &self.long_ranges {
                None => {
                    ranges.chunks_exact(2).zip(in_ranges).all(|(range, value)| (range[0]..=range[1]).contains(value))
                }
                Some(long) => within(long, ranges, in_ranges),
            }
    }

    fn key(&self, slot: u32) -> &[u64] {
        let row = slot as usize * self.shape.len;
        &self.rows[row..row + self.key_words]
    }

    /// Returns the hash of a key in the group of entries that share its mask; group 0 in exact tables.
    #[inline]
    fn hash(&self, group: u32, key: impl Iterator<Item = u64>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.for_each(|word| hasher.write_u64(word));
        if group > 0 {
            hasher.write_u32(group);
        }
        hasher.finish()
    }

    /// Puts a new entry into a free slot. `row` is complete, its key masked.
    pub fn insert(&mut self, slot: u32, row: &[u64], priority: i32) {
        let start = slot as usize * self.shape.len;
        self.rows[start..start + self.shape.len].copy_from_slice(row);
        self.priorities[slot as usize] = priority;
        if let Some(stats) = self.stats.get(slot as usize) {
            stats.packets.store(0, Relaxed);
            stats.bytes.store(0, Relaxed);
        }
        let key = row[..self.key_words].iter().copied();
        let exact = self.hash(0, key.clone());
        // The index is taken out so that it can be changed while rows are read.
        let mut index = std::mem::replace(&mut self.index, Index::None);
        match &mut index {
            Index::None => {}
            Index::Direct(slots) => slots[row[0] as usize] = slot,
            Index::Exact(chains) => chains.insert(exact, slot),
            Index::Masked(masks) => {
                let group = masks.add(&row[self.shape.mask..self.shape.ranges], priority);
                masks.entries.insert(self.hash(group, key), slot);
            }
            Index::Scan(order) => {
                let at = order.partition_point(|&other| self.priorities[other as usize] >= priority);
                order.insert(at, slot);
            }
        }
        self.index = index;
    }

    /// Replaces action and parameters.
    pub fn modify(&mut self, slot: u32, action: &[u64]) {
        let row = slot as usize * self.shape.len;
        self.rows[row + self.shape.action..row + self.shape.len].copy_from_slice(action);
    }

    pub fn remove(&mut self, slot: u32) {
        let row = slot as usize * self.shape.len;
        let priority = self.priorities[slot as usize];
        match &mut self.index {
            Index::None => {}
            Index::Direct(slots) => slots[self.rows[row] as usize] = NO_SLOT,
            Index::Exact(chains) => chains.remove(slot),
            Index::Masked(masks) => {
                masks.entries.remove(slot);
                masks.remove(&self.rows[row + self.shape.mask..row + self.shape.ranges], priority);
            }
            Index::Scan(order) => {
                // Only among those of its priority.
                let from = order.partition_point(|&other| self.priorities[other as usize] > priority);
                if let Some(at) = order[from..].iter().position(|&other| other == slot) {
                    order.remove(from + at);
                }
            }
        }
        if let Some(meter) = self.meters.get_mut(slot as usize) {
            *meter = None;
        }
    }
}

/// Every value lies in its range; `words`: of each.
fn within(words: &[usize], mut ranges: &[u64], mut values: &[u64]) -> bool {
    words.iter().all(|&words| {
        let (low, rest) = ranges.split_at(words);
        let (high, rest) = rest.split_at(words);
        let (value, others) = values.split_at(words);
        (ranges, values) = (rest, others);
        low <= value && value <= high
    })
}

/// Keys are a few words: comparing them here is faster than calling memcmp.
#[inline]
fn equal(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::*;
    use crate::program::Program;

    const SLOTS: usize = 100_000;

    /// A table of `testdata/programs/features.p4` with other numbers of entries.
    fn table(name: &str) -> Table {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
        let program = Program::load(&std::fs::read(path).unwrap()).unwrap();
        let index = program.tables.iter().position(|table| table.name.ends_with(name)).unwrap();
        let mut code = program.code.tables[index].clone();
        (code.max_size, code.matching) = (SLOTS, Matching::Masked);
        Table::new(&code, Arc::from([]), 1)
    }

    impl Table {
        fn steps(&self) -> usize {
            match &self.index {
                Index::Exact(chains) => chains.steps.take(),
                Index::Masked(masks) => masks.entries.steps.take(),
                _ => 0,
            }
        }
    }

    /// 100,000 entries, then as many changes: one goes and another comes. No change looks at another entry than its
    /// neighbours, a lookup at no more than at the start, and the answers are those of a plain search.
    fn churn(name: &str, row: impl Fn(&mut Rng, usize) -> (Vec<u64>, i32)) {
        let mut table = table(name);
        let mut rng = Rng::with_seed(7);
        let (action, len) = (table.shape.action, table.shape.len);
        let mut entries: HashMap<(Vec<u64>, i32), u32> = HashMap::new();
        let mut slots: Vec<Option<(Vec<u64>, i32)>> = vec![None; SLOTS];
        let fill = |table: &mut Table,
                    slots: &mut Vec<Option<(Vec<u64>, i32)>>,
                    entries: &mut HashMap<_, u32>,
                    rng: &mut Rng,
                    slot| {
            let (mut match_words, priority) = loop {
                let entry = row(rng, action);
                if !entries.contains_key(&entry) {
                    break entry;
                }
            };
            entries.insert((match_words.clone(), priority), slot);
            slots[slot as usize] = Some((match_words.clone(), priority));
            match_words.resize(len, 0);
            table.insert(slot, &match_words, priority);
        };
        (0..SLOTS as u32).for_each(|slot| fill(&mut table, &mut slots, &mut entries, &mut rng, slot));
        let look = |table: &Table, slots: &[Option<(Vec<u64>, i32)>], rng: &mut Rng| {
            table.steps();
            for _ in 0..1000 {
                let (words, _) = slots[rng.usize(..SLOTS)].as_ref().unwrap();
                assert!(table.lookup(&words[..table.key_words]).is_some());
            }
            table.steps()
        };
        let before = look(&table, &slots, &mut rng);
        table.steps();
        for _ in 0..SLOTS {
            let slot = rng.u32(..SLOTS as u32);
            entries.remove(&slots[slot as usize].take().unwrap());
            table.remove(slot);
            fill(&mut table, &mut slots, &mut entries, &mut rng, slot);
        }
        assert_eq!(table.steps(), 0, "a change looked for its entry");
        let after = look(&table, &slots, &mut rng);
        assert!(after < before + before / 4 + 100, "{before} steps of 1000 lookups became {after}");
        for _ in 0..100 {
            let key = row(&mut rng, action).0;
            let key = &key[..table.key_words];
            let matches = |words: &[u64]| {
                let mask = &words[table.shape.mask..table.shape.ranges];
                key.iter().zip(mask).zip(words).all(|((key, mask), value)| key & mask == *value)
            };
            let best = slots.iter().flatten().filter(|(words, _)| matches(words)).map(|(_, priority)| *priority).max();
            assert_eq!(table.lookup(key).map(|slot| table.priorities[slot as usize]), best);
        }
    }

    #[test]
    fn prefixes_come_and_go_in_a_handful_of_steps() {
        churn("prefixes", |rng, words| {
            let length = rng.u32(24..=128);
            let mask = u128::MAX << (128 - length);
            let value = (rng.u128(..) >> 104 << 104 | rng.u128(..) >> 24) & mask;
            // Two words of key and of mask each, in the order of the table's packed key.
            let [low, high] = [value as u64, (value >> 64) as u64];
            let [mask_low, mask_high] = [mask as u64, (mask >> 64) as u64];
            let row = vec![low, high, mask_low, mask_high];
            assert_eq!(row.len(), words);
            (row, length as i32)
        });
    }

    #[test]
    fn masks_come_and_go_in_a_handful_of_steps() {
        churn("masks", |rng, words| {
            assert_eq!(words, 2);
            // 16 masks, each with many priorities.
            let mask = 0xff_ffff_ff00 | rng.u64(..16) << 4;
            (vec![rng.u64(..1 << 40) & mask, mask], rng.i32(1..1_000_000))
        });
    }
}
