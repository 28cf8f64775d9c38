// SPDX-License-Identifier: Apache-2.0
//! Waits for connections and brings their subflows together.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use super::{Connection, Options};

/// Accepts connections, from clients that speak BATCP and, where the negotiation can tell, from plain ones.
pub struct Listener {
    listener: TcpListener,
    options: Options,
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
        Ok(Self { listener: TcpListener::from_std(socket.into())?, options })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection. Its subflows are accepted in the background, even while nobody waits here.
    /// Errors: the listening socket is broken. Clients that fail are counted, not reported.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        let (stream, _) = self.listener.accept().await?;
        let _ = self.options.negotiation.received(stream.as_fd())?;
        Ok(Connection::plain(stream))
    }
}
