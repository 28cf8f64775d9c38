// SPDX-License-Identifier: Apache-2.0
//! The link model of one port: eight queues, the lowest with lanes, behind one wire. A [`Scheduler`] says which queue is
//! next; the wire has a rate over all of them (or a trace in its place), then delay, jitter and loss. Pure: time is an
//! argument, in ns.
//!
//! ```text
//! enqueue -> queues -> dequeue -> (egress) -> transmit -> wire -> arrived
//! ```
//!
//! The next transmission starts when the last one ended, not when somebody came to look: a late timer does not
//! lower the rate. What egress drops is never given to `transmit` and takes no time on the wire. Nothing is hidden:
//! the depth of a queue is every packet that waits, and the delay ends when the last bit has left.

use std::collections::VecDeque;
use std::sync::Arc;

use fastrand::Rng;

use crate::flow_queues::Queued;
use crate::link_trace::{Player, Trace};
use crate::queue::Queue;
use crate::scheduler::{BULK, Bucket, Scheduler, Set, highest, members, queue_of, set_of};
pub use crate::scheduler::{LANES, Lane, MAX_WEIGHT, PLACES, QUEUES, QueueConfig, place};

/// Time that passed unseen and is made up for: longer pauses of this process stay pauses of the link.
const CATCH_UP_NS: u64 = 20_000_000;

const DEFAULT_LIMIT: u32 = 1000;

/// Bytes of the shortest frame, and how many of them on a long fast wire memory is set aside for.
const MIN_FRAME: u128 = 60;
const MAX_ON_THE_WIRE: u128 = 16_384;
/// Packets on any wire: the frame that is being sent, and with a burst those that are sent at once.
const MIN_ON_THE_WIRE: u128 = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// bit/s over all queues; `None`: unlimited.
    pub rate: Option<u64>,
    /// Bytes that may leave at once beyond the rate, after nothing left for long enough: a token bucket's depth. 0: a
    /// wire, on which every bit takes its time.
    pub burst: u32,
    /// In place of a rate: when the wire takes packets.
    pub trace: Option<Arc<Trace>>,
    /// Packets in all queues of the port.
    pub limit_packets: u32,
    /// Bytes in all queues of the port; `None`: unlimited.
    pub limit_bytes: Option<u64>,
    pub delay_ns: u64,
    /// Added to the delay, uniform from 0 to this; packets keep their order.
    pub jitter_ns: u64,
    /// Probability that a frame is lost on the wire, after it took its time there.
    pub loss: f64,
    /// Bytes that every frame takes on the wire beyond its own.
    pub overhead: u32,
    pub queues: [QueueConfig; QUEUES],
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate: None,
            burst: 0,
            trace: None,
            limit_packets: DEFAULT_LIMIT,
            limit_bytes: None,
            delay_ns: 0,
            jitter_ns: 0,
            loss: 0.0,
            overhead: 0,
            queues: Default::default(),
        }
    }
}

impl LinkConfig {
    /// Packets that queues and wire may hold at once.
    pub fn max_in_flight(&self) -> usize {
        let flight_ns = (self.delay_ns + self.jitter_ns) as u128;
        let on_the_wire = match self.rate {
            Some(rate) => {
                rate as u128 * flight_ns / (8 * MIN_FRAME * 1_000_000_000)
                    + self.burst as u128 / MIN_FRAME
                    + MIN_ON_THE_WIRE
            }
            None if flight_ns > 0 || self.trace.is_some() => MAX_ON_THE_WIRE,
            None => 0,
        };
        self.limit_packets as usize + on_the_wire.min(MAX_ON_THE_WIRE) as usize
    }
}

/// A packet that had to go before its turn.
pub struct PushedOut<T> {
    pub item: T,
    pub queue: usize,
    pub bytes: u32,
}

/// A packet whose turn on the wire it is.
pub struct Dequeued<T> {
    pub item: T,
    pub queue: usize,
    /// As it was enqueued.
    pub bytes: u32,
    pub enqueued: u64,
    /// Start of its transmission (ns); never later than the time of the call.
    pub start: u64,
    /// Packets that stay in its queue.
    pub depth: usize,
}

pub struct Link<T> {
    config: LinkConfig,
    /// Queues and lanes, by [`place`].
    queues: [Queue<T>; PLACES],
    /// Queues that are not empty.
    waiting: Set,
    packets: usize,
    bytes: u64,
    /// Packets and bytes in queue 0 and its lanes.
    bulk: (usize, u64),
    /// Time at which the last packet was enqueued.
    newest: u64,
    /// See [`LinkConfig::max_in_flight`].
    max_in_flight: usize,
    scheduler: Scheduler,
    /// With a trace, `free_at` is the next opportunity.
    wire: Bucket,
    player: Option<Player>,
    /// Queue and start of the packet dequeued last.
    current: (usize, u64),
    /// (arrival at the far end, packet), in order.
    flying: VecDeque<(u64, T)>,
    last_arrival: u64,
    /// Packets that what is behind the link takes, and since when it takes any; `None`: as many as come.
    allowed: Option<u32>,
    allowed_at: u64,
    rng: Rng,
}

impl<T> Link<T> {
    /// `seed`: of jitter and loss.
    pub fn new(config: LinkConfig, seed: u64) -> Link<T> {
        let player = config.trace.clone().map(Player::new);
        let mut link = Link {
            config: LinkConfig::default(),
            queues: std::array::from_fn(Queue::new),
            waiting: 0,
            packets: 0,
            bytes: 0,
            bulk: (0, 0),
            newest: 0,
            max_in_flight: 0,
            scheduler: Scheduler::default(),
            wire: Bucket::free_from(player.as_ref().map_or(0, Player::at)),
            player,
            current: (0, 0),
            flying: VecDeque::new(),
            last_arrival: 0,
            allowed: None,
            allowed_at: 0,
            rng: Rng::with_seed(seed),
        };
        link.configure(config);
        link
    }

    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the configuration from now on, but for the trace, which stays. What waits or flies is kept, in its
    /// order.
    pub fn configure(&mut self, config: LinkConfig) {
        for (queue, config) in self.queues.iter_mut().zip(&config.queues) {
            queue.limit_packets = config.limit_packets.map_or(usize::MAX, |limit| limit as usize);
            queue.limit_bytes = config.limit_bytes.unwrap_or(u64::MAX);
        }
        self.wire.set(config.rate, config.burst);
        self.scheduler.set(&config.queues);
        self.max_in_flight = config.max_in_flight();
        self.config = config;
    }

    /// Back-pressure: what is behind the link takes so many packets more, from now on. Without a word from it, it takes
    /// as many as come.
    pub fn allow(&mut self, now: u64, packets: u32) {
        if self.allowed == Some(0) && packets > 0 {
            self.allowed_at = now;
        }
        self.allowed = Some(self.allowed.unwrap_or(0).saturating_add(packets));
    }

    /// Packets in one queue.
    pub fn depth(&self, queue: usize) -> usize {
        self.queues[queue].len()
    }

    /// Bytes in one queue.
    pub fn depth_bytes(&self, queue: usize) -> u64 {
        self.queues[queue].bytes
    }

    /// Packets in all queues.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes in all queues.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets in the queues and on the wire.
    pub fn in_flight(&self) -> usize {
        self.packets + self.flying.len()
    }

    /// Returns true if the port takes so many bytes more, when of its packets and bytes these are gone. A link that
    /// holds as many packets as memory is set aside for is full, too: a long wire takes none of other ports'.
    fn has_room(&self, bytes: u32, gone: (usize, u64)) -> bool {
        let packets = self.packets - gone.0;
        packets < self.config.limit_packets as usize
            && packets + self.flying.len() < self.max_in_flight
            && self.config.limit_bytes.is_none_or(|limit| self.bytes - gone.1 + bytes as u64 <= limit)
    }

    /// Returns true if the queue that a place is of takes so many bytes more, when of its packets and bytes these are gone.
    fn queue_has_room(&self, place: usize, bytes: u32, gone: (usize, u64)) -> bool {
        let queue = &self.queues[queue_of(place)];
        let (packets, held) = if BULK & 1 << place == 0 { (queue.len(), queue.bytes) } else { self.bulk };
        packets - gone.0 < queue.limit_packets && held - gone.1 + bytes as u64 <= queue.limit_bytes
    }

    /// Packets and bytes in these places.
    fn held(&self, places: Set) -> (usize, u64) {
        members(places).fold((0, 0), |sum, place| (sum.0 + self.depth(place), sum.1 + self.depth_bytes(place)))
    }

    /// Sets the lane at a place, from its next packet on.
    #[inline]
    pub fn set_lane(&mut self, place: usize, lane: Lane) {
        self.scheduler.set_lane(place, lane);
    }

    /// Returns true if the port's queues, this one, and in a lane the flow, take so many bytes more.
    #[inline]
    pub fn takes(&self, queue: usize, flow: u32, bytes: u32) -> bool {
        self.has_room(bytes, (0, 0))
            && self.queue_has_room(queue, bytes, (0, 0))
            && (queue < QUEUES || self.flow_has_room(queue, flow, bytes))
    }

    /// Returns true if a flow of a lane takes so many bytes more. How long it waits is known where the lane or the port has a
    /// rate.
    fn flow_has_room(&self, lane: usize, flow: u32, bytes: u32) -> bool {
        let rate = self.scheduler.rate(lane).or(self.config.rate);
        rate.is_none_or(|rate| self.queues[lane].flow_has_room(flow, bytes, rate))
    }

    /// Gives the packet back if the link does not take it.
    pub fn enqueue(&mut self, now: u64, queue: usize, bytes: u32, item: T) -> Result<(), T> {
        self.enqueue_flow(now, queue, 0, bytes, item)
    }

    /// As [`Link::enqueue`], with the packet's flow, by which a lane is shared.
    pub fn enqueue_flow(&mut self, now: u64, queue: usize, flow: u32, bytes: u32, item: T) -> Result<(), T> {
        if !self.takes(queue, flow, bytes) {
            return Err(item);
        }
        let to = &mut self.queues[queue];
        to.push(flow, Queued { item, bytes, enqueued: now });
        to.bytes += bytes as u64;
        self.newest = now;
        self.waiting |= 1 << queue;
        self.packets += 1;
        self.bytes += bytes as u64;
        if BULK & 1 << queue != 0 {
            self.bulk = (self.bulk.0 + 1, self.bulk.1 + bytes as u64);
        }
        Ok(())
    }

    /// Makes room for a packet that the link does not take: what would leave last goes, one by one, until it does. Of queues
    /// that share by weight the longest loses its last packets. A lane loses the first of its longest flow, and if it is the
    /// longest itself one packet for the arriving one: with tail drop the flows that have filled a lane keep it (RFC 2309,
    /// section 2, lock-out). A flow that holds its part loses its own first. `None`: what may go does not make enough room.
    pub fn push_out(&mut self, queue: usize, flow: u32, bytes: u32) -> Option<PushedOut<T>> {
        let own = queue >= QUEUES && !self.flow_has_room(queue, flow, bytes);
        let victim = match own {
            true => queue,
            false => self.longest_behind(queue, bytes).or_else(|| self.itself(queue, bytes))?,
        };
        let from = &mut self.queues[victim];
        let dropped = match self.scheduler.shares_bulk(victim) {
            _ if own => from.drop_first_of(flow),
            true => from.drop_first(),
            false => from.drop_last(),
        };
        let Queued { item, bytes, .. } = dropped?;
        self.left(victim, bytes);
        Some(PushedOut { item, queue: victim, bytes })
    }

    /// The place whose packets go for one of `queue`, if all that may go would make enough room.
    fn longest_behind(&self, queue: usize, bytes: u32) -> Option<usize> {
        let longer = |other: &usize| self.queues[*other].bytes > self.queues[queue].bytes + bytes as u64;
        let beside = set_of(members(self.scheduler.beside(queue) & self.waiting).filter(longer));
        let mut from = self.scheduler.behind(queue) & self.waiting | beside;
        if !self.queue_has_room(queue, bytes, (0, 0)) {
            // Only what shares its queue makes room there.
            from = if queue_of(queue) == 0 { beside & BULK } else { 0 };
        }
        let of_queue = if queue_of(queue) == 0 { self.held(from & BULK) } else { (0, 0) };
        let enough = from != 0 && self.has_room(bytes, self.held(from)) && self.queue_has_room(queue, bytes, of_queue);
        enough.then(|| self.scheduler.last(from, |queue| self.queues[queue].bytes))
    }

    /// The place itself, if it is a lane and one of its packets makes enough room, however far it is above a limit that has
    /// fallen.
    fn itself(&self, queue: usize, bytes: u32) -> Option<usize> {
        let gone = (1, self.queues[queue].first_to_drop() as u64);
        let enough = || self.depth(queue) > 0 && self.has_room(bytes, gone) && self.queue_has_room(queue, bytes, gone);
        (self.scheduler.shares_bulk(queue) && enough()).then_some(queue)
    }

    /// A packet is not in its queue any more.
    fn left(&mut self, queue: usize, bytes: u32) {
        let from = &mut self.queues[queue];
        from.bytes -= bytes as u64;
        if from.len() == 0 {
            self.waiting &= !(1 << queue);
        }
        self.packets -= 1;
        self.bytes -= bytes as u64;
        if BULK & 1 << queue != 0 {
            self.bulk = (self.bulk.0 - 1, self.bulk.1 - bytes as u64);
        }
    }

    /// The next packet, if the wire is free by `now`. To be asked until there is none before anything is enqueued
    /// at `now`, so that a packet cannot overtake one that would have been on the wire already.
    pub fn dequeue(&mut self, now: u64) -> Option<Dequeued<T>> {
        if self.waiting == 0 || self.wire.free_at > now || self.allowed == Some(0) {
            return None;
        }
        let unseen = now.saturating_sub(CATCH_UP_NS).max(self.allowed_at);
        let (queue, idle) = if self.scheduler.is_plain(self.waiting) {
            let queue = highest(self.waiting);
            (queue, self.queues[queue].front()?.enqueued.max(unseen))
        } else {
            self.choose(now, unseen)?
        };
        // Before this packet could start there was nothing that could.
        self.wire.idle_until(idle);
        if let Some(player) = &mut self.player
            && idle > player.at()
        {
            player.skip_to(idle);
            self.wire.free_at = player.at();
            if self.wire.free_at > now {
                return None;
            }
        }
        let Queued { item, bytes, enqueued } = self.queues[queue].pop()?;
        self.left(queue, bytes);
        let start = self.wire.free_at.max(idle);
        self.current = (queue, start);
        Some(Dequeued { item, queue, bytes, enqueued, start, depth: self.depth(queue) })
    }

    /// The queue that sends next, and since when there was one that could; `None`: none can by `now`.
    fn choose(&mut self, now: u64, unseen: u64) -> Option<(usize, u64)> {
        let first = self.first().max(unseen);
        // Time is that of the wire, not of this call: who comes later has no say yet.
        let start = first.max(self.wire.free_at);
        if start > now {
            return None;
        }
        let ready = set_of(members(self.waiting).filter(|&queue| self.since(queue) <= start));
        Some((self.scheduler.choose(ready, self.waiting), first))
    }

    /// Since or from when one of the queues has something that it may send.
    fn first(&self) -> u64 {
        members(self.waiting).map(|queue| self.since(queue)).min().unwrap_or(u64::MAX)
    }

    /// Since or from when a queue has something that it may send.
    fn since(&self, queue: usize) -> u64 {
        match self.queues[queue].front() {
            Some(head) => head.enqueued.max(self.scheduler.ready_at(queue)),
            None => u64::MAX,
        }
    }

    /// Puts the packet just dequeued on the wire. Gives it back if the wire loses it.
    pub fn transmit(&mut self, bytes: usize, item: T) -> Option<T> {
        let bytes = bytes as u64 + self.config.overhead as u64;
        let (queue, start) = self.current;
        self.wire.spend(bytes);
        self.scheduler.spend(queue, start, bytes);
        // With a burst the bits may be paid for before they are sent.
        let mut sent = self.wire.free_at.max(start);
        if let Some(player) = &mut self.player {
            sent = player.spend(bytes);
            self.wire.free_at = player.at();
        }
        if self.config.loss > 0.0 && self.rng.f64() < self.config.loss {
            return Some(item);
        }
        self.allowed = self.allowed.map(|packets| packets.saturating_sub(1));
        let jitter = if self.config.jitter_ns > 0 { self.rng.u64(0..=self.config.jitter_ns) } else { 0 };
        self.last_arrival = self.last_arrival.max(sent + self.config.delay_ns + jitter);
        self.flying.push_back((self.last_arrival, item));
        None
    }

    /// The next packet that has arrived at the far end by `now`.
    pub fn arrived(&mut self, now: u64) -> Option<T> {
        match self.flying.front() {
            Some((at, _)) if *at <= now => self.flying.pop_front().map(|(_, item)| item),
            _ => None,
        }
    }

    /// Returns when there is something to do next (ns).
    pub fn deadline(&self) -> Option<u64> {
        let start = (self.waiting != 0 && self.allowed != Some(0)).then(|| {
            // On a busy wire without rates of queues there is no need to look at each.
            let busy = self.wire.free_at >= self.newest && !self.scheduler.holds_back(self.waiting);
            let first = match busy || self.scheduler.is_plain(self.waiting) {
                true => 0,
                false => self.first(),
            };
            first.max(self.wire.free_at)
        });
        let arrival = self.flying.front().map(|(at, _)| *at);
        match (start, arrival) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes every packet out of queues and wire, and forgets the lanes: another program may have none.
    pub fn clear(&mut self) -> impl Iterator<Item = T> {
        (self.packets, self.bytes, self.bulk, self.waiting) = (0, 0, (0, 0), 0);
        self.queues.iter_mut().for_each(|queue| queue.bytes = 0);
        self.scheduler.forget_lanes();
        let queued =
            self.queues.iter_mut().flat_map(|queue| std::iter::from_fn(|| queue.pop().map(|packet| packet.item)));
        let queued: Vec<T> = queued.collect();
        queued.into_iter().chain(self.flying.drain(..).map(|(_, item)| item))
    }
}

#[cfg(test)]
mod tests {
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
}
