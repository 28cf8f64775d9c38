// SPDX-License-Identifier: Apache-2.0
//! Socket of a subflow, and the kernel's measures of its path.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use hosts_base::tcp;

use super::seal::{MESSAGE, OVERHEAD, Seal};
use super::uplink::Uplink;

/// Path of a subflow as the kernel measures it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub rtt: Duration,
    pub rtt_variation: Duration,
    pub min_rtt: Duration,
    /// Congestion window in bytes.
    pub window: f64,
    /// Time since the last segment from the peer's kernel.
    pub silence: Duration,
    /// Bytes that TCP has sent, and of these again.
    pub sent: u64,
    pub retransmitted: u64,
}

/// Socket of a subflow, shared by its tasks and the connection's bookkeeping.
pub struct Link {
    pub stream: TcpStream,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Interval of keepalive probes to an idle peer.
    pub keepalive: Duration,
    /// Notified when there is something to write; the idle writer waits for it.
    pub ready: Notify,
    /// Keys that frames are sealed with.
    pub seal: Option<Seal>,
    /// Limits of the interface; none at the end that accepts.
    pub uplink: Arc<Uplink>,
    /// Bytes given to the kernel, the hello among them.
    written: AtomicU64,
}

impl Link {
    /// Wrap a connected socket on which `hello` octets were written. `timeout`: of the connection.
    pub fn new(
        stream: TcpStream,
        hello: usize,
        seal: Option<Seal>,
        uplink: Arc<Uplink>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let hello = hello + seal.as_ref().map_or(0, |_| MESSAGE);
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = (timeout / 4).max(Duration::from_secs(1));
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(keepalive).with_interval(keepalive).with_retries(3))?;
        socket.set_tcp_user_timeout(Some(timeout))?;
        let (ready, written) = (Notify::new(), AtomicU64::new(hello as u64));
        Ok(Self { stream, local, peer, keepalive, ready, seal, uplink, written })
    }

    fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Octets that a frame becomes longer on this subflow.
    pub fn overhead(&self) -> usize {
        self.seal.as_ref().map_or(0, |_| OVERHEAD)
    }

    /// Return the octets written to the kernel, the hello included.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Bytes that the peer's kernel has acknowledged.
    pub fn delivered(&self) -> u64 {
        let written = self.written();
        let mut queued: libc::c_int = 0;
        // SAFETY: the descriptor is open and SIOCOUTQ (TIOCOUTQ) writes one int.
        let done = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &mut queued) };
        if done == 0 { written.saturating_sub(queued.max(0) as u64) } else { 0 }
    }

    /// TCP_INFO of the socket.
    pub fn path(&self) -> Path {
        let Ok(info) = tcp::info(&self.stream) else { return Path::default() };
        let micros = |value: u32| Duration::from_micros(value.into());
        let rtt = micros(info.tcpi_rtt);
        Path {
            rtt,
            rtt_variation: micros(info.tcpi_rttvar),
            min_rtt: if info.tcpi_min_rtt == u32::MAX { rtt } else { micros(info.tcpi_min_rtt) },
            window: f64::from(info.tcpi_snd_cwnd) * f64::from(info.tcpi_snd_mss),
            silence: Duration::from_millis(info.tcpi_last_data_recv.min(info.tcpi_last_ack_recv).into()),
            sent: info.tcpi_bytes_sent,
            retransmitted: info.tcpi_bytes_retrans,
        }
    }

    /// Bytes that the kernel takes without having sent them: what waits there can no longer go elsewhere.
    pub fn limit_unsent(&self, bytes: u32) {
        // An error leaves a longer queue, nothing worse.
        let _ = SockRef::from(&self.stream).set_tcp_notsent_lowat(bytes);
    }

    /// Make the socket discard unsent bytes when it closes.
    pub fn discard(&self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Wait until the kernel's unsent queue is short. tokio remembers that a socket was writable until a write fails,
    /// but here nothing is ready to be written: poll(2) checks, and arms the next event.
    pub async fn writable(&self) -> io::Result<()> {
        loop {
            let _ = self.stream.try_io(Interest::WRITABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: one pollfd is given, and it lives here.
            if unsafe { libc::poll(&mut poll, 1, 0) } != 0 {
                return Ok(());
            }
            self.stream.writable().await?;
        }
    }

    /// Writes all of `pieces`, none of which is empty. Errors: the subflow is dead.
    pub async fn write_all(&self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        while !pieces.is_empty() {
            // Not by tokio: it does not know that the socket is writable, see `writable`.
            match SockRef::from(&self.stream).send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL) {
                Ok(length) => {
                    IoSlice::advance_slices(&mut pieces, length);
                    self.written.fetch_add(length as u64, Ordering::Release);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
