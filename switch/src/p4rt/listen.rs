// SPDX-License-Identifier: Apache-2.0
//! Where the server listens: loopback in the clear, everything else with TLS; and how many connections it takes.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// Connections at once; more are closed as soon as they are opened.
const MOST_CONNECTIONS: usize = 256;
/// A client that does not finish its handshake is not waited for.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// PEM files of the server's certificate and key.
#[derive(Clone, Debug)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Mutual TLS: only clients with a certificate of this authority are let in.
    pub client_ca: Option<PathBuf>,
}

impl Tls {
    /// The error names the option.
    pub fn config(&self) -> Result<ServerTlsConfig, String> {
        let read = |option: &str, path: &Path| {
            std::fs::read(path).map_err(|e| format!("{option} {}: {e}: give a PEM file", path.display()))
        };
        let identity = Identity::from_pem(read("--tls-cert", &self.cert)?, read("--tls-key", &self.key)?);
        let config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
        Ok(match &self.client_ca {
            Some(path) => config.client_ca_root(Certificate::from_pem(read("--tls-client-ca", path)?)),
            None => config,
        })
    }

    /// What is wrong with the files' contents.
    pub fn error(&self, error: &dyn std::error::Error) -> String {
        let mut reason = error;
        while let Some(source) = reason.source() {
            reason = source;
        }
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        let names: Vec<String> = files.into_iter().flatten().map(|path| path.display().to_string()).collect();
        format!(
            "TLS with {}: {reason}: give a certificate, its key and the clients' authority as PEM",
            names.join(", ")
        )
    }
}

/// A connection and its place among those that there may be.
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// The connections that clients open.
pub struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Connections {
    pub fn new(listener: TcpListener) -> Connections {
        Connections { listener, places: Arc::new(Semaphore::new(MOST_CONNECTIONS)) }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let (stream, peer) = match ready!(self.listener.poll_accept(context)) {
                Ok(accepted) => accepted,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                tracing::warn!("{MOST_CONNECTIONS} connections are open: that of {peer} is closed");
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("{peer}: {error}");
            }
            return Poll::Ready(Some(Ok(Connection { stream, _place: place })));
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Not vectored: HTTP/2 then copies short answers together with their trailers, which is one system call in place of two.
impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
