// SPDX-License-Identifier: Apache-2.0
//! Daemon of one terminal and interface: announces, counts, reads and bounds, in one thread that sleeps in between.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use super::announce::{INTERVAL, Key, Neighbours};
use super::bounds::Bounds;
use super::broadcast::{self, BroadcastSockets};
use super::model::{Bound, Capacity, Control, path_rtt, ratio};
use super::sockets::{Reading, Sockets};
use super::status::{self, Server, Status};
use hosts_base::{About, Error};

/// Interval at which the connections are read and bounded (paper 002, "Proposed Mechanism").
pub const READING: Duration = Duration::from_millis(500);
/// Idle time after which a connection is no longer under control: the paper names no end.
const IDLE: Duration = Duration::from_secs(10);

/// Settings of a daemon.
pub struct Settings {
    pub interface: String,
    pub port: u16,
    pub key: Key,
    /// Capacity of the link; None: announce, count and read, but bound nothing
    pub capacity: Option<Capacity>,
}

struct Tracked {
    reading: Reading,
    control: Control,
    bound: Bound,
    /// Round-trip time without a delayed ACK, µs
    rtt_us: u32,
    ratio: f64,
    /// Data is in flight or was since the last reading
    sending: bool,
    sent: Instant,
}

struct Daemon {
    settings: Settings,
    /// Index of the interface and its sockets; None while it is missing
    broadcast: Option<(u32, BroadcastSockets)>,
    announcing: bool,
    neighbours: Neighbours,
    /// Sockets to the kernel; None: it cannot be asked
    sockets: Option<Sockets>,
    bounds: Option<Bounds>,
    control: String,
    connections: HashMap<u64, Tracked>,
    read: Instant,
    kbit_per_s: u32,
}

/// Run until SIGTERM, SIGINT or SIGHUP, then undo every bound (paper 002, "Overview of Our Middleware"). Without the
/// privilege or the kernel for bounds it reports that, announces and counts. Errors: no such interface, another daemon
/// serves it, the port is taken, or the system fails.
pub fn run(settings: Settings) -> Result<(), Error> {
    let signals = Signals::block()?;
    let interface = settings.interface.clone();
    let index = broadcast::index(&interface)
        .ok_or_else(|| Error::new(format!("no interface {interface} here: `ip link` lists those that exist")))?;
    let mut server = Server::bind(&interface)?;
    let broadcast = BroadcastSockets::open(&interface, index, settings.port)
        .about(format!("announcements on {interface}, UDP port {}", settings.port))?;
    let sockets = Sockets::open().and_then(|mut sockets| sockets.read(index, &[]).map(|_| sockets));
    let sockets = sockets.about("the kernel does not list its connections (CONFIG_INET_DIAG)");
    let (sockets, bounds, control) = match (sockets, settings.capacity.map(|_| Bounds::load())) {
        (Ok(sockets), None) => (Some(sockets), None, "off (--observe)".into()),
        (Ok(sockets), Some(Ok(bounds))) => (Some(sockets), Some(bounds), "on".into()),
        (sockets, Some(Err(error))) => (sockets.ok(), None, missing(&error)),
        (Err(error), _) => (None, None, missing(&error)),
    };
    let start = Instant::now();
    let mut daemon = Daemon {
        broadcast: Some((index, broadcast)),
        announcing: false,
        neighbours: Neighbours::new(Key::clone(&settings.key)),
        sockets,
        bounds,
        control,
        connections: HashMap::new(),
        read: start,
        kbit_per_s: 0,
        settings,
    };
    let (mut announce, mut read) = (start, start);
    loop {
        let now = Instant::now();
        if now >= announce {
            daemon.announce(now)?;
            announce = next(announce, INTERVAL, now);
        }
        if now >= read {
            daemon.read(now)?;
            read = next(read, READING, now);
        }
        if signals.wait(server.interests(), announce.min(read).saturating_duration_since(Instant::now()))? {
            return Ok(());
        }
        server.serve(Instant::now(), || daemon.status());
    }
}

impl Daemon {
    /// Send an announcement and process those that have arrived.
    fn announce(&mut self, now: Instant) -> Result<(), Error> {
        self.follow_interface();
        if let Some(bounds) = &mut self.bounds {
            bounds.keep_guardian()?;
        }
        let wall = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
        let sending = self.sending().min(usize::from(u16::MAX)) as u16;
        let datagram = self.neighbours.announce(wall, self.kbit_per_s, sending);
        self.announcing = self.broadcast.as_ref().is_some_and(|(_, broadcast)| broadcast.send(&datagram));
        if let Some((_, broadcast)) = &self.broadcast {
            broadcast.receive(|datagram, from| {
                // A refusal is counted.
                let _ = self.neighbours.receive(datagram, from, wall, now);
            });
        }
        Ok(())
    }

    /// Reopen the sockets of an interface that vanished and came back: it has another index, and the old sockets
    /// receive nothing.
    fn follow_interface(&mut self) {
        let (name, port) = (&self.settings.interface, self.settings.port);
        let index = broadcast::index(name);
        if index != self.broadcast.as_ref().map(|(index, _)| *index) {
            self.broadcast = index.and_then(|index| Some((index, BroadcastSockets::open(name, index, port).ok()?)));
        }
    }

    /// Read the connections and bound them.
    fn read(&mut self, now: Instant) -> Result<(), Error> {
        let Some(sockets) = &mut self.sockets else { return Ok(()) };
        let addresses = broadcast::addresses(&self.settings.interface).about("addresses of the interface")?;
        let index = self.broadcast.as_ref().map_or(0, |(index, _)| *index);
        let Ok(readings) = sockets.read(index, &addresses) else {
            // An incomplete answer gives no information on the missing connections. Ask again next time.
            *sockets = Sockets::open().about("socket to the kernel")?;
            return Ok(());
        };
        let mut acked = 0;
        let mut connections = HashMap::with_capacity(readings.len());
        for reading in readings {
            let known = self.connections.remove(&reading.cookie);
            let held = self.bounds.as_ref().and_then(|bounds| bounds.get(reading.cookie));
            acked += known.as_ref().map_or(0, |known| reading.acked.saturating_sub(known.reading.acked));
            connections.insert(reading.cookie, follow(known, reading, held, now));
        }
        self.connections = connections;
        let elapsed = now.duration_since(self.read).as_secs_f64();
        self.read = now;
        self.kbit_per_s = if elapsed > 0.0 { (acked as f64 * 8.0 / 1e3 / elapsed) as u32 } else { 0 };
        let terminals = self.terminals(now);
        if let (Some(bounds), Some(capacity)) = (&mut self.bounds, self.settings.capacity) {
            let bounded = || self.connections.values().filter(|tracked| tracked.bound != Bound::None);
            let sharing = bounded().filter(|tracked| tracked.sending).count();
            // A loss has lowered it: the lower bound is the threshold up to which the window grows by slow start.
            let fallen = |tracked: &Tracked| {
                bounds.get(tracked.reading.cookie).is_some_and(|bound| tracked.reading.threshold < bound)
            };
            let restore = bounded().any(fallen);
            bounds.set(
                restore,
                bounded().map(|tracked| {
                    let ideal = || capacity.ideal_window(terminals, sharing, tracked.rtt_us);
                    (tracked.reading.cookie, if tracked.bound == Bound::One { 1 } else { ideal() })
                }),
            )?;
        }
        Ok(())
    }

    fn sending(&self) -> usize {
        self.connections.values().filter(|tracked| tracked.sending).count()
    }

    /// Return the number of terminals that send, this one included.
    fn terminals(&self, now: Instant) -> usize {
        let others = self.neighbours.present(now).iter().filter(|neighbour| neighbour.newest.sending > 0).count();
        others + usize::from(self.sending() > 0)
    }

    fn status(&self) -> Status {
        let now = Instant::now();
        let present = self.neighbours.present(now);
        let mut connections: Vec<_> = self.connections.values().collect();
        connections.sort_unstable_by_key(|tracked| (tracked.reading.local, tracked.reading.peer));
        Status {
            interface: self.settings.interface.clone(),
            announcing: self.announcing,
            control: self.control.clone(),
            terminal: format!("{:016x}", self.neighbours.terminal()),
            terminals: present.len() + 1,
            sending: self.terminals(now),
            kbit_per_s: u64::from(self.kbit_per_s)
                + present.iter().map(|n| u64::from(n.newest.kbit_per_s)).sum::<u64>(),
            capacity: self.settings.capacity,
            datagrams: self.neighbours.counters,
            refused: self.bounds.as_ref().map_or(0, Bounds::refused),
            neighbours: present
                .iter()
                .map(|neighbour| status::Neighbour {
                    terminal: format!("{:016x}", neighbour.newest.terminal),
                    sending: neighbour.newest.sending,
                    kbit_per_s: neighbour.newest.kbit_per_s,
                })
                .collect(),
            connections: connections
                .into_iter()
                .map(|tracked| status::Connection {
                    local: tracked.reading.local.to_string(),
                    peer: tracked.reading.peer.to_string(),
                    sending: tracked.sending,
                    rtt_ms: f64::from(tracked.reading.rtt_us) / 1e3,
                    min_rtt_ms: f64::from(tracked.reading.min_rtt_us) / 1e3,
                    ratio: tracked.ratio,
                    window: tracked.reading.window,
                    control: tracked.bound,
                    bound: self.bounds.as_ref().and_then(|bounds| bounds.get(tracked.reading.cookie)),
                })
                .collect(),
        }
    }
}

/// Return the next time after `due`. Missed intervals, as in a machine that slept, are not made up for.
fn next(due: Instant, interval: Duration, now: Instant) -> Instant {
    if due + interval > now { due + interval } else { now + interval }
}

fn missing(error: &Error) -> String {
    eprintln!("control is missing, announcing and counting continue: {error}");
    format!("missing: {error}")
}

/// Update a connection after another reading; `held` is the bound that it had since the last one. Without new ACKs
/// there is no new RTT, so the last decision stays.
fn follow(known: Option<Tracked>, reading: Reading, held: Option<u32>, now: Instant) -> Tracked {
    let acked = known.as_ref().is_none_or(|known| reading.acked > known.reading.acked);
    let sending = reading.unacked > 0 || (acked && known.is_some());
    let mut tracked = known.unwrap_or(Tracked {
        reading,
        control: Control::default(),
        bound: Bound::None,
        rtt_us: reading.rtt_us,
        ratio: 1.0,
        sending,
        sent: now,
    });
    tracked.reading = reading;
    tracked.sending = sending;
    if sending {
        tracked.sent = now;
    } else if now.duration_since(tracked.sent) >= IDLE {
        tracked.control = Control::default();
        tracked.bound = Bound::None;
    }
    if acked && sending && reading.min_rtt_us < u32::MAX {
        tracked.rtt_us = path_rtt(reading.rtt_us, reading.min_rtt_us, held.unwrap_or(reading.window));
        tracked.ratio = ratio(tracked.rtt_us, reading.min_rtt_us);
        tracked.bound = tracked.control.step(now, tracked.ratio);
    }
    tracked
}

/// Signals that end the daemon, as a descriptor to poll.
struct Signals(OwnedFd);

impl Signals {
    fn block() -> Result<Self, Error> {
        // SAFETY: plain system calls on a set that is initialised by sigemptyset.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC) {
                -1 => Err(io::Error::last_os_error()).about("signalfd"),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Sleep until the time is over or a descriptor is ready; true when the daemon is to end.
    fn wait(&self, interests: impl Iterator<Item = (i32, i16)>, time: Duration) -> Result<bool, Error> {
        let mut fds: Vec<_> = [(self.0.as_raw_fd(), libc::POLLIN)]
            .into_iter()
            .chain(interests)
            .map(|(fd, events)| libc::pollfd { fd, events, revents: 0 })
            .collect();
        let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
        // SAFETY: a valid slice and time.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &time, std::ptr::null()) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(io::Error::last_os_error()).about("poll");
        }
        Ok(ready > 0 && fds[0].revents != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(acked: u64, unacked: u32, rtt_ms: u32) -> Reading {
        let address = "192.0.2.1:1".parse().unwrap();
        let (rtt_us, min_rtt_us) = (rtt_ms * 1000, 10_000);
        Reading {
            cookie: 1,
            local: address,
            peer: address,
            rtt_us,
            min_rtt_us,
            window: 10,
            threshold: 10,
            unacked,
            acked,
        }
    }

    #[test]
    fn a_connection_is_controlled_while_it_sends() {
        let start = Instant::now();
        let at = |halves: u32| start + READING * halves;
        let first = follow(None, reading(1, 0, 100), None, at(0));
        assert_eq!((first.sending, first.bound), (false, Bound::None));
        let high = follow(Some(first), reading(1000, 5, 100), None, at(1));
        assert_eq!((high.sending, high.bound, high.ratio), (true, Bound::One, 10.0));
        // Nothing was acknowledged: an old RTT changes no decision.
        let stalled = follow(Some(high), reading(1000, 5, 10), Some(1), at(2));
        assert_eq!((stalled.sending, stalled.bound), (true, Bound::One));
        let low = follow(Some(stalled), reading(2000, 5, 40), Some(1), at(3));
        assert_eq!((low.bound, low.ratio), (Bound::Ideal, 1.0));
        let mut idle = low;
        for halves in 4..=23 {
            idle = follow(Some(idle), reading(2000, 0, 40), Some(9), at(halves));
        }
        assert_eq!((idle.sending, idle.bound), (false, Bound::None));
    }
}
