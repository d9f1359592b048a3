//! How many are engaged, as a node knows it.
//!
//! | known                                         | answer                                             |
//! |-----------------------------------------------|----------------------------------------------------|
//! | nothing yet, in this incarnation              | unknown; divide by max(expected, highest ever seen) |
//! | what the queen published, ≤ 10 s old          | that, at least 1                                   |
//! | nothing so recent                             | the node counts for itself, once per beat          |
//! | both                                          | the larger                                         |
//! | no answer for 30 s                            | the last, marked stale                             |
//!
//! Unknown is not zero: nodes that all start against a dead store must not each take the whole limit. Nor are nodes that are
//! alive and not ready: whatever took their readiness, requests may still reach them and steps still run there. They are
//! not engaged, and yet limits are divided by them as well; or nodes that all miss their sources, and the hive's store
//! after that, would each take the whole limit.

use std::time::Duration;

use honeyflow_runtime::Moment;
use serde::Serialize;

use crate::contract::Counts;

/// Older than this, what was published says nothing.
const FRESH: Duration = Duration::from_secs(10);
/// Without an answer for so long, the count is shown as stale.
const STALE: Duration = Duration::from_secs(30);

/// As it is known here and now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Engaged {
    /// None: nobody has said yet.
    pub count: Option<u64>,
    /// By how many to divide what all may have together: the engaged, and those that are alive and not ready. Never 0.
    pub divisor: u64,
    /// The store has not answered for half a minute.
    pub stale: bool,
}

/// As one count has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heads {
    engaged: u64,
    sharing: u64,
}

impl Heads {
    fn of(counts: &Counts) -> Heads {
        let unready = counts.alive.saturating_sub(counts.ready);
        Heads { engaged: counts.engaged, sharing: counts.engaged + unready }
    }

    fn or_more(self, other: Heads) -> Heads {
        Heads { engaged: self.engaged.max(other.engaged), sharing: self.sharing.max(other.sharing) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Count {
    expected: u64,
    /// Of those who share.
    highest: u64,
    published: Option<(Heads, Moment)>,
    own: Option<(Heads, Moment)>,
    /// The last one that was known, however old.
    last: Option<Heads>,
    heard_at: Option<Moment>,
}

impl Count {
    pub fn new(expected: u64) -> Count {
        Count { expected, highest: 0, published: None, own: None, last: None, heard_at: None }
    }

    /// A beat was answered.
    pub fn heard(&mut self, counts: &Counts, hive_ms: u64, now: Moment) {
        self.heard_at = Some(now);
        let age = Duration::from_millis(hive_ms.saturating_sub(counts.counted_ms));
        self.published = (counts.counted_ms > 0 && age <= FRESH).then_some((Heads::of(counts), now));
        if self.own.is_some_and(|(_, at)| now.since(at) > FRESH) {
            self.own = None;
        }
        self.conclude();
    }

    /// Counted for oneself, as queen or because nobody else does.
    pub fn counted(&mut self, counts: &Counts, now: Moment) {
        self.heard_at = Some(now);
        self.own = Some((Heads::of(counts), now));
        self.conclude();
    }

    fn conclude(&mut self) {
        let known = self.published.into_iter().chain(self.own).map(|(heads, _)| heads);
        if let Some(heads) = known.reduce(Heads::or_more) {
            self.last = Some(heads);
            self.highest = self.highest.max(heads.sharing);
        }
    }

    /// Nobody has published anything recent: count for yourself.
    pub fn is_missing(&self) -> bool {
        self.published.is_none()
    }

    /// Another incarnation has heard nothing yet.
    pub fn begin_again(&mut self) {
        *self = Count { highest: self.highest, ..Count::new(self.expected) };
    }

    pub fn engaged(&self, now: Moment) -> Engaged {
        let divisor = match self.last {
            Some(heads) => heads.sharing.max(1),
            None if crate::planted::on("0 as 1 when unknown") => 1,
            None => self.expected.max(self.highest).max(1),
        };
        let stale = self.heard_at.is_none_or(|at| now.since(at) >= STALE);
        Engaged { count: self.last.map(|heads| heads.engaged), divisor, stale }
    }

    /// When the answer changes by itself.
    pub fn stale_at(&self, now: Moment) -> Moment {
        self.heard_at.map(|at| at.after(STALE)).filter(|at| *at > now).unwrap_or(Moment::FAR)
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
        count.counted(&published(0, 0), at(2));
        let known = count.engaged(at(2));
        assert_eq!((known.count, known.divisor, known.stale), (Some(0), 1, false), "a known 0 counts as 1");
        count.counted(&published(40, 0), at(3));
        count.begin_again();
        assert_eq!(count.engaged(at(4)).divisor, 40, "the highest that was ever seen");
        assert_eq!(count.engaged(at(4)).count, None);
    }

    /// N nodes at once against a dead store admit no more than the limit, as long as there are no more than expected.
    #[test]
    fn zero_counts_as_one_at_cold_start() {
        let nodes = 16;
        let admitted: u64 = (0..nodes).map(|_| 1000 / Count::new(16).engaged(at(0)).divisor).sum();
        assert!(admitted <= 1000, "{admitted}");
    }

    /// HV-60, HV-64: five nodes that one after the other miss their sources, and then the hive's store.
    #[test]
    fn hv_64_nodes_that_are_not_ready_still_share() {
        let mut count = Count::new(16);
        for (second, ready) in (1..).zip((0..=5).rev()) {
            let counts = Counts { alive: 5, ready, engaged: ready, counted_ms: 100_000, ..Counts::default() };
            count.heard(&counts, 100_000, at(second));
            let engaged = count.engaged(at(second));
            assert_eq!((engaged.count, engaged.divisor), (Some(ready), 5), "{ready} are ready");
        }
        assert_eq!(count.engaged(at(1_000)).divisor, 5, "nobody answers any more");
        count.counted(&Counts { alive: 2, ready: 1, engaged: 0, ..Counts::default() }, at(2_000));
        assert_eq!(count.engaged(at(2_000)).divisor, 5, "the larger of the two");
        count.heard(
            &Counts { alive: 2, ready: 2, engaged: 1, counted_ms: 9_000, ..Counts::default() },
            9_000,
            at(2_100),
        );
        assert_eq!(count.engaged(at(2_100)).divisor, 1, "whoever is ready and has no traffic does not count");
    }

    #[test]
    fn hv_29_an_old_count_is_counted_again_by_oneself() {
        let mut count = Count::new(16);
        count.heard(&published(7, 100_000), 105_000, at(1));
        assert_eq!((count.engaged(at(1)).count, count.is_missing()), (Some(7), false));
        count.heard(&published(7, 100_000), 110_001, at(6));
        assert!(count.is_missing(), "older than ten seconds");
        assert_eq!(count.engaged(at(6)).count, Some(7), "the last that was known");
        count.counted(&published(3, 0), at(6));
        assert_eq!(count.engaged(at(6)).count, Some(3));
        count.heard(&published(2, 111_000), 111_000, at(8));
        assert_eq!(count.engaged(at(8)).count, Some(3), "the larger of the two");
        count.heard(&published(2, 120_000), 120_000, at(17));
        assert_eq!(count.engaged(at(17)).count, Some(2));
        assert!(!count.engaged(at(46)).stale && count.engaged(at(47)).stale);
    }
}
