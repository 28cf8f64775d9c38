// SPDX-License-Identifier: Apache-2.0
//! Rate limit of log messages that packets cause.

/// Lines a second, at most.
pub const LINES: u32 = 100;
const SECOND: u64 = 1_000_000_000;

/// Lets [`LINES`] lines through in each second, and remembers how many it did not.
#[derive(Default, Debug)]
pub struct Throttle {
    /// Start of the next second (ns).
    until: u64,
    left: u32,
    silent: u64,
}

impl Throttle {
    /// Passes a line at `now` (ns): `None`: it is not to be written; otherwise the number of lines before it that were
    /// not.
    #[inline]
    pub fn pass(&mut self, now: u64) -> Option<u64> {
        if now >= self.until {
            (self.until, self.left) = (now + SECOND, LINES);
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.silent += 1;
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.silent))
    }

    /// Passes a line as [`Throttle::pass`] does, and logs the number of lines that were not written. True: write this
    /// one.
    pub fn allows(&mut self, now: u64) -> bool {
        match self.pass(now) {
            None => false,
            Some(0) => true,
            Some(silent) => {
                tracing::warn!("log rate limit ({LINES}/s) exceeded: {silent} messages suppressed");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_lines_and_the_next_one_tells_of_the_others() {
        let mut throttle = Throttle::default();
        let passed = |throttle: &mut Throttle, now| (0..1000).filter_map(|_| throttle.pass(now)).collect::<Vec<_>>();
        assert_eq!(passed(&mut throttle, 5), vec![0; LINES as usize]);
        assert_eq!(throttle.pass(SECOND), None);
        let next = passed(&mut throttle, SECOND + 5);
        assert_eq!((next.len(), next[0], next[1]), (LINES as usize, 901, 0));
    }
}
