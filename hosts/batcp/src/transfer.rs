// SPDX-License-Identifier: Apache-2.0
//! Files over a connection: the example of the library, and the tool that the measurements use.
//!
//! The sender writes the length of a header (4 octets, network byte order), the header (JSON: `name`, `size`), the file and its
//! SHA-256; the receiver answers with its own SHA-256 of what it has stored, safe from a loss of power, or with nothing when
//! the two differ. From memory to memory the name is empty, nothing is hashed or stored, and the SHA-256 is 0.

use std::ffi::CString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::peer::Peer;
use super::sender::PIECE;
use super::{
    Announcer, Arrivals, Connection, Coupling, Estimator, Interface, Key, Listener, Options, Quota, QuotaOption,
    Scheduler, Status, Uplinks, connect, quota,
};
use hosts_base::log::report;
use hosts_base::output::Format;
use hosts_base::slots::{ConnectionSlots, raise_descriptor_limit};
use hosts_base::units::rate;
use hosts_base::{About, Error};

const CHUNK: usize = 4 * PIECE;
const MAX_HEADER: usize = 4096;
/// Maximum bytes of a file's name: with the suffix of a partial file, it is a name in any file system.
const MAX_NAME: usize = 200;

#[derive(Args)]
pub struct SendOptions {
    /// File to send
    #[arg(required_unless_present = "bytes")]
    file: Option<PathBuf>,
    /// Send so many bytes from memory instead, to `receive --discard`, to measure how fast a connection is
    #[arg(long, conflicts_with = "file")]
    bytes: Option<u64>,
    /// The receiver, as HOST:PORT; again for its other addresses, in the order of the interfaces
    #[arg(long, required = true, value_name = "HOST:PORT")]
    to: Vec<Peer>,
    /// File with the key that the receiver has too
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
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
    /// Folder for the files; with a key, one of the same name is replaced once the new one is complete
    #[arg(long, value_name = "DIR", required_unless_present = "discard")]
    output: Option<PathBuf>,
    /// Store nothing: for `send --bytes`
    #[arg(long, conflicts_with_all = ["output", "open"])]
    discard: bool,
    /// File with the key that senders must have too
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Take files from every client that reaches the address; then no file is ever replaced
    #[arg(long, conflicts_with = "key_file")]
    open: bool,
    /// Files at a time; further senders are rejected as busy, or, with --open, the one that has the most loses its
    /// oldest
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Maximum bytes of a file
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 36, value_parser = clap::value_parser!(u64).range(1..))]
    largest: u64,
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

/// Options of both ends.
#[derive(Args)]
pub struct ReceiverOptions {
    /// Scheduler of segments over the interfaces
    #[arg(long, value_enum, default_value = "earliest")]
    scheduler: Scheduler,
    /// Estimator of the interfaces' throughputs
    #[arg(long, value_enum, default_value = "delivered")]
    estimator: Estimator,
    /// Maximum bytes kept for a connection, in each direction
    #[arg(long, default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(65_536..=1 << 30))]
    window: u32,
    /// Seconds without a sign of the peer after which the connection ends
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Let a connection's subflows share one congestion control (BALIA) for what this end sends: where they meet in one
    /// bottleneck they take the share of one TCP (needs root and Linux 6.4)
    #[arg(long)]
    coupled: bool,
}

/// Options of the end that opens a connection.
#[derive(Args)]
pub struct TransportOptions {
    /// Interface (or source address) to use, with its price, or with weights for throughput and cost, whose sum is 1,
    /// and its price; again for each. A dearer one helps when cheaper ones cannot carry all. Without it: all that have a
    /// route to the receiver
    #[arg(long, value_name = "NAME[[:THROUGHPUT:COST]:PRICE]")]
    pub interface: Vec<Interface>,
    /// Highest rate over an interface in each direction, as wwan0=5mbit; again for each
    #[arg(long, value_name = "NAME=RATE", value_parser = limit)]
    limit: Vec<(String, u64)>,
    /// Bytes that an interface may carry, as it counts them itself, other programs' too; then it is not used for the
    /// rest of the DAYS. The count is kept in $STATE_DIRECTORY, by default /var/lib/hosts-batcp
    #[arg(long, value_name = "NAME=BYTES[/DAYS]")]
    quota: Vec<QuotaOption>,
    #[command(flatten)]
    pub receiver: ReceiverOptions,
}

fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, limit) = text.split_once('=').ok_or("write NAME=RATE, as wwan0=5mbit")?;
    Ok((name.to_owned(), rate(limit)?))
}

impl TransportOptions {
    /// Make the options of connections as [`ReceiverOptions::options`] does. Errors: also a quota whose count cannot be
    /// kept.
    pub fn options(&self) -> Result<Options, Error> {
        let quota =
            |option: &QuotaOption| Ok((option.interface.clone(), Quota::new(option.clone(), &quota::folder())?));
        let quotas = self.quota.iter().map(quota).collect::<Result<_, Error>>()?;
        Ok(Options { uplinks: Uplinks::new(self.limit.clone(), quotas)?, ..self.receiver.options()? })
    }
}

impl ReceiverOptions {
    /// Make the options of connections that use [`super::InBand`]. Errors: the coupled congestion control cannot be
    /// loaded.
    pub fn options(&self) -> Result<Options, Error> {
        Ok(Options {
            scheduler: self.scheduler,
            estimator: self.estimator,
            window: self.window as usize,
            timeout: Duration::from_secs(self.timeout),
            coupling: if self.coupled { Some(Arc::new(Coupling::load()?)) } else { None },
            ..Options::default()
        })
    }
}

/// Options of the negotiation of BATCP between the two ends.
#[derive(Args)]
pub struct NegotiationOptions {
    /// Announce BATCP by the paper's TCP option of kind 254, at both ends (needs root). It protects nothing: who is on
    /// the way can remove it. With a key a connection whose option is not answered is refused; without, it is plain TCP
    #[arg(long)]
    paper: bool,
}

impl NegotiationOptions {
    /// Add the negotiation to `options`. Errors: the option cannot be loaded.
    pub fn of(&self, options: Options) -> Result<Options, Error> {
        Ok(if self.paper { Options { negotiation: Arc::new(Announcer::load()?), ..options } } else { options })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    name: String,
    size: u64,
}

/// Report of a transfer.
#[derive(Serialize)]
struct Summary {
    file: String,
    bytes: u64,
    /// Seconds from the first SYN to the receiver's confirmation that all is stored; at the receiver from its first
    /// segment.
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

/// Run `hosts batcp send`: send a file, or bytes from memory, and print the report. Errors: the file cannot be read, the
/// receiver is not reached, vanishes, or stored something else.
pub fn send(options: SendOptions) -> Result<(), Error> {
    let runtime = runtime()?;
    // On one of the runtime's threads, which carry the subflows: it is then woken without the kernel.
    let running = runtime.spawn(async move { send_all(&options).await });
    runtime.block_on(running).about("send")?
}

async fn send_all(options: &SendOptions) -> Result<(), Error> {
    let path = options.file.as_deref().unwrap_or(Path::new(""));
    let mut file = if options.file.is_some() { Some(File::open(path).await.about(path.display())?) } else { None };
    let (name, size) = match &file {
        Some(file) => (path.file_name(), file.metadata().await.about(path.display())?.len()),
        None => (Some(path.as_os_str()), options.bytes.unwrap_or(0)),
    };
    let name = name.and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::new(format!("{}: this is no file with a name", path.display())))?;
    let (peers, to) = (Peer::addresses(&options.to), Peer::list(&options.to));
    let key = options.key_file.as_deref().map(Key::read).transpose()?.unwrap_or_default();
    let transport = options.negotiation.of(Options { key, ..options.transport.options()? })?;
    let started = Instant::now();
    let opened = connect(&peers, &options.transport.interface, &transport).await;
    let mut connection = opened.about(format!("connect to {to}"))?;
    let bar = progress(size);
    let watch = connection.watch();
    let ticking = bar.clone();
    let ticker = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ticking.set_position(watch().bytes_acknowledged.min(size));
        }
    });
    let sent = send_stream(&mut connection, file.as_mut(), name, size).await;
    ticker.abort();
    bar.finish_and_clear();
    let digest = sent.about(format!("send {} to {to}", path.display()))?;
    let summary = Summary::new(name, size, started, &digest, connection.status());
    connection.closed().await;
    summary.print(options.format);
    Ok(())
}

async fn send_stream(
    connection: &mut Connection,
    mut file: Option<&mut File>,
    name: &str,
    size: u64,
) -> Result<[u8; 32], std::io::Error> {
    let header = serde_json::to_vec(&Header { name: name.to_owned(), size }).expect("plain data");
    connection.write_all(&(header.len() as u32).to_be_bytes()).await?;
    connection.write_all(&header).await?;
    let (mut hash, mut left, block) = (Sha256::new(), size, Bytes::from(vec![0; CHUNK]));
    while left > 0 {
        let room = left.min(CHUNK as u64) as usize;
        let chunk = match &mut file {
            Some(file) => {
                let mut chunk = BytesMut::with_capacity(room);
                (&mut **file).take(left).read_buf(&mut chunk).await?;
                hash.update(&chunk);
                chunk.freeze()
            }
            None => block.slice(..room),
        };
        if chunk.is_empty() {
            return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the file became shorter while it was sent"));
        }
        left -= chunk.len() as u64;
        connection.write_bytes(chunk).await?;
    }
    let digest: [u8; 32] = if file.is_some() { hash.finalize().into() } else { [0; 32] };
    connection.write_all(&digest).await?;
    connection.shutdown().await?;
    let mut answer = Vec::new();
    connection.take(33).read_to_end(&mut answer).await?;
    if answer != digest {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "the receiver stored something else"));
    }
    Ok(digest)
}

/// Run `hosts batcp receive`: store the files that come. Errors: the address cannot be listened on, the folder not be
/// written; with `--count` also a transfer that failed.
pub fn receive(options: &ReceiveOptions) -> Result<(), Error> {
    if let Some(output) = &options.output
        && !output.is_dir()
    {
        return Err(Error::new(format!("{}: this is no folder; make it first", output.display())));
    }
    let open = options.key_file.is_none();
    if open && !options.open && !options.discard {
        return Err(Error::new(
            "any client that reaches this receiver could store files here: give --key-file, or --open, which replaces none",
        ));
    }
    raise_descriptor_limit();
    let key = options.key_file.as_deref().map(Key::read).transpose()?.unwrap_or_default();
    let most = u64::from(options.connections).min(options.count.unwrap_or(u64::MAX)).max(1) as usize;
    // Slots are evicted for a newcomer before the listener would reject it.
    let connections = if open { most + most.min(16) } else { most };
    let folder = Arc::new(Folder {
        path: options.output.clone(),
        replaces: !open,
        max_size: options.largest,
        // Longer than the connection's own time, whose error gives more information.
        patience: 2 * Duration::from_secs(options.receiver.timeout),
    });
    runtime()?.block_on(async {
        let transport = options.negotiation.of(Options { key, connections, ..options.receiver.options()? })?;
        let mut listener = Listener::bind(options.listen, transport).about(format!("listen on {}", options.listen))?;
        eprintln!("listening on {}", listener.local_address().about("listen")?);
        let slots = ConnectionSlots::new(most);
        let mut failed = None;
        let mut transfers = tokio::task::JoinSet::new();
        let mut begun = 0;
        loop {
            let more = options.count.is_none_or(|count| begun < count);
            tokio::select! {
                accepted = listener.accept(), if more => {
                    let (connection, folder) = (accepted.about("accept")?, folder.clone());
                    begun += 1;
                    let slots = slots.clone();
                    transfers.spawn(async move {
                        let peer = connection.peer_address().about("peer")?;
                        let stored = slots.hold(peer.ip(), store(connection, peer, &folder)).await;
                        let made_room = || Error::new(format!("receive from {peer}: it was evicted for others"));
                        stored.unwrap_or_else(|| Err(made_room()))
                    });
                }
                Some(done) = transfers.join_next(), if !transfers.is_empty() => {
                    match done.about("transfer")? {
                        Ok(summary) => summary.print(options.format),
                        Err(error) => {
                            // A receiver that ends prints all of them; one that stays never waits for their reader.
                            match options.count {
                                Some(_) => eprintln!("error: {error}"),
                                None => report(format_args!("error: {error}")),
                            }
                            failed = Some(error);
                        }
                    }
                }
                else => break,
            }
        }
        let Arrivals { refused, downgraded, .. } = listener.arrivals();
        if refused > 0 {
            eprintln!("{refused} subflows were refused: they said no hello, or proved nothing");
        }
        if downgraded > 0 {
            eprintln!("{downgraded} plain TCP connections were refused: with a key all is sealed");
        }
        failed.map_or(Ok(()), |_| Err(Error::new("a transfer failed; see above")))
    })
}

/// Folder in which files are stored, and the limits of a sender.
struct Folder {
    /// None: nothing is stored, and only what comes from memory is taken.
    path: Option<PathBuf>,
    /// A new file replaces one of the same name.
    replaces: bool,
    /// Maximum bytes of a file.
    max_size: u64,
    /// Time after which a sender that answers and sends nothing is given up.
    patience: Duration,
}

/// Read the header, before a file is made of it. Errors: an invalid header, or a file that is not allowed.
async fn header(connection: &mut Connection, folder: &Folder) -> Result<Header, Error> {
    let received = async {
        let length = connection.read_u32().await.about("header")? as usize;
        if length > MAX_HEADER {
            return Err(Error::new(format!("a header of {length} bytes; is it `hosts batcp send`?")));
        }
        let mut header = vec![0; length];
        connection.read_exact(&mut header).await.about("header")?;
        serde_json::from_slice::<Header>(&header).about("header")
    };
    let late = |_| Error::new(format!("no header came for {} s", folder.patience.as_secs()));
    let header = tokio::time::timeout(folder.patience, received).await.map_err(late)??;
    let checked = match &folder.path {
        Some(_) => check_name(&header.name),
        None if header.name.is_empty() => Ok(()),
        None => Err("--discard takes no files"),
    };
    checked.map_err(|what| Error::new(format!("{:?} is no plain file name: {what}", header.name)))?;
    if header.size > folder.max_size {
        let (name, size, max) = (&header.name, header.size, folder.max_size);
        return Err(Error::new(format!("'{name}' has {size} bytes, {max} are allowed (--largest)")));
    }
    let is_there = |path: &PathBuf| path.join(&header.name).symlink_metadata().is_ok();
    if !folder.replaces && folder.path.as_ref().is_some_and(is_there) {
        return Err(Error::new(format!("'{}' is there already, and --open replaces nothing", header.name)));
    }
    Ok(header)
}

/// Check that a stranger's file name stays in its folder, is visible there, and does nothing to a terminal that shows
/// it.
fn check_name(name: &str) -> Result<(), &'static str> {
    if Path::new(name).file_name().and_then(|base| base.to_str()) != Some(name) {
        return Err("it leads out of the folder");
    }
    if name.starts_with('.') {
        return Err("it begins with a dot");
    }
    if name.len() > MAX_NAME {
        return Err("it has more than 200 bytes");
    }
    if name.chars().any(|c| c.is_control() || is_invisible(c)) {
        return Err("it has invisible characters");
    }
    Ok(())
}

/// True for characters that reorder or hide others (Unicode's bidirectional controls and zero-width characters).
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

async fn store(mut connection: Connection, peer: SocketAddr, folder: &Folder) -> Result<Summary, Error> {
    let started = Instant::now();
    let about = || format!("receive from {peer}");
    let Header { name, size } = header(&mut connection, folder).await.about(about())?;
    let mut target = match &folder.path {
        Some(path) => {
            let part = PartialFile(path.join(format!(".{name}.{:016x}.part", rand::random::<u64>())));
            let file = File::create_new(&part.0).await.about(part.0.display())?;
            Some((path.join(&name), part, file))
        }
        None => None,
    };
    let (mut hash, mut left) = (Sha256::new(), size);
    let silent = || Error::new(format!("{}: nothing of '{name}' came for {} s", about(), folder.patience.as_secs()));
    while left > 0 {
        let room = left.min(CHUNK as u64) as usize;
        let read = tokio::time::timeout(folder.patience, connection.read_bytes(room));
        let chunk = read.await.map_err(|_| silent())?.about(about())?;
        if chunk.is_empty() {
            return Err(Error::new(format!("{}: '{name}' ends {left} bytes early", about())));
        }
        if let Some((_, part, file)) = &mut target {
            hash.update(&chunk);
            file.write_all(&chunk).await.about(part.0.display())?;
        }
        left -= chunk.len() as u64;
    }
    let digest: [u8; 32] = if target.is_some() { hash.finalize().into() } else { [0; 32] };
    let mut theirs = [0; 32];
    let read = tokio::time::timeout(folder.patience, connection.read_exact(&mut theirs));
    read.await.map_err(|_| silent())?.about(about())?;
    if digest != theirs {
        return Err(Error::new(format!("{}: the SHA-256 of '{name}' differs", about())));
    }
    if let Some((target, part, mut file)) = target {
        file.flush().await.about(part.0.display())?;
        file.sync_all().await.about(part.0.display())?;
        let (to, replaces) = (target.clone(), folder.replaces);
        let published = tokio::task::spawn_blocking(move || publish(&part.0, &to, replaces));
        published.await.about("store")?.about(target.display())?;
    }
    let summary = Summary::new(&name, size, started, &digest, connection.status());
    let farewell = async {
        connection.write_all(&digest).await?;
        connection.shutdown().await?;
        // The end of the other direction: without it the sender's last acknowledgement may be missing.
        connection.read(&mut [0; 1]).await
    };
    let rest = tokio::time::timeout(folder.patience, farewell).await.map_err(|_| silent())?.about(about())?;
    if rest != 0 {
        return Err(Error::new(format!("{}: more than the file came", about())));
    }
    connection.closed().await;
    Ok(summary)
}

/// Rename the finished file durably. Errors: `AlreadyExists`, unless it may replace one.
fn publish(part: &Path, target: &Path, replaces: bool) -> std::io::Result<()> {
    let [from, to] = [part, target].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (from, to) = (from?, to?);
    let how = if replaces { 0 } else { libc::RENAME_NOREPLACE };
    // SAFETY: two C strings that live during the call.
    if unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), how) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

/// Unfinished file, removed when dropped.
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn progress(size: u64) -> ProgressBar {
    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    ProgressBar::new(size).with_style(ProgressStyle::with_template(style).expect("a constant template"))
}

pub fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().about("start threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_the_wire_stay_in_the_folder() {
        for name in ["a", "README.md", "Bericht Mai.pdf", "日本.txt", "a..b", &"x".repeat(MAX_NAME)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "../a",
            "/etc/passwd",
            "a/b",
            "a/",
            ".bashrc",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "gpj\u{202e}.exe",
            &"x".repeat(MAX_NAME + 1),
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_open_receiver_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [part, target] = ["part", "target"].map(|name| folder.path().join(name));
        std::fs::write(&part, "new").unwrap();
        std::fs::write(&target, "old").unwrap();
        assert_eq!(publish(&part, &target, false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
        publish(&part, &target, true).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        std::fs::write(&part, "other").unwrap();
        publish(&part, &folder.path().join("other"), false).unwrap();
    }
}
