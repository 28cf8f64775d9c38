// SPDX-License-Identifier: Apache-2.0
//! Waits for connections and brings their subflows together.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::hello::{ANSWER, Answer, HELLO, Hello, Keys, Purpose};
use super::keeper::{HANDSHAKE, keep};
use super::link::Link;
use super::transport::Shared;
use super::{Connection, Options};

/// Subflows that may be in their handshake at a time, and connections that may wait to be accepted.
const PENDING: usize = 256;

/// What has come to a listener so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arrivals {
    /// Connections that speak BATCP, and plain ones.
    pub opened: u64,
    pub plain: u64,
    /// Further subflows of connections.
    pub joined: u64,
    /// Hellos that were none, late, or of a connection that they could not prove to belong to.
    pub refused: u64,
}

#[derive(Default)]
struct Counters {
    opened: AtomicU64,
    plain: AtomicU64,
    joined: AtomicU64,
    refused: AtomicU64,
}

/// Accepts connections, from clients that speak BATCP and, where the negotiation can tell, from plain ones.
///
/// While it lives, its connections can take in further subflows; those that it has accepted outlive it with the subflows they have.
pub struct Listener {
    local: SocketAddr,
    accepted: mpsc::Receiver<Connection>,
    counters: Arc<Counters>,
    accepting: AbortHandle,
}

impl Listener {
    /// Listens on one address; port 0 takes a free one. Must be called within a tokio runtime.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Self::from_socket(socket, options)
    }

    /// Listens on a bound socket: for what `bind` cannot express, as IP_TRANSPARENT.
    pub fn from_socket(socket: Socket, options: Options) -> io::Result<Self> {
        options.negotiation.listen(socket.as_fd())?;
        socket.set_nonblocking(true)?;
        socket.listen(1024)?;
        let listener = TcpListener::from_std(socket.into())?;
        let local = listener.local_addr()?;
        let (accept, accepted) = mpsc::channel(PENDING);
        let counters = Arc::<Counters>::default();
        let desk = Desk { options, accept, counters: counters.clone(), connections: Arc::default() };
        let accepting = tokio::spawn(receive(listener, Arc::new(desk))).abort_handle();
        Ok(Self { local, accepted, counters, accepting })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// The next connection. Its subflows are accepted in the background, even while nobody waits here.
    /// Errors: the listening socket is broken. Clients that fail are counted, not reported.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        self.accepted.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub fn arrivals(&self) -> Arrivals {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { opened, plain, joined, refused } = &*self.counters;
        Arrivals { opened: count(opened), plain: count(plain), joined: count(joined), refused: count(refused) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Desk {
    options: Options,
    accept: mpsc::Sender<Connection>,
    counters: Arc<Counters>,
    /// By their tokens.
    connections: Arc<Mutex<HashMap<u64, Arc<Shared>>>>,
}

async fn receive(listener: TcpListener, desk: Arc<Desk>) {
    let places = Arc::new(Semaphore::new(PENDING));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = desk.clone();
                tokio::spawn(async move {
                    let counter = match desk.greet(stream).await {
                        Ok(counter) => counter(&desk.counters),
                        Err(_) => &desk.counters.refused,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    drop(place);
                });
            }
            // The process has no descriptor left, or the client was gone already: the next may fare better.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

type Counter = fn(&Counters) -> &AtomicU64;

impl Desk {
    /// Reads a hello and does what it asks. Errors: the subflow is refused.
    async fn greet(&self, mut stream: TcpStream) -> io::Result<Counter> {
        if !self.options.negotiation.received(stream.as_fd())? {
            self.hand_over(Connection::plain(stream)?)?;
            return Ok(|counters| &counters.plain);
        }
        let mut octets = [0; HELLO];
        // Who says nothing, or something else, is not worth the kernel's lingering.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        timeout(HANDSHAKE, stream.read_exact(&mut octets)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let hello = Hello::decode(&octets).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        SockRef::from(&stream).set_linger(None)?;
        match hello.purpose {
            Purpose::Open { key, window } => self.open(stream, &hello, key, window).await,
            Purpose::Join { token, sequence, .. } => self.join(stream, &hello, token, sequence).await,
        }
    }

    async fn open(&self, mut stream: TcpStream, hello: &Hello, theirs: [u8; 16], limit: u64) -> io::Result<Counter> {
        let (key, token): ([u8; 16], u64) = (rand::random(), rand::random());
        let answer = Answer::Welcome { key, token, window: self.options.window as u64 };
        let shared = Shared::new(self.options.clone(), hello.mark.connection, Keys::new(theirs, key), token, limit);
        self.connections.lock().expect("no panic holds it").insert(token, shared.clone());
        let connections = self.connections.clone();
        if let Err(error) = stream.write_all(&answer.encode()).await {
            connections.lock().expect("no panic holds it").remove(&token);
            return Err(error);
        }
        shared.add(hello.mark.interface, hello.interface.clone(), Link::new(stream, ANSWER, self.options.timeout)?);
        let connection = Connection::new(shared.clone());
        tokio::spawn(async move {
            keep(shared, None).await;
            connections.lock().expect("no panic holds it").remove(&token);
        });
        self.hand_over(connection?)?;
        Ok(|counters| &counters.opened)
    }

    async fn join(&self, mut stream: TcpStream, hello: &Hello, token: u64, sequence: u32) -> io::Result<Counter> {
        let known = self.connections.lock().expect("no panic holds it").get(&token).cloned();
        let known = known.filter(|shared| {
            shared.id == hello.mark.connection && hello.is_authentic(&shared.keys) && shared.is_new_join(sequence)
        });
        let Some(shared) = known else {
            stream.write_all(&Answer::Refused.encode()).await?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a join that proves nothing"));
        };
        stream.write_all(&Answer::joined(hello, &shared.keys).encode()).await?;
        let link = Link::new(stream, ANSWER, self.options.timeout)?;
        shared.add(hello.mark.interface, hello.interface.clone(), link);
        Ok(|counters| &counters.joined)
    }

    /// Errors: too many wait to be accepted already, or the listener is gone; the connection is reset.
    fn hand_over(&self, connection: Connection) -> io::Result<()> {
        self.accept.try_send(connection).map_err(|_| io::ErrorKind::QuotaExceeded.into())
    }
}
