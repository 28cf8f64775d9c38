// SPDX-License-Identifier: Apache-2.0
//! Ports: frames in and out of an interface, in batches.

mod memory;
mod packet;
mod pcap;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use self::memory::{MemoryEnd, MemoryPort};
pub use self::packet::{PacketPort, interface_flags, mtu};
pub use self::pcap::{Capture, FilePort, read_pcap};
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

/// Counted since the start of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Tail drops of the port's queues.
    pub queue_drops: u64,
    /// Frames lost by the link model.
    pub lost: u64,
    /// Frames that the interface did not take.
    pub tx_errors: u64,
    /// Frames that the kernel dropped because they were not fetched in time, or that were longer than a buffer.
    pub rx_errors: u64,
    /// In the queues now.
    pub queue_packets: u64,
    pub queue_bytes: u64,
}

/// [`PortStats`] as the packet thread writes them.
#[derive(Default, Debug)]
pub struct PortCells {
    pub rx_packets: AtomicU64,
    pub rx_bytes: AtomicU64,
    pub tx_packets: AtomicU64,
    pub tx_bytes: AtomicU64,
    pub queue_drops: AtomicU64,
    pub lost: AtomicU64,
    pub tx_errors: AtomicU64,
    pub rx_errors: AtomicU64,
    pub queue_packets: AtomicU64,
    pub queue_bytes: AtomicU64,
}

impl PortCells {
    pub fn read(&self) -> PortStats {
        PortStats {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            queue_drops: self.queue_drops.load(Relaxed),
            lost: self.lost.load(Relaxed),
            tx_errors: self.tx_errors.load(Relaxed),
            rx_errors: self.rx_errors.load(Relaxed),
            queue_packets: self.queue_packets.load(Relaxed),
            queue_bytes: self.queue_bytes.load(Relaxed),
        }
    }
}
