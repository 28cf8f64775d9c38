// SPDX-License-Identifier: Apache-2.0
//! The paper's scheduler: relation, index, load and the weighted round robin (paper 003, section 3.5).

use super::Interface;

/// Compute the loads of interfaces, equations 1 to 4. `throughputs` in bytes per second, each with its interface.
///
/// How a load is read: the relation is something to be minimised, so the *lowest* index is the best interface and its load is 1;
/// an interface of load 2 is half as good. The paper says that the load "shows how many segments are going to be sent", which read
/// literally would give the worst interface the most. Here a load is the cost of a segment: an interface's share is
/// 1/load. Throughputs enter in kB/s, the paper's unit, and equation 2 moves negative relations by 2 * |min|, as its
/// "conversion to the positive side" needs.
pub fn loads(interfaces: &[(&Interface, f64)]) -> Vec<f64> {
    let mut relation: Vec<f64> = interfaces
        .iter()
        .map(|(interface, throughput)| {
            let kilobytes = (throughput / 1000.0).max(1e-3);
            interface.weight_throughput * (1.0 / kilobytes).ln() + interface.weight_cost * interface.cost.ln()
        })
        .collect();
    let min = relation.iter().copied().fold(f64::INFINITY, f64::min);
    if min < 0.0 {
        relation.iter_mut().for_each(|r| *r += 2.0 * min.abs());
    }
    // A relation of 0 (cost 1, throughput 1 kB/s) would make every other load infinite.
    relation.iter_mut().for_each(|r| *r = r.max(1e-3));
    let max = relation.iter().copied().fold(0.0, f64::max);
    let index: Vec<f64> = relation.iter().map(|r| r / max).collect();
    let best = index.iter().copied().fold(f64::INFINITY, f64::min);
    index.iter().map(|i| i / best).collect()
}

/// Weighted round robin whose turns are spread evenly: in any long run each key has its share, and never two turns in a
/// row more than its share needs.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// Key, share of a round, credit.
    entries: Vec<(u32, f64, f64)>,
}

impl RoundRobin {
    /// Sets the keys and their loads; keys that stay keep their credit.
    pub fn set(&mut self, loads: impl Iterator<Item = (u32, f64)>) {
        let old = std::mem::take(&mut self.entries);
        let credit = |key| old.iter().find(|entry| entry.0 == key).map_or(0.0, |entry| entry.2);
        self.entries = loads.map(|(key, load)| (key, 1.0 / load, credit(key))).collect();
        let total: f64 = self.entries.iter().map(|entry| entry.1).sum();
        self.entries.iter_mut().for_each(|entry| entry.1 /= total);
    }

    /// Return the key that has the turn; None without keys.
    pub fn turn(&self) -> Option<u32> {
        self.entries.iter().max_by(|a, b| (a.1 + a.2).total_cmp(&(b.1 + b.2))).map(|entry| entry.0)
    }

    /// The turn has been taken.
    pub fn advance(&mut self) {
        let Some(taken) = self.turn() else { return };
        for (key, share, credit) in &mut self.entries {
            *credit += *share - if *key == taken { 1.0 } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{got:?} != {expected:?}");
    }

    #[test]
    fn loads_follow_the_equations() {
        let plain = Interface::new("a");
        close(&loads(&[(&plain, 79_000.0), (&plain, 79_000.0)]), &[1.0, 1.0]);
        // ln(1/79.1) = -4.371, ln(1/44.4) = -3.793; + 2 * 4.371: 4.371 and 4.949; load 4.949 / 4.371.
        close(&loads(&[(&plain, 79_125.0), (&plain, 44_375.0)]), &[1.0, 1.1323]);
        // Only cost: ln 1 = 0 and ln 4, no negative value, 0 is held off the singularity.
        let dear: Interface = "b:0:1:4".parse().unwrap();
        let free: Interface = "c:0:1:1".parse().unwrap();
        let by_cost = loads(&[(&dear, 1e6), (&free, 1e3)]);
        assert!(by_cost[0] > 1000.0 && by_cost[1] == 1.0);
    }

    #[test]
    fn the_papers_weights_favour_the_wireless_lan() {
        let mobile: Interface = "wwan0:0.1:0.9:4".parse().unwrap();
        let lan: Interface = "wlan0:0.9:0.1:1".parse().unwrap();
        let load = loads(&[(&mobile, 100_000.0), (&lan, 100_000.0)]);
        assert!(load[1] == 1.0 && load[0] > 1.5, "{load:?}");
        close(&[mobile.price(), lan.price()], &[4f64.powf(0.9), 1.0]);
    }

    #[test]
    fn turns_follow_the_shares() {
        let mut robin = RoundRobin::default();
        assert_eq!(robin.turn(), None);
        robin.set([(1, 1.0), (2, 2.0)].into_iter());
        let mut turns = Vec::new();
        for _ in 0..300 {
            turns.push(robin.turn().unwrap());
            robin.advance();
        }
        assert_eq!(turns.iter().filter(|&&key| key == 1).count(), 200);
        assert!(turns.windows(3).all(|three| three.contains(&2)));
        robin.set([(2, 1.0)].into_iter());
        assert_eq!(robin.turn(), Some(2));
    }
}
