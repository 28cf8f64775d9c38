// SPDX-License-Identifier: Apache-2.0
//! Negotiation of BATCP between two ends (paper 003, section 3.1).

use std::io;
use std::os::fd::BorrowedFd;

use super::Counts;

/// Content of the TCP option of kind 254 in its six digits (paper 003, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the interface, 0..=99: the first two digits. On a connection's first SYN: the number of interfaces
    /// that it may use (section 3.7).
    pub interface: u8,
    /// Connection id, 0..=9999: the last four digits, random. It distinguishes connections and proves nothing.
    pub connection: u16,
}

/// Announces BATCP to a peer, and detects if the peer speaks it. Called from async code: it must not block.
pub trait Negotiation: Send + Sync {
    /// Prepare `socket`, bound to its interface, before connect(2): its SYN is to carry `mark`.
    fn prepare(&self, socket: BorrowedFd<'_>, mark: Mark) -> io::Result<()>;

    /// Return true if the peer's SYN-ACK announced BATCP; called after connect(2).
    fn answered(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;

    /// Prepare a listening socket before listen(2): its SYN-ACKs are to answer the SYNs that carry a mark.
    fn listen(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Return true if the peer's SYN announced BATCP; called after accept(2). If it did not, the connection is a plain
    /// one.
    fn received(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;

    /// Return the counters of the TCP option, if it uses that.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// Negotiation of ends that are known to speak BATCP: the SYN announces nothing, and a plain TCP client is rejected.
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
