//! Transfers a lease to another node, its successor. The lease always has a holder.
//!
//! | state       | input                                           | next         | effect                                     |
//! |-------------|-------------------------------------------------|--------------|--------------------------------------------|
//! | idle        | another node should hold it, or a hand-over was requested | announcing | call SetSuccessor                  |
//! | announcing  | Done                                            | warming      |                                            |
//! | announcing  | refused, unanswered                             | idle         | call SetSuccessor (none); wait before the next try |
//! | warming     | the successor's row says that it is warm        | ending       | Leave; the queen has no work to end        |
//! | warming     | 5 s have passed                                 | idle         | call SetSuccessor (none); wait before the next try |
//! | idle        | requested, but no node can take it for four heartbeats | idle  | Notice; the request is dropped             |
//! | idle, warming | draining, and no warm successor is known      | ending       | Leave; then the lease is released          |
//! | ending      | Left                                            | transferring | the term dies, call HandOver               |
//! | ending      | the work did not end in time                    | transferring | Lost, call HandOver                        |
//!
//! A node transfers one lease at a time, at most five a second, each at most once per version of the view; its other
//! leases keep working. A draining node does not wait between two transfers. The successor reads the lease row every
//! 20 ms from when it is named; once the row names it as holder, it mints a new epoch.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::CallKind,
    lease::{Kind, Lease, Row, State},
};
use crate::{
    codes,
    contract::{Claim, HeldLease, NodeId, Reply, Request},
};

pub(super) const WARM_WITHIN: Duration = Duration::from_secs(5);
const TRANSFER_EVERY: Duration = Duration::from_millis(200);
const LOOK_AS_SUCCESSOR: Duration = Duration::from_millis(20);
/// After this time, a successor reads the row only as often as it sends heartbeats.
const SUCCESSOR_PATIENCE: Duration = Duration::from_secs(15);
/// How many leases may have a successor at once, so that the successors warm up in parallel.
const ANNOUNCED_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transfer {
    Idle,
    Announcing {
        successor: NodeId,
    },
    Warming {
        successor: NodeId,
        since: Moment,
    },
    /// The work under the lease is ending. Without a successor the lease is released afterwards.
    Ending {
        successor: Option<NodeId>,
        until: Moment,
    },
}

/// A request to hand the lease over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TransferRequest {
    /// The requested successor; `None` = the next node in order.
    to: Option<NodeId>,
    /// The request is dropped if no successor is known by then: it must not take effect hours later.
    until: Moment,
}

impl Member {
    pub(super) fn request_transfer(&mut self, name: &Name, to: Option<NodeId>) {
        let until = self.now.after(self.config.heartbeat * 4);
        if let Some(lease) = self.leases.get_mut(name) {
            lease.transfer_request = Some(TransferRequest { to, until });
        }
    }

    fn drop_old_requests(&mut self, effects: &mut Vec<Effect>) {
        for (name, lease) in self.leases.iter_mut().filter(|(_, lease)| lease.transfer == Transfer::Idle) {
            if lease.transfer_request.is_some_and(|request| request.until <= self.now) {
                lease.transfer_request = None;
                let message = format!("cannot hand over {name}: no other node can take it");
                effects.push(Effect::Notice { code: codes::notice::NOT_HANDED_OVER, message });
            }
        }
    }

    /// The node that should hold the lease instead of this one.
    fn wanted_successor(&self, lease: &Lease) -> Option<NodeId> {
        if self.now < lease.transfer_again_at {
            return None;
        }
        let others = |node: &NodeId| Some(*node) != self.node && !self.removed.contains(node);
        if let Some(request) = lease.transfer_request {
            return request.to.or(lease.next_candidate).filter(others);
        }
        if !self.is_eligible() {
            let owner = if matches!(lease.kind, Kind::Shard(_)) { lease.owner } else { lease.next_candidate };
            return owner.filter(others);
        }
        if !self.known_view.is_current() || self.known_view.version() <= lease.moved_at_version {
            return None;
        }
        match lease.kind {
            Kind::Queen => None,
            // Only to a candidate for this duty: candidates report the duty as warm.
            Kind::Duty => lease.owner.filter(others).filter(|owner| self.is_warm(*owner, lease)),
            Kind::Shard(_) => lease.owner.filter(others),
        }
    }

    fn is_warm(&self, node: NodeId, of: &Lease) -> bool {
        let name = self.leases.iter().find(|(_, lease)| std::ptr::eq(*lease, of)).map(|(name, _)| name);
        let row = self.known_view.node(node).filter(|row| row.eligible);
        row.zip(name).is_some_and(|(row, name)| row.warm.contains(name))
    }

    pub(super) fn advance_transfers(&mut self, effects: &mut Vec<Effect>) {
        self.transfer_overdue(effects);
        self.drop_old_requests(effects);
        let hurry = !self.is_eligible();
        let count = |what: fn(&Transfer) -> bool| self.leases.values().filter(|lease| what(&lease.transfer)).count();
        let mut announced = count(|transfer| *transfer != Transfer::Idle);
        let mut ending = count(|transfer| matches!(transfer, Transfer::Ending { .. }))
            + self.leases.values().filter(|lease| matches!(lease.state, State::Transferring(_))).count();
        let names: Vec<Name> = self.leases.keys().cloned().collect();
        for name in names {
            let Some(lease) = self.leases.get(&name) else { continue };
            let State::Held(term) = &lease.state else { continue };
            match lease.transfer {
                Transfer::Idle if announced < ANNOUNCED_MAX || hurry => {
                    let successor = self.wanted_successor(lease);
                    if hurry && successor.is_none() && self.can_be_released(lease) {
                        self.end_work(&name, None, effects);
                        continue;
                    }
                    let (Some(successor), Some(fence)) = (successor, term.fence_at(self.now)) else { continue };
                    announced += 1;
                    self.set_transfer(&name, Transfer::Announcing { successor });
                    let request = Request::SetSuccessor { fence, successor: Some(successor) };
                    self.call(CallKind::SetSuccessor(name, Some(successor)), request, effects);
                }
                Transfer::Warming { successor, since } => {
                    let warm =
                        lease.row.as_ref().is_some_and(|row| row.successor == Some(successor) && row.successor_is_warm);
                    let turn = (ending == 0 && self.now >= self.transfer_at) || hurry;
                    if warm && turn {
                        ending += 1;
                        self.end_work(&name, Some(successor), effects);
                    } else if !warm && self.now >= since.after(WARM_WITHIN) {
                        let kind = lease.kind;
                        self.cancel_transfer(&name, effects);
                        if hurry && kind == Kind::Duty {
                            self.end_work(&name, None, effects);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn set_transfer(&mut self, name: &Name, transfer: Transfer) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.transfer = transfer;
        }
    }

    /// Stops the transfer and clears the successor in the row: otherwise it would read the row for ever.
    fn cancel_transfer(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let again_at = self.now.after(self.config.heartbeat * 3);
        let Some(lease) = self.leases.get_mut(name) else { return };
        (lease.transfer, lease.transfer_request, lease.transfer_again_at) = (Transfer::Idle, None, again_at);
        if let Some(fence) = lease.term().and_then(|term| term.fence_at(self.now)) {
            self.call(
                CallKind::SetSuccessor(name.clone(), None),
                Request::SetSuccessor { fence, successor: None },
                effects,
            );
        }
    }

    pub(super) fn on_set_successor_reply(
        &mut self,
        name: &Name,
        successor: Option<NodeId>,
        result: &Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(successor) = successor else { return };
        let Some(lease) =
            self.leases.get_mut(name).filter(|lease| lease.transfer == Transfer::Announcing { successor })
        else {
            return;
        };
        match result {
            Ok(Reply::Done) => {
                lease.transfer = Transfer::Warming { successor, since: self.now };
                lease.look_at = self.now;
            }
            Ok(Reply::Stale(_)) => {
                let epoch = lease.term().map(crate::Term::epoch).unwrap_or_default();
                self.on_stale_fence(name, epoch, effects);
            }
            _ => self.cancel_transfer(name, effects),
        }
    }

    /// Whether a duty can be released because other eligible nodes exist: a candidate takes it once it is free.
    fn can_be_released(&self, lease: &Lease) -> bool {
        let others = |id: NodeId| Some(id) != self.node && !self.removed.contains(&id);
        lease.kind == Kind::Duty && self.known_view.nodes().iter().any(|node| node.eligible && others(node.id))
    }

    fn end_work(&mut self, name: &Name, successor: Option<NodeId>, effects: &mut Vec<Effect>) {
        let until = self.now.after(self.config.leave_within);
        self.transfer_at = self.now.after(TRANSFER_EVERY);
        self.set_transfer(name, Transfer::Ending { successor, until });
        let Some(lease) = self.leases.get(name) else { return };
        let Some(epoch) = lease.term().map(crate::Term::epoch) else { return };
        // The queen's work is part of this state machine, so it ends at once.
        if lease.kind == Kind::Queen {
            return self.hand_over(name, effects);
        }
        effects.push(Effect::Leave { held: HeldLease { lease: name.clone(), epoch }, until });
    }

    fn transfer_overdue(&mut self, effects: &mut Vec<Effect>) {
        let late = |lease: &Lease| matches!(lease.transfer, Transfer::Ending { until, .. } if until <= self.now);
        let late: Vec<Name> = self.leases.iter().filter(|(_, l)| late(l)).map(|(name, _)| name.clone()).collect();
        for name in late {
            effects.push(Effect::Lost { lease: name.clone(), cause: "the work under it did not end in time" });
            self.hand_over(&name, effects);
        }
    }

    /// The work under this epoch has ended. A late message about an earlier epoch is ignored.
    pub(super) fn on_left(&mut self, HeldLease { lease, epoch }: &HeldLease, effects: &mut Vec<Effect>) {
        let term = self.leases.get(lease).and_then(Lease::term);
        if term.is_some_and(|term| term.epoch() == *epoch) {
            self.hand_over(lease, effects);
        }
    }

    fn hand_over(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let (Some(node), mint) = (self.node, self.lineage.mint(self.now)) else { return };
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Held(term) = &lease.state else { return };
        term.end();
        let epoch = term.epoch();
        if let Transfer::Ending { successor: None, .. } = lease.transfer {
            (lease.transfer, lease.state) = (Transfer::Idle, State::Releasing);
            return self.release(vec![HeldLease { lease: name.clone(), epoch }], "draining", effects);
        }
        let (Transfer::Ending { successor: Some(successor), .. }, Some(mint)) = (lease.transfer, mint) else {
            // The work ended although the transfer was cancelled. A new epoch lets the work start again.
            (lease.transfer, lease.state) = (Transfer::Idle, State::Dead(epoch));
            return;
        };
        lease.transfer = Transfer::Idle;
        lease.state = State::Transferring(epoch);
        let claims = vec![Claim::new(name.clone(), epoch)];
        let cause = if self.draining.is_some() { "draining" } else { "moved" };
        let request = Request::HandOver { node, successor, claims, cause: cause.into(), mint };
        self.call(CallKind::Transfer(name.clone(), successor), request, effects);
    }

    pub(super) fn on_transfer_reply(&mut self, name: &Name, successor: NodeId, result: Result<Reply, Failure>) {
        let unanswered = result.is_err();
        let won = self.won_leases(result);
        let version = self.known_view.version();
        let now = self.now;
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Transferring(epoch) = lease.state else { return };
        lease.moved_at_version = version;
        lease.transfer_request = None;
        match won.first() {
            Some(held) => {
                let row = Row {
                    epoch: held.epoch,
                    holder: Some(successor),
                    successor: None,
                    successor_is_warm: false,
                    free: false,
                };
                lease.set_row(row, now);
                lease.state = State::NotHeld;
            }
            None if unanswered => (lease.state, lease.look_at) = (State::Unknown, now),
            None => lease.state = State::Dead(epoch),
        }
        self.placement_due = true;
    }

    /// The leases that this node reports as warm: those that name it as successor, and its duties.
    pub(super) fn warm_leases(&self) -> Vec<Name> {
        if !self.is_eligible() {
            return Vec::new();
        }
        let wants = |name: &&Name| self.leases.get(*name).is_some_and(|lease| lease.is_wanted(self.now));
        let duties = self.leases.iter().filter(|(_, lease)| lease.kind == Kind::Duty && lease.is_wanted(self.now));
        let mut warm: Vec<Name> =
            duties.map(|(name, _)| name).chain(self.successor_of.keys().filter(wants)).cloned().collect();
        warm.sort();
        warm.dedup();
        warm
    }

    pub(super) fn learn_successions(&mut self, successor_of: &[Name]) {
        self.successor_of.retain(|name, _| successor_of.contains(name));
        for name in successor_of {
            if !self.successor_of.contains_key(name) {
                self.successor_of.insert(name.clone(), self.now);
                self.look_as_successor_at = self.now;
                // Report it at once: the holder waits for it.
                self.trust.heartbeat_by(self.now);
            }
        }
    }

    pub(super) fn look_as_successor(&mut self) {
        if self.successor_of.is_empty() || self.now < self.look_as_successor_at {
            return;
        }
        let mut wait = self.config.heartbeat;
        for (name, since) in &self.successor_of {
            if let Some(lease) = self.leases.get_mut(name).filter(|lease| lease.state == State::NotHeld) {
                lease.look_at = lease.look_at.min(self.now);
                if self.now < since.after(SUCCESSOR_PATIENCE) {
                    wait = LOOK_AS_SUCCESSOR;
                }
            }
        }
        self.look_as_successor_at = self.now.after(wait);
    }

    /// When the transfer of a held lease continues by itself.
    pub(super) fn transfer_wake_at(&self, lease: &Lease) -> Moment {
        match lease.transfer {
            Transfer::Ending { until, .. } => until,
            Transfer::Warming { since, .. } => {
                let warm = lease.row.as_ref().is_some_and(|row| row.successor_is_warm);
                // A warm successor waits until the current transfer of another lease is over.
                let turn_at = if self.transfer_at > self.now { self.transfer_at } else { Moment::FAR };
                if warm { turn_at } else { since.after(WARM_WITHIN) }
            }
            Transfer::Idle if lease.transfer_again_at > self.now => lease.transfer_again_at,
            Transfer::Idle | Transfer::Announcing { .. } => Moment::FAR,
        }
    }

    /// Makes the holder read the row eight times per heartbeat while a successor warms up.
    pub(super) fn look_for_warm_successors(&mut self) {
        for lease in self.leases.values_mut() {
            if let (Transfer::Warming { .. }, Moment::FAR, false) = (lease.transfer, lease.look_at, lease.looking) {
                lease.look_at = self.now.after(self.config.heartbeat / 8);
            }
        }
    }
}
