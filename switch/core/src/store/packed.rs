// SPDX-License-Identifier: Apache-2.0
//! The entries of one table. There may be millions: each is a row of words, with what few entries have beside it.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::dataplane_ops::MeterConfig;
use crate::profiles::OneShot;
use crate::state::code::TableCode;
use crate::state::table::RowShape;
use crate::write_api::WeightedCall;

/// State of an entry that its row does not hold.
#[derive(Clone, Debug)]
pub struct Stored {
    /// ns; 0: never.
    pub idle_timeout: u64,
    /// Time at which the entry was inserted, modified or last reported as idle (ns).
    pub seen: u64,
    pub is_const: bool,
    extras: Option<Box<EntryExtras>>,
}

/// Data that few entries have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntryExtras {
    pub meter: Option<MeterConfig>,
    pub cookie: Box<[u8]>,
    pub one_shot: Option<Box<OneShotGroup>>,
}

/// A one-shot group, as written and as its profile holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct OneShotGroup {
    pub calls: Vec<WeightedCall>,
    pub slots: OneShot,
}

/// As few bytes as that, for each entry.
const _: () = assert!(size_of::<Option<Stored>>() == 32);

impl Stored {
    pub fn new(idle_timeout: u64, seen: u64, is_const: bool, extras: EntryExtras) -> Stored {
        Stored { idle_timeout, seen, is_const, extras: extras.boxed() }
    }

    pub fn meter(&self) -> Option<MeterConfig> {
        self.extras.as_ref()?.meter
    }

    pub fn set_meter(&mut self, meter: Option<MeterConfig>) {
        let extras = self.extras.take().map_or_else(EntryExtras::default, |extras| *extras);
        self.extras = EntryExtras { meter, ..extras }.boxed();
    }

    pub fn cookie(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.cookie)
    }

    pub fn one_shot(&self) -> Option<&OneShotGroup> {
        self.extras.as_ref()?.one_shot.as_deref()
    }
}

impl EntryExtras {
    fn boxed(self) -> Option<Box<EntryExtras>> {
        (self != EntryExtras::default()).then(|| Box::new(self))
    }
}

/// Entries by slot and by what names them: their key, as it stands in the rows of [`crate::state::table`], and their
/// priority.
pub struct Packed {
    /// Words of the key and of the whole row: key | action | priority, which is left out where there is none.
    key: usize,
    len: usize,
    has_priority: bool,
    rows: Vec<u64>,
    stored: Vec<Option<Stored>>,
    slots: HashTable<u32>,
    hasher: RandomState,
    free: Vec<u32>,
}

impl Packed {
    pub fn new(code: &TableCode, has_priority: bool) -> Packed {
        let shape = RowShape::new(code);
        Packed {
            key: shape.action,
            len: shape.len + has_priority as usize,
            has_priority,
            rows: Vec::new(),
            stored: Vec::new(),
            slots: HashTable::new(),
            hasher: RandomState::default(),
            free: Vec::new(),
        }
    }

    /// Copies it without the index: entries are read by slot, and none is found by key.
    pub fn without_index(&self) -> Packed {
        Packed {
            rows: self.rows.clone(),
            stored: self.stored.clone(),
            slots: HashTable::new(),
            hasher: self.hasher.clone(),
            free: Vec::new(),
            ..*self
        }
    }

    /// Bytes of an entry without what few have.
    pub fn bytes_of_one(&self) -> usize {
        8 * self.len + size_of::<Option<Stored>>()
    }

    pub fn len(&self) -> usize {
        self.stored.len() - self.free.len()
    }

    /// Slots up to the last that was ever taken.
    pub fn slots(&self) -> Range<u32> {
        0..self.stored.len() as u32
    }

    pub fn get(&self, slot: u32) -> Option<&Stored> {
        self.stored.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Stored> {
        self.stored.get_mut(slot as usize)?.as_mut()
    }

    pub fn key(&self, slot: u32) -> &[u64] {
        &self.rows[self.row(slot)][..self.key]
    }

    /// The words of the action.
    pub fn action(&self, slot: u32) -> &[u64] {
        &self.rows[self.row(slot)][self.key..self.len - self.has_priority as usize]
    }

    pub fn priority(&self, slot: u32) -> i32 {
        if self.has_priority { self.rows[self.row(slot)][self.len - 1] as i32 } else { 0 }
    }

    fn row(&self, slot: u32) -> Range<usize> {
        let start = slot as usize * self.len;
        start..start + self.len
    }

    fn hash(&self, key: &[u64], priority: i32) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.iter().for_each(|&word| hasher.write_u64(word));
        hasher.write_i32(priority);
        hasher.finish()
    }

    fn is_at(&self, slot: u32, key: &[u64], priority: i32) -> bool {
        self.key(slot) == key && self.priority(slot) == priority
    }

    pub fn find(&self, key: &[u64], priority: i32) -> Option<u32> {
        self.slots.find(self.hash(key, priority), |&slot| self.is_at(slot, key, priority)).copied()
    }

    /// Puts in an entry of which there is none yet; `row`: key and action.
    pub fn insert(&mut self, row: &[u64], priority: i32, stored: Stored) -> u32 {
        let slot = self.free.pop().unwrap_or(self.stored.len() as u32);
        if slot as usize == self.stored.len() {
            self.stored.push(None);
            self.rows.resize(self.rows.len() + self.len, 0);
        }
        let range = self.row(slot);
        self.rows[range.clone()][..row.len()].copy_from_slice(row);
        if self.has_priority {
            self.rows[range.end - 1] = priority as u64;
        }
        self.stored[slot as usize] = Some(stored);
        let hash = self.hash(&row[..self.key], priority);
        // The index is taken out so that it can grow while rows are read.
        let mut slots = std::mem::take(&mut self.slots);
        slots.insert_unique(hash, slot, |&other| self.hash(self.key(other), self.priority(other)));
        self.slots = slots;
        slot
    }

    pub fn set_action(&mut self, slot: u32, action: &[u64]) {
        let start = self.row(slot).start + self.key;
        self.rows[start..start + action.len()].copy_from_slice(action);
    }

    /// Takes an entry out; its row stays until the slot is taken again.
    pub fn remove(&mut self, slot: u32) -> Option<Stored> {
        let stored = self.stored.get_mut(slot as usize)?.take()?;
        let hash = self.hash(self.key(slot), self.priority(slot));
        if let Ok(entry) = self.slots.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        Some(stored)
    }
}
