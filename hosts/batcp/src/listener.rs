// SPDX-License-Identifier: Apache-2.0
//! Accepts connections and adds further subflows to them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection_state::ConnectionState;
use super::hello::{ANSWER, Answer, HANDSHAKE, Hello, Keys, OTHER_VERSION, PROOF, Purpose};
use super::link::Link;
use super::path_manager::{close_subflows, maintain_subflows};
use super::seal::{self, Seal};
use super::{Connection, Options};
use hosts_base::log::report;
use hosts_base::slots::{BACKLOG, ConnectionSlots};

/// Subflows that may be in their handshake at a time, and connections that may wait to be accepted.
const PENDING: usize = 256;
/// Maximum bytes of all connections of an open listener in each direction, and minimum bytes of one.
const OPEN_WINDOWS: usize = 64 << 20;
const MIN_WINDOW: usize = 64 << 10;

/// Counters of a listener's arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Connections that speak BATCP, and plain ones.
    pub opened: u64,
    pub plain: u64,
    /// Further subflows of connections.
    pub joined: u64,
    /// Rejected subflows: no hello, a late one, or one without proof of the key.
    pub refused: u64,
    /// Rejected subflows whose SYN did not announce BATCP, at a listener with a key: somebody on the way has removed
    /// the option, SYN cookies have, or the client is no BATCP.
    pub downgraded: u64,
}

#[derive(Default)]
struct Counters {
    opened: AtomicU64,
    plain: AtomicU64,
    joined: AtomicU64,
    refused: AtomicU64,
    downgraded: AtomicU64,
}

impl Counters {
    fn read(&self) -> Arrivals {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Arrivals {
            opened: count(&self.opened),
            plain: count(&self.plain),
            joined: count(&self.joined),
            refused: count(&self.refused),
            downgraded: count(&self.downgraded),
        }
    }
}

/// Accepts connections, from clients that speak BATCP and, where the negotiation can distinguish them, from plain ones.
///
/// While the listener lives, its connections can add subflows; those that it has accepted outlive it with the subflows
/// they have.
pub struct Listener {
    local: SocketAddr,
    accepted: mpsc::Receiver<Connection>,
    counters: Arc<Counters>,
    accepting: AbortHandle,
}

impl Listener {
    /// Listen on one address; port 0 takes a free one. Must be called within a tokio runtime.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Self::from_socket(socket, options)
    }

    /// Listen on a bound socket: for options that `bind` cannot express, such as IP_TRANSPARENT.
    pub fn from_socket(socket: Socket, mut options: Options) -> io::Result<Self> {
        if options.key.is_open() {
            options.window = options.window.min((OPEN_WINDOWS / options.connections.max(1)).max(MIN_WINDOW));
        }
        options.negotiation.listen(socket.as_fd())?;
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG as i32)?;
        let listener = TcpListener::from_std(socket.into())?;
        let local = listener.local_addr()?;
        let (accept, accepted) = mpsc::channel(PENDING);
        let counters = Arc::<Counters>::default();
        let permits = Arc::new(Semaphore::new(options.connections));
        let context =
            AcceptContext { options, accept, counters: counters.clone(), permits, connections: Arc::default() };
        let accepting = tokio::spawn(receive(listener, Arc::new(context))).abort_handle();
        Ok(Self { local, accepted, counters, accepting })
    }

    /// Return the address that the listener is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Return the next connection. Subflows are accepted in the background, even while no call waits here. Errors: the
    /// listening socket is broken. Clients that fail are counted, not reported.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        self.accepted.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Return the counters of arrivals so far.
    pub fn arrivals(&self) -> Arrivals {
        self.counters.read()
    }

    /// Return a function that reads the counters, also while `accept` waits.
    pub fn watch(&self) -> impl Fn() -> Arrivals + Send + 'static + use<> {
        let counters = self.counters.clone();
        move || counters.read()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct AcceptContext {
    options: Options,
    accept: mpsc::Sender<Connection>,
    counters: Arc<Counters>,
    /// Permits of connections that have not ended.
    permits: Arc<Semaphore>,
    connections: Arc<Mutex<Connections>>,
}

/// Connections by token; None: the opener's proof is awaited, and another interface's join may come first.
type Connections = HashMap<u64, Option<Arc<ConnectionState>>>;

/// Token of a connection whose opener has not yet proved the key; removed when dropped before that.
struct PendingOpen {
    connections: Arc<Mutex<Connections>>,
    token: u64,
}

impl Drop for PendingOpen {
    fn drop(&mut self) {
        let mut connections = self.connections.lock().expect("no panic holds it");
        if connections.get(&self.token).is_some_and(Option::is_none) {
            connections.remove(&self.token);
        }
    }
}

async fn receive(listener: TcpListener, context: Arc<AcceptContext>) {
    let slots = ConnectionSlots::new(PENDING);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (context, slots) = (context.clone(), slots.clone());
                tokio::spawn(async move {
                    let counter = match slots.hold(peer.ip(), context.handshake(stream)).await {
                        Some(Ok(counter)) => counter(&context.counters),
                        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                            report(format_args!("{peer} is refused: {error}"));
                            &context.counters.refused
                        }
                        _ => &context.counters.refused,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                });
            }
            // No descriptor is left, or the client was gone already: retry.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

type Counter = fn(&Counters) -> &AtomicU64;

impl AcceptContext {
    /// Read a hello and open or join its connection. Until the client has proved that it has the key, it costs this
    /// task and a socket. Errors: the subflow is rejected.
    async fn handshake(&self, mut stream: TcpStream) -> io::Result<Counter> {
        if !self.options.negotiation.received(stream.as_fd())? {
            if !self.options.key.is_open() {
                let peer = stream.peer_addr()?;
                report(format_args!("{peer} is refused: its SYN has no option, and with a key plain TCP is refused"));
                return Ok(|counters| &counters.downgraded);
            }
            self.hand_over(Connection::plain(stream)?)?;
            return Ok(|counters| &counters.plain);
        }
        // A client that sends no valid hello is not worth the kernel's lingering.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        let hello = match Hello::decode(&read(&mut stream).await?) {
            Ok(hello) => hello,
            Err(error) => {
                if error == OTHER_VERSION {
                    refuse(stream, &Answer::Refused).await?;
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        match hello.purpose {
            Purpose::Open { nonce, window } => self.open(stream, &hello, nonce, window).await,
            Purpose::Join { token, sequence, .. } => self.join(stream, &hello, token, sequence).await,
        }
    }

    async fn open(&self, mut stream: TcpStream, hello: &Hello, theirs: [u8; 16], limit: u64) -> io::Result<Counter> {
        if self.permits.available_permits() == 0 {
            refuse(stream, &Answer::Busy).await?;
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let (nonce, token): ([u8; 16], u64) = (rand::random(), rand::random());
        let keys = Keys::new(&self.options.key, theirs, nonce);
        let answer = Answer::welcome(hello, nonce, token, self.options.window as u64, &keys);
        self.connections.lock().expect("no panic holds it").insert(token, None);
        let _pending = PendingOpen { connections: self.connections.clone(), token };
        stream.write_all(&answer.encode()).await?;
        let left =
            |error| io::Error::new(io::ErrorKind::PermissionDenied, format!("it has not proved the key: {error}"));
        if !keys.proves(&read::<PROOF>(&mut stream).await.map_err(left)?, hello, &answer) {
            let why = "it has another key, or none, or its messages are changed on the way";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let seal = self.seal(&mut stream, hello, &keys).await?;
        SockRef::from(&stream).set_linger(None)?;
        let link = Link::new(stream, ANSWER, seal, Arc::default(), self.options.timeout)?;
        let shared = ConnectionState::new(self.options.clone(), hello.mark.connection, keys, token, limit);
        // Other connections may have come since the check.
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| io::ErrorKind::QuotaExceeded)?;
        self.connections.lock().expect("no panic holds it").insert(token, Some(shared.clone()));
        shared.add(hello.mark.interface, hello.interface.clone(), link);
        let connection = Connection::new(shared.clone());
        let connections = self.connections.clone();
        tokio::spawn(async move {
            maintain_subflows(&shared, None).await;
            drop(permit); // one that only takes its leave keeps nobody out
            close_subflows(&shared).await;
            connections.lock().expect("no panic holds it").remove(&token);
        });
        self.hand_over(connection?)?;
        Ok(|counters| &counters.opened)
    }

    async fn join(&self, mut stream: TcpStream, hello: &Hello, token: u64, sequence: u32) -> io::Result<Counter> {
        // Wait as long as an opener may take for its proof.
        let known = loop {
            match self.connections.lock().expect("no panic holds it").get(&token) {
                Some(None) => {}
                Some(Some(shared)) => break Some(shared.clone()),
                None => break None,
            }
            sleep(Duration::from_millis(1)).await;
        };
        let proves_nothing =
            || io::Error::new(io::ErrorKind::PermissionDenied, "it joins a connection that is not its own, or is over");
        let Some(shared) = known else {
            refuse(stream, &Answer::unknown(hello, &self.options.key)).await?;
            return Err(proves_nothing());
        };
        let is_meant = shared.id == hello.mark.connection && hello.is_authentic(&shared.keys);
        if !is_meant || !shared.admits(hello.mark.interface, sequence) {
            refuse(stream, &Answer::Refused).await?;
            return Err(proves_nothing());
        }
        stream.write_all(&Answer::joined(hello, &shared.keys).encode()).await?;
        let seal = self.seal(&mut stream, hello, &shared.keys).await?;
        SockRef::from(&stream).set_linger(None)?;
        let link = Link::new(stream, ANSWER, seal, Arc::default(), self.options.timeout)?;
        shared.add(hello.mark.interface, hello.interface.clone(), link);
        Ok(|counters| &counters.joined)
    }

    /// Return the keys that seal a subflow, whose opener has proved that it knows the connection's; None without a
    /// shared key.
    async fn seal(&self, stream: &mut TcpStream, hello: &Hello, keys: &Keys) -> io::Result<Option<Seal>> {
        if self.options.key.is_open() { Ok(None) } else { seal::answer(stream, &keys.secret(hello)).await.map(Some) }
    }

    /// Pass a connection to `accept`. Errors: too many wait to be accepted already, or the listener is gone; the
    /// connection is reset.
    fn hand_over(&self, connection: Connection) -> io::Result<()> {
        self.accept.try_send(connection).map_err(|_| io::ErrorKind::QuotaExceeded.into())
    }
}

/// Read N octets from a client within the time of a handshake.
async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    timeout(HANDSHAKE, stream.read_exact(&mut octets)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(octets)
}

/// Send an answer and close the subflow without a reset. The answer fits the socket's buffer, so the write does not
/// block.
async fn refuse(mut stream: TcpStream, answer: &Answer) -> io::Result<()> {
    SockRef::from(&stream).set_linger(None)?;
    stream.write_all(&answer.encode()).await
}
