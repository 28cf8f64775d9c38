// SPDX-License-Identifier: Apache-2.0
//! Uplinks: what all connections of this process share about an interface of the host, its limit, its quota, and the
//! longest segments that it carries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::quota::Quota;
use hosts_base::Error;

/// Time after an outage for which an interface gets short segments only.
const SHORT: Duration = Duration::from_secs(600);
/// Payload of a short segment: with all headers it fits the MTU of 1280 octets that every IPv6 path has (RFC 8200,
/// section 5).
const SHORT_SEGMENT: u32 = 1200;
/// Time that a limit makes up for after a pause.
const BURST: Duration = Duration::from_millis(20);

/// Limit of a rate: the time from which on more may pass.
#[derive(Debug)]
struct Limit {
    bytes_per_second: f64,
    free: Mutex<Option<Instant>>,
}

impl Limit {
    fn new(bits_per_second: u64) -> Self {
        Self { bytes_per_second: bits_per_second as f64 / 8.0, free: Mutex::default() }
    }

    /// Count `bytes` that pass now.
    fn pass(&self, bytes: usize, now: Instant) {
        let mut free = lock(&self.free);
        let from = free.map_or(now, |free| free.max(now - BURST));
        *free = Some(from + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second));
    }

    /// Return the time from which on more may pass; None: now.
    fn wait(&self, now: Instant) -> Option<Instant> {
        lock(&self.free).filter(|&free| free > now)
    }
}

/// Direction of bytes, as this host sees it.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    Up,
    Down,
}

/// Uplink of this host, or an end without limits.
#[derive(Debug, Default)]
pub struct Uplink {
    limits: Option<[Limit; 2]>,
    pub quota: Option<Quota>,
    /// Time of the last outage.
    outage: Mutex<Option<Instant>>,
}

impl Uplink {
    /// Count `bytes` that pass now.
    pub fn pass(&self, direction: Direction, bytes: usize, now: Instant) {
        if let Some(limits) = &self.limits {
            limits[direction as usize].pass(bytes, now);
        }
    }

    /// Return the time from which on more may pass; None: now.
    pub fn wait(&self, direction: Direction, now: Instant) -> Option<Instant> {
        self.limits.as_ref()?[direction as usize].wait(now)
    }

    /// Return the limit of each direction in bytes per second; infinite without.
    pub fn limit(&self) -> f64 {
        self.limits.as_ref().map_or(f64::INFINITY, |limits| limits[0].bytes_per_second)
    }

    /// Note that a subflow was lost or stalled. A path that drops long packets without a word carries a handshake, and
    /// then stalls: what follows is short enough for any path.
    pub fn fails(&self, now: Instant) {
        *lock(&self.outage) = Some(now);
    }

    /// Return the longest segment that a new subflow may use; None: the interface's own.
    pub fn segment(&self, now: Instant) -> Option<u32> {
        lock(&self.outage).is_some_and(|at| now.saturating_duration_since(at) < SHORT).then_some(SHORT_SEGMENT)
    }

    /// True if the quota is used up, as of a second ago.
    pub fn is_used_up(&self) -> bool {
        self.quota.as_ref().is_some_and(|quota| quota.is_used_up())
    }
}

/// Uplinks of a process by the interface's name.
#[derive(Debug, Default)]
pub struct Uplinks(Mutex<BTreeMap<String, Arc<Uplink>>>);

impl Uplinks {
    /// Make uplinks with limits in bit/s and quotas; other interfaces have none. Errors: an interface with two of a kind.
    pub fn new(limits: Vec<(String, u64)>, quotas: Vec<(String, Quota)>) -> Result<Arc<Self>, Error> {
        let twice = |name: &str| Error::new(format!("{name} has two limits, or two quotas"));
        let mut uplinks = BTreeMap::<String, Uplink>::new();
        for (name, rate) in limits {
            let old = uplinks.entry(name.clone()).or_default().limits.replace([Limit::new(rate), Limit::new(rate)]);
            old.map_or(Ok(()), |_| Err(twice(&name)))?;
        }
        for (name, quota) in quotas {
            let old = uplinks.entry(name.clone()).or_default().quota.replace(quota);
            old.map_or(Ok(()), |_| Err(twice(&name)))?;
        }
        let uplinks = uplinks.into_iter().map(|(name, uplink)| (name, Arc::new(uplink))).collect();
        Ok(Arc::new(Self(Mutex::new(uplinks))))
    }

    /// Return the bytes that interfaces with a quota have used, and those of the quota.
    pub fn quotas(&self) -> Vec<(String, (u64, u64))> {
        let used = |(name, uplink): (&String, &Arc<Uplink>)| Some((name.clone(), uplink.quota.as_ref()?.used()));
        lock(&self.0).iter().filter_map(used).collect()
    }

    /// Return the uplink of an interface.
    pub fn of(&self, interface: &str) -> Arc<Uplink> {
        lock(&self.0).entry(interface.to_owned()).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_lets_its_rate_pass_in_each_direction() {
        let uplinks = Uplinks::new(vec![("wwan0".into(), 8_000_000)], Vec::new()).unwrap();
        let (uplink, start) = (uplinks.of("wwan0"), Instant::now() + BURST);
        let (mut now, mut passed) = (start, 0);
        while now < start + Duration::from_secs(10) {
            match uplink.wait(Direction::Up, now) {
                Some(at) => now = at + Duration::from_millis(3), // the sender wakes late
                None => {
                    uplink.pass(Direction::Up, 4000, now);
                    passed += 4000;
                }
            }
        }
        assert!((9_990_000..10_050_000).contains(&passed), "{passed}");
        assert_eq!(uplink.wait(Direction::Down, start), None);
        assert_eq!(uplink.limit(), 1e6);
        assert_eq!(uplinks.of("eth0").wait(Direction::Up, start), None);
        assert!(Uplinks::new(vec![("a".into(), 1000), ("a".into(), 1000)], Vec::new()).is_err());
    }

    #[test]
    fn after_an_outage_segments_are_short_for_a_while() {
        let (uplink, now) = (Uplink::default(), Instant::now());
        assert_eq!(uplink.segment(now), None);
        uplink.fails(now);
        assert_eq!(uplink.segment(now + SHORT / 2), Some(SHORT_SEGMENT));
        assert_eq!(uplink.segment(now + SHORT), None);
    }
}
