//! The queen's work with each of her heartbeats, and the removal of expired members by any node.
//!
//! | node                 | when                                             | what                                        |
//! |----------------------|--------------------------------------------------|---------------------------------------------|
//! | the queen            | her heartbeat was answered                       | Count, with the removals that are due       |
//! | the queen            | every minute                                     | Sweep                                       |
//! | the queen            | a sweep has deleted as many rows as allowed      | another sweep, 100 ms later                 |
//! | any                  | a member should have expired, and it is this node's turn | an early heartbeat, to learn whether it has |
//! | any but the queen    | the heartbeat reply confirms it                  | Remove                                      |
//! | any                  | the member could not be removed                  | a heartbeat soon: another node was faster   |
//! | any                  | no recent count is published                     | Tally, once per heartbeat                   |
//! | on one machine       | twice a second, while another holds a wanted lease | Remove, decided by kernel locks           |
//!
//! The count is fenced: a queen that was paused and replaced writes nothing. [`super::candidacy`] decides which node is
//! first to remove a member.

use std::time::Duration;

use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::{CallKind, PendingCall},
    lease::{Lease, Row, State},
    millis,
};
use crate::{
    codes,
    contract::{NodeId, QUEEN, Removal, Reply, Request, Status},
    term::Term,
};

const SWEEP_EVERY: Duration = Duration::from_secs(60);
const EVENTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const EVENTS_MAX: u64 = 10_000;
const BUCKETS_IDLE: Duration = Duration::from_secs(600);
const SWEPT_MAX: u32 = 1_000;
/// The pause before the next sweep, so that other writers get their turn.
const SWEEP_AGAIN: Duration = Duration::from_millis(100);
const PROBE_EVERY: Duration = Duration::from_millis(500);

impl Member {
    fn queen_term(&self) -> Option<&Term> {
        self.leases.get(QUEEN).and_then(Lease::term)
    }

    pub(super) fn learn_queen(&mut self, sent: &PendingCall, status: &Status, effects: &mut Vec<Effect>) {
        let Some(queen) = &status.queen else {
            self.current_queen = None;
            return;
        };
        self.current_queen = queen.holder.filter(|_| queen.node.is_some());
        let row = Row {
            epoch: queen.epoch,
            holder: queen.holder,
            successor: queen.successor,
            successor_is_warm: false,
            free: queen.node.is_none(),
        };
        self.read_row(&QUEEN.into(), row, false, sent, effects);
    }

    /// The members that have expired, and for which it is this node's turn to request the removal.
    fn due_removals(&mut self) -> Vec<Removal> {
        let nodes: Vec<NodeId> = self.failure_detector.nodes().collect();
        let mut due = Vec::new();
        for node in nodes {
            let (Some(removal), Some(decidable_at)) = (self.failure_detector.removal(node), self.decidable_at(node))
            else {
                continue;
            };
            if decidable_at.after(self.removal_delay(node)) <= self.now {
                due.push(removal);
            }
        }
        due
    }

    fn decidable_at(&self, node: NodeId) -> Option<Moment> {
        self.failure_detector.decidable_at(node, self.now)
    }

    /// Plans an early heartbeat when a member is overdue: its reply shows whether the member has expired.
    pub(super) fn plan_early_heartbeat(&mut self) {
        self.early_heartbeat_at = Moment::FAR;
        if self.calls.has_heartbeat_in_flight() || !self.trust.holds(self.now) {
            return;
        }
        let nodes: Vec<NodeId> = self.failure_detector.nodes().collect();
        for node in nodes {
            let Some(mut at) = self.decidable_at(node) else { continue };
            if at <= self.now {
                at = at.after(self.removal_delay(node));
            }
            if at > self.now {
                self.early_heartbeat_at = self.early_heartbeat_at.min(at);
            } else if self.trust.sent_at < at {
                self.trust.heartbeat_by(self.now);
            }
        }
    }

    pub(super) fn remove_expired(&mut self, effects: &mut Vec<Effect>) {
        if self.is_removing() {
            return;
        }
        if self.has_fresh_reply && self.queen_term().is_none() {
            let due = self.due_removals();
            if !due.is_empty() {
                self.has_fresh_reply = false;
                return self.call(CallKind::Remove(nodes_of(&due)), Request::Remove { nodes: due }, effects);
            }
        }
        if self.now >= self.probe_wake_at() {
            self.probe_at = self.now.after(PROBE_EVERY);
            let cause = "its lock is free";
            let probe = |node| Removal { node, beat: u64::MAX, silent: false, cause: cause.into() };
            let nodes: Vec<Removal> = self.holders_to_probe().into_iter().map(probe).collect();
            self.call(CallKind::Remove(Vec::new()), Request::Remove { nodes }, effects);
        }
    }

    /// The holders of leases that this node wants, whose kernel locks it probes on one machine.
    fn holders_to_probe(&self) -> Vec<NodeId> {
        let wanted = self.leases.values().filter(|lease| lease.wanted && lease.state == State::NotHeld);
        let held = wanted.filter_map(|lease| lease.row.as_ref()).filter(|row| !row.free);
        let mut holders: Vec<NodeId> = held.filter_map(|row| row.holder).filter(|id| Some(*id) != self.node).collect();
        holders.sort();
        holders.dedup();
        holders.truncate(crate::contract::SOONEST_MAX);
        holders
    }

    fn is_removing(&self) -> bool {
        self.calls.is_in_flight(|kind| matches!(kind, CallKind::Remove(_) | CallKind::Count(_)))
    }

    /// When to probe the kernel locks of these holders next; not while a removal is in flight.
    pub(super) fn probe_wake_at(&self) -> Moment {
        let watches = self.config.one_machine && self.is_eligible() && !self.holders_to_probe().is_empty();
        if watches && !self.is_removing() { self.probe_at } else { Moment::FAR }
    }

    pub(super) fn on_removal_reply(
        &mut self,
        requested: &[NodeId],
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        if let Ok(Reply::Removed(removed)) = result {
            self.note_removals(requested, &removed, effects);
        }
    }

    fn note_removals(&mut self, requested: &[NodeId], removed: &[NodeId], effects: &mut Vec<Effect>) {
        if requested.iter().any(|node| !removed.contains(node)) {
            // Another node was faster, and this node may take the freed leases. Wait a little: that removal may not be
            // visible yet.
            let random = self.random();
            self.trust.heartbeat_by(self.now.after(self.config.look_again_wait(random)));
        }
        for node in removed {
            let message = format!("removed dead node {node}");
            effects.push(Effect::Notice { code: codes::notice::BURIED, message });
            self.failure_detector.forget(*node);
            self.removed.insert(*node);
            self.free_leases_of(*node);
            self.take_queen_lease_at_once(*node);
        }
        if !removed.is_empty() {
            // The removal has changed the view: read it soon.
            self.trust.heartbeat_by(self.now);
        }
    }

    pub(super) fn count_if_due(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.mend_due) {
            self.call(CallKind::Mend, Request::Mend, effects);
        }
        let fence = self.queen_term().and_then(|term| term.fence_at(self.now));
        if self.is_removing() {
            return;
        }
        match fence {
            Some(fence) if std::mem::take(&mut self.count_due) => {
                self.tally_due = false;
                let remove = self.due_removals();
                let every_ms = millis(self.config.count_every);
                self.call(CallKind::Count(nodes_of(&remove)), Request::Count { fence, every_ms, remove }, effects);
            }
            None if std::mem::take(&mut self.tally_due) => self.call(CallKind::Tally, Request::Tally, effects),
            _ => {}
        }
    }

    pub(super) fn sweep_if_due(&mut self, effects: &mut Vec<Effect>) {
        if self.now < self.sweep_wake_at() {
            return;
        }
        let Some(fence) = self.queen_term().and_then(|term| term.fence_at(self.now)) else { return };
        self.sweep_at = self.now.after(SWEEP_EVERY);
        let sweep = Request::Sweep {
            fence,
            event_ms: millis(EVENTS_KEPT),
            events_max: EVENTS_MAX,
            idle_ms: millis(BUCKETS_IDLE),
            rows_max: SWEPT_MAX,
        };
        self.call(CallKind::Sweep, sweep, effects);
    }

    /// When the next sweep is due; [`Moment::FAR`] for a node that is not queen, or while a sweep is in flight.
    pub(super) fn sweep_wake_at(&self) -> Moment {
        let reigns = self.queen_term().is_some_and(|term| term.until() > self.now);
        let can = reigns && !self.calls.is_in_flight(|kind| *kind == CallKind::Sweep);
        if can { self.sweep_at } else { Moment::FAR }
    }

    /// Plans another sweep soon if this one deleted as many rows as allowed: there may be more.
    pub(super) fn on_sweep_reply(&mut self, result: &Result<Reply, Failure>) {
        if let Ok(Reply::Swept { events, buckets }) = result
            && (*events).max(*buckets) >= u64::from(SWEPT_MAX)
        {
            self.sweep_at = self.now.after(SWEEP_AGAIN);
        }
    }

    pub(super) fn on_count_reply(
        &mut self,
        requested: &[NodeId],
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        match result {
            Ok(Reply::Counted { counts, removed, .. }) => {
                self.count.on_own_count(&counts, self.now);
                self.note_removals(requested, &removed, effects);
            }
            Ok(Reply::Stale(_)) => {
                let epoch = self.queen_term().map(Term::epoch).unwrap_or_default();
                self.on_stale_fence(&QUEEN.into(), epoch, effects);
            }
            _ => {}
        }
    }

    pub(super) fn on_tally_reply(&mut self, result: &Result<Reply, Failure>) {
        if let Ok(Reply::Counted { counts, .. }) = result {
            self.count.on_own_count(counts, self.now);
        }
    }
}

fn nodes_of(removals: &[Removal]) -> Vec<NodeId> {
    removals.iter().map(|removal| removal.node).collect()
}
