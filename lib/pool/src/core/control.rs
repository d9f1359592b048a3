//! The states of a pool and the ways between them.
//!
//! | from \ command | enable | activate | deactivate | disable | close |
//! |---|---|---|---|---|---|
//! | disabled | inactive | – | – | – | closed |
//! | inactive | – | active | – | draining → disabled | draining → closed |
//! | active | – | – | draining → inactive | draining → disabled | draining → closed |
//! | draining(x) | – | – | – | x becomes disabled if x was inactive | x becomes closed |
//! | closed, broken | – | – | – | – | closed |

use std::{fmt, sync::Arc};

use honeyflow_runtime::Moment;

use super::{Carried, Change, Core, Effects, Key};
use crate::error::Kind;

/// Where a drain leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Next {
    Inactive,
    Disabled,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Disabled,
    Inactive,
    Active,
    Draining(Next),
    Closed,
    Broken,
}

impl State {
    /// Why a request is turned away, if it is.
    #[inline]
    pub fn refuses(self) -> Option<Kind> {
        match self {
            State::Active => None,
            State::Disabled => Some(Kind::Disabled),
            State::Inactive => Some(Kind::Inactive),
            State::Draining(_) => Some(Kind::Draining),
            State::Closed => Some(Kind::Closed),
            State::Broken => Some(Kind::Broken),
        }
    }

    /// Whether servers may be looked for.
    pub fn looks(self) -> bool {
        matches!(self, State::Inactive | State::Active)
    }
}

impl From<Next> for State {
    fn from(next: Next) -> State {
        match next {
            Next::Inactive => State::Inactive,
            Next::Disabled => State::Disabled,
            Next::Closed => State::Closed,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Disabled => "disabled",
            State::Inactive => "inactive",
            State::Active => "active",
            State::Draining(_) => "draining",
            State::Closed => "closed",
            State::Broken => "broken",
        })
    }
}

/// What became of loans and waiters in a drain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drained {
    /// Loans that came back in time.
    pub finished: usize,
    pub aborted: usize,
    pub waiters_failed: usize,
    /// Connections that were closed.
    pub closed: usize,
}

#[derive(Debug)]
pub struct Draining {
    serve_waiters: bool,
    loans: usize,
    waiters: usize,
    checkouts: u64,
    waiters_failed: usize,
}

impl<K: Carried> Core<K> {
    pub fn state(&self) -> State {
        self.state
    }

    pub fn broken_by(&self) -> Option<Arc<str>> {
        self.broken_by.clone()
    }

    fn go(&mut self, now: State, effects: &mut Effects<K>) -> (State, State) {
        let before = std::mem::replace(&mut self.state, now);
        if before != now {
            effects.changes.push(Change::State { before, now });
            effects.reconcile = true;
            effects.rearm = true;
        }
        (before, now)
    }

    pub fn enable(&mut self, effects: &mut Effects<K>) -> (State, State) {
        let now = if self.state == State::Disabled { State::Inactive } else { self.state };
        self.go(now, effects)
    }

    pub fn activate(&mut self, effects: &mut Effects<K>) -> (State, State) {
        let now = if self.state == State::Inactive { State::Active } else { self.state };
        self.go(now, effects)
    }

    /// New requests are turned away from here on. Waiters are served on or failed, as asked.
    pub fn begin_drain(&mut self, next: Next, serve_waiters: bool, effects: &mut Effects<K>) -> (State, State) {
        let now = match self.state {
            State::Active => State::Draining(next),
            State::Inactive if next != Next::Inactive => State::Draining(next),
            State::Draining(other) => State::Draining(other.max(next)),
            State::Disabled | State::Broken if next == Next::Closed => State::Draining(next),
            other => other,
        };
        let moved = self.go(now, effects);
        if matches!(now, State::Draining(_)) && self.draining.is_none() {
            self.draining = Some(Draining {
                serve_waiters,
                loans: self.loans,
                waiters: self.waiting_in_all,
                checkouts: self.counters.hand_offs,
                waiters_failed: 0,
            });
        }
        if let Some(draining) = &mut self.draining {
            draining.serve_waiters &= serve_waiters;
            if !draining.serve_waiters {
                let failed = self.fail_all_waiters(Kind::Draining, effects);
                self.draining.as_mut().expect("looked at just now").waiters_failed += failed;
            }
        }
        moved
    }

    pub(super) fn serves_waiters(&self) -> bool {
        self.draining.as_ref().is_some_and(|draining| draining.serve_waiters)
    }

    /// Whether nothing is on loan and nobody waits any more.
    pub fn is_drained(&self) -> bool {
        self.loans == 0 && self.waiting_in_all == 0
    }

    /// Whoever waits for a drain looks again.
    #[inline]
    pub(super) fn drained(&self, effects: &mut Effects<K>) {
        effects.reconcile |= self.draining.is_some();
    }

    /// The drain is over, in time or not: what is left is failed and cut.
    pub fn finish_drain(&mut self, now: Moment, effects: &mut Effects<K>) -> Drained {
        let State::Draining(next) = self.state else { return Drained::default() };
        let failed = self.fail_all_waiters(Kind::Draining, effects);
        let all: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        let closed = all.len();
        let aborted: u32 = all.into_iter().map(|connection| self.cut(connection, effects)).sum();
        let draining = self.draining.take().expect("a draining pool knows since when");
        let served = usize::try_from(self.counters.hand_offs.saturating_sub(draining.checkouts)).unwrap_or(0);
        self.refresh_eligible(now, effects);
        self.go(next.into(), effects);
        Drained {
            finished: (draining.loans + served.min(draining.waiters)).saturating_sub(aborted as usize),
            aborted: aborted as usize,
            waiters_failed: draining.waiters_failed + failed,
            closed,
        }
    }

    pub(super) fn fail_all_waiters(&mut self, kind: Kind, effects: &mut Effects<K>) -> usize {
        let queued: Vec<Key> = self.waiters.iter().filter(|(_, waiter)| waiter.queued()).map(|(key, _)| key).collect();
        let count = queued.len();
        for waiter in queued {
            self.fail_waiter(waiter, kind, effects);
        }
        count
    }

    /// A step of ours panicked half-way: counts may be wrong, so nothing is touched but those who wait.
    pub fn broke(&mut self, why: &str, effects: &mut Effects<K>) {
        (self.state, self.draining, self.broken_by) = (State::Broken, None, Some(why.into()));
        for (_, waiter) in self.waiters.iter_mut() {
            waiter.outcome = super::waiting::Outcome::Failed(Kind::Broken);
            effects.wake.add(waiter.waker.take());
        }
    }

    /// The pool's own tasks failed too often: everybody is told, connections go.
    pub fn breaks(&mut self, why: &str, effects: &mut Effects<K>) {
        if matches!(self.state, State::Closed | State::Broken) {
            return;
        }
        self.broken_by = Some(why.into());
        self.draining = None;
        self.go(State::Broken, effects);
        self.fail_all_waiters(Kind::Broken, effects);
        let idle: Vec<Key> =
            self.connections.iter().filter(|(_, row)| row.in_flight == 0).map(|(key, _)| key).collect();
        idle.into_iter().for_each(|connection| self.remove(connection, effects));
    }
}
