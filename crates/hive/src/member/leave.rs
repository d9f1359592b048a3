//! Draining and leaving.
//!
//! | phase   | input                        | next    | effect                                                    |
//! |---------|------------------------------|---------|-----------------------------------------------------------|
//! | in      | drain                        | in      | not eligible any more; what is held is given to others    |
//! | in      | leave                        | leaving | terms die; to warm heirs HandOver, of the rest Release    |
//! | leaving | all of that answered, or not | leaving | call Leave: whatever is left is free with its row         |
//! | leaving | Leave answered, or not       | gone    | Left                                                      |
//! | out, joining | leave                   | gone    | Left                                                      |
//!
//! Without the store each step ends by its deadline; burial covers the rest.

use std::collections::BTreeMap;

use honeyflow_event::Name;

use super::{Effect, Member, calls::Asked, give::Give, lease::State, trust::Phase};
use crate::contract::{Claim, Held, Request};

impl Member {
    pub(super) fn drain(&mut self) {
        if !std::mem::replace(&mut self.draining, true) {
            self.unplaced = true;
            self.trust.sooner(self.now);
        }
    }

    pub(super) fn leave(&mut self, effects: &mut Vec<Effect>) {
        match self.trust.phase {
            Phase::Leaving | Phase::Gone => return,
            Phase::Out | Phase::Joining => return self.gone(effects),
            Phase::In => {}
        }
        self.trust.phase = Phase::Leaving;
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
    }

    pub(super) fn leave_when_settled(&mut self, effects: &mut Vec<Effect>) {
        let busy = |asked: &Asked| matches!(asked, Asked::Give(..) | Asked::Release(_) | Asked::Leave);
        if let Some(node) = self.node.filter(|_| !self.calls.is_open(busy)) {
            self.call(Asked::Leave, Request::Leave { node }, effects);
        }
    }

    pub(super) fn gone(&mut self, effects: &mut Vec<Effect>) {
        self.trust.phase = Phase::Gone;
        effects.push(Effect::Left);
    }
}
