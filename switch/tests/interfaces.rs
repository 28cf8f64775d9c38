// SPDX-License-Identifier: Apache-2.0
//! Ports on real interfaces: veth pairs in a network namespace.

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use std::time::{Duration, Instant};

use apswitch::control::*;
use apswitch::port::{PacketPort, Pool, PortIo};
use common::lab::SOON;
use common::program;
use namespace::{enter, ip, pair};

fn notice(events: &mut Events) -> (PortNumber, bool) {
    match events.notices.blocking_recv() {
        Some(Notice::PortState { port, up }) => (port, up),
        other => panic!("{other:?}"),
    }
}

/// The next frame of the switch at an interface; the kernel's own chatter begins with other bytes.
fn receive(port: &mut PacketPort, pool: &mut Pool, begins: &[u8]) -> Vec<u8> {
    let mut packets = vec![pool.take().unwrap()];
    let deadline = Instant::now() + SOON;
    loop {
        let received = port.receive(&mut packets).map_or(0, |received| received.packets);
        let bytes = packets[0].frame.bytes();
        if received == 1 && bytes.starts_with(begins) {
            let bytes = bytes.to_vec();
            pool.give(packets.remove(0));
            return bytes;
        }
        assert!(Instant::now() < deadline, "nothing arrived");
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn one_call_takes_all_that_have_come() {
    if !enter() {
        return;
    }
    pair("one", "two");
    let (mut from, mut to) = (PacketPort::open("one").unwrap(), PacketPort::open("two").unwrap());
    let mut pool = Pool::new(2048, 1024);
    for number in [1, 40, 64, 2, 5] {
        let mut frames: Vec<_> = std::iter::from_fn(|| pool.take()).take(number).collect();
        for (index, packet) in frames.iter_mut().enumerate() {
            assert!(packet.frame.set(&[index as u8; 60]));
        }
        assert_eq!(from.send(&mut frames).unwrap(), number);
        std::thread::sleep(Duration::from_millis(100));
        let mut received: Vec<_> = std::iter::from_fn(|| pool.take()).take(64).collect();
        assert_eq!(to.receive(&mut received).unwrap().packets, number);
        for (index, packet) in received[..number].iter().enumerate() {
            assert_eq!(packet.frame.bytes(), [index as u8; 60]);
        }
    }
}

#[test]
fn ports_follow_their_interfaces() {
    follow(0);
}

#[test]
fn ports_with_threads_of_their_own_follow_their_interfaces() {
    follow(2);
}

fn follow(io_threads: usize) {
    if !enter() {
        return;
    }
    pair("s1", "h1");
    pair("s2", "h2");
    let ports = |names: [&str; 2]| {
        let port = |(index, name): (usize, &&str)| PortConfig {
            number: index as u16 + 1,
            interface: name.to_string(),
            link: None,
        };
        names.iter().enumerate().map(port).collect()
    };
    let config = move |ports| DataplaneConfig {
        ports,
        cpu_port: Some(510),
        priority_queues: 8,
        seed: 1,
        capture: None,
        io_threads,
    };
    let missing = Dataplane::start(config(ports(["s1", "nowhere"]))).err().unwrap().to_string();
    assert_eq!(missing, "port 2: there is no interface `nowhere`: create it or correct the -i option");

    let (dataplane, mut events) = Dataplane::start(config(ports(["s1", "s2"]))).unwrap();
    dataplane.commit_blocking(program("features")).unwrap();
    let mut pool = Pool::new(2048, 8);
    let mut request = vec![0xff; 60];
    request[1] = 0x55;
    let mut round = |h1: &mut PacketPort, h2: &mut PacketPort| {
        let mut packet = pool.take().unwrap();
        packet.frame.set(&request);
        h1.send(&mut [packet]).unwrap();
        // No answer's value, an ordinary packet from port 1 (see tests/programs/features.p4), then the request.
        let frame = receive(h2, &mut pool, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(&frame[14..], &request[..]);
    };
    let mut h1 = PacketPort::open("h1").unwrap();
    let mut h2 = PacketPort::open("h2").unwrap();
    round(&mut h1, &mut h2);

    // Down and up again.
    ip("link set s1 down");
    assert_eq!(notice(&mut events), (1, false));
    assert!(!dataplane.ports()[0].up);
    ip("link set s1 up");
    assert_eq!(notice(&mut events), (1, true));
    let mut h1 = PacketPort::open("h1").unwrap();
    round(&mut h1, &mut h2);

    // The other end down and up again: no carrier meanwhile.
    ip("link set h1 down");
    assert_eq!(notice(&mut events), (1, false));
    ip("link set h1 up");
    assert_eq!(notice(&mut events), (1, true));
    let mut h1 = PacketPort::open("h1").unwrap();
    round(&mut h1, &mut h2);

    // Gone, and another one in its place.
    ip("link del s2");
    assert_eq!(notice(&mut events), (2, false));
    let mut packet = Pool::new(2048, 1).take().unwrap();
    packet.frame.set(&request);
    h1.send(&mut [packet]).unwrap();
    pair("s2", "h2");
    assert_eq!(notice(&mut events), (2, true));
    let mut h2 = PacketPort::open("h2").unwrap();
    round(&mut h1, &mut h2);

    let stats = dataplane.ports()[1].stats;
    assert!(stats.tx_packets >= 3, "{stats:?}");
    dataplane.stop();
}
