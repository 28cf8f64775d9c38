// SPDX-License-Identifier: Apache-2.0
//! Chains of the slots of entries, by the key's hash. Entries come and go in a handful of steps, whatever happened
//! before: the memory is there from the start, nothing is ever moved, and nothing is left behind of an entry that goes
//! (as a hash table with open addresses leaves its tombstones, and cleans up at some time).

#[cfg(test)]
use std::cell::Cell;

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// Mark of the first link of a chain: the chain itself comes before it.
const FIRST: u32 = 1 << 31;

/// Neighbours of a slot in its chain.
#[derive(Clone, Copy)]
struct Link {
    next: u32,
    /// A slot, or [`FIRST`] and the number of the chain.
    previous: u32,
}

pub struct Chains {
    /// The first slot of each; twice as many as there may be entries, so that most are short.
    first: Box<[u32]>,
    /// By slot.
    links: Box<[Link]>,
    /// Slots that were looked at.
    #[cfg(test)]
    pub steps: Cell<usize>,
}

impl Chains {
    /// Makes chains for slots below `slots`.
    pub fn new(slots: usize) -> Chains {
        let chains = (2 * slots).next_power_of_two();
        assert!(chains <= FIRST as usize, "a table of {slots} entries");
        Chains {
            first: vec![NONE; chains].into(),
            links: vec![Link { next: NONE, previous: NONE }; slots].into(),
            #[cfg(test)]
            steps: Cell::new(0),
        }
    }

    #[inline]
    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.first.len() - 1)
    }

    /// The slots whose keys may have this hash.
    #[inline]
    pub fn slots(&self, hash: u64) -> impl Iterator<Item = u32> {
        let mut next = self.first[self.chain(hash)];
        std::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            let slot = next;
            next = self.links[slot as usize].next;
            Some(slot)
        })
    }

    /// Adds a slot that is in no chain.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let chain = self.chain(hash);
        let next = std::mem::replace(&mut self.first[chain], slot);
        self.links[slot as usize] = Link { next, previous: FIRST | chain as u32 };
        if next != NONE {
            self.links[next as usize].previous = slot;
        }
    }

    /// Takes a slot that is in a chain out of it.
    pub fn remove(&mut self, slot: u32) {
        let Link { next, previous } = self.links[slot as usize];
        match previous & FIRST {
            0 => self.links[previous as usize].next = next,
            _ => self.first[(previous & !FIRST) as usize] = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chains_hold_what_was_inserted_and_not_removed(changes in prop::collection::vec((0u32..40, 0u64..8), 0..400)) {
            let mut chains = Chains::new(40);
            let mut expected: HashMap<u32, u64> = HashMap::new();
            for (slot, hash) in changes {
                match expected.remove(&slot) {
                    Some(_) => chains.remove(slot),
                    None => {
                        chains.insert(hash, slot);
                        expected.insert(slot, hash);
                    }
                }
                for hash in 0..8 {
                    let found: Vec<u32> = chains.slots(hash).collect();
                    let unique: HashSet<u32> = found.iter().copied().collect();
                    let wanted = expected.iter().filter(|(_, other)| **other == hash).map(|(slot, _)| *slot);
                    prop_assert_eq!((found.len(), unique), (unique_len(&found), wanted.collect()));
                }
            }
        }
    }

    fn unique_len(slots: &[u32]) -> usize {
        slots.iter().collect::<HashSet<_>>().len()
    }
}
