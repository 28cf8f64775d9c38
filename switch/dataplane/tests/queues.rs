// SPDX-License-Identifier: Apache-2.0
//! No hidden buffer: every packet leaves at the time, in the order and with the company that the arithmetic of the
//! link says, however late the timers are. Time is virtual.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::program;
use apswitch_core::dataplane_ops::Outbox;
use apswitch_core::link::{Link, LinkConfig, QUEUES, QueueConfig};
use apswitch_core::machine::Machine;
use apswitch_core::port::{QueueStats, quantile};
use apswitch_core::state::Shared;
use apswitch_core::state::frame::Pool;
use apswitch_core::v1model::{Port, Switch};
use async_channel::bounded;
use proptest::prelude::*;

const SECOND: u128 = 1_000_000_000;

/// A packet that is offered to a link: when (ns), to which queue, how long (bytes).
type Offer = (u64, usize, u32);

/// Record of a link: (item, start, arrival) of what it sent, in order, and the items that it dropped.
#[derive(Debug, Default, PartialEq)]
struct Run {
    sent: Vec<(usize, u64, u64)>,
    dropped: Vec<usize>,
}

/// Egress drops one of `filter`; 0: none.
fn is_filtered(item: usize, filter: usize) -> bool {
    filter != 0 && item.is_multiple_of(filter)
}

/// Offers packets to a link whose timers are late.
fn run(config: &LinkConfig, offers: &[Offer], lateness: &[u64], filter: usize) -> Run {
    let mut link: Link<usize> = Link::new(config.clone(), 1);
    let mut late = lateness.iter().cycle();
    let (mut run, mut starts, mut now) = (Run::default(), VecDeque::new(), 0);
    let mut until = |link: &mut Link<usize>, run: &mut Run, end: u64| {
        while let Some(due) = link.deadline().filter(|due| *due <= end) {
            // Time never goes back, and never past the next offer.
            now = due.saturating_add(*late.next().unwrap()).max(now).min(end);
            while let Some(dequeued) = link.dequeue(now) {
                assert!(dequeued.enqueued <= dequeued.start && dequeued.start <= now);
                if !is_filtered(dequeued.item, filter) {
                    starts.push_back(dequeued.start);
                    link.transmit(offers[dequeued.item].2 as usize, dequeued.item);
                }
            }
            // The time of an arrival is not that of this call: the deadlines tell it.
            while let Some(at) = link.deadline()
                && let Some(item) = link.arrived(at.min(now))
            {
                run.sent.push((item, starts.pop_front().unwrap(), at));
            }
        }
        now = end;
    };
    for (item, &(at, queue, bytes)) in offers.iter().enumerate() {
        until(&mut link, &mut run, at);
        while link.enqueue(at, queue, bytes, item).is_err() {
            let last = link.push_out(queue, bytes);
            run.dropped.push(last.as_ref().map_or(item, |last| last.item));
            if last.is_none() {
                break;
            }
        }
    }
    until(&mut link, &mut run, u64::MAX);
    assert_eq!((link.packets(), link.bytes()), (0, 0));
    run
}

/// Computes the same by plain arithmetic in fractions: a token bucket of `rate` and `burst` in front of strict priority
/// queues.
fn expected(config: &LinkConfig, offers: &[Offer], filter: usize) -> Run {
    let rate = config.rate.unwrap() as u128;
    let burst = 8 * config.burst as u128 * SECOND / rate * rate;
    let (mut run, mut queues) = (Run::default(), vec![VecDeque::new(); QUEUES]);
    // When all is paid for, in ns * rate: bits * 10^9.
    let mut paid = 0u128;
    let mut until = |queues: &mut Vec<VecDeque<usize>>, run: &mut Run, end: u64| {
        while let Some(queue) = (0..QUEUES).rev().find(|&queue| !queues[queue].is_empty()) {
            let item = queues[queue][0];
            let start = ((paid / rate) as u64).max(offers[item].0);
            if start > end {
                return;
            }
            queues[queue].pop_front();
            let earliest = (offers[item].0 as u128 * rate).saturating_sub(burst);
            // A wire that had been idle starts anew at a whole ns.
            paid = if earliest / rate > paid / rate { earliest } else { paid };
            if is_filtered(item, filter) {
                continue;
            }
            paid += 8 * SECOND * (offers[item].2 as u128 + config.overhead as u128);
            run.sent.push((item, start, ((paid / rate) as u64).max(start) + config.delay_ns));
        }
    };
    for (item, &(at, queue, bytes)) in offers.iter().enumerate() {
        until(&mut queues, &mut run, at);
        let sizes = |queues: &[VecDeque<usize>]| queues.iter().flatten().map(|&item| offers[item].2).collect();
        let own: Vec<u32> = queues[queue].iter().map(|&item| offers[item].2).collect();
        let fits = |held: &[u32], packets: Option<u32>, limit: Option<u64>| {
            let total: u64 = held.iter().map(|&bytes| bytes as u64).sum();
            packets.is_none_or(|packets| held.len() < packets as usize)
                && limit.is_none_or(|limit| total + bytes as u64 <= limit)
        };
        let port = |held: Vec<u32>| fits(&held, Some(config.limit_packets), config.limit_bytes);
        let limits = &config.queues[queue];
        // What is not behind it cannot be pushed out.
        if !fits(&own, limits.limit_packets, limits.limit_bytes) || !port(sizes(&queues[queue..])) {
            run.dropped.push(item);
            continue;
        }
        while !port(sizes(&queues)) {
            run.dropped.extend(queues.iter_mut().find_map(VecDeque::pop_back));
        }
        queues[queue].push_back(item);
    }
    until(&mut queues, &mut run, u64::MAX);
    run
}

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let gap = prop_oneof![Just(0u64), 0u64..200_000, 0u64..15_000_000];
    let size = prop_oneof![Just(60u32), 60u32..1515, 60u32..9000];
    prop::collection::vec((gap, 0..QUEUES, size), 1..120).prop_map(|packets| {
        let mut now = 0;
        let at = |(gap, queue, bytes)| {
            now += gap;
            (now, queue, bytes)
        };
        packets.into_iter().map(at).collect()
    })
}

#[test]
fn n_packets_through_rate_burst_and_depth() {
    // 20 packets of 1000 bytes at once, 8 Mbit/s: 1 ms each. 3000 bytes of burst: packets 0 to 2 are paid for, so that
    // they and packet 3, which is not yet, start at once; ten wait, the last six find the queue full.
    let config =
        LinkConfig { rate: Some(8_000_000), burst: 3000, limit_packets: 10, delay_ns: 2_000_000, ..Default::default() };
    let offers = vec![(1_000_000_000, 0, 1000); 20];
    let run = run(&config, &offers, &[0, 700_000], 0);
    let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
    let sent: Vec<_> =
        (0..14u64).map(|k| (k as usize, ms(k.saturating_sub(3)), ms((k + 1).saturating_sub(3) + 2))).collect();
    assert_eq!((run.sent, run.dropped), (sent, (14..20).collect()));
}

#[test]
fn a_queue_s_own_limits_leave_room_for_the_others() {
    let mut config = LinkConfig { rate: Some(8_000), limit_packets: 6, ..Default::default() };
    config.queues[0].limit_packets = Some(2);
    config.queues[1].limit_bytes = Some(250);
    // The first is on the wire, so two more of queue 0, two of queue 1, and two of queue 7 up to the port's limit.
    let offers: Vec<Offer> = [0, 0, 0, 0, 1, 1, 1, 7, 7].iter().map(|&queue| (5, queue, 100)).collect();
    assert_eq!(run(&config, &offers, &[0], 0).dropped, [3, 6]);
}

#[test]
fn a_full_port_drops_what_would_leave_last() {
    let mut config = LinkConfig { rate: Some(8_000), limit_packets: 4, limit_bytes: Some(1000), ..Default::default() };
    let dropped = |config: &LinkConfig, offers: &[(usize, u32)]| {
        let offers: Vec<Offer> = offers.iter().map(|&(queue, bytes)| (5, queue, bytes)).collect();
        run(config, &offers, &[0], 0).dropped
    };
    let full = [(3, 100), (3, 100), (0, 100), (0, 100), (1, 100)];
    // Its last packet first, then the next queue's, and last of all the one that comes.
    assert_eq!(dropped(&config, &[&full[..], &[(2, 100); 4]].concat()), [3, 2, 4, 8]);
    assert_eq!(dropped(&config, &[&full[..], &[(0, 100)]].concat()), [5]);
    // As many as its bytes take, or none if they do not make room.
    assert_eq!(dropped(&config, &[&full[..], &[(2, 900)]].concat()), [3, 2, 4]);
    assert_eq!(dropped(&config, &[&full[..], &[(2, 901)]].concat()), [5]);
    // What has a weight is behind all that has none, and of that the longest queue.
    for (queue, weight) in [(0, 1), (3, 5)] {
        config.queues[queue].weight = Some(weight);
    }
    let full = [(1, 100), (3, 100), (0, 100), (3, 100), (1, 100)];
    assert_eq!(dropped(&config, &[&full[..], &[(1, 100), (0, 100)]].concat()), [3, 6]);
    // A queue that is full itself takes nobody's place.
    config.queues[1].limit_packets = Some(1);
    assert_eq!(dropped(&config, &[&full[..], &[(1, 100)]].concat()), [5]);
}

#[test]
fn a_queue_s_rate_holds_it_back_and_leaves_the_rest_to_others() {
    // The port: 1 ms a packet. Queue 7 may send one every 5 ms, after a burst of one more.
    let mut config = LinkConfig { rate: Some(8_000_000), ..Default::default() };
    config.queues[7] = QueueConfig { rate: Some(1_600_000), burst: 1000, ..Default::default() };
    let offers: Vec<Offer> = (0..40).map(|item| (SECOND as u64, if item % 4 == 0 { 7 } else { 0 }, 1000)).collect();
    let run = run(&config, &offers, &[0, 300_000, 12_000_000], 0);
    let starts: Vec<u64> =
        run.sent.iter().filter(|(item, ..)| item % 4 == 0).map(|(_, start, _)| start / 1_000_000 - 1000).collect();
    assert_eq!(starts, [0, 1, 5, 10, 15, 20, 25, 30, 35, 40]);
    // No time is wasted while there is something to send.
    let end = run.sent[38].2;
    assert_eq!(end, SECOND as u64 + 39_000_000);
}

#[test]
fn a_queue_with_a_rate_behind_an_unlimited_port() {
    let mut config = LinkConfig::default();
    config.queues[2].rate = Some(8_000_000);
    let offers: Vec<Offer> = vec![(7, 2, 1000), (7, 2, 1000), (7, 0, 9000), (8, 2, 500), (5_000_000, 2, 100)];
    let run = run(&config, &offers, &[0, 100], 0);
    let starts: Vec<_> = run.sent.iter().map(|&(item, start, _)| (item, start)).collect();
    assert_eq!(starts, [(0, 7), (2, 7), (1, 1_000_007), (3, 2_000_007), (4, 5_000_000)]);
}

#[test]
fn a_link_changes_its_rate_and_queues_between_two_packets() {
    let mut link: Link<u32> = Link::new(LinkConfig { rate: Some(8_000_000), ..Default::default() }, 1);
    (0..4).for_each(|item| link.enqueue(0, item as usize, 1000, item).unwrap());
    let serve = |link: &mut Link<u32>, now| {
        let dequeued = link.dequeue(now).unwrap();
        link.transmit(1000, dequeued.item);
        (dequeued.item, dequeued.start)
    };
    assert_eq!(serve(&mut link, 0), (3, 0));
    // What is on the wire still takes its ms; the next ones take two. Queue 2 has a weight, so the others are first.
    let mut slower = LinkConfig { rate: Some(4_000_000), limit_packets: 2, ..Default::default() };
    slower.queues[2].weight = Some(1);
    link.configure(slower);
    assert!(link.dequeue(999_999).is_none());
    assert_eq!(link.enqueue(999_999, 0, 60, 9), Err(9));
    let rest = [1_000_000, 3_000_000, 5_000_000].map(|now| serve(&mut link, now));
    assert_eq!(rest, [(1, 1_000_000), (0, 3_000_000), (2, 5_000_000)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn timing_order_and_drops_are_those_of_the_arithmetic(
        offers in offers(),
        rate in 1_000_000u64..1_000_000_000,
        burst in prop_oneof![Just(0u32), 0u32..30_000],
        limits in (1u32..40, prop::option::of(2000u64..40_000), prop::option::of(1u32..9), prop::option::of(1000u64..20_000)),
        delay_ns in 0u64..5_000_000,
        overhead in 0u32..40,
        filter in 0usize..4,
        lateness in prop::collection::vec(0u64..20_000_000, 1..20),
    ) {
        let (limit_packets, limit_bytes, own_packets, own_bytes) = limits;
        let mut config =
            LinkConfig { rate: Some(rate), burst, limit_packets, limit_bytes, delay_ns, overhead, ..Default::default() };
        config.queues[3] = QueueConfig { limit_packets: own_packets, limit_bytes: own_bytes, ..Default::default() };
        prop_assert_eq!(run(&config, &offers, &lateness, filter), expected(&config, &offers, filter));
    }

    /// Backlogged queues get their shares of the bytes, whatever sizes the packets have; strict priority
    /// comes first and is never held up by more than the packet on the wire.
    #[test]
    fn weights_share_bytes_after_strict_priority(
        weights in prop::collection::vec(1u32..20, 2..6),
        sizes in prop::collection::vec(prop_oneof![Just(64u32), 64u32..1515, 1000u32..9001], 40..200),
        strict_share in 0usize..4,
        lateness in prop::collection::vec(0u64..20_000_000, 1..10),
    ) {
        let rate = 100_000_000;
        let mut config = LinkConfig { rate: Some(rate), limit_packets: u32::MAX, ..Default::default() };
        for (queue, &weight) in weights.iter().enumerate() {
            config.queues[queue].weight = Some(weight);
        }
        let mut link: Link<usize> = Link::new(config, 1);
        let (mut sizes, mut late) = (sizes.into_iter().cycle(), lateness.iter().cycle());
        let (mut sent, mut strict, mut waited) = (vec![0u64; weights.len()], 0, 0);
        let (mut total, mut last_size) = (0, 0);
        let mut now = 0;
        while total < 3_000_000 {
            // All weighted queues have packets at all times; queue 7 has one now and then.
            for (queue, _) in weights.iter().enumerate() {
                while link.depth(queue) < 4 {
                    link.enqueue(now, queue, 0, sizes.next().unwrap() as usize).unwrap();
                }
            }
            if strict_share > 0 && link.depth(7) == 0 && total % 5 < strict_share as u64 {
                link.enqueue(now, 7, 0, 700).unwrap();
            }
            now = link.deadline().unwrap() + *late.next().unwrap() % 4000;
            if let Some(dequeued) = link.dequeue(now) {
                let size = dequeued.item as u64;
                if dequeued.queue == 7 {
                    waited = waited.max(dequeued.start - dequeued.enqueued);
                    strict += size;
                } else {
                    sent[dequeued.queue] += size;
                }
                total += size;
                last_size = last_size.max(size);
                link.transmit(dequeued.item, dequeued.item);
            }
            while link.arrived(now).is_some() {}
        }
        prop_assert!(waited <= last_size * 8_000_000_000 / rate + 4000, "{}", waited);
        let rest = (total - strict) as f64;
        let sum: u32 = weights.iter().sum();
        let quantum = 1514.0 / *weights.iter().min().unwrap() as f64;
        for (bytes, &weight) in sent.iter().zip(&weights) {
            let fair = rest * weight as f64 / sum as f64;
            // One turn, one packet, and what the others' turns and packets move the total.
            let off = 2.0 * quantum * sum as f64 + 2.0 * 9000.0;
            prop_assert!((*bytes as f64 - fair).abs() <= off, "{:?} of {} by {:?}", sent, rest, weights);
        }
    }
}

/// Through the whole switch: program, queues, egress, port. Times and order of what comes out, and what was counted.
#[test]
fn the_switch_has_no_buffer_beside_its_queues() {
    let program = Arc::new(program("features"));
    let shared = Arc::new(Shared::new(&program));
    let outbox = Outbox { packet_ins: bounded(1).0, digests: bounded(1).0 };
    let mut link = LinkConfig { rate: Some(8_000_000), limit_packets: 4, delay_ns: 3_000_000, ..Default::default() };
    link.queues[1].weight = Some(3);
    link.queues[0].weight = Some(1);
    let ports = vec![Port::new(1, None, 1), Port::new(2, Some(link), 1)];
    let mut switch = Switch::new(ports, Pool::new(2048, 64), None, 8, outbox, 1);
    switch.commit(Box::new(Machine::new(&program, shared, 1)));
    // Kind 0x14 goes to the queue in the second byte; with the answer in front of it, a frame has 1000 bytes.
    let start = 50_000_000;
    for (number, queue) in [0u8, 0, 7, 1, 0, 5].into_iter().enumerate() {
        switch.serve(start);
        let mut packet = switch.pool.take().unwrap();
        packet.frame.set(&[&[0x14, queue, number as u8][..], &[0; 983]].concat());
        switch.receive(1, packet, start);
    }
    let mut out = Vec::new();
    while let Some(at) = switch.deadline() {
        switch.serve(at);
        switch.send(|_, port| {
            for bytes in port.output.iter().map(|packet| packet.frame.bytes()) {
                out.push((bytes[16], bytes.len(), (at - start) / 1_000_000, (at - start) % 1_000_000));
            }
        });
    }
    // 1000 bytes at 8 Mbit/s are 1 ms, then 3 ms of delay. Packet 0 was on the wire; packet 5 found four waiting, and
    // pushed out packet 4, the last of the longest queue behind its own.
    assert_eq!(out, [(0, 1000, 4, 0), (2, 1000, 5, 0), (5, 1000, 6, 0), (1, 1000, 7, 0), (3, 1000, 8, 0)]);
    let counted = |sent: u64, dropped, max_bytes| QueueStats {
        enqueued_packets: sent + dropped,
        enqueued_bytes: (sent + dropped) * 1000,
        sent_packets: sent,
        sent_bytes: sent * 1000,
        dropped_packets: dropped,
        dropped_bytes: dropped * 1000,
        max_bytes,
        ..Default::default()
    };
    let read = |queue: usize| switch.ports[1].cells.queues[queue].read();
    let once = counted(1, 0, 1000);
    assert_eq!([read(0), read(1), read(5), read(7)], [counted(2, 1, 2000), once, once, once]);
    assert_eq!(switch.ports[1].cells.read().queue_drops, 1);
    // Packets 0 and 1 waited 0 and 3 ms.
    let sojourn = switch.ports[1].cells.sojourn[0].read();
    let [median, last] = [0.5, 0.99].map(|part| quantile(&sojourn, part).unwrap());
    assert!(median < 100_000 && last.abs_diff(3_000_000) < 130_000, "{median} {last}");
}
