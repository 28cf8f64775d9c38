// SPDX-License-Identifier: Apache-2.0
//! Traffic for `make bench`: a sender, a latency probe and the bare forwarder that switches are compared with. All
//! three use the switch's own ports, so that what differs is the switch.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use apswitch_core::state::frame::{Packet, Pool};
use apswitch_dataplane::port::{BATCH, PacketPort, PortIo, read_pcap};
use clap::Parser;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Bytes of the longest frame.
const CAPACITY: usize = 2048;
/// A probe that has not come back by then is lost.
const LOST: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sends, forwards and times frames on network interfaces, for benchmarks.
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Send the frames of a pcap file over and over; prints {"packets", "seconds"}.
    Send {
        interface: String,
        frames: PathBuf,
        /// Packets per second; 0: as fast as it can.
        #[arg(long, default_value_t = 0)]
        rate: u64,
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// Send one frame after the other and time each until it arrives; prints {"p50_us", "p99_us", "lost"}.
    Latency {
        from: String,
        to: String,
        frames: PathBuf,
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// Carry every frame from one interface to the other and back, in batches, and do nothing else.
    Forward { left: String, right: String },
}

fn main() {
    let result = match Command::parse() {
        Command::Send { interface, frames, rate, seconds } => send(&interface, &frames, rate, seconds),
        Command::Latency { from, to, frames, count } => latency(&from, &to, &frames, count),
        Command::Forward { left, right } => forward(&left, &right),
    };
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn open(interface: &str) -> Result<PacketPort> {
    PacketPort::open(interface).map_err(|e| format!("interface {interface}: {e}").into())
}

/// Boxed, because that is what ports exchange.
#[allow(clippy::vec_box)]
fn batch(pool: &mut Pool) -> Vec<Box<Packet>> {
    (0..BATCH).filter_map(|_| pool.take()).collect()
}

/// The frames of a pcap file, at least one.
fn frames_of(path: &Path) -> Result<Vec<Vec<u8>>> {
    let frames: Vec<_> = read_pcap(path)?.into_iter().map(|record| record.frame).collect();
    if frames.is_empty() { Err(format!("{}: holds no frame", path.display()).into()) } else { Ok(frames) }
}

fn send(interface: &str, frames: &Path, rate: u64, seconds: f64) -> Result<()> {
    let mut port = open(interface)?;
    let mut pool = Pool::new(CAPACITY, usize::MAX);
    // Whole batches, so that the loop below only sends; the frames stay as many as they are and in order.
    let frames = frames_of(frames)?;
    let rounds = BATCH.div_ceil(frames.len());
    let count = frames.len() * rounds;
    let mut packets = Vec::with_capacity(count);
    for frame in frames.iter().cycle().take(count) {
        let mut packet = pool.take().ok_or("out of memory")?;
        if !packet.frame.set(frame) {
            return Err(format!("a frame has {} bytes, more than {CAPACITY}", frame.len()).into());
        }
        packets.push(packet);
    }
    nix::sys::prctl::set_timerslack(1)?;
    let start = Instant::now();
    let mut sent = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        if rate > 0 {
            let due = start + Duration::from_secs_f64(sent as f64 / rate as f64);
            // Asleep rather than spinning: others need the CPU, too.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let at = (sent % packets.len() as u64) as usize;
        let end = (at + BATCH).min(packets.len());
        // ENOBUFS: the other end is slower; the frame counts as offered when it is taken.
        sent += port.send(&mut packets[at..end]).unwrap_or(0) as u64;
    }
    println!("{{\"packets\": {sent}, \"seconds\": {}}}", start.elapsed().as_secs_f64());
    Ok(())
}

fn latency(from: &str, to: &str, frames: &Path, count: usize) -> Result<()> {
    let (mut from, mut to) = (open(from)?, open(to)?);
    let mut pool = Pool::new(CAPACITY, 2 * BATCH);
    let (mut probe, mut arrived) = (batch(&mut pool), batch(&mut pool));
    let mut times = Vec::with_capacity(count);
    for frame in frames_of(frames)?.iter().cycle().take(count) {
        // Long enough for the switch to fall asleep: this is the latency of an idle switch.
        std::thread::sleep(Duration::from_micros(500));
        while to.receive(&mut arrived)?.packets > 0 {}
        probe[0].frame.set(frame);
        let start = Instant::now();
        from.send(&mut probe[..1])?;
        while start.elapsed() < LOST {
            let received = to.receive(&mut arrived)?.packets;
            if arrived[..received].iter().any(|packet| packet.frame.bytes() == frame.as_slice()) {
                times.push(start.elapsed().as_secs_f64() * 1e6);
                break;
            }
        }
    }
    times.sort_by(f64::total_cmp);
    if times.is_empty() {
        return Err("no frame arrived".into());
    }
    let part = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    println!("{{\"p50_us\": {}, \"p99_us\": {}, \"lost\": {}}}", part(0.5), part(0.99), count - times.len());
    Ok(())
}

fn forward(left: &str, right: &str) -> Result<()> {
    let mut ports = [open(left)?, open(right)?];
    let mut pool = Pool::new(CAPACITY, BATCH);
    let mut packets = batch(&mut pool);
    loop {
        let mut idle = true;
        for side in 0..2 {
            let received = ports[side].receive(&mut packets)?.packets;
            idle &= received == 0;
            let mut sent = 0;
            while sent < received {
                // Frames that the interface does not take are dropped, as on any link.
                sent += ports[1 - side].send(&mut packets[sent..received]).unwrap_or(0).max(1);
            }
        }
        if idle {
            let mut ready = ports.each_ref().map(|port| PollFd::new(port.fd(), PollFlags::POLLIN));
            poll(&mut ready, PollTimeout::NONE)?;
        }
    }
}
