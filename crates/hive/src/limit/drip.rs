//! Permits that were booked: they come one after the other over a second, and each dies half a burst's time after it came.
//! Nothing of it is taken before the store's second has begun, by whatever clock, nor later than a batch would live.

use super::definition::{MILLISECOND, SECOND};

/// For clocks that run at different rates, of the time until the last permit comes: one part in so many.
const DRIFT: u64 = 512;

/// One second of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drip {
    from_ns: u64,
    permits: u64,
    /// Taken or dead, from the oldest on.
    gone: u64,
    used: u64,
    life_ns: u64,
    /// Nothing of it lives longer.
    ends_ns: u64,
    /// More was wanted.
    cut: bool,
}

impl Drip {
    /// Asked for at `asked_ns`, answered at `answered_ns`: the second begins `begins_ms` after some moment in between. By the
    /// later end of that; so late, permits live so much shorter. None if nothing would be left of their lives.
    pub fn new(permits: u64, cut: bool, begins_ms: u64, asked_ns: u64, answered_ns: u64, life_ns: u64) -> Option<Drip> {
        let begins_ns = begins_ms * MILLISECOND;
        let drift_ns = (begins_ns + SECOND) / DRIFT;
        let late_ns = answered_ns.saturating_sub(asked_ns) + MILLISECOND + 2 * drift_ns;
        let from_ns = answered_ns + begins_ns + drift_ns;
        if crate::planted::on("second from the question") {
            let from_ns = asked_ns;
            let ends_ns = u64::MAX;
            return (permits > 0).then_some(Drip { from_ns, permits, gone: 0, used: 0, life_ns, ends_ns, cut });
        }
        let life_ns = if crate::planted::on("drip lives on") { SECOND } else { life_ns.checked_sub(late_ns)? };
        let drip = Drip { from_ns, permits, gone: 0, used: 0, life_ns, ends_ns: u64::MAX, cut };
        (permits > 0 && life_ns >= MILLISECOND).then_some(drip)
    }

    /// It ends then, at the latest.
    #[must_use]
    pub fn until(self, ends_ns: u64) -> Drip {
        Drip { ends_ns: self.ends_ns.min(ends_ns), ..self }
    }

    fn come(&self, at_ns: u64) -> u64 {
        let passed_ns = at_ns.saturating_sub(self.from_ns).min(SECOND);
        u64::try_from(u128::from(passed_ns) * u128::from(self.permits) / u128::from(SECOND)).unwrap_or(self.permits)
    }

    /// The n-th, from 1.
    fn comes_at_ns(&self, n: u64) -> u64 {
        let after_ns = (u128::from(n) * u128::from(SECOND)).div_ceil(u128::from(self.permits));
        self.from_ns.saturating_add(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    fn gone_at(&self, now_ns: u64) -> u64 {
        if now_ns >= self.ends_ns {
            return self.permits;
        }
        self.gone.max(self.come(now_ns.saturating_sub(self.life_ns)))
    }

    fn left(&self, now_ns: u64) -> u64 {
        self.come(now_ns).saturating_sub(self.gone_at(now_ns))
    }

    fn ends_at_ns(&self) -> u64 {
        (self.from_ns + SECOND + self.life_ns).min(self.ends_ns)
    }

    fn is_running(&self, now_ns: u64) -> bool {
        (self.from_ns..self.ends_at_ns()).contains(&now_ns)
    }
}

/// All that this node has booked of a key, the earliest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drips(Vec<Drip>);

impl Drips {
    pub fn add(&mut self, drip: Drip) {
        self.0.push(drip);
    }

    /// Takes out a second that has ended: what was used of it, and what was booked.
    pub fn ended(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let at = self.0.iter().position(|drip| drip.ends_at_ns() <= now_ns)?;
        let drip = self.0.remove(at);
        Some((drip.used, drip.permits))
    }

    /// All of them end then, at the latest.
    pub fn end_at(&mut self, ends_ns: u64) {
        self.0.iter_mut().for_each(|drip| *drip = drip.until(ends_ns));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self, now_ns: u64) -> bool {
        self.0.iter().all(|drip| drip.ends_at_ns() <= now_ns)
    }

    /// Some second of them is going on.
    pub fn is_running(&self, now_ns: u64) -> bool {
        self.0.iter().any(|drip| drip.is_running(now_ns))
    }

    /// Permits a second, at present.
    pub fn per_second(&self, now_ns: u64) -> u64 {
        self.0.iter().rev().find(|drip| drip.is_running(now_ns)).map_or(0, |drip| drip.permits)
    }

    /// This node has its part of a limit that is used up: until when, as far as is known.
    pub fn cut_until_ns(&self, now_ns: u64) -> Option<u64> {
        self.0.iter().rev().find(|drip| drip.is_running(now_ns)).filter(|drip| drip.cut).map(Drip::ends_at_ns)
    }

    pub fn left(&self, now_ns: u64) -> u64 {
        self.0.iter().map(|drip| drip.left(now_ns)).sum()
    }

    /// The oldest that live; when the first of them dies. All or none.
    pub fn take(&mut self, now_ns: u64, permits: u64) -> Option<u64> {
        if self.left(now_ns) < permits {
            return None;
        }
        let (mut missing, mut dies_ns) = (permits, u64::MAX);
        for drip in &mut self.0 {
            let taken = drip.left(now_ns).min(missing);
            if taken > 0 {
                let gone = drip.gone_at(now_ns);
                let first_ns = drip.comes_at_ns(gone + 1).saturating_add(drip.life_ns);
                dies_ns = dies_ns.min(first_ns).min(drip.ends_ns);
                drip.gone = gone + taken;
                drip.used += taken;
                missing -= taken;
            }
        }
        Some(dies_ns)
    }

    /// What is left, and what comes until then.
    pub fn left_by(&self, now_ns: u64, until_ns: u64) -> u64 {
        self.0.iter().map(|drip| drip.come(until_ns).saturating_sub(drip.gone_at(now_ns))).sum()
    }

    /// When so many are there, if nobody takes any before. None: not of what is booked.
    pub fn there_at_ns(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let mut missing = permits;
        for drip in &self.0 {
            let gone = drip.gone_at(now_ns);
            let to_come = drip.permits - gone;
            if missing <= to_come {
                return Some(drip.comes_at_ns(gone + missing).max(now_ns));
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

    fn drips(permits: u64) -> (Drips, u64) {
        let drip = Drip::new(permits, true, 500, START, START + 5 * MILLISECOND, LIFE).expect("a drip");
        let mut drips = Drips::default();
        drips.add(drip);
        (drips, drip.from_ns)
    }

    #[test]
    fn hv_63_nothing_is_there_before_its_time_and_nothing_for_long() {
        let (mut drips, from) = drips(50);
        assert!(from >= START + 505 * MILLISECOND, "from the answer on, not from the question");
        assert_eq!((drips.left(from + 19 * MILLISECOND), drips.left(from + 20 * MILLISECOND)), (0, 1));
        assert_eq!(drips.left(from + 500 * MILLISECOND), 5, "older ones have died: {drips:?}");
        assert_eq!(drips.there_at_ns(from, 2), Some(from + 40 * MILLISECOND));
        assert!(drips.take(from + 500 * MILLISECOND, 6).is_none());
        let dies = drips.take(from + 500 * MILLISECOND, 2).expect("two");
        assert!(dies > from + 500 * MILLISECOND && dies < from + 540 * MILLISECOND, "the older of the two");
        assert_eq!(drips.left(from + 500 * MILLISECOND), 3);
        let taken: u64 = (500..1200).map(|ms| u64::from(drips.take(from + ms * MILLISECOND, 1).is_some())).sum();
        assert_eq!(taken, 3 + 25, "the rest of the second, to the last");
        assert!(drips.is_empty(from + SECOND + LIFE) && drips.there_at_ns(from + SECOND + LIFE, 1).is_none());
    }

    /// HV-60: what is used in a window came in that window, or within half a burst's time before it.
    #[test]
    fn hv_63_a_second_after_the_other_gives_no_more_than_was_booked() {
        let (mut drips, from) = drips(50);
        drips.add(Drip::new(30, false, 500, START + SECOND, START + SECOND + MILLISECOND, LIFE).expect("a drip"));
        assert_eq!(drips.cut_until_ns(from), Some(from + SECOND + drips.0[0].life_ns));
        let idle_until = from + 990 * MILLISECOND;
        let at_once = (0..).take_while(|_| drips.take(idle_until, 1).is_some()).count();
        assert_eq!(at_once, 4);
        let later = (990..2300).filter(|ms| drips.take(from + ms * MILLISECOND, 1).is_some()).count();
        assert_eq!(later, 1 + 30);
    }

    #[test]
    fn hv_63_a_second_tells_in_the_end_what_was_used_of_it() {
        let (mut drips, from) = drips(50);
        drips.take(from + 500 * MILLISECOND, 3).expect("three");
        assert_eq!(drips.ended(from + SECOND), None, "the last of it lives");
        assert_eq!(drips.ended(from + SECOND + LIFE), Some((3, 50)));
        assert_eq!(drips.ended(from + SECOND + LIFE), None);
    }

    #[test]
    fn hv_63_an_answer_that_took_too_long_brings_nothing() {
        assert_eq!(Drip::new(50, false, 500, START, START + 97 * MILLISECOND, LIFE), None);
        assert_eq!(Drip::new(0, false, 500, START, START, LIFE), None);
    }
}
