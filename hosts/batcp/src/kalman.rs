// SPDX-License-Identifier: Apache-2.0
//! Kalman filter of samples of a path (paper 003, section 3.5).

/// Expected change between two samples, as a share of the estimate.
const DRIFT: f64 = 0.05;
/// The least measurement noise, as a share of the sample: ACKs arrive in lumps even on a steady link.
const NOISE: f64 = 0.1;

/// A scalar Kalman filter: state and measurement are one quantity, which stays as it is between samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kalman {
    /// Estimate and its variance; nothing before the first sample.
    state: Option<(f64, f64)>,
}

impl Kalman {
    /// Add a sample and return the estimate. `jitter`: RTT variation by RTT, 0 for a steady path:
    /// its noise, so that spikes of the round-trip time move the estimate little (section 3.5).
    pub fn update(&mut self, sample: f64, jitter: f64) -> f64 {
        let noise = (sample * (NOISE + jitter.clamp(0.0, 2.0))).powi(2).max(1.0);
        let (estimate, variance) = match self.state {
            None => (sample, noise),
            Some((estimate, variance)) => {
                let variance = variance + (DRIFT * estimate).powi(2);
                let gain = variance / (variance + noise);
                (estimate + gain * (sample - estimate), (1.0 - gain) * variance)
            }
        };
        self.state = Some((estimate, variance));
        estimate
    }

    /// Return the estimate in the samples' unit; None before the first.
    pub fn estimate(&self) -> Option<f64> {
        self.state.map(|(estimate, _)| estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_textbook_recursion() {
        let mut filter = Kalman::default();
        assert_eq!(filter.estimate(), None);
        assert_eq!(filter.update(100.0, 0.0), 100.0);
        // Prediction: variance 10^2 + (0.05 * 100)^2 = 125; noise of a sample of 200: 20^2; gain 125 / 525.
        let expected = 100.0 + 125.0 / 525.0 * 100.0;
        assert!((filter.update(200.0, 0.0) - expected).abs() < 1e-9);
    }

    #[test]
    fn softens_spikes_and_follows_steps() {
        let mut filter = Kalman::default();
        for k in 0..50 {
            filter.update(if k % 2 == 0 { 72_000.0 } else { 88_000.0 }, 0.1);
        }
        let steady = filter.estimate().unwrap();
        assert!((steady - 79_000.0).abs() < 2_500.0, "{steady}");
        let spike = filter.update(800_000.0, 1.0);
        assert!(spike < 1.05 * steady, "one spike of tenfold moves it to {spike}");
        for _ in 0..40 {
            filter.update(40_000.0, 0.1);
        }
        assert!((filter.estimate().unwrap() - 40_000.0).abs() < 2_000.0);
    }
}
