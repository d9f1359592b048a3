//! What is asked about leases, and what follows from the answers. The table is in [`super::lease`].
//!
//! Everything of a kind that is due goes out as one request: a first start takes all shards at once, and a node that
//! comes back mints all of its own at once.

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::{Asked, Sent},
    give::Give,
    lease::{Kind, Lease, Row, State},
};
use crate::{
    contract::{Claim, Held, Refusal, Reply, Request},
    term::Term,
};

impl Member {
    pub(super) fn see_to_leases(&mut self, effects: &mut Vec<Effect>) {
        self.look(effects);
        let eligible = self.is_eligible();
        let (mut release, mut mints, mut takes) = (Vec::new(), Vec::new(), Vec::new());
        let mint = self.lineage.mint(self.now);
        for (name, lease) in &self.leases {
            match &lease.state {
                State::Dead(epoch) if !lease.is_wanted(self.now) || !eligible => {
                    release.push(Held { lease: name.clone(), epoch: *epoch });
                }
                State::Dead(epoch) if mint.is_some() => mints.push(Claim::new(name.clone(), *epoch)),
                State::Apart if mint.is_some() && self.take_at(lease) <= self.now => {
                    let epoch = lease.row.as_ref().map_or(Epoch(0), |row| row.epoch);
                    takes.push(Claim::new(name.clone(), epoch));
                }
                _ => {}
            }
        }
        for held in &release {
            self.set_state(&held.lease, State::Releasing);
        }
        self.release(release, "not wanted", effects);
        self.mint(mints, effects);
        self.take(takes, effects);
    }

    /// As heirs we look more often; all that is due is one question.
    fn look(&mut self, effects: &mut Vec<Effect>) {
        self.look_as_heir();
        self.look_for_warmth();
        let now = self.now;
        let due: Vec<Name> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.look_at <= now && !lease.looking && self.is_looked_at(lease))
            .map(|(name, _)| name.clone())
            .collect();
        if due.is_empty() {
            return;
        }
        for name in &due {
            if let Some(lease) = self.leases.get_mut(name) {
                (lease.looking, lease.look_at) = (true, Moment::FAR);
            }
        }
        self.call(Asked::Look(due.clone()), Request::Look { leases: due }, effects);
    }

    fn is_looked_at(&self, lease: &Lease) -> bool {
        match lease.state {
            State::Apart => lease.wanted && self.may_look(lease),
            State::Unknown | State::Held(_) => true,
            _ => false,
        }
    }

    fn set_state(&mut self, name: &Name, state: State) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.state = state;
        }
    }

    pub(super) fn release(&mut self, held: Vec<Held>, cause: &'static str, effects: &mut Vec<Effect>) {
        let Some(node) = self.node.filter(|_| !held.is_empty()) else { return };
        let names = held.iter().map(|held| held.lease.clone()).collect();
        self.call(Asked::Release(names), Request::Release { node, held, cause: cause.into() }, effects);
    }

    /// To itself, under a new epoch.
    fn mint(&mut self, claims: Vec<Claim>, effects: &mut Vec<Effect>) {
        let (Some(node), Some(mint)) = (self.node, self.lineage.mint(self.now)) else { return };
        if claims.is_empty() {
            return;
        }
        let names: Vec<Name> = claims.iter().map(|claim| claim.lease.clone()).collect();
        for name in &names {
            if let Some(lease) = self.leases.get_mut(name) {
                lease.state = State::Minting(lease.term().cloned());
            }
        }
        let request = Request::HandOver { node, heir: node, claims, cause: "minted anew".into(), mint };
        self.call(Asked::Mint(names), request, effects);
    }

    pub(super) fn mint_above(&mut self, name: &Name, floor: Epoch, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Held(term) = &lease.state else { return };
        let epoch = term.epoch();
        lease.give = Give::No;
        if self.lineage.mint(self.now).is_none() {
            // Whoever asked does nothing before it has one.
            return self.lose(name, State::Dead(epoch), "no epoch can be minted at present", effects);
        }
        self.mint(vec![Claim { floor, ..Claim::new(name.clone(), epoch) }], effects);
    }

    fn take(&mut self, claims: Vec<Claim>, effects: &mut Vec<Effect>) {
        let (Some(node), Some(mint)) = (self.node, self.lineage.mint(self.now)) else { return };
        if claims.is_empty() {
            return;
        }
        let names: Vec<Name> = claims.iter().map(|claim| claim.lease.clone()).collect();
        names.iter().for_each(|name| self.set_state(name, State::Taking));
        let request = Request::Take { node, claims, cause: "free".into(), mint };
        self.call(Asked::Take(names), request, effects);
    }

    pub(super) fn looked(
        &mut self,
        sent: &Sent,
        names: &[Name],
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let again = self.now.after(self.retry_wait());
        for name in names {
            if let Some(lease) = self.leases.get_mut(name) {
                lease.looking = false;
            }
        }
        match result {
            Ok(Reply::Leases { leases, .. }) => self.read_rows(&leases, sent, true, effects),
            _ => names.iter().for_each(|name| self.look_again(name, again)),
        }
    }

    fn look_again(&mut self, name: &Name, at: Moment) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.look_at = lease.look_at.min(at);
        }
    }

    pub(super) fn taken(&mut self, names: &[Name], result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let unanswered = result.is_err();
        let won = self.won(result);
        let again = self.now.after(self.retry_wait());
        for name in names {
            match won.iter().find(|held| held.lease == *name) {
                Some(held) => self.hold(held, effects),
                None => {
                    let next = if unanswered { State::Unknown } else { State::Apart };
                    self.set_state(name, next);
                    if let Some(lease) = self.leases.get_mut(name) {
                        // Whatever stood there was not so: it is read anew before anything else is tried.
                        (lease.row, lease.free_since, lease.look_at) = (None, None, again);
                    }
                }
            }
        }
    }

    pub(super) fn minted(&mut self, names: &[Name], result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let unanswered = result.is_err();
        let won = self.won(result);
        for name in names {
            match won.iter().find(|held| held.lease == *name) {
                Some(held) => self.hold(held, effects),
                // Unknown whether a new epoch was minted: the old one may be gone.
                None if unanswered => {
                    self.lose(name, State::Unknown, "the store did not say whether it minted", effects);
                }
                None => self.lose(name, State::Unknown, "the lease has another holder", effects),
            }
        }
        // Not at once: a store that refuses for its own reasons would be asked without end.
        let again = self.now.after(self.retry_wait());
        for name in names.iter().filter(|name| won.iter().all(|held| held.lease != **name)) {
            if let Some(lease) = self.leases.get_mut(name) {
                lease.look_at = again;
            }
        }
    }

    fn hold(&mut self, held: &Held, effects: &mut Vec<Effect>) {
        let (Some(node), Some(lease)) = (self.node, self.leases.get_mut(&held.lease)) else { return };
        if let Some(before) = lease.term() {
            before.end();
        }
        let row = Row { epoch: held.epoch, holder: Some(node), heir: None, heir_is_warm: false, free: false };
        lease.became(row, self.now);
        (lease.give, lease.look_at, lease.asked) = (Give::No, Moment::FAR, None);
        self.heir_of.remove(&held.lease);
        // Won, but nobody may act under it: minted anew, or released, once that is better.
        let doubtful = self.lineage.is_doubtful() || self.pulse.is_deaf();
        if !self.trust.holds(self.now) || doubtful || !lease.is_wanted(self.now) {
            lease.state = State::Dead(held.epoch);
            return;
        }
        let clock = self.config.clock.clone();
        let term = Term::granted(held.lease.clone(), held.epoch, node, self.trust.until, clock);
        lease.state = State::Held(term.clone());
        effects.push(Effect::Granted(term));
        if lease.kind == Kind::Queen {
            self.count_due = true;
        }
    }

    /// What a take or a mint has won; why not, if nothing.
    pub(super) fn won(&mut self, result: Result<Reply, Failure>) -> Vec<Held> {
        match result {
            Ok(Reply::Taken(won)) => return won,
            Ok(Reply::Refused(Refusal::Early { wait_ms })) => {
                self.lineage.not_before(self.now.after(std::time::Duration::from_millis(wait_ms)));
            }
            // The next beat tells what stands.
            Ok(Reply::Refused(Refusal::Lineage | Refusal::Hold | Refusal::Unfit)) => {
                let wait = self.retry_wait();
                self.trust.sooner(self.now.after(wait));
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn released(&mut self, names: &[Name], result: &Result<Reply, Failure>) {
        for name in names {
            let answered = matches!(result, Ok(Reply::Released(_)));
            self.set_state(name, if answered { State::Apart } else { State::Unknown });
            if let Some(lease) = self.leases.get_mut(name) {
                (lease.row, lease.free_since, lease.look_at) = (None, None, self.now.after(self.config.heartbeat / 2));
            }
        }
    }

    /// When something is due by itself.
    pub(super) fn leases_wake_at(&self) -> Moment {
        let mut at = if self.heir_of.is_empty() { Moment::FAR } else { self.look_as_heir_at };
        let mint_at = self.lineage.mint_at();
        for lease in self.leases.values() {
            if !lease.looking && self.is_looked_at(lease) {
                at = at.min(lease.look_at);
            }
            match lease.state {
                State::Apart => at = at.min(self.take_at(lease).max(mint_at)),
                State::Dead(_) => at = at.min(mint_at),
                State::Held(_) => at = at.min(self.give_wake_at(lease)),
                _ => {}
            }
        }
        at
    }
}
