// SPDX-License-Identifier: Apache-2.0
//! The filter of one digest: a value that was sent and not yet acknowledged is not sent again (P4Runtime 9.2.7).
//! Memory is bounded: the oldest values are forgotten first, which only makes them be sent again.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::program::Value;

const MAX_UNACKNOWLEDGED: usize = 16_384;

struct Sent {
    sequence: u64,
    at: u64,
    values: Box<[Value]>,
    hash: u64,
    acknowledged: bool,
}

pub struct DigestFilter {
    /// ns; 0: nothing is suppressed.
    ack_timeout: u64,
    hasher: FixedState,
    /// In the order of their sequence numbers, without gaps.
    sent: VecDeque<Sent>,
    /// Sequence numbers by value.
    index: HashTable<u64>,
    next_sequence: u64,
}

impl DigestFilter {
    pub fn new(ack_timeout: u64, seed: u64) -> DigestFilter {
        DigestFilter {
            ack_timeout,
            hasher: FixedState::with_seed(seed),
            sent: VecDeque::new(),
            index: HashTable::new(),
            next_sequence: 0,
        }
    }

    /// The value is to be sent at `now` (ns).
    pub fn wants(&mut self, values: &[Value], now: u64) -> bool {
        while self.sent.front().is_some_and(|s| s.acknowledged || s.at.saturating_add(self.ack_timeout) <= now) {
            self.forget_oldest();
        }
        let hash = self.hasher.hash_one(values);
        let first = self.sent.front().map_or(0, |s| s.sequence);
        self.index.find(hash, |&sequence| *self.sent[(sequence - first) as usize].values == *values).is_none()
    }

    /// Remembers the value as sent; its sequence number.
    pub fn sent(&mut self, values: &[Value], now: u64) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if self.ack_timeout == 0 {
            return sequence;
        }
        if self.sent.len() == MAX_UNACKNOWLEDGED {
            self.forget_oldest();
        }
        let hash = self.hasher.hash_one(values);
        let Self { sent, index, .. } = self;
        let first = sent.front().map_or(sequence, |s| s.sequence);
        sent.push_back(Sent { sequence, at: now, values: values.into(), hash, acknowledged: false });
        index.insert_unique(hash, sequence, |&other| sent[(other - first) as usize].hash);
        sequence
    }

    /// The values with these sequence numbers may be sent again.
    pub fn acknowledge(&mut self, sequences: &[u64]) {
        let Some(first) = self.sent.front().map(|s| s.sequence) else { return };
        for &sequence in sequences {
            let Some(at) = sequence.checked_sub(first) else { continue };
            let Some(sent) = self.sent.get_mut(at as usize) else { continue };
            sent.acknowledged = true;
            if let Ok(entry) = self.index.find_entry(sent.hash, |&other| other == sequence) {
                entry.remove();
            }
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(sent) = self.sent.pop_front()
            && let Ok(entry) = self.index.find_entry(sent.hash, |&other| other == sent.sequence)
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<const N: usize>(numbers: [u64; N]) -> [Value; N] {
        numbers.map(Value::from)
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_value_is_sent_once_until_acknowledged() {
        let mut filter = DigestFilter::new(SECOND, 1);
        assert!(filter.wants(&values([1, 2]), 0));
        let sequence = filter.sent(&values([1, 2]), 0);
        assert!(!filter.wants(&values([1, 2]), 10));
        assert!(filter.wants(&values([1, 3]), 10));
        filter.acknowledge(&[sequence]);
        assert!(filter.wants(&values([1, 2]), 20));
    }

    #[test]
    fn an_unacknowledged_value_is_sent_again_after_the_timeout() {
        let mut filter = DigestFilter::new(SECOND, 1);
        filter.sent(&values([1]), 0);
        assert!(!filter.wants(&values([1]), SECOND - 1));
        assert!(filter.wants(&values([1]), SECOND));
    }

    #[test]
    fn without_a_timeout_nothing_is_suppressed() {
        let mut filter = DigestFilter::new(0, 1);
        assert_eq!(filter.sent(&values([1]), 0), 0);
        assert!(filter.wants(&values([1]), 0));
        assert_eq!(filter.sent(&values([1]), 0), 1);
    }

    #[test]
    fn the_oldest_values_are_forgotten_when_there_are_too_many() {
        let mut filter = DigestFilter::new(SECOND, 1);
        let count = MAX_UNACKNOWLEDGED as u64 + 1;
        (0..count).for_each(|value| assert_eq!(filter.sent(&values([value]), 0), value));
        assert!(filter.wants(&values([0]), 0));
        assert!((1..count).all(|value| !filter.wants(&values([value]), 0)));
        // Unknown and repeated acknowledgements are harmless.
        filter.acknowledge(&[0, 5, 5, 1 << 40]);
        assert!(filter.wants(&values([5]), 0));
        assert!(!filter.wants(&values([6]), 0));
    }
}
