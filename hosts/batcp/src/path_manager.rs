// SPDX-License-Identifier: Apache-2.0
//! Manages a connection's subflows: opens the first, joins the other interfaces, replaces dead ones, and closes them at
//! the end (paper 003, sections 3.1 to 3.3).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::connection_state::{ConnectionState, LockedState, MAX_SUBFLOWS};
use super::hello::{ANSWER, Answer, HANDSHAKE, HELLO, Hello, Keys, PROOF};
use super::link::Link;
use super::seal::{self, Seal};
use super::{Interface, Key, Mark, Options};

/// Pause between two attempts on an interface, growing from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// Age at which a subflow that ends has shown that its interface carries more than a handshake.
const YOUNG: Duration = Duration::from_secs(10);
/// Pause between two searches for new interfaces.
const DISCOVER: Duration = Duration::from_secs(1);
/// Time that subflows have to end once both directions are complete, and after a reset.
const FAREWELL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));

/// End that opens subflows: the peer's addresses, and the interfaces.
pub struct Client {
    pub peers: Vec<SocketAddr>,
    pub interfaces: Vec<Interface>,
    /// Use all interfaces that have a route to the peer, whenever they appear, as none was named.
    pub discover: bool,
    discovered: Instant,
    attempts: Vec<Attempt>,
    joining: JoinSet<(usize, io::Result<Joined>)>,
    sequence: u32,
}

#[derive(Clone, Copy)]
struct Attempt {
    busy: bool,
    not_before: Instant,
    wait: Duration,
    /// Time of the last subflow's begin.
    joined: Option<Instant>,
}

impl Client {
    /// Make a client. `interfaces`: wired ones go first (section 3.1); none: those with a route to the first peer.
    pub fn new(peers: &[SocketAddr], interfaces: &[Interface]) -> Self {
        let mut interfaces = interfaces.to_vec();
        let discover = interfaces.is_empty();
        if discover && let Some(&peer) = peers.first() {
            interfaces = Interface::towards(peer.ip());
        }
        interfaces.sort_by_key(|interface| !interface.is_wired());
        interfaces.truncate(MAX_SUBFLOWS);
        let peers = peers.to_vec();
        let discovered = Instant::now();
        Self { peers, interfaces, discover, discovered, attempts: Vec::new(), joining: JoinSet::new(), sequence: 0 }
    }

    /// Start joins for the interfaces that have no live subflow.
    fn join_missing(&mut self, shared: &Arc<ConnectionState>, now: Instant) {
        if self.discover && now.saturating_duration_since(self.discovered) >= DISCOVER {
            self.discovered = now;
            for found in Interface::towards(self.peers[0].ip()) {
                if self.interfaces.len() < MAX_SUBFLOWS && !self.interfaces.iter().any(|i| i.name == found.name) {
                    self.interfaces.push(found);
                }
            }
        }
        self.attempts
            .resize(self.interfaces.len(), Attempt { busy: false, not_before: now, wait: RETRY.0, joined: None });
        let state = shared.state();
        let covered = |number| state.subflows.values().any(|s| usize::from(s.number) == number && !s.stalled);
        for (number, attempt) in self.attempts.iter_mut().enumerate() {
            let uplink = shared.options.uplinks.of(&self.interfaces[number].name);
            if attempt.busy || attempt.not_before > now || covered(number) || uplink.is_used_up() {
                continue;
            }
            attempt.busy = true;
            self.sequence += 1;
            let (shared, peers, interface) = (shared.clone(), self.peers.clone(), self.interfaces[number].clone());
            let sequence = self.sequence;
            self.joining
                .spawn(async move { (number, join(&shared, &peers, &interface, number as u8, sequence).await) });
        }
    }

    fn joined(&mut self, shared: &Arc<ConnectionState>, number: usize, result: io::Result<Joined>) {
        let attempt = &mut self.attempts[number];
        attempt.busy = false;
        match result {
            Ok(Joined::In(link)) => {
                let (now, wait) = (Instant::now(), attempt.wait);
                let young = attempt.joined.replace(now).is_some_and(|at| now - at < YOUNG + wait);
                attempt.wait = if young { (2 * wait).min(YOUNG) } else { RETRY.0 };
                attempt.not_before = now + attempt.wait;
                return shared.add(number as u8, self.interfaces[number].clone(), *link);
            }
            // Only both ends have the key. A message that anybody can forge, a TCP reset or an open listener's answer,
            // ends nothing.
            Ok(Joined::Unknown) if !shared.options.key.is_open() && !shared.state().is_alive() => {
                let peer = self.peers[0];
                let text = format!("{peer} no longer knows this connection: its program ended or was restarted");
                shared.fail(io::ErrorKind::ConnectionReset, text);
            }
            Ok(Joined::Unknown) | Err(_) => {}
        }
        attempt.not_before = Instant::now() + attempt.wait;
        attempt.wait = (2 * attempt.wait).min(RETRY.1);
    }
}

/// Outcome of a join.
enum Joined {
    In(Box<Link>),
    /// The listener has proved that it has the shared key, and does not know the connection.
    Unknown,
}

/// Connect from `interface` to the first of `peers` that it reaches; peer `number` has the first try. `mark`: content
/// of the SYN's option. The flag: the peer announced BATCP.
async fn reach(
    peers: &[SocketAddr],
    interface: &Interface,
    number: u8,
    mark: Mark,
    options: &Options,
) -> io::Result<(TcpStream, bool)> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to");
    for k in 0..peers.len() {
        let peer = peers[(usize::from(number) + k) % peers.len()];
        let attempt = async {
            let socket = interface.socket(peer, &options.uplinks.of(&interface.name))?;
            options.negotiation.prepare(socket.as_fd(), mark)?;
            let socket = TcpSocket::from_std_stream(socket.into());
            let stream = timeout(HANDSHAKE, socket.connect(peer)).await.map_err(|_| io::ErrorKind::TimedOut)??;
            // The seal's first message follows the proof at once.
            stream.set_nodelay(true)?;
            let answered = options.negotiation.answered(stream.as_fd())?;
            Ok((stream, answered))
        };
        match attempt.await {
            Ok(reached) => return Ok(reached),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn exchange(stream: &mut TcpStream, hello: &Hello) -> io::Result<Answer> {
    let answer = async {
        stream.write_all(&hello.encode()).await?;
        let mut octets = [0; ANSWER];
        stream.read_exact(&mut octets).await?;
        Answer::decode(&octets).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    };
    timeout(HANDSHAKE, answer).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Return the keys that seal a subflow; None without a shared key.
async fn seal(stream: &mut TcpStream, shared: &Key, keys: &Keys, hello: &Hello) -> io::Result<Option<Seal>> {
    Ok(if shared.is_open() { None } else { Some(seal::open(stream, &keys.secret(hello)).await?) })
}

/// Outcome of [`open`]: a connection with its first subflow, or plain TCP to a peer that does not speak BATCP.
pub enum Opened {
    Batcp(Arc<ConnectionState>),
    Plain(TcpStream),
}

/// Open the first subflow, on the first interface that reaches the peer. Errors: none does; each is named.
pub async fn open(client: Client, options: &Options) -> io::Result<Opened> {
    let connection = rand::random_range(0..10_000);
    let mut failures = Vec::new();
    for (number, interface) in client.interfaces.iter().enumerate() {
        let mark = Mark { interface: number as u8, connection };
        // The first SYN announces the number of interfaces (section 3.7).
        let first = Mark { interface: client.interfaces.len() as u8, connection };
        let ours: [u8; 16] = rand::random();
        let hello = Hello::open(mark, interface, ours, options.window as u64);
        let uplink = options.uplinks.of(&interface.name);
        let attempt = async {
            if uplink.is_used_up() {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "its quota is used up"));
            }
            let (mut stream, answered) = reach(&client.peers, interface, mark.interface, first, options).await?;
            if !answered && !options.key.is_open() {
                let why = "BATCP's TCP option was not answered, and with a key plain TCP is refused: leave out --paper";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            if !answered {
                return Ok(Opened::Plain(stream));
            }
            let answer = exchange(&mut stream, &hello).await?;
            let Answer::Welcome { nonce: theirs, token, window, .. } = answer else {
                let busy = "the peer serves as many connections as it may, try again later";
                let why = if answer == Answer::Busy { busy } else { "the peer refuses the connection" };
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
            };
            let keys = Keys::new(&options.key, ours, theirs);
            if !answer.is_authentic(&hello, &options.key, &keys) {
                let ours = options.key.is_open();
                let what =
                    if ours { "the peer has a key: give it here too" } else { "the peer has another key, or none" };
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            stream.write_all(&keys.proof(&hello, &answer)).await?;
            let seal = seal(&mut stream, &options.key, &keys, &hello).await?;
            let link = Link::new(stream, HELLO + PROOF, seal, uplink, options.timeout)?;
            let shared = ConnectionState::new(options.clone(), connection, keys, token, window);
            shared.add(mark.interface, interface.clone(), link);
            Ok(Opened::Batcp(shared))
        };
        match attempt.await {
            Ok(opened) => {
                if let Opened::Batcp(shared) = &opened {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        maintain_subflows(&shared, Some(client)).await;
                        close_subflows(&shared).await;
                    });
                }
                return Ok(opened);
            }
            Err(error) => failures.push((error.kind(), format!("{interface}: {error}"))),
        }
    }
    let kind = failures.first().map_or(io::ErrorKind::NotFound, |failure| failure.0);
    let texts: Vec<String> = failures.into_iter().map(|failure| failure.1).collect();
    let texts = if texts.is_empty() { "no interface has a route there".into() } else { texts.join("; ") };
    Err(io::Error::new(kind, texts))
}

/// Open a further subflow (the SYN segments from the other interfaces of section 3.1).
async fn join(
    shared: &ConnectionState,
    peers: &[SocketAddr],
    interface: &Interface,
    number: u8,
    sequence: u32,
) -> io::Result<Joined> {
    let mark = Mark { interface: number, connection: shared.id };
    let (mut stream, answered) = reach(peers, interface, number, mark, &shared.options).await?;
    if !answered {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the option does not get through this way"));
    }
    let hello = Hello::join(mark, interface, shared.token, sequence, &shared.keys);
    let answer = exchange(&mut stream, &hello).await?;
    match (answer.is_authentic(&hello, &shared.options.key, &shared.keys), answer) {
        (true, Answer::Joined { .. }) => {
            let seal = seal(&mut stream, &shared.options.key, &shared.keys, &hello).await?;
            let uplink = shared.options.uplinks.of(&interface.name);
            Ok(Joined::In(Box::new(Link::new(stream, HELLO, seal, uplink, shared.options.timeout)?)))
        }
        (true, Answer::Unknown { .. }) => Ok(Joined::Unknown),
        (_, Answer::Refused) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the join was refused")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "who answers is not the peer")),
    }
}

/// Maintain a connection's subflows from the first one until everything is sent and received, or it failed; then
/// [`close_subflows`] is to be called.
pub async fn maintain_subflows(shared: &Arc<ConnectionState>, mut client: Option<Client>) {
    let peer = match (&client, shared.state().subflows.values().next()) {
        (Some(client), _) => client.peers[0].to_string(),
        (None, Some(subflow)) => subflow.link.peer.to_string(),
        (None, None) => "the peer".to_owned(),
    };
    let mut progress = (0, Instant::now());
    loop {
        let now = Instant::now();
        let pause = {
            let mut state = shared.state();
            let pause = state.poll_subflows(now, shared.options.timeout, &peer);
            let acknowledged = state.sender.acknowledged();
            if acknowledged > progress.0 {
                progress = (acknowledged, now);
            }
            // The program is gone: do not wait for a peer whose kernel answers and whose program reads nothing.
            if let Some(dropped) = state.dropped
                && now - dropped.max(progress.1) > shared.options.timeout
            {
                state.fail(io::ErrorKind::TimedOut, "the peer neither takes what was sent nor closes its end".into());
            }
            if state.error.is_some() || state.is_done() {
                break;
            }
            pause
        };
        match &mut client {
            Some(client) => {
                shared.spare_quotas();
                client.join_missing(shared, now);
                tokio::select! {
                    () = sleep(pause) => {}
                    () = shared.changed.notified() => {}
                    Some(Ok((number, result))) = client.joining.join_next(), if !client.joining.is_empty() => {
                        client.joined(shared, number, result);
                    }
                }
            }
            None => {
                shared.drop_stalled(now);
                tokio::select! {
                    () = sleep(pause) => {}
                    () = shared.changed.notified() => {}
                }
            }
        }
    }
}

/// Close the subflows: TCP's FIN on each when both directions are complete, else the reset.
pub async fn close_subflows(shared: &ConnectionState) {
    let deadline = Instant::now() + if shared.state().error.is_none() { FAREWELL.0 } else { FAREWELL.1 };
    loop {
        {
            let (mut state, now) = (shared.state(), Instant::now());
            state.poll_subflows(now, shared.options.timeout, "the peer");
            state.wake_writers();
            if !state.is_alive() || now > deadline {
                end(&mut state);
                break;
            }
        }
        tokio::select! {
            () = sleep(Duration::from_millis(50)) => {}
            () = shared.changed.notified() => {}
        }
    }
    shared.ended.notify_waiters();
}

fn end(state: &mut LockedState) {
    let failed = state.error.is_some();
    for subflow in std::mem::take(&mut state.subflows).into_values() {
        subflow.tasks.iter().for_each(AbortHandle::abort);
        if failed {
            let _ = SockRef::from(&subflow.link.stream).set_linger(Some(Duration::ZERO));
        }
    }
    state.ended = true;
    state.wake_program();
}
