// SPDX-License-Identifier: Apache-2.0
//! Files over a connection: the example of the library, and the tool that the measurements use.
//!
//! The sender writes the length of a header (4 octets, network byte order), the header (JSON: `name`, `size`), the file and its
//! SHA-256; the receiver answers with its own SHA-256 of what it has stored, or with nothing when the two differ.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Announcer, Connection, Interface, Listener, Options, Scheduler, Status, connect};
use crate::output::Format;
use crate::{About, Error};

const CHUNK: usize = 1 << 18;
const MAX_HEADER: usize = 4096;

#[derive(Args)]
pub struct SendOptions {
    /// File to send
    file: PathBuf,
    /// The receiver, as HOST:PORT; again for its other addresses, in the order of the interfaces
    #[arg(long, required = true, value_name = "HOST:PORT")]
    to: Vec<String>,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    negotiation: NegotiationOptions,
    #[command(flatten)]
    format: Format,
}

#[derive(Args)]
pub struct ReceiveOptions {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Folder for the files; one of the same name is replaced once the new one is complete
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// End after so many files
    #[arg(long)]
    count: Option<u64>,
    #[command(flatten)]
    receiver: ReceiverOptions,
    #[command(flatten)]
    negotiation: NegotiationOptions,
    #[command(flatten)]
    format: Format,
}

/// What both ends can choose.
#[derive(Args)]
pub struct ReceiverOptions {
    /// How segments are spread over the interfaces
    #[arg(long, value_enum, default_value = "earliest")]
    scheduler: Scheduler,
    /// Bytes kept for a connection at most, in each direction
    #[arg(long, default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(65_536..=1 << 30))]
    window: u32,
    /// Seconds without a word from the peer after which the connection ends
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// What the end that opens a connection can choose.
#[derive(Args)]
pub struct TransportOptions {
    /// Interface (or source address) to use, with its weights for throughput and cost, whose sum is 1, and its price;
    /// again for each. Without it: all that have a route to the receiver
    #[arg(long, value_name = "NAME[:THROUGHPUT:COST[:PRICE]]")]
    pub interface: Vec<Interface>,
    #[command(flatten)]
    pub receiver: ReceiverOptions,
}

impl ReceiverOptions {
    /// The same for connections of [`super::InBand`].
    pub fn options(&self) -> Options {
        let timeout = Duration::from_secs(self.timeout);
        Options { scheduler: self.scheduler, window: self.window as usize, timeout, ..Options::default() }
    }
}

/// How the two ends of a transfer learn that both speak BATCP.
#[derive(Args)]
struct NegotiationOptions {
    /// Announce BATCP in TCP's option of kind 254 (needs root), at both ends; if a peer does not answer it, plain TCP is used
    #[arg(long)]
    announce: bool,
}

impl NegotiationOptions {
    /// Errors: the option cannot be had.
    fn of(&self, options: Options) -> Result<Options, Error> {
        Ok(if self.announce { Options { negotiation: Arc::new(Announcer::load()?), ..options } } else { options })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    name: String,
    size: u64,
}

/// What is printed of a transfer.
#[derive(Serialize)]
struct Summary {
    file: String,
    bytes: u64,
    /// From the first SYN to the receiver's word that all is stored; at the receiver from its first segment.
    seconds: f64,
    kbit_per_second: f64,
    sha256: String,
    status: Status,
}

impl Summary {
    fn new(file: &str, bytes: u64, started: Instant, digest: &[u8], status: Status) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        let sha256 = hex(digest);
        Self { file: file.to_owned(), bytes, seconds, kbit_per_second: bytes as f64 * 8e-3 / seconds, sha256, status }
    }

    fn print(self, format: Format) {
        let columns = ["file", "bytes", "seconds", "kbit/s", "interfaces (share of the bytes)", "SHA-256"];
        format.print(&[self], &columns, |summary| {
            let carried = |total: &super::Totals| (total.bytes_sent + total.bytes_received) as f64;
            let all: f64 = summary.status.totals.iter().map(carried).sum();
            let share =
                |total: &super::Totals| format!("{} ({:.0} %)", total.interface, 100.0 * carried(total) / all.max(1.0));
            let shares: Vec<String> = summary.status.totals.iter().map(share).collect();
            vec![
                summary.file.clone(),
                summary.bytes.to_string(),
                format!("{:.2}", summary.seconds),
                format!("{:.1}", summary.kbit_per_second),
                if summary.status.plain { "plain TCP".into() } else { shares.join(", ") },
                summary.sha256.clone(),
            ]
        });
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// `hosts batcp send`: sends a file and prints what became of it. Errors: the file cannot be read, the receiver is not
/// reached, vanishes, or stored something else.
pub fn send(options: &SendOptions) -> Result<(), Error> {
    let name = options.file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::new(format!("{}: this is no file with a name", options.file.display())))?;
    let mut peers = Vec::new();
    for to in &options.to {
        peers.extend(to.to_socket_addrs().about(format!("receiver '{to}' (as HOST:PORT)"))?);
    }
    let transport = options.negotiation.of(options.transport.receiver.options())?;
    runtime()?.block_on(async {
        let mut file = File::open(&options.file).await.about(options.file.display())?;
        let size = file.metadata().await.about(options.file.display())?.len();
        let started = Instant::now();
        let opened = connect(&peers, &options.transport.interface, &transport).await;
        let mut connection = opened.about(format!("connect to {}", options.to.join(", ")))?;
        let bar = progress(size);
        let watch = connection.watch();
        let ticking = bar.clone();
        let ticker = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                ticking.set_position(watch().bytes_acknowledged.min(size));
            }
        });
        let sent = send_file(&mut connection, &mut file, name, size).await;
        ticker.abort();
        bar.finish_and_clear();
        let digest = sent.about(format!("send {} to {}", options.file.display(), options.to.join(", ")))?;
        let summary = Summary::new(name, size, started, &digest, connection.status());
        connection.closed().await;
        summary.print(options.format);
        Ok(())
    })
}

async fn send_file(
    connection: &mut Connection,
    file: &mut File,
    name: &str,
    size: u64,
) -> Result<[u8; 32], std::io::Error> {
    let header = serde_json::to_vec(&Header { name: name.to_owned(), size }).expect("plain data");
    connection.write_all(&(header.len() as u32).to_be_bytes()).await?;
    connection.write_all(&header).await?;
    let (mut hash, mut chunk, mut left) = (Sha256::new(), vec![0; CHUNK], size);
    while left > 0 {
        let length = file.read(&mut chunk[..left.min(CHUNK as u64) as usize]).await?;
        if length == 0 {
            return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the file became shorter while it was sent"));
        }
        hash.update(&chunk[..length]);
        connection.write_all(&chunk[..length]).await?;
        left -= length as u64;
    }
    let digest: [u8; 32] = hash.finalize().into();
    connection.write_all(&digest).await?;
    connection.shutdown().await?;
    let mut answer = Vec::new();
    connection.take(33).read_to_end(&mut answer).await?;
    if answer != digest {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "the receiver stored something else"));
    }
    Ok(digest)
}

/// `hosts batcp receive`: stores the files that come. Errors: the address cannot be listened on, the folder not be written;
/// with `--count` also a transfer that failed.
pub fn receive(options: &ReceiveOptions) -> Result<(), Error> {
    if !options.output.is_dir() {
        return Err(Error::new(format!("{}: this is no folder; make it first", options.output.display())));
    }
    runtime()?.block_on(async {
        let transport = options.negotiation.of(options.receiver.options())?;
        let mut listener = Listener::bind(options.listen, transport).about(format!("listen on {}", options.listen))?;
        eprintln!("listening on {}", listener.local_address().about("listen")?);
        let mut failed = None;
        let mut transfers = tokio::task::JoinSet::new();
        let mut begun = 0;
        loop {
            let more = options.count.is_none_or(|count| begun < count);
            tokio::select! {
                accepted = listener.accept(), if more => {
                    let (connection, output) = (accepted.about("accept")?, options.output.clone());
                    begun += 1;
                    transfers.spawn(async move { store(connection, &output).await });
                }
                Some(done) = transfers.join_next(), if !transfers.is_empty() => {
                    match done.about("transfer")? {
                        Ok(summary) => summary.print(options.format),
                        Err(error) => {
                            eprintln!("error: {error}");
                            failed = Some(error);
                        }
                    }
                }
                else => break,
            }
        }
        let refused = listener.arrivals().refused;
        if refused > 0 {
            eprintln!("{refused} subflows were refused: they said no hello, or proved nothing");
        }
        failed.map_or(Ok(()), |_| Err(Error::new("a transfer failed; see above")))
    })
}

async fn store(mut connection: Connection, output: &Path) -> Result<Summary, Error> {
    let peer = connection.peer_address().about("peer")?;
    let started = Instant::now();
    let about = || format!("receive from {peer}");
    let length = connection.read_u32().await.about(about())? as usize;
    if length > MAX_HEADER {
        return Err(Error::new(format!("{}: a header of {length} bytes; is it `hosts batcp send`?", about())));
    }
    let mut header = vec![0; length];
    connection.read_exact(&mut header).await.about(about())?;
    let Header { name, size } = serde_json::from_slice(&header).about(about())?;
    if Path::new(&name).file_name().and_then(|base| base.to_str()) != Some(&name) {
        return Err(Error::new(format!("{}: '{name}' is no plain file name", about())));
    }
    let part = Part(output.join(format!(".{name}.{:08x}.part", rand::random::<u32>())));
    let mut file = File::create(&part.0).await.about(part.0.display())?;
    let (mut hash, mut chunk, mut left) = (Sha256::new(), vec![0; CHUNK], size);
    while left > 0 {
        let length = connection.read(&mut chunk[..left.min(CHUNK as u64) as usize]).await.about(about())?;
        if length == 0 {
            return Err(Error::new(format!("{}: '{name}' ends {left} bytes early", about())));
        }
        hash.update(&chunk[..length]);
        file.write_all(&chunk[..length]).await.about(part.0.display())?;
        left -= length as u64;
    }
    let (digest, mut theirs): ([u8; 32], _) = (hash.finalize().into(), [0; 32]);
    connection.read_exact(&mut theirs).await.about(about())?;
    if digest != theirs {
        return Err(Error::new(format!("{}: the SHA-256 of '{name}' differs", about())));
    }
    file.flush().await.about(part.0.display())?;
    let target = output.join(&name);
    tokio::fs::rename(&part.0, &target).await.about(target.display())?;
    let summary = Summary::new(&name, size, started, &digest, connection.status());
    connection.write_all(&digest).await.about(about())?;
    connection.shutdown().await.about(about())?;
    // The end of the other direction: without it the sender's last acknowledgement may be missing.
    let rest = connection.read(&mut [0; 1]).await.about(about())?;
    if rest != 0 {
        return Err(Error::new(format!("{}: more than the file came", about())));
    }
    connection.closed().await;
    Ok(summary)
}

/// An unfinished file, gone with the transfer that failed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn progress(size: u64) -> ProgressBar {
    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    ProgressBar::new(size).with_style(ProgressStyle::with_template(style).expect("a constant template"))
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().about("start threads")
}
