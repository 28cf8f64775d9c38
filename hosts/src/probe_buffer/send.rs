// SPDX-License-Identifier: Apache-2.0
//! Sender: trials over UDP, each from an empty queue, and the questions that each is to answer.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::estimate::{Estimate, estimate};
use super::trace::{Fill, Finding, Trace};
use super::wire::{
    Answer, Control, Header, Hello, Key, MAX_LINE, MAX_PACKETS, MAX_UNPROVEN_LINE, PORT, Proof, Request, Welcome, nonce,
};
use crate::bootstrap::SplitMix;
use hosts_base::{About, Error};

const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of IP and UDP headers.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;
/// Sending rate over drain rate, minimum and maximum: it differs between trials, so that no rhythm hides a packet.
const OVERLOAD: (f64, f64) = (6.0, 10.0);
/// Transmissions that a trial continues for once the buffer is full: for a dozen batches of 16; longer if it shows
/// fewer than `MIN_CYCLES`.
const FULL_FOR: f64 = 192.0;
const MIN_CYCLES: usize = 3;
/// Maximum factor of further trials while the result is unsure, and the bounds of a sure one: confidence of the batch
/// size, width of the buffer's interval (packets).
const MORE: usize = 3;
const SURE: (f64, f64) = (0.95, 3.0);
/// Packets of the first trial, and number of packets without a queue after which none will come.
const FIRST_TRIAL: usize = 64;
const LAST_TRIAL_WITHOUT_QUEUE: usize = 4096;
/// Packets that go one by one before a trial, so many transmissions apart.
const LEAD: (usize, f64) = (7, 2.0);
/// Part of a pause that the sender waits for awake, as its timer oversleeps.
const AWAKE: Duration = Duration::from_micros(80);

/// Limits of a measurement: its cost, and its thoroughness.
pub struct Limits {
    pub trials: usize,
    /// bit/s
    pub rate: u64,
    pub bytes: u64,
    pub time: Duration,
}

/// Outcome of a measurement.
pub enum Outcome {
    /// Packets arrived as fast as they were sent: bit/s.
    NoBottleneck { rate: f64 },
    /// The limits ended before the buffer was full: bit/s that drain, and maximum packets that were waiting.
    NotFull { drain: f64, packets: f64 },
    /// One estimate for each packet size.
    Buffer(Vec<Estimate>),
}

/// Connection to a responder.
pub struct Sender {
    peer: SocketAddr,
    control: Control,
    socket: UdpSocket,
    token: u64,
    limits: Limits,
    trial: u32,
    deadline: Instant,
    random: SplitMix,
    pub packets_sent: u64,
    pub bytes_sent: u64,
    /// Packets that reached the responder's port and were of other senders.
    pub ignored: u64,
}

impl Sender {
    /// Connect to `host` (name or address, with or without a port) and prove the key in both directions.
    pub fn connect(host: &str, key: &Key, limits: Limits) -> Result<Sender, Error> {
        let peer = resolve(host)?;
        let stream = TcpStream::connect_timeout(&peer, PATIENCE).about(format_args!(
            "connect to the responder {peer} (start it there: hosts probe-buffer serve --key-file FILE)"
        ))?;
        let responder = || format!("responder {peer}");
        let mut control = Control::new(stream).about(responder())?;
        let hello: Hello = control.receive(MAX_UNPROVEN_LINE, PATIENCE).map_err(|e| lost(peer, e))?;
        let own = nonce();
        let proof = Proof { proof: key.proof("sender", &hello.nonce, &own), nonce: own.clone() };
        control.send(&proof).map_err(|e| lost(peer, e))?;
        let welcome: Welcome = control.receive(MAX_UNPROVEN_LINE, PATIENCE).map_err(|e| lost(peer, e))?;
        if !key.proves(&welcome.proof, "responder", &hello.nonce, &own) {
            return Err(Error::new(format!("responder {peer}: it does not know the key, so it is an impostor")));
        }
        let own = control.stream.local_addr().about(responder())?;
        let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0)).about(format_args!("UDP socket on {}", own.ip()))?;
        socket.connect(peer).about(responder())?;
        // A short send buffer: on a slow interface of this host, packets wait here and not, unseen, behind it.
        SockRef::from(&socket).set_send_buffer_size(32 * 1024).about("UDP send buffer")?;
        dont_fragment(&socket).about("path MTU discovery")?;
        Ok(Sender {
            peer,
            control,
            socket,
            token: welcome.token,
            deadline: Instant::now() + limits.time,
            limits: Limits { rate: limits.rate.min(welcome.max_rate), ..limits },
            trial: 0,
            random: SplitMix(1),
            packets_sent: 0,
            bytes_sent: 0,
            ignored: 0,
        })
    }

    /// Return the maximum bytes of an IP packet on the path, as far as this host knows.
    pub fn path_mtu(&self) -> u32 {
        path_mtu(&self.socket).unwrap_or(1500).clamp(576, 9000)
    }

    /// Find the bottleneck, then fill it repeatedly with packets of each of `sizes` (bytes of IP).
    pub fn measure(&mut self, sizes: &[u32]) -> Result<Outcome, Error> {
        let (mut drain, mut packets) = match self.explore(sizes[0])? {
            Finding::NoBottleneck { rate, .. } => {
                return Ok(Outcome::NoBottleneck { rate: rate * bits(sizes[0]) });
            }
            Finding::NotFull { drain, packets } => {
                return Ok(Outcome::NotFull { drain: drain * bits(sizes[0]), packets });
            }
            Finding::Full(fill) => (fill.drain, fill.first),
            Finding::Silence => return Err(self.unreachable()),
            Finding::Torn => {
                return Err(Error::new("every trial was torn by pauses: this or the other host is too busy"));
            }
        };
        let mut estimates = Vec::new();
        let spent = self.bytes_sent;
        for (index, &size) in sizes.iter().enumerate() {
            // Until a trial gives more information: as many bytes per second, and a buffer for packets or for bytes.
            if let Some(before) = index.checked_sub(1) {
                let ratio = f64::from(sizes[before]) / f64::from(size);
                (drain, packets) = (drain * ratio, packets * ratio.max(1.0));
            }
            // Each size may have an equal part of what is left.
            let parts = (sizes.len() - index) as u32;
            let until = Instant::now() + self.deadline.saturating_duration_since(Instant::now()) / parts;
            let bytes = self.bytes_sent + self.limits.bytes.saturating_sub(self.bytes_sent) / u64::from(parts);
            let fills = self.fills(size, drain, packets, until, bytes, index == 0)?;
            match estimate(size, &fills) {
                Some(estimate) => {
                    (drain, packets) = (estimate.drain, estimate.packets.value);
                    estimates.push(estimate);
                }
                None if estimates.is_empty() => {
                    return Err(Error::new(format!(
                        "no trial was complete within the limits ({} MB sent to find the bottleneck): \
                         give more with --seconds or --megabytes, or keep the hosts less busy",
                        spent / 1_000_000
                    )));
                }
                None => {}
            }
        }
        Ok(Outcome::Buffer(estimates))
    }

    /// Find the drain rate: ever longer trials, as fast as permitted until there is a queue.
    fn explore(&mut self, size: u32) -> Result<Finding, Error> {
        let (mut count, mut rate) = (FIRST_TRIAL, self.limits.rate as f64 / bits(size));
        let mut last = Finding::Silence;
        let mut silent = 0;
        loop {
            let left = self.limits.bytes.saturating_sub(self.bytes_sent) / u64::from(size);
            if count as u64 > left || count > MAX_PACKETS || Instant::now() > self.deadline {
                return Ok(last);
            }
            let trace = self.trial(size, count, rate, None)?;
            if trace.overrun > 0 {
                // Half as fast, until the responder can keep up.
                rate /= 2.0;
                self.limits.rate /= 2;
                if rate < 10.0 {
                    return Err(self.too_slow());
                }
                continue;
            }
            last = trace.finding();
            match last {
                Finding::Silence => {
                    silent += 1;
                    if silent == 3 {
                        return Err(self.unreachable());
                    }
                }
                Finding::NoBottleneck { .. } if count >= LAST_TRIAL_WITHOUT_QUEUE => return Ok(last),
                Finding::NoBottleneck { .. } => count *= 4,
                Finding::NotFull { drain, .. } => {
                    rate = (drain * (OVERLOAD.0 + OVERLOAD.1) / 2.0).min(self.limits.rate as f64 / bits(size));
                    count *= 2;
                }
                Finding::Torn => {}
                Finding::Full(_) => return Ok(last),
            }
        }
    }

    /// Run trials that fill a buffer of about `packets`, drained at about `drain` packets per second, until a time and
    /// a number of bytes. `thorough`: more of them until the result is sure.
    fn fills(
        &mut self,
        size: u32,
        mut drain: f64,
        mut packets: f64,
        until: Instant,
        bytes: u64,
        thorough: bool,
    ) -> Result<Vec<Fill>, Error> {
        let mut fills: Vec<Fill> = Vec::new();
        let mut full_for = FULL_FOR;
        let (mut overrun, mut torn, mut unsure) = (0, 0, false);
        while fills.len() < self.limits.trials || (unsure && fills.len() < MORE * self.limits.trials) {
            let permitted = self.limits.rate as f64 / bits(size) / drain;
            let overload = (OVERLOAD.0 + (OVERLOAD.1 - OVERLOAD.0) * self.random.unit()).min(permitted);
            let count = overload * (packets / (overload - 1.0).max(0.2) + full_for) * 1.1;
            let seconds = count / overload / drain + packets / drain;
            let too_late = Instant::now() + Duration::from_secs_f64(seconds.min(1e6)) > until;
            if too_late || self.bytes_sent + (count * f64::from(size)) as u64 > bytes || count > MAX_PACKETS as f64 {
                break;
            }
            let trace = self.trial(size, count as usize, overload * drain, Some(drain))?;
            if trace.overrun > 0 {
                overrun += 1;
                if overrun > self.limits.trials {
                    return Err(self.too_slow());
                }
                continue;
            }
            match trace.finding() {
                Finding::Full(fill) => {
                    (drain, packets) = (fill.drain, fill.first.max(1.0));
                    if fill.cycles.len() < MIN_CYCLES && full_for < 2.0 * packets {
                        full_for *= 2.0;
                    }
                    fills.push(fill);
                    unsure = thorough && fills.len() >= self.limits.trials && !is_sure(size, &fills);
                }
                Finding::Torn => {
                    torn += 1;
                    if torn > 2 * self.limits.trials {
                        break;
                    }
                }
                // A pause of this or the other host, or a buffer that grew: once more, longer.
                Finding::NotFull { .. } | Finding::NoBottleneck { .. } => packets *= 1.5,
                Finding::Silence => return Err(self.unreachable()),
            }
        }
        Ok(fills)
    }

    /// Send `count` packets of `size` bytes, `rate` per second, and return the finding. If `drain` is known, some go
    /// one by one before.
    fn trial(&mut self, size: u32, count: usize, rate: f64, drain: Option<f64>) -> Result<Trace, Error> {
        self.trial += 1;
        let peer = self.peer;
        self.control.send(&Request::Begin(self.trial)).map_err(|e| lost(peer, e))?;
        match self.control.receive(MAX_UNPROVEN_LINE, PATIENCE).map_err(|e| lost(peer, e))? {
            Answer::Ready(trial) if trial == self.trial => {}
            _ => return Err(lost(peer, io::ErrorKind::InvalidData.into())),
        }
        let gap = Duration::from_secs_f64(1.0 / rate);
        let lead = drain.map_or(0, |_| LEAD.0);
        let apart = Duration::from_secs_f64(drain.map_or(0.0, |drain| LEAD.1 / drain));
        let gaps = (0..lead + count).map(|number| if number < lead { apart } else { gap });
        let sent = self.burst(size, gaps)?;
        let seconds = (sent[sent.len() - 1] - sent[lead]) as f64 * 1e-9;
        // Long enough to distinguish the end from a gap between two packets at a tenth of the rate.
        let quiet = (1e3 * 10.0 * OVERLOAD.1 * seconds / count as f64).clamp(60.0, 3000.0) as u64;
        self.control.send(&Request::End { quiet }).map_err(|e| lost(peer, e))?;
        let patience = self.deadline.saturating_duration_since(Instant::now()) + PATIENCE;
        match self.control.receive(MAX_LINE, patience).map_err(|e| lost(peer, e))? {
            Answer::Report(report) if report.trial == self.trial => {
                self.ignored += report.ignored;
                Ok(Trace { lead, sent, arrivals: report.arrivals, overrun: report.overrun })
            }
            _ => Err(lost(peer, io::ErrorKind::InvalidData.into())),
        }
    }

    /// Send a packet before each of the `gaps` and return its time, ns. A late packet delays all later ones: the rate
    /// is never exceeded to catch up.
    fn burst(&mut self, size: u32, gaps: impl Iterator<Item = Duration>) -> Result<Vec<i64>, Error> {
        let headers = if self.peer.is_ipv6() { HEADERS_V6 } else { HEADERS_V4 };
        let mut packet = vec![0; (size - headers) as usize];
        let start = Instant::now();
        let mut due = start;
        let mut sent = Vec::new();
        for (number, gap) in gaps.enumerate() {
            Header { token: self.token, trial: self.trial, number: number as u32 }.write(&mut packet);
            let mut now = Instant::now();
            if due > now + AWAKE {
                std::thread::sleep(due - now - AWAKE);
            }
            while now < due {
                std::hint::spin_loop();
                now = Instant::now();
            }
            due = now + gap;
            sent.push((now - start).as_nanos() as i64);
            self.send(&packet, size)?;
        }
        self.packets_sent += sent.len() as u64;
        self.bytes_sent += sent.len() as u64 * u64::from(size);
        Ok(sent)
    }

    fn send(&self, packet: &[u8], size: u32) -> Result<(), Error> {
        loop {
            match self.socket.send(packet) {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(Duration::from_micros(50)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                    let most = path_mtu(&self.socket).unwrap_or(0);
                    return Err(Error::new(format!(
                        "packets of {size} bytes do not fit the path to {} (MTU {most}): give --sizes {most},{}",
                        self.peer,
                        most / 2
                    )));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(self.unreachable()),
                Err(e) => return Err(e).about(format_args!("send to {}", self.peer)),
            }
        }
    }

    fn unreachable(&self) -> Error {
        Error::new(format!("no packet to UDP {} arrived: let the firewalls on the way pass it", self.peer))
    }

    fn too_slow(&self) -> Error {
        Error::new(format!("the host {} loses packets itself: lower --max-rate", self.peer.ip()))
    }
}

fn is_sure(size: u32, fills: &[Fill]) -> bool {
    estimate(size, fills).is_some_and(|found| {
        let batch = found.batches.first().is_some_and(|batch| batch.confidence >= SURE.0);
        batch && found.packets.high - found.packets.low <= SURE.1
    })
}

fn bits(size: u32) -> f64 {
    8.0 * f64::from(size)
}

fn resolve(host: &str) -> Result<SocketAddr, Error> {
    let with_port = host.to_socket_addrs().ok().and_then(|mut found| found.next());
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match with_port {
        Some(peer) => Ok(peer),
        None => (bare, PORT)
            .to_socket_addrs()
            .about(format_args!("HOST '{host}'"))?
            .next()
            .ok_or_else(|| Error::new(format!("HOST '{host}' has no address"))),
    }
}

fn lost(peer: SocketAddr, error: io::Error) -> Error {
    Error::new(match error.kind() {
        io::ErrorKind::PermissionDenied => format!("the responder {peer} refuses: {error}"),
        io::ErrorKind::UnexpectedEof => format!("the responder {peer} has gone: is the key the same on both sides?"),
        io::ErrorKind::TimedOut => format!("the responder {peer} is silent: has it ended, or is the path down?"),
        io::ErrorKind::InvalidData => format!("{peer} is no responder of this version of hosts: {error}"),
        _ => format!("the responder {peer}: {error}"),
    })
}

fn dont_fragment(socket: &UdpSocket) -> io::Result<()> {
    let (level, option, value) = match socket.local_addr()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    };
    // SAFETY: the kernel reads one int during the call.
    let result = unsafe {
        let size = size_of::<libc::c_int>() as u32;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn path_mtu(socket: &UdpSocket) -> Option<u32> {
    let (level, option) = match socket.local_addr().ok()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let (mut value, mut size): (libc::c_int, u32) = (0, size_of::<libc::c_int>() as u32);
    // SAFETY: the kernel writes at most `size` bytes into `value`.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut size) };
    (result == 0).then_some(value as u32)
}
