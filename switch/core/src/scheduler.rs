// SPDX-License-Identifier: Apache-2.0
//! Scheduler of a port's queues: strict priority (7 first), then deficit round robin by weight over
//! what that leaves, each queue within its own rate. Pure: time is an argument, in ns.
//!
//! Behind the queues that the priority of a packet names there are lanes: parts of queue 0, each a FIFO of its own, that
//! share what it gets by weight. A packet brings its lane, and the lane's weight and rate ([`Lane`]).
//!
//! Deficit round robin: Shreedhar, Varghese, Efficient Fair Queueing using Deficit Round-Robin, SIGCOMM 1995, in the
//! form that overdraws: a queue sends while it has credit and pays what the packet took on the wire, which is known
//! only after egress.

/// Queues that priorities name.
pub const QUEUES: usize = 8;
/// Lanes of a port, from 1 on. A lane is the queue of this number behind the others: lane 1 is queue 8.
pub const LANES: usize = 64;
/// Queues and lanes.
pub const PLACES: usize = QUEUES + LANES;

/// Queues and lanes, as bits.
pub type Set = u128;
/// Queue 0 with its lanes.
pub const BULK: Set = ((1 << PLACES) - 1) & !((1 << QUEUES) - 2);

/// The place of a lane; `None`: there is no such lane.
#[inline]
pub fn place(lane: u64) -> Option<usize> {
    (1..=LANES as u64).contains(&lane).then(|| QUEUES - 1 + lane as usize)
}

/// Settings of a lane, as its last packet brought them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// As [`QueueConfig::weight`]; 0: 1.
    pub weight: u32,
    /// kbit/s that the lane takes at most; 0: what the port has.
    pub rate: u32,
}

/// Bytes that a lane with a rate may send at once, so that it makes up for the time that it waits for others' frames.
const LANE_BURST: u32 = 2 * QUANTUM as u32;

/// Bytes that the largest weight of the queues that are ready may send per round. The others may send less: so nobody waits
/// for more than a frame of each, however small a weight another queue has, or had when it last sent.
const QUANTUM: i64 = 1514;
/// Credit of a byte: enough that the smallest weight gets some in every round.
const CREDIT: i64 = 1024;
pub const MAX_WEIGHT: u32 = 10_000;

/// One queue of a port. Its limits hold beside those of the port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueConfig {
    pub limit_packets: Option<u32>,
    pub limit_bytes: Option<u64>,
    /// bit/s that this queue takes at most; `None`: what the port has.
    pub rate: Option<u64>,
    /// Bytes that the queue may send at once beyond its rate, after it sent nothing for long enough.
    pub burst: u32,
    /// 1 to [`MAX_WEIGHT`]; `None`: strict priority, before all queues with a weight.
    pub weight: Option<u32>,
}

/// A rate in bit/s with a burst: when the next packet may start. Exact: what a division leaves is carried over.
#[derive(Default)]
pub struct Bucket {
    rate: Option<u64>,
    burst_ns: u64,
    /// Time at which all that was sent is paid for (ns).
    pub free_at: u64,
    remainder: u64,
}

impl Bucket {
    /// Unlimited, but free only from then on.
    pub fn free_from(free_at: u64) -> Bucket {
        Bucket { free_at, ..Bucket::default() }
    }

    pub fn set(&mut self, rate: Option<u64>, burst: u32) {
        self.rate = rate;
        let credit = |rate| (8 * burst as u128 * 1_000_000_000 / rate as u128).min(u64::MAX as u128) as u64;
        self.burst_ns = rate.map_or(0, credit);
        self.remainder = 0;
    }

    /// Idles up to `time`: of what could have been sent, no more than the burst is left.
    pub fn idle_until(&mut self, time: u64) {
        let earliest = time.saturating_sub(self.burst_ns);
        if earliest > self.free_at {
            self.free_at = earliest;
            self.remainder = 0;
        }
    }

    pub fn spend(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            let units = 8 * bytes * 1_000_000_000 + self.remainder;
            self.free_at += units / rate;
            self.remainder = units % rate;
        }
    }
}

/// Deficit round robin among places.
struct Round {
    /// Credit of each place, by [`CREDIT`]; negative: debt.
    credit: [i64; PLACES],
    /// Places that may still send.
    saving: Set,
    /// Place whose turn it is.
    turn: usize,
}

impl Round {
    fn new() -> Round {
        Round { credit: [0; PLACES], saving: 0, turn: 0 }
    }

    /// The next of the places in `ready` (at least one); `waiting`: those that are not empty. One without a weight has the
    /// least of those that are ready.
    fn choose(&mut self, ready: Set, waiting: Set, weights: &[Option<u32>; PLACES]) -> usize {
        if ready & 1 << self.turn != 0 && self.credit[self.turn] > 0 {
            return self.turn;
        }
        let of_ready = || members(ready).filter_map(|place| weights[place]);
        let (least, largest) = (of_ready().min().unwrap_or(1), of_ready().max().unwrap_or(1).max(1));
        // Every round gives each place that is ready a quantum, so one of them has credit soon.
        loop {
            let below = |place: usize| -> Set { (1 << place) - 1 };
            let lower = ready & below(self.turn);
            let next = highest(if lower == 0 { ready } else { lower });
            let between =
                if lower == 0 { below(self.turn) | !below(next + 1) } else { below(self.turn) & !below(next + 1) };
            // An empty queue saves nothing up.
            let empty = between & self.saving & !waiting;
            members(empty).for_each(|place| self.credit[place] = 0);
            self.turn = next;
            let weight = weights[next].unwrap_or(least).max(1);
            self.credit[next] += weight as i64 * QUANTUM * CREDIT / largest as i64;
            self.saving = self.saving & !empty | ((self.credit[next] > 0) as Set) << next;
            if self.credit[next] > 0 {
                return next;
            }
        }
    }

    fn spend(&mut self, place: usize, bytes: u64) {
        self.credit[place] -= bytes as i64 * CREDIT;
        self.saving &= !(((self.credit[place] <= 0) as Set) << place);
    }
}

pub struct Scheduler {
    /// Queues with a weight; the others have strict priority.
    weighted: Set,
    /// Queues and lanes with a rate of their own.
    limited: Set,
    /// Places that share queue 0: none before the first lane is set.
    shared: Set,
    buckets: [Bucket; PLACES],
    /// Weights of lanes; queue 0 has none among them.
    lane_weights: [Option<u32>; PLACES],
    queue_weights: [Option<u32>; PLACES],
    lanes: [Lane; LANES],
    /// Turns of the queues with a weight, and of what shares queue 0.
    queues: Round,
    bulk: Round,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler {
            weighted: 0,
            limited: 0,
            shared: 0,
            buckets: std::array::from_fn(|_| Bucket::default()),
            lane_weights: [None; PLACES],
            queue_weights: [None; PLACES],
            lanes: [Lane::default(); LANES],
            queues: Round::new(),
            bulk: Round::new(),
        }
    }
}

impl Scheduler {
    /// Sets all queues but the lanes.
    pub fn set(&mut self, queues: &[QueueConfig; QUEUES]) {
        for (queue, config) in queues.iter().enumerate() {
            self.limit(queue, config.rate, config.burst);
            self.queue_weights[queue] = config.weight;
        }
        self.weighted = set_of((0..QUEUES).filter(|&queue| queues[queue].weight.is_some()));
    }

    /// Sets the lane at a place.
    #[inline]
    pub fn set_lane(&mut self, place: usize, lane: Lane) {
        let before = &mut self.lanes[place - QUEUES];
        if *before != lane || self.lane_weights[place].is_none() {
            *before = lane;
            self.limit(place, (lane.rate > 0).then_some(1000 * lane.rate as u64), LANE_BURST);
            self.lane_weights[place] = Some(lane.weight.clamp(1, MAX_WEIGHT));
            self.shared = BULK;
        }
    }

    /// Returns true for lanes, and for queue 0 once it has a lane.
    #[inline]
    pub fn shares_bulk(&self, place: usize) -> bool {
        self.shared & 1 << place != 0
    }

    /// Makes queue 0 a queue without lanes again.
    pub fn forget_lanes(&mut self) {
        self.shared = 0;
        self.limited &= (1 << QUEUES) - 1;
        self.lane_weights = [None; PLACES];
    }

    fn limit(&mut self, place: usize, rate: Option<u64>, burst: u32) {
        self.limited = self.limited & !(1 << place) | (rate.is_some() as Set) << place;
        self.buckets[place].set(rate, burst);
    }

    /// Returns true if there is strict priority alone among these places: the first is next.
    #[inline]
    pub fn is_plain(&self, waiting: Set) -> bool {
        waiting & (self.weighted | self.limited | self.shared) == 0
    }

    /// Returns true if each of these places has a rate, which may hold all of them back.
    pub fn holds_back(&self, waiting: Set) -> bool {
        waiting & !with_lanes(self.limited) == 0
    }

    /// Returns when the rates of a place let it send (ns).
    pub fn ready_at(&self, place: usize) -> u64 {
        let of = |place: usize| if self.limited & 1 << place == 0 { 0 } else { self.buckets[place].free_at };
        of(place).max(of(queue_of(place)))
    }

    /// The places that send only while this one has nothing to send.
    pub fn behind(&self, place: usize) -> Set {
        let queue = queue_of(place);
        match self.weighted & 1 << queue {
            0 => with_lanes(self.weighted | ((1 << queue) - 1)),
            _ => 0,
        }
    }

    /// The places that share with this one by weight, but for itself.
    pub fn beside(&self, place: usize) -> Set {
        let queue = queue_of(place);
        let queues = if self.weighted & 1 << queue == 0 { 0 } else { with_lanes(self.weighted) };
        let lanes = if queue == 0 { self.shared } else { 0 };
        (queues | lanes) & !(1 << place)
    }

    /// The last of the places in `waiting` (at least one): queues with a weight come after the others, and of them, or of
    /// what shares queue 0, it is the one that holds most.
    pub fn last(&self, waiting: Set, held: impl Fn(usize) -> u64) -> usize {
        let longest = |places: Set| members(waiting & places).max_by_key(|&place| held(place));
        let last = longest(with_lanes(self.weighted)).or_else(|| longest(BULK));
        last.unwrap_or(waiting.trailing_zeros() as usize)
    }

    /// The next of the places in `ready` (at least one); `waiting`: those that are not empty.
    pub fn choose(&mut self, ready: Set, waiting: Set) -> usize {
        let queues = queues_of(ready);
        let strict = queues & !self.weighted;
        let queue = match strict {
            0 => self.queues.choose(queues, queues_of(waiting), &self.queue_weights),
            _ => highest(strict),
        };
        if queue > 0 || self.shared == 0 {
            return queue;
        }
        self.bulk.choose(ready & BULK, waiting, &self.lane_weights)
    }

    /// The place has sent so many bytes from `start` on.
    pub fn spend(&mut self, place: usize, start: u64, bytes: u64) {
        let queue = queue_of(place);
        if self.weighted & 1 << queue != 0 {
            self.queues.spend(queue, bytes);
        }
        if self.shared & 1 << place != 0 {
            self.bulk.spend(place, bytes);
        }
        for limited in members(self.limited & (1 << place | 1 << queue)) {
            self.buckets[limited].idle_until(start);
            self.buckets[limited].spend(bytes);
        }
    }
}

/// The queue that a place is of.
#[inline]
pub fn queue_of(place: usize) -> usize {
    if place < QUEUES { place } else { 0 }
}

/// The queues that these places are of.
fn queues_of(places: Set) -> Set {
    places & ((1 << QUEUES) - 2) | (places & BULK != 0) as Set
}

/// These queues, with the lanes of queue 0 if it is one of them.
fn with_lanes(queues: Set) -> Set {
    if queues & 1 == 0 { queues } else { queues | BULK }
}

/// The highest queue of a set that is not empty.
#[inline]
pub fn highest(queues: Set) -> usize {
    (Set::BITS - 1 - queues.leading_zeros()) as usize
}

/// The queues of a set, from the lowest on.
pub fn members(mut queues: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = (queues != 0).then(|| queues.trailing_zeros() as usize);
        queues &= queues.wrapping_sub(1);
        first
    })
}

/// The set of these queues.
pub fn set_of(queues: impl Iterator<Item = usize>) -> Set {
    queues.fold(0, |set, queue| set | 1 << queue)
}
