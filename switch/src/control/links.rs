// SPDX-License-Identifier: Apache-2.0
//! Ports at run time: link models, queues, whether they are enabled, and what they carried lately.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Dataplane, Inner, Notice, PortHandle, UpdateError, locked};
use crate::command::Command;
use crate::link::{LinkConfig, QUEUES};
use crate::port::{PortStats, QueueStats, mtu, quantile};

/// What [`Window`] covers.
pub const WINDOW: Duration = Duration::from_secs(1);

/// What a port did in the last whole [`WINDOW`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// bit/s and packets/s.
    pub in_bits: u64,
    pub in_packets: u64,
    pub out_bits: u64,
    pub out_packets: u64,
    /// Median and 99th percentile of the time (ns) that packets were in each queue; `None`: none left it.
    pub sojourn: [Option<(u64, u64)>; QUEUES],
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
    /// Of the queues that there are.
    pub queues: Vec<QueueStats>,
    pub window: Window,
}

impl Dataplane {
    /// Queues of each port that has a link model.
    pub fn queues(&self) -> usize {
        self.inner.queues
    }

    /// The ports, in their order.
    pub fn links(&self) -> Vec<LinkView> {
        let view = |port: &PortHandle| {
            let link = locked(&port.link).clone();
            let queues = if link.is_some() { self.inner.queues } else { 0 };
            LinkView {
                enabled: port.enabled.load(Relaxed),
                mtu: if self.inner.interfaces { mtu(&port.interface).ok() } else { None },
                link,
                queues: port.cells.queues[..queues].iter().map(|queue| queue.read()).collect(),
                window: locked(&port.recent).window.clone(),
            }
        };
        self.inner.ports.iter().map(view).collect()
    }

    /// Gives ports, by their places, other link models, all at once; what waits there is kept. A trace stays as it was.
    /// Returns when they are in effect.
    pub async fn set_links(&self, links: Vec<(usize, LinkConfig)>) -> Result<(), UpdateError> {
        self.begin_set_links(links).await.map_err(|_| UpdateError::Stopped)
    }

    /// As [`Dataplane::set_links`], for callers without an async runtime.
    pub fn set_links_blocking(&self, links: Vec<(usize, LinkConfig)>) -> Result<(), UpdateError> {
        self.begin_set_links(links).blocking_recv().map_err(|_| UpdateError::Stopped)
    }

    fn begin_set_links(&self, links: Vec<(usize, LinkConfig)>) -> oneshot::Receiver<()> {
        let (done, answer) = oneshot::channel();
        for (port, config) in &links {
            *locked(&self.inner.ports[*port].link) = Some(config.clone());
        }
        self.inner.commands.send(Command::Links { links, done });
        answer
    }

    /// A port, by its place, that is not enabled is down: it takes and sends nothing.
    pub fn set_enabled(&self, port: usize, enabled: bool) {
        let handle = &self.inner.ports[port];
        handle.enabled.store(enabled, Relaxed);
        self.inner.commands.send(Command::Enable { port, enabled });
        if !enabled || !self.inner.interfaces {
            set_up(&self.inner, handle, enabled);
        }
        // Otherwise it is up when its interface is, which the watcher sees.
    }
}

/// The port goes up or down; nothing happens if it is so already.
pub fn set_up(inner: &Inner, port: &PortHandle, up: bool) {
    if port.up.swap(up, Relaxed) == up {
        return;
    }
    let state = if up { "up" } else { "down" };
    tracing::info!("port {} ({}) is {state}", port.number, port.interface);
    let mut changes = Vec::new();
    // Held until the changes are on their way, as by a write.
    let mut store = inner.store();
    if let Some(store) = &mut *store {
        store.set_port(port.number, up, &mut changes);
    }
    inner.commands.send(Command::Changes { changes, at_once: false, done: oneshot::channel().0 });
    drop(store);
    if inner.notices.try_send(Notice::PortState { port: port.number, up }).is_err() {
        tracing::debug!("a port state was not fetched in time");
    }
}

/// Ends windows that are over.
pub fn sample(inner: &Inner) {
    let now = inner.clock.now();
    for port in &inner.ports {
        let has_queues = locked(&port.link).is_some();
        let mut recent = locked(&port.recent);
        if now < recent.at + WINDOW.as_nanos() as u64 {
            continue;
        }
        let stats = port.cells.read();
        let queues = if has_queues { inner.queues } else { 0 };
        let sojourn: Vec<_> = port.cells.queues[..queues].iter().map(|queue| queue.sojourn.read()).collect();
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
