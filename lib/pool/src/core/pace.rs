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
    /// When that begins to be over.
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
            self.go_on(now);
        }
    }

    #[cold]
    fn go_on(&mut self, now: Moment) {
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

    /// How long so many waiters take, if that can be told and is later than they are due.
    #[inline]
    pub fn beyond(&mut self, due: Moment, waiters: usize, now: Moment) -> Option<Duration> {
        self.advance(now);
        let (left, span) = (due.micros_since(now), SLICE_US * SLICES as u64 * waiters as u64);
        // Hardly ever so, and a division takes its time.
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
        assert_eq!(pace.beyond(due, 50, Moment::from_millis(10_100)), None, "too few to say");
        pace.count(Moment::from_millis(10_100));
        assert_eq!(pace.beyond(due, 50, Moment::from_millis(10_100)), Some(Duration::from_secs(1)));
        assert_eq!(pace.beyond(Moment::from_millis(11_100), 50, Moment::from_millis(10_100)), None, "just in time");
        assert_eq!(pace.beyond(due, 50, Moment::from_millis(12_200)), None, "long ago");
    }
}
