//! What this node's limits stand on: the store while it answers, a share of their own while it does not. One per store.

use super::{
    breaker::Breaker,
    definition::{Decider, MILLISECOND, OnOutage, SECOND, Terms},
    gcra::Share,
    headcount::Headcount,
    key::{Footing, Setting},
    rate::MICRO,
};

/// A draw covers this much of the demand, and a dry pool is asked this often, unless there are very many nodes.
const BATCH_NS: u64 = 50 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    pub breaker: Breaker,
    pub headcount: Headcount,
    /// Operations a second that the store bears for one limit, from all nodes together.
    store_budget: u64,
    /// Since when this node is on its own.
    alone_since_ns: u64,
}

impl Standing {
    /// What a SQL store bears.
    pub const STORE_BUDGET: u64 = 500;
    /// What a store in memory bears, Redis for one.
    pub const MEMORY_BUDGET: u64 = 5_000;

    pub fn new(expected_nodes: u64, store_budget: u64) -> Standing {
        Standing {
            breaker: Breaker::default(),
            headcount: Headcount::new(expected_nodes),
            store_budget: store_budget.max(1),
            alone_since_ns: 0,
        }
    }

    /// A call has failed, or time has passed. True if the limits stand on something else now.
    pub fn tick(&mut self, failed_call_ns: Option<u64>, now_ns: u64) -> bool {
        let opens = match failed_call_ns {
            Some(asked_ns) => self.breaker.failed(asked_ns, now_ns),
            None => self.breaker.tick(now_ns),
        };
        if opens {
            self.alone_since_ns = now_ns;
        }
        opens
    }

    /// Somebody else knows that the store is gone. True if that is news.
    pub fn cut_off(&mut self, now_ns: u64) -> bool {
        let opens = self.breaker.open(now_ns);
        if opens {
            self.alone_since_ns = now_ns;
        }
        opens
    }

    pub fn setting(&self, terms: &Terms) -> Setting {
        let footing = match (self.breaker.is_open(), terms.on_outage) {
            (false, _) => Footing::Store,
            (true, OnOutage::Open) => Footing::Open,
            (true, OnOutage::Closed) => Footing::Closed,
            (true, OnOutage::Safe) => {
                let divisor = self.headcount.divisor();
                Footing::Alone(Share::new(terms.rate, divisor, terms.burst / 2 / divisor, self.alone_since_ns))
            }
        };
        let bookable = match terms.decider {
            Decider::Pool { .. } => terms.rule().bookable_u() / MICRO,
            _ => 0,
        };
        let nodes = self.headcount.divisor();
        Setting { terms: *terms, footing, batch_ns: self.batch_ns(terms), bookable, nodes, ends_ns: u64::MAX }
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

    fn alone(standing: &Standing, terms: &Terms) -> Share {
        match standing.setting(terms).footing {
            Footing::Alone(share) => share,
            footing => panic!("{footing:?}"),
        }
    }

    /// HV-64: who is there decides by how much to divide, and only the last word counts.
    #[test]
    fn stale_peer_list() {
        let terms = Terms::of(&Definition::parse("api", "1000/s").unwrap()).unwrap();
        let mut standing = Standing::new(16, 500);
        assert_eq!(standing.setting(&terms).footing, Footing::Store);
        standing.breaker.asked(0);
        assert!(standing.tick(None, 3 * SECOND));
        assert_eq!(alone(&standing, &terms), Share::new(terms.rate, 16, 6, 3 * SECOND), "nobody has answered yet");
        standing.headcount.heard(4, 2);
        assert_eq!(alone(&standing, &terms), Share::new(terms.rate, 4, 25, 3 * SECOND));
        standing.headcount.heard(40, 2);
        assert_eq!(alone(&standing, &terms), Share::new(terms.rate, 40, 2, 3 * SECOND));
        standing.headcount.heard(1, 1);
        assert_eq!(alone(&standing, &terms), Share::new(terms.rate, 1, 100, 3 * SECOND), "the others have left");
    }

    /// HV-67: many nodes draw less often, as far as batches live.
    #[test]
    fn hv_67_batches_stretch_with_the_number_of_nodes() {
        let terms = Terms::of(&Definition::parse("api", "1000/s").unwrap()).unwrap();
        let mut standing = Standing::new(16, 500);
        for (nodes, batch_ms) in [(2, 50), (25, 50), (35, 70), (1000, 80)] {
            standing.headcount.heard(nodes, nodes);
            assert_eq!(standing.setting(&terms).batch_ns, batch_ms * MILLISECOND, "{nodes}");
        }
    }
}
