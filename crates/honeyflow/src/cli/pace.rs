//! Estimates the rate and the remaining time of a long operation, from the progress of the last 10 s rather than since
//! the start.

use std::{collections::VecDeque, time::Duration};

/// Older progress says little about the current rate.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Pace {
    /// Pairs of time and the number of rows done by then.
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// Records the number of rows done at a time `at`, measured from any fixed start.
    pub fn note(&mut self, at: Duration, done: u64) {
        self.seen.push_back((at, done));
        // Keep the newest entry outside the window: the rate is measured from it.
        while self.seen.len() > 2 && at.saturating_sub(self.seen[1].0) >= WINDOW {
            self.seen.pop_front();
        }
    }

    /// Rows per second; none until there is enough progress to measure.
    pub fn rate(&self) -> Option<f64> {
        let ((from, before), (to, done)) = (self.seen.front()?, self.seen.back()?);
        let took = to.saturating_sub(*from).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let more = done.saturating_sub(*before) as f64;
        (took >= 0.5 && more > 0.0).then_some(more / took)
    }

    /// The estimated time until `total` rows are done.
    pub fn left(&self, total: u64) -> Option<Duration> {
        let done = self.seen.back().map_or(0, |(_, done)| *done);
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let left = total.saturating_sub(done) as f64;
        Duration::try_from_secs_f64(left / self.rate()?).ok()
    }

    /// `12000 of 50000 rows, 3400/s, 11s left`
    pub fn sentence(&self, total: Option<u64>) -> String {
        let done = self.seen.back().map_or(0, |(_, done)| *done);
        let mut text = match total {
            Some(total) => format!("{done} of {total} rows", total = total.max(done)),
            None => format!("{done} rows"),
        };
        if let Some(rate) = self.rate() {
            text.push_str(&if rate < 10.0 { format!(", {rate:.1}/s") } else { format!(", {rate:.0}/s") });
        }
        if let Some(left) = total.and_then(|total| self.left(total)) {
            text.push_str(&format!(", {} left", indicatif::HumanDuration(left)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ob_76_rate_and_remaining_time_follow_the_last_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.sentence(Some(900)), "0 of 900 rows");
        pace.note(seconds(0), 100);
        assert_eq!((pace.rate(), pace.sentence(None)), (None, "100 rows".to_owned()), "one reading gives no rate");
        for second in 1..=10 {
            pace.note(seconds(second), 100 + second * 10);
        }
        assert_eq!(pace.rate(), Some(10.0));
        assert_eq!(pace.left(1200), Some(seconds(100)));
        for second in 11..=40 {
            pace.note(seconds(second), 200 + (second - 10) * 50);
        }
        assert_eq!(pace.rate(), Some(50.0), "the slow beginning is forgotten");
        assert_eq!(pace.sentence(Some(1800)), "1700 of 1800 rows, 50/s, 2 seconds left");
        assert!(pace.seen.len() < 20);
    }

    #[test]
    fn ob_76_without_progress_no_remaining_time_is_shown() {
        let mut pace = Pace::default();
        pace.note(seconds(0), 5);
        pace.note(seconds(30), 5);
        assert_eq!((pace.rate(), pace.left(10)), (None, None));
        assert_eq!(pace.sentence(Some(3)), "5 of 5 rows", "more rows were done than were counted before");
    }
}
