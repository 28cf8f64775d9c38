// SPDX-License-Identifier: Apache-2.0
//! Access points for tests: records of a trial on a path whose buffer is known.

use std::collections::VecDeque;

use super::estimate::{Estimate, Limit, estimate, limit};
use super::trace::{Finding, Trace};
use crate::bootstrap::SplitMix;

#[derive(Clone)]
struct Path {
    /// bit/s at the bottleneck; 0: none.
    rate: f64,
    /// Packets that may wait.
    buffer: usize,
    /// Bytes that may wait.
    bytes: usize,
    /// Packets that must fit before a full buffer takes any again.
    batch: Vec<usize>,
    /// Packets of a second queue behind the first.
    hidden: usize,
    /// s, one way, uniform on top of `delay`, before and behind the bottleneck.
    early: f64,
    jitter: f64,
    /// Jitter keeps the order of packets.
    ordered: bool,
    lost_before: f64,
    lost_behind: f64,
    duplicated: f64,
    /// The sender pauses for up to so many s, at one packet in 200.
    stall: f64,
    /// Relative drift of the receiver's clock: positive is faster.
    drift: f64,
}

const PLAIN: Path = Path {
    rate: 14e6,
    buffer: 100,
    bytes: usize::MAX,
    batch: Vec::new(),
    hidden: 0,
    early: 0.0,
    jitter: 0.0,
    ordered: true,
    lost_before: 0.0,
    lost_behind: 0.0,
    duplicated: 0.0,
    stall: 0.0,
    drift: 0.0,
};

impl Path {
    /// Simulate a trial of `count` packets of `size` bytes, sent `overload` times as fast as the bottleneck drains
    /// them.
    fn trial(&self, size: usize, count: usize, overload: f64, random: &mut SplitMix) -> Trace {
        let service = if self.rate > 0.0 { 8.0 * size as f64 / self.rate } else { 0.0 };
        let gap = if self.rate > 0.0 { service / overload } else { 20e-6 };
        let lead = if self.rate > 0.0 { 7 } else { 0 };
        let mut trace = Trace { lead, ..Trace::default() };
        let (mut time, mut reached) = (random.unit(), 0.0f64);
        let (mut queue, mut ring): (VecDeque<usize>, VecDeque<usize>) = Default::default();
        let (mut free, mut latest) = (f64::NEG_INFINITY, 0.0);
        let (mut closed, mut batches) = (false, self.batch.iter().cycle());
        let mut batch = batches.next().copied().unwrap_or(1);
        let mut departures: Vec<(usize, f64)> = Vec::new();
        for number in 0..lead + count {
            trace.sent.push((time * 1e9) as i64);
            reached = reached.max(time + self.early * random.unit());
            while let Some(next) = ring.front().or(queue.front()).copied()
                && free <= reached
            {
                ring.pop_front().or_else(|| queue.pop_front());
                if ring.len() < self.hidden {
                    ring.extend(queue.pop_front());
                }
                free += service;
                departures.push((next, free));
            }
            if random.unit() >= self.lost_before {
                let was_closed = closed;
                closed = match queue.len() {
                    n if n >= self.buffer || (n + 1) * size > self.bytes => true,
                    n if self.bytes < usize::MAX || n + batch <= self.buffer => false,
                    _ => closed,
                };
                if was_closed && !closed {
                    batch = batches.next().copied().unwrap_or(1);
                }
                if !closed {
                    if free <= reached && ring.is_empty() && queue.is_empty() {
                        free = reached + service;
                        departures.push((number, free));
                    } else if ring.len() < self.hidden && queue.is_empty() {
                        ring.push_back(number);
                    } else {
                        queue.push_back(number);
                    }
                }
            }
            time += if number < lead { 2.0 * service } else { gap };
            if self.stall > 0.0 && random.below(200) == 0 {
                time += self.stall * random.unit();
            }
        }
        for number in ring.into_iter().chain(queue) {
            free += service;
            departures.push((number, free));
        }
        for (number, departed) in departures {
            if random.unit() < self.lost_behind {
                continue;
            }
            let mut arrival = departed + 0.01 + self.jitter * random.unit();
            if self.ordered {
                latest = f64::max(latest, arrival);
                arrival = latest;
            }
            let stamp = (arrival * (1.0 + self.drift) * 1e9) as i64 + 1_000_000_000_000;
            trace.arrivals.push((number as u32, stamp));
            if random.unit() < self.duplicated {
                trace.arrivals.push((number as u32, stamp + 1_000_000));
            }
        }
        trace.arrivals.sort_by_key(|&(_, time)| time);
        trace
    }

    /// Estimate the buffer from ten trials.
    fn estimate(&self, size: usize) -> Estimate {
        let mut random = SplitMix(42);
        let fills: Vec<_> = (0..10)
            .map(|trial| {
                let overload = 6.0 + 0.4 * trial as f64;
                let most = self.buffer.min(self.bytes / size) + self.hidden;
                let count = ((most as f64 * 1.3 + 250.0) * overload) as usize;
                match self.trial(size, count, overload, &mut random).finding() {
                    Finding::Full(fill) => fill,
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        estimate(size as u32, &fills).unwrap()
    }

    fn once(&self, count: usize, overload: f64) -> Finding {
        self.trial(1500, count, overload, &mut SplitMix(3)).finding()
    }
}

/// The buffers of Table I and the batches of Fig. 1.
const BUFFERS: [usize; 5] = [284, 256, 135, 91, 37];
const BATCHES: [usize; 4] = [1, 12, 16, 17];

#[test]
fn every_buffer_and_batch_of_the_paper_is_recovered() {
    for buffer in BUFFERS {
        for batch in BATCHES {
            for size in [1500, 750] {
                let found = Path { buffer, batch: vec![batch], ..PLAIN }.estimate(size);
                assert!((found.packets.value - buffer as f64).abs() < 1.0, "{buffer}, {batch}: {found:?}");
                assert_eq!(found.batches[0].packets as usize, batch, "{buffer}: {found:?}");
                assert!(found.batches[0].confidence > 0.95, "{buffer}, {batch}: {found:?}");
                assert!(!found.policer && !found.unsteady);
            }
        }
    }
}

#[test]
fn an_access_point_with_several_batch_sizes_shows_them_all() {
    let found = Path { buffer: 256, batch: vec![16, 17, 12], ..PLAIN }.estimate(1500);
    let mut sizes: Vec<u32> = found.batches.iter().map(|batch| batch.packets).collect();
    sizes.sort();
    assert_eq!(sizes, [12, 16, 17], "{found:?}");
    assert!((found.packets.value - 256.0).abs() <= 1.0, "{found:?}");
}

#[test]
fn noise_of_the_path_does_not_change_the_result() {
    let noises = [
        ("jitter", Path { jitter: 0.003, ..PLAIN }),
        ("reordering", Path { jitter: 0.003, ordered: false, ..PLAIN }),
        ("loss behind", Path { lost_behind: 0.01, ..PLAIN }),
        ("loss before", Path { lost_before: 0.01, ..PLAIN }),
        ("duplicates", Path { duplicated: 0.05, ..PLAIN }),
        ("stalls", Path { stall: 0.01, ..PLAIN }),
        ("late wire", Path { early: 0.0003, ..PLAIN }),
        ("drift", Path { drift: 1e-4, ..PLAIN }),
        ("all", Path { jitter: 0.001, lost_behind: 0.005, duplicated: 0.01, stall: 0.005, early: 0.0001, ..PLAIN }),
    ];
    for (name, path) in noises {
        for buffer in BUFFERS {
            for batch in BATCHES {
                let found = Path { buffer, batch: vec![batch], ..path.clone() }.estimate(1500);
                let error = found.packets.value - buffer as f64;
                assert!(error.abs() <= 2.0, "{name}: {buffer}, {batch}: {found:?}");
                assert_eq!(found.batches[0].packets as usize, batch, "{name}: {buffer}, {batch}: {found:?}");
            }
        }
    }
}

#[test]
fn a_hidden_queue_is_part_of_the_buffer() {
    let found = Path { buffer: 100, hidden: 128, ..PLAIN }.estimate(1500);
    assert!((found.packets.value - 228.0).abs() <= 2.0, "{found:?}");
}

#[test]
fn two_packet_sizes_tell_packets_from_bytes() {
    let packets = Path { buffer: 135, ..PLAIN };
    assert_eq!(limit(&packets.estimate(1500), &packets.estimate(750)), Limit::Packets);
    let bytes = Path { buffer: 100_000, bytes: 150_000, ..PLAIN };
    let (large, small) = (bytes.estimate(1500), bytes.estimate(750));
    assert!((large.packets.value - 100.0).abs() <= 2.0, "{large:?}");
    assert!((small.packets.value - 200.0).abs() <= 2.0, "{small:?}");
    assert_eq!(limit(&large, &small), Limit::Bytes);
    assert_eq!(limit(&large, &large), Limit::Unclear);
}

#[test]
fn a_path_without_a_full_buffer_gives_no_number() {
    assert!(matches!(Path { rate: 0.0, ..PLAIN }.once(2000, 1.0), Finding::NoBottleneck { lost: 0.0, .. }));
    // Slower than the bottleneck.
    assert!(matches!(PLAIN.once(2000, 0.5), Finding::NoBottleneck { .. }));
    // Losses alone make no buffer.
    assert!(matches!(Path { rate: 0.0, lost_behind: 0.1, ..PLAIN }.once(2000, 1.0), Finding::NoBottleneck { .. }));
    match (Path { buffer: 1000, ..PLAIN }).once(500, 8.0) {
        Finding::NotFull { packets, .. } => assert!((packets - 437.0).abs() < 3.0, "{packets}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(Path { lost_before: 1.0, ..PLAIN }.once(500, 8.0), Finding::Silence);
}

#[test]
fn a_policer_is_told_from_a_buffer() {
    // A token bucket of 20 packets and no queue: what is taken arrives 10 ms later.
    let (rate, mut tokens, mut trace) = (1000.0, 20.0f64, Trace::default());
    for number in 0..4000 {
        let time = f64::from(number) / (8.0 * rate);
        trace.sent.push((time * 1e9) as i64);
        tokens = (tokens + 1.0 / 8.0).min(20.0);
        if tokens >= 1.0 {
            tokens -= 1.0;
            trace.arrivals.push((number as u32, ((time + 0.01) * 1e9) as i64));
        }
    }
    let Finding::Full(fill) = trace.finding() else { panic!() };
    let found = estimate(1500, &[fill]).unwrap();
    assert!(found.policer, "{found:?}");
}

#[test]
fn a_buffer_that_changes_is_called_unsteady() {
    let mut random = SplitMix(5);
    let fills: Vec<_> = (0..10)
        .map(|trial| {
            let path = Path { buffer: 60 + 20 * trial, ..PLAIN };
            let Finding::Full(fill) = path.trial(1500, 4000, 8.0, &mut random).finding() else { panic!() };
            fill
        })
        .collect();
    let found = estimate(1500, &fills).unwrap();
    assert!(found.unsteady, "{found:?}");
    assert!(found.packets.high - found.packets.low > 40.0, "{found:?}");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        /// The estimate is within two packets and the batch exact, for any rate, buffer and batch.
        #[test]
        fn any_buffer_is_recovered(
            rate in 1e5f64..1e8,
            buffer in 20usize..600,
            batch in 1usize..20,
            size in 200usize..1500,
        ) {
            let found = Path { rate, buffer, batch: vec![batch], ..PLAIN }.estimate(size);
            prop_assert!((found.packets.value - buffer as f64).abs() <= 2.0, "{:?}", found);
            prop_assert_eq!(found.batches[0].packets as usize, batch, "{:?}", found);
        }

        /// Arbitrary records give a finding and no panic.
        #[test]
        fn any_record_is_judged(
            lead in 0usize..10,
            sent in prop::collection::vec(any::<i32>(), 1..80),
            arrivals in prop::collection::vec((0u32..90, any::<i64>()), 0..120),
        ) {
            let mut time = 0;
            let sent = sent.into_iter().map(|gap| { time += i64::from(gap).abs(); time }).collect();
            let arrivals = arrivals.into_iter().map(|(n, t)| (n, t / 4)).collect();
            if let Finding::Full(fill) = (Trace { lead, sent, arrivals, overrun: 0 }).finding() {
                estimate(1500, &[fill]).unwrap();
            }
        }
    }
}
