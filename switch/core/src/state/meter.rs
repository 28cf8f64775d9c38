// SPDX-License-Identifier: Apache-2.0
//! Two-rate three-colour marker in colour-blind mode (RFC 2698), as integers: a bucket counts tokens in units of
//! 1/10^9 of a byte (or packet), so that a rate of r per second adds r units in each nanosecond.

pub const GREEN: u64 = 0;
pub const YELLOW: u64 = 1;
pub const RED: u64 = 2;

const UNIT: u64 = 1_000_000_000;

/// The longest burst that a bucket can hold.
pub const MAX_BURST: u64 = u64::MAX / UNIT;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Tokens per second.
    rate: u64,
    /// Units.
    size: u64,
    /// Units.
    tokens: u64,
}

impl Bucket {
    /// RFC 2698: a bucket is full at the start.
    fn full(rate: u64, burst: u64) -> Bucket {
        let size = burst.min(MAX_BURST) * UNIT;
        Bucket { rate, size, tokens: size }
    }

    fn refill(&mut self, elapsed_ns: u64) {
        let new = self.rate.saturating_mul(elapsed_ns);
        self.tokens = self.tokens.saturating_add(new).min(self.size);
    }

    fn take(&mut self, amount: u64) -> bool {
        let amount = amount.saturating_mul(UNIT);
        let enough = self.tokens >= amount;
        if enough {
            self.tokens -= amount;
        }
        enough
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Meter {
    committed: Bucket,
    peak: Bucket,
    /// ns
    updated: u64,
}

/// The colour of a packet of `amount` bytes (or 1 packet) at `now` ns. Without a configuration everything is green.
#[inline]
pub fn colour(meter: Option<&mut Meter>, amount: u64, now: u64) -> u64 {
    meter.map_or(GREEN, |meter| meter.execute(amount, now))
}

impl Meter {
    /// Rates per second; bursts in bytes or packets.
    pub fn configured(cir: u64, cburst: u64, pir: u64, pburst: u64, now: u64) -> Meter {
        Meter { committed: Bucket::full(cir, cburst), peak: Bucket::full(pir, pburst), updated: now }
    }

    /// See [`colour`].
    #[inline]
    pub fn execute(&mut self, amount: u64, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.updated);
        self.updated = self.updated.max(now);
        self.committed.refill(elapsed);
        self.peak.refill(elapsed);
        if !self.peak.take(amount) {
            RED
        } else if !self.committed.take(amount) {
            YELLOW
        } else {
            GREEN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 bytes/s committed with a burst of 1500, 2000 bytes/s peak with a burst of 3000.
    fn meter() -> Meter {
        Meter::configured(1000, 1500, 2000, 3000, 0)
    }

    #[test]
    fn an_unconfigured_meter_is_green() {
        assert_eq!(colour(None, 1 << 40, 0), GREEN);
    }

    #[test]
    fn bursts_are_green_then_yellow_then_red() {
        let mut meter = meter();
        let colours: Vec<_> = (0..4).map(|_| meter.execute(1000, 0)).collect();
        // Tc 1500: one packet; Tp 3000: three.
        assert_eq!(colours, [GREEN, YELLOW, YELLOW, RED]);
    }

    #[test]
    fn a_red_packet_takes_no_tokens() {
        let mut meter = meter();
        assert_eq!(meter.execute(3001, 0), RED);
        assert_eq!(meter.execute(3000, 0), YELLOW);
    }

    #[test]
    fn a_bucket_fills_at_its_rate_and_no_further_than_its_size() {
        let mut meter = meter();
        assert_eq!(meter.execute(1500, 0), GREEN);
        // After 0.5 s: Tc 500, Tp 2500.
        assert_eq!(meter.execute(501, 500_000_000), YELLOW);
        assert_eq!(meter.execute(500, 500_000_000), GREEN);
        // A year later the burst is still the burst.
        let year = 31_557_600_000_000_000;
        assert_eq!(meter.execute(1501, year), YELLOW);
    }

    #[test]
    fn fractions_of_a_token_are_not_lost() {
        // 3 bytes/s read every 100 ms: 0.3 bytes each.
        let mut meter = Meter::configured(3, 1, u64::MAX, u64::MAX, 0);
        assert_eq!(meter.execute(1, 0), GREEN);
        let green = (1..=100).filter(|i| meter.execute(1, i * 100_000_000) == GREEN).count();
        // 10 s at 3 bytes/s, a bucket of one byte: a packet every fourth step.
        assert_eq!(green, 25);
    }

    #[test]
    fn time_that_goes_back_changes_nothing() {
        let mut meter = meter();
        assert_eq!(meter.execute(1500, 1000), GREEN);
        assert_eq!(meter.execute(1, 0), YELLOW);
        assert_eq!(meter.execute(1, 1000), YELLOW);
    }
}
