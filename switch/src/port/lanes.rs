// SPDX-License-Identifier: Apache-2.0
//! A port on a network interface that threads of its own receive from and send to, so that the packet thread is left
//! with the program alone.
//!
//! Each thread has a lane: a socket of the interface, and packets on their way to and from the packet thread. The kernel
//! gives all frames of a flow to the same lane, by a hash of the flow's addresses and ports, the same for both of its
//! directions; a lane keeps their order, the packet thread takes each lane's in turn and in order, and a packet leaves by
//! the lane of its port that has the number of the one that it came by. So each flow keeps its order. What is promised
//! no longer is the order of two flows on different lanes, by the few microseconds that a lane holds packets; except on
//! ports with a link model, all of whose packets leave by lane 0, in the order in which the queues sent them. A fragment
//! of an IP datagram has no ports to hash: fragments are a flow of their own beside the whole packets of theirs.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Acquire, Ordering::Release};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeSpec;

use super::exchange::{Giver, Signal, Taker, exchange};
use super::{BATCH, PacketPort, PortCells, PortIo, Received, bytes_of, count_shared, send_all};
use crate::state::frame::{Packet, Pool};

/// Packets of a lane that may be on their way to the packet thread; the others wait in the kernel.
const RECEIVING: usize = 256;
/// Packets that may be on their way from it; there is nowhere else to wait, so: what it gives in a millisecond or two.
const SENDING: usize = 1024;

pub struct LanedPort {
    lanes: Vec<Lane>,
    /// Raised by all lanes when they have received something, or can no longer.
    arrived: Arc<Signal>,
    /// The lane that is asked first.
    turn: usize,
}

/// The packet thread's side of a lane.
struct Lane {
    received: Taker,
    outgoing: Giver,
    shared: Arc<Shared>,
    /// For the kernel's count of drops.
    socket: Option<PacketPort>,
    thread: Option<JoinHandle<()>>,
}

/// What both threads know of a lane.
struct Shared {
    /// There is something to send.
    work: Signal,
    /// There is memory again to receive into; of the same descriptor.
    memory: Signal,
    stop: AtomicBool,
    /// The error number of what went wrong when receiving.
    error: AtomicI32,
}

impl LanedPort {
    /// Opens the interface, for frames of at most `longest_frame` bytes, and starts its threads; `cells` count what is sent.
    pub fn open(interface: &str, lanes: usize, longest_frame: usize, cells: &Arc<PortCells>) -> io::Result<LanedPort> {
        let arrived = Arc::new(Signal::new(&Signal::event()?));
        arrived.arm();
        let mut port = LanedPort { lanes: Vec::new(), arrived: arrived.clone(), turn: 0 };
        for (number, io) in PacketPort::open_group(interface, lanes)?.into_iter().enumerate() {
            let event = Signal::event()?;
            let shared = Arc::new(Shared {
                work: Signal::new(&event),
                memory: Signal::new(&event),
                stop: AtomicBool::new(false),
                error: AtomicI32::new(0),
            });
            let (receiving, received) = exchange(RECEIVING, longest_frame);
            let (outgoing, sending) = exchange(SENDING, longest_frame);
            let mut pool = Pool::new(longest_frame, BATCH);
            let socket = Some(io.try_clone()?);
            let worker = Worker {
                io,
                interface: interface.to_string(),
                receiving,
                sending,
                batch: std::iter::from_fn(|| pool.take()).collect(),
                shared: shared.clone(),
                arrived: arrived.clone(),
                cells: cells.clone(),
            };
            let thread = thread::Builder::new().name(format!("io-{interface}-{number}"));
            let thread = Some(thread.spawn(move || worker.run())?);
            port.lanes.push(Lane { received, outgoing, shared, socket, thread });
        }
        Ok(port)
    }

    /// What the lanes hold, the same from each over time.
    fn take(&mut self, packets: &mut [Box<Packet>]) -> Received {
        let mut received = Received::default();
        let first = self.turn;
        self.turn = (first + 1) % self.lanes.len();
        for index in (first..self.lanes.len()).chain(0..first) {
            let lane = &mut self.lanes[index];
            let room = &mut packets[received.packets..];
            let number = lane.received.take(room);
            if number > 0 {
                lane.shared.memory.raise();
            }
            for packet in &mut room[..number] {
                packet.state.lane = index as u8;
                received.too_long += packet.frame.is_empty() as usize;
            }
            received.packets += number;
        }
        received
    }

    fn error(&self) -> Option<io::Error> {
        let number = self.lanes.iter().map(|lane| lane.shared.error.load(Acquire)).find(|number| *number != 0)?;
        Some(io::Error::from_raw_os_error(number))
    }
}

impl PortIo for LanedPort {
    fn receive(&mut self, packets: &mut [Box<Packet>]) -> io::Result<Received> {
        let mut received = self.take(packets);
        if received.packets == packets.len() {
            return Ok(received);
        }
        self.arrived.read();
        self.arrived.arm();
        let more = self.take(&mut packets[received.packets..]);
        received.packets += more.packets;
        received.too_long += more.too_long;
        match self.error() {
            Some(error) if received.packets == 0 => return Err(error),
            // There may be more, for which nobody raises the signal again.
            error if error.is_some() || received.packets == packets.len() => self.arrived.raise(),
            _ => {}
        }
        Ok(received)
    }

    fn send(&mut self, packets: &mut [Box<Packet>]) -> io::Result<usize> {
        self.lanes.iter_mut().for_each(|lane| lane.outgoing.fetch());
        let (mut sent, mut given) = (0, 0u32);
        for packet in packets.iter_mut() {
            let index = packet.state.lane as usize % self.lanes.len();
            if !self.lanes[index].outgoing.swap(packet) {
                break;
            }
            sent += 1;
            given |= 1 << index;
        }
        for (_, lane) in self.lanes.iter().enumerate().filter(|(index, _)| given & 1 << index != 0) {
            lane.shared.work.raise();
        }
        if sent == 0 { Err(Errno::EAGAIN.into()) } else { Ok(sent) }
    }

    fn takes_over(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.arrived.fd()
    }

    fn missed(&mut self) -> u64 {
        self.lanes.iter_mut().filter_map(|lane| lane.socket.as_mut()).map(|socket| socket.missed()).sum()
    }
}

impl Drop for LanedPort {
    /// Ends the threads, which first send what they were given.
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            // The threads close the sockets, all at the same time: the kernel takes a while for each.
            lane.socket = None;
            lane.shared.stop.store(true, Release);
            lane.shared.work.wake();
        }
        for thread in self.lanes.iter_mut().filter_map(|lane| lane.thread.take()) {
            if thread.join().is_err() {
                tracing::error!("an I/O thread has panicked");
            }
        }
    }
}

/// A lane's thread.
struct Worker {
    io: PacketPort,
    interface: String,
    receiving: Giver,
    sending: Taker,
    /// What is being sent; before and after, memory.
    batch: Vec<Box<Packet>>,
    shared: Arc<Shared>,
    arrived: Arc<Signal>,
    cells: Arc<PortCells>,
}

/// What a lane knows of its socket.
#[derive(Clone, Copy, PartialEq)]
enum Socket {
    Empty,
    Readable,
    /// Nothing is received any more; what is to be sent is tried, and counted.
    Failed,
}

impl Worker {
    fn run(mut self) {
        // As the packet thread's.
        if let Err(e) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("timer slack: {e}");
        }
        let mut socket = Socket::Readable;
        loop {
            let stopping = self.shared.stop.load(Acquire);
            if socket == Socket::Readable && !stopping {
                socket = self.receive();
            }
            let sent = self.send();
            if stopping && !sent {
                return;
            }
            if !stopping && (socket != Socket::Readable || self.receiving.free.is_empty()) {
                socket = self.wait(socket);
            }
        }
    }

    /// One batch from the socket to the packet thread.
    fn receive(&mut self) -> Socket {
        self.receiving.fetch();
        let from = self.receiving.free.len().saturating_sub(BATCH);
        let space = &mut self.receiving.free[from..];
        let asked = space.len();
        match self.io.receive(space) {
            Ok(got) => {
                if got.packets > 0 {
                    self.receiving.give(from, got.packets);
                    self.arrived.raise();
                }
                if got.packets == asked { Socket::Readable } else { Socket::Empty }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Socket::Readable,
            Err(e) => {
                self.shared.error.store(e.raw_os_error().unwrap_or(libc::EIO), Release);
                self.arrived.raise();
                Socket::Failed
            }
        }
    }

    /// One batch from the packet thread to the socket; false: there was none.
    fn send(&mut self) -> bool {
        let number = self.sending.take(&mut self.batch);
        let cells = &self.cells;
        let refused = send_all(&mut self.io, &self.interface, &mut self.batch[..number], |sent| {
            count_shared(&cells.tx_packets, sent.len() as u64);
            count_shared(&cells.tx_bytes, bytes_of(sent));
        });
        count_shared(&cells.tx_errors, refused as u64);
        number > 0
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self, socket: Socket) -> Socket {
        // Only the packet thread brings memory back; until then the frames are the kernel's to keep, or to drop.
        let starved = socket == Socket::Readable;
        self.shared.work.arm();
        if starved {
            self.shared.memory.arm();
            self.receiving.fetch();
        }
        let busy = !self.sending.is_empty() || starved && !self.receiving.free.is_empty();
        let mut fds = [self.shared.work.fd(), self.io.fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let watched = if socket == Socket::Empty { 2 } else { 1 };
        let timeout = busy.then_some(TimeSpec::from_duration(Duration::ZERO));
        match ppoll(&mut fds[..watched], timeout, None::<SigSet>) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => tracing::error!("ppoll: {e}"),
        }
        let [woken, readable] = fds.map(|fd| fd.any().unwrap_or(true));
        self.shared.work.disarm();
        self.shared.memory.disarm();
        if woken {
            self.shared.work.read();
        }
        if socket == Socket::Empty && readable { Socket::Readable } else { socket }
    }
}
