// SPDX-License-Identifier: Apache-2.0
//! Scheduler of a port's queues: strict priority (7 first), then deficit round robin by weight over
//! what that leaves, each queue within its own rate. Pure: time is an argument, in ns.
//!
//! Behind the queues that the priority of a packet names there are lanes: parts of queue 0, each a FIFO of its own, that
//! share with it by weight. A packet brings its lane, and the lane's weight and rate ([`Lane`]).
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

impl Lane {
    fn config(self) -> QueueConfig {
        let rate = (self.rate > 0).then_some(1000 * self.rate as u64);
        QueueConfig { rate, burst: LANE_BURST, weight: Some(self.weight.clamp(1, MAX_WEIGHT)), ..Default::default() }
    }
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

pub struct Scheduler {
    /// Queues with a weight; the others have strict priority.
    weighted: Set,
    /// Queues with a rate.
    limited: Set,
    buckets: [Bucket; PLACES],
    weights: [Option<u32>; PLACES],
    lanes: [Lane; LANES],
    /// Credit of each queue, by [`CREDIT`]; negative: debt.
    credit: [i64; PLACES],
    /// Queues that may still send.
    saving: Set,
    /// Queue whose turn it is among the weighted.
    turn: usize,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler {
            weighted: 0,
            limited: 0,
            buckets: std::array::from_fn(|_| Bucket::default()),
            weights: [None; PLACES],
            lanes: [Lane::default(); LANES],
            credit: [0; PLACES],
            saving: 0,
            turn: 0,
        }
    }
}

impl Scheduler {
    /// Sets all queues but the lanes.
    pub fn set(&mut self, queues: &[QueueConfig; QUEUES]) {
        queues.iter().enumerate().for_each(|(queue, config)| self.put(queue, config));
        self.share();
    }

    /// Sets the lane at a place.
    #[inline]
    pub fn set_lane(&mut self, place: usize, lane: Lane) {
        let before = &mut self.lanes[place - QUEUES];
        if *before != lane || self.weights[place].is_none() {
            *before = lane;
            self.put(place, &lane.config());
            self.share();
        }
    }

    fn put(&mut self, queue: usize, config: &QueueConfig) {
        self.limited = self.limited & !(1 << queue) | (config.rate.is_some() as Set) << queue;
        self.buckets[queue].set(config.rate, config.burst);
        self.weighted = self.weighted & !(1 << queue) | (config.weight.is_some() as Set) << queue;
        self.weights[queue] = config.weight;
    }

    /// Finds out whether queue 0 shares with others. It does with lanes, unless others have a weight and it has none: that
    /// is strict priority.
    fn share(&mut self) {
        let (lanes, others) = (self.weighted >> QUEUES, self.weighted & ((1 << QUEUES) - 2));
        let shares = self.weights[0].is_some() || lanes != 0 && others == 0;
        self.weighted = self.weighted & !1 | shares as Set;
    }

    /// Returns true if there is strict priority alone among these queues: the first is next.
    #[inline]
    pub fn is_plain(&self, waiting: Set) -> bool {
        waiting & (self.weighted | self.limited) == 0
    }

    /// Returns true if each of these queues has a rate, which may hold all of them back.
    pub fn holds_back(&self, waiting: Set) -> bool {
        waiting & !self.limited == 0
    }

    /// Returns when the queue's rate lets it send (ns).
    pub fn ready_at(&self, queue: usize) -> u64 {
        if self.limited & 1 << queue == 0 { 0 } else { self.buckets[queue].free_at }
    }

    /// The queues that send only while this one has nothing to send.
    pub fn behind(&self, queue: usize) -> Set {
        match self.weighted & 1 << queue {
            0 => self.weighted | ((1 << queue) - 1),
            _ => 0,
        }
    }

    /// The queues that share with this one by weight, but for itself.
    pub fn beside(&self, queue: usize) -> Set {
        match self.weighted & 1 << queue {
            0 => 0,
            _ => self.weighted & !(1 << queue),
        }
    }

    /// The last of the queues in `waiting` (at least one): those with a weight come after the others, and of them
    /// the one that holds most.
    pub fn last(&self, waiting: Set, held: impl Fn(usize) -> u64) -> usize {
        let weighted = members(waiting & self.weighted).max_by_key(|&queue| held(queue));
        weighted.unwrap_or(waiting.trailing_zeros() as usize)
    }

    /// The next of the queues in `ready` (at least one); `waiting`: those that are not empty.
    pub fn choose(&mut self, ready: Set, waiting: Set) -> usize {
        let strict = ready & !self.weighted;
        if strict != 0 {
            return highest(strict);
        }
        if ready & 1 << self.turn != 0 && self.credit[self.turn] > 0 {
            return self.turn;
        }
        let (rest, largest) = self.weights_among(ready);
        // Every round gives each queue that is ready a quantum, so one of them has credit soon.
        loop {
            let below = |queue: usize| -> Set { (1 << queue) - 1 };
            let lower = ready & below(self.turn);
            let next = highest(if lower == 0 { ready } else { lower });
            let between =
                if lower == 0 { below(self.turn) | !below(next + 1) } else { below(self.turn) & !below(next + 1) };
            // An empty queue saves nothing up.
            let empty = between & self.saving & !waiting;
            members(empty).for_each(|queue| self.credit[queue] = 0);
            self.turn = next;
            let weight = self.weights[next].unwrap_or(rest);
            self.credit[next] += weight.max(1) as i64 * QUANTUM * CREDIT / largest;
            self.saving = self.saving & !empty | ((self.credit[next] > 0) as Set) << next;
            if self.credit[next] > 0 {
                return next;
            }
        }
    }

    /// Returns the weight of queue 0 where it has none of its own, the least of these queues, and the largest of them.
    fn weights_among(&self, ready: Set) -> (u32, i64) {
        let weights = || members(ready).filter_map(|queue| self.weights[queue]);
        (weights().min().unwrap_or(1), weights().max().unwrap_or(1).max(1) as i64)
    }

    /// The queue has sent so many bytes from `start` on.
    pub fn spend(&mut self, queue: usize, start: u64, bytes: u64) {
        if self.weighted & 1 << queue != 0 {
            self.credit[queue] -= bytes as i64 * CREDIT;
            self.saving &= !(((self.credit[queue] <= 0) as Set) << queue);
        }
        if self.limited & 1 << queue != 0 {
            self.buckets[queue].idle_until(start);
            self.buckets[queue].spend(bytes);
        }
    }
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
