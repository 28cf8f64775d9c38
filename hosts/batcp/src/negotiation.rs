// SPDX-License-Identifier: Apache-2.0
//! How two ends learn that both speak BATCP (paper 003, section 3.1).

use std::io;
use std::os::fd::BorrowedFd;

/// What the TCP option of kind 254 says in its six digits (paper 003, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the interface, 0..=99: the first two digits. On a connection's first SYN: how many interfaces it may use
    /// (section 3.7).
    pub interface: u8,
    /// Connection id, 0..=9999: the last four digits, random. It tells connections apart, it proves nothing.
    pub connection: u16,
}

/// Tells a peer that this end speaks BATCP, and whether the peer does. Called from async code: it must not block.
pub trait Negotiation: Send + Sync {
    /// Before connect(2): `socket` is bound to its interface; its SYN is to carry `mark`.
    fn prepare(&self, socket: BorrowedFd<'_>, mark: Mark) -> io::Result<()>;

    /// After connect(2): whether the peer's SYN-ACK said that it speaks BATCP.
    fn answered(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;

    /// At the listener, before its sockets listen: their SYN-ACKs are to answer the SYNs that carry a mark.
    fn listen(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// At the listener, after accept(2): whether the peer's SYN said that it speaks BATCP. If it
    /// did not, the connection is a plain one.
    fn received(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;
}

/// Both ends are known to speak BATCP: nothing is told on the SYN, and a plain TCP client is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct InBand;

impl Negotiation for InBand {
    fn prepare(&self, _socket: BorrowedFd<'_>, _mark: Mark) -> io::Result<()> {
        Ok(())
    }

    fn answered(&self, _socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(true)
    }

    fn listen(&self, _socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn received(&self, _socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(true)
    }
}
