// SPDX-License-Identifier: Apache-2.0
//! The packet thread: owns the switch and its ports. Nobody else touches them; changes come through a channel and
//! are applied between batches, some at a time, so that they never hold packets up.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apswitch_core::dataplane_ops::{Change, whole};
use apswitch_core::port::{PortNumber, count};
use apswitch_core::state::frame::Packet;
use apswitch_core::store::MovedCounts;
use apswitch_core::throttle::Throttle;
use apswitch_core::v1model::Switch;
use futures_channel::oneshot;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeSpec;

use crate::engine_messages::{CHANGES_PER_TURN, Command, Line, Receiver};
use crate::port::{BATCH, Capture, PortIo, bytes_of, send_all};

/// Interval at which the kernel is asked what it dropped.
const MISSED_INTERVAL_NS: u64 = 100_000_000;
/// Time to wait for memory at most.
const STARVED_INTERVAL_NS: u64 = 1_000_000;

/// The clock of the switch: ns since its start.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Started then, and running.
    Running(Instant),
    /// Stands where somebody sets it: virtual time.
    Set(Arc<AtomicU64>),
}

impl Clock {
    pub fn start() -> Clock {
        Clock::Running(Instant::now())
    }

    #[inline]
    pub fn now(&self) -> u64 {
        match self {
            Clock::Running(start) => start.elapsed().as_nanos() as u64,
            Clock::Set(now) => now.load(Relaxed),
        }
    }

    /// ns since the Unix epoch, which is when virtual time starts.
    pub fn epoch(&self) -> i64 {
        match self {
            Clock::Running(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64),
            Clock::Set(_) => self.now() as i64,
        }
    }
}

/// Writes frames to the capture of the interface, if there is one; it ends with the first error.
fn write_capture(capture: &mut Option<Capture>, interface: &str, sent: bool, packets: &[Box<Packet>]) {
    let Some(files) = capture else { return };
    let file = if sent { &mut files.sent } else { &mut files.received };
    let frames = packets.iter().map(|packet| packet.frame.bytes()).filter(|frame| !frame.is_empty());
    if let Err(e) = file.append(frames) {
        tracing::error!("the capture of {interface} ends: {e}");
        *capture = None;
    }
}

/// Work for a thread of its own, as the kernel may take long for it.
pub enum BlockingTask {
    Close(Box<dyn PortIo>),
    Open {
        interface: String,
        done: oneshot::Sender<io::Result<Box<dyn PortIo>>>,
    },
    /// Answered when all before it is done.
    Notify(oneshot::Sender<()>),
    End,
}

pub struct Engine {
    switch: Switch,
    /// One for each port of the switch.
    lines: Vec<Line>,
    /// For each port: there may be something to receive.
    readable: Vec<bool>,
    commands: Receiver,
    /// The commands that are being carried out.
    batch: Option<Batch>,
    /// To receive into.
    received: Vec<Box<Packet>>,
    clock: Clock,
    blocking_tasks: mpsc::Sender<BlockingTask>,
    /// Limit of what packets make it log.
    throttle: Throttle,
}

/// State of the commands after a turn.
#[derive(PartialEq)]
enum Commands {
    /// All are carried out.
    Done,
    /// Some wait for the next turn.
    More,
    Stop,
}

/// Changes of which some are not yet applied.
struct Batch {
    changes: Vec<Change>,
    /// The first of those.
    next: usize,
    at_once: bool,
    done: oneshot::Sender<Vec<Change>>,
}

impl Engine {
    /// `blocking_tasks` takes what is to be closed.
    pub fn new(
        switch: Switch,
        lines: Vec<Line>,
        commands: Receiver,
        clock: Clock,
        blocking_tasks: mpsc::Sender<BlockingTask>,
    ) -> Engine {
        let readable = vec![true; lines.len()];
        let (batch, received, throttle) = (None, Vec::with_capacity(BATCH), Throttle::default());
        Engine { switch, lines, readable, commands, batch, received, clock, blocking_tasks, throttle }
    }

    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        // Timers of this thread are as exact as the kernel can: the default slack is 50 us.
        if let Err(e) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("timer slack: {e}");
        }
        let mut polled = Vec::with_capacity(self.lines.len() + 1);
        let mut missed_at = 0;
        loop {
            let now = self.clock.now();
            let commands = self.turn(now);
            if commands == Commands::Stop {
                return;
            }
            if now >= missed_at {
                missed_at = now + MISSED_INTERVAL_NS;
                self.count_missed();
            }
            // Nothing can be received without memory, which only time brings.
            let starved = self.received.is_empty() && self.fill() == 0;
            polled = self.wait(commands == Commands::More, starved, polled);
        }
    }

    /// Some commands, what is due, and a batch of each port.
    fn turn(&mut self, now: u64) -> Commands {
        // First: what was left to this thread while it slept counts as in effect.
        let commands = self.commands(now);
        if commands == Commands::Stop {
            return commands;
        }
        self.switch.serve(now);
        self.switch.pending(now);
        let mut received = false;
        for port in 0..self.lines.len() {
            received |= self.readable[port] && self.receive(port);
        }
        // Only packets take time.
        self.switch.serve(if received { self.clock.now() } else { now });
        self.send();
        commands
    }

    /// Does all that can be done at this time, for a caller that sets the clock.
    pub fn settle(&mut self) {
        let now = self.clock.now();
        while self.turn(now) == Commands::More || self.switch.is_pending() {}
    }

    /// Back-pressure, for who sets the clock: see [`Switch::allow`]; false also where there is no such port.
    pub fn allow(&mut self, port: PortNumber, packets: u32) -> bool {
        let now = self.clock.now();
        self.switch.index(port).is_some_and(|index| self.switch.allow(index, packets, now))
    }

    /// Returns when there is something to do next.
    pub fn deadline(&self) -> Option<u64> {
        self.switch.deadline()
    }

    /// Takes commands, as many as a turn allows.
    fn commands(&mut self, now: u64) -> Commands {
        let mut budget = CHANGES_PER_TURN;
        loop {
            if let Some(mut begun) = self.batch.take() {
                let rest = begun.changes.len() - begun.next;
                let due = &begun.changes[begun.next..];
                let number = if begun.at_once { rest } else { whole(due, rest.min(budget)) };
                for change in &mut begun.changes[begun.next..][..number] {
                    self.switch.apply(change, now);
                }
                budget = budget.saturating_sub(number);
                begun.next += number;
                if number < rest {
                    self.batch = Some(begun);
                } else {
                    // The caller may have gone; here and below.
                    let _ = begun.done.send(begun.changes);
                }
            }
            if budget == 0 {
                return Commands::More;
            }
            match self.commands.take() {
                Some(Command::Changes { changes, at_once, done }) => {
                    self.batch = Some(Batch { changes, next: 0, at_once, done });
                }
                Some(Command::Commit { machine, changes, moved_counts, done }) => {
                    // Packets that should have left by now do; here and below.
                    self.switch.serve(now);
                    let old = self.switch.commit(machine);
                    moved_counts.iter().for_each(MovedCounts::copy);
                    for mut change in changes {
                        self.switch.apply(&mut change, now);
                    }
                    let _ = done.send(old);
                }
                Some(Command::Inject { frame, place }) => {
                    drop(place);
                    self.switch.serve(now);
                    self.switch.inject(&frame, now);
                    budget -= 1;
                }
                Some(Command::Open { failed, io }) => {
                    let Some(line) = self.lines.iter_mut().find(|line| Arc::ptr_eq(&line.failed, &failed)) else {
                        self.close(Some(io));
                        continue;
                    };
                    let old = line.io.replace(io);
                    failed.store(false, Relaxed);
                    self.close(old);
                }
                Some(Command::Tap { tap, done }) => {
                    self.switch.add_tap(*tap);
                    let _ = done.send(());
                }
                Some(Command::Links { links, done }) => {
                    self.switch.serve(now);
                    self.switch.set_links(links);
                    let _ = done.send(());
                }
                Some(Command::Enable { port, enabled }) => {
                    if let Some(index) = self.switch.index(port) {
                        self.lines[index].enabled = enabled;
                    }
                }
                Some(Command::Grow { max_frame_len }) => {
                    self.switch.pool.grow(max_frame_len);
                    self.received.drain(..).for_each(|packet| self.switch.pool.give(packet));
                }
                Some(Command::AddPort(added)) => {
                    let (port, line) = *added;
                    self.switch.serve(now);
                    self.switch.add_port(port);
                    self.lines.push(line);
                    self.readable.push(true);
                }
                Some(Command::RemovePort { port, done }) => {
                    self.switch.serve(now);
                    let removed = self.switch.index(port).map(|index| {
                        self.readable.remove(index);
                        (self.switch.remove_port(index), self.lines.remove(index))
                    });
                    if let Err(Some((_, mut line))) = done.send(removed) {
                        self.close(line.io.take());
                    }
                }
                Some(Command::Stop) => return Commands::Stop,
                None => return Commands::Done,
            }
        }
    }

    fn close(&self, io: Option<Box<dyn PortIo>>) {
        if let Some(io) = io {
            // Without a receiver it is closed here: the switch ends.
            let _ = self.blocking_tasks.send(BlockingTask::Close(io));
        }
    }

    /// Takes packets to receive into; the number that there are.
    fn fill(&mut self) -> usize {
        while self.received.len() < BATCH {
            match self.switch.pool.take() {
                Some(packet) => self.received.push(packet),
                None => break,
            }
        }
        self.received.len()
    }

    /// One batch of a port through ingress; whether there was one.
    fn receive(&mut self, port: usize) -> bool {
        if self.fill() == 0 {
            return false;
        }
        let line = &mut self.lines[port];
        let Some(io) = &mut line.io else { return false };
        if !self.switch.is_loaded() && io.waits_for_program() {
            return false;
        }
        let got = match io.receive(&mut self.received) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return false,
            Err(e) => {
                if self.throttle.allows(self.clock.now()) {
                    tracing::warn!("port {} ({}): {e}", self.switch.ports[port].number, line.interface);
                }
                let failed = line.io.take();
                line.failed.store(true, Relaxed);
                self.close(failed);
                return false;
            }
        };
        if got.packets == 0 {
            return false;
        }
        if !line.enabled {
            count(&self.switch.drops.port_disabled, got.packets as u64);
            return true;
        }
        // Packets that the queues owe until now have to leave before new ones join them.
        let now = self.clock.now();
        self.switch.serve(now);
        let number = self.switch.ports[port].number;
        let cells = self.switch.ports[port].cells.clone();
        if got.too_long > 0 {
            count(&cells.rx_errors, got.too_long as u64);
            if self.throttle.allows(now) {
                tracing::warn!(
                    "port {number}: {} frames longer than the interface's MTU dropped; switch off its offloads \
                     (ethtool -K {} gro off tso off gso off)",
                    got.too_long,
                    self.lines[port].interface
                );
            }
        }
        let line = &mut self.lines[port];
        write_capture(&mut line.capture, &line.interface, false, &self.received[..got.packets]);
        if self.switch.is_tapped() {
            self.switch.tap(number, &self.received[..got.packets], now);
        }
        count(&cells.rx_packets, (got.packets - got.too_long) as u64);
        let mut bytes = 0;
        for packet in self.received.drain(..got.packets) {
            if packet.frame.is_empty() {
                self.switch.pool.give(packet);
                continue;
            }
            bytes += packet.frame.len() as u64;
            self.switch.receive(number, packet, now);
        }
        count(&cells.rx_bytes, bytes);
        self.send();
        true
    }

    /// Sends what the ports hold.
    fn send(&mut self) {
        let lines = &mut self.lines;
        self.switch.send(|index, port| {
            let Line { io, capture, interface, enabled, .. } = &mut lines[index];
            let refused = match io.as_mut().filter(|_| *enabled) {
                Some(io) => send_all(io.as_mut(), interface, &mut port.output, |sent| {
                    count(&port.cells.tx_packets, sent.len() as u64);
                    count(&port.cells.tx_bytes, bytes_of(sent));
                    write_capture(capture, interface, true, sent);
                }),
                None => port.output.len(),
            };
            count(&port.cells.tx_errors, refused as u64);
        });
    }

    fn count_missed(&mut self) {
        for (port, line) in self.switch.ports.iter().zip(&mut self.lines) {
            if let Some(io) = &mut line.io {
                count(&port.cells.rx_errors, io.missed());
            }
        }
    }

    /// Sleeps until there is something to do; sees which ports have frames. `starved`: there is no memory to receive
    /// them. `fds`: empty memory, which it gives back.
    fn wait(&mut self, busy: bool, starved: bool, fds: Vec<PollFd<'static>>) -> Vec<PollFd<'static>> {
        let now = self.clock.now();
        let longest = Duration::from_nanos(if starved { STARVED_INTERVAL_NS } else { MISSED_INTERVAL_NS });
        let timeout = if busy || self.switch.is_pending() {
            Duration::ZERO
        } else {
            // The kernel's drops are counted also when nothing else happens.
            let due = self.switch.deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)));
            if starved { due.unwrap_or(longest).min(longest) } else { due.unwrap_or(longest) }
        };
        let Engine { switch, lines, readable, commands, .. } = self;
        let receives =
            |line: &Line| !starved && line.io.as_ref().is_some_and(|io| switch.is_loaded() || !io.waits_for_program());
        let mut fds: Vec<PollFd<'_>> = fds;
        fds.push(PollFd::new(commands.wake.as_fd(), PollFlags::POLLIN));
        let receiving = lines.iter().filter(|line| receives(line)).filter_map(|line| line.io.as_ref());
        fds.extend(receiving.map(|io| PollFd::new(io.fd(), PollFlags::POLLIN)));
        if !timeout.is_zero() {
            commands.asleep();
        }
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None::<SigSet>) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) if self.throttle.allows(now) => tracing::error!("ppoll: {e}"),
            Err(_) => {}
        }
        commands.awake();
        let has_events = |fd: &PollFd| fd.any().unwrap_or(true);
        if has_events(&fds[0]) {
            // Emptied before the commands are read: what comes later wakes again.
            let _ = commands.wake.read();
        }
        let mut of_ports = fds[1..].iter();
        for (line, readable) in lines.iter().zip(readable) {
            // A port that could not be polled now is at the next turn.
            *readable = starved || receives(line) && of_ports.next().is_some_and(has_events);
        }
        emptied(fds)
    }
}

/// The vector's memory, for what lives for another time: nothing is allocated.
fn emptied<'a>(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    fds.clear();
    fds.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allocated_to_wait() {
        let event = nix::sys::eventfd::EventFd::new().unwrap();
        let mut fds = Vec::with_capacity(3);
        let memory = fds.as_ptr();
        fds.push(PollFd::new(event.as_fd(), PollFlags::POLLIN));
        let kept: Vec<PollFd<'static>> = emptied(fds);
        assert_eq!((kept.as_ptr(), kept.capacity(), kept.len()), (memory.cast(), 3, 0));
    }
}
