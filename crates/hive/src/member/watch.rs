//! Who is dead: a beat that has not changed for long enough, told by beats of one's own.
//!
//! | seen                                                                    | follows                       |
//! |-------------------------------------------------------------------------|-------------------------------|
//! | the same beat for ttl − heartbeat, and it has expired there             | it may be buried              |
//! | the same, but our own beats had a gap or the clock a step within 2 ttl  | only after 2 ttl              |
//! | the same since we first heard of it: a step before our first beat was not seen by us | only 1.05 ttl after that beat |
//! | the same beat for 2 ttl on our own clock                                | it may be buried, expired or not |
//! | its kernel lock is free                                                 | it may be buried at once      |
//! | another beat                                                            | it lives; watched from here on |
//! | not among the soonest to expire, where it would have been               | it has beaten: watched no more |
//! | our own beats further than two heartbeats apart                         | everybody is watched anew     |
//!
//! Only beats of ours that were written and answered count: whoever hears nothing cannot tell the dead from the living.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use crate::contract::{Burial, NodeId, SOONEST_MAX, Status, Watched};

#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// When our last answered beat was sent; none before the first.
    last: Option<Moment>,
    /// A gap of our own beats ended, or the store's clock stepped.
    troubled_at: Option<Moment>,
    seen: BTreeMap<NodeId, Seen>,
    hive_ms: u64,
    clock: HiveClock,
    /// When we first heard the store's clock.
    begun_at: Moment,
}

#[derive(Clone, Debug)]
struct Seen {
    beat: u64,
    ttl: Duration,
    heartbeat: Duration,
    expires_ms: u64,
    dead: bool,
    /// When the answer came that told this beat first, and when the last one that did so was sent.
    since: Moment,
    until: Moment,
    /// Its end as our clock will show it.
    expires_at: Moment,
    /// Nor believed to be dead before: it may have been sent before we were there.
    not_before: Moment,
}

impl Seen {
    /// When the same beat has been told for long enough, if it is told until then. It does not move with time: whoever
    /// waits for it must not find it in the past.
    fn watched_at(&self, troubled_at: Option<Moment>) -> Moment {
        if crate::planted::on("bury without the watched beat") {
            return self.since;
        }
        let calm_at = self.since.after(self.ttl.saturating_sub(self.heartbeat)).max(self.not_before);
        match troubled_at {
            Some(at) => calm_at.max(at.after(self.ttl * 2)).min(self.since.after(self.ttl * 2)),
            None => calm_at,
        }
    }
}

impl Watch {
    /// An answered, written beat of ours. `heartbeat` is our own. Answers by how much the store's clock has stepped.
    pub fn told(&mut self, status: &Status, heartbeat: Duration, sent_at: Moment, now: Moment) -> Option<i64> {
        if self.gap(heartbeat, sent_at) {
            self.seen.clear();
            self.troubled_at = Some(now);
        }
        self.last = Some(sent_at);
        self.hive_ms = status.head.hive_ms;
        if self.clock.is_new() {
            self.begun_at = now;
        }
        let step = self.clock.learn(status.head.hive_ms, sent_at, now);
        if step.is_some() {
            self.troubled_at = Some(now);
        }
        let queen = status.queen.iter().filter_map(|queen| queen.node.as_ref());
        for watched in status.soonest.iter().chain(queen) {
            self.see(watched, sent_at, now);
        }
        // Whoever was not told of for long is not among the soonest to expire, or is gone; whoever would be among them by what
        // we know has beaten since. In a large hive that is nearly everybody, and nobody to beat early for.
        let last = status.soonest.iter().map(|watched| watched.expires_ms).max();
        let passed_by = last.filter(|_| status.soonest.len() >= SOONEST_MAX).unwrap_or(0);
        self.seen.retain(|_, seen| {
            seen.until == sent_at || (seen.expires_ms >= passed_by && now.since(seen.until) < seen.ttl * 4)
        });
        step
    }

    /// Whether a beat that was sent then comes too long after the one before.
    pub fn gap(&self, heartbeat: Duration, sent_at: Moment) -> bool {
        self.last.is_some_and(|last| sent_at.since(last) > heartbeat * 2)
    }

    fn see(&mut self, watched: &Watched, sent_at: Moment, now: Moment) {
        let ttl = Duration::from_millis(watched.ttl_ms);
        let known = self.seen.get(&watched.id);
        let before = known.filter(|seen| seen.beat == watched.beat);
        let (since, expires_at) = before.map_or((now, Moment::FAR), |seen| (seen.since, seen.expires_at));
        let not_before = match (before, known) {
            (Some(seen), _) => seen.not_before,
            // Of a beat that we saw come we know when it was sent.
            (None, Some(_)) => Moment::default(),
            // That it has expired may be the clock's doing: its life is counted here, on a clock that may be fast.
            (None, None) => self.begun_at.after(ttl * 21 / 20),
        };
        let left_ms = watched.expires_ms.saturating_sub(self.hive_ms);
        let seen = Seen {
            beat: watched.beat,
            ttl,
            heartbeat: Duration::from_millis(watched.heartbeat_ms),
            expires_ms: watched.expires_ms,
            dead: watched.dead,
            since,
            until: sent_at,
            // As it was told first: what has expired already would else expire again with every answer.
            expires_at: now.after(Duration::from_millis(left_ms)).min(expires_at),
            not_before,
        };
        self.seen.insert(watched.id, seen);
    }

    /// Whether its end is told by what we have been told so far.
    pub fn burial(&self, node: NodeId) -> Option<Burial> {
        // By the last of our beats: who is not told of any more is buried, or lives.
        let seen = self.seen.get(&node).filter(|seen| Some(seen.until) == self.last)?;
        let burial = |silent, cause: &str| Burial { node, beat: seen.beat, silent, cause: Name::from(cause) };
        if seen.dead {
            return Some(burial(false, "its lock is free"));
        }
        if seen.until.since(seen.since) >= seen.ttl * 2 {
            return Some(burial(true, "silent"));
        }
        let watched = seen.until >= seen.watched_at(self.troubled_at);
        (watched && seen.expires_ms <= self.hive_ms).then(|| burial(false, "expired"))
    }

    /// When a beat of ours could tell that it is dead, if it does not beat until then.
    pub fn ripe_at(&self, node: NodeId, now: Moment) -> Option<Moment> {
        let seen = self.seen.get(&node)?;
        if seen.dead {
            return Some(now);
        }
        let watched_at = seen.watched_at(self.troubled_at);
        let silent_at = seen.since.after(seen.ttl * 2);
        // The store counts whole milliseconds.
        let expired_at = seen.expires_at.after(Duration::from_millis(2));
        Some(watched_at.max(expired_at).min(silent_at.max(watched_at)))
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.seen.keys().copied()
    }

    pub fn forget(&mut self, node: NodeId) {
        self.seen.remove(&node);
    }

    /// A fresh identity has watched nobody.
    pub fn begin_again(&mut self) {
        let (troubled_at, begun_at) = (self.troubled_at, self.begun_at);
        *self = Watch { troubled_at, begun_at, clock: std::mem::take(&mut self.clock), ..Watch::default() };
    }
}

/// The store's clock against our own: what lies between question and answer cannot be told from latency.
#[derive(Clone, Debug, Default)]
struct HiveClock {
    /// Lowest and highest difference that the last answer allows, in microseconds, and when that was.
    last: Option<(i64, i64, Moment)>,
}

impl HiveClock {
    fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// More than a second off: by so many milliseconds, at least.
    fn learn(&mut self, hive_ms: u64, sent_at: Moment, now: Moment) -> Option<i64> {
        let hive = i64::try_from(hive_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let micros = |at: Moment| i64::try_from(at.0).unwrap_or(i64::MAX);
        let (low, high) = (hive.saturating_sub(micros(now)), hive.saturating_sub(micros(sent_at)).saturating_add(1000));
        let before = self.last.replace((low, high, now));
        let (was_low, was_high, at) = before?;
        // Clocks may run at rates five per cent apart.
        let allowed = 1_000_000 + micros(Moment(now.0.saturating_sub(at.0))) / 20;
        let by = if low > was_high { low - was_high } else { (high - was_low).min(0) };
        (by.abs() > allowed).then_some(by / 1000)
    }
}

#[cfg(test)]
mod tests;
