//! I9, I10, I16: after the last fault all work is done in time, no ready step remains, and no queue exceeds its limit.

use crate::Breach;

/// The state of a cluster after its last fault was healed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rest {
    /// The time until nothing changed any more; none if the cluster never came to rest.
    pub quiet_after_ms: Option<u64>,
    pub limit_ms: u64,
    pub backlog: usize,
    /// The number of open runs over all nodes.
    pub open_runs: usize,
    /// The number of ready steps over all nodes that no worker received.
    pub ready: usize,
}

pub fn comes_to_rest(rest: &Rest) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let Rest { quiet_after_ms, limit_ms, backlog, open_runs, ready } = rest;
    if quiet_after_ms.is_none_or(|took| took > *limit_ms) || *backlog > 0 {
        let took = quiet_after_ms.map_or_else(|| "not at rest".to_owned(), |took| format!("at rest after {took} ms"));
        let what = format!("{took}, {limit_ms} ms are allowed; {backlog} rows and {open_runs} open runs remain");
        breaches.push(Breach::new("I9", what));
    }
    if *ready > 0 {
        breaches.push(Breach::new("I16", format!("{ready} steps are ready and no worker gets them")));
    }
    breaches
}

/// The highest value ever observed of a bounded quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HighestValue {
    pub what: &'static str,
    pub most: usize,
    pub limit: usize,
}

pub fn bounds_hold(seen: &[HighestValue]) -> Vec<Breach> {
    let above = seen.iter().filter(|seen| seen.most > seen.limit);
    above
        .map(|HighestValue { what, most, limit }| Breach::new("I10", format!("{what}: {most}, the limit is {limit}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn i9_and_i16_a_cluster_comes_to_rest() {
        let good = Rest { quiet_after_ms: Some(900), limit_ms: 1000, backlog: 0, open_runs: 0, ready: 0 };
        assert_eq!(comes_to_rest(&good), []);
        assert_eq!(ids(&comes_to_rest(&Rest { quiet_after_ms: Some(1001), ..good.clone() })), ["I9"]);
        assert_eq!(ids(&comes_to_rest(&Rest { quiet_after_ms: None, backlog: 3, ..good.clone() })), ["I9"]);
        assert_eq!(ids(&comes_to_rest(&Rest { backlog: 1, ..good.clone() })), ["I9"]);
        assert_eq!(ids(&comes_to_rest(&Rest { ready: 1, ..good.clone() })), ["I16"]);
        assert_eq!(ids(&comes_to_rest(&Rest { ready: 9, quiet_after_ms: None, ..good })), ["I9", "I16"]);
    }

    #[test]
    fn i10_nothing_is_above_its_limit() {
        let seen = |most, limit| HighestValue { what: "runs", most, limit };
        assert_eq!(bounds_hold(&[seen(10, 10), seen(0, 1)]), []);
        assert_eq!(ids(&bounds_hold(&[seen(11, 10)])), ["I10"]);
        assert_eq!(ids(&bounds_hold(&[seen(1, 0), seen(2, 1), seen(1, 1)])), ["I10", "I10"]);
    }
}
