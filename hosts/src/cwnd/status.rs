// SPDX-License-Identifier: Apache-2.0
//! Status of a daemon: one JSON object to everyone who connects to its unix socket.
//!
//! The socket lies in a directory that only its owner can write to (a name in the abstract namespace is anybody's who comes first):
//! /run/hosts-cwnd for root, hosts-cwnd in XDG_RUNTIME_DIR or below /tmp for others. Its name tells the network namespace,
//! as each has an `eth0`. Whoever asks believes only a socket of root or of its own user.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::announce::Counters;
use super::model::{Bound, Capacity};
use hosts_base::output::Format;
use hosts_base::{About, Error};

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

/// Return the directory of a user's sockets.
fn directory(user: u32) -> PathBuf {
    if user == 0 {
        return PathBuf::from("/run/hosts-cwnd");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("hosts-cwnd"),
        None => PathBuf::from(format!("/tmp/hosts-cwnd-{user}")),
    }
}

/// Return the path of the socket for an interface of this network namespace. Errors: /proc is not there.
fn address(directory: &Path, interface: &str) -> io::Result<PathBuf> {
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(directory.join(format!("{namespace}-{interface}.sock")))
}

fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Check the directory. Errors: it is not `owner`'s, or others may write to it, so that its content proves nothing.
fn check_directory(path: &Path, owner: u32) -> io::Result<()> {
    let is = fs::symlink_metadata(path)?;
    if is.is_dir() && is.uid() == owner && is.permissions().mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} is no directory that only its owner can write to: remove it", path.display()),
    ))
}

/// Bind the socket of a daemon. Errors: another one serves the interface (`AddrInUse`), the directory is not this
/// user's.
fn bind(interface: &str) -> io::Result<(UnixListener, PathBuf)> {
    let directory = directory(user());
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => check_directory(&directory, user())?,
    }
    // Locked, so that no other daemon binds between the check for a server and the bind.
    let lock = File::open(&directory)?;
    // SAFETY: an open descriptor; the lock goes with it.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(io::Error::last_os_error());
    }
    remove_forsaken(&directory)?;
    let path = address(&directory, interface)?;
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

/// Remove the sockets of daemons that were killed.
fn remove_forsaken(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
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
    path: PathBuf,
    clients: Vec<Client>,
}

impl Server {
    /// Bind the socket. Errors: another daemon serves this interface.
    pub fn bind(interface: &str) -> Result<Self, Error> {
        let (listener, path) = bind(interface).map_err(|error| {
            Error::new(if error.kind() == io::ErrorKind::AddrInUse {
                format!("another `hosts cwnd run` serves {interface}: end it first")
            } else {
                format!("status socket of {interface}: {error}")
            })
        })?;
        listener.set_nonblocking(true).about("status socket")?;
        Ok(Self { listener, path, clients: Vec::new() })
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

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Maximum bytes of a status that is read.
const MAX_STATUS: u64 = 64 << 20;

/// Read the status of the daemon on an interface; None when none serves it. Errors: it does not answer.
pub fn ask(interface: &str) -> Result<Option<Status>, Error> {
    let about = format!("the daemon on {interface} does not answer");
    let Some(mut stream) = find(interface).about(&about)? else { return Ok(None) };
    stream.set_read_timeout(Some(PATIENCE)).about(&about)?;
    let mut answer = String::new();
    (&mut stream).take(MAX_STATUS).read_to_string(&mut answer).about(&about)?;
    serde_json::from_str(&answer).map(Some).about(&about)
}

/// Connect to this user's daemon, or to root's. Errors: there is one that does not talk to this user.
fn find(interface: &str) -> io::Result<Option<UnixStream>> {
    for owner in [user(), 0] {
        let directory = directory(owner);
        match check_directory(&directory, owner) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            checked => checked?,
        }
        match UnixStream::connect(address(&directory, interface)?) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
