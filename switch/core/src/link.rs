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

#[cfg(test)]
mod tests;

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

    /// Returns true if the port's queues and this one take so many bytes more.
    #[inline]
    pub fn takes(&self, queue: usize, bytes: u32) -> bool {
        self.has_room(bytes, (0, 0)) && self.queue_has_room(queue, bytes, (0, 0))
    }

    /// Gives the packet back if the link does not take it.
    pub fn enqueue(&mut self, now: u64, queue: usize, bytes: u32, item: T) -> Result<(), T> {
        if !self.takes(queue, bytes) {
            return Err(item);
        }
        self.push(now, queue, 0, bytes, item);
        Ok(())
    }

    /// Enqueues a packet that the link [`takes`](Link::takes), with its flow, by which a lane is shared.
    pub fn push(&mut self, now: u64, queue: usize, flow: u32, bytes: u32, item: T) {
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
    }

    /// Makes room for a packet that the link does not take: what would leave last goes, one by one, until it does. Of queues
    /// that share by weight the longest loses its last packets. A lane loses the first of its longest flow, and if it is the
    /// longest itself one packet for the arriving one: with tail drop the flows that have filled a lane keep it (RFC 2309,
    /// section 2, lock-out). `None`: what may go does not make enough room.
    pub fn push_out(&mut self, queue: usize, bytes: u32) -> Option<PushedOut<T>> {
        let victim = self.longest_behind(queue, bytes).or_else(|| self.itself(queue, bytes))?;
        let from = &mut self.queues[victim];
        let dropped = match self.scheduler.shares_bulk(victim) {
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
