//! Draining and leaving.
//!
//! | phase   | input                        | next    | effect                                                    |
//! |---------|------------------------------|---------|-----------------------------------------------------------|
//! | in      | drain                        | in      | not eligible any more; held leases are transferred        |
//! | in      | leave                        | in      | the same; it stays a member until the transfers are done  |
//! | in      | no transfer is left, or no successor got warm in time | leaving | terms die; HandOver to warm successors, Release of the other leases |
//! | in      | leave, and the store does not answer | leaving | terms die; no hand-over and no release is tried   |
//! | leaving | all of these are answered, or timed out | leaving | call Leave: with the row gone, all its leases are free |
//! | leaving | Leave failed, and there is time | leaving | call Leave again after a short delay                   |
//! | leaving | Leave answered, or the time is over | gone | Left                                                  |
//! | out, joining | leave                   | gone    | Left                                                      |
//!
//! A successor learns its role from its next heartbeat reply, and only then reads the row often enough to follow
//! without a gap. A node without a possible successor does not wait. Without the store each step ends by its deadline;
//! other members remove the row once it expires.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use super::{
    Effect, Member,
    calls::CallKind,
    lease::{Lease, State},
    transfer::{Transfer, WARM_WITHIN},
    trust::Phase,
};
use crate::contract::{Claim, HeldLease, Request};

/// Since when this node takes no new leases, and whether it should leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    since: Moment,
    to_leave: bool,
    /// When to call Leave, and until when to retry it.
    ask_at: Moment,
    ask_until: Moment,
}

impl Member {
    pub(super) fn drain(&mut self) {
        if self.draining.is_none() {
            let now = self.now;
            self.draining = Some(Draining { since: now, to_leave: false, ask_at: now, ask_until: Moment::FAR });
            self.placement_due = true;
            self.trust.heartbeat_by(self.now);
        }
    }

    pub(super) fn leave(&mut self, effects: &mut Vec<Effect>) {
        match self.trust.phase {
            Phase::Leaving | Phase::Gone => {}
            Phase::Out | Phase::Joining => self.finish_leaving(effects),
            Phase::In => {
                self.drain();
                if let Some(draining) = &mut self.draining {
                    draining.to_leave = true;
                }
            }
        }
    }

    pub(super) fn should_leave(&self) -> bool {
        self.draining.is_some_and(|draining| draining.to_leave)
    }

    /// When the node leaves even if a successor is not warm yet.
    pub(super) fn leave_wake_at(&self) -> Moment {
        self.successor_deadline().filter(|at| *at > self.now).unwrap_or(Moment::FAR)
    }

    fn successor_deadline(&self) -> Option<Moment> {
        // A successor needs one heartbeat to learn its role and one to confirm it, and on a busy machine both come
        // late. Leaving earlier would leave the lease without a holder.
        let leaving = self.draining.filter(|draining| draining.to_leave)?;
        Some(leaving.since.after(WARM_WITHIN.min(self.config.time_to_live)))
    }

    pub(super) fn leave_when_transferred(&mut self, effects: &mut Vec<Effect>) {
        let Some(deadline) = self.successor_deadline().filter(|_| self.trust.phase == Phase::In) else { return };
        let patient = self.now < deadline;
        let is_in_transfer = |lease: &Lease| match (&lease.state, lease.transfer) {
            (State::Transferring(_), _) | (State::Held(_), Transfer::Announcing { .. } | Transfer::Ending { .. }) => {
                true
            }
            (State::Held(_), Transfer::Warming { .. }) => patient,
            _ => false,
        };
        if !self.trust.holds(self.now) || !self.leases.values().any(is_in_transfer) {
            self.end_all_terms_and_leave(effects);
        }
    }

    /// Leaves although the store does not answer: the terms end, and only the deletion of the row is requested. If that
    /// fails too, other members remove the row.
    pub(super) fn leave_without_store(&mut self, effects: &mut Vec<Effect>) {
        self.end_terms("this node leaves, and the store does not answer", effects);
        self.begin_to_leave();
    }

    fn begin_to_leave(&mut self) {
        self.trust.phase = Phase::Leaving;
        if let Some(draining) = &mut self.draining {
            draining.ask_until = self.now.after(self.config.deadline() * 2);
        }
    }

    fn end_all_terms_and_leave(&mut self, effects: &mut Vec<Effect>) {
        self.begin_to_leave();
        let mut transfers: BTreeMap<Name, (crate::NodeId, Claim)> = BTreeMap::new();
        let mut released = Vec::new();
        for (name, lease) in &mut self.leases {
            if let Some(term) = lease.term() {
                term.end();
            }
            let epoch = match &lease.state {
                State::Held(term) => term.epoch(),
                State::Dead(epoch) => *epoch,
                _ => continue,
            };
            let warm = |successor: &crate::NodeId| {
                lease.row.as_ref().is_some_and(|row| row.successor == Some(*successor) && row.successor_is_warm)
            };
            match lease.transfer {
                Transfer::Warming { successor, .. } | Transfer::Ending { successor: Some(successor), .. }
                    if warm(&successor) =>
                {
                    transfers.insert(name.clone(), (successor, Claim::new(name.clone(), epoch)));
                    lease.state = State::Transferring(epoch);
                }
                _ => {
                    released.push(HeldLease { lease: name.clone(), epoch });
                    lease.state = State::Releasing;
                }
            }
            lease.transfer = Transfer::Idle;
        }
        let mint = self.lineage.mint(self.now);
        for (name, (successor, claim)) in transfers {
            let (Some(node), Some(mint)) = (self.node, mint.clone()) else { continue };
            let request = Request::HandOver { node, successor, claims: vec![claim], cause: "leaving".into(), mint };
            self.call(CallKind::Transfer(name, successor), request, effects);
        }
        self.release(released, "leaving", effects);
        self.leave_when_settled(effects);
    }

    pub(super) fn leave_when_settled(&mut self, effects: &mut Vec<Effect>) {
        let busy = |kind: &CallKind| matches!(kind, CallKind::Transfer(..) | CallKind::Release(_) | CallKind::Leave);
        let due = self.leave_call_at() <= self.now && !self.calls.is_in_flight(busy);
        if let Some(node) = self.node.filter(|_| due) {
            self.call(CallKind::Leave, Request::Leave { node }, effects);
        }
    }

    pub(super) fn leave_call_at(&self) -> Moment {
        self.draining.map_or(self.now, |draining| draining.ask_at)
    }

    /// Retries a failed Leave: while the row exists, all members have to wait until it expires.
    pub(super) fn on_leave_reply(&mut self, answered: bool, effects: &mut Vec<Effect>) {
        let again_at = self.now.after(self.retry_wait());
        match &mut self.draining {
            Some(draining) if !answered && again_at < draining.ask_until => draining.ask_at = again_at,
            _ => self.finish_leaving(effects),
        }
    }

    pub(super) fn remaining_leave_time(&self) -> Duration {
        self.draining.map_or(Duration::MAX, |draining| draining.ask_until.since(self.now))
    }

    pub(super) fn finish_leaving(&mut self, effects: &mut Vec<Effect>) {
        self.trust.phase = Phase::Gone;
        effects.push(Effect::Left);
    }
}
