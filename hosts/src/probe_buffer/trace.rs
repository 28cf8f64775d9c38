// SPDX-License-Identifier: Apache-2.0
//! Evaluates one trial: packets in compared with packets out ("QoS-guaranteed TCP on real mobile terminals", section
//! III).
//!
//! The load is the number of packets that have entered the bottleneck and not yet begun to leave it. When a packet is sent:
//!
//! ```text
//! load = received packets among those sent before - transmissions begun by now
//! ```
//!
//! A transmission begins when the one before it ends, and ends when its packet arrives, less the path's delay. That delay
//! needs no clock in common: the first packets come one by one and find the queue empty, so their transmissions begin when
//! they are sent. Only differences of each clock are used, and jitter behind the bottleneck is smoothed away.
//!
//! With one packet in transmission, a queue of `d` packets is a load between `d` and `d + 1`.

use std::ops::Range;

use crate::bootstrap::{median, quantile};

/// Record of one trial.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Number of first packets that were sent one by one.
    pub lead: usize,
    /// Sending time of each packet, by sequence number: ns of the sender's clock.
    pub sent: Vec<i64>,
    /// (sequence number, ns of the receiver's clock), as they arrived.
    pub arrivals: Vec<(u32, i64)>,
    /// Packets that reached the receiving host and were lost there.
    pub overrun: u64,
}

/// Finding of a trial. Rates are packets per second.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Almost nothing arrived.
    Silence,
    /// Packets arrived as fast as they were sent. `lost`: the share that did not arrive.
    NoBottleneck { rate: f64, lost: f64 },
    /// A queue of `packets` grew, and nothing was dropped for want of space.
    NotFull { drain: f64, packets: f64 },
    /// A host or the path paused for so long that the queue ran empty: its length is not known.
    Torn,
    /// The buffer ran full.
    Full(Fill),
}

/// Trial in which the buffer ran full.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// Packets per second that leave the bottleneck.
    pub drain: f64,
    /// Sending rate divided by `drain`.
    pub overload: f64,
    /// Packets waiting at the first drop.
    pub first: f64,
    pub cycles: Vec<Cycle>,
    /// (lost, sent) while the queue was well below its limit: losses of the path and not of the buffer.
    pub path: (usize, usize),
    /// Transmissions that packets waited for once the buffer was full, by their delay.
    pub waited: f64,
    /// Packets missing in the rhythm of arrivals, as a share: losses behind the bottleneck.
    pub holes: f64,
}

/// Cycle from the moment when a full buffer takes packets again to the moment when it is full again (Fig. 1: a step).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    /// Packets waiting when it took the first one.
    pub reopened: f64,
    /// Packets taken beyond those that left meanwhile; `None` when nobody saw it reopen, or the path lost some.
    pub batch: Option<u32>,
    /// Arrivals kept their rhythm, so that `batch` is trustworthy.
    pub steady: bool,
}

/// Minimum overload at which a trial shows a queue.
const MIN_OVERLOAD: f64 = 1.15;
const MIN_ARRIVALS: usize = 8;
/// Minimum load that noise explains: below, more has left than came in.
const MIN_LOAD: f64 = -2.0;
/// Minimum packets of the lead that arrive.
const MIN_ALONE: usize = 3;
/// Packets on each side that an arrival is smoothed with.
const SMOOTHING: usize = 16;
/// Received packets on both sides of a single lost one that make it a loss of the path.
const AROUND_A_PATH_LOSS: usize = 3;
/// Share of the first queue's growth in which losses are the path's.
const WELL_BELOW_FULL: f64 = 0.6;

impl Trace {
    /// Return this trial's finding about the path.
    pub fn finding(&self) -> Finding {
        let sequence = self.in_sequence();
        if sequence.times.len() < MIN_ARRIVALS {
            return Finding::Silence;
        }
        let gap = spacing(&sequence.times);
        let sent = &sequence.sent;
        let overload = gap / (sent[sent.len() - 1] / (sent.len() - 1) as f64);
        let lost = 1.0 - sequence.times.len() as f64 / sent.len() as f64;
        if overload < MIN_OVERLOAD {
            return Finding::NoBottleneck { rate: 1.0 / gap, lost };
        }
        let load = Load::new(&sequence, gap);
        match onset(&sequence.received, overload) {
            None => {
                let most = load.by_packet.iter().copied().fold(0.0, f64::max);
                Finding::NotFull { drain: 1.0 / gap, packets: (most - 1.0).max(0.0) }
            }
            Some(onset) if load.by_packet[onset..].iter().any(|&load| load < MIN_LOAD) => Finding::Torn,
            Some(onset) => Finding::Full(fill(&sequence, &load, onset, overload)),
        }
    }

    /// Sort the packets after the lead: those that arrived, and the times of arrivals; duplicates once, arrivals in the
    /// order of time.
    fn in_sequence(&self) -> Sequence {
        let mut arrived = vec![None; self.sent.len()];
        for &(number, time) in &self.arrivals {
            if let Some(first) = arrived.get_mut(number as usize) {
                first.get_or_insert(time);
            }
        }
        let lead = self.lead.min(self.sent.len().saturating_sub(1));
        let start = arrived[lead..].iter().flatten().min().copied().unwrap_or_default();
        let arrival = |time: i64| time.saturating_sub(start) as f64 * 1e-9;
        let sent: Vec<f64> = self.sent.iter().map(|&time| (time - self.sent[lead]) as f64 * 1e-9).collect();
        let mut times: Vec<f64> = arrived[lead..].iter().flatten().map(|&time| arrival(time)).collect();
        times.sort_by(f64::total_cmp);
        let mut delays = sent.iter().zip(&arrived).map(|(sent, time)| time.map(|time| arrival(time) - sent));
        let alone: Vec<f64> = delays.by_ref().take(lead).flatten().collect();
        Sequence {
            received: arrived[lead..].iter().map(Option::is_some).collect(),
            delays: delays.collect(),
            alone: (alone.len() >= MIN_ALONE).then(|| median(&alone)),
            sent: sent[lead..].to_vec(),
            times,
        }
    }
}

/// Trial without its lead. Times in s: of sending since the first packet, of arrival since the first arrival.
struct Sequence {
    /// Sending times, by sequence number.
    sent: Vec<f64>,
    received: Vec<bool>,
    /// Delays from sending to arrival, by sequence number.
    delays: Vec<Option<f64>>,
    /// Delay of a packet that finds the queue empty.
    alone: Option<f64>,
    /// Arrival times, ascending.
    times: Vec<f64>,
}

/// Compute the seconds between arrivals, robust against jitter and pauses: the median of spacings over half of the
/// trial.
fn spacing(times: &[f64]) -> f64 {
    let lag = times.len() / 2;
    let spacings: Vec<f64> = times.windows(lag + 1).map(|w| (w[lag] - w[0]) / lag as f64).collect();
    median(&spacings).max(1e-9)
}

/// Load at each sent packet, and the number of transmissions begun as a function of time.
struct Load {
    by_packet: Vec<f64>,
    begun: Vec<f64>,
    /// Distance of each arrival from its smoothed time, in transmissions.
    stumble: Vec<f64>,
}

impl Load {
    fn new(sequence: &Sequence, gap: f64) -> Load {
        let smoothed = smooth(&sequence.times);
        let stumble = sequence.times.iter().zip(&smoothed).map(|(raw, smooth)| (raw - smooth).abs() / gap).collect();
        let first = sequence.received.iter().position(|&received| received).unwrap_or(0);
        let alone = sequence.alone.unwrap_or(smoothed[0] - sequence.sent[first]);
        let mut latest = f64::NEG_INFINITY;
        let starts: Vec<f64> = smoothed
            .iter()
            .map(|time| {
                latest = latest.max(time - alone);
                latest
            })
            .collect();
        let begun: Vec<f64> = sequence.sent.iter().map(|&time| count(&starts, time, gap)).collect();
        let mut entered = 0;
        let by_packet = begun
            .iter()
            .zip(&sequence.received)
            .map(|(begun, &received)| {
                let load = entered as f64 - begun;
                entered += usize::from(received);
                load
            })
            .collect();
        Load { by_packet, begun, stumble }
    }
}

/// Count the `starts` (ascending) that lie before `time`, with fractions in between; `gap` apart after the last.
fn count(starts: &[f64], time: f64, gap: f64) -> f64 {
    let after = starts.partition_point(|&start| start <= time);
    match after {
        0 => 0.0,
        n if n == starts.len() => n as f64 - 1.0 + (time - starts[n - 1]) / gap,
        n => n as f64 - 1.0 + (time - starts[n - 1]) / (starts[n] - starts[n - 1]).max(1e-12),
    }
}

/// Smooth each time by the straight line through its neighbours (least squares).
fn smooth(times: &[f64]) -> Vec<f64> {
    let width = (2 * SMOOTHING + 1).min(times.len());
    (0..times.len())
        .map(|k| {
            let start = k.saturating_sub(SMOOTHING).min(times.len() - width);
            let window = &times[start..start + width];
            let middle = (width - 1) as f64 / 2.0;
            let mean = window.iter().sum::<f64>() / width as f64;
            let (mut above, mut below) = (0.0, 0.0);
            for (i, time) in window.iter().enumerate() {
                let x = i as f64 - middle;
                above += x * (time - mean);
                below += x * x;
            }
            mean + above / below.max(1.0) * ((k - start) as f64 - middle)
        })
        .collect()
}

/// Find the first packet that was dropped because the buffer was full: from there on most are.
fn onset(received: &[bool], overload: f64) -> Option<usize> {
    let window = ((3.0 * overload) as usize).clamp(12, 48);
    let enough = (0.5 * (1.0 - 1.0 / overload) * window as f64).ceil() as usize;
    let lost: Vec<usize> = (0..received.len()).filter(|&number| !received[number]).collect();
    lost.windows(enough).find(|w| w[enough - 1] - w[0] < window).map(|w| w[0])
}

fn fill(sequence: &Sequence, load: &Load, onset: usize, overload: f64) -> Fill {
    let times = &sequence.times;
    let received = &sequence.received;
    let gap = spacing(times);
    let at = &load.by_packet;
    let first = if onset > 0 { (at[onset - 1] + at[onset]) / 2.0 } else { at[onset] };
    let well_below = at[..onset].iter().position(|&load| load > WELL_BELOW_FULL * first).unwrap_or(onset);
    let path_lost = received[..well_below].iter().filter(|&&r| !r).count();
    let full: Vec<f64> = sequence.delays[onset..].iter().flatten().copied().collect();
    let alone = sequence.alone.or(sequence.delays.iter().flatten().next().copied());
    let waited = median(&full) - alone.unwrap_or(0.0);
    let mut gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_by(f64::total_cmp);
    Fill {
        drain: 1.0 / gap,
        overload,
        first,
        cycles: runs(received, onset).map(|run| cycle(run, sequence, load, gap)).collect(),
        path: (path_lost, well_below),
        waited: waited / gap,
        holes: (gap / quantile(&gaps, 0.5).max(1e-9) - 1.0).max(0.0),
    }
}

/// Return the runs of received packets after `onset`, each between lost ones. A single lost packet amid received ones
/// splits none.
fn runs(received: &[bool], onset: usize) -> impl Iterator<Item = Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut number = onset;
    while number < received.len() {
        let start = number;
        while number < received.len() && received[number] {
            number += 1;
        }
        if number > start {
            let long = |run: &Range<usize>| run.len() >= AROUND_A_PATH_LOSS;
            match found.last_mut() {
                Some(last) if last.end + 1 == start && long(last) && long(&(start..number)) => last.end = number,
                _ => found.push(start..number),
            }
        }
        number += 1;
    }
    // The trial may have ended within the last run.
    if found.last().is_some_and(|last| last.end == received.len()) {
        found.pop();
    }
    found.into_iter()
}

fn cycle(run: Range<usize>, sequence: &Sequence, load: &Load, gap: f64) -> Cycle {
    let (before, after) = (run.start - 1, run.end);
    // It reopened between the last drop and the first packet taken: a load of one more than what was waiting.
    let reopened = (load.by_packet[before] + load.by_packet[run.start]) / 2.0 - 1.0;
    // Packets came when it reopened. Later pauses only let more packets leave, and these are counted.
    let in_time = sequence.sent[run.start] - sequence.sent[before] <= gap / 2.0;
    let whole = sequence.received[run.clone()].iter().all(|&r| r);
    // It reopens when a transmission begins, half a sending interval before the first packet taken, in the mean.
    let lead = (load.begun[run.start] - load.begun[before]) / 2.0;
    let left = (load.begun[after] - load.begun[run.start] + lead).floor().max(0.0) as usize;
    let during = load.begun[before] as usize..(load.begun[after] as usize + 2).min(load.stumble.len());
    Cycle {
        reopened,
        batch: (in_time && whole && run.len() > left).then(|| (run.len() - left) as u32),
        steady: load.stumble.get(during).is_some_and(|s| s.iter().all(|&stumble| stumble < 0.75)),
    }
}
