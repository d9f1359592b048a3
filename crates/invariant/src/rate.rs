//! I7: in every window of time the whole cluster gets no more permits than rate and burst allow.

use crate::Breach;

/// Permits granted at one time of the store's clock. The records are ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedPermits {
    pub at_us: u64,
    pub permits: u64,
}

/// Checks `permits ≤ rate · window + burst` for every window. This is a token bucket of size `burst`, filled at
/// `per_second`, that never falls below empty.
pub fn rate_holds(limit: &str, per_second: u64, burst: u64, given: &[GrantedPermits]) -> Vec<Breach> {
    // in millionths of a permit, so that nothing is lost by rounding
    let full = u128::from(burst) * 1_000_000;
    let mut left = full;
    let mut last_us = given.first().map_or(0, |first| first.at_us);
    let mut breaches = Vec::new();
    for GrantedPermits { at_us, permits } in given {
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

/// A rate and a burst, in millionths of a permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateBound {
    pub per_second_u: u64,
    pub burst_u: u64,
}

/// Permits beyond the bound that have a known reason: they are allowed in every window that touches this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtraPermits {
    pub from_us: u64,
    pub until_us: u64,
    pub permits: u64,
}

/// Checks like [`rate_holds`], but allows extra permits. It compares every window from each grant to each later one.
pub fn rate_holds_but_for(
    limit: &str,
    bound: RateBound,
    extras: &[ExtraPermits],
    given: &[GrantedPermits],
) -> Vec<Breach> {
    // The granted permits minus those that the rate allows: its rise over a window is the excess of that window.
    let micro = |permits: u64| i128::from(permits) * 1_000_000;
    let flowed = |at_us: u64| i128::from(at_us) * i128::from(bound.per_second_u) / 1_000_000;
    let extra = |counts: &dyn Fn(&ExtraPermits) -> bool| -> i128 {
        extras.iter().filter(|extra| counts(extra)).map(|extra| micro(extra.permits)).sum()
    };
    let (mut total, mut lowest) = (0, i128::MAX);
    let mut breaches = Vec::new();
    for GrantedPermits { at_us, permits } in given {
        lowest = lowest.min(total - flowed(*at_us) - extra(&|extra| extra.until_us < *at_us));
        total += micro(*permits);
        let risen = total - flowed(*at_us) - extra(&|extra| extra.from_us <= *at_us) - lowest;
        if risen > i128::from(bound.burst_u) {
            let above = (risen - i128::from(bound.burst_u) + 999_999) / 1_000_000;
            breaches.push(Breach::new("I7", format!("{limit}: {above} permits too many at {at_us} µs")));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn given(at_ms: u64, permits: u64) -> GrantedPermits {
        GrantedPermits { at_us: at_ms * 1000, permits }
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

    #[test]
    fn i7_what_may_come_on_top_counts_for_the_windows_that_touch_it() {
        let bound = RateBound { per_second_u: 100_000_000, burst_u: 10_000_000 };
        let extra = |from_ms: u64, until_ms: u64| ExtraPermits {
            from_us: from_ms * 1000,
            until_us: until_ms * 1000,
            permits: 5,
        };
        let twice = [given(0, 10), given(50, 10), given(5_000, 10)];
        assert_eq!(rate_holds_but_for("api", bound, &[extra(50, 60)], &twice), []);
        assert_eq!(ids(&rate_holds_but_for("api", bound, &[], &twice)), ["I7"]);
        assert_eq!(ids(&rate_holds_but_for("api", bound, &[extra(51, 60)], &twice)), ["I7"], "not yet");
        assert_eq!(
            rate_holds_but_for("api", bound, &[extra(0, 0)], &twice),
            [],
            "the window from the first touches it"
        );
        let later = [given(0, 1), given(1_000, 10), given(1_001, 5)];
        assert_eq!(ids(&rate_holds_but_for("api", bound, &[extra(0, 900)], &later)), ["I7"], "over");
    }
}
