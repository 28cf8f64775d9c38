// SPDX-License-Identifier: Apache-2.0
//! Relays bytes between a program's TCP connection and a connection over several interfaces, and never makes a stream
//! that was cut off look complete.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

const BUFFER: usize = 128 << 10;

/// Prepare the TCP connection to a program: until `relay` has ended well it is closed by a reset, also if this process
/// is killed (SO_LINGER of 0 s), and a vanished peer is detected within some minutes (keep-alive, RFC 9293, section
/// 3.8.4).
pub fn guard(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(Duration::from_secs(120)).with_interval(Duration::from_secs(30)),
    )
}

/// Relay bytes both ways until both ends have ended their streams; each end's is passed on as it comes. On an error
/// both connections are reset (paper 003, sections 3.2 and 3.3).
pub async fn relay(mut program: TcpStream, mut carrier: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    copy_bidirectional_with_sizes(&mut program, &mut carrier, BUFFER, BUFFER).await?;
    // Both streams are complete: bytes that the kernel still holds are to arrive.
    SockRef::from(&program).set_linger(None)
}
