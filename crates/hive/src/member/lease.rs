//! One lease's life here.
//!
//! | state    | input                                      | next      | effect                           |
//! |----------|--------------------------------------------|-----------|----------------------------------|
//! | apart    | free, and its time to be taken by us       | taking    | call Take (epoch seen)           |
//! | apart    | the row says it is ours                    | dead      |                                  |
//! | taking   | Taken                                      | held      | Granted                          |
//! | taking   | refused                                    | apart     | look again                       |
//! | taking   | unanswered                                 | unknown   | look                             |
//! | unknown  | looked: ours / not ours                    | dead / apart |                               |
//! | dead     | trusted, wanted, minting allowed           | minting   | call HandOver to itself          |
//! | dead     | not wanted, or not eligible any more       | releasing | call Release                     |
//! | held     | a new epoch is asked for                   | minting   | call HandOver to itself          |
//! | minting  | Taken                                      | held      | Granted; the older term dies     |
//! | minting  | refused, unanswered                        | unknown   | Lost, if there was a term; look  |
//! | held     | no trust, deaf, another store              | dead      | Lost                             |
//! | held     | the row says otherwise                     | apart / dead | Lost                          |
//! | held     | to be given (see [`super::give`])          | giving    | call HandOver                    |
//! | giving   | Taken / refused / unanswered               | apart / dead / unknown |                     |
//! | releasing| answered                                   | apart     |                                  |
//!
//! Whoever came to hold it in any way but an answered take hands it over to itself and acts under the epoch that comes
//! back. An unanswered change is looked at, never repeated blindly. Rows are merged by (epoch, released): an older answer
//! that comes later changes nothing.

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::{Asked, Sent},
    give::Give,
};
use crate::{
    contract::{Claim, Held, LeaseRow, NodeId, Refusal, Reply, Request},
    term::Term,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Queen,
    Duty,
    /// Of this source.
    Shard(usize),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    Apart,
    Unknown,
    Taking,
    Held(Term),
    /// With the term that goes on until the new one is there, if any.
    Minting(Option<Term>),
    Dead(Epoch),
    Giving(Epoch),
    Releasing,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub heir: Option<NodeId>,
    pub heir_is_warm: bool,
    pub free: bool,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub kind: Kind,
    pub wanted: bool,
    pub state: State,
    pub row: Option<Row>,
    /// When the row was learnt.
    row_at: Moment,
    pub free_since: Option<Moment>,
    pub looking: bool,
    /// Far away: there is no need.
    pub look_at: Moment,
    /// Nor taken before.
    pub not_before: Moment,
    pub give: Give,
    /// The view's version when it was last given away.
    pub moved: u64,
    /// Who should have it; of a shard by [`crate::placement::place`], else the first in order.
    pub owner: Option<NodeId>,
    /// Our own place in that order.
    pub rank: usize,
    /// Nor given away before, if it failed.
    pub give_again_at: Moment,
    /// Who would come next after us.
    pub next: Option<NodeId>,
    /// Somebody has asked for a hand-over, perhaps to a certain node.
    pub asked: Option<Option<NodeId>>,
}

/// What reading a row came to.
enum Reading {
    Taken,
    /// Known already, or older.
    Old,
    WentBack(Epoch),
}

impl Lease {
    pub fn new(kind: Kind, wanted: bool) -> Lease {
        Lease {
            kind,
            wanted,
            state: State::Apart,
            row: None,
            row_at: Moment::default(),
            free_since: None,
            looking: false,
            look_at: Moment::default(),
            not_before: Moment::default(),
            give: Give::No,
            moved: 0,
            give_again_at: Moment::default(),
            owner: None,
            rank: usize::MAX,
            next: None,
            asked: None,
        }
    }

    pub fn extend(&self, until: Moment) {
        if let State::Held(term) | State::Minting(Some(term)) = &self.state {
            term.extend(until);
        }
    }

    pub fn term(&self) -> Option<&Term> {
        match &self.state {
            State::Held(term) | State::Minting(Some(term)) => Some(term),
            _ => None,
        }
    }

    /// `looked`: read by a question about this very lease, sent at `asked_at`.
    fn read(&mut self, row: Row, looked: bool, asked_at: Moment, now: Moment) -> Reading {
        let order = |row: &Row| (row.epoch, row.holder.is_none());
        if let Some(known) = &mut self.row {
            if order(&row) < order(known) {
                let lower = row.epoch < known.epoch && looked && asked_at > self.row_at;
                return if lower { Reading::WentBack(known.epoch) } else { Reading::Old };
            }
            if order(&row) == order(known) {
                // A holder that has gone never comes back; heirs are named without an event.
                known.free |= row.free;
                if looked {
                    (known.heir, known.heir_is_warm) = (row.heir, row.heir_is_warm);
                }
                if known.free && self.free_since.is_none() {
                    self.free_since = Some(now);
                }
                return Reading::Old;
            }
        }
        self.free_since = row.free.then_some(now);
        self.row = Some(row);
        self.row_at = now;
        Reading::Taken
    }

    /// Known by what we did ourselves.
    pub fn became(&mut self, row: Row, now: Moment) {
        self.free_since = row.free.then_some(now);
        (self.row, self.row_at) = (Some(row), now);
    }

    fn begin_again(&mut self) {
        *self = Lease {
            row: self.row.take(),
            row_at: self.row_at,
            free_since: self.free_since,
            moved: self.moved,
            not_before: self.not_before,
            ..Lease::new(self.kind, self.wanted)
        };
    }
}

impl From<&LeaseRow> for Row {
    fn from(row: &LeaseRow) -> Row {
        let LeaseRow { epoch, holder, heir, heir_is_warm, free, .. } = *row;
        Row { epoch, holder, heir, heir_is_warm, free }
    }
}

impl Member {
    pub(super) fn want(&mut self, name: Name) {
        let lease = self.leases.entry(name).or_insert_with(|| Lease::new(Kind::Duty, true));
        lease.wanted = true;
        lease.not_before = lease.not_before.min(self.now);
        self.unplaced = true;
    }

    pub(super) fn unwant(&mut self, name: &Name, until: Moment, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        lease.wanted = until != Moment::FAR;
        lease.not_before = until;
        lease.give = Give::No;
        lease.asked = None;
        if let State::Held(term) = &lease.state {
            term.end();
            let held = Held { lease: name.clone(), epoch: term.epoch() };
            lease.state = State::Releasing;
            self.release(vec![held], "given back", effects);
        }
    }

    /// Every term dies; the rows still say that the leases are ours.
    pub(super) fn end_terms(&mut self, cause: &'static str, effects: &mut Vec<Effect>) {
        for (name, lease) in &mut self.leases {
            let Some(term) = lease.term() else { continue };
            term.end();
            effects.push(Effect::Lost { lease: name.clone(), cause });
            match &lease.state {
                State::Held(term) => lease.state = State::Dead(term.epoch()),
                // What comes of the mint is still to be heard.
                _ => lease.state = State::Minting(None),
            }
            lease.give = Give::No;
        }
    }

    fn lose(&mut self, name: &Name, next: State, cause: &'static str, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        if let Some(term) = lease.term() {
            term.end();
            effects.push(Effect::Lost { lease: name.clone(), cause });
        }
        lease.give = Give::No;
        lease.state = next;
        lease.look_at = self.now;
    }

    pub(super) fn leases_begin_again(&mut self) {
        self.leases.values_mut().for_each(Lease::begin_again);
    }

    /// What was read before says nothing any more.
    pub(super) fn forget_rows(&mut self) {
        for lease in self.leases.values_mut() {
            lease.row = None;
            lease.free_since = None;
            lease.look_at = self.now;
            if matches!(lease.state, State::Apart | State::Dead(_)) {
                lease.state = State::Unknown;
            }
        }
        self.unplaced = true;
    }

    /// A store has refused what was written under this epoch: whoever holds it now, we do not.
    pub(super) fn refused(&mut self, name: &Name, epoch: Epoch, effects: &mut Vec<Effect>) {
        let held = self.leases.get(name).and_then(Lease::term).map(Term::epoch);
        // Minted anew meanwhile: the write is repeated under that.
        if held == Some(epoch) {
            self.lose(name, State::Unknown, "the store has refused its fence", effects);
        }
    }

    /// Rows of the view, or of a look.
    pub(super) fn read_rows(&mut self, rows: &[LeaseRow], sent: &Sent, looked: bool, effects: &mut Vec<Effect>) {
        for row in rows {
            let mut read = Row::from(row);
            read.free |= read.holder.is_some_and(|holder| self.gone.contains(&holder));
            self.read_row(&row.name, read, looked, sent, effects);
        }
    }

    pub(super) fn read_row(&mut self, name: &Name, row: Row, looked: bool, sent: &Sent, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let reading = lease.read(row, looked, sent.at, self.now);
        match reading {
            Reading::Old => {}
            Reading::Taken => self.unplaced = true,
            Reading::WentBack(epoch) => {
                // Whether it is the same server at all is told by a beat.
                self.fallen.push(Held { lease: name.clone(), epoch });
                self.end_terms("the store has gone back in time", effects);
                return self.trust.sooner(self.now);
            }
        }
        self.follow_row(name, effects);
    }

    /// What the row says about whose it is, for a lease about which nothing is being asked.
    fn follow_row(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let Some(row) = &lease.row else { return };
        let ours = row.holder == self.node && !row.free;
        let (epoch, next) = (row.epoch, if ours { State::Dead(row.epoch) } else { State::Apart });
        match &lease.state {
            State::Apart | State::Unknown => lease.state = next,
            State::Dead(dead) if *dead != epoch || !ours => lease.state = next,
            State::Held(term) if term.epoch() != epoch || !ours => {
                self.lose(name, next, "the lease has another holder", effects);
            }
            _ => {}
        }
    }

    /// Somebody has died: what it held is free.
    pub(super) fn free_of(&mut self, dead: NodeId) {
        for lease in self.leases.values_mut() {
            if let Some(row) = lease.row.as_mut().filter(|row| row.holder == Some(dead) && !row.free) {
                row.free = true;
                lease.free_since = Some(self.now);
            }
        }
        self.unplaced = true;
    }

    pub(super) fn see_to_leases(&mut self, effects: &mut Vec<Effect>) {
        self.look(effects);
        let eligible = self.is_eligible();
        let (mut release, mut mints, mut takes) = (Vec::new(), Vec::new(), Vec::new());
        let mint = self.lineage.mint(self.now);
        for (name, lease) in &self.leases {
            match &lease.state {
                State::Dead(epoch) if !lease.wanted || !eligible => {
                    release.push(Held { lease: name.clone(), epoch: *epoch });
                }
                State::Held(term) if !lease.wanted => {
                    term.end();
                    release.push(Held { lease: name.clone(), epoch: term.epoch() });
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
                    self.lose(name, State::Unknown, "the store did not say whether it minted", effects)
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
        if !self.trust.holds(self.now) || self.pulse.is_deaf() {
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
