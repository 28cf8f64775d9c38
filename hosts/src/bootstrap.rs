// SPDX-License-Identifier: Apache-2.0
//! Confidence intervals by resampling (Efron's percentile bootstrap), the same for the same data on every machine.

use serde::Serialize;

const RESAMPLES: usize = 2000;
const SEED: u64 = 0x5eed_0fb0_0757_ab1e;

/// Value and its 95 % confidence interval, in the value's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Compute `statistic` of `sample`, with its 2.5 and 97.5 percentiles over resamples with replacement.
///
/// `None` for an empty sample. One element gives an interval without width: it says nothing about confidence.
pub fn bootstrap<T: Clone>(sample: &[T], statistic: impl Fn(&[T]) -> f64) -> Option<Interval> {
    if sample.is_empty() {
        return None;
    }
    let mut random = SplitMix(SEED);
    let mut resample = sample.to_vec();
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.iter_mut().for_each(|element| *element = sample[random.below(sample.len())].clone());
            statistic(&resample)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    Some(Interval { value: statistic(sample), low: quantile(&values, 0.025), high: quantile(&values, 0.975) })
}

/// Return the `q` quantile (0 to 1) of values in ascending order, interpolated. NaN without values.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = q * last as f64;
    let below = position as usize;
    let above = (below + 1).min(last);
    sorted[below] + (position - below as f64) * (sorted[above] - sorted[below])
}

/// NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// Return the mean of the half of the values that lies closest together: robust if the others err to one side. NaN
/// without values.
pub fn shortest_half(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2 + 1;
    let closest = sorted.windows(half).min_by(|a, b| (a[half - 1] - a[0]).total_cmp(&(b[half - 1] - b[0])));
    closest.map_or_else(|| mean(&sorted), mean)
}

/// NaN without values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Random number generator of this program (SplitMix64, Steele et al. 2014): a library's may change with its version,
/// and results with it.
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Return a number uniform from 0 to `bound` - 1.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Return a number uniform from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors() {
        let mut random = SplitMix(1);
        let sample: Vec<f64> = (0..400).map(|_| random.unit()).collect();
        let interval = bootstrap(&sample, mean).unwrap();
        // A uniform value has the standard deviation 0.2887; the mean of 400 has 0.01443.
        let width = interval.high - interval.low;
        assert!((width / (2.0 * 1.96 * 0.01443) - 1.0).abs() < 0.1, "{width}");
        assert!(interval.low < interval.value && interval.value < interval.high);
        assert_eq!(bootstrap(&sample, mean), Some(interval));
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        let mut random = SplitMix(7);
        let held = (0..200)
            .filter(|_| {
                let sample: Vec<f64> = (0..60).map(|_| random.unit()).collect();
                let interval = bootstrap(&sample, mean).unwrap();
                interval.low <= 0.5 && 0.5 <= interval.high
            })
            .count();
        // 95 % of 200, and three standard deviations to either side.
        assert!((178..=199).contains(&held), "{held}");
    }

    #[test]
    fn the_shortest_half_is_what_most_agree_on() {
        assert_eq!(shortest_half(&[9.0, 5.0, 30.0, 5.2, 4.8, 12.0, 5.0]), 5.0);
        assert_eq!(shortest_half(&[1.0, 3.0]), 2.0);
        assert_eq!(shortest_half(&[7.0]), 7.0);
        assert!(shortest_half(&[]).is_nan());
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.25), 1.5);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(bootstrap::<f64>(&[], mean), None);
    }

    proptest! {
        #[test]
        fn an_interval_lies_within_the_sample(sample in prop::collection::vec(-1e6f64..1e6, 1..50)) {
            let interval = bootstrap(&sample, median).unwrap();
            let least = sample.iter().copied().fold(f64::INFINITY, f64::min);
            let most = sample.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(least <= interval.low && interval.low <= interval.high && interval.high <= most);
        }
    }
}
