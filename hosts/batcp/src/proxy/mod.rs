// SPDX-License-Identifier: Apache-2.0
//! Connections of other programs over several interfaces: a SOCKS5 proxy, and a pair of transparent proxies.
//!
//! The paper asks that the extension be "transparent to users and applications" (paper 003, section 1). Programs that
//! know SOCKS ask a proxy on their own host; those that do not are caught at connect(2). Either way the bytes go over
//! BATCP, to the destination itself where it supports BATCP, or to a remote proxy that connects to it by plain TCP.

mod catch;
pub mod destination;
mod pair;
mod relay;
mod socks;
mod spare;
mod status;

use std::collections::HashSet;
use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::catch::{CatchConfig, Catcher};
use self::destination::{Destination, Prefix, Reply, Rule, Rules};
use self::socks::Credentials;
use self::spare::{SpareOptions, SparePool};
use self::status::Carried;
pub use self::status::{StatusOptions, show as show_status};
use super::dscp::Dscp;
use super::peer::Peer;
use super::transfer::{NegotiationOptions, ReceiverOptions, TransportOptions};
use super::{Connection, Interface, Key, Listener, Options, connect};
use hosts_base::log::report;
use hosts_base::slots::{self, ConnectionSlots, raise_descriptor_limit};
use hosts_base::{About, Error};

/// Time that a destination has to answer; a client waits for its reply longer.
const CONNECT: Duration = Duration::from_secs(15);
/// Time for all addresses of a destination, and its name: a local proxy waits for 30 s.
const CONNECT_ALL: Duration = Duration::from_secs(28);
/// Interval at which the networks of this host's interfaces are looked up.
const NETWORKS: Duration = Duration::from_secs(2);
/// Unproven clients at a time: no key and no destination received yet.
const UNKNOWN: usize = 256;
/// Connections of the transport beyond those that are served: rejected ones, and those that are closing.
const BEYOND: usize = 16;

/// Options of all proxies.
#[derive(Args)]
struct ProxyOptions {
    #[command(flatten)]
    negotiation: NegotiationOptions,
    /// Connections at one time; further ones are rejected at once. Without a key, at `remote`, the address that has the
    /// most of them loses the oldest, and all share 64 MiB of windows [default: 1024; without a key 256]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    connections: Option<u16>,
}

impl ProxyOptions {
    fn connections(&self, key: &Key) -> u16 {
        self.connections.unwrap_or(if key.is_open() { 256 } else { 1024 })
    }

    /// Make the transport's options. `beyond`: connections of the transport that are not served.
    fn options(&self, transport: Options, key: &Key, beyond: usize) -> Result<Options, Error> {
        let connections = usize::from(self.connections(key)) + beyond;
        self.negotiation.of(Options { key: key.clone(), connections, ..transport })
    }
}

#[derive(Args)]
pub struct SocksOptions {
    /// Address and port on which programs reach the proxy
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,
    /// Go through this remote proxy (`hosts batcp proxy remote`), once for each of its addresses; with --paper and
    /// without this straight to the destination, over several interfaces if it answers the option, else by plain TCP
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "paper")]
    via: Vec<Peer>,
    /// File with the key that the remote proxy knows too
    #[arg(long, value_name = "FILE", requires = "via")]
    key_file: Option<PathBuf>,
    /// File with the line NAME:PASSWORD that clients must know; needed to listen elsewhere than on loopback
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    spare: SpareOptions,
    /// Destinations that clients may request, without --via [default: all but this host's own and its links']
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
    #[arg(long, value_name = "HOST:PORT", required = true)]
    via: Vec<Peer>,
    /// File with the key that the remote proxy knows too
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    spare: SpareOptions,
    /// Catch only processes of this cgroup, named as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", default_value = "/")]
    cgroup: String,
    /// Catch only connects to these destinations [default: all but private ones, this host's own and its links']
    #[arg(long, value_name = "PREFIX")]
    only: Vec<Prefix>,
    /// Never catch connects to these destinations
    #[arg(long, value_name = "PREFIX")]
    except: Vec<Prefix>,
    /// Catch connects to private networks and to those of this host's interfaces, too: the remote proxy is a way there
    #[arg(long, conflicts_with = "only")]
    private: bool,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

#[derive(Args)]
pub struct RemoteOptions {
    /// Address and port on which local proxies reach this one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// File with the key that local proxies must know
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Destinations that clients may request [default with a key: all but this host's own and its links']
    #[arg(long, value_name = "PREFIX[:PORT]")]
    allow: Vec<Rule>,
    #[command(flatten)]
    transport: ReceiverOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

/// Run the SOCKS5 proxy (RFC 1928) until the process ends.
pub fn socks(options: SocksOptions) -> Result<(), Error> {
    let credentials = options.credentials.as_deref().map(read_credentials).transpose()?.map(Arc::new);
    if credentials.is_none() && !options.listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{} is not loopback, so every host could use the proxy: give --credentials, or listen on 127.0.0.1",
            options.listen
        )));
    }
    let key = read_key(options.key_file.as_deref())?;
    let connector = Arc::new(Connector {
        via: Peer::addresses(&options.via),
        rules: Rules(options.allow),
        options: options.proxy.options(options.transport.options()?, &key, BEYOND)?,
        spares: Arc::new(SparePool::new(options.spare.spare)),
        interfaces: options.transport.interface,
        carried: Arc::default(),
    });
    run_async(async {
        let listener = slots::listen(options.listen).about(format!("listen on {}", options.listen))?;
        connector.keep_spares();
        status::answer("socks", &connector.carried, &connector.options, None)?;
        ready(format_args!("SOCKS5 on {}", listener.local_addr().about("address of the listening socket")?));
        let admission = Arc::new(Admission::new(options.proxy.connections(&key), false));
        accept_all(&[listener], &connector.carried, |stream, peer| {
            let (connector, credentials, admission) = (connector.clone(), credentials.clone(), admission.clone());
            async move { serve_socks(stream, peer.ip(), &connector, credentials.as_deref(), &admission).await }
        })
        .await
    })
}

/// Run one of the transparent proxies (paper 003, section 1) until the process ends.
pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Local(options) => local(options),
        Command::Remote(options) => remote(options),
    }
}

fn local(options: LocalOptions) -> Result<(), Error> {
    let key = read_key(options.key_file.as_deref())?;
    let connector = Arc::new(Connector {
        via: Peer::addresses(&options.via),
        rules: Rules::default(),
        options: options.proxy.options(options.transport.options()?, &key, BEYOND)?,
        spares: Arc::new(SparePool::new(options.spare.spare)),
        interfaces: options.transport.interface,
        carried: Arc::default(),
    });
    run_async(async {
        let ipv4 = slots::listen((Ipv4Addr::LOCALHOST, 0).into()).about("listen on 127.0.0.1")?;
        let ipv6 = slots::listen((Ipv6Addr::LOCALHOST, 0).into()).ok();
        let listeners: Vec<_> = [Some(ipv4), ipv6].into_iter().flatten().collect();
        let mut addresses = Vec::new();
        for listener in &listeners {
            addresses.push(listener.local_addr().about("address of the listening socket")?);
        }
        // Private destinations are caught if the user names destinations, or requests private ones.
        let all = options.private || !options.only.is_empty();
        let mut except = options.except.clone();
        if !all {
            except.extend(Prefix::private());
        }
        let catcher = Arc::new(Catcher::start(&CatchConfig {
            cgroup: &options.cgroup,
            ipv4: addresses[0],
            ipv6: addresses.get(1).copied(),
            only: if options.only.is_empty() { &[Prefix::ALL] } else { &options.only },
            except: &except,
            via: &connector.via,
        })?);
        if !all {
            let mut before = except.into_iter().collect::<HashSet<_>>();
            let requested: HashSet<_> = before.clone();
            follow_networks(&catcher, &requested, &mut before)?;
            let catcher = catcher.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(NETWORKS).await;
                    if let Err(error) = follow_networks(&catcher, &requested, &mut before) {
                        report(error);
                    }
                }
            });
        }
        connector.keep_spares();
        status::answer("local", &connector.carried, &connector.options, None)?;
        let families = if addresses.len() == 2 { "" } else { "IPv4 " };
        ready(format_args!("catching {families}connects for {}", connector.via[0]));
        let admission = Arc::new(Admission::new(options.proxy.connections(&key), false));
        accept_all(&listeners, &connector.carried, |stream, peer| {
            let (connector, catcher, admission) = (connector.clone(), catcher.clone(), admission.clone());
            async move { serve_caught(stream, peer, &connector, &catcher, &admission).await }
        })
        .await
    })
}

/// Exclude `requested` and the networks that this host's interfaces are in now from catching; `before`: those that are
/// excluded already.
fn follow_networks(catcher: &Catcher, requested: &HashSet<Prefix>, before: &mut HashSet<Prefix>) -> Result<(), Error> {
    let mut now = catch::connected().about("read the networks of this host's interfaces")?;
    now.extend(requested);
    catcher.spare(before, &now)?;
    *before = now;
    Ok(())
}

fn remote(options: RemoteOptions) -> Result<(), Error> {
    if options.key_file.is_none() && options.allow.is_empty() {
        return Err(Error::new("any client could reach everything through this proxy: give --key-file or --allow"));
    }
    let key = read_key(options.key_file.as_deref())?;
    // Spare connections of local proxies, which have proved the key, wait to be asked for.
    let beyond = if key.is_open() { BEYOND } else { BEYOND + UNKNOWN };
    let transport = options.proxy.options(options.transport.options()?, &key, beyond)?;
    let admission = Admission::new(options.proxy.connections(&key), key.is_open());
    let remote = Arc::new(Remote { rules: Rules(options.allow), admission, carried: Arc::default() });
    run_async(async {
        let mut listener =
            Listener::bind(options.listen, transport.clone()).about(format!("listen on {}", options.listen))?;
        status::answer("remote", &remote.carried, &transport, Some(Box::new(listener.watch())))?;
        ready(format_args!("remote proxy on {}", listener.local_address().about("address of the listening socket")?));
        loop {
            let connection = listener.accept().await.about(format!("listen on {}", options.listen))?;
            let remote = remote.clone();
            tokio::spawn(async move {
                if let Err(error) = remote.serve(connection).await {
                    remote.carried.failed();
                    report(error);
                }
            });
        }
    })
}

/// Admission of clients. Each takes a slot of `unknown` until it has named a destination; so those that never do take
/// no slot of the others, and a flood of them evicts its own.
struct Admission {
    /// Slots of SOCKS5 clients; of local proxies, which with a key have proved it and may be spare connections.
    unknown: ConnectionSlots,
    served: Semaphore,
    /// Serve without a key: all clients stay unknown as long as they are connected.
    open: bool,
}

impl Admission {
    fn new(connections: u16, open: bool) -> Self {
        let connections = usize::from(connections);
        let unknown = ConnectionSlots::new(if open { connections } else { UNKNOWN });
        Self { unknown, served: Semaphore::new(connections), open }
    }

    /// Take a permit to be served. Errors: all are taken. It does not wait: a program whose connect has succeeded and
    /// that receives nothing could not see why.
    fn enter(&self) -> Result<SemaphorePermit<'_>, &'static str> {
        self.served.try_acquire().map_err(|_| "as many connections as may be are served already (--connections)")
    }
}

/// Log text for an evicted client.
const MADE_ROOM: &str = "it was evicted for others";

/// Connector to destinations, directly or by the remote proxy.
struct Connector {
    via: Vec<SocketAddr>,
    rules: Rules,
    interfaces: Vec<Interface>,
    options: Options,
    spares: Arc<SparePool>,
    carried: Arc<Carried>,
}

impl Connector {
    /// Keep spare connections to the remote proxy open. Without a key the remote proxy waits for no request.
    fn keep_spares(self: &Arc<Self>) {
        if self.via.is_empty() || self.options.key.is_open() {
            return;
        }
        let connector = self.clone();
        tokio::spawn(self.spares.clone().keep(move || {
            let connector = connector.clone();
            async move { connect(&connector.via, &connector.interfaces, &connector.options).await }
        }));
    }

    /// Open a connection that ends at `destination`. Errors: the reply for the client, and the log line.
    async fn open(&self, dscp: Dscp, destination: &Destination) -> Result<Connection, (Reply, String)> {
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
            let connection = connect(&addresses, "connect").await?;
            connection.set_dscp(dscp);
            return Ok(connection);
        }
        let spare = match self.spares.take() {
            Some(mut connection) => {
                let asked = pair::request(&mut connection, dscp, destination).await;
                asked.ok().map(|reply| (connection, reply))
            }
            None => None,
        };
        // The error of a broken spare connection gives less information than that of a new one.
        let (mut connection, reply) = match spare {
            Some(asked) => asked,
            None => {
                let mut connection = connect(&self.via, "connect to the remote proxy").await?;
                let asked = pair::request(&mut connection, dscp, destination).await;
                let reply = asked.map_err(failed("ask the remote proxy"))?;
                (connection, reply)
            }
        };
        match reply {
            Reply::Succeeded => {
                connection.set_dscp(dscp);
                Ok(connection)
            }
            reply => {
                let _ = timeout(pair::PATIENCE, connection.shutdown()).await;
                Err((reply, format!("{destination}: the remote proxy says: {reply}")))
            }
        }
    }
}

/// Outcome of a client; the error is a line for the log.
type Served = Result<(), String>;

async fn serve_socks(
    mut stream: TcpStream,
    peer: IpAddr,
    connector: &Connector,
    credentials: Option<&Credentials>,
    admission: &Admission,
) -> Served {
    let accepted = admission.unknown.hold(peer, socks::accept(&mut stream, credentials)).await;
    let destination = match accepted.ok_or_else(|| format!("SOCKS5 client {peer}: {MADE_ROOM}"))? {
        Ok(destination) => destination,
        Err(error) => {
            // The client's reply is to arrive.
            let _ = SockRef::from(&stream).set_linger(None);
            return Err(format!("SOCKS5 client: {error}"));
        }
    };
    let permit = admission.enter().map_err(|error| (Reply::Failed, format!("{destination}: {error}")));
    let opened = match &permit {
        Ok(_) => connector.open(Dscp::of(&stream, peer), &destination).await,
        Err(refused) => Err(refused.clone()),
    };
    match opened {
        Ok(connection) => {
            let line = |error: io::Error| format!("{destination}: {error}");
            let bound = connection.local_address().map_err(line)?;
            socks::confirm(&mut stream, bound).await.map_err(line)?;
            let _place = connector.carried.add(&connection);
            relay::relay(stream, connection).await.map_err(line)
        }
        Err((reply, line)) => {
            let _ = SockRef::from(&stream).set_linger(None);
            let _ = socks::refuse(&mut stream, reply).await;
            Err(line)
        }
    }
}

async fn serve_caught(
    stream: TcpStream,
    peer: SocketAddr,
    connector: &Connector,
    catcher: &Catcher,
    admission: &Admission,
) -> Served {
    let original = catcher.original(peer).ok_or_else(|| format!("{peer}: was not caught, so it is reset"))?;
    let _permit = admission.enter().map_err(|error| format!("{original}: {error}"))?;
    let dscp = Dscp::of(&stream, peer.ip());
    let connection = connector.open(dscp, &Destination::Address(original)).await.map_err(|(_, line)| line)?;
    let _place = connector.carried.add(&connection);
    relay::relay(stream, connection).await.map_err(|error| format!("{original}: {error}"))
}

/// Remote proxy: its rules and admission.
struct Remote {
    rules: Rules,
    admission: Admission,
    carried: Arc<Carried>,
}

impl Remote {
    async fn serve(&self, mut connection: Connection) -> Served {
        let peer = connection.peer_address().map_err(|error| format!("local proxy: {error}"))?;
        let line = |error: io::Error| format!("local proxy {peer}: {error}");
        let made_room = || format!("local proxy {peer}: {MADE_ROOM}");
        let slots = &self.admission.unknown;
        if self.admission.open {
            let served = async {
                let request = pair::receive_request(&mut connection, pair::PATIENCE).await.map_err(line)?;
                self.carry(connection, peer, request).await
            };
            return slots.hold(peer.ip(), served).await.ok_or_else(made_room)?;
        }
        let request = match slots.hold(peer.ip(), pair::receive_request(&mut connection, 2 * spare::LAPSE)).await {
            // A spare connection that was not used.
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidData => return Ok(()),
            request => request.ok_or_else(made_room)?.map_err(line)?,
        };
        let _permit = match self.admission.enter() {
            Ok(permit) => permit,
            Err(error) => {
                pair::reply(&mut connection, Reply::Failed).await.map_err(line)?;
                part(connection).await;
                return Err(format!("local proxy {peer}: {error}"));
            }
        };
        self.carry(connection, peer, request).await
    }

    /// Connect to the destination and relay.
    async fn carry(&self, mut connection: Connection, peer: SocketAddr, request: (Dscp, Destination)) -> Served {
        let (dscp, destination) = request;
        let line = |error: io::Error| format!("{destination}: {error}");
        connection.set_dscp(dscp);
        let connected = timeout(CONNECT_ALL, connect_plain(dscp, &destination, &self.rules)).await;
        match connected.unwrap_or(Err(Reply::TimedOut)) {
            Ok(stream) => {
                pair::reply(&mut connection, Reply::Succeeded).await.map_err(line)?;
                let _place = self.carried.add(&connection);
                relay::relay(stream, connection).await.map_err(line)
            }
            Err(reply) => {
                let replied = pair::reply(&mut connection, reply).await;
                part(connection).await;
                replied.map_err(line)?;
                Err(format!("local proxy {peer}: {destination}: {reply}"))
            }
        }
    }
}

/// Close a connection whose client has its reply, without waiting for one that does not take it.
async fn part(mut connection: Connection) {
    let _ = timeout(pair::PATIENCE, async {
        connection.shutdown().await?;
        connection.read(&mut [0]).await
    })
    .await;
}

async fn connect_plain(dscp: Dscp, destination: &Destination, rules: &Rules) -> Result<TcpStream, Reply> {
    let mut last = Reply::Failed;
    for address in destination.resolve(rules).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let connect = async {
            let socket = socket?;
            dscp.set(&socket, address.ip())?;
            socket.connect(address).await
        };
        let connected = timeout(CONNECT, connect).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => return relay::guard(&stream).map(|()| stream).map_err(|error| Reply::from(&error)),
            Err(error) => last = Reply::from(&error),
        }
    }
    Err(last)
}

/// Accept on `listeners` and serve each connection. Errors: a broken listener; those of one connection are not
/// returned.
async fn accept_all<F>(
    listeners: &[TcpListener],
    carried: &Arc<Carried>,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Served> + Send + 'static,
{
    loop {
        let accepted = match listeners {
            [first, second] => tokio::select! {
                accepted = first.accept() => accepted,
                accepted = second.accept() => accepted,
            },
            others => others[0].accept().await,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (serving, carried) = (relay::guard(&stream).map(|()| serve(stream, peer)), carried.clone());
                tokio::spawn(async move {
                    let served = match serving {
                        Ok(serving) => serving.await,
                        Err(error) => Err(format!("{peer}: {error}")),
                    };
                    if let Err(line) = served {
                        carried.failed();
                        report(line);
                    }
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
    raise_descriptor_limit();
    tokio::runtime::Runtime::new().about("start the runtime")?.block_on(program)
}

/// Print the line that the proxy's starter waits for.
fn ready(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn read_key(path: Option<&Path>) -> Result<Key, Error> {
    path.map(Key::read).transpose().map(Option::unwrap_or_default)
}

fn read_credentials(path: &Path) -> Result<Credentials, Error> {
    let mut secret = hosts_base::key::secret(path)?;
    while secret.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        secret.pop();
    }
    let colon = secret.iter().position(|byte| *byte == b':');
    colon
        .and_then(|colon| Credentials::new(&secret[..colon], &secret[colon + 1..]))
        .ok_or_else(|| Error::new(format!("{}: write one line NAME:PASSWORD, each of 1 to 255 bytes", path.display())))
}
