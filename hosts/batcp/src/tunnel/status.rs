// SPDX-License-Identifier: Apache-2.0
//! Status of a running tunnel, for processes that may open its socket: those of its own user.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use super::core::Core;
use hosts_base::output::Format;
use hosts_base::{About, Error};

const FOLDER: &str = "/run/hosts-batcp";
/// Maximum bytes of a tunnel's answer.
const MAX_ANSWER: u64 = 1 << 16;

#[derive(Serialize, Deserialize)]
pub struct Status {
    device: String,
    packets_sent: u64,
    packets_received: u64,
    /// Packets sent over a second link; sent again as their link died; taken by no link.
    packets_doubled: u64,
    packets_repeated: u64,
    packets_dropped: u64,
    datagrams_refused: u64,
    sessions: u64,
    links: Vec<LinkStatus>,
}

#[derive(Serialize, Deserialize)]
struct LinkStatus {
    link: String,
    peer: String,
    alive: bool,
    /// The link in use.
    chosen: bool,
    rtt_ms: Option<f64>,
    cost: f32,
    /// Bytes that the link may still carry; None: no limit.
    quota_left: Option<u64>,
    packets_sent: u64,
    packets_received: u64,
    bytes_sent: u64,
    bytes_received: u64,
    deaths: u64,
}

impl Status {
    pub fn of(device: &str, core: &Core) -> Self {
        let (counters, chosen) = (core.counters, core.chosen());
        let link = |(k, link): (usize, &super::link::Link)| LinkStatus {
            link: link.name.clone(),
            peer: link.peer.map_or_else(String::new, |peer| peer.to_string()),
            alive: link.alive && !link.is_silent(Instant::now()),
            chosen: chosen == Some(k),
            rtt_ms: link.rtt.map(|(rtt, _)| rtt.as_secs_f64() * 1e3),
            cost: link.cost,
            quota_left: (link.quota != u64::MAX)
                .then(|| link.quota.saturating_sub(link.bytes_sent + link.bytes_received)),
            packets_sent: link.packets_sent,
            packets_received: link.packets_received,
            bytes_sent: link.bytes_sent,
            bytes_received: link.bytes_received,
            deaths: link.deaths,
        };
        Self {
            device: device.to_owned(),
            packets_sent: counters.sent,
            packets_received: counters.received,
            packets_doubled: counters.doubled,
            packets_repeated: counters.repeated,
            packets_dropped: counters.dropped,
            datagrams_refused: counters.refused,
            sessions: counters.sessions,
            links: core.links.iter().enumerate().map(link).collect(),
        }
    }

    /// Format as Prometheus text (version 0.0.4).
    fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, rows: &[(String, f64)]| {
            let _ = writeln!(text, "# TYPE batcp_tunnel_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "batcp_tunnel_{name}{{{labels}}} {value}");
            }
        };
        let device = format!("device=\"{}\"", self.device);
        for (name, value) in [
            ("packets_sent", self.packets_sent),
            ("packets_received", self.packets_received),
            ("packets_doubled", self.packets_doubled),
            ("packets_repeated", self.packets_repeated),
            ("packets_dropped", self.packets_dropped),
            ("datagrams_refused", self.datagrams_refused),
            ("sessions", self.sessions),
        ] {
            metric(&format!("{name}_total"), "counter", &[(device.clone(), value as f64)]);
        }
        let links = |value: &dyn Fn(&LinkStatus) -> Option<f64>| -> Vec<(String, f64)> {
            let row = |link: &LinkStatus| Some((format!("{device},link=\"{}\"", link.link), value(link)?));
            self.links.iter().filter_map(row).collect()
        };
        metric("link_alive", "gauge", &links(&|link| Some(f64::from(u8::from(link.alive)))));
        metric("link_chosen", "gauge", &links(&|link| Some(f64::from(u8::from(link.chosen)))));
        metric("link_rtt_seconds", "gauge", &links(&|link| Some(link.rtt_ms? / 1e3)));
        metric("link_quota_left_bytes", "gauge", &links(&|link| Some(link.quota_left? as f64)));
        metric("link_sent_bytes_total", "counter", &links(&|link| Some(link.bytes_sent as f64)));
        metric("link_received_bytes_total", "counter", &links(&|link| Some(link.bytes_received as f64)));
        metric("link_deaths_total", "counter", &links(&|link| Some(link.deaths as f64)));
        text
    }
}

fn path(device: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(device)
}

/// Listen on the status socket, which answers each connection with one status.
pub fn listen(device: &str) -> Result<UnixListener, Error> {
    let (path, about) = (path(device), || format!("{FOLDER} (for the status)"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(FOLDER).about(about())?;
    let _ = fs::remove_file(&path); // of a run that was killed: its device is gone, or it could not be made again
    let listener = UnixListener::bind(&path).about(about())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).about(about())?;
    Ok(listener)
}

/// Remove the status socket.
pub fn forget(device: &str) {
    let _ = fs::remove_file(path(device));
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputFormat {
    Prometheus,
}

#[derive(Args)]
pub struct StatusOptions {
    /// The tunnel's network device
    #[arg(long, default_value = "batcp0")]
    device: String,
    /// Print another format: the text format of Prometheus, for its node exporter's textfile collector
    #[arg(long = "as", value_name = "FORMAT", conflicts_with = "json")]
    output: Option<OutputFormat>,
    #[command(flatten)]
    format: Format,
}

/// Run `hosts batcp tunnel status`. Errors: no tunnel has such a device here.
pub fn show(options: &StatusOptions) -> Result<(), Error> {
    let about = || format!("no tunnel with the device {} runs here", options.device);
    let stream = UnixStream::connect(path(&options.device)).about(about())?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).about(about())?;
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text).about(about())?;
    let status: Status = serde_json::from_str(&text).about(about())?;
    if options.output.is_some() {
        print!("{}", status.prometheus());
    } else if options.format.is_json() {
        println!("{text}");
    } else {
        let columns =
            ["link", "peer", "state", "RTT (ms)", "cost", "quota left (MB)", "sent (MB)", "received (MB)", "deaths"];
        options.format.print(&status.links, &columns, |link| {
            let mega = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
            let state = match (link.chosen, link.alive) {
                (true, _) => "in use",
                (false, true) => "alive",
                (false, false) => "silent",
            };
            vec![
                link.link.clone(),
                link.peer.clone(),
                state.into(),
                link.rtt_ms.map_or_else(String::new, |rtt| format!("{rtt:.1}")),
                link.cost.to_string(),
                link.quota_left.map_or_else(String::new, mega),
                mega(link.bytes_sent),
                mega(link.bytes_received),
                link.deaths.to_string(),
            ]
        });
    }
    Ok(())
}
