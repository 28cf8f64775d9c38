// SPDX-License-Identifier: Apache-2.0
//! Throughput of a connection alone: octets from memory to memory, no file and no hash.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use bytes::Bytes;
use clap::{ArgGroup, Args};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::peer::Peer;
use super::sender::PIECE;
use super::transfer::{TransportOptions, runtime};
use super::{Connection, Key, Listener, Options, Status, connect};
use hosts_base::output::Format;
use hosts_base::units::show_rate;
use hosts_base::{About, Error};

/// Bytes of one write, and maximum bytes of one read.
const BLOCK: usize = 4 * PIECE;

#[derive(Args)]
#[command(group(ArgGroup::new("end").required(true).args(["listen", "to"])))]
pub struct SpeedOptions {
    /// Receive one connection here, and throw away what comes
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Send to a `hosts batcp speed --listen`, as HOST:PORT; again for its other addresses
    #[arg(long, value_name = "HOST:PORT")]
    to: Vec<Peer>,
    /// Bytes to send
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000_000, conflicts_with = "listen")]
    bytes: u64,
    /// File with the key that both ends have; without it nothing is proved, and nothing sealed
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    format: Format,
}

/// Report of a sender.
#[derive(Serialize)]
struct Summary {
    bytes: u64,
    /// Seconds from the first SYN to the receiver's confirmation that all has been read.
    seconds: f64,
    kbit_per_second: f64,
    status: Status,
}

/// `hosts batcp speed`. Errors: the address cannot be listened on, the peer is not reached, vanishes, or has read something else.
pub fn run(options: SpeedOptions) -> Result<(), Error> {
    let key = options.key_file.as_deref().map(Key::read).transpose()?.unwrap_or_default();
    let transport = Options { key, connections: 1, ..options.transport.options()? };
    // On one of the runtime's threads, which carry the subflows: a reader is then woken without the kernel.
    let runtime = runtime()?;
    let running = runtime.spawn(async move {
        match options.listen {
            Some(address) => receive(address, transport).await,
            None => send(&options, &transport).await,
        }
    });
    runtime.block_on(running).about("measure")?
}

async fn receive(address: SocketAddr, transport: Options) -> Result<(), Error> {
    let mut listener = Listener::bind(address, transport).about(format!("listen on {address}"))?;
    eprintln!("listening on {}", listener.local_address().about("listen")?);
    let mut connection = listener.accept().await.about("accept")?;
    take(&mut connection).await.about("receive")?;
    connection.closed().await;
    Ok(())
}

async fn take(connection: &mut Connection) -> std::io::Result<()> {
    let mut got = 0;
    loop {
        match connection.read_bytes(BLOCK).await?.len() {
            0 => break,
            length => got += length as u64,
        }
    }
    connection.write_u64(got).await?;
    connection.shutdown().await
}

async fn send(options: &SpeedOptions, transport: &Options) -> Result<(), Error> {
    let peers = Peer::addresses(&options.to);
    let started = Instant::now();
    let about = || format!("send to {}", Peer::list(&options.to));
    let mut connection = connect(&peers, &options.transport.interface, transport).await.about(about())?;
    let got = give(&mut connection, options.bytes).await.about(about())?;
    let seconds = started.elapsed().as_secs_f64();
    if got != options.bytes {
        return Err(Error::new(format!("{}: {got} of {} bytes arrived", about(), options.bytes)));
    }
    let kbit_per_second = options.bytes as f64 * 8e-3 / seconds;
    let summary = Summary { bytes: got, seconds, kbit_per_second, status: connection.status() };
    connection.closed().await;
    options.format.print(&[summary], &["bytes", "seconds", "rate"], |summary| {
        let rate = show_rate(summary.kbit_per_second * 1e3);
        vec![summary.bytes.to_string(), format!("{:.2}", summary.seconds), rate]
    });
    Ok(())
}

async fn give(connection: &mut Connection, bytes: u64) -> std::io::Result<u64> {
    let (block, mut left) = (Bytes::from(vec![0; BLOCK]), bytes);
    while left > 0 {
        let length = left.min(BLOCK as u64) as usize;
        connection.write_bytes(block.slice(..length)).await?;
        left -= length as u64;
    }
    connection.shutdown().await?;
    connection.read_u64().await
}
