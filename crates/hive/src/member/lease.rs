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
//! | dead     | not wanted, sat out, not eligible any more | releasing | call Release                     |
//! | held     | a new epoch is asked for                   | minting   | call HandOver to itself          |
//! | minting  | Taken                                      | held      | Granted; the older term dies     |
//! | minting  | refused, unanswered                        | unknown   | Lost, if there was a term; look  |
//! | held     | no trust, deaf, another store              | dead      | Lost                             |
//! | held     | found dead by whoever works under it       | dead      | Lost                             |
//! | held     | the row says otherwise                     | apart / dead | Lost                          |
//! | held     | to be given (see [`super::give`])          | giving    | call HandOver                    |
//! | giving   | Taken / refused / unanswered               | apart / dead / unknown |                     |
//! | releasing| answered                                   | apart     |                                  |
//!
//! Whoever came to hold it in any way but an answered take hands it over to itself and acts under the epoch that comes
//! back. An unanswered change is looked at, never repeated blindly. Rows are merged by (epoch, released): an older answer
//! that comes later changes nothing. What a store answers that has been replaced meanwhile counts as unanswered.

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::Moment;

use super::{
    Effect, Member,
    calls::Sent,
    give::{Give, Wish},
};
use crate::{
    contract::{Held, LeaseRow, NodeId},
    term::Term,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Queen,
    Duty,
    /// Of this source.
    Shard(usize),
}

#[derive(PartialEq, Debug)]
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

/// A copy belongs to another future: its term lives and dies by itself.
impl Clone for State {
    fn clone(&self) -> State {
        match self {
            State::Apart => State::Apart,
            State::Unknown => State::Unknown,
            State::Taking => State::Taking,
            State::Held(term) => State::Held(term.apart()),
            State::Minting(term) => State::Minting(term.as_ref().map(Term::apart)),
            State::Dead(epoch) => State::Dead(*epoch),
            State::Giving(epoch) => State::Giving(*epoch),
            State::Releasing => State::Releasing,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub heir: Option<NodeId>,
    pub heir_is_warm: bool,
    pub free: bool,
}

#[derive(Clone, Debug)]
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
    pub asked: Option<Wish>,
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

    /// False: there is a term, and it was found dead.
    pub fn extend(&self, until: Moment) -> bool {
        self.term().is_none_or(|term| term.extend(until))
    }

    /// To be held here, as far as we are concerned.
    pub fn is_wanted(&self, now: Moment) -> bool {
        self.wanted && (self.not_before <= now || crate::planted::on("sitting out is warm"))
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
        // Others are to hear soon that this node is not warm any more.
        self.trust.sooner(self.now);
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

    pub(super) fn lose(&mut self, name: &Name, next: State, cause: &'static str, effects: &mut Vec<Effect>) {
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
        self.store += 1;
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

    /// Nor do its versions: a store that has lost everything counts them from the beginning.
    pub(super) fn forget_history(&mut self) {
        self.forget_rows();
        self.known.doubt();
        self.leases.values_mut().for_each(|lease| lease.moved = 0);
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
                let fallen = Held { lease: name.clone(), epoch };
                if !self.fallen.contains(&fallen) {
                    self.fallen.push(fallen);
                }
                self.lineage.doubt();
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
}
