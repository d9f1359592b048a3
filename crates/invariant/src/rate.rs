//! I7: in every window of time, over the whole cluster, no more permits than rate and burst allow.

use crate::Breach;

/// Permits that were given, by the store's clock. In the order of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    pub at_us: u64,
    pub permits: u64,
}

/// However long the window: `permits ≤ rate · window + burst`. That is a bucket of `burst`, filled at `per_second`, which
/// never runs below empty.
pub fn rate_holds(limit: &str, per_second: u64, burst: u64, given: &[Given]) -> Vec<Breach> {
    // in millionths of a permit, so that nothing is lost by rounding
    let full = u128::from(burst) * 1_000_000;
    let mut left = full;
    let mut last_us = given.first().map_or(0, |first| first.at_us);
    let mut breaches = Vec::new();
    for Given { at_us, permits } in given {
        left = (left + u128::from(at_us.saturating_sub(last_us)) * u128::from(per_second)).min(full);
        last_us = last_us.max(*at_us);
        let taken = u128::from(*permits) * 1_000_000;
        if taken > left {
            let above = (taken - left).div_ceil(1_000_000);
            breaches.push(Breach::new("I7", format!("{limit}: {above} permits too many at {at_us} µs")));
        }
        left = left.saturating_sub(taken);
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn given(at_ms: u64, permits: u64) -> Given {
        Given { at_us: at_ms * 1000, permits }
    }

    #[test]
    fn i7_no_window_has_too_many_permits() {
        let good = [given(0, 10), given(100, 10), given(150, 5), given(5_000, 10), given(5_001, 0)];
        assert_eq!(rate_holds("api", 100, 10, &good), []);
        assert_eq!(ids(&rate_holds("api", 100, 10, &[given(0, 11)])), ["I7"], "above the burst");
        let twice = [given(0, 10), given(50, 6)];
        assert_eq!(ids(&rate_holds("api", 100, 10, &twice)), ["I7"], "five were back");
        let edge = [given(999, 10), given(1_001, 10)];
        assert_eq!(ids(&rate_holds("api", 100, 10, &edge)), ["I7"], "two windows that meet are one");
    }
}
