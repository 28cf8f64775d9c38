// SPDX-License-Identifier: Apache-2.0
//! Ports on real interfaces: veth pairs in a network namespace.

#[path = "common/namespace.rs"]
mod namespace;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::lab::SOON;
use crate::common::program;
use apswitch_core::state::frame::Pool;
use apswitch_dataplane::control::*;
use apswitch_dataplane::port::{PacketPort, PortIo};
use namespace::{enter, ip, pair};

fn notice(events: &Events) -> (PortNumber, bool) {
    match events.notices.recv_blocking() {
        Ok(Notice::PortState { port, up }) => (port, up),
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
        std::thread::sleep(Duration::from_secs(1));
        let mut received: Vec<_> = std::iter::from_fn(|| pool.take()).take(64).collect();
        assert_eq!(to.receive(&mut received).unwrap().packets, number);
        for (index, packet) in received[..number].iter().enumerate() {
            assert_eq!(packet.frame.bytes(), [index as u8; 60]);
        }
    }
}

/// Hosts leave checksums to their interfaces' hardware, which a veth has not.
#[test]
fn checksums_that_were_left_to_hardware_are_there() {
    if !enter() {
        return;
    }
    pair("s1", "h1");
    ip("addr add 10.0.0.1/24 dev h1");
    ip("neigh add 10.0.0.2 dev h1 lladdr 02:00:00:00:00:02");
    let mut port = PacketPort::open("s1").unwrap();
    let mut pool = Pool::new(2048, 8);
    let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
    for length in [0, 1, 18, 1471, 1472] {
        socket.send_to(&vec![0xa5; length], "10.0.0.2:7").unwrap();
        let frame = receive(&mut port, &mut pool, &[2, 0, 0, 0, 0, 2]);
        assert_eq!((frame[23], frame.len().max(60)), (17, (42 + length).max(60)));
        assert!(is_whole(&frame), "{length} bytes: {frame:02x?}");
    }
    // Nobody answers: what counts is the first segment.
    let connecting = std::thread::spawn(|| {
        std::net::TcpStream::connect_timeout(&"10.0.0.2:7".parse().unwrap(), Duration::from_millis(50)).is_err()
    });
    let frame = receive(&mut port, &mut pool, &[2, 0, 0, 0, 0, 2]);
    assert!(frame[23] == 6 && is_whole(&frame), "{frame:02x?}");
    assert!(connecting.join().unwrap());
}

#[test]
fn ports_come_and_go_while_packets_flow() {
    if !enter() {
        return;
    }
    for number in 1..=3 {
        pair(&format!("s{number}"), &format!("h{number}"));
    }
    let port = |number: u16, link| PortConfig { number, interface: format!("s{number}"), link };
    let config = DataplaneConfig {
        ports: vec![port(1, None)],
        cpu_port: Some(510),
        priority_queues: 8,
        seed: 1,
        capture: None,
        aside: at_once,
    };
    let (dataplane, events) = Dataplane::start(config).unwrap();
    dataplane.commit_blocking(program("features")).unwrap();
    let refused = |config: PortConfig| dataplane.add_port_blocking(config).unwrap_err().to_string();
    assert!(refused(port(1, None)).contains("port 1 (s1) exists already"));
    assert!(refused(PortConfig { number: 9, ..port(1, None) }).contains("port 1 (s1) exists already"));
    assert!(refused(port(510, None)).contains("not the CPU port's"));
    assert!(refused(port(9, None)).contains("no such interface `s9`"));

    // What is for a port that is not there is dropped, and passes once it is.
    let mut pool = Pool::new(2048, 16);
    let mut h1 = PacketPort::open("h1").unwrap();
    let send = |h1: &mut PacketPort, pool: &mut Pool, to: u8| {
        // Kind 0x15 goes to the port that is its value (see testdata/programs/features.p4).
        let mut packet = pool.take().unwrap();
        packet.frame.set(&[&[0x15, 0, 0, 0, 0, to][..], &[7; 54]].concat());
        let mut packets = [packet];
        h1.send(&mut packets).unwrap();
        packets.into_iter().for_each(|packet| pool.give(packet));
    };
    let wait_for = |what: &str, found: &dyn Fn() -> bool| {
        let deadline = Instant::now() + SOON;
        while !found() {
            assert!(Instant::now() < deadline, "{what}: {}", dataplane.drops());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    send(&mut h1, &mut pool, 2);
    wait_for("nobody is there", &|| dataplane.drops().no_port == 1);
    dataplane.add_port_blocking(port(2, None)).unwrap();
    // A minute for each bit: it keeps what it gets.
    dataplane.add_port_blocking(port(3, Some(LinkConfig { rate: Some(1), ..Default::default() }))).unwrap();
    assert_eq!(dataplane.port_numbers(), [1, 2, 3]);
    let mut h2 = PacketPort::open("h2").unwrap();
    send(&mut h1, &mut pool, 2);
    let answer = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(receive(&mut h2, &mut pool, &answer)[14], 0x15);
    (0..5).for_each(|_| send(&mut h1, &mut pool, 3));
    wait_for("four wait", &|| dataplane.ports()[2].stats.queue_packets == 4);

    // Gone, with what waits there: four in the queue and one on the wire. The others go on.
    dataplane.remove_port_blocking(3).unwrap();
    assert_eq!((dataplane.port_numbers(), dataplane.drops().port_removed), (vec![1, 2], 5));
    assert!(dataplane.remove_port_blocking(3).unwrap_err().to_string().contains("no such port 3"));
    send(&mut h1, &mut pool, 3);
    wait_for("nobody is there again", &|| dataplane.drops().no_port == 2);
    send(&mut h1, &mut pool, 2);
    receive(&mut h2, &mut pool, &answer);
    // In the place of another.
    dataplane.remove_port_blocking(1).unwrap();
    dataplane.add_port_blocking(PortConfig { number: 7, ..port(1, None) }).unwrap();
    send(&mut h1, &mut pool, 2);
    assert_eq!(receive(&mut h2, &mut pool, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 7])[14], 0x15);
    // It follows its interface as the others do.
    ip("link set h1 down");
    assert_eq!(notice(&events), (7, false));
    dataplane.stop();
}

/// The checksum of the UDP or TCP segment in an IPv4 frame is right (RFC 1071): with it everything sums up to nothing.
fn is_whole(frame: &[u8]) -> bool {
    let end = 14 + u16::from_be_bytes([frame[16], frame[17]]) as usize;
    let length = (end - 34) as u16;
    let covered = [&frame[26..34], &[0, frame[23]], &length.to_be_bytes(), &frame[34..end]].concat();
    common::internet_checksum(&covered) == 0
}

#[test]
fn mtu_raised_after_the_start_lets_longer_frames_pass() {
    if !enter() {
        return;
    }
    pair("s1", "h1");
    pair("s2", "h2");
    pair("s3", "h3");
    let port =
        |number: u16, name: &str| PortConfig { number, interface: name.into(), link: Some(LinkConfig::default()) };
    let ports = vec![port(1, "s1"), port(2, "s2")];
    let (cpu_port, capture, aside) = (None, None, at_once as Aside);
    let config = DataplaneConfig { ports, cpu_port, priority_queues: 8, seed: 1, capture, aside };
    let (dataplane, _events) = Dataplane::start(config).unwrap();
    dataplane.commit_blocking(program("features")).unwrap();
    let mut pool = Pool::new(9018, 16);
    let mut h1 = PacketPort::open("h1").unwrap();
    let mut passes = |length: usize, to: u8| {
        let mut far = PacketPort::open(&format!("h{to}")).unwrap();
        // Kind 0x15 goes to the port that is its value (see testdata/programs/features.p4).
        let mut request = [&[0x15, 0, 0, 0, 0, to][..], &vec![7; length]].concat();
        let deadline = Instant::now() + SOON;
        let mut packets: Vec<_> = (0..2).filter_map(|_| pool.take()).collect();
        let mut passed = false;
        // The switch has to notice first.
        while !passed && Instant::now() < deadline {
            request[20] = request[20].wrapping_add(1);
            packets[0].frame.set(&request);
            let _ = h1.send(&mut packets[..1]);
            std::thread::sleep(Duration::from_millis(10));
            while far.receive(&mut packets[1..]).is_ok_and(|received| received.packets > 0) {
                passed |= packets[1].frame.len() > length;
            }
        }
        packets.into_iter().for_each(|packet| pool.give(packet));
        passed
    };
    assert!(passes(1400, 2));
    ["h1", "s1", "s2", "h2"].iter().for_each(|name| ip(&format!("link set {name} mtu 9000")));
    assert!(passes(8000, 2), "{}", dataplane.drops());
    assert!(passes(60, 2) && passes(8000, 2));
    // And a port with the largest of all.
    ["s3", "h3"].iter().for_each(|name| ip(&format!("link set {name} mtu 20000")));
    dataplane.add_port_blocking(port(3, "s3")).unwrap();
    assert!(passes(8000, 3));
    dataplane.stop();
}

#[test]
fn ports_follow_their_interfaces() {
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
        aside: at_once,
    };
    let missing = Dataplane::start(config(ports(["s1", "nowhere"]))).err().unwrap().to_string();
    assert_eq!(missing, "port 2: there is no interface `nowhere`: create it or correct the -i option");

    let (dataplane, events) = Dataplane::start(config(ports(["s1", "s2"]))).unwrap();
    dataplane.commit_blocking(program("features")).unwrap();
    let mut pool = Pool::new(2048, 8);
    let mut request = vec![0xff; 60];
    request[1] = 0x55;
    let mut round = |h1: &mut PacketPort, h2: &mut PacketPort| {
        let mut packet = pool.take().unwrap();
        packet.frame.set(&request);
        h1.send(&mut [packet]).unwrap();
        // No answer's value, an ordinary packet from port 1 (see testdata/programs/features.p4), then the request.
        let frame = receive(h2, &mut pool, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(&frame[14..], &request[..]);
    };
    let mut h1 = PacketPort::open("h1").unwrap();
    let mut h2 = PacketPort::open("h2").unwrap();
    round(&mut h1, &mut h2);

    // Down and up again; the kernel tells of it, nobody has to look.
    ip("link set s1 down");
    assert_eq!(notice(&events), (1, false));
    assert!(!dataplane.ports()[0].up);
    ip("link set s1 up");
    assert_eq!(notice(&events), (1, true));
    let mut h1 = PacketPort::open("h1").unwrap();
    round(&mut h1, &mut h2);

    // The other end down and up again: no carrier meanwhile.
    ip("link set h1 down");
    assert_eq!(notice(&events), (1, false));
    ip("link set h1 up");
    assert_eq!(notice(&events), (1, true));
    let mut h1 = PacketPort::open("h1").unwrap();
    round(&mut h1, &mut h2);

    // Gone, and another one in its place.
    ip("link del s2");
    assert_eq!(notice(&events), (2, false));
    let mut packet = Pool::new(2048, 1).take().unwrap();
    packet.frame.set(&request);
    h1.send(&mut [packet]).unwrap();
    pair("s2", "h2");
    assert_eq!(notice(&events), (2, true));
    let mut h2 = PacketPort::open("h2").unwrap();
    round(&mut h1, &mut h2);

    let stats = dataplane.ports()[1].stats;
    assert!(stats.tx_packets >= 3, "{stats:?}");
    dataplane.stop();
}

/// Mininet's TCLink, p4lang/tutorials and many scripts give a switch port its rate by `tc`.
#[test]
fn a_queue_discipline_of_an_interface_is_its_ports_link_model() {
    if !enter() {
        return;
    }
    for number in 1..=3 {
        pair(&format!("s{number}"), &format!("h{number}"));
    }
    let tc = |arguments: &str| {
        let done = Command::new("tc").args(arguments.split(' ')).status().expect("iproute2 is installed");
        assert!(done.success(), "tc {arguments}");
    };
    let given = LinkConfig { rate: Some(2_000_000), ..Default::default() };
    let port = |number: u16, link| PortConfig { number, interface: format!("s{number}"), link };
    // As Mininet's TCLink does it.
    tc("qdisc add dev s1 root handle 5:0 htb default 1");
    tc("class add dev s1 parent 5:0 classid 5:1 htb rate 0.5Mbit burst 15k");
    let config = DataplaneConfig {
        ports: vec![port(1, None), port(2, Some(given.clone())), port(3, None)],
        cpu_port: None,
        priority_queues: 8,
        seed: 1,
        capture: None,
        aside: at_once,
    };
    let (dataplane, _events) = Dataplane::start(config).unwrap();
    let until = |number: usize, what: &dyn Fn(&Option<LinkConfig>) -> bool| {
        let deadline = Instant::now() + SOON;
        loop {
            let link = dataplane.views().remove(number - 1).1.link;
            if what(&link) {
                return link;
            }
            assert!(Instant::now() < deadline, "port {number} has {link:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let rate = |rate: u64| move |link: &Option<LinkConfig>| link.as_ref().is_some_and(|link| link.rate == Some(rate));
    let link = until(1, &rate(500_000)).unwrap();
    assert!(link.limit_packets == 1000 && link.burst < 2000, "{link:?}");
    // While it runs: another rate, a queue below it, a second class, none.
    tc("class change dev s1 parent 5:0 classid 5:1 htb rate 3Mbit burst 15k");
    until(1, &rate(3_000_000));
    tc("qdisc add dev s1 parent 5:1 handle 10: pfifo limit 7");
    until(1, &|link| link.as_ref().is_some_and(|link| link.limit_packets == 7));
    tc("class add dev s1 parent 5:0 classid 5:2 htb rate 1Mbit");
    until(1, &|link| *link == Some(LinkConfig::default()));
    tc("qdisc del dev s1 root");
    tc("qdisc add dev s1 root tbf rate 40gbit burst 125000000 limit 12000");
    let link = until(1, &rate(40_000_000_000)).unwrap();
    assert!(link.limit_bytes == Some(12_000) && link.burst.abs_diff(125_000_000) < 1000, "{link:?}");
    tc("qdisc del dev s1 root");
    until(1, &|link| *link == Some(LinkConfig::default()));
    // A port that was given a link model keeps it, and one whose discipline no link model is has none.
    tc("qdisc add dev s2 root tbf rate 1mbit burst 5000 latency 50ms");
    tc("qdisc add dev s3 root tbf rate 1mbit burst 5000 latency 50ms peakrate 2mbit mtu 1540");
    tc("qdisc add dev s1 root tbf rate 1mbit burst 5000 latency 50ms");
    until(1, &rate(1_000_000));
    assert_eq!(until(2, &|_| true), Some(given));
    assert_eq!(until(3, &|_| true), None);
    dataplane.stop();
}
