// SPDX-License-Identifier: Apache-2.0
//! Status of a daemon: one JSON object to each process of its user, and of root, that asks.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::announce::Counters;
use super::model::{Bound, Capacity};
use hosts_base::output::Format;
use hosts_base::{About, Error, status as base};

#[derive(Serialize, Deserialize)]
pub struct Status {
    pub interface: String,
    /// The interface exists and announcements are sent
    pub announcing: bool,
    /// "on", "off (--observe)", or "missing: ..." with the reason
    pub control: String,
    /// Id of this terminal, hexadecimal
    pub terminal: String,
    /// Terminals that announce themselves, this one included
    pub terminals: usize,
    /// Terminals among them that send: the n of the ideal window
    pub sending: usize,
    /// Acknowledged throughput of all of them, kbit/s
    pub kbit_per_s: u64,
    pub capacity: Option<Capacity>,
    pub datagrams: Counters,
    /// Sockets that refused a bound
    pub refused: u64,
    pub neighbours: Vec<Neighbour>,
    pub connections: Vec<Connection>,
}

#[derive(Serialize, Deserialize)]
pub struct Neighbour {
    pub terminal: String,
    pub sending: u16,
    pub kbit_per_s: u32,
}

#[derive(Serialize, Deserialize)]
pub struct Connection {
    pub local: String,
    pub peer: String,
    /// Data is in flight or was since the last reading
    pub sending: bool,
    pub rtt_ms: f64,
    pub min_rtt_ms: f64,
    pub ratio: f64,
    /// Segments
    pub window: u32,
    pub control: Bound,
    /// Segments; none: unbounded
    pub bound: Option<u32>,
}

/// Clients that are served at the same time, and the time that each has.
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);

struct Client {
    stream: UnixStream,
    rest: Vec<u8>,
    until: Instant,
}

/// Daemon's end of the status socket. Never blocks.
pub struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
}

/// Name of the status sockets of an interface.
fn name(interface: &str) -> String {
    format!("hosts-cwnd/{interface}")
}

impl Server {
    /// Bind the socket. Errors: another daemon of this user, or of root, serves this interface.
    pub fn bind(interface: &str) -> Result<Self, Error> {
        let listener = base::listen(&name(interface)).about("status socket")?;
        // One of them is this one.
        if base::connect(&name(interface))?.len() > 1 {
            return Err(Error::new(format!("another `hosts cwnd run` serves {interface}: end it first")));
        }
        Ok(Self { listener, clients: Vec::new() })
    }

    /// Return the descriptors to poll, and their events.
    pub fn interests(&self) -> impl Iterator<Item = (RawFd, i16)> {
        let clients = self.clients.iter().map(|client| (client.stream.as_raw_fd(), libc::POLLOUT));
        // A client that cannot be served yet must not keep the daemon awake.
        let free = self.clients.len() < CLIENTS;
        free.then_some((self.listener.as_raw_fd(), libc::POLLIN)).into_iter().chain(clients)
    }

    /// Accept and write as far as possible without blocking; `status` makes the answer.
    pub fn serve(&mut self, now: Instant, status: impl Fn() -> Status) {
        while self.clients.len() < CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if base::is_trusted(&stream) && stream.set_nonblocking(true).is_ok() {
                let mut rest = serde_json::to_vec(&status()).expect("a status is plain data");
                rest.push(b'\n');
                self.clients.push(Client { stream, rest, until: now + PATIENCE });
            }
        }
        self.clients.retain_mut(|client| {
            loop {
                match client.stream.write(&client.rest) {
                    Ok(written) => client.rest.drain(..written),
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock && now < client.until,
                };
                if client.rest.is_empty() {
                    return false;
                }
            }
        });
    }
}

/// Return the status of the daemons on an interface, or on all.
pub fn ask(interface: Option<&str>) -> Result<Vec<Status>, Error> {
    let mut found: Vec<Status> = base::ask(&interface.map_or_else(|| "hosts-cwnd".into(), name))?;
    found.sort_unstable_by(|a, b| a.interface.cmp(&b.interface));
    Ok(found)
}

/// Print the status of daemons: one JSON object each, or tables.
pub fn print(format: Format, all: &[Status]) {
    let columns =
        ["interface", "control", "terminals", "sending", "Mb/s of all", "BW_max", "exponent", "accepted", "refused"];
    format.print(all, &columns, |status| {
        let datagrams = &status.datagrams;
        let refused = [("forged", datagrams.forged), ("malformed", datagrams.malformed), ("stale", datagrams.stale)];
        let refused = [refused.as_slice(), &[("replayed", datagrams.replayed), ("full", datagrams.full)]].concat();
        let refused: Vec<_> = refused.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
        let capacity =
            |show: fn(&Capacity) -> f64| status.capacity.as_ref().map_or("-".into(), |c| format!("{:.3}", show(c)));
        vec![
            format!("{}{}", status.interface, if status.announcing { "" } else { " (down)" }),
            status.control.clone(),
            status.terminals.to_string(),
            status.sending.to_string(),
            format!("{:.2}", status.kbit_per_s as f64 / 1e3),
            capacity(|capacity| capacity.mbit_per_s),
            capacity(|capacity| capacity.exponent),
            datagrams.accepted.to_string(),
            if refused.is_empty() { "0".into() } else { refused.join(", ") },
        ]
    });
    let connections: Vec<&Connection> = all.iter().flat_map(|status| &status.connections).collect();
    if !format.is_json() && !connections.is_empty() {
        let columns = ["from", "to", "RTT ms", "min ms", "ratio", "window", "control", "bound"];
        format.print(&connections, &columns, |connection| {
            vec![
                connection.local.clone(),
                connection.peer.clone(),
                format!("{:.1}", connection.rtt_ms),
                format!("{:.1}", connection.min_rtt_ms),
                format!("{:.1}", connection.ratio),
                connection.window.to_string(),
                format!("{:?}", connection.control).to_lowercase(),
                connection.bound.map_or("-".into(), |bound| bound.to_string()),
            ]
        });
    }
}
