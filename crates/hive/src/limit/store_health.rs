//! Whether the store answers, which decides how this node's limits work: with the store's permits while it answers,
//! with a share of the limit while it does not. There is one [`StoreHealth`] per store.

use super::{
    breaker::Breaker,
    definition::{Decider, MILLISECOND, OnOutage, SECOND, Terms},
    gcra::Share,
    headcount::Headcount,
    key::{Mode, Setting},
    rate::MICRO,
};

/// A draw covers the demand of this time, and a dry pool is asked this often. With very many nodes it is longer.
const BATCH_NS: u64 = 50 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreHealth {
    pub breaker: Breaker,
    pub headcount: Headcount,
    /// The operations a second that the store can bear for one limit, from all nodes together.
    store_budget: u64,
    /// The time since which this node has worked without the store.
    alone_since_ns: u64,
}

impl StoreHealth {
    /// The operations a second that a SQL store can bear.
    pub const STORE_BUDGET: u64 = 500;
    /// The operations a second that a store in memory can bear, such as Redis.
    pub const MEMORY_BUDGET: u64 = 5_000;

    pub fn new(expected_nodes: u64, store_budget: u64) -> StoreHealth {
        StoreHealth {
            breaker: Breaker::default(),
            headcount: Headcount::new(expected_nodes),
            store_budget: store_budget.max(1),
            alone_since_ns: 0,
        }
    }

    /// Records a failed call, or that time has passed. Returns true if this opens the breaker.
    pub fn tick(&mut self, failed_call_ns: Option<u64>, now_ns: u64) -> bool {
        let opens = match failed_call_ns {
            Some(asked_ns) => self.breaker.on_failure(asked_ns, now_ns),
            None => self.breaker.tick(now_ns),
        };
        if opens {
            self.alone_since_ns = now_ns;
        }
        opens
    }

    /// The heartbeat has found that the store does not answer. Returns true if this opens the breaker.
    pub fn open_breaker(&mut self, now_ns: u64) -> bool {
        let opens = self.breaker.open(now_ns);
        if opens {
            self.alone_since_ns = now_ns;
        }
        opens
    }

    pub fn setting(&self, terms: &Terms) -> Setting {
        let mode = match (self.breaker.is_open(), terms.on_outage) {
            (false, _) => Mode::Store,
            (true, OnOutage::Open) => Mode::Open,
            (true, OnOutage::Closed) => Mode::Closed,
            (true, OnOutage::Safe) => {
                let divisor = self.headcount.divisor();
                Mode::Alone(Share::new(terms.rate, divisor, terms.burst / 2 / divisor, self.alone_since_ns))
            }
        };
        let reservable = match terms.decider {
            Decider::Pool { .. } => terms.rule().reservable_u() / MICRO,
            _ => 0,
        };
        let nodes = self.headcount.divisor();
        Setting { terms: *terms, mode, batch_ns: self.batch_ns(terms), reservable, nodes, ends_ns: u64::MAX }
    }

    fn batch_ns(&self, terms: &Terms) -> u64 {
        let stretched = self.headcount.divisor().saturating_mul(SECOND) / self.store_budget;
        let longest = match terms.decider {
            Decider::Pool { life_ns } => life_ns / 5 * 4,
            _ => SECOND,
        };
        BATCH_NS.max(stretched).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::definition::Definition;

    fn alone(health: &StoreHealth, terms: &Terms) -> Share {
        match health.setting(terms).mode {
            Mode::Alone(share) => share,
            mode => panic!("{mode:?}"),
        }
    }

    /// HV-64: the limit is divided by the number of nodes in the last answer, and older answers do not count.
    #[test]
    fn stale_peer_list() {
        let terms = Terms::from_definition(&Definition::parse("api", "1000/s").unwrap()).unwrap();
        let mut health = StoreHealth::new(16, 500);
        assert_eq!(health.setting(&terms).mode, Mode::Store);
        health.breaker.on_call(0);
        assert!(health.tick(None, 3 * SECOND));
        assert_eq!(
            alone(&health, &terms),
            Share::new(terms.rate, 16, 6, 3 * SECOND),
            "no answer yet: the expected number of nodes counts"
        );
        health.headcount.record(4, 2);
        assert_eq!(alone(&health, &terms), Share::new(terms.rate, 4, 25, 3 * SECOND));
        health.headcount.record(40, 2);
        assert_eq!(alone(&health, &terms), Share::new(terms.rate, 40, 2, 3 * SECOND));
        health.headcount.record(1, 1);
        assert_eq!(alone(&health, &terms), Share::new(terms.rate, 1, 100, 3 * SECOND), "the others have left");
    }

    /// HV-67: with many nodes each one draws less often, but always before its batches expire.
    #[test]
    fn hv_67_batches_stretch_with_the_number_of_nodes() {
        let terms = Terms::from_definition(&Definition::parse("api", "1000/s").unwrap()).unwrap();
        let mut health = StoreHealth::new(16, 500);
        for (nodes, batch_ms) in [(2, 50), (25, 50), (35, 70), (1000, 80)] {
            health.headcount.record(nodes, nodes);
            assert_eq!(health.setting(&terms).batch_ns, batch_ms * MILLISECOND, "{nodes}");
        }
    }
}
