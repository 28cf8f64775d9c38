// SPDX-License-Identifier: Apache-2.0
//! The index of LPM and ternary tables: tuple space search (Srinivasan, Suri, Varghese, Packet Classification using
//! Tuple Space Search, SIGCOMM 1999). Entries with the same mask are a group; a lookup asks the groups one after the
//! other, those with the highest priority first, for an entry with the masked key.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::chains::Chains;

/// Entries that share a mask.
struct Group {
    mask: Box<[u64]>,
    /// Number of entries by priority.
    priorities: BTreeMap<i32, u32>,
}

pub struct Masks {
    groups: Vec<Group>,
    /// Groups without entries, to be used again.
    free: Vec<u32>,
    by_mask: HashMap<Box<[u64]>, u32, FixedState>,
    /// Highest priority of each group that has entries; in this order.
    order: Vec<(Reverse<i32>, u32)>,
    /// Entries of all groups, by masked key and group.
    pub entries: Chains,
}

impl Masks {
    pub fn new(slots: usize, seed: u64) -> Masks {
        Masks {
            groups: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: Vec::new(),
            entries: Chains::new(slots),
        }
    }

    /// Highest priority, number and mask of each group, by descending priority.
    #[inline]
    pub fn groups(&self) -> impl Iterator<Item = (i32, u32, &[u64])> {
        self.order.iter().map(|&(Reverse(priority), group)| (priority, group, &*self.groups[group as usize].mask))
    }

    /// Counts another entry; the number of its group.
    pub fn add(&mut self, mask: &[u64], priority: i32) -> u32 {
        let group = match self.by_mask.get(mask) {
            Some(group) => *group,
            None => self.create(mask),
        };
        self.count(group, |priorities| *priorities.entry(priority).or_default() += 1);
        group
    }

    /// Counts an entry less.
    pub fn remove(&mut self, mask: &[u64], priority: i32) {
        let Some(&group) = self.by_mask.get(mask) else { return };
        self.count(group, |priorities| {
            if let Some(number) = priorities.get_mut(&priority) {
                *number -= 1;
                if *number == 0 {
                    priorities.remove(&priority);
                }
            }
        });
        if self.groups[group as usize].priorities.is_empty() {
            self.by_mask.remove(mask);
            self.free.push(group);
        }
    }

    fn create(&mut self, mask: &[u64]) -> u32 {
        let group = Group { mask: mask.into(), priorities: BTreeMap::new() };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        };
        self.by_mask.insert(mask.into(), number);
        number
    }

    /// Changes what is counted of a group, and keeps the groups in their order.
    fn count(&mut self, number: u32, change: impl FnOnce(&mut BTreeMap<i32, u32>)) {
        let priorities = &mut self.groups[number as usize].priorities;
        let highest = |priorities: &BTreeMap<i32, u32>| priorities.last_key_value().map(|(&priority, _)| priority);
        let before = highest(priorities);
        change(priorities);
        let after = highest(priorities);
        if before == after {
            return;
        }
        if let Some(at) = before.and_then(|before| self.order.binary_search(&(Reverse(before), number)).ok()) {
            self.order.remove(at);
        }
        if let Some(place) = after.map(|after| (Reverse(after), number)) {
            let at = self.order.partition_point(|other| *other < place);
            self.order.insert(at, place);
        }
    }
}
