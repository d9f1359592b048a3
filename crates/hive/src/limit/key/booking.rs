//! Booking ahead while the pool is short: one question a second instead of one for every batch.
//!
//! A node books less than it expects to need by what a second may have less than the usual; so nearly all of it is used. If
//! it gets less than that, the limit is used up and the node has its part of it: then nothing more is asked for until the
//! next second, and requests for which nothing comes in time are refused at once.

use super::{Drawn, Flying, Key, Setting};
use crate::limit::{
    definition::{MILLISECOND, SECOND},
    drip::{Drip, Drips},
};

/// Below so many a second the pool does as well.
const BOOK_MIN: f64 = 8.0;
/// Left to the pool: so many times the square root of what is expected.
const SLACK: f64 = 1.5;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Booking {
    pub drips: Drips,
    /// Not before.
    book_at_ns: u64,
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

    pub(super) fn booked(&mut self, flying: &Flying, answer: Option<Drawn>, now_ns: u64, life_ns: u64) {
        if flying.book == 0 {
            return;
        }
        let Some(drawn) = answer.filter(|drawn| drawn.begins_ms > 0) else {
            self.booking.book_at_ns = now_ns + SECOND / 4;
            return;
        };
        // In the middle half of the second, not all nodes at once.
        let spread_ns = (flying.started_ns / 1000 % 512) * MILLISECOND;
        self.booking.book_at_ns = now_ns + drawn.begins_ms * MILLISECOND + SECOND / 4 + spread_ns;
        let cut = drawn.booked < flying.book;
        if cut {
            self.short_at_ns = Some(now_ns);
        }
        let drip = Drip::new(drawn.booked, cut, drawn.begins_ms, flying.started_ns, now_ns, life_ns);
        if let Some(drip) = drip {
            self.booking.drips.add(drip, now_ns);
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
