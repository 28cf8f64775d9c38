// SPDX-License-Identifier: Apache-2.0
//! The connections that clients open: how many there may be, and who they are.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use apswitch_dataplane::client_log;
use apswitch_dataplane::peer::{self, Allowed, Peer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::PING_TIMEOUT;
use super::tls::Secured;

/// Connections at once; more are closed as soon as they are opened.
const MAX_CONNECTIONS: usize = 256;

/// Bytes that are taken from a connection before it is others' turn.
const TURN: usize = 32 << 10;

enum Transport {
    Clear(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

/// A connection and its place among those that there may be.
pub struct Connection {
    transport: Transport,
    peer: Peer,
    /// Bytes taken in this turn.
    taken: usize,
    /// Time at which the client last sent something, and how it ended the connection.
    heard: Instant,
    ended: Option<String>,
    _place: OwnedSemaphorePermit,
}

/// The connections that clients open.
pub struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    secured: Option<Arc<Secured>>,
    /// Rights by the names of certificates.
    allowed: Arc<[Allowed]>,
    handshakes: JoinSet<Option<Connection>>,
    /// All places are taken, and that was said.
    is_full: bool,
}

impl Connections {
    pub fn new(listener: TcpListener, secured: Option<Arc<Secured>>, allowed: &[Allowed]) -> Connections {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Connections { listener, places, secured, allowed: allowed.into(), handshakes: JoinSet::new(), is_full: false }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A connection in the clear is answered; one that needs a handshake comes when that is done.
    fn accepted(&mut self, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!(
                    "{MAX_CONNECTIONS} connections are open: that of {address} and the next ones are closed"
                );
            }
            return None;
        };
        self.is_full = false;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{address}: {error}");
        }
        let allowed = self.allowed.clone();
        let connection = move |transport, names: Vec<String>| {
            let rights = Arc::new(peer::rights(&allowed, &names));
            let peer = Peer { address, names: names.into(), rights, under_way: Arc::default() };
            client_log::log(Some(&peer), format_args!("connected"));
            Connection { transport, peer, taken: 0, heard: Instant::now(), ended: None, _place: place }
        };
        let Some(secured) = self.secured.clone() else {
            return Some(connection(Transport::Clear(stream), Vec::new()));
        };
        self.handshakes.spawn(async move {
            let (stream, names) = secured.accept(stream, address).await?;
            Some(connection(Transport::Secured(Box::new(stream)), names))
        });
        None
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let silence = self.heard.elapsed();
        let reason = match self.ended.take() {
            Some(reason) => reason,
            None if silence >= PING_TIMEOUT => format!("no answer for {} s", silence.as_secs()),
            None => "closed by the switch".into(),
        };
        client_log::log(Some(&self.peer), format_args!("disconnected: {reason}"));
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.listener.poll_accept(context) {
                Poll::Ready(Ok((stream, address))) => {
                    if let Some(connection) = self.accepted(stream, address) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                    continue;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {}
            }
            match self.handshakes.poll_join_next(context) {
                Poll::Ready(Some(Ok(Some(connection)))) => return Poll::Ready(Some(Ok(connection))),
                Poll::Ready(Some(_)) => {}
                // New ones wake us.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken >= TURN {
            self.taken = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Secured(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => self.heard = Instant::now(),
            Poll::Ready(Ok(())) if buffer.remaining() > 0 => self.ended = Some("closed by the client".into()),
            Poll::Ready(Err(error)) => self.ended = Some(error.to_string()),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        // Nothing is left, and the turn ends of itself.
        self.taken = if read.is_pending() { 0 } else { self.taken + buffer.filled().len() - before };
        read
    }
}

/// Not vectored: HTTP/2 then copies short answers together with their trailers, which is one system call in place of
/// two.
impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Secured(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_flush(context),
            Transport::Secured(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Secured(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
