//! Reserving the next second while the pool is short: the node asks the store once a second instead of once per batch.
//!
//! A node reserves what it expects to need, less the usual variation of a second, so that nearly all of it is used. If
//! it gets less than it asked for, the limit is used up and the node has its part: it asks for nothing more until the
//! next second, and refuses at once the requests for which no permit will be available in time.
//!
//! Permits that are reserved and not used are lost to all nodes. A node that does not use what it reserves, because its
//! requests are few or come in bursts, stops reserving for a while, each time twice as long, and draws from the pool.

use super::{CallInFlight, Key, Setting, StoreAnswer, pool::LIFE_PERCENT};
use crate::limit::{
    definition::{Decider, MILLISECOND, SECOND},
    reserved_second::{ReservedSecond, ReservedSeconds},
};

/// With fewer permits or requests a second than this, drawing from the pool is as good.
const RESERVE_MIN: f64 = 12.0;
/// Not reserved, but left to the pool: this many times the square root of the expected permits.
const SLACK: f64 = 1.75;
/// Reserving stops when less than this is used of what was reserved, in thousandths.
const USED_MIN: u64 = 850;
/// When more than this is used, in thousandths, the length of the next pause is reset.
const USED_GOOD: u64 = 950;
/// The margin above `USED_MIN` after a pause, in thousandths: one unused second leads to the next pause.
const TRIAL_MARGIN: u64 = 50;
const PAUSE_NS: u64 = 8 * SECOND;
const PAUSE_MAX_NS: u64 = 64 * SECOND;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ReservationState {
    pub seconds: ReservedSeconds,
    /// The node does not reserve before this time.
    reserve_at_ns: u64,
    utilization: Utilization,
}

/// The part of the recently reserved permits that was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Utilization {
    thousandths: u64,
    /// The length of the next pause.
    pause_ns: u64,
}

impl Default for Utilization {
    fn default() -> Utilization {
        Utilization { thousandths: 1000, pause_ns: PAUSE_NS }
    }
}

impl Utilization {
    /// Records how much of a reserved second was used. Returns how long to pause, if too little was.
    fn record(&mut self, used: u64, reserved: u64) -> Option<u64> {
        self.thousandths = (self.thousandths * 3 + used.saturating_mul(1000) / reserved.max(1)) / 4;
        if self.thousandths < USED_MIN {
            let pause_ns = self.pause_ns;
            *self = Utilization { thousandths: USED_MIN + TRIAL_MARGIN, pause_ns: (pause_ns * 2).min(PAUSE_MAX_NS) };
            return Some(pause_ns);
        }
        if self.thousandths > USED_GOOD {
            self.pause_ns = PAUSE_NS;
        }
        None
    }
}

impl ReservationState {
    pub fn record_ended_seconds(&mut self, now_ns: u64) {
        while let Some((used, reserved)) = self.seconds.take_ended(now_ns) {
            if let Some(pause_ns) = self.utilization.record(used, reserved) {
                self.reserve_at_ns = self.reserve_at_ns.max(now_ns + pause_ns);
            }
        }
    }
}

impl<W> Key<W> {
    /// The permits of the next second that the node should reserve now.
    pub(super) fn permits_to_reserve(&self, now_ns: u64, setting: &Setting) -> Option<u64> {
        if setting.reservable == 0 || now_ns < self.reservation.reserve_at_ns || !self.is_contended(now_ns) {
            return None;
        }
        let expected = self.demand.steady_per_second(now_ns);
        let want = expected - SLACK * expected.sqrt();
        let requests = self.demand.expected_requests(now_ns, SECOND);
        (want.min(requests) >= RESERVE_MIN).then(|| (want as u64).min(setting.reservable))
    }

    /// The permits and requests that are expected beyond the reserved ones.
    pub(super) fn expected_beyond_reserved(&self, now_ns: u64, span_ns: u64) -> (f64, f64) {
        let (permits, requests) =
            (self.demand.expected_permits(now_ns, span_ns), self.demand.expected_requests(now_ns, span_ns));
        let reserved = self.reservation.seconds.per_second(now_ns) as f64 * span_ns as f64 / SECOND as f64;
        let beyond = if permits > reserved { 1.0 - reserved / permits } else { 0.0 };
        (permits * beyond, requests * beyond)
    }

    pub(super) fn on_reservation_answer(
        &mut self,
        in_flight: &CallInFlight,
        answer: Option<StoreAnswer>,
        now_ns: u64,
        setting: &Setting,
    ) {
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        let life_ns = life_ns / 100 * LIFE_PERCENT;
        if in_flight.reserve == 0 {
            return;
        }
        let Some(drawn) = answer.filter(|drawn| drawn.begins_ms > 0) else {
            self.reservation.reserve_at_ns = self.reservation.reserve_at_ns.max(now_ns + SECOND / 4);
            return;
        };
        // The next request is sent in the middle half of the second, spread so that not all nodes ask at once.
        let spread_ns = (in_flight.started_ns / 1000 % 512) * MILLISECOND;
        // A pause that has begun meanwhile continues.
        let next_ns = now_ns + drawn.begins_ms * MILLISECOND + SECOND / 4 + spread_ns;
        self.reservation.reserve_at_ns = self.reservation.reserve_at_ns.max(next_ns);
        let cut = drawn.reserved < in_flight.reserve;
        if cut {
            self.short_at_ns = Some(now_ns);
        }
        let second = ReservedSecond::new(drawn.reserved, cut, drawn.begins_ms, in_flight.started_ns, now_ns, life_ns);
        if let Some(second) = second {
            self.reservation.seconds.add(second.ending_by(setting.ends_ns));
        }
    }

    /// The time of the next reservation request, or at which reserved permits for the first waiter are available.
    pub(super) fn reservation_wakes_at_ns(&self, now_ns: u64) -> u64 {
        let head = self.queue.head().and_then(|head| self.reservation.seconds.available_at_ns(now_ns, head.cost));
        let again = self.reservation.seconds.is_running(now_ns).then_some(self.reservation.reserve_at_ns);
        let due = [head, again].into_iter().flatten().filter(|at_ns| *at_ns > now_ns);
        due.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_63_a_node_that_does_not_use_its_reservations_pauses_longer_each_time() {
        let mut utilization = Utilization::default();
        assert_eq!(utilization.record(100, 100), None);
        assert_eq!(utilization.record(70, 100), None, "a little less, once");
        assert_eq!(utilization.record(0, 100), Some(PAUSE_NS));
        assert_eq!(utilization.record(100, 100), None, "a trial");
        assert_eq!(utilization.record(0, 100), Some(2 * PAUSE_NS));
        for _ in 0..20 {
            assert_eq!(utilization.record(100, 100), None);
        }
        assert_eq!(utilization.record(0, 100), Some(PAUSE_NS), "the length of the pause is reset");
        let pauses: Vec<u64> = (0..6).filter_map(|_| utilization.record(0, 100)).collect();
        assert_eq!(pauses.last(), Some(&PAUSE_MAX_NS));
    }
}
