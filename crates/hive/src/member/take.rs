//! Sends the requests to read, take, mint and release leases, and handles their replies. The transition table is in
//! [`super::lease`].
//!
//! All leases that are due for the same request go out together: a first start takes all shards in one request, and a
//! node that comes back mints all its leases in one request.

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::{CallKind, PendingCall},
    lease::{Kind, Lease, Row, State},
    transfer::Transfer,
};
use crate::{
    contract::{Claim, HeldLease, Refusal, Reply, Request},
    term::Term,
};

impl Member {
    pub(super) fn advance_leases(&mut self, effects: &mut Vec<Effect>) {
        self.look(effects);
        let eligible = self.is_eligible();
        let (mut release, mut mints, mut takes) = (Vec::new(), Vec::new(), Vec::new());
        let mint = self.lineage.mint(self.now);
        for (name, lease) in &self.leases {
            match &lease.state {
                State::Dead(epoch) if !lease.is_wanted(self.now) || !eligible => {
                    release.push(HeldLease { lease: name.clone(), epoch: *epoch });
                }
                State::Dead(epoch) if mint.is_some() => mints.push(Claim::new(name.clone(), *epoch)),
                State::NotHeld if mint.is_some() && self.take_at(lease) <= self.now => {
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

    /// Reads all lease rows that are due, in one request. A successor reads its rows more often.
    fn look(&mut self, effects: &mut Vec<Effect>) {
        self.look_as_successor();
        self.look_for_warm_successors();
        let now = self.now;
        let due: Vec<Name> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.look_at <= now && !lease.looking && self.should_look(lease))
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
        self.call(CallKind::Look(due.clone()), Request::Look { leases: due }, effects);
    }

    fn should_look(&self, lease: &Lease) -> bool {
        match lease.state {
            State::NotHeld => lease.wanted && self.may_look(lease),
            State::Unknown | State::Held(_) => true,
            _ => false,
        }
    }

    fn set_state(&mut self, name: &Name, state: State) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.state = state;
        }
    }

    pub(super) fn release(&mut self, held: Vec<HeldLease>, cause: &'static str, effects: &mut Vec<Effect>) {
        let Some(node) = self.node.filter(|_| !held.is_empty()) else { return };
        let names = held.iter().map(|held| held.lease.clone()).collect();
        self.call(CallKind::Release(names), Request::Release { node, held, cause: cause.into() }, effects);
    }

    /// Hands the leases over to this node itself, which mints new epochs.
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
        let request = Request::HandOver { node, successor: node, claims, cause: "minted anew".into(), mint };
        self.call(CallKind::Mint(names), request, effects);
    }

    pub(super) fn mint_above(&mut self, name: &Name, floor: Epoch, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let State::Held(term) = &lease.state else { return };
        let epoch = term.epoch();
        lease.transfer = Transfer::Idle;
        if self.lineage.mint(self.now).is_none() {
            // The work that needs a new epoch cannot continue without it.
            return self.lose(name, State::Dead(epoch), "no epoch can be minted now", effects);
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
        self.call(CallKind::Take(names), request, effects);
    }

    pub(super) fn on_look_reply(
        &mut self,
        sent: &PendingCall,
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

    pub(super) fn on_take_reply(&mut self, names: &[Name], result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let unanswered = result.is_err();
        let won = self.won_leases(result);
        let again = self.now.after(self.retry_wait());
        for name in names {
            match won.iter().find(|held| held.lease == *name) {
                Some(held) => self.hold(held, effects),
                None => {
                    let next = if unanswered { State::Unknown } else { State::NotHeld };
                    self.set_state(name, next);
                    if let Some(lease) = self.leases.get_mut(name) {
                        // The known row was wrong: read it again before the next try.
                        (lease.row, lease.free_since, lease.look_at) = (None, None, again);
                    }
                }
            }
        }
    }

    pub(super) fn on_mint_reply(&mut self, names: &[Name], result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let unanswered = result.is_err();
        let won = self.won_leases(result);
        for name in names {
            match won.iter().find(|held| held.lease == *name) {
                Some(held) => self.hold(held, effects),
                // It is unknown whether a new epoch was minted: the old one may be invalid.
                None if unanswered => {
                    self.lose(name, State::Unknown, "the store did not confirm the new epoch", effects);
                }
                None => self.lose(name, State::Unknown, "the lease has another holder", effects),
            }
        }
        // Not at once: otherwise a store that keeps refusing would be asked in a busy loop.
        let again = self.now.after(self.retry_wait());
        for name in names.iter().filter(|name| won.iter().all(|held| held.lease != **name)) {
            if let Some(lease) = self.leases.get_mut(name) {
                lease.look_at = again;
            }
        }
    }

    fn hold(&mut self, held: &HeldLease, effects: &mut Vec<Effect>) {
        let (Some(node), Some(lease)) = (self.node, self.leases.get_mut(&held.lease)) else { return };
        if let Some(before) = lease.term() {
            before.end();
        }
        let row = Row { epoch: held.epoch, holder: Some(node), successor: None, successor_is_warm: false, free: false };
        lease.set_row(row, self.now);
        (lease.transfer, lease.look_at, lease.transfer_request) = (Transfer::Idle, Moment::FAR, None);
        self.successor_of.remove(&held.lease);
        // Won, but not usable now. It gets a new epoch, or is released, once the reason has gone.
        let doubtful = self.lineage.forbids_use() || self.watchdog.is_stalled();
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

    /// The leases that a take, a mint or a hand-over has won. If there are none, follows the store's reason.
    pub(super) fn won_leases(&mut self, result: Result<Reply, Failure>) -> Vec<HeldLease> {
        match result {
            Ok(Reply::Taken(won)) => return won,
            Ok(Reply::Refused(Refusal::Early { wait_ms })) => {
                self.lineage.delay_minting(self.now.after(std::time::Duration::from_millis(wait_ms)));
            }
            // The next heartbeat reply shows the current state.
            Ok(Reply::Refused(Refusal::Lineage | Refusal::Hold | Refusal::Unfit)) => {
                let wait = self.retry_wait();
                self.trust.heartbeat_by(self.now.after(wait));
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn on_release_reply(&mut self, names: &[Name], result: &Result<Reply, Failure>) {
        for name in names {
            let answered = matches!(result, Ok(Reply::Released(_)));
            self.set_state(name, if answered { State::NotHeld } else { State::Unknown });
            if let Some(lease) = self.leases.get_mut(name) {
                (lease.row, lease.free_since, lease.look_at) = (None, None, self.now.after(self.config.heartbeat / 2));
            }
        }
    }

    /// When a lease needs attention without an input.
    pub(super) fn leases_wake_at(&self) -> Moment {
        let mut at = if self.successor_of.is_empty() { Moment::FAR } else { self.look_as_successor_at };
        let mint_at = self.lineage.mint_at();
        for lease in self.leases.values() {
            if !lease.looking && self.should_look(lease) {
                at = at.min(lease.look_at);
            }
            match lease.state {
                State::NotHeld => at = at.min(self.take_at(lease).max(mint_at)),
                State::Dead(_) => at = at.min(mint_at),
                State::Held(_) => at = at.min(self.transfer_wake_at(lease)),
                _ => {}
            }
        }
        at
    }
}
