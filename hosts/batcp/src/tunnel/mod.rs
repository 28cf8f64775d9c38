// SPDX-License-Identifier: Apache-2.0
//! Tunnel over several interfaces: a network device on either end, and every packet that is routed there as a sealed
//! datagram over the best link.

mod config;
mod core;
mod device;
mod link;
mod noise;
mod status;

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UdpSocket;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use self::config::{Config, InitOptions};
use self::core::{Core, HEAD, MAX_PACKET};
use self::link::Link;
use self::noise::MAX_LINKS;
use self::status::{Status, StatusOptions};
use super::Interface;
use super::proxy::destination::Prefix;
use super::transfer::runtime;
use hosts_base::log::report;
use hosts_base::{About, Error};

/// Packets or datagrams that are processed before others have their turn.
const TURN: usize = 64;
/// Interval of polling the links while packets flow, and while none do.
const TICK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Pause between two sockets for a silent link, and between two searches for new interfaces.
const RENEW: Duration = Duration::from_secs(2);

#[derive(Subcommand)]
pub enum Command {
    /// Make the keys and the two configuration files of a tunnel
    Init(InitOptions),
    /// Run one end of a tunnel, until SIGINT or SIGTERM
    Run(RunOptions),
    /// Show the links of a running tunnel
    Status(StatusOptions),
}

#[derive(Args)]
pub struct RunOptions {
    /// This end's file, made by `init`
    config: PathBuf,
    /// Leave these destinations out of the tunnel, in addition to those that the file excepts
    #[arg(long, value_name = "PREFIX")]
    except: Vec<Prefix>,
}

pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Init(options) => config::init(&options),
        Command::Run(options) => {
            let config = Config::read(&options.config)?;
            runtime()?.block_on(carry(config, &options.except))
        }
        Command::Status(options) => status::show(&options),
    }
}

type SharedCore = Arc<Mutex<Core>>;

fn lock(shared: &SharedCore) -> MutexGuard<'_, Core> {
    shared.lock().expect("no thread panics while it holds the tunnel")
}

async fn carry(config: Config, except: &[Prefix]) -> Result<(), Error> {
    let device = device::open(&config.device)?;
    let routes = device::Routes::set(&config, except)?;
    let statuses = status::listen(&config.device)?;
    let for_reading = device.try_clone().about(&config.device)?;
    let opens = config.listen.is_empty();
    let named = config.links.iter().map(|l| Link::new(l.interface.clone(), l.cost, l.quota.unwrap_or(u64::MAX)));
    let core = Core::new(config.identity()?, opens, config.double, device, named.collect());
    let shared = Arc::new(Mutex::new(core));
    for address in &config.listen {
        let socket = socket(*address, None).about(format!("listen on {address}"))?;
        tokio::spawn(read(shared.clone(), socket));
    }
    tokio::spawn(watch(shared.clone(), config.peers.clone(), config.links.is_empty()));
    let packets = tokio::spawn(take_packets(shared.clone(), for_reading, config.mtu as usize));
    let (name, watched) = (config.device.clone(), shared.clone());
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = statuses.accept().await else {
                sleep(RENEW).await; // no descriptor is left, but one may be soon
                continue;
            };
            let text = serde_json::to_string(&Status::of(&name, &lock(&watched))).expect("plain data");
            // It fits the socket's buffer: the write does not block.
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = signals;
    let (mut interrupt, mut terminate) = (interrupt.about("signals")?, terminate.about("signals")?);
    // A closed standard output is no error.
    let _ = writeln!(io::stderr(), "tunnel {} is up", config.device);
    let ended = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = packets => ended.about(&config.device)?.about(format!("read from the device {}", config.device)),
    };
    drop(routes);
    status::forget(&config.device);
    ended
}

/// Make a UDP socket on an address, or for an interface.
fn socket(address: SocketAddr, interface: Option<&str>) -> io::Result<Arc<UdpSocket>> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    // Datagrams that are longer than a link's MTU go in fragments rather than not at all.
    let dont: libc::c_int = libc::IP_PMTUDISC_DONT;
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    // SAFETY: an int that lives during the call. An error leaves the system's way.
    unsafe {
        let length = size_of_val(&dont) as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const dont).cast(), length);
    }
    let _ = (socket.set_recv_buffer_size(4 << 20), socket.set_send_buffer_size(1 << 20));
    socket.bind(&address.into())?;
    Ok(Arc::new(UdpSocket::from_std(socket.into())?))
}

/// Receive the datagrams of a socket.
async fn read(shared: SharedCore, socket: Arc<UdpSocket>) {
    let (mut datagram, mut frame) = (vec![0; 65_536], vec![0; 65_536]);
    while socket.readable().await.is_ok() {
        let mut core = lock(&shared);
        for _ in 0..TURN {
            match socket.try_recv_from(&mut datagram) {
                Ok((length, from)) => core.receive(&socket, from, &datagram[..length], &mut frame),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Error of an earlier datagram.
                Err(_) => {}
            }
        }
    }
}

/// Read the packets that are routed to the device. Errors: the device is gone.
async fn take_packets(shared: SharedCore, device: OwnedFd, mtu: usize) -> io::Result<()> {
    // SAFETY: the descriptor is owned by what it is registered with, so it stays open as long.
    let device = unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) }.map_err(io::Error::from)?;
    let mut frame = vec![0; HEAD + mtu.min(MAX_PACKET)];
    loop {
        let mut ready = device.readable().await?;
        let mut core = lock(&shared);
        let now = Instant::now();
        for _ in 0..TURN {
            let into = &mut frame[HEAD..];
            // SAFETY: reads at most what there is room for.
            let length = unsafe { libc::read(device.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
            if length < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => ready.clear_ready(),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
                break;
            }
            core.send(&mut frame[..HEAD + length as usize], now);
        }
    }
}

/// Maintain the links: their answers, their sockets, and, where none are named, new interfaces.
async fn watch(shared: SharedCore, peers: Vec<SocketAddr>, discovers: bool) {
    let mut sockets: Vec<LinkSocket> = Vec::new();
    let mut looked: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let pause = {
            let mut core = lock(&shared);
            if discovers && !peers.is_empty() && looked.is_none_or(|at| now - at > RENEW) {
                looked = Some(now);
                discover(&mut core, &peers);
            }
            let lost = core.tick(now);
            for k in 0..if peers.is_empty() { 0 } else { core.links.len() } {
                if sockets.len() <= k {
                    sockets.push(LinkSocket::default());
                }
                let due = core.links[k].socket.is_none() || lost.contains(&k);
                if due && sockets[k].at.is_none_or(|at| now - at > RENEW) {
                    let peer = peers[(k + sockets[k].count) % peers.len()];
                    sockets[k].renew(&shared, &mut core.links[k], peer);
                }
            }
            if core.is_busy(now) { TICK.0 } else { TICK.1 }
        };
        sleep(pause).await;
    }
}

/// Socket of a link: an interface that went and came back, or a peer's other address, needs another one.
#[derive(Default)]
struct LinkSocket {
    at: Option<Instant>,
    count: usize,
    reader: Option<AbortHandle>,
}

impl LinkSocket {
    fn renew(&mut self, shared: &SharedCore, link: &mut Link, peer: SocketAddr) {
        self.at = Some(Instant::now());
        self.count += 1;
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
        let any = if peer.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        link.forget_probes();
        link.peer = Some(peer);
        link.socket = match socket(any, Some(&link.name)) {
            Ok(socket) => {
                self.reader = Some(tokio::spawn(read(shared.clone(), socket.clone())).abort_handle());
                Some(socket)
            }
            Err(error) => {
                if self.count == 1 {
                    report(format_args!("link {}: {error}; it is tried again", link.name));
                }
                None
            }
        };
    }
}

fn discover(core: &mut Core, peers: &[SocketAddr]) {
    for found in peers.iter().flat_map(|peer| Interface::towards(peer.ip())) {
        if core.links.len() < MAX_LINKS && !core.links.iter().any(|link| link.name == found.name) {
            core.links.push(Link::new(found.name, 1.0, u64::MAX));
        }
    }
}
