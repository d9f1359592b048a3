//! How much this node asks of a key, by its own clock: what was admitted and what was refused.
//!
//! Three sums that fade, over two seconds, a quarter of one, and a fifth of that. The slow one tells a trickle from silence;
//! the quick one sees a rush begin, and is believed once it has seen enough of it; the steady one is for what lasts. One
//! request that costs a hundred is no rush: requests are counted apart.

use super::definition::{MILLISECOND, SECOND};

const STEADY_NS: f64 = 2.0 * SECOND as f64;
const SLOW_NS: f64 = (250 * MILLISECOND) as f64;
const QUICK_NS: f64 = (50 * MILLISECOND) as f64;
const QUICK_ENOUGH: f64 = 32.0;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    steady: f64,
    slow: f64,
    quick: f64,
    /// As `slow`, but each request is one.
    requests: f64,
    at_ns: u64,
    /// When the quick sum last began from nothing, and when the steady one did.
    begun_ns: u64,
    steady_since_ns: u64,
}

impl Demand {
    /// A request that asks for so much.
    pub fn add(&mut self, now_ns: u64, permits: u64) {
        self.count(now_ns, permits as f64, 1.0);
    }

    /// So much was used, by nobody knows how many: as many as it would have been at the usual cost.
    pub fn add_used(&mut self, now_ns: u64, permits: u64) {
        self.count(now_ns, permits as f64, permits as f64 / self.usual_cost());
    }

    /// Permits of a request, of late.
    pub fn usual_cost(&self) -> f64 {
        if self.requests > 0.0 { (self.slow / self.requests).max(1.0) } else { 1.0 }
    }

    fn count(&mut self, now_ns: u64, permits: f64, requests: f64) {
        let faded = self.faded(now_ns);
        if faded.quick < 1.0 {
            self.begun_ns = now_ns;
        }
        if faded.steady < 1.0 {
            self.steady_since_ns = now_ns;
        }
        self.steady = faded.steady + permits;
        self.slow = faded.slow + permits;
        self.quick = faded.quick + permits;
        self.requests = faded.requests + requests;
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Permits expected in `span_ns`.
    pub fn within(&self, now_ns: u64, span_ns: u64) -> f64 {
        let faded = self.faded(now_ns);
        let mut per_ns = faded.slow / SLOW_NS;
        if faded.quick >= QUICK_ENOUGH && faded.requests >= QUICK_ENOUGH {
            // What began a moment ago has not had the time to add up.
            let age_ns = now_ns.saturating_sub(self.begun_ns).max(5 * MILLISECOND) as f64;
            per_ns = per_ns.max(faded.quick / QUICK_NS / (1.0 - (-age_ns / QUICK_NS).exp()));
        }
        per_ns * span_ns as f64
    }

    /// Permits expected in a second, by what the last ones brought.
    pub fn steady_per_second(&self, now_ns: u64) -> f64 {
        let age_ns = now_ns.saturating_sub(self.steady_since_ns).max(50 * MILLISECOND) as f64;
        self.faded(now_ns).steady * (SECOND as f64 / STEADY_NS) / (1.0 - (-age_ns / STEADY_NS).exp())
    }

    /// Requests expected in `span_ns`.
    pub fn requests_within(&self, now_ns: u64, span_ns: u64) -> f64 {
        self.faded(now_ns).requests / SLOW_NS * span_ns as f64
    }

    pub fn per_second(&self, now_ns: u64) -> f64 {
        self.within(now_ns, SECOND)
    }

    fn faded(&self, now_ns: u64) -> Demand {
        let age_ns = now_ns.saturating_sub(self.at_ns) as f64;
        let [steady, slow, quick] = [STEADY_NS, SLOW_NS, QUICK_NS].map(|over_ns| (-age_ns / over_ns).exp());
        Demand {
            steady: self.steady * steady,
            slow: self.slow * slow,
            quick: self.quick * quick,
            requests: self.requests * slow,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_a_silence_is_forgotten() {
        let mut demand = Demand::default();
        for n in 0..2000 {
            demand.add(n * MILLISECOND, 1);
        }
        let now = 2 * SECOND;
        assert!((demand.per_second(now) - 1000.0).abs() < 20.0, "{}", demand.per_second(now));
        assert!((demand.within(now, 50 * MILLISECOND) - 50.0).abs() < 1.0);
        assert!(demand.per_second(now + 2 * SECOND) < 1.0);
    }

    #[test]
    fn a_rush_is_seen_before_it_has_added_up_and_a_single_request_is_no_rush() {
        let mut demand = Demand::default();
        demand.add(0, 1);
        assert!(demand.within(0, 50 * MILLISECOND) < 1.0);
        demand.add(0, 400);
        assert!(demand.requests_within(0, 50 * MILLISECOND) < 1.0);
        for n in 0..100 {
            demand.add(4 * SECOND + n * MILLISECOND / 2, 1);
        }
        let rate = demand.per_second(4 * SECOND + 50 * MILLISECOND);
        assert!((1900.0..2200.0).contains(&rate), "{rate}");
    }
}
