//! The demand of this node for one key, by the node's clock: permits that were admitted and permits that were refused.
//!
//! Three sums decay exponentially: `steady` over 2 s, `slow` over 250 ms and `quick` over 50 ms. The slow sum
//! distinguishes few requests from none. The quick sum sees the beginning of a rush, and counts once it is large
//! enough. The steady sum is for demand that lasts. One request with a cost of a hundred is no rush, so requests are
//! counted separately.

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
    /// The same sum as `slow`, in requests instead of permits.
    requests: f64,
    at_ns: u64,
    /// The times at which the quick sum and the steady sum last began from zero.
    begun_ns: u64,
    steady_since_ns: u64,
}

impl Demand {
    /// Counts one request that asks for `permits`.
    pub fn add(&mut self, now_ns: u64, permits: u64) {
        self.count(now_ns, permits as f64, 1.0);
    }

    /// Counts permits that were used by an unknown number of requests, which is estimated from the usual cost.
    pub fn add_used(&mut self, now_ns: u64, permits: u64) {
        self.count(now_ns, permits as f64, permits as f64 / self.usual_cost());
    }

    /// The average cost of the recent requests, in permits.
    pub fn usual_cost(&self) -> f64 {
        if self.requests > 0.0 { (self.slow / self.requests).max(1.0) } else { 1.0 }
    }

    fn count(&mut self, now_ns: u64, permits: f64, requests: f64) {
        let decayed = self.decayed(now_ns);
        if decayed.quick < 1.0 {
            self.begun_ns = now_ns;
        }
        if decayed.steady < 1.0 {
            self.steady_since_ns = now_ns;
        }
        self.steady = decayed.steady + permits;
        self.slow = decayed.slow + permits;
        self.quick = decayed.quick + permits;
        self.requests = decayed.requests + requests;
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// The permits expected in `span_ns`.
    pub fn expected_permits(&self, now_ns: u64, span_ns: u64) -> f64 {
        let decayed = self.decayed(now_ns);
        let mut per_ns = decayed.slow / SLOW_NS;
        if decayed.quick >= QUICK_ENOUGH && decayed.requests >= QUICK_ENOUGH {
            // A rush that began a moment ago has not filled the sum yet, so it is scaled up by its age.
            let age_ns = now_ns.saturating_sub(self.begun_ns).max(5 * MILLISECOND) as f64;
            per_ns = per_ns.max(decayed.quick / QUICK_NS / (1.0 - (-age_ns / QUICK_NS).exp()));
        }
        per_ns * span_ns as f64
    }

    /// The permits expected in a second, estimated from the last seconds.
    pub fn steady_per_second(&self, now_ns: u64) -> f64 {
        let age_ns = now_ns.saturating_sub(self.steady_since_ns).max(50 * MILLISECOND) as f64;
        self.decayed(now_ns).steady * (SECOND as f64 / STEADY_NS) / (1.0 - (-age_ns / STEADY_NS).exp())
    }

    /// The requests expected in `span_ns`.
    pub fn expected_requests(&self, now_ns: u64, span_ns: u64) -> f64 {
        self.decayed(now_ns).requests / SLOW_NS * span_ns as f64
    }

    pub fn per_second(&self, now_ns: u64) -> f64 {
        self.expected_permits(now_ns, SECOND)
    }

    fn decayed(&self, now_ns: u64) -> Demand {
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
    fn a_steady_rate_is_measured_and_decays_when_requests_stop() {
        let mut demand = Demand::default();
        for n in 0..2000 {
            demand.add(n * MILLISECOND, 1);
        }
        let now = 2 * SECOND;
        assert!((demand.per_second(now) - 1000.0).abs() < 20.0, "{}", demand.per_second(now));
        assert!((demand.expected_permits(now, 50 * MILLISECOND) - 50.0).abs() < 1.0);
        assert!(demand.per_second(now + 2 * SECOND) < 1.0);
    }

    #[test]
    fn a_rush_is_seen_early_and_a_single_expensive_request_is_no_rush() {
        let mut demand = Demand::default();
        demand.add(0, 1);
        assert!(demand.expected_permits(0, 50 * MILLISECOND) < 1.0);
        demand.add(0, 400);
        assert!(demand.expected_requests(0, 50 * MILLISECOND) < 1.0);
        for n in 0..100 {
            demand.add(4 * SECOND + n * MILLISECOND / 2, 1);
        }
        let rate = demand.per_second(4 * SECOND + 50 * MILLISECOND);
        assert!((1900.0..2200.0).contains(&rate), "{rate}");
    }
}
