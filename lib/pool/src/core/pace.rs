//! How many hand-offs there were in the last two seconds: what a newcomer's wait is estimated from.

use std::time::Duration;

use honeyflow_runtime::Moment;

const SLICE_US: u64 = 100_000;
const SLICES: usize = 20;
/// With fewer nothing can be said.
const ENOUGH: u64 = 100;

#[derive(Debug, Default)]
pub struct Pace {
    slices: [u32; SLICES],
    total: u64,
    /// The number of the current slice.
    at: u64,
}

impl Pace {
    #[inline]
    pub fn count(&mut self, now: Moment) {
        self.advance(now);
        self.slices[(self.at % SLICES as u64) as usize] += 1;
        self.total += 1;
    }

    fn advance(&mut self, now: Moment) {
        let slice = now.0 / SLICE_US;
        if slice <= self.at {
            return;
        }
        for passed in (self.at + 1..=slice).take(SLICES) {
            let count = std::mem::take(&mut self.slices[(passed % SLICES as u64) as usize]);
            self.total -= u64::from(count);
        }
        if slice - self.at > SLICES as u64 {
            self.slices = [0; SLICES];
            self.total = 0;
        }
        self.at = slice;
    }

    /// How long so many waiters take, if that can be told.
    pub fn estimate(&mut self, waiters: usize, now: Moment) -> Option<Duration> {
        self.advance(now);
        let span = SLICE_US * SLICES as u64;
        (self.total >= ENOUGH).then(|| Duration::from_micros(span * waiters as u64 / self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_last_two_seconds() {
        let mut pace = Pace::default();
        for millis in 0..99 {
            pace.count(Moment::from_millis(10_000 + millis));
        }
        assert_eq!(pace.estimate(10, Moment::from_millis(10_100)), None, "too few to say");
        pace.count(Moment::from_millis(10_100));
        assert_eq!(pace.estimate(50, Moment::from_millis(10_100)), Some(Duration::from_secs(1)));
        assert_eq!(pace.estimate(50, Moment::from_millis(12_200)), None, "long ago");
    }
}
