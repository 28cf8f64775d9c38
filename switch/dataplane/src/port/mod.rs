// SPDX-License-Identifier: Apache-2.0
//! Ports: frames in and out of an interface, in batches.

mod checksum;
mod discipline;
mod memory;
mod packet;
mod pcap;
mod pcap_format;
mod pipe;

use std::io;
use std::os::fd::BorrowedFd;

use apswitch_core::link::LinkConfig;
use apswitch_core::port::PortNumber;
use apswitch_core::state::frame::Packet;

pub use self::discipline::Discipline;
pub use self::memory::{MemoryEnd, MemoryPort};
pub use self::packet::{Interfaces, PacketPort, mtu};
pub use self::pcap::{Capture, FilePort, read_pcap};

/// Frames that a port moves with one system call, at most.
pub const BATCH: usize = 64;
/// Attempts to send when the interface is busy.
const SEND_ATTEMPTS: usize = 3;

/// A port and the interface behind it.
#[derive(Clone, Debug)]
pub struct PortConfig {
    pub number: PortNumber,
    pub interface: String,
    pub link: Option<LinkConfig>,
}

/// I/O of a port's frames. Nothing here ever blocks.
pub trait PortIo: Send {
    /// Receives into the packets from the first on; the number received.
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received>;

    /// Sends the packets from the first on; the number sent.
    fn send(&mut self, packets: &mut [Box<Packet>]) -> io::Result<usize>;

    /// Becomes readable when there is something to receive.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Receives nothing before there is a program for it; other ports drop frames.
    fn waits_for_program(&self) -> bool {
        false
    }

    /// Frames that the kernel has dropped since the last call because nobody received them.
    fn missed(&mut self) -> u64 {
        0
    }
}

/// Result of a call to [`PortIo::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets that hold a frame now.
    pub packets: usize,
    /// Frames among them that were longer than a buffer and are empty.
    pub too_long: usize,
}

impl Received {
    /// One more, in this packet.
    fn add(&mut self, packet: &mut Packet, frame: &[u8]) {
        if !packet.frame.set(frame) {
            packet.frame.received(0);
            self.too_long += 1;
        }
        self.packets += 1;
    }
}

/// Sends the packets as far as the port can; `done` is shown each run of them that [`PortIo::send`] took. The number
/// that it did not take. `interface` is for the log.
pub fn send_all(
    io: &mut dyn PortIo,
    interface: &str,
    packets: &mut [Box<Packet>],
    mut done: impl FnMut(&[Box<Packet>]),
) -> usize {
    let (mut at, mut attempts, mut refused) = (0, 0, 0);
    while at < packets.len() {
        match io.send(&mut packets[at..]) {
            Ok(number) => {
                done(&packets[at..at + number]);
                at += number;
                attempts = 0;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if is_busy(&e) && attempts < SEND_ATTEMPTS => attempts += 1,
            // This one cannot be sent, such as one longer than the MTU.
            Err(e) => {
                tracing::debug!("{interface}: {e}");
                refused += 1;
                at += 1;
            }
        }
    }
    refused
}

/// Bytes of all frames.
pub fn bytes_of(packets: &[Box<Packet>]) -> u64 {
    packets.iter().map(|packet| packet.frame.len() as u64).sum()
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}
