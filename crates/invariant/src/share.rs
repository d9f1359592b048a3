//! I16: of each kind of step, batches go out by level, waiting work rises, and a level with work gets 5 % of the items.

use std::collections::BTreeMap;

use crate::Breach;

const LEVELS: usize = 10;
/// A level is owed one item when others got this many.
const OTHERS: u64 = 19;
/// Before a share goes out, each of the eight other shares and as many batches of level 0 may go before it.
const BEFORE_SHARE: u64 = 18;
const RISES_MAX: u64 = 3;

/// A level with work that may go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingLevel {
    pub level: usize,
    /// How long its oldest step waits.
    pub waited_ms: u64,
    /// The items of its next batch: that of the workflow whose turn it is.
    pub items: u64,
}

/// A batch that a node gave to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedBatch {
    pub holder: u64,
    pub kind: usize,
    /// None: suspects, which go out before everything else.
    pub level: Option<usize>,
    pub items: u64,
    /// What waited when the batch was chosen.
    pub waiting: Vec<WaitingLevel>,
}

/// Items that other levels got since a level was served.
#[derive(Clone, Copy, Default)]
struct Passed {
    items: u64,
    /// The same, as long as the level had work.
    while_waiting: u64,
    /// The largest share of the level, and the largest batch of another one, in that time.
    share_max: u64,
    batch_max: u64,
}

#[derive(Default)]
struct Kind {
    passed: [Passed; LEVELS],
    after_share: bool,
}

/// Checks the batches of all nodes, in the order in which they went out. Waiting work rises one level per
/// `rises_after_ms`.
pub fn shares_hold(served: &[ServedBatch], rises_after_ms: u64) -> Vec<Breach> {
    let mut kinds: BTreeMap<(u64, usize), Kind> = BTreeMap::new();
    let mut breaches = Vec::new();
    for batch in served {
        let kind = kinds.entry((batch.holder, batch.kind)).or_default();
        let wrong = kind.order(batch, rises_after_ms).into_iter().chain(kind.count(batch));
        let of = |what| Breach::new("I16", format!("incarnation {}, kind {}: {what}", batch.holder, batch.kind));
        breaches.extend(wrong.map(of));
    }
    breaches
}

impl Kind {
    /// Checks that the best level goes first, unless another one is owed its share.
    fn order(&mut self, batch: &ServedBatch, rises_after_ms: u64) -> Option<String> {
        let after_share = std::mem::take(&mut self.after_share);
        let level = batch.level?;
        let Some(own) = batch.waiting.iter().find(|waiting| waiting.level == level) else {
            return Some(format!("level {level} was served without work"));
        };
        let best = batch.waiting.iter().min_by_key(|waiting| rank(waiting, rises_after_ms)).unwrap_or(own).level;
        if best == level {
            return None;
        }
        self.after_share = true;
        if after_share && best == 0 {
            return Some(format!("level 0 waits for two batches, the second one of level {level}"));
        }
        let (passed, owed) = (self.passed[level].items, own.items * OTHERS);
        let why = || format!("level {level} goes before level {best} after {passed} items, its share is due at {owed}");
        (passed < owed).then(why)
    }

    /// Counts the batch, and checks that no level with work waits too long for its share.
    fn count(&mut self, batch: &ServedBatch) -> Option<String> {
        let mut starving = None;
        for (level, passed) in self.passed.iter_mut().enumerate() {
            if batch.level == Some(level) {
                *passed = Passed::default();
                continue;
            }
            passed.items += batch.items;
            let Some(waiting) = batch.waiting.iter().find(|waiting| waiting.level == level) else {
                *passed = Passed { items: passed.items, ..Passed::default() };
                continue;
            };
            if batch.level.is_none() {
                continue;
            }
            passed.while_waiting += batch.items;
            passed.share_max = passed.share_max.max(waiting.items);
            passed.batch_max = passed.batch_max.max(batch.items);
            let most = passed.share_max * OTHERS + passed.batch_max * BEFORE_SHARE;
            if passed.while_waiting > most {
                let items = passed.while_waiting;
                starving =
                    Some(format!("level {level} has work and {items} items of other levels went out, {most} may"));
            }
        }
        starving
    }
}

/// The effective level, then the level.
fn rank(waiting: &WaitingLevel, rises_after_ms: u64) -> (u64, usize) {
    let level = waiting.level as u64;
    let rises = (waiting.waited_ms / rises_after_ms.max(1)).min(RISES_MAX);
    (if (1..=6).contains(&level) { level.saturating_sub(rises) } else { level }, waiting.level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    const FRESH: u64 = 0;

    fn judge(served: &[ServedBatch]) -> Vec<Breach> {
        shares_hold(served, 30_000)
    }

    fn batch(level: usize, waiting: &[(usize, u64)]) -> ServedBatch {
        let waiting =
            waiting.iter().map(|(level, waited_ms)| WaitingLevel { level: *level, waited_ms: *waited_ms, items: 1 });
        ServedBatch { holder: 1, kind: 2, level: Some(level), items: 1, waiting: waiting.collect() }
    }

    #[test]
    fn i16_the_best_level_goes_first() {
        assert_eq!(judge(&[batch(4, &[(4, FRESH), (5, FRESH)])]), []);
        assert_eq!(ids(&judge(&[batch(5, &[(4, FRESH), (5, FRESH)])])), ["I16"]);
        assert_eq!(ids(&judge(&[batch(5, &[(4, FRESH)])])), ["I16"], "it has no work");
        let suspects = ServedBatch { level: None, ..batch(0, &[(4, FRESH)]) };
        assert_eq!(judge(&[suspects]), []);
    }

    #[test]
    fn i16_waiting_work_rises() {
        assert_eq!(judge(&[batch(6, &[(6, 60_000), (5, FRESH)])]), []);
        assert_eq!(ids(&judge(&[batch(5, &[(6, 60_000), (5, FRESH)])])), ["I16"]);
        assert_eq!(judge(&[batch(5, &[(6, 59_999), (5, FRESH)])]), []);
        assert_eq!(judge(&[batch(3, &[(6, 600_000), (3, FRESH)])]), [], "by three levels at most");
        assert_eq!(judge(&[batch(8, &[(8, FRESH), (9, 600_000)])]), [], "the last ones do not rise");
    }

    #[test]
    fn i16_a_share_goes_out_when_it_is_due() {
        let both = [(0, FRESH), (9, FRESH)];
        let mut served = vec![batch(0, &both); 18];
        let early = [served.clone(), vec![batch(9, &both)]].concat();
        assert_eq!(ids(&judge(&early)), ["I16"]);
        served.push(batch(0, &both));
        served.push(batch(9, &both));
        assert_eq!(judge(&served), []);
        assert_eq!(ids(&judge(&vec![batch(0, &both); 38])), ["I16"], "it never gets its share");
        let other = ServedBatch { kind: 3, ..batch(0, &both) };
        assert_eq!(judge(&[vec![batch(0, &both); 37], vec![other; 37]].concat()), [], "each kind for itself");
    }

    #[test]
    fn i16_level_0_does_not_wait_for_two_shares() {
        let three = [(0, FRESH), (8, FRESH), (9, FRESH)];
        let mut served = vec![batch(0, &three); 19];
        served.extend([batch(8, &three), batch(9, &three)]);
        assert_eq!(ids(&judge(&served)), ["I16"]);
        served.insert(20, batch(0, &three));
        assert_eq!(judge(&served), []);
    }
}
