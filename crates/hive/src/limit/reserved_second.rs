//! The permits of a reserved second. They become available one after the other, evenly over the second, and each
//! expires after the time in which half the burst flows back. None is taken before the store's second has begun,
//! whichever clock is asked, nor later than a batch would live.

use super::definition::{MILLISECOND, SECOND};

/// Clocks run at different rates: the allowance is this fraction (1/512) of the time until the last permit is
/// available.
const DRIFT: u64 = 512;

/// The permits of one reserved second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservedSecond {
    from_ns: u64,
    permits: u64,
    /// Permits that were taken or have expired, counted from the oldest.
    spent: u64,
    used: u64,
    life_ns: u64,
    /// All permits have expired by then.
    ends_ns: u64,
    /// The store reserved less than the node asked for.
    cut: bool,
}

impl ReservedSecond {
    /// The node asked at `asked_ns` and had the answer at `answered_ns`; the second begins `begins_ms` after some
    /// moment in between. The latest possible beginning counts, and the lives of the permits are shortened by the
    /// possible delay. Returns `None` if less than a millisecond of their lives would remain.
    pub fn new(
        permits: u64,
        cut: bool,
        begins_ms: u64,
        asked_ns: u64,
        answered_ns: u64,
        life_ns: u64,
    ) -> Option<ReservedSecond> {
        let begins_ns = begins_ms * MILLISECOND;
        let drift_ns = (begins_ns + SECOND) / DRIFT;
        let late_ns = answered_ns.saturating_sub(asked_ns) + MILLISECOND + 2 * drift_ns;
        let from_ns = answered_ns + begins_ns + drift_ns;
        if crate::planted::on("second from the question") {
            let from_ns = asked_ns;
            let ends_ns = u64::MAX;
            return (permits > 0).then_some(ReservedSecond {
                from_ns,
                permits,
                spent: 0,
                used: 0,
                life_ns,
                ends_ns,
                cut,
            });
        }
        let life_ns = if crate::planted::on("drip lives on") { SECOND } else { life_ns.checked_sub(late_ns)? };
        let second = ReservedSecond { from_ns, permits, spent: 0, used: 0, life_ns, ends_ns: u64::MAX, cut };
        (permits > 0 && life_ns >= MILLISECOND).then_some(second)
    }

    /// Returns the same second, which ends at `ends_ns` at the latest.
    #[must_use]
    pub fn ending_by(self, ends_ns: u64) -> ReservedSecond {
        ReservedSecond { ends_ns: self.ends_ns.min(ends_ns), ..self }
    }

    fn available_count(&self, at_ns: u64) -> u64 {
        let passed_ns = at_ns.saturating_sub(self.from_ns).min(SECOND);
        u64::try_from(u128::from(passed_ns) * u128::from(self.permits) / u128::from(SECOND)).unwrap_or(self.permits)
    }

    /// The time at which the n-th permit becomes available, counted from 1.
    fn nth_available_at_ns(&self, n: u64) -> u64 {
        let after_ns = (u128::from(n) * u128::from(SECOND)).div_ceil(u128::from(self.permits));
        self.from_ns.saturating_add(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    fn spent_at(&self, now_ns: u64) -> u64 {
        if now_ns >= self.ends_ns {
            return self.permits;
        }
        self.spent.max(self.available_count(now_ns.saturating_sub(self.life_ns)))
    }

    fn available(&self, now_ns: u64) -> u64 {
        self.available_count(now_ns).saturating_sub(self.spent_at(now_ns))
    }

    fn ends_at_ns(&self) -> u64 {
        (self.from_ns + SECOND + self.life_ns).min(self.ends_ns)
    }

    fn is_running(&self, now_ns: u64) -> bool {
        (self.from_ns..self.ends_at_ns()).contains(&now_ns)
    }
}

/// All seconds of one key that this node has reserved, the earliest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReservedSeconds(Vec<ReservedSecond>);

impl ReservedSeconds {
    pub fn add(&mut self, second: ReservedSecond) {
        self.0.push(second);
    }

    /// Removes a second that has ended. Returns how many of its permits were used, and how many were reserved.
    pub fn take_ended(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let at = self.0.iter().position(|second| second.ends_at_ns() <= now_ns)?;
        let second = self.0.remove(at);
        Some((second.used, second.permits))
    }

    /// Lets all seconds end at `ends_ns` at the latest.
    pub fn end_at(&mut self, ends_ns: u64) {
        self.0.iter_mut().for_each(|second| *second = second.ending_by(ends_ns));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self, now_ns: u64) -> bool {
        self.0.iter().all(|second| second.ends_at_ns() <= now_ns)
    }

    /// Whether one of the seconds is in progress.
    pub fn is_running(&self, now_ns: u64) -> bool {
        self.0.iter().any(|second| second.is_running(now_ns))
    }

    /// The permits of the second in progress; 0 if there is none.
    pub fn per_second(&self, now_ns: u64) -> u64 {
        self.0.iter().rev().find(|second| second.is_running(now_ns)).map_or(0, |second| second.permits)
    }

    /// Returns the end of the second in progress if the store reserved less than was asked for: until then the limit is
    /// used up, and this node has its part of it.
    pub fn cut_until_ns(&self, now_ns: u64) -> Option<u64> {
        self.0
            .iter()
            .rev()
            .find(|second| second.is_running(now_ns))
            .filter(|second| second.cut)
            .map(ReservedSecond::ends_at_ns)
    }

    pub fn available(&self, now_ns: u64) -> u64 {
        self.0.iter().map(|second| second.available(now_ns)).sum()
    }

    /// Takes the oldest permits that have not expired, all or none. Returns when the first of them expires.
    pub fn take(&mut self, now_ns: u64, permits: u64) -> Option<u64> {
        if self.available(now_ns) < permits {
            return None;
        }
        let (mut missing, mut expires_ns) = (permits, u64::MAX);
        for second in &mut self.0 {
            let taken = second.available(now_ns).min(missing);
            if taken > 0 {
                let spent = second.spent_at(now_ns);
                let first_ns = second.nth_available_at_ns(spent + 1).saturating_add(second.life_ns);
                expires_ns = expires_ns.min(first_ns).min(second.ends_ns);
                second.spent = spent + taken;
                second.used += taken;
                missing -= taken;
            }
        }
        Some(expires_ns)
    }

    /// The permits that are available now, and those that become available until `until_ns`.
    pub fn available_by(&self, now_ns: u64, until_ns: u64) -> u64 {
        self.0.iter().map(|second| second.available_count(until_ns).saturating_sub(second.spent_at(now_ns))).sum()
    }

    /// The time at which `permits` are available if none is taken before; `None` if the reserved seconds have fewer.
    pub fn available_at_ns(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let mut missing = permits;
        for second in &self.0 {
            let spent = second.spent_at(now_ns);
            let to_come = second.permits - spent;
            if missing <= to_come {
                return Some(second.nth_available_at_ns(spent + missing).max(now_ns));
            }
            missing -= to_come;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: u64 = 100 * MILLISECOND;
    const START: u64 = 10 * SECOND;

    fn seconds(permits: u64) -> (ReservedSeconds, u64) {
        let second = ReservedSecond::new(permits, true, 500, START, START + 5 * MILLISECOND, LIFE).expect("a second");
        let mut seconds = ReservedSeconds::default();
        seconds.add(second);
        (seconds, second.from_ns)
    }

    #[test]
    fn hv_63_permits_of_a_second_are_not_available_early_and_expire() {
        let (mut seconds, from) = seconds(50);
        assert!(from >= START + 505 * MILLISECOND, "counted from the answer, not from the request");
        assert_eq!((seconds.available(from + 19 * MILLISECOND), seconds.available(from + 20 * MILLISECOND)), (0, 1));
        assert_eq!(seconds.available(from + 500 * MILLISECOND), 5, "older ones have expired: {seconds:?}");
        assert_eq!(seconds.available_at_ns(from, 2), Some(from + 40 * MILLISECOND));
        assert!(seconds.take(from + 500 * MILLISECOND, 6).is_none());
        let expires = seconds.take(from + 500 * MILLISECOND, 2).expect("two");
        assert!(expires > from + 500 * MILLISECOND && expires < from + 540 * MILLISECOND, "the older of the two");
        assert_eq!(seconds.available(from + 500 * MILLISECOND), 3);
        let taken: u64 = (500..1200).map(|ms| u64::from(seconds.take(from + ms * MILLISECOND, 1).is_some())).sum();
        assert_eq!(taken, 3 + 25, "the rest of the second, up to the last permit");
        assert!(seconds.is_empty(from + SECOND + LIFE) && seconds.available_at_ns(from + SECOND + LIFE, 1).is_none());
    }

    /// HV-60: permits used in a window became available in it, or at most half a burst's time before it.
    #[test]
    fn hv_63_two_seconds_in_a_row_give_no_more_than_was_reserved() {
        let (mut seconds, from) = seconds(50);
        seconds.add(
            ReservedSecond::new(30, false, 500, START + SECOND, START + SECOND + MILLISECOND, LIFE).expect("a second"),
        );
        assert_eq!(seconds.cut_until_ns(from), Some(from + SECOND + seconds.0[0].life_ns));
        let idle_until = from + 990 * MILLISECOND;
        let at_once = (0..).take_while(|_| seconds.take(idle_until, 1).is_some()).count();
        assert_eq!(at_once, 4);
        let later = (990..2300).filter(|ms| seconds.take(from + ms * MILLISECOND, 1).is_some()).count();
        assert_eq!(later, 1 + 30);
    }

    #[test]
    fn hv_63_an_ended_second_reports_how_much_of_it_was_used() {
        let (mut seconds, from) = seconds(50);
        seconds.take(from + 500 * MILLISECOND, 3).expect("three");
        assert_eq!(seconds.take_ended(from + SECOND), None, "its last permit has not expired");
        assert_eq!(seconds.take_ended(from + SECOND + LIFE), Some((3, 50)));
        assert_eq!(seconds.take_ended(from + SECOND + LIFE), None);
    }

    #[test]
    fn hv_63_an_answer_that_took_too_long_brings_nothing() {
        assert_eq!(ReservedSecond::new(50, false, 500, START, START + 97 * MILLISECOND, LIFE), None);
        assert_eq!(ReservedSecond::new(0, false, 500, START, START, LIFE), None);
    }
}
