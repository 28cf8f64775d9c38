// SPDX-License-Identifier: Apache-2.0
//! A link whose rate is a recorded one, in the trace format of Mahimahi (Netravali et al., USENIX ATC 2015).
//!
//! A line of a trace is a time in ms, none earlier than the line before, and stands for one opportunity to deliver
//! [`OPPORTUNITY`] bytes. After its last time the trace starts again. Packets share an opportunity, and a packet may
//! need several: it has left with the last of them. What nobody waits for is lost, so a gap is a time without lines.

use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Bytes of one opportunity: an Ethernet frame with 1500 bytes in it.
pub const OPPORTUNITY: u64 = 1514;

const NS_PER_MS: u64 = 1_000_000;
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Times at which packets can be delivered.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    /// ms, in order; the last one is not 0.
    times: Box<[u32]>,
}

impl Trace {
    /// Reads a trace from a file; the error names the file and its line.
    pub fn read(path: &Path) -> Result<Trace, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let metadata = fs::metadata(path).map_err(|e| named(e.to_string()))?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return Err(named(format!("not a file of at most {} MiB", MAX_FILE_BYTES >> 20)));
        }
        let bytes = fs::read(path).map_err(|e| named(e.to_string()))?;
        Trace::parse(&String::from_utf8_lossy(&bytes)).map_err(named)
    }

    /// The error names the line.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut times: Vec<u32> = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let time = line.trim().parse().map_err(|_| {
                let shown: String = line.chars().take(20).collect();
                format!("line {number}: `{shown}` is not a time in whole ms")
            })?;
            if let Some(&last) = times.last()
                && time < last
            {
                return Err(format!("line {number}: {time} is earlier than {last} in the line before"));
            }
            times.push(time);
        }
        match times.last() {
            None => Err("the trace is empty: give a time in ms on each line".into()),
            Some(0) => Err(format!("line {}: the last time is 0, so the trace could never start again", times.len())),
            Some(_) => Ok(Trace { times: times.into() }),
        }
    }

    fn time(&self, index: usize) -> u64 {
        self.times[index] as u64 * NS_PER_MS
    }

    /// Returns the length of the trace (ns).
    fn period(&self) -> u64 {
        self.time(self.times.len() - 1)
    }
}

/// A place in a trace: an opportunity and what is left of it.
pub struct Player {
    trace: Arc<Trace>,
    /// Start of this round of the trace (ns).
    began: u64,
    index: usize,
    left: u64,
}

impl Player {
    pub fn new(trace: Arc<Trace>) -> Player {
        Player { trace, began: 0, index: 0, left: OPPORTUNITY }
    }

    /// Returns the time of the opportunity (ns).
    pub fn at(&self) -> u64 {
        self.began + self.trace.time(self.index)
    }

    /// Lets all opportunities before `time` pass; the place must be among them.
    pub fn skip_to(&mut self, time: u64) {
        // A round ends with its last time, so that one at the very end still belongs to it.
        let period = self.trace.period();
        self.began = time.saturating_sub(1) / period * period;
        let within = time - self.began;
        self.index = self.trace.times.partition_point(|&ms| ms as u64 * NS_PER_MS < within);
        self.left = OPPORTUNITY;
    }

    /// Takes what a packet needs; returns when its last byte leaves.
    pub fn spend(&mut self, mut bytes: u64) -> u64 {
        while bytes > self.left {
            bytes -= self.left;
            self.advance();
        }
        self.left -= bytes;
        let left_at = self.at();
        if self.left == 0 {
            self.advance();
        }
        left_at
    }

    fn advance(&mut self) {
        self.index += 1;
        if self.index == self.trace.times.len() {
            self.began += self.trace.period();
            self.index = 0;
        }
        self.left = OPPORTUNITY;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Link, LinkConfig};

    const MS: u64 = NS_PER_MS;

    fn config(trace: &str) -> LinkConfig {
        LinkConfig { trace: Some(Arc::new(Trace::parse(trace).unwrap())), ..Default::default() }
    }

    /// (packet, arrival in ns) of packets that come after `gap` ns each with so many bytes.
    fn play(config: &LinkConfig, packets: &[(u64, u64)]) -> Vec<(usize, u64)> {
        let mut link: Link<usize> = Link::new(config.clone(), 1);
        let mut arrivals = Vec::new();
        let mut now = 0;
        let mut run = |link: &mut Link<usize>, from: u64, until: u64| {
            while let Some(due) = link.deadline().filter(|&due| due <= until) {
                let now = due.max(from);
                while let Some(dequeued) = link.dequeue(now) {
                    assert!(dequeued.enqueued <= dequeued.start && dequeued.start <= now);
                    link.transmit(packets[dequeued.item].1 as usize, dequeued.item);
                }
                while let Some(item) = link.arrived(now) {
                    arrivals.push((item, now));
                }
            }
        };
        for (item, &(gap, bytes)) in packets.iter().enumerate() {
            run(&mut link, now, now + gap);
            now += gap;
            link.enqueue(now, 0, bytes as u32, item).unwrap();
        }
        run(&mut link, now, u64::MAX);
        arrivals
    }

    #[test]
    fn packets_share_an_opportunity_and_long_ones_need_several() {
        // Opportunities at 2, 2, 7, 10, 12, 12, 17, 20, 22 ... ms.
        let config = config("2\n2\n7\n10\n");
        let packets = [(0, 100), (0, 1414), (0, 1000), (0, 1000), (0, 1514), (9 * MS, 60), (0, 4000)];
        let expected = [(0, 2), (1, 2), (2, 2), (3, 7), (4, 10), (5, 10), (6, 17)];
        assert_eq!(play(&config, &packets), expected.map(|(item, ms)| (item, ms * MS)));
    }

    #[test]
    fn what_nobody_waits_for_is_lost() {
        let config = config("1\n1\n5\n");
        // The rest of the opportunity at 1 ms is lost, as is the one beside it; at 5 ms the packet just makes it.
        assert_eq!(play(&config, &[(0, 100), (2 * MS, 100), (3 * MS, 100)]), [(0, MS), (1, 5 * MS), (2, 5 * MS)]);
        // Long after, and on the very time of an opportunity: 1,000,000 ms is the end of a round.
        assert_eq!(play(&config, &[(1_000_000 * MS, 60)]), [(0, 1_000_000 * MS)]);
        assert_eq!(play(&config, &[(1_000_000 * MS + 1, 60)]), [(0, 1_000_001 * MS)]);
    }

    #[test]
    fn a_bad_trace_is_named_with_its_line() {
        for (text, message) in [
            ("", "the trace is empty"),
            ("0\n0\n", "line 2: the last time is 0"),
            ("1\n3\n2\n", "line 3: 2 is earlier than 3"),
            ("1\n\n2\n", "line 2: `` is not a time"),
            ("1\n2.5\n", "line 2: `2.5` is not a time"),
            ("-1\n", "line 1: `-1` is not a time"),
            ("1\n99999999999\n", "line 2: `99999999999` is not a time"),
        ] {
            let error = Trace::parse(text).unwrap_err();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
        assert_eq!(Trace::parse("0\r\n 7\r\n").unwrap().times[..], [0, 7]);
        for (path, message) in [("/nowhere/trace", "No such file"), ("/dev/zero", "not a file of at most 64 MiB")] {
            let error = Trace::read(Path::new(path)).unwrap_err();
            assert!(error.starts_with(&format!("{path}: ")) && error.contains(message), "{error}");
        }
    }

    fn trace() -> impl Strategy<Value = Vec<u32>> {
        (prop::collection::vec(0u32..40, 0..30), 1u32..40).prop_map(|(gaps, last)| {
            let mut time = 0;
            gaps.into_iter()
                .chain([last])
                .map(|gap| {
                    time += gap;
                    time
                })
                .collect()
        })
    }

    fn text(times: &[u32]) -> String {
        times.iter().map(|time| format!("{time}\n")).collect()
    }

    proptest! {
        /// Checks that with a queue which never empties full frame k leaves at time k of the trace, however late the
        /// timers are.
        #[test]
        fn full_frames_leave_at_the_times_of_the_trace(
            times in trace(),
            lateness in prop::collection::vec(0u64..20 * MS, 1..20),
        ) {
            let mut link: Link<usize> = Link::new(LinkConfig { limit_packets: 5000, ..config(&text(&times)) }, 1);
            (0..100).for_each(|item| link.enqueue(0, 0, 1514, item).unwrap());
            let (mut late, mut sent) = (lateness.iter().cycle(), 0);
            let period = times[times.len() - 1] as u64;
            while let Some(due) = link.deadline() {
                let now = due + late.next().unwrap();
                while let Some(dequeued) = link.dequeue(now) {
                    let time = times[sent % times.len()] as u64 + sent as u64 / times.len() as u64 * period;
                    prop_assert_eq!((dequeued.item, dequeued.start), (sent, time * MS));
                    link.transmit(1514, dequeued.item);
                    sent += 1;
                }
                while link.arrived(now).is_some() {}
            }
            prop_assert_eq!(sent, 100);
        }

        /// Packets of any size at any time leave when going through the opportunities one by one says; and again.
        #[test]
        fn a_replay_is_what_arithmetic_says_and_the_same_again(
            times in trace(),
            packets in prop::collection::vec((0u64..100 * MS, 1u64..5000), 1..60),
            delay in 0u64..50 * MS,
            overhead in 0u32..40,
        ) {
            let config = LinkConfig { delay_ns: delay, overhead, ..config(&text(&times)) };
            let period = times[times.len() - 1] as u64;
            let mut opportunities = (0u64..)
                .flat_map(|round| times.iter().map(move |&time| (round * period + time as u64) * MS));
            let (mut at, mut left) = (opportunities.next().unwrap(), 1514);
            let (mut now, mut expected) = (0, Vec::new());
            for (item, &(gap, bytes)) in packets.iter().enumerate() {
                now += gap;
                while at < now {
                    (at, left) = (opportunities.next().unwrap(), 1514);
                }
                let mut arrival = at;
                for _ in 0..bytes + overhead as u64 {
                    if left == 0 {
                        (at, left) = (opportunities.next().unwrap(), 1514);
                    }
                    left -= 1;
                    arrival = at;
                }
                if left == 0 {
                    (at, left) = (opportunities.next().unwrap(), 1514);
                }
                expected.push((item, arrival + delay));
            }
            prop_assert_eq!(play(&config, &packets), &expected[..]);
            prop_assert_eq!(play(&config, &packets), expected);
        }
    }
}
