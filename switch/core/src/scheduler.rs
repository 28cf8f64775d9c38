// SPDX-License-Identifier: Apache-2.0
//! Scheduler of a port's queues: strict priority (7 first), then deficit round robin by weight over
//! what that leaves, each queue within its own rate. Pure: time is an argument, in ns.
//!
//! Deficit round robin: Shreedhar, Varghese, Efficient Fair Queueing using Deficit Round-Robin, SIGCOMM 1995, in the
//! form that overdraws: a queue sends while it has credit and pays what the packet took on the wire, which is known
//! only after egress.

pub const QUEUES: usize = 8;

/// Bytes that the queue with the smallest weight may send per round.
const QUANTUM: i64 = 1514;
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

#[derive(Default)]
pub struct Scheduler {
    /// Queues with a weight, as bits; the others have strict priority.
    weighted: u8,
    /// Queues with a rate, as bits.
    limited: u8,
    buckets: [Bucket; QUEUES],
    /// Bytes that a queue gets per round, and that it may still send; negative: that it owes.
    quantum: [i64; QUEUES],
    credit: [i64; QUEUES],
    /// Queue whose turn it is among the weighted.
    turn: usize,
}

impl Scheduler {
    pub fn set(&mut self, queues: &[QueueConfig; QUEUES]) {
        (self.weighted, self.limited) = (0, 0);
        let smallest = queues.iter().filter_map(|queue| queue.weight).min().unwrap_or(1).max(1) as i64;
        for (index, queue) in queues.iter().enumerate() {
            self.weighted |= (queue.weight.is_some() as u8) << index;
            self.limited |= (queue.rate.is_some() as u8) << index;
            self.buckets[index].set(queue.rate, queue.burst);
            self.quantum[index] = queue.weight.map_or(0, |weight| weight.max(1) as i64 * QUANTUM / smallest);
            self.credit[index] = self.credit[index].min(0);
        }
    }

    /// Returns true if there is strict priority alone: the first queue that is not empty is next.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.weighted | self.limited == 0
    }

    /// Returns when the queue's rate lets it send (ns).
    pub fn ready_at(&self, queue: usize) -> u64 {
        if self.limited & 1 << queue == 0 { 0 } else { self.buckets[queue].free_at }
    }

    /// The queues that send only while this one has nothing to send, as bits.
    pub fn behind(&self, queue: usize) -> u8 {
        match self.weighted & 1 << queue {
            0 => self.weighted | ((1 << queue) - 1),
            _ => 0,
        }
    }

    /// The last of the queues in `waiting` (bits, at least one): those with a weight come after the others, and of them
    /// the one that holds most.
    pub fn last(&self, waiting: u8, held: impl Fn(usize) -> u64) -> usize {
        let weighted = members(waiting & self.weighted).max_by_key(|&queue| held(queue));
        weighted.unwrap_or(waiting.trailing_zeros() as usize)
    }

    /// The next of the queues in `ready` (bits, at least one); `waiting`: those that are not empty.
    pub fn choose(&mut self, ready: u8, waiting: u8) -> usize {
        let strict = ready & !self.weighted;
        if strict != 0 {
            return highest(strict);
        }
        // Every round gives each queue that is ready a quantum, so one of them has credit soon.
        while ready & 1 << self.turn == 0 || self.credit[self.turn] <= 0 {
            self.turn = (self.turn + QUEUES - 1) % QUEUES;
            let (set, credit) = (1 << self.turn, &mut self.credit[self.turn]);
            if ready & set != 0 {
                *credit += self.quantum[self.turn];
            } else if waiting & set == 0 {
                // An empty queue saves nothing up.
                *credit = (*credit).min(0);
            }
        }
        self.turn
    }

    /// The queue has sent so many bytes from `start` on.
    pub fn spend(&mut self, queue: usize, start: u64, bytes: u64) {
        if self.weighted & 1 << queue != 0 {
            self.credit[queue] -= bytes as i64;
        }
        if self.limited & 1 << queue != 0 {
            self.buckets[queue].idle_until(start);
            self.buckets[queue].spend(bytes);
        }
    }
}

/// The highest queue of a set that is not empty.
#[inline]
pub fn highest(queues: u8) -> usize {
    7 - queues.leading_zeros() as usize
}

/// The queues of a set.
pub fn members(queues: u8) -> impl Iterator<Item = usize> {
    (0..QUEUES).filter(move |queue| queues & 1 << queue != 0)
}
