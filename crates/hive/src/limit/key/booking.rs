//! Booking ahead while the pool is short: one question a second instead of one for every batch.
//!
//! A node books less than it expects to need by what a second may have less than the usual; so nearly all of it is used. If
//! it gets less than that, the limit is used up and the node has its part of it: then nothing more is asked for until the
//! next second, and requests for which nothing comes in time are refused at once.
//!
//! A second that is booked and not used is taken from everybody. Whoever finds that it does not use what it books, because
//! its requests come in bursts or are few, leaves it for a while, each time twice as long, and draws from the pool.

use super::{Drawn, Flying, Key, Setting, pool::LIFE_PERCENT};
use crate::limit::{
    definition::{Decider, MILLISECOND, SECOND},
    drip::{Drip, Drips},
};

/// Below so many a second the pool does as well.
const BOOK_MIN: f64 = 12.0;
/// Left to the pool: so many times the square root of what is expected.
const SLACK: f64 = 1.75;
/// So many thousandths of what is booked are to be used.
const WORTH_MIN: u64 = 850;
/// From here on it is worth it without doubt.
const WORTH_GOOD: u64 = 950;
/// What one trial after a rest may cost: a second without use is the end of it.
const TRIAL: u64 = 50;
const REST_NS: u64 = 8 * SECOND;
const REST_MAX_NS: u64 = 64 * SECOND;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Booking {
    pub drips: Drips,
    /// Not before.
    book_at_ns: u64,
    worth: Worth,
}

/// How much of what was booked was used, of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Worth {
    thousandths: u64,
    /// How long booking is left alone the next time it was not worth it.
    rest_ns: u64,
}

impl Default for Worth {
    fn default() -> Worth {
        Worth { thousandths: 1000, rest_ns: REST_NS }
    }
}

impl Worth {
    /// Answers how long to rest.
    fn learn(&mut self, used: u64, booked: u64) -> Option<u64> {
        self.thousandths = (self.thousandths * 3 + used.saturating_mul(1000) / booked.max(1)) / 4;
        if self.thousandths < WORTH_MIN {
            let rest_ns = self.rest_ns;
            *self = Worth { thousandths: WORTH_MIN + TRIAL, rest_ns: (rest_ns * 2).min(REST_MAX_NS) };
            return Some(rest_ns);
        }
        if self.thousandths > WORTH_GOOD {
            self.rest_ns = REST_NS;
        }
        None
    }
}

impl Booking {
    pub fn settle(&mut self, now_ns: u64) {
        while let Some((used, booked)) = self.drips.ended(now_ns) {
            if let Some(rest_ns) = self.worth.learn(used, booked) {
                self.book_at_ns = self.book_at_ns.max(now_ns + rest_ns);
            }
        }
    }
}

impl<W> Key<W> {
    /// How much of the next second is worth booking now.
    pub(super) fn to_book(&self, now_ns: u64, setting: &Setting) -> Option<u64> {
        if setting.bookable == 0 || now_ns < self.booking.book_at_ns || !self.is_contended(now_ns) {
            return None;
        }
        let expected = self.demand.steady_per_second(now_ns);
        let want = expected - SLACK * expected.sqrt();
        let requests = self.demand.requests_within(now_ns, SECOND);
        (want.min(requests) >= BOOK_MIN).then(|| (want as u64).min(setting.bookable))
    }

    /// Permits and requests expected beyond what is booked.
    pub(super) fn beyond_booked(&self, now_ns: u64, span_ns: u64) -> (f64, f64) {
        let (permits, requests) = (self.demand.within(now_ns, span_ns), self.demand.requests_within(now_ns, span_ns));
        let booked = self.booking.drips.per_second(now_ns) as f64 * span_ns as f64 / SECOND as f64;
        let beyond = if permits > booked { 1.0 - booked / permits } else { 0.0 };
        (permits * beyond, requests * beyond)
    }

    pub(super) fn booked(&mut self, flying: &Flying, answer: Option<Drawn>, now_ns: u64, setting: &Setting) {
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        let life_ns = life_ns / 100 * LIFE_PERCENT;
        if flying.book == 0 {
            return;
        }
        let Some(drawn) = answer.filter(|drawn| drawn.begins_ms > 0) else {
            self.booking.book_at_ns = self.booking.book_at_ns.max(now_ns + SECOND / 4);
            return;
        };
        // In the middle half of the second, not all nodes at once.
        let spread_ns = (flying.started_ns / 1000 % 512) * MILLISECOND;
        // A rest that was begun meanwhile goes on.
        let next_ns = now_ns + drawn.begins_ms * MILLISECOND + SECOND / 4 + spread_ns;
        self.booking.book_at_ns = self.booking.book_at_ns.max(next_ns);
        let cut = drawn.booked < flying.book;
        if cut {
            self.short_at_ns = Some(now_ns);
        }
        let drip = Drip::new(drawn.booked, cut, drawn.begins_ms, flying.started_ns, now_ns, life_ns);
        if let Some(drip) = drip {
            self.booking.drips.add(drip.until(setting.ends_ns));
        }
    }

    /// When something booked is due: the next question, or what those who wait are waiting for.
    pub(super) fn booking_wakes_at_ns(&self, now_ns: u64) -> u64 {
        let head = self.queue.head().and_then(|head| self.booking.drips.there_at_ns(now_ns, head.cost));
        let again = self.booking.drips.is_running(now_ns).then_some(self.booking.book_at_ns);
        let due = [head, again].into_iter().flatten().filter(|at_ns| *at_ns > now_ns);
        due.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_63_who_does_not_use_what_it_books_rests_each_time_longer() {
        let mut worth = Worth::default();
        assert_eq!(worth.learn(100, 100), None);
        assert_eq!(worth.learn(70, 100), None, "once a little less");
        assert_eq!(worth.learn(0, 100), Some(REST_NS));
        assert_eq!(worth.learn(100, 100), None, "a trial");
        assert_eq!(worth.learn(0, 100), Some(2 * REST_NS));
        for _ in 0..20 {
            assert_eq!(worth.learn(100, 100), None);
        }
        assert_eq!(worth.learn(0, 100), Some(REST_NS), "forgiven");
        let rests: Vec<u64> = (0..6).filter_map(|_| worth.learn(0, 100)).collect();
        assert_eq!(rests.last(), Some(&REST_MAX_NS));
    }
}
