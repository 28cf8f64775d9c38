// SPDX-License-Identifier: Apache-2.0
//! What a daemon says of itself: one JSON object to everyone who connects to its unix socket.
//!
//! The socket's name is an abstract one: it belongs to the network namespace and ends with the daemon, however that ends.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::announce::Counters;
use super::model::{Bound, Capacity};
use crate::output::Format;
use crate::{About, Error};

#[derive(Serialize, Deserialize)]
pub struct Status {
    pub interface: String,
    /// Whether the interface exists and announcements leave
    pub announcing: bool,
    /// "on", "off (--observe)", or "missing: ..." with the reason
    pub control: String,
    /// This terminal, hexadecimal
    pub terminal: String,
    /// Terminals that announce themselves, this one included
    pub terminals: usize,
    /// Those of them that send: the n of the ideal window
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
    /// It has data on the way or had since the last reading
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

fn address(interface: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("hosts-cwnd/{interface}"))
}

/// Clients that are served at the same time, and for how long.
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);

struct Client {
    stream: UnixStream,
    rest: Vec<u8>,
    until: Instant,
}

/// The daemon's end. Never blocks.
pub struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
}

impl Server {
    /// Errors: another daemon serves this interface.
    pub fn bind(interface: &str) -> Result<Self, Error> {
        let listener = address(interface).and_then(|address| UnixListener::bind_addr(&address)).map_err(|error| {
            Error::new(if error.kind() == io::ErrorKind::AddrInUse {
                format!("another `hosts cwnd run` serves {interface}: end it first")
            } else {
                format!("status socket of {interface}: {error}")
            })
        })?;
        listener.set_nonblocking(true).about("status socket")?;
        Ok(Self { listener, clients: Vec::new() })
    }

    /// What to poll for, and for which events.
    pub fn interests(&self) -> impl Iterator<Item = (RawFd, i16)> {
        let clients = self.clients.iter().map(|client| (client.stream.as_raw_fd(), libc::POLLOUT));
        // Who cannot be served yet must not keep the daemon awake.
        let free = self.clients.len() < CLIENTS;
        free.then_some((self.listener.as_raw_fd(), libc::POLLIN)).into_iter().chain(clients)
    }

    /// Accepts and writes as far as it goes without waiting; `status` makes the answer.
    pub fn serve(&mut self, now: Instant, status: impl Fn() -> Status) {
        while self.clients.len() < CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
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

/// The status of the daemon on an interface; none when no daemon serves it. Errors: it does not answer.
pub fn ask(interface: &str) -> Result<Option<Status>, Error> {
    let about = format!("the daemon on {interface} does not answer");
    let mut stream = match address(interface).and_then(|address| UnixStream::connect_addr(&address)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        stream => stream.about(&about)?,
    };
    stream.set_read_timeout(Some(PATIENCE)).about(&about)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).about(&about)?;
    serde_json::from_str(&answer).map(Some).about(&about)
}

/// Prints the status of daemons: one JSON object each, or tables.
pub fn print(format: Format, all: &[Status]) {
    let columns =
        ["interface", "control", "terminals", "sending", "Mb/s of all", "BW_max", "exponent", "accepted", "refused"];
    format.print(all, &columns, |status| {
        let heard = &status.datagrams;
        let refused = [("forged", heard.forged), ("malformed", heard.malformed), ("stale", heard.stale)];
        let refused = [refused.as_slice(), &[("replayed", heard.replayed), ("full", heard.full)]].concat();
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
            heard.accepted.to_string(),
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
