//! Handing a lease over to another node, without a moment in which nobody has it.
//!
//! | state      | input                                       | next       | effect                                  |
//! |------------|---------------------------------------------|------------|-----------------------------------------|
//! | no         | another should have it, or it was asked for | announcing | call SetHeir                            |
//! | announcing | Done                                        | warming    |                                         |
//! | announcing | refused, unanswered                         | no         | call SetHeir (nobody); not again for a while |
//! | warming    | the heir's row says that it is warm         | ending     | Leave; the queen has nothing to leave   |
//! | warming    | 5 s have passed                             | no         | call SetHeir (nobody); not again for a while |
//! | no         | asked for, and nobody can have it for long  | no         | Notice; it is not asked for any more    |
//! | no, warming | draining, and nobody is known to want it   | ending     | Leave; it is released then              |
//! | ending     | left                                        | giving     | the term dies, call HandOver            |
//! | ending     | it took too long                            | giving     | Lost, call HandOver                     |
//!
//! One lease at a time per node, at most five a second, each at most once per version of the view; all others keep
//! working meanwhile. A draining node does not wait for its turn. The heir looks every 20 ms from when it is named; once
//! the row says that the lease is its own it mints anew.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::Asked,
    lease::{Kind, Lease, Row, State},
};
use crate::contract::{Claim, Held, NodeId, Reply, Request};

pub(super) const WARM_WITHIN: Duration = Duration::from_secs(5);
const GIVE_EVERY: Duration = Duration::from_millis(200);
const LOOK_AS_HEIR: Duration = Duration::from_millis(20);
/// Named for longer, an heir looks no more often than it beats.
const HEIR_PATIENCE: Duration = Duration::from_secs(15);
/// Heirs named ahead of their turn, so that their warming up is not waited for one by one.
const ANNOUNCED_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Give {
    No,
    Announcing {
        heir: NodeId,
    },
    Warming {
        heir: NodeId,
        since: Moment,
    },
    /// Without an heir it is released.
    Ending {
        heir: Option<NodeId>,
        until: Moment,
    },
}

/// Somebody has asked for a hand-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    /// To a certain node.
    to: Option<NodeId>,
    /// So long it may take to learn of somebody who could have it: nobody remembers the wish hours later.
    until: Moment,
}

impl Member {
    pub(super) fn asked_to_give(&mut self, name: &Name, to: Option<NodeId>) {
        let until = self.now.after(self.config.heartbeat * 4);
        if let Some(lease) = self.leases.get_mut(name) {
            lease.asked = Some(Wish { to, until });
        }
    }

    fn forget_wishes(&mut self, effects: &mut Vec<Effect>) {
        for (name, lease) in self.leases.iter_mut().filter(|(_, lease)| lease.give == Give::No) {
            if lease.asked.is_some_and(|wish| wish.until <= self.now) {
                lease.asked = None;
                let message = format!("{name} was to be handed over, and there was nobody to have it");
                effects.push(Effect::Notice { code: "not-handed-over", message });
            }
        }
    }

    /// Who should have it instead of us.
    fn heir(&self, lease: &Lease) -> Option<NodeId> {
        if self.now < lease.give_again_at {
            return None;
        }
        let others = |node: &NodeId| Some(*node) != self.node && !self.gone.contains(node);
        if let Some(wish) = lease.asked {
            return wish.to.or(lease.next).filter(others);
        }
        if !self.is_eligible() {
            let owner = if matches!(lease.kind, Kind::Shard(_)) { lease.owner } else { lease.next };
            return owner.filter(others);
        }
        if !self.known.is_current() || self.known.version() <= lease.moved {
            return None;
        }
        match lease.kind {
            Kind::Queen => None,
            // Only to one that wants it; whoever does says so by being warm.
            Kind::Duty => lease.owner.filter(others).filter(|owner| self.is_warm(*owner, lease)),
            Kind::Shard(_) => lease.owner.filter(others),
        }
    }

    fn is_warm(&self, node: NodeId, of: &Lease) -> bool {
        let name = self.leases.iter().find(|(_, lease)| std::ptr::eq(*lease, of)).map(|(name, _)| name);
        let row = self.known.node(node).filter(|row| row.eligible);
        row.zip(name).is_some_and(|(row, name)| row.warm.contains(name))
    }

    pub(super) fn see_to_hand_overs(&mut self, effects: &mut Vec<Effect>) {
        self.end_what_took_too_long(effects);
        self.forget_wishes(effects);
        let hurry = !self.is_eligible();
        let count = |what: fn(&Give) -> bool| self.leases.values().filter(|lease| what(&lease.give)).count();
        let mut announced = count(|give| *give != Give::No);
        let mut ending = count(|give| matches!(give, Give::Ending { .. }))
            + self.leases.values().filter(|lease| matches!(lease.state, State::Giving(_))).count();
        let names: Vec<Name> = self.leases.keys().cloned().collect();
        for name in names {
            let Some(lease) = self.leases.get(&name) else { continue };
            let State::Held(term) = &lease.state else { continue };
            match lease.give {
                Give::No if announced < ANNOUNCED_MAX || hurry => {
                    let heir = self.heir(lease);
                    if hurry && heir.is_none() && self.is_wanted_elsewhere(lease) {
                        self.end(&name, None, effects);
                        continue;
                    }
                    let (Some(heir), Some(fence)) = (heir, term.fence_at(self.now)) else { continue };
                    announced += 1;
                    self.set_give(&name, Give::Announcing { heir });
                    let request = Request::SetHeir { fence, heir: Some(heir) };
                    self.call(Asked::Heir(name, Some(heir)), request, effects);
                }
                Give::Warming { heir, since } => {
                    let warm = lease.row.as_ref().is_some_and(|row| row.heir == Some(heir) && row.heir_is_warm);
                    let turn = (ending == 0 && self.now >= self.give_at) || hurry;
                    if warm && turn {
                        ending += 1;
                        self.end(&name, Some(heir), effects);
                    } else if !warm && self.now >= since.after(WARM_WITHIN) {
                        let kind = lease.kind;
                        self.give_up(&name, effects);
                        if hurry && kind == Kind::Duty {
                            self.end(&name, None, effects);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn set_give(&mut self, name: &Name, give: Give) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.give = give;
        }
    }

    /// The heir is told so: it would look for ever.
    fn give_up(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let again_at = self.now.after(self.config.heartbeat * 3);
        let Some(lease) = self.leases.get_mut(name) else { return };
        (lease.give, lease.asked, lease.give_again_at) = (Give::No, None, again_at);
        if let Some(fence) = lease.term().and_then(|term| term.fence_at(self.now)) {
            self.call(Asked::Heir(name.clone(), None), Request::SetHeir { fence, heir: None }, effects);
        }
    }

    pub(super) fn announced(
        &mut self,
        name: &Name,
        heir: Option<NodeId>,
        result: &Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(heir) = heir else { return };
        let Some(lease) = self.leases.get_mut(name).filter(|lease| lease.give == Give::Announcing { heir }) else {
            return;
        };
        match result {
            Ok(Reply::Done) => {
                lease.give = Give::Warming { heir, since: self.now };
                lease.look_at = self.now;
            }
            Ok(Reply::Stale(_)) => {
                let epoch = lease.term().map(crate::Term::epoch).unwrap_or_default();
                self.refused(name, epoch, effects);
            }
            _ => self.give_up(name, effects),
        }
    }

    /// A duty of ours that nobody said to be warm for: whoever wants it finds it free.
    fn is_wanted_elsewhere(&self, lease: &Lease) -> bool {
        let others = |id: NodeId| Some(id) != self.node && !self.gone.contains(&id);
        lease.kind == Kind::Duty && self.known.nodes().iter().any(|node| node.eligible && others(node.id))
    }

    fn end(&mut self, name: &Name, heir: Option<NodeId>, effects: &mut Vec<Effect>) {
        let until = self.now.after(self.config.leave_within);
        self.give_at = self.now.after(GIVE_EVERY);
        self.set_give(name, Give::Ending { heir, until });
        let Some(lease) = self.leases.get(name) else { return };
        let Some(epoch) = lease.term().map(crate::Term::epoch) else { return };
        // What the queen does she does here, and does no more from now on.
        if lease.kind == Kind::Queen {
            return self.give_away(name, effects);
        }
        effects.push(Effect::Leave { held: Held { lease: name.clone(), epoch }, until });
    }

    fn end_what_took_too_long(&mut self, effects: &mut Vec<Effect>) {
        let late = |lease: &Lease| matches!(lease.give, Give::Ending { until, .. } if until <= self.now);
        let late: Vec<Name> = self.leases.iter().filter(|(_, l)| late(l)).map(|(name, _)| name.clone()).collect();
        for name in late {
            effects.push(Effect::Lost { lease: name.clone(), cause: "it was not left in time" });
            self.give_away(&name, effects);
        }
    }

    /// Whoever says so late, of a term before, has nothing to say about this one.
    pub(super) fn has_left(&mut self, Held { lease, epoch }: &Held, effects: &mut Vec<Effect>) {
        let term = self.leases.get(lease).and_then(Lease::term);
        if term.is_some_and(|term| term.epoch() == *epoch) {
            self.give_away(lease, effects);
        }
    }

    fn give_away(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let (Some(node), mint) = (self.node, self.lineage.mint(self.now)) else { return };
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Held(term) = &lease.state else { return };
        term.end();
        let epoch = term.epoch();
        if let Give::Ending { heir: None, .. } = lease.give {
            (lease.give, lease.state) = (Give::No, State::Releasing);
            return self.release(vec![Held { lease: name.clone(), epoch }], "draining", effects);
        }
        let (Give::Ending { heir: Some(heir), .. }, Some(mint)) = (lease.give, mint) else {
            // Left, though nobody waits for it any more: whoever works under it begins anew.
            (lease.give, lease.state) = (Give::No, State::Dead(epoch));
            return;
        };
        lease.give = Give::No;
        lease.state = State::Giving(epoch);
        let claims = vec![Claim::new(name.clone(), epoch)];
        let cause = if self.draining.is_some() { "draining" } else { "moved" };
        let request = Request::HandOver { node, heir, claims, cause: cause.into(), mint };
        self.call(Asked::Give(name.clone(), heir), request, effects);
    }

    pub(super) fn given(&mut self, name: &Name, heir: NodeId, result: Result<Reply, Failure>) {
        let unanswered = result.is_err();
        let won = self.won(result);
        let version = self.known.version();
        let now = self.now;
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Giving(epoch) = lease.state else { return };
        lease.moved = version;
        lease.asked = None;
        match won.first() {
            Some(held) => {
                let row = Row { epoch: held.epoch, holder: Some(heir), heir: None, heir_is_warm: false, free: false };
                lease.became(row, now);
                lease.state = State::Apart;
            }
            None if unanswered => (lease.state, lease.look_at) = (State::Unknown, now),
            None => lease.state = State::Dead(epoch),
        }
        self.unplaced = true;
    }

    /// Leases whose state is loaded here: what we are to inherit, and the duties we want.
    pub(super) fn warm(&self) -> Vec<Name> {
        if !self.is_eligible() {
            return Vec::new();
        }
        let wants = |name: &&Name| self.leases.get(*name).is_some_and(|lease| lease.is_wanted(self.now));
        let duties = self.leases.iter().filter(|(_, lease)| lease.kind == Kind::Duty && lease.is_wanted(self.now));
        let mut warm: Vec<Name> =
            duties.map(|(name, _)| name).chain(self.heir_of.keys().filter(wants)).cloned().collect();
        warm.sort();
        warm.dedup();
        warm
    }

    pub(super) fn learn_heirs(&mut self, heir_of: &[Name]) {
        self.heir_of.retain(|name, _| heir_of.contains(name));
        for name in heir_of {
            if !self.heir_of.contains_key(name) {
                self.heir_of.insert(name.clone(), self.now);
                self.look_as_heir_at = self.now;
                // Said at once: the holder waits for it.
                self.trust.sooner(self.now);
            }
        }
    }

    pub(super) fn look_as_heir(&mut self) {
        if self.heir_of.is_empty() || self.now < self.look_as_heir_at {
            return;
        }
        let mut wait = self.config.heartbeat;
        for (name, since) in &self.heir_of {
            if let Some(lease) = self.leases.get_mut(name).filter(|lease| lease.state == State::Apart) {
                lease.look_at = lease.look_at.min(self.now);
                if self.now < since.after(HEIR_PATIENCE) {
                    wait = LOOK_AS_HEIR;
                }
            }
        }
        self.look_as_heir_at = self.now.after(wait);
    }

    /// What a held lease waits for.
    pub(super) fn give_wake_at(&self, lease: &Lease) -> Moment {
        match lease.give {
            Give::Ending { until, .. } => until,
            Give::Warming { since, .. } => {
                let warm = lease.row.as_ref().is_some_and(|row| row.heir_is_warm);
                // Once warm it waits for its turn, which comes with the end of another's.
                let turn_at = if self.give_at > self.now { self.give_at } else { Moment::FAR };
                if warm { turn_at } else { since.after(WARM_WITHIN) }
            }
            Give::No if lease.give_again_at > self.now => lease.give_again_at,
            Give::No | Give::Announcing { .. } => Moment::FAR,
        }
    }

    /// While an heir warms up, its holder looks now and then.
    pub(super) fn look_for_warmth(&mut self) {
        for lease in self.leases.values_mut() {
            if let (Give::Warming { .. }, Moment::FAR, false) = (lease.give, lease.look_at, lease.looking) {
                lease.look_at = self.now.after(self.config.heartbeat / 8);
            }
        }
    }
}
