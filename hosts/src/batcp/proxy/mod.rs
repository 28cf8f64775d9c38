// SPDX-License-Identifier: Apache-2.0
//! Connections of other programs over several interfaces: a SOCKS5 proxy, and a pair of transparent proxies.
//!
//! The paper asks that the extension be "transparent to users and applications" (paper 003, section 1). Programs that
//! know SOCKS ask a proxy on their own host; those that do not are caught at connect(2). Either way the bytes go over
//! BATCP, to the destination itself where it supports BATCP, or to a remote proxy that connects to it by plain TCP.

mod catch;
mod destination;
mod pair;
mod relay;
mod socks;

use std::future::Future;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::catch::{Catcher, Net};
use self::destination::{Destination, Prefix, Reply, Rule, Rules};
use self::pair::Key;
use self::socks::Credentials;
use super::transfer::{ReceiverOptions, TransportOptions};
use super::{Announcer, Connection, InBand, Interface, Listener, Negotiation, Options, connect};
use crate::{About, Error};

/// A destination that does not answer in this time is given up; a client waits for its reply longer.
const CONNECT: Duration = Duration::from_secs(15);

/// What all proxies can choose.
#[derive(Args)]
struct ProxyOptions {
    /// Do without the TCP option, and so without root: the other end is known to speak BATCP, and does the same
    #[arg(long)]
    in_band: bool,
    /// Connections at one time; further ones wait
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

impl ProxyOptions {
    fn options(&self, transport: &ReceiverOptions) -> Result<Options, Error> {
        let negotiation: Arc<dyn Negotiation> =
            if self.in_band { Arc::new(InBand) } else { Arc::new(Announcer::load()?) };
        Ok(Options { negotiation, ..transport.options() })
    }
}

#[derive(Args)]
pub struct SocksOptions {
    /// Where programs find the proxy
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,
    /// Go through this remote proxy (`hosts batcp proxy remote`), once for each of its addresses; without, straight to
    /// the destination, over several interfaces if it supports BATCP and by plain TCP if not
    #[arg(long, value_name = "ADDRESS:PORT")]
    via: Vec<SocketAddr>,
    /// File with the key that the remote proxy knows too
    #[arg(long, value_name = "FILE", requires = "via")]
    key_file: Option<PathBuf>,
    /// File with the line NAME:PASSWORD that clients must know; needed to listen elsewhere than on loopback
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Destinations that may be asked for, without --via [default: all but this host's own and its links']
    #[arg(long, value_name = "PREFIX[:PORT]", conflicts_with = "via")]
    allow: Vec<Rule>,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

#[derive(Subcommand)]
pub enum Command {
    /// Catch the connects of this network namespace and carry them to a remote proxy
    Local(LocalOptions),
    /// Connect for other hosts' proxies to where their programs want to go
    Remote(RemoteOptions),
}

#[derive(Args)]
pub struct LocalOptions {
    /// The remote proxy, once for each of its addresses
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    via: Vec<SocketAddr>,
    /// File with the key that the remote proxy knows too
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Catch only processes of this cgroup, named as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", default_value = "/")]
    cgroup: String,
    /// Catch only connects to these destinations [default: all but this host's own and its links']
    #[arg(long, value_name = "PREFIX")]
    only: Vec<Prefix>,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

#[derive(Args)]
pub struct RemoteOptions {
    /// Where local proxies find this one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// File with the key that local proxies must know
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Destinations that may be asked for [default with a key: all but this host's own and its links']
    #[arg(long, value_name = "PREFIX[:PORT]")]
    allow: Vec<Rule>,
    #[command(flatten)]
    transport: ReceiverOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

/// Runs the SOCKS5 proxy (RFC 1928) until the process ends.
pub fn socks(options: SocksOptions) -> Result<(), Error> {
    let credentials = options.credentials.as_deref().map(read_credentials).transpose()?.map(Arc::new);
    if credentials.is_none() && !options.listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{} is not loopback, so every host could use the proxy: give --credentials, or listen on 127.0.0.1",
            options.listen
        )));
    }
    let carrier = Arc::new(Carrier {
        via: options.via,
        key: read_key(options.key_file.as_deref())?,
        rules: Rules(options.allow),
        options: options.proxy.options(&options.transport.receiver)?,
        interfaces: options.transport.interface,
    });
    run_async(async {
        let listener = TcpListener::bind(options.listen).await.about(format!("listen on {}", options.listen))?;
        report(format_args!("SOCKS5 on {}", listener.local_addr().about("address of the listening socket")?));
        accept_all(&[listener], options.proxy.connections, |stream, _| {
            let (carrier, credentials) = (carrier.clone(), credentials.clone());
            async move { serve_socks(stream, &carrier, credentials.as_deref()).await }
        })
        .await
    })
}

/// Runs one of the transparent proxies (paper 003, section 1) until the process ends.
pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Local(options) => local(options),
        Command::Remote(options) => remote(options),
    }
}

fn local(options: LocalOptions) -> Result<(), Error> {
    let carrier = Arc::new(Carrier {
        via: options.via,
        key: read_key(options.key_file.as_deref())?,
        rules: Rules::default(),
        options: options.proxy.options(&options.transport.receiver)?,
        interfaces: options.transport.interface,
    });
    run_async(async {
        let ipv4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.about("listen on 127.0.0.1")?;
        let ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.ok();
        let listeners: Vec<_> = [Some(ipv4), ipv6].into_iter().flatten().collect();
        let mut addresses = Vec::new();
        for listener in &listeners {
            addresses.push(listener.local_addr().about("address of the listening socket")?);
        }
        let catcher = Arc::new(Catcher::start(&Net {
            cgroup: &options.cgroup,
            ipv4: addresses[0],
            ipv6: addresses.get(1).copied(),
            only: if options.only.is_empty() { &[Prefix::ALL] } else { &options.only },
            except: &carrier.via,
        })?);
        let families = if addresses.len() == 2 { "" } else { "IPv4 " };
        report(format_args!("catching {families}connects for {}", carrier.via[0]));
        accept_all(&listeners, options.proxy.connections, |stream, peer| {
            let (carrier, catcher) = (carrier.clone(), catcher.clone());
            async move { serve_caught(stream, peer, &carrier, &catcher).await }
        })
        .await
    })
}

fn remote(options: RemoteOptions) -> Result<(), Error> {
    if options.key_file.is_none() && options.allow.is_empty() {
        return Err(Error::new("everyone could reach everything through this proxy: give --key-file or --allow"));
    }
    let key = Arc::new(read_key(options.key_file.as_deref())?);
    let rules = Arc::new(Rules(options.allow));
    let transport = options.proxy.options(&options.transport)?;
    run_async(async {
        let mut listener = Listener::bind(options.listen, transport).about(format!("listen on {}", options.listen))?;
        report(format_args!("remote proxy on {}", listener.local_address().about("address of the listening socket")?));
        let permits = Arc::new(Semaphore::new(options.proxy.connections.into()));
        loop {
            let permit = permits.clone().acquire_owned().await.expect("nobody closes it");
            let connection = listener.accept().await.about(format!("listen on {}", options.listen))?;
            let (key, rules) = (key.clone(), rules.clone());
            tokio::spawn(async move {
                if let Err(error) = serve_remote(connection, &key, &rules).await {
                    report(error);
                }
                drop(permit);
            });
        }
    })
}

/// The way from here to destinations.
struct Carrier {
    via: Vec<SocketAddr>,
    key: Key,
    rules: Rules,
    interfaces: Vec<Interface>,
    options: Options,
}

impl Carrier {
    /// A connection that ends at `destination`. Errors: why there is none, and the line that says it.
    async fn open(&self, destination: &Destination) -> Result<Connection, (Reply, String)> {
        let failed = |what: &str| {
            let line = format!("{destination}: {what}");
            move |error: io::Error| (Reply::from(&error), format!("{line}: {error}"))
        };
        let refused = |reply| (reply, format!("{destination}: {reply}"));
        let connect = async |addresses: &[SocketAddr], what| {
            let connection = timeout(CONNECT, connect(addresses, &self.interfaces, &self.options)).await;
            connection.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed(what))
        };
        if self.via.is_empty() {
            let addresses = destination.resolve(&self.rules).await.map_err(refused)?;
            return connect(&addresses, "connect").await;
        }
        let mut connection = connect(&self.via, "connect to the remote proxy").await?;
        match pair::request(&mut connection, &self.key, destination).await.map_err(failed("ask the remote proxy"))? {
            Reply::Succeeded => Ok(connection),
            reply => {
                let _ = connection.shutdown().await;
                Err((reply, format!("{destination}: the remote proxy says: {reply}")))
            }
        }
    }
}

/// The error is a line for the log; `None` says that there is nothing to say.
type Served = Result<(), String>;

async fn serve_socks(mut stream: TcpStream, carrier: &Carrier, credentials: Option<&Credentials>) -> Served {
    let destination = match socks::accept(&mut stream, credentials).await {
        Ok(destination) => destination,
        Err(error) => {
            // What it was told is to arrive.
            let _ = SockRef::from(&stream).set_linger(None);
            return Err(format!("SOCKS5 client: {error}"));
        }
    };
    match carrier.open(&destination).await {
        Ok(connection) => {
            let line = |error: io::Error| format!("{destination}: {error}");
            let bound = connection.local_address().map_err(line)?;
            socks::confirm(&mut stream, bound).await.map_err(line)?;
            relay::relay(stream, connection).await.map_err(line)
        }
        Err((reply, line)) => {
            let _ = SockRef::from(&stream).set_linger(None);
            let _ = socks::refuse(&mut stream, reply).await;
            Err(line)
        }
    }
}

async fn serve_caught(stream: TcpStream, peer: SocketAddr, carrier: &Carrier, catcher: &Catcher) -> Served {
    let original = catcher.original(peer).ok_or_else(|| format!("{peer}: was not caught, so it is reset"))?;
    let connection = carrier.open(&Destination::Address(original)).await.map_err(|(_, line)| line)?;
    relay::relay(stream, connection).await.map_err(|error| format!("{original}: {error}"))
}

async fn serve_remote(mut connection: Connection, key: &Key, rules: &Rules) -> Served {
    let peer = connection.peer_address().map_err(|error| format!("local proxy: {error}"))?;
    let mut name = String::new();
    let served = pair::serve(&mut connection, key, async |destination: &Destination| {
        name = destination.to_string();
        connect_plain(destination, rules).await
    });
    match served.await.map_err(|error| format!("local proxy {peer}: {error}"))? {
        Ok(stream) => relay::relay(stream, connection).await.map_err(|error| format!("{name}: {error}")),
        Err(reply) => {
            let _ = connection.shutdown().await;
            let _ = timeout(pair::PATIENCE, connection.read(&mut [0])).await;
            let name = if name.is_empty() { "wrong key" } else { &name };
            Err(format!("local proxy {peer}: {name}: {reply}"))
        }
    }
}

async fn connect_plain(destination: &Destination, rules: &Rules) -> Result<TcpStream, Reply> {
    let mut last = Reply::Failed;
    for address in destination.resolve(rules).await? {
        let connected = timeout(CONNECT, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => return relay::guard(&stream).map(|()| stream).map_err(|error| Reply::from(&error)),
            Err(error) => last = Reply::from(&error),
        }
    }
    Err(last)
}

/// Serves what `listeners` accept, `limit` at a time. Errors: none of one connection; a listener that is broken.
async fn accept_all<F>(
    listeners: &[TcpListener],
    limit: u16,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Served> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(limit.into()));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("nobody closes it");
        let accepted = match listeners {
            [first, second] => tokio::select! {
                accepted = first.accept() => accepted,
                accepted = second.accept() => accepted,
            },
            others => others[0].accept().await,
        };
        match accepted {
            Ok((stream, peer)) => {
                let serving = relay::guard(&stream).map(|()| serve(stream, peer));
                tokio::spawn(async move {
                    let served = match serving {
                        Ok(serving) => serving.await,
                        Err(error) => Err(format!("{peer}: {error}")),
                    };
                    if let Err(line) = served {
                        report(line);
                    }
                    drop(permit);
                });
            }
            // The client is gone already, or there are no file descriptors for now.
            Err(error) => {
                report(format_args!("accept: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn run_async(program: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::runtime::Runtime::new().about("start the runtime")?.block_on(program)
}

/// A line for the log; a log that is closed stops nothing.
fn report(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Reads a secret, less the line's end. Errors: the file cannot be read, or others than its owner may read it.
fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    let about = || format!("read {}", path.display());
    let mode = std::fs::metadata(path).about(about())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Error::new(format!("{0} is open to others: chmod 600 {0}", path.display())));
    }
    let mut secret = std::fs::read(path).about(about())?;
    while secret.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        secret.pop();
    }
    Ok(secret)
}

fn read_key(path: Option<&Path>) -> Result<Key, Error> {
    let Some(path) = path else { return Ok(Key::default()) };
    let key = read_secret(path)?;
    if key.len() < 16 {
        let path = path.display();
        return Err(Error::new(format!(
            "{path}: a key has 16 bytes at least: head -c 32 /dev/urandom | base64 > {path}"
        )));
    }
    Ok(Key(key))
}

fn read_credentials(path: &Path) -> Result<Credentials, Error> {
    let secret = read_secret(path)?;
    let colon = secret.iter().position(|byte| *byte == b':');
    colon
        .and_then(|colon| Credentials::new(&secret[..colon], &secret[colon + 1..]))
        .ok_or_else(|| Error::new(format!("{}: write one line NAME:PASSWORD, each of 1 to 255 bytes", path.display())))
}
