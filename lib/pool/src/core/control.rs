//! The states of a pool and the transitions between them.
//!
//! | from \ command | enable | activate | deactivate | disable | close |
//! |---|---|---|---|---|---|
//! | disabled | inactive | – | – | – | closed |
//! | inactive | – | active | – | draining → disabled | draining → closed |
//! | active | – | – | draining → inactive | draining → disabled | draining → closed |
//! | draining(x) | – | – | – | x becomes disabled, unless it is closed | x becomes closed |
//! | closed, broken | – | – | – | – | closed |

use std::{fmt, sync::Arc};

use honeyflow_runtime::Moment;

use super::{Change, Core, Effects, Key, PooledConnection};
use crate::error::Kind;

/// The state that a drain ends in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DrainTarget {
    Inactive,
    Disabled,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Disabled,
    Inactive,
    Active,
    Draining(DrainTarget),
    Closed,
    Broken,
}

impl State {
    /// Why the pool refuses requests in this state, if it does.
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

    /// Whether discovery runs in this state.
    pub fn allows_discovery(self) -> bool {
        matches!(self, State::Inactive | State::Active)
    }
}

impl From<DrainTarget> for State {
    fn from(next: DrainTarget) -> State {
        match next {
            DrainTarget::Inactive => State::Inactive,
            DrainTarget::Disabled => State::Disabled,
            DrainTarget::Closed => State::Closed,
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

/// The result of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DrainReport {
    /// Loans that came back in time.
    pub finished: usize,
    pub aborted: usize,
    pub waiters_failed: usize,
    /// The number of connections that were closed.
    pub closed: usize,
}

#[derive(Debug)]
pub struct DrainProgress {
    serve_waiters: bool,
    loans: usize,
    waiters: usize,
    checkouts: u64,
    waiters_failed: usize,
}

impl<K: PooledConnection> Core<K> {
    pub fn state(&self) -> State {
        self.state
    }

    pub fn broken_by(&self) -> Option<Arc<str>> {
        self.broken_by.clone()
    }

    fn set_state(&mut self, now: State, effects: &mut Effects<K>) -> (State, State) {
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
        self.set_state(now, effects)
    }

    pub fn activate(&mut self, effects: &mut Effects<K>) -> (State, State) {
        let now = if self.state == State::Inactive { State::Active } else { self.state };
        self.set_state(now, effects)
    }

    /// Starts a drain: new requests are refused from here on. Waiters are still served if `serve_waiters`, else they
    /// fail.
    pub fn begin_drain(&mut self, next: DrainTarget, serve_waiters: bool, effects: &mut Effects<K>) -> (State, State) {
        let now = match self.state {
            State::Active => State::Draining(next),
            State::Inactive if next != DrainTarget::Inactive => State::Draining(next),
            State::Draining(other) => State::Draining(other.max(next)),
            State::Disabled | State::Broken if next == DrainTarget::Closed => State::Draining(next),
            other => other,
        };
        let moved = self.set_state(now, effects);
        if matches!(now, State::Draining(_)) && self.draining.is_none() {
            self.draining = Some(DrainProgress {
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
                self.draining.as_mut().expect("checked above").waiters_failed += failed;
            }
        }
        moved
    }

    pub(super) fn serves_waiters(&self) -> bool {
        self.draining.as_ref().is_some_and(|draining| draining.serve_waiters)
    }

    /// Whether there are no loans and no waiters.
    pub fn is_drained(&self) -> bool {
        self.loans == 0 && self.waiting_in_all == 0
    }

    /// Wakes the task that waits for the end of a drain, if one is in progress.
    #[inline]
    pub(super) fn signal_drain(&self, effects: &mut Effects<K>) {
        effects.reconcile |= self.draining.is_some();
    }

    /// Ends the drain, in time or not: the remaining waiters fail and the remaining loans are cut off.
    pub fn finish_drain(&mut self, now: Moment, effects: &mut Effects<K>) -> DrainReport {
        let State::Draining(next) = self.state else { return DrainReport::default() };
        let failed = self.fail_all_waiters(Kind::Draining, effects);
        let all: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        let closed = all.len();
        let aborted: u32 = all.into_iter().map(|connection| self.cut_off(connection, effects)).sum();
        let draining = self.draining.take().expect("a draining pool has its progress");
        let served = usize::try_from(self.counters.hand_offs.saturating_sub(draining.checkouts)).unwrap_or(0);
        self.refresh_eligible(now, effects);
        self.set_state(next.into(), effects);
        DrainReport {
            finished: (draining.loans + served.min(draining.waiters)).saturating_sub(aborted as usize),
            aborted: aborted as usize,
            waiters_failed: draining.waiters_failed + failed,
            closed,
        }
    }

    pub(super) fn fail_all_waiters(&mut self, kind: Kind, effects: &mut Effects<K>) -> usize {
        let queued: Vec<Key> =
            self.waiters.iter().filter(|(_, waiter)| waiter.is_queued()).map(|(key, _)| key).collect();
        let count = queued.len();
        for waiter in queued {
            self.fail_waiter(waiter, kind, effects);
        }
        count
    }

    /// Breaks the pool after a step panicked half-way. Counters may be wrong, so it only fails the waiters.
    pub fn break_after_panic(&mut self, why: &str, effects: &mut Effects<K>) {
        (self.state, self.draining, self.broken_by) = (State::Broken, None, Some(why.into()));
        for (_, waiter) in self.waiters.iter_mut() {
            waiter.outcome = super::waiting::Outcome::Failed(Kind::Broken);
            effects.wake.add(waiter.waker.take());
        }
    }

    /// Breaks the pool because its tasks failed too often: all waiters fail, idle connections close.
    pub fn break_pool(&mut self, why: &str, effects: &mut Effects<K>) {
        if matches!(self.state, State::Closed | State::Broken) {
            return;
        }
        self.broken_by = Some(why.into());
        self.draining = None;
        self.set_state(State::Broken, effects);
        self.fail_all_waiters(Kind::Broken, effects);
        let idle: Vec<Key> =
            self.connections.iter().filter(|(_, row)| row.in_flight == 0).map(|(key, _)| key).collect();
        idle.into_iter().for_each(|connection| self.remove(connection, effects));
    }
}
