// SPDX-License-Identifier: Apache-2.0
//! Estimates the buffer and its batches from trials, with confidence ("QoS-guaranteed TCP on real mobile terminals",
//! section III, Table I: the mean of ten trials; Fig. 1: batches).

use std::collections::BTreeMap;

use serde::Serialize;

use super::trace::{Cycle, Fill};
use crate::bootstrap::{Interval, SplitMix, bootstrap, mean, median, quantile, shortest_half};

/// Minimum share of a buffer's reopenings that a reported batch size has.
const MIN_SHARE: f64 = 0.1;
/// Maximum spread of the trials of a fixed buffer (share of the buffer, and packets).
const UNSTEADY: (f64, f64) = (0.15, 3.0);
/// Minimum delay of drops by a queue, in transmissions.
const NO_QUEUE: f64 = 1.5;
/// Minimum share of losses on the path that change the result by a packet.
const NOTABLE_PATH_LOSS: f64 = 0.003;

/// Estimate of the buffer as packets of one size saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Bytes of the IP packets.
    pub size: u32,
    /// Trials that filled the buffer.
    pub trials: usize,
    /// Packets waiting when full, in addition to the one in transmission, by most trials; 95 % confidence.
    pub packets: Interval,
    /// Mean of the trials, as the paper's Table I.
    pub mean: f64,
    /// Packets waiting at the first drop of each trial, where nothing but the first fill counts.
    pub first_drop: f64,
    /// Packets that the full buffer takes at once, most frequent first; `[1]` alone: an ideal FIFO.
    pub batches: Vec<Batch>,
    /// Packets per second that leave the bottleneck.
    pub drain: f64,
    /// Share of packets lost on the path while the buffer was not full.
    pub path_loss: f64,
    /// Drops came without a queue: a policer, and not a buffer.
    pub policer: bool,
    /// The trials differ so much that this is no fixed buffer: active queue management, or other traffic.
    pub unsteady: bool,
}

/// Batch size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Batch {
    pub packets: u32,
    /// Share of all reopenings that could be counted.
    pub share: f64,
    /// Probability, over resampled trials, that this is the most frequent size.
    pub confidence: f64,
}

/// Unit of the buffer's limit, from the same buffer seen with two packet sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Packets,
    Bytes,
    Unclear,
}

/// Estimate the buffer from the `fills` of packets of `size` bytes. `None` without any.
pub fn estimate(size: u32, fills: &[Fill]) -> Option<Estimate> {
    let batches = batches(fills);
    let usual = batches.first().map_or(1, |batch| batch.packets);
    let kept = 1.0 - behind_bottleneck(fills);
    let trials: Vec<f64> = fills.iter().map(|fill| full(fill, usual) / kept).collect();
    let packets = bootstrap(&trials, shortest_half)?;
    let mut sorted = trials.clone();
    sorted.sort_by(f64::total_cmp);
    let scatter = quantile(&sorted, 0.75) - quantile(&sorted, 0.25);
    Some(Estimate {
        size,
        trials: fills.len(),
        packets,
        mean: mean(&trials),
        first_drop: median(&fills.iter().map(|fill| fill.first / kept).collect::<Vec<_>>()),
        batches,
        drain: median(&fills.iter().map(|fill| fill.drain).collect::<Vec<_>>()) / kept,
        path_loss: path_loss(fills),
        policer: median(&fills.iter().map(|fill| fill.waited).collect::<Vec<_>>()) < NO_QUEUE,
        unsteady: scatter > (UNSTEADY.0 * packets.value).max(UNSTEADY.1),
    })
}

/// Find the unit of the buffer's limit.
///
/// The number of packets changes with the power -1 of their size when bytes are limited, with the power 0 when packets are.
pub fn limit(a: &Estimate, b: &Estimate) -> Limit {
    let sizes = (f64::from(a.size) / f64::from(b.size)).ln();
    let power = (b.packets.value.max(0.5) / a.packets.value.max(0.5)).ln() / sizes;
    match power {
        p if sizes.abs() < 0.2 || a.policer || b.policer || a.unsteady || b.unsteady || !p.is_finite() => {
            Limit::Unclear
        }
        p if (-0.25..0.25).contains(&p) => Limit::Packets,
        p if (0.75..1.25).contains(&p) => Limit::Bytes,
        _ => Limit::Unclear,
    }
}

/// Compute the packets waiting when full in one trial: those when it reopened, and the batch that filled it again.
fn full(fill: &Fill, usual: u32) -> f64 {
    let of = |cycle: &Cycle| cycle.reopened + f64::from(cycle.batch.unwrap_or(usual));
    let steady: Vec<f64> = fill.cycles.iter().filter(|c| c.steady && c.batch.is_some()).map(of).collect();
    let every: Vec<f64> = fill.cycles.iter().map(of).collect();
    match (steady.len(), every.len()) {
        (_, 0) => fill.first,
        (some, all) if 3 * some >= all => shortest_half(&steady),
        _ => shortest_half(&every),
    }
}

fn batches(fills: &[Fill]) -> Vec<Batch> {
    let every = |c: &Cycle| c.batch.is_some();
    let steady = |c: &Cycle| c.batch.is_some() && c.steady;
    let number = |which: &dyn Fn(&Cycle) -> bool| fills.iter().flat_map(|f| &f.cycles).filter(|c| which(c)).count();
    // Where nearly every cycle stumbles, the path is like that, and majority has to do.
    let only_steady = 3 * number(&steady) >= number(&every);
    let votes: Vec<BTreeMap<u32, usize>> = fills
        .iter()
        .map(|fill| {
            let mut votes = BTreeMap::new();
            for cycle in fill.cycles.iter().filter(|c| c.steady || !only_steady) {
                if let Some(size) = cycle.batch {
                    *votes.entry(size).or_default() += 1;
                }
            }
            votes
        })
        .collect();
    let total = sum(votes.iter());
    let all: usize = total.values().sum();
    let winners = resampled_winners(&votes);
    let mut batches: Vec<Batch> = total
        .iter()
        .map(|(&packets, &count)| Batch {
            packets,
            share: count as f64 / all as f64,
            confidence: winners.get(&packets).copied().unwrap_or(0.0),
        })
        .filter(|batch| batch.share >= MIN_SHARE)
        .collect();
    batches.sort_by(|a, b| b.share.total_cmp(&a.share));
    batches
}

fn sum<'a>(votes: impl Iterator<Item = &'a BTreeMap<u32, usize>>) -> BTreeMap<u32, usize> {
    let mut total = BTreeMap::new();
    for (&size, &count) in votes.flatten() {
        *total.entry(size).or_default() += count;
    }
    total
}

/// Count how often each size wins when the trials are drawn again.
fn resampled_winners(votes: &[BTreeMap<u32, usize>]) -> BTreeMap<u32, f64> {
    const DRAWS: usize = 1000;
    let mut random = SplitMix(1);
    let mut winners = BTreeMap::new();
    for _ in 0..DRAWS {
        let drawn = sum((0..votes.len()).map(|_| &votes[random.below(votes.len())]));
        if let Some((size, _)) = drawn.into_iter().max_by_key(|&(_, count)| count) {
            *winners.entry(size).or_default() += 1.0 / DRAWS as f64;
        }
    }
    winners
}

fn path_loss(fills: &[Fill]) -> f64 {
    let (lost, sent) = fills.iter().fold((0, 0), |(lost, sent), f| (lost + f.path.0, sent + f.path.1));
    lost as f64 / sent.max(1) as f64
}

/// Compute the share of packets that were lost behind the buffer: the path loses packets, and the rhythm of arrivals
/// has as many holes. They were in the buffer, and are not among those received.
fn behind_bottleneck(fills: &[Fill]) -> f64 {
    let lost = path_loss(fills);
    let holes = median(&fills.iter().map(|fill| fill.holes).collect::<Vec<_>>());
    if lost > NOTABLE_PATH_LOSS && (0.5 * lost..2.0 * lost).contains(&holes) { lost } else { 0.0 }
}
