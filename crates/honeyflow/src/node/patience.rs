//! Bounds a wait by the time without progress: a long backlog is waited for, a stuck one is not.

use std::time::{Duration, Instant};

pub struct Patience {
    longest: Duration,
    fewest: u64,
    since: Instant,
}

impl Patience {
    pub fn new(longest: Duration) -> Patience {
        Patience { longest, fewest: u64::MAX, since: Instant::now() }
    }

    /// Whether to wait on, now that this number is left.
    pub fn allows(&mut self, left: u64) -> bool {
        self.allows_at(left, Instant::now())
    }

    fn allows_at(&mut self, left: u64, now: Instant) -> bool {
        if left < self.fewest {
            (self.fewest, self.since) = (left, now);
        }
        now.saturating_duration_since(self.since) < self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_99_a_wait_ends_after_a_time_without_progress() {
        let begin = Instant::now();
        let mut patience = Patience { since: begin, ..Patience::new(Duration::from_secs(60)) };
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(patience.allows_at(10, at(0)) && patience.allows_at(9, at(50)));
        assert!(patience.allows_at(9, at(109)), "one was done meanwhile");
        assert!(patience.allows_at(11, at(109)), "more work is no progress");
        assert!(!patience.allows_at(9, at(110)));
    }
}
