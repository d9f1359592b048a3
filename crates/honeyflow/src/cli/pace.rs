//! How fast something goes on, and how long it will take: from what was done over the last seconds, not since the start.

use std::{collections::VecDeque, time::Duration};

/// What is older says little of what comes.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Pace {
    /// When, and how much was done by then.
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// `at` since some beginning.
    pub fn note(&mut self, at: Duration, done: u64) {
        self.seen.push_back((at, done));
        // The last one outside the window stays: what lies between it and now is the window's.
        while self.seen.len() > 2 && at.saturating_sub(self.seen[1].0) >= WINDOW {
            self.seen.pop_front();
        }
    }

    /// In a second; none before there is something to tell it from.
    pub fn rate(&self) -> Option<f64> {
        let ((from, before), (to, done)) = (self.seen.front()?, self.seen.back()?);
        let took = to.saturating_sub(*from).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let more = done.saturating_sub(*before) as f64;
        (took >= 0.5 && more > 0.0).then_some(more / took)
    }

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
        assert_eq!(
            (pace.rate(), pace.sentence(None)),
            (None, "100 rows".to_owned()),
            "what was done before says nothing"
        );
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
    fn ob_76_nothing_is_promised_while_nothing_goes_on() {
        let mut pace = Pace::default();
        pace.note(seconds(0), 5);
        pace.note(seconds(30), 5);
        assert_eq!((pace.rate(), pace.left(10)), (None, None));
        assert_eq!(pace.sentence(Some(3)), "5 of 5 rows", "there are more than were counted");
    }
}
