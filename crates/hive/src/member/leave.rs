//! Draining and leaving.
//!
//! | phase   | input                        | next    | effect                                                    |
//! |---------|------------------------------|---------|-----------------------------------------------------------|
//! | in      | drain                        | in      | not eligible any more; what is held is given to others    |
//! | in      | leave                        | in      | the same; a member until that is done                     |
//! | in      | nothing is being given any more, or no heir got warm in time | leaving | terms die; to warm heirs HandOver, of the rest Release |
//! | in      | leave, and the store is silent | leaving | terms die: it is not asked for more than it takes       |
//! | leaving | all of that answered, or not | leaving | call Leave: whatever is left is free with its row         |
//! | leaving | Leave failed, and there is time | leaving | call Leave again, a little later                       |
//! | leaving | Leave answered, or no time is left | gone | Left                                                   |
//! | out, joining | leave                   | gone    | Left                                                      |
//!
//! An heir learns that it is one by its next beat, and only then looks often enough to follow without a gap. Whom nobody
//! could follow does not wait. Without the store each step ends by its deadline; burial covers the rest.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use super::{
    Effect, Member,
    calls::Asked,
    give::{Give, WARM_WITHIN},
    lease::{Lease, State},
    trust::Phase,
};
use crate::contract::{Claim, Held, Request};

/// Since when this node leads nothing new, and whether it is to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    since: Moment,
    to_leave: bool,
    /// When the row's end may be asked for, and until when again if that failed.
    ask_at: Moment,
    ask_until: Moment,
}

impl Member {
    pub(super) fn drain(&mut self) {
        if self.draining.is_none() {
            let now = self.now;
            self.draining = Some(Draining { since: now, to_leave: false, ask_at: now, ask_until: Moment::FAR });
            self.unplaced = true;
            self.trust.sooner(self.now);
        }
    }

    pub(super) fn leave(&mut self, effects: &mut Vec<Effect>) {
        match self.trust.phase {
            Phase::Leaving | Phase::Gone => {}
            Phase::Out | Phase::Joining => self.gone(effects),
            Phase::In => {
                self.drain();
                if let Some(draining) = &mut self.draining {
                    draining.to_leave = true;
                }
            }
        }
    }

    pub(super) fn is_to_leave(&self) -> bool {
        self.draining.is_some_and(|draining| draining.to_leave)
    }

    /// When it goes, whoever is still cold by then.
    pub(super) fn leave_wake_at(&self) -> Moment {
        self.heirs_by().filter(|at| *at > self.now).unwrap_or(Moment::FAR)
    }

    fn heirs_by(&self) -> Option<Moment> {
        // Whoever was named an heir when it began has had a beat of its own to learn it, and another to say so. On a busy
        // machine both come late; who goes before leaves nobody.
        let leaving = self.draining.filter(|draining| draining.to_leave)?;
        Some(leaving.since.after(WARM_WITHIN.min(self.config.time_to_live)))
    }

    pub(super) fn leave_when_given(&mut self, effects: &mut Vec<Effect>) {
        let Some(heirs_by) = self.heirs_by().filter(|_| self.trust.phase == Phase::In) else { return };
        let patient = self.now < heirs_by;
        let is_given = |lease: &Lease| match (&lease.state, lease.give) {
            (State::Giving(_), _) | (State::Held(_), Give::Announcing { .. } | Give::Ending { .. }) => true,
            (State::Held(_), Give::Warming { .. }) => patient,
            _ => false,
        };
        if !self.trust.holds(self.now) || !self.leases.values().any(is_given) {
            self.let_go(effects);
        }
    }

    /// What comes of it burial finds out; the row is all that is worth another question.
    pub(super) fn leave_silent_store(&mut self, effects: &mut Vec<Effect>) {
        self.end_terms("this node leaves, and the store does not answer", effects);
        self.begin_to_leave();
    }

    fn begin_to_leave(&mut self) {
        self.trust.phase = Phase::Leaving;
        if let Some(draining) = &mut self.draining {
            draining.ask_until = self.now.after(self.config.deadline() * 2);
        }
    }

    fn let_go(&mut self, effects: &mut Vec<Effect>) {
        self.begin_to_leave();
        let mut given: BTreeMap<Name, (crate::NodeId, Claim)> = BTreeMap::new();
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
            let warm = |heir: &crate::NodeId| {
                lease.row.as_ref().is_some_and(|row| row.heir == Some(*heir) && row.heir_is_warm)
            };
            match lease.give {
                Give::Warming { heir, .. } | Give::Ending { heir: Some(heir), .. } if warm(&heir) => {
                    given.insert(name.clone(), (heir, Claim::new(name.clone(), epoch)));
                    lease.state = State::Giving(epoch);
                }
                _ => {
                    released.push(Held { lease: name.clone(), epoch });
                    lease.state = State::Releasing;
                }
            }
            lease.give = Give::No;
        }
        let mint = self.lineage.mint(self.now);
        for (name, (heir, claim)) in given {
            let (Some(node), Some(mint)) = (self.node, mint.clone()) else { continue };
            let request = Request::HandOver { node, heir, claims: vec![claim], cause: "leaving".into(), mint };
            self.call(Asked::Give(name, heir), request, effects);
        }
        self.release(released, "leaving", effects);
        self.leave_when_settled(effects);
    }

    pub(super) fn leave_when_settled(&mut self, effects: &mut Vec<Effect>) {
        let busy = |asked: &Asked| matches!(asked, Asked::Give(..) | Asked::Release(_) | Asked::Leave);
        let due = self.ask_at() <= self.now && !self.calls.is_open(busy);
        if let Some(node) = self.node.filter(|_| due) {
            self.call(Asked::Leave, Request::Leave { node }, effects);
        }
    }

    pub(super) fn ask_at(&self) -> Moment {
        self.draining.map_or(self.now, |draining| draining.ask_at)
    }

    /// A row that stays is waited for by everybody until it expires: that is worth asking again.
    pub(super) fn has_asked_to_leave(&mut self, answered: bool, effects: &mut Vec<Effect>) {
        let again_at = self.now.after(self.retry_wait());
        match &mut self.draining {
            Some(draining) if !answered && again_at < draining.ask_until => draining.ask_at = again_at,
            _ => self.gone(effects),
        }
    }

    pub(super) fn left_to_leave(&self) -> Duration {
        self.draining.map_or(Duration::MAX, |draining| draining.ask_until.since(self.now))
    }

    pub(super) fn gone(&mut self, effects: &mut Vec<Effect>) {
        self.trust.phase = Phase::Gone;
        effects.push(Effect::Left);
    }
}
