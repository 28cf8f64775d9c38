// SPDX-License-Identifier: Apache-2.0
//! Lanes: parts of queue 0 that share the wire by weight, each within its rate. Time is virtual.

use std::collections::VecDeque;
use std::sync::Arc;

use apswitch_core::dataplane_ops::Outbox;
use apswitch_core::link::{LANES, Lane, Link, LinkConfig, PLACES, QUEUES, place};
use apswitch_core::machine::Machine;
use apswitch_core::program::Program;
use apswitch_core::state::Shared;
use apswitch_core::state::frame::Pool;
use apswitch_core::v1model::{Port, Switch};
use async_channel::bounded;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// Runs a link whose lanes always have something to send, up to `end`; the bytes that each lane sent.
fn backlogged(config: LinkConfig, lanes: &[(usize, Lane)], bytes: usize, end: u64) -> Vec<u64> {
    let mut link: Link<usize> = Link::new(config, 1);
    let (mut sent, mut now) = (vec![0; PLACES], 0);
    loop {
        for &(queue, lane) in lanes {
            while link.depth(queue) < 4 {
                if queue >= QUEUES {
                    link.set_lane(queue, lane);
                }
                link.enqueue(now, queue, bytes as u32, bytes).unwrap();
            }
        }
        now = link.deadline().unwrap();
        if now >= end {
            return lanes.iter().map(|&(queue, _)| sent[queue]).collect();
        }
        while let Some(dequeued) = link.dequeue(now) {
            sent[dequeued.queue] += bytes as u64;
            link.transmit(bytes, dequeued.item);
        }
        while link.arrived(now).is_some() {}
    }
}

fn wire(rate: u64) -> LinkConfig {
    LinkConfig { rate: Some(rate), limit_packets: u32::MAX, ..Default::default() }
}

#[test]
fn a_lane_has_a_place_behind_the_queues() {
    assert_eq!((place(0), place(1), place(LANES as u64)), (None, Some(QUEUES), Some(PLACES - 1)));
    assert_eq!((place(LANES as u64 + 1), place(u64::MAX)), (None, None));
}

#[test]
fn lanes_and_the_rest_of_queue_0_share_equally_whatever_waits_in_each() {
    // One packet at a time in queue 0, and 32 in a lane, of twice the length: the wire is shared by bytes.
    let mut link: Link<usize> = Link::new(wire(1_000_000), 1);
    let (mut sent, mut now, lane) = ([0, 0], 0, place(5).unwrap());
    while now < 10 * SECOND {
        if link.depth(0) == 0 {
            link.enqueue(now, 0, 700, 700).unwrap();
        }
        while link.depth(lane) < 32 {
            link.set_lane(lane, Lane::default());
            link.enqueue(now, lane, 1400, 1400).unwrap();
        }
        now = link.deadline().unwrap();
        while let Some(dequeued) = link.dequeue(now) {
            sent[(dequeued.queue == lane) as usize] += dequeued.item;
            link.transmit(dequeued.item, dequeued.item);
            // It is never empty for longer than its packet takes.
            if dequeued.queue == 0 {
                link.enqueue(now, 0, 700, 700).unwrap();
            }
        }
        while link.arrived(now).is_some() {}
    }
    assert!(sent[0].abs_diff(sent[1]) <= 2 * 1514, "{sent:?}");
}

#[test]
fn sixty_four_lanes_have_their_weights() {
    let lanes: Vec<_> = (1..=64).map(|k| (place(k).unwrap(), Lane { weight: 1 + k as u32 % 3, rate: 0 })).collect();
    let sent = backlogged(wire(50_000_000), &lanes, 1000, 10 * SECOND);
    let all: u64 = sent.iter().sum();
    let weights: u64 = lanes.iter().map(|(_, lane)| lane.weight as u64).sum();
    for (bytes, (_, lane)) in sent.iter().zip(&lanes) {
        let fair = all * lane.weight as u64 / weights;
        assert!(bytes.abs_diff(fair) <= 4 * 1514 * lane.weight as u64, "{bytes} for {fair}");
    }
}

#[test]
fn a_lane_whose_settings_change_with_each_packet_takes_no_weight_from_others() {
    let mut link: Link<usize> = Link::new(wire(10_000_000), 1);
    let [shared, heavy, light] = [1, 2, 3].map(|lane| place(lane).unwrap());
    let mut sent = [0u64; PLACES];
    for (turn, now) in (0..10 * SECOND).step_by(100_000).enumerate() {
        while let Some(dequeued) = link.dequeue(now) {
            sent[dequeued.queue] += 1000;
            link.transmit(1000, 0);
        }
        while link.arrived(now).is_some() {}
        for (queue, weight) in [(heavy, 300), (light, 100), (shared, 100)] {
            while link.depth(queue) < 4 {
                link.set_lane(queue, Lane { weight, rate: 0 });
                link.enqueue(now, queue, 1000, 1000).unwrap();
            }
        }
        // Packets of two stations in turn, more than the lane can take.
        link.set_lane(shared, Lane { weight: 100, rate: 1_000_000 * (turn as u32 % 2) });
    }
    let part = |queue| sent[queue] as f64 / sent.iter().sum::<u64>() as f64;
    assert!((0.59..0.61).contains(&part(heavy)), "{}", part(heavy));
    assert!((0.19..0.21).contains(&part(light)), "{}", part(light));
}

/// Runs a link with a sender in each lane, which has so many packets on their way at a time; the bytes that each sent.
fn windows(config: LinkConfig, before: Option<Lane>, senders: [(usize, Lane, usize); 2], end: u64) -> [u64; 2] {
    let mut link: Link<usize> = Link::new(config, 1);
    let (mut sent, mut now) = ([0; 2], 0);
    if let Some(lane) = before {
        let gone = place(64).unwrap();
        link.set_lane(gone, lane);
        link.enqueue(0, gone, 1500, 2).unwrap();
    }
    let offer = |link: &mut Link<usize>, now, sender: usize| {
        let (queue, lane, _) = senders[sender];
        if queue >= QUEUES {
            link.set_lane(queue, lane);
        }
        link.enqueue(now, queue, 1500, sender).unwrap();
    };
    (0..2).for_each(|sender| (0..senders[sender].2).for_each(|_| offer(&mut link, 0, sender)));
    while now < end {
        now = link.deadline().unwrap();
        while let Some(dequeued) = link.dequeue(now) {
            link.transmit(1500, dequeued.item);
        }
        while let Some(sender) = link.arrived(now) {
            if sender < 2 {
                sent[sender] += 1500;
                offer(&mut link, now, sender);
            }
        }
    }
    sent
}

#[test]
fn equal_lanes_share_equally_whatever_weight_another_has_had() {
    // Half of 10 Mbit/s takes four packets in 10 ms, so six are enough, and 80 are no more than that.
    let config = LinkConfig { delay_ns: 10_000_000, ..wire(10_000_000) };
    let lane = |number, packets| (place(number).unwrap(), Lane { weight: 100, rate: 0 }, packets);
    for before in [None, Some(Lane { weight: 1, rate: 0 }), Some(Lane { weight: 10_000, rate: 0 })] {
        let sent = windows(config.clone(), before, [lane(1, 6), lane(2, 80)], 20 * SECOND);
        assert!(sent[0].abs_diff(sent[1]) <= sent[1] / 20, "{sent:?} after {before:?}");
    }
}

#[test]
fn the_rest_of_queue_0_has_the_least_weight_of_those_that_wait() {
    let lane = Lane { weight: 100, rate: 0 };
    let senders = [(0, lane, 20), (place(1).unwrap(), lane, 20)];
    for before in [None, Some(Lane { weight: 1, rate: 0 })] {
        let sent = windows(wire(10_000_000), before, senders, 10 * SECOND);
        assert!(sent[0].abs_diff(sent[1]) <= 4 * 1514, "{sent:?} after {before:?}");
    }
}

#[test]
fn a_lane_of_little_weight_has_its_part_beside_one_of_much() {
    let lanes =
        [(place(1).unwrap(), Lane { weight: 10, rate: 0 }), (place(2).unwrap(), Lane { weight: 10_000, rate: 0 })];
    let sent = backlogged(wire(100_000_000), &lanes, 1514, 200 * SECOND);
    let part = sent[0] as f64 / (sent[0] + sent[1]) as f64;
    assert!((0.00097..0.00103).contains(&part), "{part}");
}

#[test]
fn a_lane_keeps_within_its_rate_and_reaches_it_beside_others() {
    // 0.3 of 1 Mbit/s, beside a lane that takes the rest.
    let lanes = [(place(1).unwrap(), Lane { weight: 0, rate: 300 }), (place(2).unwrap(), Lane { weight: 0, rate: 0 })];
    let sent = backlogged(wire(1_000_000), &lanes, 1514, 20 * SECOND);
    let part = |bytes: u64| bytes as f64 * 8.0 / 20.0 / 1e6;
    assert!((0.297..0.303).contains(&part(sent[0])), "{}", part(sent[0]));
    assert!((0.695..0.703).contains(&part(sent[1])), "{}", part(sent[1]));
}

#[test]
fn the_weight_of_queue_0_is_that_of_all_its_lanes_together() {
    let mut config = wire(10_000_000);
    (config.queues[0].weight, config.queues[4].weight) = (Some(1), Some(3));
    let lane = |number| (place(number).unwrap(), Lane { weight: 100, rate: 0 });
    let lanes = [(4, Lane::default()), (0, Lane::default()), lane(1), lane(2)];
    let sent = backlogged(config, &lanes, 1000, 20 * SECOND);
    let part = |bytes: u64| bytes as f64 / sent.iter().sum::<u64>() as f64;
    assert!((0.74..0.76).contains(&part(sent[0])), "{sent:?}");
    assert!(sent[1..].iter().all(|&bytes| (0.08..0.087).contains(&part(bytes))), "{sent:?}");
}

#[test]
fn the_rate_of_queue_0_holds_back_all_its_lanes_together() {
    let mut config = wire(10_000_000);
    config.queues[0].rate = Some(1_000_000);
    let lane = |number, rate| (place(number).unwrap(), Lane { weight: 100, rate });
    let sent = backlogged(config, &[lane(1, 0), lane(2, 200)], 1000, 20 * SECOND);
    let part = |bytes: u64| bytes as f64 * 8.0 / 20.0 / 1e6;
    assert!((0.79..0.81).contains(&part(sent[0])) && (0.19..0.21).contains(&part(sent[1])), "{sent:?}");
}

#[test]
fn the_limits_of_queue_0_are_those_of_all_its_lanes_together() {
    for limits in [(Some(4), None), (None, Some(400))] {
        let mut config = LinkConfig { rate: Some(80_000), ..Default::default() };
        (config.queues[0].limit_packets, config.queues[0].limit_bytes) = limits;
        let mut link: Link<usize> = Link::new(config, 1);
        let (short, long) = (place(1).unwrap(), place(2).unwrap());
        [short, long].into_iter().for_each(|lane| link.set_lane(lane, Lane::default()));
        (0..4).for_each(|item| link.enqueue(0, long, 100, item).unwrap());
        assert!(link.enqueue(0, long, 100, 4).is_err());
        assert_eq!(link.push_out(long, 100).unwrap().item, 0);
        link.enqueue(0, long, 100, 4).unwrap();
        // Others of the port have room, and take nobody's place.
        link.enqueue(0, 3, 100, 5).unwrap();
        // A short lane takes the place of the long one's first packet, until they are equal, and then of its own.
        for (item, lane, first) in [(6, long, 1), (7, long, 2), (8, short, 6)] {
            assert!(link.enqueue(0, short, 100, item).is_err());
            let out = link.push_out(short, 100).unwrap();
            assert_eq!((out.queue, out.item), (lane, first));
            link.enqueue(0, short, 100, item).unwrap();
        }
    }
}

/// RFC 2309, section 2: with tail drop those who filled a queue keep it.
#[test]
fn a_full_lane_loses_its_first_packet_and_takes_each_that_arrives() {
    let mut link: Link<usize> = Link::new(LinkConfig { rate: Some(80_000), limit_packets: 4, ..Default::default() }, 1);
    let lane = place(1).unwrap();
    link.set_lane(lane, Lane::default());
    (0..4).for_each(|item| link.enqueue(0, lane, 1000, item).unwrap());
    for item in 4..12 {
        assert!(link.enqueue(0, lane, 1000, item).is_err());
        assert_eq!(link.push_out(lane, 1000).map(|out| out.item), Some(item - 4));
        link.enqueue(0, lane, 1000, item).unwrap();
    }
    // One packet goes for one: not for a longer one, and not when the limit has fallen.
    let config = LinkConfig { limit_bytes: Some(4000), ..link.config().clone() };
    link.configure(config);
    assert!(link.push_out(lane, 1001).is_none() && link.push_out(lane, 1000).is_some());
    let config = LinkConfig { limit_packets: 2, limit_bytes: None, ..link.config().clone() };
    link.configure(config);
    assert!(link.push_out(lane, 60).is_none() && link.depth(lane) == 3);
}

#[test]
fn a_program_without_lanes_after_one_with_some_has_plain_queues() {
    let mut link: Link<usize> = Link::new(LinkConfig { rate: Some(8_000), limit_packets: 2, ..Default::default() }, 1);
    let lane = place(1).unwrap();
    link.set_lane(lane, Lane { weight: 3, rate: 8 });
    link.enqueue(0, lane, 1000, 0).unwrap();
    assert_eq!(link.clear().count(), 1);
    (1..3).for_each(|item| link.enqueue(0, 0, 1000, item).unwrap());
    assert!(link.enqueue(0, 0, 1000, 3).is_err() && link.push_out(0, 1000).is_none());
    assert_eq!(link.dequeue(0).map(|packet| packet.item), Some(1));
}

#[test]
fn a_rate_that_changes_holds_from_the_next_packet_on() {
    let mut link: Link<usize> = Link::new(wire(8_000_000), 1);
    let lane = place(3).unwrap();
    let send = |link: &mut Link<usize>, rate, now| {
        link.set_lane(lane, Lane { weight: 1, rate });
        (0..8).for_each(|_| link.enqueue(now, lane, 1000, 0).unwrap());
        let mut starts = Vec::new();
        while let Some(at) = link.deadline() {
            if let Some(dequeued) = link.dequeue(at) {
                starts.push((dequeued.start - now) / 1_000_000);
                link.transmit(1000, 0);
            }
            while link.arrived(at).is_some() {}
        }
        starts
    };
    // 1 Mbit/s: 8 ms a packet, but for the burst of 3028 bytes.
    assert_eq!(send(&mut link, 1000, SECOND), [0, 1, 2, 3, 7, 15, 23, 31]);
    assert_eq!(send(&mut link, 0, 3 * SECOND), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn strict_priority_goes_before_lanes_and_lanes_before_a_queue_with_a_weight_above_0() {
    let starts = |weight| {
        let mut config = wire(8_000_000);
        config.queues[4].weight = weight;
        let mut link: Link<usize> = Link::new(config, 1);
        link.set_lane(place(1).unwrap(), Lane::default());
        for (item, queue) in [4, place(1).unwrap(), place(1).unwrap(), 0, 0, 7].into_iter().enumerate() {
            link.enqueue(0, queue, 1000, item).unwrap();
        }
        let mut order = Vec::new();
        while let Some(at) = link.deadline() {
            if let Some(dequeued) = link.dequeue(at) {
                order.push(dequeued.item);
                link.transmit(1000, 0);
            }
            while link.arrived(at).is_some() {}
        }
        order
    };
    let (strict, weighted) = (starts(None), starts(Some(1)));
    assert_eq!((strict[0], strict[1], weighted[0], weighted[5]), (5, 0, 5, 0));
    assert_ne!(strict[2..4], [3, 4], "queue 0 goes before its lanes");
}

#[test]
fn a_full_port_drops_the_first_of_the_longest_lane() {
    let mut link: Link<usize> = Link::new(LinkConfig { rate: Some(80_000), limit_packets: 6, ..Default::default() }, 1);
    let (short, long) = (place(1).unwrap(), place(2).unwrap());
    [short, long].into_iter().for_each(|lane| link.set_lane(lane, Lane::default()));
    (0..5).for_each(|item| link.enqueue(0, long, 1000, item).unwrap());
    link.enqueue(0, short, 1000, 5).unwrap();
    // A second one of the short lane pushes out the long one's first, and so on until they are equal: then its own.
    let mut pushed = Vec::new();
    for item in 6..10 {
        while link.enqueue(0, short, 1000, item).is_err() {
            let out = link.push_out(short, 1000).unwrap();
            pushed.push((out.queue, out.item));
        }
    }
    assert_eq!(pushed, [(long, 0), (long, 1), (short, 5), (short, 6)]);
    // What has strict priority takes the place of either.
    assert!(link.enqueue(0, 7, 1000, 10).is_err());
    assert!(link.push_out(7, 1000).is_some());
}

proptest! {
    /// Each lane is a FIFO, nothing is lost without a full queue, and all that waits leaves.
    #[test]
    fn order_within_a_lane_holds(
        offers in prop::collection::vec((0u64..3_000_000, 0usize..6, 60u32..1515, 0u32..4, 0u32..3), 1..200),
        lateness in prop::collection::vec(0u64..20_000_000, 1..10),
    ) {
        let mut link: Link<(usize, usize)> = Link::new(wire(5_000_000), 1);
        let mut expected = vec![VecDeque::new(); PLACES];
        let (mut now, mut late) = (0, lateness.iter().cycle());
        let mut drain = |link: &mut Link<(usize, usize)>, expected: &mut Vec<VecDeque<usize>>, end: u64, at: &mut u64| {
            while let Some(due) = link.deadline().filter(|due| *due <= end) {
                *at = due.saturating_add(*late.next().unwrap()).max(*at).min(end);
                while let Some(dequeued) = link.dequeue(*at) {
                    let (queue, item) = dequeued.item;
                    assert_eq!((dequeued.queue, expected[queue].pop_front()), (queue, Some(item)));
                    link.transmit(dequeued.bytes as usize, dequeued.item);
                }
                while link.arrived(*at).is_some() {}
            }
            *at = end;
        };
        let mut at = 0;
        for (item, (gap, lane, bytes, weight, rate)) in offers.into_iter().enumerate() {
            now += gap;
            drain(&mut link, &mut expected, now, &mut at);
            let queue = place(lane as u64).unwrap_or(0);
            if queue > 0 {
                link.set_lane(queue, Lane { weight, rate: 1000 * rate });
            }
            link.enqueue(now, queue, bytes, (queue, item)).unwrap();
            expected[queue].push_back(item);
        }
        drain(&mut link, &mut expected, u64::MAX, &mut at);
        prop_assert!(expected.iter().all(VecDeque::is_empty));
        prop_assert_eq!((link.packets(), link.bytes()), (0, 0));
    }
}

/// Runs a lane in which each flow always has so many packets waiting, of so many bytes; the bytes that each sent.
fn backlogged_flows(flows: &[(usize, u32)], end: u64) -> Vec<u64> {
    let mut link: Link<usize> = Link::new(wire(10_000_000), 1);
    let lane = place(7).unwrap();
    let (mut sent, mut waits, mut now) = (vec![0; flows.len()], vec![0; flows.len()], 0);
    link.set_lane(lane, Lane::default());
    loop {
        for (flow, &(packets, bytes)) in flows.iter().enumerate() {
            for _ in waits[flow]..packets {
                link.push(now, lane, flow as u32, bytes, flow);
            }
            waits[flow] = packets;
        }
        now = link.deadline().unwrap();
        if now >= end {
            return sent;
        }
        while let Some(dequeued) = link.dequeue(now) {
            sent[dequeued.item] += dequeued.bytes as u64;
            waits[dequeued.item] -= 1;
            link.transmit(dequeued.bytes as usize, dequeued.item);
        }
        while link.arrived(now).is_some() {}
    }
}

#[test]
fn flows_of_a_lane_share_it_equally_however_much_waits_of_each() {
    let flows: Vec<_> = (0..200).map(|flow| (2 + flow % 14, 400 + 100 * (flow as u32 % 12))).collect();
    let sent = backlogged_flows(&flows, 60 * SECOND);
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 2 * 1514, "{least} to {most}");
    // A frame longer than a turn pays in the next ones.
    let sent = backlogged_flows(&[(2, 9000), (2, 1000)], 20 * SECOND);
    assert!(sent[0].abs_diff(sent[1]) <= 2 * 9000, "{sent:?}");
}

#[test]
fn more_flows_than_a_lane_tells_apart_share_what_is_left() {
    let sent = backlogged_flows(&[(1, 1000); 3000], 60 * SECOND);
    assert_eq!(sent.iter().filter(|&&bytes| bytes > 0).count(), 3000);
}

/// A controller that sees counters alone knows of a loss when the port's limit is reached, and of no other.
#[test]
fn a_lane_loses_nothing_while_its_port_has_room() {
    let config = LinkConfig { rate: Some(1_000_000), limit_packets: 1000, ..Default::default() };
    let mut link: Link<u32> = Link::new(config, 1);
    let lane = place(1).unwrap();
    link.set_lane(lane, Lane { weight: 1, rate: 1 });
    for item in 0..1000 {
        assert!(link.takes(lane, 1514));
        link.push(0, lane, item % 2, 1514, item);
    }
    assert!(link.depth(lane) == 1000 && !link.takes(lane, 60));
}

#[test]
fn a_full_lane_loses_the_first_packet_of_its_longest_flow() {
    let mut link: Link<usize> = Link::new(LinkConfig { rate: Some(80_000), limit_packets: 6, ..Default::default() }, 1);
    let lane = place(1).unwrap();
    link.set_lane(lane, Lane::default());
    (0..4).for_each(|item| link.push(0, lane, 1, 1000, item));
    (4..6).for_each(|item| link.push(0, lane, 2, 1000, item));
    let mut lost = Vec::new();
    for item in 6..9 {
        assert!(!link.takes(lane, 1000));
        lost.push(link.push_out(lane, 1000).unwrap().item);
        link.push(0, lane, 3, 1000, item);
    }
    assert_eq!(lost[..2], [0, 1]);
    assert_eq!(link.depth(lane), 6);
    // A flow that loses its only packet loses its turn, too.
    let config = LinkConfig { limit_packets: 1, ..link.config().clone() };
    let mut one: Link<usize> = Link::new(config, 1);
    one.set_lane(lane, Lane::default());
    for flow in 0..5 {
        if flow > 0 {
            assert_eq!(one.push_out(lane, 1000).map(|out| out.item), Some(flow as usize - 1));
        }
        one.push(0, lane, flow, 1000, flow as usize);
    }
    assert_eq!(one.dequeue(SECOND).map(|packet| packet.item), Some(4));
    assert!(one.packets() == 0 && one.dequeue(SECOND).is_none());
}

proptest! {
    /// However flows come, go and are dropped: each stays in order, and every packet leaves once.
    #[test]
    fn order_within_a_flow_holds(
        offers in prop::collection::vec((0u64..2_000_000, 0u32..2000, 60u32..9000), 1..400),
        flows in 1u32..2000, limit in 1u32..100,
    ) {
        let mut link: Link<(u32, usize)> = Link::new(LinkConfig { limit_packets: limit, ..wire(5_000_000) }, 1);
        let lane = place(2).unwrap();
        link.set_lane(lane, Lane::default());
        let mut waiting: std::collections::HashMap<u32, VecDeque<usize>> = Default::default();
        let (mut now, mut held) = (0, 0);
        let serve = |link: &mut Link<(u32, usize)>, waiting: &mut std::collections::HashMap<u32, VecDeque<usize>>, end| {
            let mut left = 0;
            while let Some(at) = link.deadline().filter(|at| *at <= end) {
                while let Some(dequeued) = link.dequeue(at) {
                    let (flow, item) = dequeued.item;
                    assert_eq!(waiting.get_mut(&flow).unwrap().pop_front(), Some(item));
                    link.transmit(dequeued.bytes as usize, dequeued.item);
                    left += 1;
                }
                while link.arrived(at).is_some() {}
            }
            left
        };
        for (item, (gap, flow, bytes)) in offers.into_iter().enumerate() {
            now += gap;
            held -= serve(&mut link, &mut waiting, now);
            while !link.takes(lane, bytes) {
                let (flow, item) = link.push_out(lane, bytes).unwrap().item;
                assert_eq!(waiting.get_mut(&flow).unwrap().pop_front(), Some(item));
                held -= 1;
            }
            link.push(now, lane, flow % flows, bytes, (flow % flows, item));
            waiting.entry(flow % flows).or_default().push_back(item);
            held += 1;
            prop_assert_eq!(link.packets(), held);
        }
        held -= serve(&mut link, &mut waiting, u64::MAX);
        prop_assert!(held == 0 && link.packets() == 0 && link.bytes() == 0 && waiting.values().all(VecDeque::is_empty));
    }
}

/// A program says in its metadata which lane, which weight and which rate.
#[test]
fn the_program_chooses_the_lane() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/programs/features.json");
    let program = Arc::new(Program::load(&std::fs::read(path).unwrap()).unwrap());
    let shared = Arc::new(Shared::new(&program));
    let outbox = Outbox { packet_ins: bounded(1).0, digests: bounded(1).0 };
    let ports = vec![Port::new(1, None, 1), Port::new(2, Some(wire(8_000_000)), 1)];
    let mut switch = Switch::new(ports, Pool::new(2048, 64), None, 8, outbox, 1);
    switch.commit(Box::new(Machine::new(&program, shared, 1)));
    // Kind 0x14: the low three bits of the second byte are the priority. 8 and 16 are lanes of queue 0, 72 is none, and 15 is
    // queue 7.
    for (number, index) in [8u8, 8, 8, 8, 8, 8, 16, 16, 72, 15].into_iter().enumerate() {
        let weight = if index == 8 { 2u32 } else { 1 };
        let mut packet = switch.pool.take().unwrap();
        let request = [&[0x14, index][..], &weight.to_be_bytes(), &[0, 0, number as u8], &[0; 977]].concat();
        packet.frame.set(&request);
        switch.receive(1, packet, 0);
    }
    assert_eq!(switch.drops.no_queue.load(std::sync::atomic::Ordering::Relaxed), 1);
    let mut out = Vec::new();
    while let Some(at) = switch.deadline() {
        switch.serve(at);
        switch.send(|_, port| out.extend(port.output.iter().map(|packet| packet.frame.bytes()[22])));
    }
    assert_eq!(out.len(), 9);
    assert_eq!(out[0], 9);
    let lane_of = |number: &u8| if *number < 6 { 8 } else { 16 };
    // Twice as many of the first, in the order in which they came.
    assert_eq!(out[1..].iter().filter(|number| lane_of(number) == 8).count(), 6);
    assert!(out[1..5].iter().filter(|number| lane_of(number) == 16).count() <= 2, "{out:?}");
    let read = |lane| switch.ports[1].cells.queues[place(lane).unwrap()].read().sent_packets;
    assert_eq!((read(8), read(16)), (6, 2));
}
