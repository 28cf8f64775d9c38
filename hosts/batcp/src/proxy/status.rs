// SPDX-License-Identifier: Apache-2.0
//! Status of running proxies: what their connections carry, by path.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use crate::{Arrivals, Connection, Counts, Options, Status, Totals, Uplinks};
use hosts_base::output::Format;
use hosts_base::{About, Error, status};

/// Name of the sockets.
const NAME: &str = "hosts-batcp";
/// Time over which `batcp status` measures rates.
const INTERVAL: Duration = Duration::from_millis(500);

type Watch = Box<dyn Fn() -> Status + Send>;

/// Connections that a proxy carries, and what those carried that have ended.
#[derive(Default)]
pub struct Carried {
    live: Mutex<HashMap<u64, Watch>>,
    ended: Mutex<BTreeMap<String, PathStatus>>,
    served: AtomicU64,
    failed: AtomicU64,
}

/// Place of a connection among those that are carried, until it is dropped.
pub struct Place {
    carried: Arc<Carried>,
    number: u64,
}

impl Carried {
    /// Count a connection from now on.
    pub fn add(self: &Arc<Self>, connection: &Connection) -> Place {
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        self.live().insert(number, Box::new(connection.watch()));
        Place { carried: self.clone(), number }
    }

    /// Count a client that was not served, or not to the end.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Watch>> {
        self.live.lock().expect("no holder panics")
    }

    fn paths(&self, uplinks: &Uplinks) -> Vec<PathStatus> {
        let mut paths = self.ended.lock().expect("no holder panics").clone();
        for watch in self.live().values() {
            add_up(&mut paths, &watch(), true);
        }
        for (name, (used, quota)) in uplinks.quotas() {
            let path = paths.entry(name.clone()).or_insert_with(|| PathStatus { path: name, ..PathStatus::default() });
            (path.quota_used, path.quota) = (Some(used), Some(quota));
        }
        paths.into_values().collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let watch = self.carried.live().remove(&self.number);
        if let Some(watch) = watch {
            add_up(&mut self.carried.ended.lock().expect("no holder panics"), &watch(), false);
        }
    }
}

fn add_up(paths: &mut BTreeMap<String, PathStatus>, status: &Status, live: bool) {
    for total in &status.totals {
        let path = paths
            .entry(total.interface.clone())
            .or_insert_with(|| PathStatus { path: total.interface.clone(), ..PathStatus::default() });
        path.add(total);
        path.rtt_ms = total.rtt_ms;
        let open = |subflow: &&crate::SubflowStatus| subflow.interface == total.interface;
        path.subflows += if live { status.subflows.iter().filter(open).count() as u64 } else { 0 };
    }
}

/// Counters of a path over all connections; rates and parts are those of the time that `batcp status` takes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// The interface's name at the end that opens connections; the other end knows its number.
    path: String,
    /// Payload with retransmissions, in bytes.
    bytes_sent: u64,
    bytes_received: u64,
    /// Bytes that TCP has sent, and of these the retransmitted ones.
    tcp_bytes_sent: u64,
    tcp_bytes_retransmitted: u64,
    /// Subflows that are open; that were opened; that died.
    subflows: u64,
    opened: u64,
    lost: u64,
    rtt_ms: f64,
    /// Bytes that the interface has counted in this period, and may count.
    quota_used: Option<u64>,
    quota: Option<u64>,
    #[serde(default)]
    rate_kbit: f64,
    /// Part of all bytes that the path has carried, and of its own that TCP has sent again.
    #[serde(default)]
    share: f64,
    #[serde(default)]
    loss: f64,
}

impl PathStatus {
    fn add(&mut self, total: &Totals) {
        self.bytes_sent += total.bytes_sent;
        self.bytes_received += total.bytes_received;
        self.tcp_bytes_sent += total.tcp_bytes_sent;
        self.tcp_bytes_retransmitted += total.tcp_bytes_retransmitted;
        self.opened += total.subflows;
        self.lost += total.lost;
    }

    fn carried(&self) -> u64 {
        self.bytes_sent + self.bytes_received
    }
}

/// Answer of a proxy.
#[derive(Serialize, Deserialize)]
pub struct ProxyStatus {
    pid: u32,
    /// `socks`, `local` or `remote`.
    proxy: String,
    /// Connections at present; connections so far; clients that were not served, or not to the end.
    connections: u64,
    served: u64,
    failed: u64,
    /// Arrivals at a remote proxy; counters of the TCP option.
    arrivals: Option<Arrivals>,
    option: Option<Counts>,
    paths: Vec<PathStatus>,
}

impl ProxyStatus {
    /// Fill in rates, from an earlier answer, and parts.
    fn measure(&mut self, earlier: &Self) {
        let all: u64 = self.paths.iter().map(PathStatus::carried).sum();
        for path in &mut self.paths {
            let before = earlier.paths.iter().find(|other| other.path == path.path).map_or(0, PathStatus::carried);
            path.rate_kbit = path.carried().saturating_sub(before) as f64 * 8e-3 / INTERVAL.as_secs_f64();
            path.share = path.carried() as f64 / all.max(1) as f64;
            path.loss = path.tcp_bytes_retransmitted as f64 / path.tcp_bytes_sent.max(1) as f64;
        }
    }
}

/// Answer processes that ask for the status, from now on. Without a right to do so there is no status.
pub fn answer(
    proxy: &'static str,
    carried: &Arc<Carried>,
    options: &Options,
    arrivals: Option<Box<dyn Fn() -> Arrivals + Send>>,
) -> Result<(), Error> {
    let listening = status::listen(NAME).and_then(tokio::net::UnixListener::from_std);
    let listener = listening.about("listen for `batcp status`")?;
    let (carried, negotiation, uplinks) = (carried.clone(), options.negotiation.clone(), options.uplinks.clone());
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(INTERVAL).await; // no descriptor is left, but one may be soon
                continue;
            };
            if status::is_trusted(&stream) {
                let connections = carried.live().len() as u64; // not in what follows, where the lock would last
                let status = ProxyStatus {
                    pid: std::process::id(),
                    proxy: proxy.into(),
                    connections,
                    served: carried.served.load(Ordering::Relaxed),
                    failed: carried.failed.load(Ordering::Relaxed),
                    arrivals: arrivals.as_ref().map(|arrivals| arrivals()),
                    option: negotiation.counts(),
                    paths: carried.paths(&uplinks),
                };
                let text = serde_json::to_string(&status).expect("plain data");
                let _ = tokio::time::timeout(status::PATIENCE, stream.write_all(text.as_bytes())).await;
            }
        }
    });
    Ok(())
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputFormat {
    Prometheus,
}

#[derive(Args)]
pub struct StatusOptions {
    /// Print another format: the text format of Prometheus, for its node exporter's textfile collector
    #[arg(long = "as", value_name = "FORMAT", conflicts_with = "json")]
    output: Option<OutputFormat>,
    #[command(flatten)]
    format: Format,
}

/// Run `hosts batcp status`: the proxies of this network namespace that this user may ask. None is an error to a reader, and
/// nothing to a program, which asks again.
pub fn show(options: &StatusOptions) -> Result<(), Error> {
    let earlier: Vec<ProxyStatus> = status::ask(NAME)?;
    sleep(INTERVAL);
    let mut proxies: Vec<ProxyStatus> = status::ask(NAME)?;
    proxies.sort_unstable_by_key(|proxy| proxy.pid);
    for proxy in &mut proxies {
        if let Some(before) = earlier.iter().find(|before| before.pid == proxy.pid) {
            proxy.measure(before);
        }
    }
    if options.output.is_some() {
        print!("{}", prometheus(&proxies));
        return Ok(());
    }
    if options.format.is_json() {
        options.format.print(&proxies, &[], |_| Vec::new());
        return Ok(());
    }
    if proxies.is_empty() {
        let none =
            "no proxy runs in this network namespace that this user may ask; `batcp socks` and `batcp proxy` start one";
        return Err(Error::new(none));
    }
    let rows: Vec<_> =
        proxies.iter().flat_map(|proxy| proxy.paths.iter().map(move |path| Row { proxy, path })).collect();
    for proxy in &proxies {
        let refused = proxy.arrivals.map_or_else(String::new, |a| format!(", {} refused", a.refused + a.downgraded));
        let ProxyStatus { proxy, pid, connections, served, failed, .. } = proxy;
        println!("{proxy} {pid}: {connections} connections, {served} so far, {failed} failed{refused}");
    }
    let columns = [
        "proxy",
        "path",
        "share (%)",
        "rate (Mbit/s)",
        "RTT (ms)",
        "loss (%)",
        "sent (MB)",
        "received (MB)",
        "subflows",
        "lost",
        "quota (GB)",
    ];
    options.format.print(&rows, &columns, |Row { proxy, path }| {
        vec![
            format!("{} {}", proxy.proxy, proxy.pid),
            path.path.clone(),
            format!("{:.1}", 100.0 * path.share),
            format!("{:.1}", path.rate_kbit * 1e-3),
            format!("{:.1}", path.rtt_ms),
            format!("{:.2}", 100.0 * path.loss),
            format!("{:.1}", path.bytes_sent as f64 * 1e-6),
            format!("{:.1}", path.bytes_received as f64 * 1e-6),
            path.subflows.to_string(),
            path.lost.to_string(),
            path.quota_used.zip(path.quota).map_or_else(String::new, |(used, quota)| {
                format!("{:.2} of {:.2}", used as f64 * 1e-9, quota as f64 * 1e-9)
            }),
        ]
    });
    Ok(())
}

#[derive(Serialize)]
struct Row<'p> {
    proxy: &'p ProxyStatus,
    path: &'p PathStatus,
}

/// Format as Prometheus text (version 0.0.4).
fn prometheus(proxies: &[ProxyStatus]) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, rows: Vec<(String, f64)>| {
        let _ = writeln!(text, "# TYPE batcp_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "batcp_{name}{{{labels}}} {value}");
        }
    };
    let of = |proxy: &ProxyStatus| format!("proxy=\"{}\",pid=\"{}\"", proxy.proxy, proxy.pid);
    let each = |value: fn(&ProxyStatus) -> u64| proxies.iter().map(|p| (of(p), value(p) as f64)).collect();
    metric("connections", "gauge", each(|proxy| proxy.connections));
    metric("served_total", "counter", each(|proxy| proxy.served));
    metric("failed_total", "counter", each(|proxy| proxy.failed));
    metric("refused_total", "counter", each(|proxy| proxy.arrivals.map_or(0, |arrivals| arrivals.refused)));
    metric("downgraded_total", "counter", each(|proxy| proxy.arrivals.map_or(0, |arrivals| arrivals.downgraded)));
    // Paths without the value have no row.
    let some = |value: fn(&PathStatus) -> Option<f64>| {
        let row = |proxy: &ProxyStatus, path: &PathStatus| {
            value(path).map(|value| (format!("{},path=\"{}\"", of(proxy), path.path), value))
        };
        proxies.iter().flat_map(|proxy| proxy.paths.iter().filter_map(move |path| row(proxy, path))).collect()
    };
    let mut path = |name: &str, kind: &str, value: fn(&PathStatus) -> Option<f64>| {
        metric(&format!("path_{name}"), kind, some(value));
    };
    path("sent_bytes_total", "counter", |path| Some(path.bytes_sent as f64));
    path("received_bytes_total", "counter", |path| Some(path.bytes_received as f64));
    path("tcp_sent_bytes_total", "counter", |path| Some(path.tcp_bytes_sent as f64));
    path("tcp_retransmitted_bytes_total", "counter", |path| Some(path.tcp_bytes_retransmitted as f64));
    path("rtt_seconds", "gauge", |path| Some(path.rtt_ms * 1e-3));
    path("rate_bits_per_second", "gauge", |path| Some(path.rate_kbit * 1e3));
    path("share", "gauge", |path| Some(path.share));
    path("loss", "gauge", |path| Some(path.loss));
    path("subflows", "gauge", |path| Some(path.subflows as f64));
    path("subflows_lost_total", "counter", |path| Some(path.lost as f64));
    path("quota_bytes", "gauge", |path| path.quota.map(|bytes| bytes as f64));
    path("quota_used_bytes", "gauge", |path| path.quota_used.map(|bytes| bytes as f64));
    text
}
