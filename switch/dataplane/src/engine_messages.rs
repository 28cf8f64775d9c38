// SPDX-License-Identifier: Apache-2.0
//! Commands of the control plane to the packet thread, which do not wake it in vain.
//!
//! A packet thread that sleeps carries out everything that was sent meanwhile before it looks at the next packet. What
//! only packets can see is therefore in effect as soon as it is sent, and nobody has to be woken for it. There is a
//! limit to that, since a turn of the packet thread carries out a limited number of changes: [`Sender::leave`] keeps
//! what it leaves within the first turn, and never behind something that was sent to wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{self, TryRecvError};

use apswitch_core::dataplane_ops::Change;
use apswitch_core::link::LinkConfig;
use apswitch_core::machine::Machine;
use apswitch_core::port::PortNumber;
use apswitch_core::store::MovedCounts;
use apswitch_core::tap::Tap;
use apswitch_core::v1model::Port;
use futures_channel::oneshot;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::port::{Capture, PortIo};

/// Changes and packet-outs that are handled before packets are looked at again.
pub const CHANGES_PER_TURN: usize = 128;

/// The I/O side of a port.
pub struct Line {
    /// `None` while the interface is down or gone.
    pub io: Option<Box<dyn PortIo>>,
    pub capture: Option<Capture>,
    /// Set here when the interface fails, seen by whoever opens it again.
    pub failed: Arc<AtomicBool>,
    pub interface: String,
    /// Takes and sends frames.
    pub enabled: bool,
}

/// Place of a packet-out among those that may wait, given back when dropped.
pub struct Place(Arc<AtomicUsize>);

impl Place {
    /// `None`: so many wait already.
    pub fn take(waiting: &Arc<AtomicUsize>, limit: usize) -> Option<Place> {
        let one_more = |waiting| (waiting < limit).then_some(waiting + 1);
        waiting.try_update(Relaxed, Relaxed, one_more).ok()?;
        Some(Place(waiting.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

pub enum Command {
    /// Applied in order; the answer comes when all are: what is left of them, to be freed by who asked.
    Changes {
        changes: Vec<Change>,
        /// No packet comes between them.
        at_once: bool,
        done: oneshot::Sender<Vec<Change>>,
    },
    /// A new program with the changes that it starts with, and the counts that it takes over. The answer is the old
    /// one, to be freed elsewhere.
    Commit {
        machine: Box<Machine>,
        changes: Vec<Change>,
        moved_counts: Vec<MovedCounts>,
        done: oneshot::Sender<Option<Box<Machine>>>,
    },
    /// A frame that enters ingress on the CPU port.
    Inject {
        frame: Vec<u8>,
        place: Place,
    },
    /// The port has an interface again: the one of this flag, as another may have its number by now.
    Open {
        failed: Arc<AtomicBool>,
        io: Box<dyn PortIo>,
    },
    /// A client traces, until the program is replaced. The answer comes when it gets frames.
    Tap {
        tap: Box<Tap>,
        done: oneshot::Sender<()>,
    },
    /// Other link models; all at once. The answer comes when they are in effect.
    Links {
        links: Vec<(PortNumber, LinkConfig)>,
        done: oneshot::Sender<()>,
    },
    /// Enables or disables the port.
    Enable {
        port: PortNumber,
        enabled: bool,
    },
    /// Longer frames are to come: packets have room for so many bytes.
    Grow {
        max_frame_len: usize,
    },
    /// Adds a port, whose number none has.
    AddPort(Box<(Port, Line)>),
    /// Takes the port away; what waits there is dropped. The answer is what is left of it, to be closed elsewhere.
    RemovePort {
        port: PortNumber,
        done: oneshot::Sender<Option<(Port, Line)>>,
    },
    Stop,
}

/// State that both ends share.
#[derive(Default)]
struct Shared {
    /// Changes that may still be left to the packet thread: 0 while it is awake.
    room: AtomicUsize,
    /// Commands that were sent to wake it and that it has not taken.
    waking: AtomicUsize,
}

pub struct Sender {
    commands: mpsc::Sender<(Command, bool)>,
    wake: Arc<EventFd>,
    shared: Arc<Shared>,
}

pub struct Receiver {
    /// With each command whether it was sent to wake.
    commands: mpsc::Receiver<(Command, bool)>,
    /// Readable when there are commands that wake.
    pub wake: Arc<EventFd>,
    shared: Arc<Shared>,
}

pub fn channel() -> Result<(Sender, Receiver), Errno> {
    let (sender, receiver) = mpsc::channel();
    let wake = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
    let shared = Arc::new(Shared::default());
    let receiver = Receiver { commands: receiver, wake: wake.clone(), shared: shared.clone() };
    Ok((Sender { commands: sender, wake, shared }, receiver))
}

impl Sender {
    /// False: the packet thread has ended.
    pub fn send(&self, command: Command) -> bool {
        // Before it is there: see `takes`.
        self.shared.waking.fetch_add(1, SeqCst);
        self.commands.send((command, true)).is_ok() && self.wake()
    }

    /// Sends a command of so many changes that only packets can see. True: it is in effect.
    pub fn leave(&self, command: Command, changes: usize) -> bool {
        if self.shared.room.load(SeqCst) < changes {
            self.send(command);
            return false;
        }
        if self.commands.send((command, false)).is_err() {
            return false;
        }
        let left = self.takes(changes);
        if !left {
            self.wake();
        }
        left
    }

    /// Returns true if what was just sent need not wake the packet thread: it has not begun to look for commands since,
    /// and nothing that wakes can be before this, as that would have been counted.
    fn takes(&self, changes: usize) -> bool {
        let take = |room: usize| room.checked_sub(changes).filter(|_| room > 0);
        self.shared.waking.load(SeqCst) == 0 && self.shared.room.try_update(SeqCst, SeqCst, take).is_ok()
    }

    fn wake(&self) -> bool {
        self.wake.write(1).is_ok()
    }
}

impl Receiver {
    /// The packet thread has carried out what it took, and looks for nothing more before `awake`.
    pub fn asleep(&self) {
        self.shared.room.store(CHANGES_PER_TURN, SeqCst);
    }

    /// The packet thread is awake: it takes commands before packets.
    pub fn awake(&self) {
        self.shared.room.store(0, SeqCst);
    }

    /// The next command; [`Command::Stop`] also when nobody can send one any more.
    pub fn take(&self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok((command, waking)) => {
                if waking {
                    self.shared.waking.fetch_sub(1, SeqCst);
                }
                Some(command)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::Stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;

    #[test]
    fn place_beyond_the_limit_is_given_when_another_is_dropped() {
        let waiting = Arc::default();
        let places = [Place::take(&waiting, 2), Place::take(&waiting, 2)];
        assert!(places.iter().all(Option::is_some) && Place::take(&waiting, 2).is_none());
        drop(places);
        assert!(Place::take(&waiting, 1).is_some());
    }

    fn changes() -> (Command, oneshot::Receiver<Vec<Change>>) {
        let (done, ended) = oneshot::channel();
        (Command::Changes { changes: Vec::new(), at_once: false, done }, ended)
    }

    fn leave(sender: &Sender, number: usize) -> bool {
        sender.leave(changes().0, number)
    }

    #[test]
    fn a_sleeping_thread_is_left_what_fits_into_its_first_turn() {
        let (sender, receiver) = channel().unwrap();
        assert!(!leave(&sender, 1), "it is awake");
        assert!(receiver.wake.read().is_ok() && receiver.take().is_some());
        receiver.asleep();
        assert!(leave(&sender, CHANGES_PER_TURN - 1) && leave(&sender, 1));
        assert!(receiver.wake.read().is_err(), "nobody was woken");
        assert!(!leave(&sender, 1));
        assert!(receiver.wake.read().is_ok());
    }

    #[test]
    fn nothing_is_left_behind_what_wakes() {
        let (sender, receiver) = channel().unwrap();
        receiver.asleep();
        assert!(leave(&sender, 1));
        assert!(sender.send(changes().0));
        assert!(!leave(&sender, 1), "it might wait for a later turn");
        receiver.awake();
        assert_eq!(std::iter::from_fn(|| receiver.take()).count(), 3);
        assert!(!leave(&sender, 1), "it may have looked already");
        assert!(receiver.take().is_some());
        receiver.asleep();
        assert!(leave(&sender, 1));
    }

    #[test]
    fn the_end_of_either_side_is_told() {
        let (sender, receiver) = channel().unwrap();
        receiver.asleep();
        drop(sender);
        assert!(matches!(receiver.take(), Some(Command::Stop)));
        let (sender, receiver) = channel().unwrap();
        receiver.asleep();
        drop(receiver);
        let (command, ended) = changes();
        assert!(!sender.leave(command, 1) && block_on(ended).is_err());
        assert!(!sender.send(Command::Stop));
    }
}
