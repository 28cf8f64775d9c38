// SPDX-License-Identifier: Apache-2.0
//! Ports at run time: link models, queues, whether they are enabled, and what they carried lately.

use std::sync::TryLockError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use apswitch_core::dataplane_ops::Change;
use apswitch_core::link::{LinkConfig, QUEUES};
use apswitch_core::port::{PortNumber, PortStats, QueueStats, quantile};
use apswitch_core::store::Store;
use futures_channel::oneshot;

use super::{Dataplane, Inner, Notice, PortHandle, PortView, UpdateError, locked};
use crate::block_on;
use crate::engine_messages::Command;
use crate::port::Discipline;

/// Time that [`Window`] covers.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Rates and delays of a port in the last whole [`WINDOW`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// bit/s and packets/s.
    pub in_bits: u64,
    pub in_packets: u64,
    pub out_bits: u64,
    pub out_packets: u64,
    /// Median and 99th percentile of the time (ns) that packets were in each queue, in queue 0 with its lanes; `None`: none
    /// left it.
    pub sojourn: [Option<(u64, u64)>; QUEUES],
}

/// Inputs of a port's state, up or down. Locked until everybody is notified, so that the last notice is the present
/// state.
#[derive(Debug)]
pub struct OperStatus {
    pub enabled: bool,
    /// Its interface is up and has a carrier.
    running: bool,
}

impl Default for OperStatus {
    fn default() -> OperStatus {
        OperStatus { enabled: true, running: true }
    }
}

/// The last sample of a port, and the window that it ended.
#[derive(Default)]
pub struct Recent {
    at: u64,
    stats: PortStats,
    /// Histograms of the queues.
    sojourn: Vec<Box<[u64]>>,
    window: Window,
}

/// A port with what can be set of it.
#[derive(Clone, Debug)]
pub struct LinkView {
    pub enabled: bool,
    /// Bytes of payload in the longest frame, if there is an interface that says so.
    pub mtu: Option<usize>,
    /// `None`: no queues, packets leave at once.
    pub link: Option<LinkConfig>,
    /// Statistics of the queues that there are.
    pub queues: Vec<QueueStats>,
    /// Statistics of the lanes that carried something, by their place behind the queues.
    pub lanes: Vec<(usize, QueueStats)>,
    pub window: Window,
}

impl Dataplane {
    /// Queues of each port that has a link model.
    pub fn queues(&self) -> usize {
        self.inner.queues
    }

    /// The ports, in their order.
    pub fn views(&self) -> Vec<(PortView, LinkView)> {
        let view = |port: &PortHandle| {
            let link = locked(&port.link).clone();
            let queues = if link.is_some() { self.inner.queues } else { 0 };
            let lanes = port.cells.queues.iter().map(|queue| queue.read()).enumerate().skip(QUEUES);
            LinkView {
                enabled: locked(&port.oper_status).enabled,
                mtu: Some(port.mtu.load(Relaxed)).filter(|&mtu| mtu > 0),
                link,
                queues: port.cells.queues[..queues].iter().map(|queue| queue.read()).collect(),
                lanes: lanes.filter(|(_, lane)| lane.enqueued_packets > 0).collect(),
                window: locked(&port.recent).window.clone(),
            }
        };
        self.inner.ports().iter().map(|port| (port.view(), view(port))).collect()
    }

    /// Gives ports other link models, all at once; what waits there is kept. A trace stays as it was.
    /// Returns when they are in effect.
    pub async fn set_links(&self, links: Vec<(PortNumber, LinkConfig)>) -> Result<(), UpdateError> {
        let (done, answer) = oneshot::channel();
        let ports = self.inner.ports();
        // A port that was removed meanwhile needs none.
        let port = |number| ports.iter().find(|port| port.number == number);
        let links = links.into_iter().filter_map(|(number, config)| Some((port(number)?, config)));
        let links = links.map(|(port, config)| {
            *locked(&port.link) = Some(config.clone());
            (port.number, config)
        });
        let links = links.collect();
        self.inner.commands.send(Command::Links { links, done });
        answer.await.map_err(|_| UpdateError::Stopped)
    }

    /// Sets link models as [`Dataplane::set_links`] does, for callers without an async runtime.
    pub fn set_links_blocking(&self, links: Vec<(PortNumber, LinkConfig)>) -> Result<(), UpdateError> {
        block_on(self.set_links(links))
    }

    /// A port that is not enabled is down: it takes and sends nothing.
    pub fn set_enabled(&self, port: PortNumber, enabled: bool) {
        let ports = self.inner.ports();
        let Some(handle) = ports.iter().find(|handle| handle.number == port) else { return };
        let mut oper_status = locked(&handle.oper_status);
        oper_status.enabled = enabled;
        self.inner.commands.send(Command::Enable { port, enabled });
        update_status(&self.inner, handle, &oper_status);
    }
}

/// Returns what is set of the model, as `--link` takes it.
fn link_words(link: &LinkConfig) -> String {
    let words = [
        link.rate.map(|rate| format!("rate={rate}bit")),
        (link.burst > 0).then(|| format!("burst={}", link.burst)),
        Some(format!("limit={}", link.limit_packets)),
        link.limit_bytes.map(|bytes| format!("limit-bytes={bytes}")),
        (link.delay_ns > 0).then(|| format!("delay={}us", link.delay_ns / 1000)),
        (link.jitter_ns > 0).then(|| format!("jitter={}us", link.jitter_ns / 1000)),
        (link.loss > 0.0).then(|| format!("loss={:.4}", link.loss)),
        (link.overhead > 0).then(|| format!("overhead={}", link.overhead)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// The port's interface has this queue discipline: its link model is the port's, unless somebody gave the port another
/// one.
pub fn set_discipline(inner: &Inner, port: &PortHandle, found: Discipline) {
    let mut guard = locked(&port.discipline);
    let (known, set) = &mut *guard;
    if *known == found {
        return;
    }
    let mut link = locked(&port.link);
    let free = link.is_none() || *link == *set;
    let (number, interface) = (port.number, &port.interface);
    let config = match &found {
        Discipline::Model(_, model) if free => {
            tracing::info!(
                "port {number} ({interface}): link model of its queue discipline, {found}: {}",
                link_words(model)
            );
            Some(*model.clone())
        }
        _ if known.model().is_some() && *link == *set => {
            tracing::info!("port {number} ({interface}): no link model any more, as its queue discipline is gone");
            Some(LinkConfig::default())
        }
        _ => None,
    };
    let taken = found == Discipline::Default || config.is_some() && found.model().is_some();
    if !taken {
        tracing::warn!(
            "port {number} ({interface}): its queue discipline, {found}, has no effect on what the switch sends: \
             give the port a link model in its place (--link {number}:rate=...)"
        );
    }
    if let Some(config) = config {
        *link = Some(config.clone());
        *set = Some(config.clone());
        inner.commands.send(Command::Links { links: vec![(number, config)], done: oneshot::channel().0 });
    }
    *known = found;
}

/// The port's interface comes or goes.
pub fn set_running(inner: &Inner, port: &PortHandle, running: bool) {
    let mut oper_status = locked(&port.oper_status);
    oper_status.running = running;
    update_status(inner, port, &oper_status);
}

/// Reports that the port goes up or down, unless it is so already.
fn update_status(inner: &Inner, port: &PortHandle, oper_status: &OperStatus) {
    let up = oper_status.enabled && oper_status.running;
    if port.up.swap(up, Relaxed) == up {
        return;
    }
    let state = if up { "up" } else { "down" };
    tracing::info!("port {} ({}) is {state}", port.number, port.interface);
    if inner.notices.try_send(Notice::PortState { port: port.number, up }).is_err() {
        tracing::debug!("a port state was not fetched in time");
    }
    // The store may be locked for long, as while a program is made ready: the watcher then reports to it.
    match inner.store.try_lock() {
        Ok(mut store) => report_to_store(inner, &mut store),
        Err(TryLockError::Poisoned(store)) => report_to_store(inner, &mut store.into_inner()),
        Err(TryLockError::WouldBlock) => {}
    }
}

/// Groups that watch ports hear which are up. The store is held until its changes are on their way, as by a write.
pub fn report_to_store(inner: &Inner, store: &mut Option<Store>) {
    let Some(store) = store else { return };
    let mut changes = Vec::new();
    for port in inner.ports() {
        let up = port.up.load(Relaxed);
        if port.up_in_store.swap(up, Relaxed) != up {
            store.set_port(port.number, up, &mut changes);
        }
    }
    send(inner, changes);
}

/// The port is gone.
pub fn remove(inner: &Inner, port: &PortHandle) {
    let mut changes = Vec::new();
    let mut store = inner.store();
    if let Some(store) = &mut *store {
        store.set_port(port.number, false, &mut changes);
    }
    send(inner, changes);
}

fn send(inner: &Inner, changes: Vec<Change>) {
    if !changes.is_empty() {
        inner.commands.send(Command::Changes { changes, at_once: false, done: oneshot::channel().0 });
    }
}

/// Ends windows that are over.
pub fn sample(inner: &Inner) {
    let now = inner.clock.now();
    for port in inner.ports() {
        let has_queues = locked(&port.link).is_some();
        let mut recent = locked(&port.recent);
        if now < recent.at + WINDOW.as_nanos() as u64 {
            continue;
        }
        let stats = port.cells.read();
        let queues = if has_queues { inner.queues } else { 0 };
        let sojourn: Vec<_> = port.cells.sojourn[..queues].iter().map(|queue| queue.read()).collect();
        let seconds = (now - recent.at) as f64 / 1e9;
        let per_second = |after: u64, before: u64| (after.wrapping_sub(before) as f64 / seconds).round() as u64;
        let mut window = Window {
            in_bits: per_second(stats.rx_bytes * 8, recent.stats.rx_bytes * 8),
            in_packets: per_second(stats.rx_packets, recent.stats.rx_packets),
            out_bits: per_second(stats.tx_bytes * 8, recent.stats.tx_bytes * 8),
            out_packets: per_second(stats.tx_packets, recent.stats.tx_packets),
            sojourn: [None; QUEUES],
        };
        for (queue, counts) in sojourn.iter().enumerate() {
            let before = recent.sojourn.get(queue);
            let lately = counts.iter().enumerate().map(|(at, count)| count - before.map_or(0, |before| before[at]));
            let lately: Box<[u64]> = lately.collect();
            window.sojourn[queue] = quantile(&lately, 0.5).zip(quantile(&lately, 0.99));
        }
        *recent = Recent { at: now, stats, sojourn, window };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Aside, DataplaneConfig, PortConfig, at_once};

    #[test]
    fn a_port_goes_down_while_somebody_holds_the_store() {
        let ports = vec![PortConfig { number: 1, interface: "memory".into(), link: None }];
        let (cpu_port, capture, aside) = (None, None, at_once as Aside);
        let config = DataplaneConfig { ports, cpu_port, priority_queues: 8, seed: 1, capture, aside };
        let (dataplane, events, _ends) = Dataplane::start_in_memory(config).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
        let program = apswitch_core::program::Program::load(&std::fs::read(program).unwrap()).unwrap();
        dataplane.commit_blocking(program).unwrap();
        let port = dataplane.inner.ports().remove(0);
        let held = dataplane.inner.store();
        dataplane.set_enabled(1, false);
        assert!(matches!(events.notices.try_recv(), Ok(Notice::PortState { port: 1, up: false })));
        assert!(!dataplane.ports()[0].up && port.up_in_store.load(Relaxed));
        drop(held);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while port.up_in_store.load(Relaxed) {
            assert!(std::time::Instant::now() < deadline, "the store is not notified");
            std::thread::sleep(Duration::from_millis(1));
        }
        dataplane.stop();
    }
}
