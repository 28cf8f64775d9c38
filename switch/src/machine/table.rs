// SPDX-License-Identifier: Apache-2.0
//! Match-action tables: finding the entry of a key, and changing entries without ever leaving a table half changed.
//!
//! An entry lives in a slot chosen by the control plane. Its row holds, in 64-bit words:
//! packed key | mask (not in exact tables) | low and high of each range, high word first | action index | parameters.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::code::{Matching, TableCode};
use super::meter::Meter;

/// What the packet thread counts for an entry, read by everybody. Only the packet thread writes.
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

/// Entries that share a mask.
struct Group {
    mask: Box<[u64]>,
    /// Highest priority among the entries.
    priority: i32,
    slots: HashTable<u32>,
}

enum Index {
    None,
    /// By key; [`NO_SLOT`] where there is no entry.
    Direct(Box<[u32]>),
    Exact(HashTable<u32>),
    /// By descending priority of the group.
    Masked(Vec<Group>),
    /// By descending priority.
    Scan(Vec<u32>),
}

/// Addresses of the parts that native code reads itself; right after every change.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Parts {
    pub rows: usize,
    /// Of a table that is indexed directly: the slots by key.
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
}

impl Table {
    /// `seed` makes the hash differ between runs. `stats` has a cell for each slot and the default entry, or none.
    pub fn new(code: &TableCode, stats: Arc<[EntryStats]>, seed: u64) -> Table {
        let shape = RowShape::new(code);
        let index = match code.matching {
            Matching::None => Index::None,
            Matching::Direct => Index::Direct(vec![NO_SLOT; 1 << code.key_bits].into()),
            // All the memory is there from the start: an insert never rehashes.
            Matching::Exact => Index::Exact(HashTable::with_capacity(code.max_size)),
            Matching::Masked => Index::Masked(Vec::new()),
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

    /// Where the default entry has its counter and meter.
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
            Index::Exact(slots) => {
                slots.find(self.hash(key.iter().copied()), |&slot| equal(self.key(slot), key)).copied()
            }
            Index::Masked(groups) => self.lookup_masked(groups, key),
            Index::Scan(order) => order.iter().copied().find(|&slot| self.matches(slot, values)),
        }
    }

    fn lookup_masked(&self, groups: &[Group], key: &[u64]) -> Option<u32> {
        let mut best: Option<(i32, u32)> = None;
        for group in groups {
            if best.is_some_and(|(priority, _)| priority >= group.priority) {
                break;
            }
            let masked = || key.iter().zip(&group.mask).map(|(key, mask)| key & mask);
            for &slot in group.slots.iter_hash(self.hash(masked())) {
                let priority = self.priorities[slot as usize];
                if self.key(slot).iter().copied().eq(masked()) && best.is_none_or(|(other, _)| priority > other) {
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

    #[inline]
    fn hash(&self, key: impl Iterator<Item = u64>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.for_each(|word| hasher.write_u64(word));
        hasher.finish()
    }

    /// The hash of an entry's key.
    fn hash_of(&self, slot: u32) -> u64 {
        self.hash(self.key(slot).iter().copied())
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
        let hash = self.hash_of(slot);
        // The index is taken out so that it can be changed while rows are read.
        let mut index = std::mem::replace(&mut self.index, Index::None);
        match &mut index {
            Index::None => {}
            Index::Direct(slots) => slots[row[0] as usize] = slot,
            Index::Exact(slots) => {
                slots.insert_unique(hash, slot, |&other| self.hash_of(other));
            }
            Index::Masked(groups) => {
                let mask = &row[self.shape.mask..self.shape.ranges];
                let mut group = match groups.iter().position(|g| *g.mask == *mask) {
                    Some(at) => groups.remove(at),
                    None => Group { mask: mask.into(), priority, slots: HashTable::new() },
                };
                group.priority = group.priority.max(priority);
                group.slots.insert_unique(hash, slot, |&other| self.hash_of(other));
                let at = groups.partition_point(|g| g.priority >= group.priority);
                groups.insert(at, group);
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
        let hash = self.hash_of(slot);
        let row = slot as usize * self.shape.len;
        match &mut self.index {
            Index::None => {}
            Index::Direct(slots) => slots[self.rows[row] as usize] = NO_SLOT,
            Index::Exact(slots) => {
                if let Ok(entry) = slots.find_entry(hash, |&other| other == slot) {
                    entry.remove();
                }
            }
            Index::Masked(groups) => {
                let mask = &self.rows[row + self.shape.mask..row + self.shape.ranges];
                let Some(at) = groups.iter().position(|g| *g.mask == *mask) else { return };
                let mut group = groups.remove(at);
                if let Ok(entry) = group.slots.find_entry(hash, |&other| other == slot) {
                    entry.remove();
                }
                let priorities = &self.priorities;
                if let Some(priority) = group.slots.iter().map(|&slot| priorities[slot as usize]).max() {
                    group.priority = priority;
                    let at = groups.partition_point(|g| g.priority >= priority);
                    groups.insert(at, group);
                }
            }
            Index::Scan(order) => order.retain(|&other| other != slot),
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
