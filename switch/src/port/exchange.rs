// SPDX-License-Identifier: Apache-2.0
//! Packets from one thread to another without locks, memory or copies: for every packet that goes one way another one
//! comes back at once, so there are as many on either side, always, and room for all.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::state::frame::{Packet, Pool};

/// The end that gives packets and gets free ones back.
pub struct Giver {
    /// The one that came back last is the last, and used first: the cache knows it.
    pub free: Vec<Box<Packet>>,
    given: Producer<Box<Packet>>,
    back: Consumer<Box<Packet>>,
}

/// The end that takes packets for free ones.
pub struct Taker {
    given: Consumer<Box<Packet>>,
    back: Producer<Box<Packet>>,
}

/// Both ends; `number` packets, for frames of at most `capacity` bytes, may be on their way.
pub fn exchange(number: usize, capacity: usize) -> (Giver, Taker) {
    let (given, taken) = RingBuffer::new(number);
    let (returned, back) = RingBuffer::new(number);
    let mut pool = Pool::new(capacity, number);
    let free = std::iter::from_fn(|| pool.take()).collect();
    (Giver { free, given, back }, Taker { given: taken, back: returned })
}

impl Giver {
    /// Fetches what has come back.
    pub fn fetch(&mut self) {
        let slots = self.back.slots();
        self.free.extend(self.back.read_chunk(slots).into_iter().flatten());
    }

    /// Gives the free packets from this place on, of which the first `number` hold a frame now.
    pub fn give(&mut self, from: usize, number: usize) {
        // There is room: there are no more packets than slots.
        if let Ok(slots) = self.given.write_chunk_uninit(number) {
            slots.fill_from_iter(self.free.drain(from..from + number));
        }
    }

    /// Gives the packet, and puts a free one into its place; false: all are on their way.
    pub fn swap(&mut self, packet: &mut Box<Packet>) -> bool {
        let Some(free) = self.free.pop() else { return false };
        // As above.
        self.given.push(mem::replace(packet, free)).is_ok()
    }
}

impl Taker {
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Takes packets in exchange for these, from the first on; the number taken.
    pub fn take(&mut self, packets: &mut [Box<Packet>]) -> usize {
        let number = self.given.slots().min(packets.len());
        let taken = self.given.read_chunk(number).into_iter().flatten();
        let free = packets.iter_mut().zip(taken).map(|(packet, taken)| mem::replace(packet, taken));
        // There is room, as in `give`.
        if let Ok(slots) = self.back.write_chunk_uninit(number) {
            slots.fill_from_iter(free);
        }
        number
    }
}

/// Wakes a thread that waits for something, and costs no system call while it does not.
///
/// Who waits: [`Signal::arm`], then look whether there is something already, then sleep until the descriptor is
/// readable. Who brings something: bring it, then [`Signal::raise`]. No wake-up is lost: both swap one flag, so one of
/// them is first. If `raise` is, `arm` sees its swap and all that was done before it, and the look that follows finds what
/// was brought. If `arm` is, the first `raise` after it finds the flag down and writes to the descriptor, which stays
/// readable until it is read; and whoever reads it arms again and looks before the next sleep. (The flag is only ever
/// swapped: a plain store would hide from the next `arm` what the `raise` before it has brought.)
pub struct Signal {
    raised: AtomicBool,
    event: Arc<EventFd>,
}

impl Signal {
    /// Not armed.
    pub fn new(event: &Arc<EventFd>) -> Signal {
        Signal { raised: AtomicBool::new(true), event: event.clone() }
    }

    /// A descriptor that signals may share.
    pub fn event() -> Result<Arc<EventFd>, Errno> {
        Ok(Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    pub fn arm(&self) {
        self.raised.swap(false, AcqRel);
    }

    /// Nobody need be woken until it is armed again.
    pub fn disarm(&self) {
        self.raised.swap(true, AcqRel);
    }

    pub fn raise(&self) {
        if !self.raised.swap(true, AcqRel) {
            self.wake();
        }
    }

    /// Makes the descriptor readable, whether it is armed or not.
    pub fn wake(&self) {
        // Fails only when it is readable already, 2^64 times.
        let _ = self.event.write(1);
    }

    /// Until it is raised again the descriptor is not readable.
    pub fn read(&self) {
        // Fails only when nothing was written.
        let _ = self.event.read();
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    const LONG: u16 = 20_000;

    /// Sleeps as whoever waits for a signal does, unless `found` finds something.
    fn wait(signal: &Signal, found: impl FnOnce() -> bool) {
        signal.arm();
        if found() {
            return;
        }
        let mut fds = [PollFd::new(signal.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(LONG)), Ok(1), "a wake-up was lost");
        signal.read();
    }

    fn sleep_now_and_then(random: &mut fastrand::Rng) {
        match random.u32(..4000) {
            0..2 => thread::sleep(Duration::from_micros(random.u64(..100))),
            2..50 => thread::yield_now(),
            _ => {}
        }
    }

    #[test]
    fn a_million_packets_arrive_in_order_and_nobody_sleeps_on() {
        const PACKETS: u64 = 1_000_000;
        let (mut giver, mut taker) = exchange(16, 8);
        let signal = || Arc::new(Signal::new(&Signal::event().unwrap()));
        let (given, returned) = (signal(), signal());
        let (to_taker, to_giver) = (given.clone(), returned.clone());
        let other = thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            for number in 0..PACKETS {
                while giver.free.is_empty() {
                    giver.fetch();
                    if giver.free.is_empty() {
                        wait(&to_giver, || {
                            giver.fetch();
                            !giver.free.is_empty()
                        });
                    }
                }
                let last = giver.free.len() - 1;
                giver.free[last].frame.set(&number.to_le_bytes());
                giver.give(last, 1);
                to_taker.raise();
                sleep_now_and_then(&mut random);
            }
            giver
        });
        let mut pool = Pool::new(8, 5);
        let mut packets: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let mut random = fastrand::Rng::with_seed(2);
        let mut next = 0u64;
        while next < PACKETS {
            let number = taker.take(&mut packets);
            for packet in &packets[..number] {
                assert_eq!(packet.frame.bytes(), next.to_le_bytes());
                next += 1;
            }
            if number > 0 {
                returned.raise();
                sleep_now_and_then(&mut random);
            } else {
                wait(&given, || !taker.is_empty());
            }
        }
        let mut giver = other.join().unwrap();
        giver.fetch();
        assert_eq!((giver.free.len(), packets.len(), taker.is_empty()), (16, 5, true));
    }

    #[test]
    fn no_more_are_on_their_way_than_there_is_room_for() {
        let (mut giver, mut taker) = exchange(3, 8);
        let mut pool = Pool::new(8, 5);
        let mut packets: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        for (number, packet) in packets.iter_mut().enumerate() {
            packet.frame.set(&[number as u8]);
            assert_eq!(giver.swap(packet), number < 3);
        }
        assert_eq!(taker.take(&mut packets[..2]), 2);
        assert_eq!(
            packets.iter().map(|packet| packet.frame.bytes()).collect::<Vec<_>>(),
            [&[0u8][..], &[1], &[], &[3], &[4]]
        );
        // What came back is room again.
        assert!(!giver.swap(&mut packets[3]));
        giver.fetch();
        assert!(giver.swap(&mut packets[3]) && giver.swap(&mut packets[4]));
        assert_eq!(taker.take(&mut packets), 3);
        assert_eq!(packets[..3].iter().map(|packet| packet.frame.bytes()[0]).collect::<Vec<_>>(), [2, 3, 4]);
    }
}
