// SPDX-License-Identifier: Apache-2.0
//! Books of a subflow: its counters, measures and timers in its connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::kalman::Kalman;
use super::link::{Link, Path};
use super::segment::{HEADER, MAX_FRAME, MAX_PAYLOAD};
use super::{Estimator, Interface};

/// Time for a segment to go out, and for a queue in the kernel to drain: the rate times this is their length.
pub const GRAIN: Duration = Duration::from_millis(20);
/// Minimum payload of a segment and minimum limit of the kernel's unsent queue, whatever the rate.
pub const MIN_SEGMENT: usize = 4096 - HEADER;
/// Maximum unsent queue in the kernel, in bytes: a fast subflow's writer may be late by some milliseconds.
const MAX_UNSENT: f64 = 4e6;
/// Segments in one call to the kernel.
const MAX_BATCH: usize = 16;
/// Segments in one call of a sealed subflow, which keeps a buffer for them.
const MAX_SEALED: usize = 4;
/// Minimum time between two samples of the throughput.
pub const SAMPLE: Duration = Duration::from_millis(100);

/// Subflow of a connection.
pub struct Subflow {
    pub interface: Interface,
    pub number: u8,
    /// Number in the coupled congestion control.
    pub part: usize,
    pub link: Arc<Link>,
    pub path: Path,
    /// Bytes that were passed to the writer, the hello included.
    pub committed: u64,
    pub estimator: Estimator,
    /// Filter of throughputs in bytes per second, or of round-trip times in microseconds.
    pub filter: Kalman,
    /// Bytes delivered, and the time of the last increase; `refreshed`: time of the last reading.
    pub progress: (u64, Instant),
    pub refreshed: Instant,
    /// Bytes delivered at the last sample, and its time.
    pub sample: (u64, Instant),
    /// The writer ran out of segments since the last sample.
    pub starved: bool,
    /// Proven rate in bytes per second: the filtered throughput or the last sample, 0 at first.
    pub carries: f64,
    pub stalled: bool,
    pub load: f64,
    pub price: f64,
    pub idle: bool,
    pub ack_at: Option<Instant>,
    pub ack_bytes: usize,
    pub end_sent: bool,
    pub reset_sent: bool,
    pub tasks: Vec<AbortHandle>,
}

impl Subflow {
    /// Make a subflow whose hello is done, with nothing measured yet.
    pub fn new(
        number: u8,
        part: usize,
        interface: Interface,
        link: Arc<Link>,
        estimator: Estimator,
        now: Instant,
    ) -> Self {
        link.limit_unsent(2 * (MIN_SEGMENT + HEADER) as u32);
        // The hello is not a segment, but the kernel counts it.
        let delivered = link.delivered();
        Self {
            price: interface.price(),
            interface,
            number,
            part,
            path: link.path(),
            committed: link.written(),
            estimator,
            filter: Kalman::default(),
            progress: (delivered, now),
            refreshed: now,
            sample: (delivered, now),
            starved: true,
            carries: 0.0,
            stalled: false,
            load: 1.0,
            idle: false,
            ack_at: Some(now),
            ack_bytes: 0,
            end_sent: false,
            reset_sent: false,
            tasks: Vec::new(),
            link,
        }
    }

    /// Return the throughput in bytes per second: filtered, or window over round-trip time before the first sample; at
    /// most the interface's limit.
    pub fn throughput(&self) -> f64 {
        let by_window = |rtt_us: f64| 1e6 * self.path.window / rtt_us.max(10.0);
        let rate = match (self.filter.estimate(), self.estimator) {
            (Some(rate), Estimator::Delivered) => rate,
            (Some(rtt_us), Estimator::Paper) => by_window(rtt_us),
            (None, _) => by_window(self.path.rtt.as_micros() as f64),
        };
        rate.min(self.link.uplink.limit()).max(1000.0)
    }

    /// Return the bytes passed to the writer and not yet acknowledged by the peer's kernel.
    pub fn queued(&self) -> u64 {
        self.committed.saturating_sub(self.progress.0)
    }

    /// Read from the kernel how many bytes have been delivered.
    pub fn refresh(&mut self, now: Instant) {
        let delivered = self.link.delivered();
        self.refreshed = now;
        if delivered > self.progress.0 || self.queued() == 0 {
            self.progress = (delivered.max(self.progress.0), now);
        }
    }

    /// Return the seconds until `bytes` more would have arrived.
    pub fn arrival(&self, bytes: usize) -> f64 {
        let drained = (self.queued() + bytes as u64) as f64 / self.throughput();
        drained.max(self.path.min_rtt.as_secs_f64())
    }

    /// Return the payload of a segment that goes out within `GRAIN`.
    pub fn segment_length(&self) -> usize {
        ((self.carries * GRAIN.as_secs_f64()) as usize).clamp(MIN_SEGMENT, MAX_FRAME - HEADER)
    }

    /// Return the number of full segments to write at once: as many as go out within `GRAIN`.
    pub fn batch(&self) -> usize {
        let most = if self.link.seal.is_some() { MAX_SEALED } else { MAX_BATCH };
        ((self.carries * GRAIN.as_secs_f64()) as usize / MAX_PAYLOAD).clamp(1, most)
    }

    /// Wake the writer if it is idle.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.idle) {
            self.link.ready.notify_one();
        }
    }

    /// Schedule an acknowledgement at `at`, or leave an earlier one.
    pub fn acknowledge_at(&mut self, at: Instant) {
        if self.ack_at.is_none_or(|old| at < old) {
            self.ack_at = Some(at);
            self.wake();
        }
    }

    /// Update the filter with the bytes delivered since the last sample, unless the subflow had too little to send, and
    /// fit the kernel's unsent queue to the throughput.
    pub fn sample(&mut self, now: Instant) {
        let (before, at) = self.sample;
        let elapsed = now - at;
        if elapsed < SAMPLE.max(self.path.rtt / 2) {
            return;
        }
        let rate = (self.progress.0 - before) as f64 / elapsed.as_secs_f64();
        let jitter = self.path.rtt_variation.as_secs_f64() / self.path.rtt.as_secs_f64().max(1e-6);
        match self.estimator {
            Estimator::Paper => drop(self.filter.update(self.path.rtt.as_micros() as f64, jitter)),
            Estimator::Delivered
                if rate > 0.0 && (!self.starved || self.filter.estimate().is_some_and(|e| rate > e)) =>
            {
                self.filter.update(rate, jitter);
            }
            Estimator::Delivered => {}
        }
        self.carries = self.filter.estimate().map_or(0.0, |_| self.throughput()).max(rate);
        let least = 2 * (self.segment_length() + HEADER);
        self.link.limit_unsent((self.carries * GRAIN.as_secs_f64()).clamp(least as f64, MAX_UNSENT) as u32);
        self.sample = (self.progress.0, now);
        self.starved = false;
    }
}
