//! The number of engaged nodes, as one node knows it.
//!
//! | known                                         | answer                                             |
//! |-----------------------------------------------|----------------------------------------------------|
//! | nothing yet, in this incarnation              | unknown; divide by max(expected, highest ever known) |
//! | the count that the queen published, ≤ 10 s old | that count, at least 1                            |
//! | no published count so recent                  | the node counts for itself, once per heartbeat     |
//! | both                                          | the larger                                         |
//! | no answer for 30 s                            | the last count, marked stale                       |
//!
//! Unknown is not zero: nodes that all start while the store is down must not each take the whole limit. Nodes that are
//! alive and not ready do not count as zero either: requests may still reach them, and steps still run there. They are
//! not engaged, but limits are divided by them too. Otherwise nodes that all lose their sources, and then the hive's
//! store, would each take the whole limit.

use std::time::Duration;

use honeyflow_runtime::Moment;
use serde::Serialize;

use crate::contract::Counts;

/// A published count that is older than this is ignored.
const FRESH: Duration = Duration::from_secs(10);
/// Without an answer for this long, the count is marked stale.
const STALE: Duration = Duration::from_secs(30);

/// The number of engaged nodes, as this node knows it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Engaged {
    /// `None` before the first count is known.
    pub count: Option<u64>,
    /// The number by which a limit of all nodes is divided: engaged nodes, plus nodes that are alive and not ready.
    /// Never 0.
    pub divisor: u64,
    /// The store has not answered for 30 s.
    pub stale: bool,
}

/// The numbers of one count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heads {
    engaged: u64,
    sharing: u64,
}

impl Heads {
    fn from_counts(counts: &Counts) -> Heads {
        let unready = counts.alive.saturating_sub(counts.ready);
        Heads { engaged: counts.engaged, sharing: counts.engaged + unready }
    }

    fn larger_of(self, other: Heads) -> Heads {
        Heads { engaged: self.engaged.max(other.engaged), sharing: self.sharing.max(other.sharing) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Count {
    expected: u64,
    /// The highest number of sharing nodes ever known.
    highest: u64,
    published: Option<(Heads, Moment)>,
    own: Option<(Heads, Moment)>,
    /// The last known count, at any age.
    last: Option<Heads>,
    answered_at: Option<Moment>,
}

impl Count {
    pub fn new(expected: u64) -> Count {
        Count { expected, highest: 0, published: None, own: None, last: None, answered_at: None }
    }

    /// Takes the published count from a heartbeat reply.
    pub fn on_published(&mut self, counts: &Counts, hive_ms: u64, now: Moment) {
        self.answered_at = Some(now);
        let age = Duration::from_millis(hive_ms.saturating_sub(counts.counted_ms));
        self.published = (counts.counted_ms > 0 && age <= FRESH).then_some((Heads::from_counts(counts), now));
        if self.own.is_some_and(|(_, at)| now.since(at) > FRESH) {
            self.own = None;
        }
        self.conclude();
    }

    /// Takes this node's own count, made as queen or because no recent count is published.
    pub fn on_own_count(&mut self, counts: &Counts, now: Moment) {
        self.answered_at = Some(now);
        self.own = Some((Heads::from_counts(counts), now));
        self.conclude();
    }

    fn conclude(&mut self) {
        let known = self.published.into_iter().chain(self.own).map(|(heads, _)| heads);
        if let Some(heads) = known.reduce(Heads::larger_of) {
            self.last = Some(heads);
            self.highest = self.highest.max(heads.sharing);
        }
    }

    /// Whether no recent count is published, so that this node should count for itself.
    pub fn is_missing(&self) -> bool {
        self.published.is_none()
    }

    /// Forgets the counts: a new incarnation has received none yet.
    pub fn reset(&mut self) {
        *self = Count { highest: self.highest, ..Count::new(self.expected) };
    }

    pub fn engaged(&self, now: Moment) -> Engaged {
        let divisor = match self.last {
            Some(heads) => heads.sharing.max(1),
            None if crate::planted::on("0 as 1 when unknown") => 1,
            None => self.expected.max(self.highest).max(1),
        };
        let stale = self.answered_at.is_none_or(|at| now.since(at) >= STALE);
        Engaged { count: self.last.map(|heads| heads.engaged), divisor, stale }
    }

    /// When the count becomes stale without an input.
    pub fn stale_at(&self, now: Moment) -> Moment {
        self.answered_at.map(|at| at.after(STALE)).filter(|at| *at > now).unwrap_or(Moment::FAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(engaged: u64, counted_ms: u64) -> Counts {
        Counts { engaged, counted_ms, ..Counts::default() }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn hv_30_unknown_is_not_zero() {
        let mut count = Count::new(16);
        let unknown = count.engaged(at(1));
        assert_eq!((unknown.count, unknown.divisor, unknown.stale), (None, 16, true));
        count.on_own_count(&published(0, 0), at(2));
        let known = count.engaged(at(2));
        assert_eq!((known.count, known.divisor, known.stale), (Some(0), 1, false), "a known 0 counts as 1");
        count.on_own_count(&published(40, 0), at(3));
        count.reset();
        assert_eq!(count.engaged(at(4)).divisor, 40, "the highest count ever known");
        assert_eq!(count.engaged(at(4)).count, None);
    }

    /// N nodes that start while the store is down admit no more than the limit, if N is at most the expected number.
    #[test]
    fn zero_counts_as_one_at_cold_start() {
        let nodes = 16;
        let admitted: u64 = (0..nodes).map(|_| 1000 / Count::new(16).engaged(at(0)).divisor).sum();
        assert!(admitted <= 1000, "{admitted}");
    }

    /// HV-60, HV-64: five nodes lose their sources one after the other, and then the hive's store.
    #[test]
    fn hv_64_nodes_that_are_not_ready_still_share() {
        let mut count = Count::new(16);
        for (second, ready) in (1..).zip((0..=5).rev()) {
            let counts = Counts { alive: 5, ready, engaged: ready, counted_ms: 100_000, ..Counts::default() };
            count.on_published(&counts, 100_000, at(second));
            let engaged = count.engaged(at(second));
            assert_eq!((engaged.count, engaged.divisor), (Some(ready), 5), "{ready} are ready");
        }
        assert_eq!(count.engaged(at(1_000)).divisor, 5, "the store does not answer any more");
        count.on_own_count(&Counts { alive: 2, ready: 1, engaged: 0, ..Counts::default() }, at(2_000));
        assert_eq!(count.engaged(at(2_000)).divisor, 5, "the larger of the two");
        count.on_published(
            &Counts { alive: 2, ready: 2, engaged: 1, counted_ms: 9_000, ..Counts::default() },
            9_000,
            at(2_100),
        );
        assert_eq!(count.engaged(at(2_100)).divisor, 1, "a ready node without traffic does not count");
    }

    #[test]
    fn hv_29_a_node_counts_for_itself_when_the_published_count_is_old() {
        let mut count = Count::new(16);
        count.on_published(&published(7, 100_000), 105_000, at(1));
        assert_eq!((count.engaged(at(1)).count, count.is_missing()), (Some(7), false));
        count.on_published(&published(7, 100_000), 110_001, at(6));
        assert!(count.is_missing(), "older than ten seconds");
        assert_eq!(count.engaged(at(6)).count, Some(7), "the last known count");
        count.on_own_count(&published(3, 0), at(6));
        assert_eq!(count.engaged(at(6)).count, Some(3));
        count.on_published(&published(2, 111_000), 111_000, at(8));
        assert_eq!(count.engaged(at(8)).count, Some(3), "the larger of the two");
        count.on_published(&published(2, 120_000), 120_000, at(17));
        assert_eq!(count.engaged(at(17)).count, Some(2));
        assert!(!count.engaged(at(46)).stale && count.engaged(at(47)).stale);
    }
}
