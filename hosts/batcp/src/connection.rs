// SPDX-License-Identifier: Apache-2.0
//! Byte stream for programs.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection_state::{ConnectionState, LockedState};
use super::dscp::Dscp;
use super::path_manager::{Client, Opened, open};
use super::reassembly::Reassembly;
use super::sender::{PIECE, Sender};
use super::status::Status;
use super::subflow::Subflow;
use super::{Interface, Options};

/// Connection over several interfaces, or a plain TCP connection to a peer that does not speak BATCP.
///
/// `shutdown()` ends this direction and waits until the peer has all of it. `flush()` waits for nothing. Errors of reads and
/// writes: `ConnectionReset` (the peer or its program ended it), `TimedOut` (the peer vanished), `InvalidData` (the peer broke
/// the protocol). Dropped before `shutdown()` it is reset; dropped after it, what was sent still arrives.
pub struct Connection {
    inner: Inner,
    local: SocketAddr,
    peer: SocketAddr,
}

enum Inner {
    Batcp(Arc<ConnectionState>),
    Plain(TcpStream),
}

/// Open a connection to a peer (section 3.1): the first subflow on the first interface that reaches it, wired ones
/// first, the others once the peer has answered.
///
/// `peers`: addresses of the one peer; interface i tries peer i first, then the others. `interfaces`: empty means all that
/// have a route to the first peer, now or later. Errors: no interface reaches the peer, each with its reason.
pub async fn connect(peers: &[SocketAddr], interfaces: &[Interface], options: &Options) -> io::Result<Connection> {
    if peers.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to"));
    }
    for interface in interfaces {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidInput, format!("interface {interface}: {what}"));
        interface.check().map_err(wrong)?;
    }
    match open(Client::new(peers, interfaces), options).await? {
        Opened::Batcp(shared) => Connection::new(shared),
        Opened::Plain(stream) => Connection::plain(stream),
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<ConnectionState>) -> io::Result<Self> {
        let addresses = shared.state().subflows.values().next().map(|first| (first.link.local, first.link.peer));
        let (local, peer) = addresses.ok_or(io::ErrorKind::ConnectionReset)?;
        Ok(Self { inner: Inner::Batcp(shared), local, peer })
    }

    pub(super) fn plain(stream: TcpStream) -> io::Result<Self> {
        // Until `shutdown()` a close is a reset, also when this process is killed.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        Ok(Self { local: stream.local_addr()?, peer: stream.peer_addr()?, inner: Inner::Plain(stream) })
    }

    /// True if the peer did not answer the option, so that this is plain TCP (section 3.1).
    pub fn is_plain(&self) -> bool {
        matches!(self.inner, Inner::Plain(_))
    }

    /// True if at least one subflow is alive and nothing waits to be read.
    pub fn is_quiet(&self) -> bool {
        match &self.inner {
            Inner::Plain(_) => false,
            Inner::Batcp(shared) => {
                let state = shared.state();
                state.error.is_none() && state.is_alive() && state.receiver.readable() == 0
            }
        }
    }

    /// Send with a codepoint from now on, on all subflows: that of the program whose bytes these are.
    pub(super) fn set_dscp(&self, dscp: Dscp) {
        match &self.inner {
            Inner::Plain(stream) => drop(dscp.set(stream, self.peer.ip())),
            Inner::Batcp(shared) => {
                let mut state = shared.state();
                state.dscp = dscp;
                for Subflow { link, .. } in state.subflows.values() {
                    let _ = dscp.set(&link.stream, link.peer.ip());
                }
            }
        }
    }

    /// Return the peer's address of the first subflow.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    /// Return this end's address of the first subflow.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Return the bytes that the connection has carried, and the state of its subflows.
    pub fn status(&self) -> Status {
        match &self.inner {
            Inner::Batcp(shared) => Status::of(shared),
            Inner::Plain(_) => Status::plain(),
        }
    }

    /// Return a function that reads the status, also while the connection is read and written elsewhere.
    pub fn watch(&self) -> impl Fn() -> Status + Send + 'static + use<> {
        let shared = match &self.inner {
            Inner::Batcp(shared) => Some(shared.clone()),
            Inner::Plain(_) => None,
        };
        move || shared.as_deref().map_or_else(Status::plain, Status::of)
    }

    /// Write all of `bytes` without copying them; they are kept until the peer has acknowledged them.
    pub async fn write_bytes(&mut self, mut bytes: Bytes) -> io::Result<()> {
        match &mut self.inner {
            Inner::Plain(stream) => stream.write_all(&bytes).await,
            Inner::Batcp(shared) => {
                while !bytes.is_empty() {
                    poll_fn(|context| poll_give(shared, context, |sender| sender.give(&mut bytes))).await?;
                }
                Ok(())
            }
        }
    }

    /// Read at most `max` bytes as they came, without copying them; none at the end of the stream.
    pub async fn read_bytes(&mut self, max: usize) -> io::Result<Bytes> {
        match &mut self.inner {
            Inner::Plain(stream) => {
                let mut bytes = BytesMut::with_capacity(max.min(PIECE));
                stream.read_buf(&mut bytes).await?;
                Ok(bytes.freeze())
            }
            Inner::Batcp(shared) => poll_fn(|context| poll_take(shared, context, |receiver| receiver.take(max)))
                .await
                .map(Option::unwrap_or_default),
        }
    }

    /// Wait, for at most 6 s after both directions have ended, until the subflows are closed. A program that exits
    /// earlier may leave the peer without its last acknowledgement.
    pub async fn closed(&self) {
        if let Inner::Batcp(shared) = &self.inner {
            let ended = shared.ended.notified();
            if !shared.state().ended {
                let _ = timeout(Duration::from_secs(6), ended).await;
            }
        }
    }
}

/// Return the error that ended the connection, for each call that follows.
fn error(state: &LockedState) -> Option<io::Error> {
    state.error.as_ref().map(|(kind, text)| io::Error::new(*kind, text.clone()))
}

/// Take from the bytes that can be read by `take`; None at their end.
fn poll_take<T>(
    shared: &ConnectionState,
    context: &mut Context<'_>,
    take: impl FnOnce(&mut Reassembly) -> T,
) -> Poll<io::Result<Option<T>>> {
    let mut state = shared.state();
    if state.receiver.readable() > 0 {
        let taken = take(&mut state.receiver);
        state.opened(shared.options.window);
        return Poll::Ready(Ok(Some(taken)));
    }
    if state.receiver.is_complete() {
        return Poll::Ready(Ok(None));
    }
    if let Some(error) = error(&state) {
        return Poll::Ready(Err(error));
    }
    state.reader = Some(context.waker().clone());
    Poll::Pending
}

/// Queue bytes by `give` once there is room; return their number.
fn poll_give(
    shared: &ConnectionState,
    context: &mut Context<'_>,
    give: impl FnOnce(&mut Sender) -> usize,
) -> Poll<io::Result<usize>> {
    let mut state = shared.state();
    if let Some(error) = error(&state) {
        return Poll::Ready(Err(error));
    }
    if state.sender.is_closed() {
        return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
    }
    let was_empty = state.sender.unsent_bytes() == 0;
    let length = give(&mut state.sender);
    if length == 0 {
        state.writer = Some(context.waker().clone());
        return Poll::Pending;
    }
    if was_empty {
        state.wake_writers();
        if std::mem::take(&mut state.resting) {
            shared.changed.notify_one();
        }
    }
    Poll::Ready(Ok(length))
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let shared = match &mut self.inner {
            Inner::Plain(stream) => return Pin::new(stream).poll_read(context, into),
            Inner::Batcp(shared) => shared,
        };
        let read = |receiver: &mut Reassembly| receiver.read(into.initialize_unfilled());
        if let Some(length) = ready!(poll_take(shared, context, read))? {
            into.advance(length);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let shared = match &mut self.inner {
            Inner::Plain(stream) => return Pin::new(stream).poll_write(context, from),
            Inner::Batcp(shared) => shared,
        };
        if from.is_empty() {
            return Poll::Ready(Ok(0));
        }
        poll_give(shared, context, |sender| sender.write(from))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(context),
            Inner::Batcp(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = match &mut self.inner {
            Inner::Plain(stream) => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                return Poll::Ready(SockRef::from(&*stream).set_linger(None));
            }
            Inner::Batcp(shared) => shared,
        };
        let mut state = shared.state();
        if state.sender.is_finished() {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = error(&state) {
            return Poll::Ready(Err(error));
        }
        if !state.sender.is_closed() {
            state.sender.close();
            state.wake_writers();
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Inner::Batcp(shared) = &self.inner else { return };
        let mut state = shared.state();
        state.dropped = Some(Instant::now());
        (state.reader, state.writer) = (None, None);
        if !state.sender.is_closed() || state.receiver.readable() > 0 {
            state.fail(io::ErrorKind::ConnectionAborted, "the program let go of the connection".into());
        }
        if state.error.is_some() {
            // Only the reset is still to be sent, and there is no reader.
            (state.sender, state.receiver) = (Sender::new(0, 0), Reassembly::new(0));
        }
        drop(state);
        shared.changed.notify_one();
    }
}
