// SPDX-License-Identifier: Apache-2.0
//! The program `apswitch` and its log: nobody who does not read it stops packets, and packets do not fill it.

#[path = "../../dataplane/tests/common/namespace.rs"]
mod namespace;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use apswitch_core::state::frame::Pool;
use apswitch_dataplane::port::{PacketPort, PortIo};
use namespace::{enter, ip, pair};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Deadline for what takes no time on an idle machine.
const SOON: Duration = Duration::from_secs(120);

/// The program between h1 and h2 with `features.p4`, whose kind 0x12 logs a line for each packet; ended when dropped.
struct Running(Child);

impl Running {
    fn start() -> Running {
        ip("link set lo up");
        pair("s1", "h1");
        pair("s2", "h2");
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
        let child = Command::new(env!("CARGO_BIN_EXE_apswitch"))
            .args(["-i", "1@s1", "-i", "2@s2", program, "--grpc-server-addr", "127.0.0.1:9559"])
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn();
        Running(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request that is logged, until it comes out at the other end; false: it does not.
fn passes(from: &mut PacketPort, to: &mut PacketPort, pool: &mut Pool, number: u32) -> bool {
    let mut packets: Vec<_> = (0..2).filter_map(|_| pool.take()).collect();
    let request = [&[0x12, 0][..], &number.to_be_bytes(), &[0; 54]].concat();
    let deadline = Instant::now() + SOON;
    let mut passed = false;
    while !passed && Instant::now() < deadline {
        packets[0].frame.set(&request);
        from.send(&mut packets[..1]).unwrap();
        for _ in 0..10 {
            sleep(Duration::from_micros(100));
            let received = to.receive(&mut packets[1..]).map_or(0, |received| received.packets);
            passed |= received == 1 && packets[1].frame.bytes().get(16..20) == Some(&number.to_be_bytes());
        }
    }
    packets.into_iter().for_each(|packet| pool.give(packet));
    passed
}

#[test]
fn a_log_that_nobody_reads_stops_no_packet() {
    if !enter() {
        return;
    }
    let mut running = Running::start();
    let (mut from, mut to) = (PacketPort::open("h1").unwrap(), PacketPort::open("h2").unwrap());
    let mut pool = Pool::new(2048, 256);
    assert!(passes(&mut from, &mut to, &mut pool, 1000), "the switch does not start");
    // Far more than the pipe holds and than may wait: a second has 100 lines of packets, a signal two and more.
    let mut batch: Vec<_> = (0..64).filter_map(|_| pool.take()).collect();
    batch.iter_mut().for_each(|packet| assert!(packet.frame.set(&[&[0x12, 0, 0, 0, 1, 0][..], &[0; 54]].concat())));
    for _ in 0..300 {
        let _ = from.send(&mut batch);
        running.signal(Signal::SIGUSR1);
        sleep(Duration::from_millis(2));
    }
    while to.receive(&mut batch).is_ok_and(|received| received.packets > 0) {}
    drop(batch);
    for number in 2000..2050 {
        assert!(passes(&mut from, &mut to, &mut pool, number), "packet {number} was not forwarded");
    }
    // It ends, too, though its last lines find no reader.
    running.signal(Signal::SIGTERM);
    let deadline = Instant::now() + SOON;
    while running.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the switch does not end");
        sleep(Duration::from_millis(10));
    }
    let mut log = Vec::new();
    running.0.stderr.take().unwrap().read_to_end(&mut log).unwrap();
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("value 1000 index 0"), "{log}");
    assert!(log.contains("dropped packets by reason: "), "{log}");
}

#[test]
fn port_that_goes_down_is_logged_once() {
    if !enter() {
        return;
    }
    let mut running = Running::start();
    let mut lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let mut until = |text: &str| {
        let mut read = Vec::new();
        while !read.last().is_some_and(|line: &String| line.contains(text)) {
            read.push(lines.next().expect("the switch has ended").unwrap());
        }
        read
    };
    until("P4Runtime on");
    ip("link set h1 down");
    until("port 1 (s1) is down");
    running.signal(Signal::SIGTERM);
    // The counts of the ports are the last lines but one.
    let rest = until("dropped packets by reason: ");
    assert!(!rest.iter().any(|line| line.contains("is down")), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("port 1 (s1): received 0 packets (0 bytes), sent ")), "{rest:?}");
}
