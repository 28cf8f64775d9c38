// SPDX-License-Identifier: Apache-2.0
//! BW_max and f(n) of paper 002 from plain measurements: throughput of n terminals without control.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::Capacity;
use hosts_base::Error;

/// Measurement without control.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub terminals: usize,
    /// Throughput of all terminals together
    pub mbit_per_s: f64,
}

/// Capacity, and the quality of the fit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fit {
    #[serde(flatten)]
    pub capacity: Capacity,
    /// Numbers of terminals that were measured
    pub points: usize,
    /// Largest relative deviation of a point from the fit
    pub worst: f64,
}

/// Fit the power law (paper 002, expressions 3 and 4): BW_max is the highest mean throughput, f(1) = 1, and the
/// exponent is the least-squares slope of ln(throughput / BW_max) over ln(n). The paper's own exponent cannot be read
/// in its text. Throughput that rises with n gives exponent 0, as f must not rise. Errors: fewer than two numbers of
/// terminals, or a number that is not positive.
pub fn fit(measured: &[Measured]) -> Result<Fit, Error> {
    let mut by_terminals: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for point in measured {
        if point.terminals == 0 || !point.mbit_per_s.is_finite() || point.mbit_per_s <= 0.0 {
            return Err(Error::new(format!(
                "{} terminals with {} Mb/s: both must be positive",
                point.terminals, point.mbit_per_s
            )));
        }
        let (sum, count) = by_terminals.entry(point.terminals).or_default();
        *sum += point.mbit_per_s;
        *count += 1.0;
    }
    if by_terminals.len() < 2 {
        return Err(Error::new("a fit needs measurements for at least two numbers of terminals, 1 and more"));
    }
    let means: Vec<(f64, f64)> = by_terminals.iter().map(|(n, (sum, count))| (*n as f64, sum / count)).collect();
    let best = means.iter().fold(0.0, |best: f64, (_, mean)| best.max(*mean));
    let slope = |(product, square): (f64, f64), (n, mean): &(f64, f64)| {
        (product + n.ln() * (mean / best).ln(), square + n.ln().powi(2))
    };
    let (product, square) = means.iter().fold((0.0, 0.0), slope);
    let capacity = Capacity { mbit_per_s: best, exponent: (product / square).min(0.0) };
    let deviation = |(n, mean): &(f64, f64)| (capacity.bandwidth(*n as usize) / mean - 1.0).abs();
    Ok(Fit { capacity, points: means.len(), worst: means.iter().map(deviation).fold(0.0, f64::max) })
}

/// Compute the means of live samples by the number of sending terminals; numbers with fewer than `enough` samples are
/// left out: terminals that come and go.
pub fn settle(samples: &[Measured], enough: usize) -> Vec<Measured> {
    let mut by_terminals: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.terminals > 0 && sample.mbit_per_s > 0.0) {
        by_terminals.entry(sample.terminals).or_default().push(sample.mbit_per_s);
    }
    by_terminals
        .into_iter()
        .filter(|(_, rates)| rates.len() >= enough)
        .map(|(terminals, rates)| Measured { terminals, mbit_per_s: rates.iter().sum::<f64>() / rates.len() as f64 })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(of: &[(usize, f64)]) -> Vec<Measured> {
        of.iter().map(|&(terminals, mbit_per_s)| Measured { terminals, mbit_per_s }).collect()
    }

    #[test]
    fn several_measurements_are_averaged() {
        let fit = fit(&points(&[(1, 18.0), (1, 20.0), (4, 9.5)])).unwrap();
        assert!((fit.capacity.mbit_per_s - 19.0).abs() < 1e-9 && (fit.capacity.exponent + 0.5).abs() < 1e-9);
        assert!(fit.points == 2 && fit.worst < 1e-9);
    }

    #[test]
    fn a_rise_is_no_fall() {
        assert_eq!(fit(&points(&[(1, 4.0), (2, 5.0), (4, 5.0)])).unwrap().capacity.exponent, 0.0);
    }

    #[test]
    fn what_cannot_be_fitted_is_named() {
        for bad in [&[(1, 19.0)][..], &[(1, 19.0), (1, 18.0)], &[], &[(1, 19.0), (2, 0.0)], &[(0, 1.0), (2, 1.0)]] {
            assert!(fit(&points(bad)).is_err(), "{bad:?}");
        }
        assert!(fit(&points(&[(1, f64::NAN), (2, 1.0)])).is_err());
    }

    #[test]
    fn live_samples_settle() {
        let samples = points(&[(0, 0.0), (1, 10.0), (1, 12.0), (1, 11.0), (2, 3.0), (3, 9.0), (3, 9.0), (3, 9.0)]);
        assert_eq!(settle(&samples, 3), points(&[(1, 11.0), (3, 9.0)]));
    }

    proptest! {
        #[test]
        fn an_exact_power_law_is_recovered(mbit in 0.1f64..1000.0, exponent in -1.5f64..0.0, most in 2usize..20) {
            let truth = Capacity { mbit_per_s: mbit, exponent };
            let measured: Vec<_> =
                (1..=most).map(|terminals| Measured { terminals, mbit_per_s: truth.bandwidth(terminals) }).collect();
            let fit = fit(&measured).unwrap();
            prop_assert!((fit.capacity.exponent - exponent).abs() < 1e-6 && fit.worst < 1e-6);
        }
    }
}
