// SPDX-License-Identifier: Apache-2.0
//! The link model's own figures: time on the wire, limits, pauses, loss and jitter.

use proptest::prelude::*;

use super::*;

fn link(config: LinkConfig) -> Link<u32> {
    Link::new(config, 1)
}

/// Serves the link at `now`; what it puts on the wire, with the start of each transmission.
fn serve(link: &mut Link<u32>, now: u64, bytes: usize) -> Vec<(u32, u64)> {
    let mut sent = Vec::new();
    while let Some(dequeued) = link.dequeue(now) {
        sent.push((dequeued.item, dequeued.start));
        link.transmit(bytes, dequeued.item);
    }
    sent
}

#[test]
fn a_packet_takes_its_time_and_then_the_delay() {
    // 1514 bytes at 1 Mbit/s: 12.112 ms.
    let mut link = link(LinkConfig { rate: Some(1_000_000), delay_ns: 2_000_000, ..Default::default() });
    link.enqueue(5, 0, 1514, 7).unwrap();
    assert_eq!(link.deadline(), Some(0));
    assert_eq!(serve(&mut link, 5, 1514), [(7, 5)]);
    let arrival = 5 + 12_112_000 + 2_000_000;
    assert_eq!(link.deadline(), Some(arrival));
    assert_eq!(link.arrived(arrival - 1), None);
    assert_eq!(link.arrived(arrival), Some(7));
}

#[test]
fn queue_seven_goes_first_and_depths_are_honest() {
    let mut link = link(LinkConfig { rate: Some(8_000_000), ..Default::default() });
    for (item, queue) in [(0, 0), (1, 0), (2, 3), (3, 7)] {
        link.enqueue(0, queue, 100, item).unwrap();
    }
    assert_eq!((link.depth(0), link.depth(3), link.depth(7), link.packets(), link.bytes()), (2, 1, 1, 4, 400));
    // 100 bytes at 8 Mbit/s: 100 us each.
    assert_eq!(serve(&mut link, 1_000_000, 100), [(3, 0), (2, 100_000), (0, 200_000), (1, 300_000)]);
    assert_eq!((link.packets(), link.bytes()), (0, 0));
}

#[test]
fn the_arriving_packet_is_dropped_when_packets_or_bytes_are_at_the_limit() {
    let config = LinkConfig { rate: Some(1000), limit_packets: 3, limit_bytes: Some(250), ..Default::default() };
    let mut link = link(config);
    assert_eq!(link.enqueue(0, 0, 100, 1), Ok(()));
    assert_eq!(link.enqueue(0, 1, 100, 2), Ok(()));
    assert_eq!(link.enqueue(0, 2, 51, 3), Err(3));
    assert_eq!(link.enqueue(0, 2, 50, 4), Ok(()));
    assert_eq!(link.enqueue(0, 7, 0, 5), Err(5));
}

#[test]
fn a_wire_holds_no_more_than_memory_is_set_aside_for() {
    for rate in [None, Some(100_000_000_000)] {
        let config = LinkConfig { rate, delay_ns: 60_000_000_000, ..Default::default() };
        let most = config.max_in_flight();
        let mut link = link(config);
        let mut taken = 0;
        for item in 0..100_000 {
            let now = item as u64 * 10_000;
            taken += link.enqueue(now, 0, 60, item).is_ok() as usize;
            serve(&mut link, now, 60);
        }
        assert_eq!((taken, link.in_flight()), (most, most));
        // Packets that have arrived make room.
        let now = link.deadline().unwrap();
        assert!(link.enqueue(now, 0, 60, 0).is_err());
        assert!(link.arrived(now).is_some() && link.enqueue(now, 0, 60, 0).is_ok());
    }
}

#[test]
fn what_is_not_allowed_waits_in_the_queue_and_its_time_counts() {
    let mut link = link(LinkConfig::default());
    link.allow(0, 2);
    (0..5).for_each(|item| link.enqueue(1_000, 0, 100, item).unwrap());
    assert_eq!(serve(&mut link, 1_000, 100), [(0, 1_000), (1, 1_000)]);
    while link.arrived(1_000).is_some() {}
    assert_eq!((link.depth(0), link.deadline()), (3, None));
    // A packet that is sent then started then, and not when it could have.
    link.allow(70_000_000, 1);
    assert_eq!(serve(&mut link, 70_000_000, 100), [(2, 70_000_000)]);
    link.allow(71_000_000, 0);
    assert_eq!(serve(&mut link, 71_000_000, 100), []);
    link.allow(72_000_000, 5);
    assert_eq!(serve(&mut link, 72_000_000, 100), [(3, 72_000_000), (4, 72_000_000)]);
    // Three are left.
    link.enqueue(73_000_000, 0, 100, 5).unwrap();
    assert_eq!(serve(&mut link, 73_000_000, 100), [(5, 73_000_000)]);
}

#[test]
fn a_packet_that_egress_drops_or_the_wire_loses_uses_no_leave() {
    let mut link = link(LinkConfig { loss: 1.0, ..Default::default() });
    link.allow(0, 1);
    (0..3).for_each(|item| link.enqueue(0, 0, 100, item).unwrap());
    assert_eq!(link.dequeue(0).unwrap().item, 0);
    assert_eq!(serve(&mut link, 0, 100), [(1, 0), (2, 0)]);
}

#[test]
fn what_egress_drops_takes_no_time() {
    let mut link = link(LinkConfig { rate: Some(8_000_000), ..Default::default() });
    for item in 0..10 {
        link.enqueue(0, 0, 1000, item).unwrap();
    }
    let mut starts = Vec::new();
    while let Some(dequeued) = link.dequeue(10_000_000) {
        if dequeued.item % 2 == 0 {
            starts.push(dequeued.start);
            link.transmit(1000, dequeued.item);
        }
    }
    assert_eq!(starts, [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]);
}

#[test]
fn a_long_pause_is_not_made_up_for() {
    let mut link = link(LinkConfig { rate: Some(8_000_000), ..Default::default() });
    (0..100).for_each(|item| link.enqueue(0, 0, 1000, item).unwrap());
    // One packet a millisecond: 20 ms of catching up, and the one that starts now.
    assert_eq!(serve(&mut link, 1_000_000_000, 1000).len(), 21);
}

#[test]
fn loss_has_its_probability() {
    let mut link = link(LinkConfig { loss: 0.25, limit_packets: u32::MAX, ..Default::default() });
    let mut lost = 0;
    for item in 0..100_000 {
        link.enqueue(0, 0, 100, item).unwrap();
        let dequeued = link.dequeue(0).unwrap();
        lost += link.transmit(100, dequeued.item).is_some() as u32;
    }
    // Six standard deviations of the binomial distribution.
    assert!((24_178..=25_822).contains(&lost), "{lost}");
}

proptest! {
    /// However late the timers are (within the catch-up), a busy link sends at its rate, to the nanosecond.
    #[test]
    fn lateness_does_not_change_the_rate(
        rate in 100_000u64..10_000_000_000,
        sizes in prop::collection::vec(60usize..9000, 1..200),
        lateness in prop::collection::vec(0u64..CATCH_UP_NS, 1..50),
        overhead in 0u32..100,
    ) {
        let config = LinkConfig { rate: Some(rate), overhead, ..Default::default() };
        let mut link: Link<usize> = Link::new(config, 1);
        for (item, &size) in sizes.iter().enumerate() {
            link.enqueue(0, 0, size as u32, item).unwrap();
        }
        let mut late = lateness.iter().cycle();
        let mut bits = 0u128;
        while let Some(due) = link.deadline() {
            let now = due + late.next().unwrap();
            while let Some(dequeued) = link.dequeue(now) {
                prop_assert_eq!(dequeued.start as u128, bits * 1_000_000_000 / rate as u128);
                let size = sizes[dequeued.item];
                bits += 8 * (size as u128 + overhead as u128);
                link.transmit(size, dequeued.item);
            }
            while link.arrived(now).is_some() {}
        }
        prop_assert_eq!(bits, sizes.iter().map(|&s| 8 * (s as u128 + overhead as u128)).sum::<u128>());
    }

    /// Jitter delays, by no more than it may, and never reorders.
    #[test]
    fn jitter_never_reorders(seed: u64, gaps in prop::collection::vec(0u64..3_000_000, 1..200)) {
        let config = LinkConfig { delay_ns: 1_000_000, jitter_ns: 5_000_000, ..Default::default() };
        let mut link: Link<(usize, u64)> = Link::new(config, seed);
        let mut now = 0;
        for (item, gap) in gaps.iter().enumerate() {
            now += gap;
            prop_assert!(link.enqueue(now, 0, 100, (item, now)).is_ok());
            let dequeued = link.dequeue(now).unwrap();
            link.transmit(100, dequeued.item);
        }
        let mut expected = 0;
        while let Some(due) = link.deadline() {
            let (item, sent) = link.arrived(due).unwrap();
            prop_assert_eq!(item, expected);
            prop_assert!((sent + 1_000_000..=sent + 6_000_000).contains(&due));
            expected += 1;
        }
        prop_assert_eq!(expected, gaps.len());
    }
}
