//! The states of one lease on this node.
//!
//! | state        | input                                      | next         | effect                               |
//! |--------------|--------------------------------------------|--------------|--------------------------------------|
//! | not held     | the lease is free, and this node's turn    | taking       | call Take (with the epoch read)      |
//! | not held     | the row names this node as holder          | dead         |                                      |
//! | taking       | Taken                                      | held         | Granted                              |
//! | taking       | refused                                    | not held     | read the row again                   |
//! | taking       | unanswered                                 | unknown      | read the row                         |
//! | unknown      | the row names this node / another          | dead / not held |                                   |
//! | dead         | trusted, wanted, minting allowed           | minting      | call HandOver to itself              |
//! | dead         | not wanted, sitting out, not eligible      | releasing    | call Release                         |
//! | held         | a new epoch is requested                   | minting      | call HandOver to itself              |
//! | minting      | Taken                                      | held         | Granted; the older term dies         |
//! | minting      | refused, unanswered                        | unknown      | Lost, if there was a term; read the row |
//! | held         | trust ran out, runtime stalled, store replaced | dead     | Lost                                 |
//! | held         | the work under it found the term dead      | dead         | Lost                                 |
//! | held         | the row shows another holder or epoch      | not held / dead | Lost                              |
//! | held         | transfer (see [`super::transfer`])         | transferring | call HandOver                        |
//! | transferring | Taken / refused / unanswered               | not held / dead / unknown |                         |
//! | releasing    | answered                                   | not held     |                                      |
//!
//! *Dead* means that the row names this node as holder, but no term is alive. A node that became holder by anything but
//! an answered take hands the lease over to itself and acts under the epoch that comes back. After an unanswered change
//! it reads the row; it never repeats the change blindly. Rows are merged by (epoch, released): an older answer that
//! arrives later changes nothing. An answer of a store that was replaced meanwhile counts as unanswered.

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::Moment;

use super::{
    Effect, Member,
    calls::PendingCall,
    transfer::{Transfer, TransferRequest},
};
use crate::{
    contract::{HeldLease, LeaseRow, NodeId},
    term::Term,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Queen,
    Duty,
    /// A shard of the source with this index.
    Shard(usize),
}

#[derive(PartialEq, Debug)]
pub(super) enum State {
    NotHeld,
    Unknown,
    Taking,
    Held(Term),
    /// Contains the old term, if any: it stays valid until the new one is granted.
    Minting(Option<Term>),
    Dead(Epoch),
    Transferring(Epoch),
    Releasing,
}

/// A copy belongs to another possible future: its term ends independently of the original.
impl Clone for State {
    fn clone(&self) -> State {
        match self {
            State::NotHeld => State::NotHeld,
            State::Unknown => State::Unknown,
            State::Taking => State::Taking,
            State::Held(term) => State::Held(term.independent_copy()),
            State::Minting(term) => State::Minting(term.as_ref().map(Term::independent_copy)),
            State::Dead(epoch) => State::Dead(*epoch),
            State::Transferring(epoch) => State::Transferring(*epoch),
            State::Releasing => State::Releasing,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub successor: Option<NodeId>,
    pub successor_is_warm: bool,
    pub free: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub kind: Kind,
    pub wanted: bool,
    pub state: State,
    pub row: Option<Row>,
    /// When this node read the row.
    row_at: Moment,
    pub free_since: Option<Moment>,
    pub looking: bool,
    /// When to read the row; [`Moment::FAR`] = there is no need.
    pub look_at: Moment,
    /// The lease is not taken before this time.
    pub not_before: Moment,
    pub transfer: Transfer,
    /// The view's version at the last transfer.
    pub moved_at_version: u64,
    /// The node that should hold it: for a shard by [`crate::placement::place`], otherwise the first in order.
    pub owner: Option<NodeId>,
    /// This node's position in that order.
    pub rank: usize,
    /// After a failed transfer, the next one does not begin before this time.
    pub transfer_again_at: Moment,
    /// The first other node in that order.
    pub next_candidate: Option<NodeId>,
    pub transfer_request: Option<TransferRequest>,
}

/// The result of reading a row.
enum Reading {
    Newer,
    /// The row is known already, or older than the known one.
    Old,
    WentBack(Epoch),
}

impl Lease {
    pub fn new(kind: Kind, wanted: bool) -> Lease {
        Lease {
            kind,
            wanted,
            state: State::NotHeld,
            row: None,
            row_at: Moment::default(),
            free_since: None,
            looking: false,
            look_at: Moment::default(),
            not_before: Moment::default(),
            transfer: Transfer::Idle,
            moved_at_version: 0,
            transfer_again_at: Moment::default(),
            owner: None,
            rank: usize::MAX,
            next_candidate: None,
            transfer_request: None,
        }
    }

    /// Extends the term, if there is one. False if the term is already dead.
    pub fn extend(&self, until: Moment) -> bool {
        self.term().is_none_or(|term| term.extend(until))
    }

    /// Whether this node wants to hold it: it is a candidate and does not sit out.
    pub fn is_wanted(&self, now: Moment) -> bool {
        self.wanted && (self.not_before <= now || crate::planted::on("sitting out is warm"))
    }

    pub fn term(&self) -> Option<&Term> {
        match &self.state {
            State::Held(term) | State::Minting(Some(term)) => Some(term),
            _ => None,
        }
    }

    /// `looked`: the row comes from a Look request for this lease, sent at `asked_at`.
    fn read(&mut self, row: Row, looked: bool, asked_at: Moment, now: Moment) -> Reading {
        let order = |row: &Row| (row.epoch, row.holder.is_none());
        if let Some(known) = &mut self.row {
            if order(&row) < order(known) {
                let lower = row.epoch < known.epoch && looked && asked_at > self.row_at;
                return if lower { Reading::WentBack(known.epoch) } else { Reading::Old };
            }
            if order(&row) == order(known) {
                // A holder without a row never comes back. A successor is named without an event.
                known.free |= row.free;
                if looked {
                    (known.successor, known.successor_is_warm) = (row.successor, row.successor_is_warm);
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
        Reading::Newer
    }

    /// Sets the row that this node's own change has produced.
    pub fn set_row(&mut self, row: Row, now: Moment) {
        self.free_since = row.free.then_some(now);
        (self.row, self.row_at) = (Some(row), now);
    }

    fn reset(&mut self) {
        *self = Lease {
            row: self.row.take(),
            row_at: self.row_at,
            free_since: self.free_since,
            moved_at_version: self.moved_at_version,
            not_before: self.not_before,
            ..Lease::new(self.kind, self.wanted)
        };
    }
}

impl From<&LeaseRow> for Row {
    fn from(row: &LeaseRow) -> Row {
        let LeaseRow { epoch, holder, successor, successor_is_warm, free, .. } = *row;
        Row { epoch, holder, successor, successor_is_warm, free }
    }
}

impl Member {
    pub(super) fn want(&mut self, name: Name) {
        let lease = self.leases.entry(name).or_insert_with(|| Lease::new(Kind::Duty, true));
        lease.wanted = true;
        lease.not_before = lease.not_before.min(self.now);
        self.placement_due = true;
    }

    pub(super) fn unwant(&mut self, name: &Name, until: Moment, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        lease.wanted = until != Moment::FAR;
        lease.not_before = until;
        lease.transfer = Transfer::Idle;
        lease.transfer_request = None;
        // Other nodes should learn soon that this node is not warm any more.
        self.trust.heartbeat_by(self.now);
        if let State::Held(term) = &lease.state {
            term.end();
            let held = HeldLease { lease: name.clone(), epoch: term.epoch() };
            lease.state = State::Releasing;
            self.release(vec![held], "given back", effects);
        }
    }

    /// Ends every term. The rows still name this node as holder.
    pub(super) fn end_terms(&mut self, cause: &'static str, effects: &mut Vec<Effect>) {
        for (name, lease) in &mut self.leases {
            let Some(term) = lease.term() else { continue };
            term.end();
            effects.push(Effect::Lost { lease: name.clone(), cause });
            match &lease.state {
                State::Held(term) => lease.state = State::Dead(term.epoch()),
                // The reply to the mint is still in flight.
                _ => lease.state = State::Minting(None),
            }
            lease.transfer = Transfer::Idle;
        }
    }

    pub(super) fn lose(&mut self, name: &Name, next: State, cause: &'static str, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        if let Some(term) = lease.term() {
            term.end();
            effects.push(Effect::Lost { lease: name.clone(), cause });
        }
        lease.transfer = Transfer::Idle;
        lease.state = next;
        lease.look_at = self.now;
    }

    pub(super) fn reset_leases(&mut self) {
        self.leases.values_mut().for_each(Lease::reset);
    }

    /// Forgets the lease rows: the store was replaced or restored.
    pub(super) fn forget_rows(&mut self) {
        self.store_number += 1;
        for lease in self.leases.values_mut() {
            lease.row = None;
            lease.free_since = None;
            lease.look_at = self.now;
            if matches!(lease.state, State::NotHeld | State::Dead(_)) {
                lease.state = State::Unknown;
            }
        }
        self.placement_due = true;
    }

    /// Forgets the rows and the view's versions: a store that has lost everything counts versions from the start.
    pub(super) fn forget_history(&mut self) {
        self.forget_rows();
        self.known_view.doubt();
        self.leases.values_mut().for_each(|lease| lease.moved_at_version = 0);
    }

    /// A store has refused a write under this epoch: this node does not hold the lease any more.
    pub(super) fn on_stale_fence(&mut self, name: &Name, epoch: Epoch, effects: &mut Vec<Effect>) {
        let held = self.leases.get(name).and_then(Lease::term).map(Term::epoch);
        // If a newer epoch was minted meanwhile, the writer repeats its write under that one.
        if held == Some(epoch) {
            self.lose(name, State::Unknown, "the store refused its fence", effects);
        }
    }

    /// Applies lease rows of the view, or of a Look reply (`looked`).
    pub(super) fn read_rows(&mut self, rows: &[LeaseRow], sent: &PendingCall, looked: bool, effects: &mut Vec<Effect>) {
        for row in rows {
            let mut read = Row::from(row);
            read.free |= read.holder.is_some_and(|holder| self.removed.contains(&holder));
            self.read_row(&row.name, read, looked, sent, effects);
        }
    }

    pub(super) fn read_row(
        &mut self,
        name: &Name,
        row: Row,
        looked: bool,
        sent: &PendingCall,
        effects: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let reading = lease.read(row, looked, sent.at, self.now);
        match reading {
            Reading::Old => {}
            Reading::Newer => self.placement_due = true,
            Reading::WentBack(epoch) => {
                // A heartbeat reply will show whether it is the same server at all.
                let lowered = HeldLease { lease: name.clone(), epoch };
                if !self.lowered_epochs.contains(&lowered) {
                    self.lowered_epochs.push(lowered);
                }
                self.lineage.doubt();
                self.end_terms("the store shows an older state than before", effects);
                return self.trust.heartbeat_by(self.now);
            }
        }
        self.follow_row(name, effects);
    }

    /// Adapts the state to the holder in the row, unless a change of this lease is in flight.
    fn follow_row(&mut self, name: &Name, effects: &mut Vec<Effect>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        let Some(row) = &lease.row else { return };
        let ours = row.holder == self.node && !row.free;
        let (epoch, next) = (row.epoch, if ours { State::Dead(row.epoch) } else { State::NotHeld });
        match &lease.state {
            State::NotHeld | State::Unknown => lease.state = next,
            State::Dead(dead) if *dead != epoch || !ours => lease.state = next,
            State::Held(term) if term.epoch() != epoch || !ours => {
                self.lose(name, next, "the lease has another holder", effects);
            }
            _ => {}
        }
    }

    /// Marks the leases of a removed member as free.
    pub(super) fn free_leases_of(&mut self, dead: NodeId) {
        for lease in self.leases.values_mut() {
            if let Some(row) = lease.row.as_mut().filter(|row| row.holder == Some(dead) && !row.free) {
                row.free = true;
                lease.free_since = Some(self.now);
            }
        }
        self.placement_due = true;
    }
}
