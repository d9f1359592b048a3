//! Counts the hand-offs of the last two seconds. The wait of a new request is estimated from that rate.

use std::time::Duration;

use honeyflow_runtime::Moment;

const SLICE_US: u64 = 100_000;
const SLICES: usize = 20;
/// The smallest number of hand-offs to estimate from.
const ENOUGH: u64 = 100;

#[derive(Debug, Default)]
pub struct Pace {
    slices: [u32; SLICES],
    total: u64,
    /// The number of the current slice.
    at: u64,
    /// When the current slice ends.
    until: Moment,
}

impl Pace {
    #[inline]
    pub fn count(&mut self, now: Moment) {
        self.advance(now);
        self.slices[(self.at % SLICES as u64) as usize] += 1;
        self.total += 1;
    }

    #[inline]
    fn advance(&mut self, now: Moment) {
        if now >= self.until {
            self.advance_slices(now);
        }
    }

    #[cold]
    fn advance_slices(&mut self, now: Moment) {
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
        self.until = Moment((slice + 1) * SLICE_US);
    }

    /// Estimates how long it takes to serve `waiters` requests. `None` if that is in time for `due`, or if there are
    /// too few hand-offs to tell.
    #[inline]
    pub fn estimate_beyond(&mut self, due: Moment, waiters: usize, now: Moment) -> Option<Duration> {
        self.advance(now);
        let (left, span) = (due.micros_since(now), SLICE_US * SLICES as u64 * waiters as u64);
        // Multiplied instead of divided: a division is slower, and this is nearly always in time.
        let in_time = self.total < ENOUGH || u128::from(span) < (u128::from(left) + 1) * u128::from(self.total);
        if in_time { None } else { Some(Duration::from_micros(span / self.total)) }
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
        let due = Moment::from_millis(11_099);
        assert_eq!(pace.estimate_beyond(due, 50, Moment::from_millis(10_100)), None, "too few to estimate");
        pace.count(Moment::from_millis(10_100));
        assert_eq!(pace.estimate_beyond(due, 50, Moment::from_millis(10_100)), Some(Duration::from_secs(1)));
        assert_eq!(
            pace.estimate_beyond(Moment::from_millis(11_100), 50, Moment::from_millis(10_100)),
            None,
            "just in time"
        );
        assert_eq!(pace.estimate_beyond(due, 50, Moment::from_millis(12_200)), None, "long ago");
    }
}
