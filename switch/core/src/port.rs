// SPDX-License-Identifier: Apache-2.0
//! Counts of a port and of each of its queues: by the packet thread in cells, without locks or memory, and by
//! whoever reads them as values.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::scheduler::{PLACES, QUEUES};

pub type PortNumber = u16;

/// Counted since the start of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets that its full queues turned away or pushed out.
    pub queue_drops: u64,
    /// Frames lost by the link model.
    pub lost: u64,
    /// Frames that the interface did not take.
    pub tx_errors: u64,
    /// Frames that the kernel dropped because they were not fetched in time, or that were longer than a buffer.
    pub rx_errors: u64,
    /// In the queues now.
    pub queue_packets: u64,
    pub queue_bytes: u64,
}

impl fmt::Display for PortStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortStats { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = self;
        write!(f, "received {rx_packets} packets ({rx_bytes} bytes), sent {tx_packets} ({tx_bytes} bytes)")?;
        let others = [
            ("dropped by full queues", self.queue_drops),
            ("lost by the link model", self.lost),
            ("not sent", self.tx_errors),
            ("not received", self.rx_errors),
            ("waiting", self.queue_packets),
        ];
        others.iter().filter(|(_, count)| *count > 0).try_for_each(|(name, count)| write!(f, ", {count} {name}"))
    }
}

/// One queue, counted since the start of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub enqueued_packets: u64,
    pub enqueued_bytes: u64,
    /// Went on the wire, as egress made them.
    pub sent_packets: u64,
    pub sent_bytes: u64,
    /// Turned away, or pushed out after they were enqueued.
    pub dropped_packets: u64,
    pub dropped_bytes: u64,
    /// In the queue now.
    pub packets: u64,
    pub bytes: u64,
    /// Most that was in the queue at a time.
    pub max_bytes: u64,
}

/// [`PortStats`] as the packet thread writes them, and what was sent as the I/O threads do, where the port has some.
#[derive(Default)]
pub struct PortCells {
    pub rx_packets: AtomicU64,
    pub rx_bytes: AtomicU64,
    pub tx_packets: AtomicU64,
    pub tx_bytes: AtomicU64,
    pub queue_drops: AtomicU64,
    pub lost: AtomicU64,
    pub tx_errors: AtomicU64,
    pub rx_errors: AtomicU64,
    pub queue_packets: AtomicU64,
    pub queue_bytes: AtomicU64,
    pub queues: PlaceCells,
    /// Time (ns) that packets were in each queue; in queue 0: or in one of its lanes.
    pub sojourn: [Histogram; QUEUES],
}

/// Queues and lanes of a port.
pub struct PlaceCells([QueueCells; PLACES]);

impl Default for PlaceCells {
    fn default() -> PlaceCells {
        PlaceCells(std::array::from_fn(|_| QueueCells::default()))
    }
}

impl Deref for PlaceCells {
    type Target = [QueueCells; PLACES];

    #[inline]
    fn deref(&self) -> &[QueueCells; PLACES] {
        &self.0
    }
}

/// [`QueueStats`] as the packet thread writes them. What is in the queue is what went in and did not come out.
#[derive(Default)]
pub struct QueueCells {
    pub enqueued_packets: AtomicU64,
    pub enqueued_bytes: AtomicU64,
    pub dequeued_packets: AtomicU64,
    pub dequeued_bytes: AtomicU64,
    pub sent_packets: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub dropped_packets: AtomicU64,
    pub dropped_bytes: AtomicU64,
    pub max_bytes: AtomicU64,
}

/// The one writer's way to count: no locked instruction.
#[inline]
pub fn count(cell: &AtomicU64, amount: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(amount), Relaxed);
}

impl PortCells {
    /// Records what waits in the queues now.
    #[inline]
    pub fn holds(&self, packets: usize, bytes: u64) {
        self.queue_packets.store(packets as u64, Relaxed);
        self.queue_bytes.store(bytes, Relaxed);
    }

    /// Counts a packet that leaves a queue after `sojourn` ns.
    #[inline]
    pub fn dequeued(&self, place: usize, bytes: u64, sojourn: u64) {
        self.queues[place].dequeued(bytes);
        self.sojourn[if place < QUEUES { place } else { 0 }].add(sojourn);
    }

    pub fn read(&self) -> PortStats {
        PortStats {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            queue_drops: self.queue_drops.load(Relaxed),
            lost: self.lost.load(Relaxed),
            tx_errors: self.tx_errors.load(Relaxed),
            rx_errors: self.rx_errors.load(Relaxed),
            queue_packets: self.queue_packets.load(Relaxed),
            queue_bytes: self.queue_bytes.load(Relaxed),
        }
    }
}

impl QueueCells {
    #[inline]
    pub fn enqueued(&self, bytes: u64, depth_bytes: u64) {
        count(&self.enqueued_packets, 1);
        count(&self.enqueued_bytes, bytes);
        if depth_bytes > self.max_bytes.load(Relaxed) {
            self.max_bytes.store(depth_bytes, Relaxed);
        }
    }

    #[inline]
    fn dequeued(&self, bytes: u64) {
        count(&self.dequeued_packets, 1);
        count(&self.dequeued_bytes, bytes);
    }

    #[inline]
    pub fn sent(&self, bytes: u64) {
        count(&self.sent_packets, 1);
        count(&self.sent_bytes, bytes);
    }

    pub fn dropped(&self, bytes: u64) {
        count(&self.dropped_packets, 1);
        count(&self.dropped_bytes, bytes);
    }

    /// A packet had to make room for another one.
    pub fn pushed_out(&self, bytes: u64) {
        self.dequeued(bytes);
        self.dropped(bytes);
    }

    /// The queue was emptied, not served.
    pub fn cleared(&self) {
        self.dequeued_packets.store(self.enqueued_packets.load(Relaxed), Relaxed);
        self.dequeued_bytes.store(self.enqueued_bytes.load(Relaxed), Relaxed);
    }

    pub fn read(&self) -> QueueStats {
        // Departures first: what comes meanwhile makes the queue longer, never shorter than nothing.
        let (left_packets, left_bytes) = (self.dequeued_packets.load(Relaxed), self.dequeued_bytes.load(Relaxed));
        let (packets, bytes) = (self.enqueued_packets.load(Relaxed), self.enqueued_bytes.load(Relaxed));
        QueueStats {
            enqueued_packets: packets,
            enqueued_bytes: bytes,
            sent_packets: self.sent_packets.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            dropped_packets: self.dropped_packets.load(Relaxed),
            dropped_bytes: self.dropped_bytes.load(Relaxed),
            packets: packets.saturating_sub(left_packets),
            bytes: bytes.saturating_sub(left_bytes),
            max_bytes: self.max_bytes.load(Relaxed),
        }
    }
}

/// Bits of a value below its highest one that tell buckets apart: a bucket is at most 1/16 of its values wide.
const PRECISION: u32 = 4;
const LINEAR: u64 = 1 << PRECISION;
/// Values from 2^36 ns (69 s) on share the last buckets.
const HIGHEST_BIT: u32 = 35;
pub const BUCKETS: usize = ((HIGHEST_BIT - PRECISION + 2) << PRECISION) as usize;

/// Histogram of values in ns, in buckets that get wider with the values.
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    #[inline]
    pub fn add(&self, ns: u64) {
        count(&self.0[bucket(ns)], 1);
    }

    pub fn read(&self) -> Box<[u64]> {
        self.0.iter().map(|cell| cell.load(Relaxed)).collect()
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    if ns < LINEAR {
        return ns as usize;
    }
    let highest = 63 - ns.leading_zeros();
    let index = ((highest - PRECISION) as usize) << PRECISION;
    (index + (ns >> (highest - PRECISION)) as usize).min(BUCKETS - 1)
}

/// The middle of a bucket's values, ns.
fn middle(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u64 >> PRECISION, bucket as u64 & (LINEAR - 1));
    if octave == 0 {
        return step;
    }
    let width = 1 << (octave - 1);
    (LINEAR + step) * width + width / 2
}

/// The smallest value (ns) that a part of `part` of all values does not exceed, within 1/32 of it; `None`: there are no
/// values.
pub fn quantile(counts: &[u64], part: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let rank = ((total as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    at.map(middle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_and_end() {
        let mut last = 0;
        for ns in (0..100_000).chain((17..64).map(|bit| 1 << bit)) {
            let bucket = bucket(ns);
            assert!(bucket == last || bucket == last + 1 || ns > 99_999, "{ns}");
            last = bucket;
        }
        assert_eq!((bucket((1 << 36) - 1), bucket(1 << 36), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1, BUCKETS - 1));
        assert_eq!(bucket(0), 0);
    }

    #[test]
    fn no_values_have_no_quantile() {
        assert_eq!(quantile(&Histogram::default().read(), 0.5), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_values(
            mut values in prop::collection::vec((0u32..36).prop_flat_map(|bits| 0..1u64 << bits), 1..300),
            part in 0.01f64..1.0,
        ) {
            let histogram = Histogram::default();
            values.iter().for_each(|&ns| histogram.add(ns));
            values.sort_unstable();
            let exact = values[(values.len() as f64 * part).ceil() as usize - 1];
            let found = quantile(&histogram.read(), part).unwrap();
            prop_assert!(found.abs_diff(exact) <= exact / 32, "{found} for {exact}");
        }
    }
}
