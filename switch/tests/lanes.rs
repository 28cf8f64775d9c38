// SPDX-License-Identifier: Apache-2.0
//! Ports that threads of their own serve, on veth pairs in a network namespace.
// Boxed, because that is what ports exchange.
#![allow(clippy::vec_box)]

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use apswitch::control::*;
use apswitch::port::{BATCH, LanedPort, Packet, PacketPort, Pool, PortCells, PortIo};
use common::program;
use namespace::{enter, ip, pair};

const LANES: usize = 2;
const FLOWS: u16 = 64;
const FRAME: usize = 100;
/// Where a frame says what it is: behind Ethernet, IPv4 and UDP.
const NUMBER: usize = 14 + 20 + 8;

/// A packet `number` of an IPv4 flow; `request`: its first bytes, which programs of ours read.
fn frame(flow: u16, number: u32, request: [u8; 8]) -> Vec<u8> {
    let mut frame = vec![0; FRAME];
    frame[..8].copy_from_slice(&request);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(FRAME as u16 - 14).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&(1000 + flow).to_be_bytes());
    frame[36..38].copy_from_slice(&5001u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(FRAME as u16 - 34).to_be_bytes());
    frame[NUMBER..NUMBER + 4].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Flow and number of a frame that has so many bytes more in front.
fn read(frame: &[u8], front: usize) -> (u16, u32) {
    let frame = &frame[front..];
    assert_eq!(frame.len(), FRAME);
    let flow = u16::from_be_bytes(frame[34..36].try_into().unwrap()) - 1000;
    (flow, u32::from_be_bytes(frame[NUMBER..NUMBER + 4].try_into().unwrap()))
}

/// An interface of the test, with memory for a batch.
struct Host {
    port: PacketPort,
    packets: Vec<Box<Packet>>,
}

impl Host {
    fn new(interface: &str) -> Host {
        Host { port: PacketPort::open(interface).unwrap(), packets: batch() }
    }

    /// At most a batch.
    fn send(&mut self, frames: &[Vec<u8>]) {
        for (packet, frame) in self.packets.iter_mut().zip(frames) {
            assert!(packet.frame.set(frame));
        }
        let mut sent = 0;
        while sent < frames.len() {
            // Busy: the other end of the pair is slow.
            sent += self.port.send(&mut self.packets[sent..frames.len()]).unwrap_or(0);
        }
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let received = self.port.receive(&mut self.packets).unwrap().packets;
        self.packets[..received].iter().map(|packet| packet.frame.bytes().to_vec()).collect()
    }
}

fn batch() -> Vec<Box<Packet>> {
    let mut pool = Pool::new(2048, BATCH);
    std::iter::from_fn(|| pool.take()).collect()
}

/// Calls until it has what is asked for. Gives up after 10 s in which it could run: machines may stop for longer.
fn soon<T>(mut find: impl FnMut() -> Option<T>) -> T {
    for _ in 0..100_000 {
        if let Some(found) = find() {
            return found;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("too late");
}

/// Threads of this process whose names begin so.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

/// Names differ from test to test, which run in one process and count its threads.
fn start(interfaces: [&str; 2], links: [Option<LinkConfig>; 2], program: Program) -> (Dataplane, Events) {
    let ports = links.into_iter().zip(interfaces).zip(1..);
    let ports = ports.map(|((link, interface), number)| PortConfig { number, interface: interface.to_string(), link });
    let config = DataplaneConfig {
        ports: ports.collect(),
        cpu_port: None,
        priority_queues: 8,
        seed: 1,
        capture: None,
        io_threads: LANES,
    };
    let (dataplane, events) = Dataplane::start(config).unwrap();
    dataplane.commit_blocking(program).unwrap();
    (dataplane, events)
}

#[test]
fn a_port_spreads_flows_over_its_threads_and_ends_them() {
    if !enter() {
        return;
    }
    pair("t1", "h1");
    let cells: Arc<PortCells> = Arc::default();
    let mut port = LanedPort::open("t1", LANES, 2048, &cells).unwrap();
    // A second one on the same interface has a group of its own, and so gets all frames, too.
    let mut other = LanedPort::open("t1", LANES, 2048, &Arc::default()).unwrap();
    // A thread names itself.
    soon(|| (threads("io-t1-") == 2 * LANES).then_some(()));
    let mut host = Host::new("h1");
    const ROUNDS: u32 = 30;
    for number in 0..ROUNDS {
        host.send(&(0..FLOWS).map(|flow| frame(flow, number, [0; 8])).collect::<Vec<_>>());
    }
    let taken = |port: &mut LanedPort| {
        let (mut packets, mut lanes, mut next) = (batch(), HashMap::new(), HashMap::new());
        for _ in 0..ROUNDS * FLOWS as u32 {
            soon(|| (port.receive(&mut packets[..1]).unwrap().packets == 1).then_some(()));
            let (flow, number) = read(packets[0].frame.bytes(), 0);
            let lane = packets[0].state.lane;
            assert_eq!(*lanes.entry(flow).or_insert(lane), lane, "flow {flow}");
            assert_eq!(number, std::mem::replace(next.entry(flow).or_insert(0), number + 1), "flow {flow}");
        }
        let by_lane = [0, 1].map(|lane| lanes.values().filter(|taken| **taken == lane).count());
        // 64 flows: fewer than 10 on one of two lanes come once in 10^9 hashes.
        assert!(by_lane.iter().all(|flows| *flows >= 10), "{by_lane:?}");
        packets
    };
    taken(&mut other);
    let mut packets = taken(&mut port);
    assert_eq!((port.missed(), port.receive(&mut packets).unwrap().packets), (0, 0));

    // Sent before it ends, and counted: all but the one that is longer than the interface's MTU.
    let long = vec![0; 2000];
    for (index, packet) in packets[..10].iter_mut().enumerate() {
        packet.frame.set(if index == 4 { &long } else { &long[..60] });
        packet.state.lane = index as u8 % 2;
    }
    assert_eq!(port.send(&mut packets[..10]).unwrap(), 10);
    drop(port);
    let counted = [&cells.tx_packets, &cells.tx_bytes, &cells.tx_errors].map(|cell| cell.load(Relaxed));
    assert_eq!(counted, [9, 9 * 60, 1]);
    // A thread that was joined stays in /proc for a moment.
    soon(|| (threads("io-t1-") == LANES).then_some(()));

    // An interface that goes down says so once all that came before is taken.
    ip("link set t1 down");
    let error = soon(|| other.receive(&mut packets).err());
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
    drop(other);
    soon(|| (threads("io-t1-") == 0).then_some(()));
}

#[test]
fn nothing_is_lost_reordered_within_a_flow_or_miscounted() {
    if !enter() {
        return;
    }
    pair("w1", "h1");
    pair("w2", "h2");
    let wire = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/links/wire.json")).unwrap();
    let (dataplane, _events) = start(["w1", "w2"], [None, None], Program::load(&wire).unwrap());
    let mut hosts = [Host::new("h1"), Host::new("h2")];
    const ROUNDS: u32 = 400;
    // Fewer in flight than the lanes hold, however slow the machine is.
    const IN_FLIGHT: u64 = 512;
    let sent = ROUNDS as u64 * FLOWS as u64;
    let mut next = [vec![0; FLOWS as usize], vec![0; FLOWS as usize]];
    let mut arrived = [0u64; 2];
    for number in 0..=ROUNDS {
        if number < ROUNDS {
            let frames: Vec<_> = (0..FLOWS).map(|flow| frame(flow, number, [0; 8])).collect();
            hosts.iter_mut().for_each(|host| host.send(&frames));
        }
        // After the last round all have to be there.
        let due = if number < ROUNDS { ((number as u64 + 2) * FLOWS as u64).saturating_sub(IN_FLIGHT) } else { sent };
        soon(|| {
            for ((host, next), arrived) in hosts.iter_mut().zip(&mut next).zip(&mut arrived) {
                for frame in host.receive() {
                    let (flow, number) = read(&frame, 0);
                    assert_eq!(number, std::mem::replace(&mut next[flow as usize], number + 1), "flow {flow}");
                    *arrived += 1;
                }
            }
            arrived.iter().all(|arrived| *arrived >= due).then_some(())
        });
    }
    assert_eq!(arrived, [sent, sent]);
    dataplane.stop();
    for port in dataplane.ports() {
        let stats = port.stats;
        assert_eq!((stats.rx_packets, stats.rx_bytes, stats.rx_errors), (sent, sent * FRAME as u64, 0));
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_errors), (sent, sent * FRAME as u64, 0));
    }
    soon(|| (threads("io-w") == 0).then_some(()));
}

#[test]
fn queues_decide_the_order_on_the_wire_also_over_flows() {
    if !enter() {
        return;
    }
    pair("q1", "h1");
    pair("q2", "h2");
    let fast = LinkConfig { rate: Some(1_000_000_000), limit_packets: 10_000, ..Default::default() };
    // A packet of each queue may leave, the others wait until the queues are told otherwise.
    let mut slow = fast.clone();
    (slow.queues[0].rate, slow.queues[7].rate) = (Some(1), Some(1));
    let (dataplane, _events) = start(["q1", "q2"], [None, Some(slow)], program("features"));
    let (mut h1, mut h2) = (Host::new("h1"), Host::new("h2"));
    // See testdata/programs/features.p4: the second byte is the queue.
    let request = |queue: u8| [0x14, queue, 0, 0, 0, 0, 0, 0];
    h1.send(&[frame(0, 0, request(0)), frame(FLOWS, 0, request(7))]);
    let queues = || dataplane.views().remove(1).1.queues;
    soon(|| (queues()[0].sent_packets + queues()[7].sent_packets == 2).then_some(()));
    const EACH: u32 = 192;
    // Many flows in the lower queue, and a single one, of one lane, in the higher.
    for number in (0..EACH).step_by(BATCH) {
        h1.send(&(0..BATCH as u16).map(|flow| frame(flow, 1 + number / BATCH as u32, request(0))).collect::<Vec<_>>());
    }
    for number in (0..EACH).step_by(BATCH) {
        h1.send(
            &(number..number + BATCH as u32).map(|number| frame(FLOWS, 1 + number, request(7))).collect::<Vec<_>>(),
        );
    }
    soon(|| (queues()[0].packets + queues()[7].packets == 2 * EACH as u64).then_some(()));
    dataplane.set_links_blocking(vec![(2, fast)]).unwrap();
    let mut arrived = Vec::new();
    soon(|| {
        // The program puts its answer of 14 bytes in front.
        arrived.extend(h2.receive().iter().map(|frame| read(frame, 14)));
        (arrived.len() == 2 + 2 * EACH as usize).then_some(())
    });
    let (first, second) = arrived[2..].split_at(EACH as usize);
    assert_eq!(first, (1..=EACH).map(|number| (FLOWS, number)).collect::<Vec<_>>());
    let mut next = vec![1; FLOWS as usize];
    for (flow, number) in second {
        assert_eq!(*number, std::mem::replace(&mut next[*flow as usize], number + 1), "flow {flow}");
    }
    dataplane.stop();
}
