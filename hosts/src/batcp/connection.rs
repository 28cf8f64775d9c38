// SPDX-License-Identifier: Apache-2.0
//! The byte stream that programs see.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rand::RngExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{Interface, Mark, Options};

/// One connection over several interfaces, or a plain TCP connection to a peer that does not speak BATCP.
///
/// Read errors: `ConnectionReset` (the peer reset it), `TimedOut` (the peer vanished), `InvalidData` (the peer broke the protocol).
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self { stream }
    }

    /// Whether the peer did not answer the option, so that this is plain TCP (section 3.1).
    pub fn is_plain(&self) -> bool {
        true
    }

    /// The peer's address of the first subflow.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// This end's address of the first subflow.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

/// Opens a connection to a peer (section 3.1): the first subflow on the first interface that gets through, wired ones first,
/// the others once the peer has answered.
///
/// `peers`: addresses of the one peer; interface i tries peer i first, then the others. `interfaces`: empty means all that
/// are up. Errors: no interface reaches the peer.
pub async fn connect(peers: &[SocketAddr], interfaces: &[Interface], options: &Options) -> io::Result<Connection> {
    let (peer, interface) = (peers[0], &interfaces[0]);
    let socket = interface.socket(peer)?;
    options
        .negotiation
        .prepare(socket.as_fd(), Mark { interface: 0, connection: rand::rng().random_range(0..10_000) })?;
    let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
    let stream = socket.connect(peer).await?;
    let _ = options.negotiation.answered(stream.as_fd())?;
    Ok(Connection::plain(stream))
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
