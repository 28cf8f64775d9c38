// SPDX-License-Identifier: Apache-2.0
//! The packet thread: owns the switch and its ports. Nobody else touches them; changes come through a channel and
//! are applied between batches, some at a time, so that they never hold packets up.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeSpec;
use tokio::sync::oneshot;

use crate::change::Change;
use crate::command::{CHANGES_PER_TURN, Command, Receiver};
use crate::machine::frame::Packet;
use crate::port::{BATCH, Capture, PortIo, bytes_of, count, count_shared, send_all};
use crate::store::Carried;
use crate::v1model::Switch;

/// How often the kernel is asked what it dropped.
const MISSED_INTERVAL_NS: u64 = 100_000_000;

/// The clock of the switch: ns since its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// The I/O side of a port.
pub struct Line {
    /// `None` while the interface is down or gone.
    pub io: Option<Box<dyn PortIo>>,
    pub capture: Option<Capture>,
    /// Set here when the interface fails, seen by whoever opens it again.
    pub failed: Arc<AtomicBool>,
    pub interface: String,
    /// While it is not, nothing is taken and nothing sent.
    pub enabled: bool,
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

pub struct Engine {
    pub switch: Switch,
    /// One for each port of the switch.
    pub lines: Vec<Line>,
    pub commands: Receiver,
    pub clock: Clock,
}

/// What a turn's look at the commands found.
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
    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        // Timers of this thread are as exact as the kernel can: the default slack is 50 us.
        if let Err(e) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("timer slack: {e}");
        }
        let mut batch = None;
        let mut received: Vec<Box<Packet>> = Vec::with_capacity(BATCH);
        let mut readable = vec![true; self.lines.len()];
        let mut polled = Vec::with_capacity(self.lines.len() + 1);
        let mut missed_at = 0;
        loop {
            let now = self.clock.now();
            // First: what was left to this thread while it slept counts as in effect.
            let commands = self.commands(&mut batch, now);
            if commands == Commands::Stop {
                return;
            }
            self.switch.serve(now);
            self.switch.pending(now);
            for (port, _) in readable.iter().enumerate().filter(|(_, readable)| **readable) {
                self.receive(port, &mut received);
            }
            self.serve_and_send();
            if now >= missed_at {
                missed_at = now + MISSED_INTERVAL_NS;
                self.count_missed();
            }
            polled = self.wait(commands == Commands::More, &mut readable, polled);
        }
    }

    /// Takes commands, as many as a turn allows.
    fn commands(&mut self, batch: &mut Option<Batch>, now: u64) -> Commands {
        let mut budget = CHANGES_PER_TURN;
        loop {
            if let Some(mut begun) = batch.take() {
                let rest = begun.changes.len() - begun.next;
                let number = if begun.at_once { rest } else { rest.min(budget) };
                for change in &mut begun.changes[begun.next..][..number] {
                    self.switch.apply(change, now);
                }
                budget = budget.saturating_sub(number);
                begun.next += number;
                if number < rest {
                    *batch = Some(begun);
                } else {
                    // Whoever asked may have gone; here and below.
                    let _ = begun.done.send(begun.changes);
                }
            }
            if budget == 0 {
                return Commands::More;
            }
            match self.commands.take() {
                Some(Command::Changes { changes, at_once, done }) => {
                    *batch = Some(Batch { changes, next: 0, at_once, done });
                }
                Some(Command::Commit { machine, changes, carried, done }) => {
                    // What should have left by now does; here and below.
                    self.switch.serve(now);
                    let old = self.switch.commit(machine);
                    carried.iter().for_each(Carried::copy);
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
                Some(Command::Open { port, io }) => {
                    self.lines[port].io = Some(io);
                    self.lines[port].failed.store(false, Relaxed);
                }
                Some(Command::Links { links, done }) => {
                    self.switch.serve(now);
                    self.switch.set_links(links);
                    let _ = done.send(());
                }
                Some(Command::Enable { port, enabled }) => self.lines[port].enabled = enabled,
                Some(Command::Stop) => return Commands::Stop,
                None => return Commands::Done,
            }
        }
    }

    /// One batch of a port through ingress.
    fn receive(&mut self, port: usize, received: &mut Vec<Box<Packet>>) {
        while received.len() < BATCH {
            match self.switch.pool.take() {
                Some(packet) => received.push(packet),
                None => break,
            }
        }
        let line = &mut self.lines[port];
        let Some(io) = &mut line.io else { return };
        if !self.switch.is_loaded() && io.waits_for_program() {
            return;
        }
        let got = match io.receive(received) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return,
            Err(e) => {
                tracing::warn!("port {} ({}): {e}", self.switch.ports[port].number, line.interface);
                line.io = None;
                line.failed.store(true, Relaxed);
                return;
            }
        };
        if got.packets == 0 || !line.enabled {
            return;
        }
        // What the queues owe until now has to leave before something new joins them.
        let now = self.clock.now();
        self.switch.serve(now);
        let number = self.switch.ports[port].number;
        let cells = self.switch.ports[port].cells.clone();
        if got.too_long > 0 {
            count(&cells.rx_errors, got.too_long as u64);
            tracing::warn!(
                "port {number}: {} frames longer than the interface's MTU dropped; switch off its offloads \
                 (ethtool -K {} gro off tso off gso off)",
                got.too_long,
                self.lines[port].interface
            );
        }
        let line = &mut self.lines[port];
        write_capture(&mut line.capture, &line.interface, false, &received[..got.packets]);
        count(&cells.rx_packets, (got.packets - got.too_long) as u64);
        let mut bytes = 0;
        for packet in received.drain(..got.packets) {
            if packet.frame.is_empty() {
                self.switch.pool.give(packet);
                continue;
            }
            bytes += packet.frame.len() as u64;
            self.switch.receive(number, packet, now);
        }
        count(&cells.rx_bytes, bytes);
        self.send();
    }

    fn serve_and_send(&mut self) {
        let now = self.clock.now();
        self.switch.serve(now);
        self.send();
    }

    /// Sends what the ports hold.
    fn send(&mut self) {
        for (port, line) in self.switch.ports.iter_mut().zip(&mut self.lines) {
            if port.output.is_empty() {
                continue;
            }
            let Line { io, capture, interface, enabled, .. } = line;
            let refused = match io.as_mut().filter(|_| *enabled) {
                Some(io) => {
                    let takes_over = io.takes_over();
                    if takes_over {
                        write_capture(capture, interface, true, &port.output);
                    }
                    send_all(io.as_mut(), interface, &mut port.output, |sent| {
                        if !takes_over {
                            count(&port.cells.tx_packets, sent.len() as u64);
                            count(&port.cells.tx_bytes, bytes_of(sent));
                            write_capture(capture, interface, true, sent);
                        }
                    })
                }
                None => port.output.len(),
            };
            count_shared(&port.cells.tx_errors, refused as u64);
            port.output.drain(..).for_each(|packet| self.switch.pool.give(packet));
        }
    }

    fn count_missed(&mut self) {
        for (port, line) in self.switch.ports.iter().zip(&mut self.lines) {
            if let Some(io) = &mut line.io {
                count(&port.cells.rx_errors, io.missed());
            }
        }
    }

    /// Whether a port is asked for frames.
    fn receives(&self, line: &Line) -> bool {
        line.io.as_ref().is_some_and(|io| self.switch.is_loaded() || !io.waits_for_program())
    }

    /// Sleeps until there is something to do; tells which ports have frames. `fds`: empty memory, which it gives back.
    fn wait<'a>(&'a self, busy: bool, readable: &mut [bool], mut fds: Vec<PollFd<'a>>) -> Vec<PollFd<'static>> {
        let now = self.clock.now();
        let timeout = if busy || self.switch.is_pending() {
            Some(Duration::ZERO)
        } else {
            self.switch.deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)))
        };
        // The kernel's drops are counted also when nothing else happens.
        let timeout = timeout.unwrap_or(Duration::from_nanos(MISSED_INTERVAL_NS));
        fds.push(PollFd::new(self.commands.wake.as_fd(), PollFlags::POLLIN));
        let receiving = self.lines.iter().filter(|line| self.receives(line)).filter_map(|line| line.io.as_ref());
        fds.extend(receiving.map(|io| PollFd::new(io.fd(), PollFlags::POLLIN)));
        if !timeout.is_zero() {
            self.commands.asleep();
        }
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None::<SigSet>) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => tracing::error!("ppoll: {e}"),
        }
        self.commands.awake();
        let has_events = |fd: &PollFd| fd.any().unwrap_or(true);
        if has_events(&fds[0]) {
            // Emptied before the commands are read: what comes later wakes again.
            let _ = self.commands.wake.read();
        }
        let mut of_ports = fds[1..].iter();
        for (line, readable) in self.lines.iter().zip(readable) {
            *readable = self.receives(line) && of_ports.next().is_some_and(has_events);
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
