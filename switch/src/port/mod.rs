// SPDX-License-Identifier: Apache-2.0
//! Ports: frames in and out of an interface, in batches.

mod memory;
mod packet;
mod pcap;
mod stats;

use std::io;
use std::os::fd::BorrowedFd;

pub use self::memory::{MemoryEnd, MemoryPort};
pub use self::packet::{Interfaces, PacketPort, mtu};
pub use self::pcap::{Capture, FilePort, read_pcap};
pub use self::stats::{PortCells, PortStats, QueueStats, count, quantile};
use crate::link::LinkConfig;
pub use crate::machine::frame::{Packet, Pool};

pub type PortNumber = u16;

/// Frames that a port moves with one system call, at most.
pub const BATCH: usize = 64;

/// A port and the interface behind it.
#[derive(Clone, Debug)]
pub struct PortConfig {
    pub number: PortNumber,
    pub interface: String,
    pub link: Option<LinkConfig>,
}

/// Where a port's frames come from and go to. Nothing here ever blocks.
pub trait PortIo: Send {
    /// Receives into the packets from the first on; the number received.
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received>;

    /// Sends the packets from the first on; the number sent.
    fn send(&mut self, packets: &[Box<Packet>]) -> io::Result<usize>;

    /// Becomes readable when there is something to receive.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Nothing is received before there is a program for it; other ports drop it.
    fn waits_for_program(&self) -> bool {
        false
    }

    /// Frames that the kernel has dropped since the last call because nobody received them.
    fn missed(&mut self) -> u64 {
        0
    }
}

/// What a call to [`PortIo::receive`] got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets that hold a frame now.
    pub packets: usize,
    /// Frames among them that were longer than a buffer and are empty.
    pub too_long: usize,
}
