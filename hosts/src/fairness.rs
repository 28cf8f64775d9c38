// SPDX-License-Identifier: Apache-2.0
//! Fairness indices of "Instantaneous fairness of TCP in heterogeneous traffic wireless LAN environments" (Jung, Park 2016).
//!
//! Open points of the paper, and their settlement here:
//! - N counts every node of the link, persistent and intermittent, sending or pausing (section 3.3: "the number of nodes in
//!   the link"). While others pause a session may therefore finish in less than its ideal time; its ratio is above 1.
//! - A session that has not finished has no `m` and is left out of the mean (equation 3: "where m is available"). Left out, a
//!   starved session would raise the index, so `at_most` gives the index with such sessions at the highest ratio that they
//!   can still reach.
//! - Endless sessions have no ratio (section 3.3); they count as nodes.

pub use crate::bootstrap::Interval;
use crate::bootstrap::{bootstrap, mean};

/// Compute S_TCP(N) = rho B / N, equation (1) in section 3.3, in bytes per second.
///
/// `effective`: rho B, the highest total of TCP throughput in the sessions' direction, bytes per second (section 4.1,
/// Table 1). `nodes`: all nodes of the link.
pub fn fair_share(effective: f64, nodes: usize) -> f64 {
    effective / nodes as f64
}

/// Compute r = e / m with e = l / S_TCP(N), equation (2) in section 3.3: the ideal finish time over the measured one.
///
/// `length`: bytes. `finish`: s from the start to the sender's last acknowledgement. `share`: bytes per second.
pub fn ratio(length: u64, finish: f64, share: f64) -> f64 {
    length as f64 / share / finish
}

/// Compute IF, equation (3) in section 3.3: the mean of the ratios of all finished sessions, with 95 % confidence over
/// resampled sessions. `None` without any.
pub fn instantaneous_fairness(ratios: &[f64]) -> Option<Interval> {
    bootstrap(ratios, mean)
}

/// Compute the instantaneous fairness index if every unfinished session finished at this moment: no later end gives a
/// higher one.
///
/// `unfinished`: the ratio that each of them would have with the time that has passed.
pub fn at_most(finished: &[f64], unfinished: &[f64]) -> Option<f64> {
    let all: Vec<f64> = finished.iter().chain(unfinished).copied().collect();
    (!all.is_empty()).then(|| mean(&all))
}

/// Compute Jain's index (sum x)^2 / (n sum x^2), reference [16] of section 2: 1 when all get the same, 1/n when one
/// gets everything.
///
/// `allocations`: each user's part, all in one unit, none negative. `None` without users; 1 when all parts are 0.
pub fn jain(allocations: &[f64]) -> Option<f64> {
    if allocations.is_empty() {
        return None;
    }
    // Relative to the greatest: squares of large or tiny numbers stay numbers.
    let most = allocations.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return Some(1.0);
    }
    let (sum, squares) =
        allocations.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x / most, squares + (x / most) * (x / most)));
    Some(sum * sum / (allocations.len() as f64 * squares))
}

/// Compute Jain's index with 95 % confidence over resampled users.
pub fn jain_interval(allocations: &[f64]) -> Option<Interval> {
    bootstrap(allocations, |users| jain(users).unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_section_4_1() {
        // 4.96 Mb/s, "0.62M Bps", four nodes: "each TCP user should be able to receive 155 Kbytes per second".
        let share = fair_share(4.96e6 / 8.0, 4);
        assert_eq!(share, 155_000.0);
        assert!((ratio(10_000, 0.06452, share) - 1.0).abs() < 1e-3);
        // "The left side is the ideal case": twice the time is half of the fairness.
        assert_eq!(ratio(155_000, 2.0, share), 0.5);
    }

    #[test]
    fn jains_textbook_values() {
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0, 1.0, 0.0, 0.0]), Some(0.5));
        assert!((jain(&[1.0, 2.0, 3.0]).unwrap() - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), Some(1.0));
    }

    #[test]
    fn unfinished_sessions_lower_the_upper_bound_only() {
        assert_eq!(instantaneous_fairness(&[0.8, 0.4]).unwrap().value, 0.6000000000000001);
        assert!((at_most(&[0.8, 0.4], &[0.0]).unwrap() - 0.4).abs() < 1e-12);
        assert_eq!(at_most(&[], &[]), None);
        assert_eq!(instantaneous_fairness(&[]), None);
    }

    proptest! {
        #[test]
        fn jain_lies_between_one_nth_and_one(users in prop::collection::vec(0.0f64..1e12, 1..60)) {
            let index = jain(&users).unwrap();
            prop_assert!(index >= 1.0 / users.len() as f64 - 1e-9 && index <= 1.0 + 1e-9);
        }

        #[test]
        fn jain_does_not_depend_on_the_unit(users in prop::collection::vec(0.001f64..1e6, 1..60), unit in 1e-150f64..1e150) {
            let scaled: Vec<f64> = users.iter().map(|x| x * unit).collect();
            prop_assert!((jain(&users).unwrap() - jain(&scaled).unwrap()).abs() < 1e-9);
        }

        #[test]
        fn jain_does_not_depend_on_the_order(mut users in prop::collection::vec(0.0f64..1e6, 1..60)) {
            let before = jain(&users).unwrap();
            users.reverse();
            prop_assert!((before - jain(&users).unwrap()).abs() < 1e-9);
        }

        #[test]
        fn equal_users_and_only_they_are_perfectly_fair(x in 0.001f64..1e9, n in 1usize..50) {
            prop_assert!((jain(&vec![x; n]).unwrap() - 1.0).abs() < 1e-9);
            prop_assert!(jain(&[vec![x; n], vec![2.0 * x]].concat()).unwrap() < 1.0 - 1e-6);
        }

        /// The index is 1 for sessions that finish in the ideal time, for any lengths and number of nodes.
        #[test]
        fn the_index_of_the_ideal_is_one(
            lengths in prop::collection::vec(1u64..10_000_000_000, 1..60),
            effective in 1e3f64..1e10,
            nodes in 1usize..100,
        ) {
            let share = fair_share(effective, nodes);
            let ratios: Vec<f64> = lengths.iter().map(|&l| ratio(l, l as f64 / share, share)).collect();
            let index = instantaneous_fairness(&ratios).unwrap();
            prop_assert!((index.value - 1.0).abs() < 1e-9 && (index.high - index.low).abs() < 1e-9);
        }

        /// Half the speed is half the index.
        #[test]
        fn the_index_falls_with_the_finish_time(
            finishes in prop::collection::vec(0.001f64..1e3, 1..60), factor in 1.0f64..100.0,
        ) {
            let of = |factor: f64| {
                let ratios: Vec<f64> = finishes.iter().map(|m| ratio(10_000, m * factor, 155_000.0)).collect();
                instantaneous_fairness(&ratios).unwrap().value
            };
            prop_assert!((of(1.0) / of(factor) / factor - 1.0).abs() < 1e-9);
        }
    }
}
