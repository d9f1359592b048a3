//! Decides which members have expired: those whose heartbeat number has not changed for long enough, as the replies to
//! this node's own heartbeats show.
//!
//! | observed                                                                    | consequence                        |
//! |-----------------------------------------------------------------------------|------------------------------------|
//! | the same number for ttl − heartbeat, and the row has expired                | it may be removed                  |
//! | the same, but this node's heartbeats had a gap, or the clock a step, within 2 ttl | it may be removed only after 2 ttl |
//! | the same number since this node first saw the member: a clock step before this node's first heartbeat is unknown to it | it may be removed only 1.05 ttl after that heartbeat |
//! | the same number for 2 ttl on this node's own clock                          | it may be removed, expired or not  |
//! | its kernel lock is free                                                     | it may be removed at once          |
//! | another number                                                              | it is alive; watched from now on   |
//! | it is not listed, though it would be among the soonest to expire            | it has sent a heartbeat: no longer watched |
//! | this node's heartbeats are more than two heartbeats apart                   | all members are watched from the start |
//!
//! Only heartbeats of this node that were written and answered count: a node that gets no replies cannot distinguish
//! expired members from living ones.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use crate::contract::{NodeId, Removal, SOONEST_MAX, Status, WatchedNode};

#[derive(Clone, Debug, Default)]
pub(super) struct FailureDetector {
    /// When this node's last answered heartbeat was sent; `None` before the first.
    last: Option<Moment>,
    /// When a gap in this node's heartbeats ended, or the store's clock stepped.
    disturbed_at: Option<Moment>,
    observed: BTreeMap<NodeId, ObservedMember>,
    hive_ms: u64,
    clock: HiveClock,
    /// When this node first learnt the store's time.
    started_at: Moment,
}

#[derive(Clone, Debug)]
struct ObservedMember {
    beat: u64,
    ttl: Duration,
    heartbeat: Duration,
    expires_ms: u64,
    dead: bool,
    /// When the first reply with this heartbeat number arrived, and when the request of the last such reply was sent.
    since: Moment,
    until: Moment,
    /// When the row expires, on this node's clock.
    expires_at: Moment,
    /// The member does not count as expired before this time: its heartbeat may be older than this node's first one.
    not_before: Moment,
}

impl ObservedMember {
    /// When the same heartbeat number has been observed for long enough, if it does not change until then. It does not
    /// move with time: a caller that waits for it must not find it in the past.
    fn watched_at(&self, disturbed_at: Option<Moment>) -> Moment {
        if crate::planted::on("bury without the watched beat") {
            return self.since;
        }
        let calm_at = self.since.after(self.ttl.saturating_sub(self.heartbeat)).max(self.not_before);
        match disturbed_at {
            Some(at) => calm_at.max(at.after(self.ttl * 2)).min(self.since.after(self.ttl * 2)),
            None => calm_at,
        }
    }
}

impl FailureDetector {
    /// Takes the reply to a written heartbeat of this node. `heartbeat` is this node's own interval. Returns by how
    /// much the store's clock has stepped, in milliseconds.
    pub fn on_heartbeat_reply(
        &mut self,
        status: &Status,
        heartbeat: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Option<i64> {
        if self.is_after_gap(heartbeat, sent_at) {
            self.observed.clear();
            self.disturbed_at = Some(now);
        }
        self.last = Some(sent_at);
        self.hive_ms = status.head.hive_ms;
        if self.clock.is_new() {
            self.started_at = now;
        }
        let step = self.clock.learn(status.head.hive_ms, sent_at, now);
        if step.is_some() {
            self.disturbed_at = Some(now);
        }
        let queen = status.queen.iter().filter_map(|queen| queen.node.as_ref());
        for watched in status.soonest.iter().chain(queen) {
            self.observe(watched, sent_at, now);
        }
        // A member that was not listed for long is not among the soonest to expire, or is gone. A member that would be
        // listed, by what this node knows, has sent a heartbeat since. In a large hive that is true of nearly all
        // members, and no early heartbeat is needed for them.
        let last = status.soonest.iter().map(|watched| watched.expires_ms).max();
        let passed_by = last.filter(|_| status.soonest.len() >= SOONEST_MAX).unwrap_or(0);
        self.observed.retain(|_, member| {
            member.until == sent_at || (member.expires_ms >= passed_by && now.since(member.until) < member.ttl * 4)
        });
        step
    }

    /// Whether a heartbeat sent at `sent_at` comes too long after the previous one.
    pub fn is_after_gap(&self, heartbeat: Duration, sent_at: Moment) -> bool {
        self.last.is_some_and(|last| sent_at.since(last) > heartbeat * 2)
    }

    fn observe(&mut self, watched: &WatchedNode, sent_at: Moment, now: Moment) {
        let ttl = Duration::from_millis(watched.ttl_ms);
        let known = self.observed.get(&watched.id);
        let before = known.filter(|member| member.beat == watched.beat);
        let (since, expires_at) = before.map_or((now, Moment::FAR), |member| (member.since, member.expires_at));
        let not_before = match (before, known) {
            (Some(member), _) => member.not_before,
            // This node saw the number change, so it knows when the heartbeat was sent.
            (None, Some(_)) => Moment::default(),
            // It may only seem expired, because of a clock step. Count its ttl on this node's clock, which may be fast.
            (None, None) => self.started_at.after(ttl * 21 / 20),
        };
        let left_ms = watched.expires_ms.saturating_sub(self.hive_ms);
        let member = ObservedMember {
            beat: watched.beat,
            ttl,
            heartbeat: Duration::from_millis(watched.heartbeat_ms),
            expires_ms: watched.expires_ms,
            dead: watched.dead,
            since,
            until: sent_at,
            // Keep the first value: otherwise an expired row would expire again with every reply.
            expires_at: now.after(Duration::from_millis(left_ms)).min(expires_at),
            not_before,
        };
        self.observed.insert(watched.id, member);
    }

    /// The removal of the member, if the replies so far show that it has expired.
    pub fn removal(&self, node: NodeId) -> Option<Removal> {
        // Only if the last reply lists it: a member that is no longer listed was removed, or is alive.
        let member = self.observed.get(&node).filter(|member| Some(member.until) == self.last)?;
        let removal = |silent, cause: &str| Removal { node, beat: member.beat, silent, cause: Name::from(cause) };
        if member.dead {
            return Some(removal(false, "its lock is free"));
        }
        if member.until.since(member.since) >= member.ttl * 2 {
            return Some(removal(true, "silent"));
        }
        let watched = member.until >= member.watched_at(self.disturbed_at);
        (watched && member.expires_ms <= self.hive_ms).then(|| removal(false, "expired"))
    }

    /// When a heartbeat reply could show that the member has expired, if the member sends no heartbeat until then.
    pub fn decidable_at(&self, node: NodeId, now: Moment) -> Option<Moment> {
        let member = self.observed.get(&node)?;
        if member.dead {
            return Some(now);
        }
        let watched_at = member.watched_at(self.disturbed_at);
        let silent_at = member.since.after(member.ttl * 2);
        // The store counts whole milliseconds.
        let expired_at = member.expires_at.after(Duration::from_millis(2));
        Some(watched_at.max(expired_at).min(silent_at.max(watched_at)))
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.observed.keys().copied()
    }

    pub fn forget(&mut self, node: NodeId) {
        self.observed.remove(&node);
    }

    /// Forgets the observed members: a fresh identity has watched none.
    pub fn reset(&mut self) {
        let (disturbed_at, started_at) = (self.disturbed_at, self.started_at);
        *self = FailureDetector {
            disturbed_at,
            started_at,
            clock: std::mem::take(&mut self.clock),
            ..FailureDetector::default()
        };
    }
}

/// Compares the store's clock with this node's. The time between request and reply is uncertain: it may be latency.
#[derive(Clone, Debug, Default)]
struct HiveClock {
    /// The lowest and highest difference that the last reply allows, in microseconds, and when that reply came.
    last: Option<(i64, i64, Moment)>,
}

impl HiveClock {
    fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Returns a step of more than a second: its smallest possible size in milliseconds.
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
