// SPDX-License-Identifier: Apache-2.0
//! BATCP: one connection over several interfaces (paper 003, "BATCP: Bandwidth-Aggregation TCP").
//!
//! # For programs
//!
//! [`connect`] and [`Listener`] give a [`Connection`]: a byte stream (tokio's `AsyncRead` and `AsyncWrite`, `tokio::io::split`)
//! that uses every interface that it is given. Close it with `shutdown()` in each direction as a `TcpStream`. A connection that is
//! dropped before its `shutdown()` is reset: the peer gets an error, never an early end of file.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use batcp::{Options, connect};
//! use tokio::io::AsyncWriteExt;
//! let interfaces = ["eth0".parse()?, "wwan0:0.1:0.9:4".parse()?];
//! let mut connection = connect(&["192.0.2.1:7000".parse()?], &interfaces, &Options::default()).await?;
//! connection.write_all(b"over both").await?;
//! connection.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! # The agreement of two ends
//!
//! A connection is a set of *subflows*: kernel TCP connections, each bound to one interface. Section 3.1's handshake has two
//! parts, so that it also serves where no TCP option can be had:
//!
//! 1. *Do both ends speak BATCP?* A [`Negotiation`] decides. [`InBand`] assumes it (no privilege, no BPF; the listener refuses who
//!    does not begin with a hello). The TCP option of kind 254 ([`Announcer`]) tells it on SYN and SYN-ACK; when the SYN-ACK does not carry
//!    the option, [`connect`] gives a plain TCP connection (`Connection::is_plain`), and a listener does so for a SYN without.
//!    With a [`Key`] either refuses it instead: a connection with a key is sealed, always.
//!    Calls, in this order, for each subflow: `prepare` on the unconnected socket, connect(2), then `answered`; at the listener:
//!    `received` on each accepted socket. All sockets of a connection carry the same [`Mark::connection`].
//! 2. *Who joins what?* The first bytes of each subflow are a hello (first) or a join (others), whatever the negotiation: a
//!    four-digit connection id is guessable, so both hellos carry random nonces, of which and of the shared [`Key`] come the
//!    connection's keys, and a join proves that it knows them (`hello.rs`). With a key the subflow is then sealed, without one it never is (`seal.rs`).

mod cgroup;
mod connection;
mod connection_state;
mod coupling;
mod dscp;
mod hello;
mod interface;
mod kalman;
mod link;
mod listener;
mod negotiation;
mod option;
mod path_manager;
mod peer;
mod proxy;
mod quota;
mod reassembly;
mod scheduler;
mod seal;
mod segment;
mod sender;
mod status;
mod subflow;
mod subflow_io;
#[cfg(test)]
mod tests;
mod transfer;
mod transport;
mod uplink;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;

use hosts_base::Error;

pub use connection::{Connection, connect};
pub use connection_state::Totals;
pub use coupling::Coupling;
pub use interface::Interface;
pub use listener::{Arrivals, Listener};
pub use negotiation::{InBand, Mark, Negotiation};
pub use option::{Announcer, Counts};
pub use quota::{Quota, QuotaOption};
pub use status::{Status, SubflowStatus};
pub use uplink::Uplinks;

/// Scheduler of segments over the subflows (paper 003, section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The paper's: weighted round robin over the loads from relation and index
    Paper,
    /// A subflow takes a segment when it can send it and would deliver it before the others could
    #[default]
    Earliest,
}

/// Estimator of a subflow's throughput (paper 003, section 3.5); either passes a Kalman filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Estimator {
    /// The paper's: congestion window over round-trip time, whose samples are filtered
    Paper,
    /// Delivered bytes, whose rate is filtered
    #[default]
    Delivered,
}

/// Key that both ends share; the empty one is that of open listeners, and everybody has it.
#[derive(Clone, Default)]
pub struct Key(Vec<u8>);

impl Key {
    /// Read a key file. Errors: the file is unreadable, open to others than its owner, or too short for a key.
    pub fn read(path: &Path) -> Result<Self, Error> {
        hosts_base::key::read(path).map(Self)
    }

    /// True for the empty key, which everybody has.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }
}

/// Options of connections; one value serves for many.
#[derive(Clone)]
pub struct Options {
    pub scheduler: Scheduler,
    pub estimator: Estimator,
    /// Shared key: both ends prove it before either keeps anything for the other; frames are sealed, unless the key is
    /// the empty one.
    pub key: Key,
    /// Connections that a listener has at a time; it rejects further clients as busy. Those of an open listener share
    /// 64 MiB of windows in each direction.
    pub connections: usize,
    /// Maximum bytes that each end keeps for a connection: sent and unacknowledged, received and out of order or
    /// unread.
    pub window: usize,
    /// Time without a sign of the peer on any interface, after which the connection ends with an error.
    pub timeout: Duration,
    /// Negotiation of BATCP between the two ends.
    pub negotiation: Arc<dyn Negotiation>,
    /// Limits and quotas of this host's interfaces, which all connections with these options share.
    pub uplinks: Arc<Uplinks>,
    /// The subflows of a connection share one congestion control for what this end sends; without, each has its own.
    pub coupling: Option<Arc<Coupling>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::default(),
            estimator: Estimator::default(),
            key: Key::default(),
            connections: 256,
            window: 8 << 20,
            timeout: Duration::from_secs(20),
            negotiation: Arc::new(InBand),
            uplinks: Arc::default(),
            coupling: None,
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// SOCKS5 proxy: TCP connections of programs that know SOCKS, over several interfaces
    Socks(proxy::SocksOptions),
    /// Pair of proxies: TCP connections of unmodified programs, over several interfaces; UDP and ICMP are not carried
    #[command(subcommand)]
    Proxy(proxy::Command),
    /// Show what the proxies of this network namespace carry, by path
    Status(proxy::StatusOptions),
    /// Send a file over all interfaces, or measure how fast they are
    Send(transfer::SendOptions),
    /// Receive files
    Receive(transfer::ReceiveOptions),
}

/// Freed memory that the allocator (glibc) keeps for reuse, in bytes.
#[cfg(target_env = "gnu")]
const KEPT_MEMORY: libc::c_int = 64 << 20;

pub fn run(command: Command) -> Result<(), Error> {
    // Buffers come and go with every segment: given back to the kernel each time, their page faults took half of the time.
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers of the allocator, before there is a second thread. It may refuse: then it is slower.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_MEMORY);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_MEMORY / 2);
    }
    match command {
        Command::Socks(options) => proxy::socks(options),
        Command::Proxy(command) => proxy::run(command),
        Command::Status(options) => proxy::show_status(&options),
        Command::Send(options) => transfer::send(options),
        Command::Receive(options) => transfer::receive(&options),
    }
}
