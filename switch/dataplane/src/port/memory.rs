// SPDX-License-Identifier: Apache-2.0
//! Ports without an interface, for tests and benchmarks: the other end is in this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{PortIo, Received};
use apswitch_core::state::frame::Packet;

pub struct MemoryPort {
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
    signal: Arc<EventFd>,
}

/// The far end of a [`MemoryPort`].
pub struct MemoryEnd {
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
    signal: Arc<EventFd>,
}

impl MemoryPort {
    pub fn pair() -> io::Result<(MemoryPort, MemoryEnd)> {
        let signal = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let (to_port, from_end) = channel();
        let (to_end, from_port) = channel();
        let port = MemoryPort { incoming: from_end, outgoing: to_end, signal: signal.clone() };
        Ok((port, MemoryEnd { incoming: from_port, outgoing: to_port, signal }))
    }
}

impl PortIo for MemoryPort {
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let mut received = Received::default();
        // Consumed before the frames: what comes after this signals again.
        let _ = self.signal.read();
        for packet in packets.iter_mut() {
            match self.incoming.try_recv() {
                Ok(frame) => {
                    if !packet.frame.set(&frame) {
                        packet.frame.received(0);
                        received.too_long += 1;
                    }
                    received.packets += 1;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(received),
            }
        }
        // There may be more.
        self.signal.write(1)?;
        Ok(received)
    }

    fn send(&mut self, packets: &mut [Box<Packet>]) -> io::Result<usize> {
        for packet in packets.iter() {
            if self.outgoing.send(packet.frame.bytes().to_vec()).is_err() {
                return Err(io::ErrorKind::NotConnected.into());
            }
        }
        Ok(packets.len())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl MemoryEnd {
    /// False: the port is gone.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.outgoing.send(frame.to_vec()).is_ok() && self.signal.write(1).is_ok()
    }

    /// The next frame that the port sent, `None` if there is none within the time.
    pub fn receive(&self, timeout: Duration) -> Option<Vec<u8>> {
        self.incoming.recv_timeout(timeout).ok()
    }
}
