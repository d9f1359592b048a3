//! Waiters: how a request joins the queue, what it gets, and how it leaves. Inside a class, waiters are served in the
//! order of their arrival. A waiter that is put back keeps its old position.

use std::{panic::Location, task::Waker, time::Duration};

use honeyflow_runtime::Moment;

use super::{
    Checkout, Class, Core, Effects, Ending, Key, LentConnection, PickUp, PooledConnection, Refusal, Request,
    TriedServers,
    queue::{QueuePosition, WaiterFit},
    ring::ServerState,
};
use crate::error::Kind;

#[derive(Debug)]
pub struct Waiter {
    pub position: QueuePosition,
    pub class: Class,
    pub arrived: Moment,
    /// When it was given a connection.
    pub served: Moment,
    pub due: Moment,
    pub target: Option<Key>,
    /// The servers that the request has tried; most requests have tried none.
    pub tried: Option<Box<TriedServers>>,
    pub site: Option<&'static Location<'static>>,
    pub outcome: Outcome,
    pub waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Queued,
    Given(Key),
    Failed(Kind),
}

impl Waiter {
    pub fn is_queued(&self) -> bool {
        self.outcome == Outcome::Queued
    }

    pub fn may_take(&self, server: Key) -> bool {
        self.tried.as_ref().is_none_or(|tried| !tried.contains(&server))
    }
}

impl<K: PooledConnection> Core<K> {
    pub(super) fn enqueue(
        &mut self,
        request: &Request<'_>,
        now: Moment,
        waker: &Waker,
        effects: &mut Effects<K>,
    ) -> Checkout<K> {
        if self.rules.fail_when_empty {
            return Checkout::Refused(Refusal::of(Kind::NoConnection));
        }
        if let Some(refusal) = self.early_refusal(request, now) {
            self.counters.refused_early += 1;
            return Checkout::Refused(refusal);
        }
        self.last_arrival = self.last_arrival.max(now);
        self.sequence += 1;
        let position =
            QueuePosition { arrival: self.last_arrival.after(request.class.handicap()), sequence: self.sequence };
        if self.waiting_in_all >= self.rules.queue_limit && !self.displace(position, effects) {
            self.counters.refused_full += 1;
            return Checkout::Refused(Refusal::of(Kind::QueueFull));
        }
        let waker = waker.clone();
        let waiter = self.waiters.insert(Waiter {
            position,
            class: request.class,
            arrived: now,
            served: Moment::default(),
            due: request.due,
            target: request.target,
            tried: (!request.tried.is_empty()).then(|| Box::new(TriedServers::from_slice(request.tried))),
            site: request.site,
            outcome: Outcome::Queued,
            waker: Some(waker),
        });
        self.credit_request();
        self.put_in_queue(waiter, position, request.class, request.target);
        if request.due < self.armed {
            self.armed = request.due;
            effects.rearm = true;
        }
        // The reconciler opens connections above the target while requests wait.
        effects.reconcile |= self.rules.max.is_some();
        Checkout::Queued(waiter)
    }

    fn put_in_queue(&mut self, waiter: Key, position: QueuePosition, class: Class, target: Option<Key>) {
        let queue = match target {
            None => Some(&mut self.waiting),
            Some(target) => self.servers.get_mut(target).map(|row| &mut row.waiting),
        };
        if let Some(queue) = queue {
            queue.put(class, position, waiter);
            self.waiting_in_all += 1;
        }
    }

    /// Fails the last waiter of all queues to make room, if the newcomer goes before it.
    fn displace(&mut self, newcomer: QueuePosition, effects: &mut Effects<K>) -> bool {
        let waiters = &self.waiters;
        let waits = |key: Key| waiters.get(key).is_some_and(Waiter::is_queued);
        let queues = std::iter::once(&self.waiting).chain(self.servers.iter().map(|(_, row)| &row.waiting));
        let last = queues.filter_map(|queue| queue.last(waits)).max_by_key(|(position, _)| *position);
        match last {
            Some((position, waiter)) if newcomer < position => {
                self.counters.waiters_displaced += 1;
                self.fail_waiter(waiter, Kind::QueueFull, effects);
                true
            }
            _ => false,
        }
    }

    /// Returns a refusal if the estimated wait is longer than the deadline allows.
    fn early_refusal(&mut self, request: &Request<'_>, now: Moment) -> Option<Refusal> {
        if !self.rules.early_refusal {
            return None;
        }
        let estimate = match request.target {
            Some(target) => {
                let row = self.servers.get_mut(target)?;
                let ahead = row.waiting.ahead_of(request.class);
                row.pace.estimate_beyond(request.due, ahead, now)
            }
            None if self.eligible.is_empty() => {
                // No connection is open: refuse only if no server will be tried before the deadline.
                let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
                let next = ring
                    .filter(|row| row.state != ServerState::Leaving && self.rules.wants(row.tier))
                    .map(|row| if row.opening > 0 { now } else { row.connecting.next_try })
                    .min()?;
                (next > request.due).then(|| next.since(now))
            }
            None => self.pace.estimate_beyond(request.due, self.waiting.ahead_of(request.class), now),
        }?;
        Some(Refusal { kind: Kind::WouldTimeOut, waited: Duration::ZERO, estimate: Some(estimate) })
    }

    /// Returns what a waiter got, if anything. The clock is read only if the wait failed or the granted connection has
    /// ended, since the wait itself ended with the hand-off.
    pub fn pick_up(
        &mut self,
        waiter: Key,
        now: impl FnOnce() -> Moment,
        waker: &Waker,
        effects: &mut Effects<K>,
    ) -> PickUp<K> {
        let Some(row) = self.waiters.get_mut(waiter) else { return PickUp::Refused(Refusal::of(Kind::Broken)) };
        match row.outcome {
            Outcome::Queued => {
                if row.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                    row.waker = Some(waker.clone());
                }
                PickUp::Waiting
            }
            Outcome::Failed(kind) => {
                let waited = now().since(row.arrived);
                self.waiters.discard(waiter);
                PickUp::Refused(Refusal { waited, ..Refusal::of(kind) })
            }
            Outcome::Given(connection) => {
                let (begun, waited, site) = (row.served, row.served.micros_since(row.arrived), row.site);
                let found = self.connections.get(connection);
                if let Some(row) = found.filter(|row| !row.carried.broken() && !row.says_goodbye()) {
                    self.waiters.discard(waiter);
                    let (server, carried, exclusive) = (row.server, row.carried.clone(), row.exclusive);
                    let loan = if exclusive { None } else { self.begin_shared_loan(site, begun) };
                    return PickUp::Lent(LentConnection { connection, server, carried, begun, waited, loan });
                }
                let (broken, now) = (found.map(|row| row.carried.broken()), now());
                match broken {
                    Some(true) => {
                        self.counters.dead_idle += 1;
                        self.remove_broken(connection, now, effects);
                    }
                    // Other requests still run on it.
                    Some(false) => {
                        self.on_goodbye(connection, now, effects);
                        self.give_back(connection, Ending::Unused, 0, now, effects);
                    }
                    None => {}
                }
                self.counters.checkins += 1;
                self.requeue(waiter, now, waker, effects)
            }
        }
    }

    /// Puts a waiter whose connection died before use back to its old position, with its old deadline.
    fn requeue(&mut self, waiter: Key, now: Moment, waker: &Waker, effects: &mut Effects<K>) -> PickUp<K> {
        let serves = self.serves_waiters();
        let row = self.waiters.get_mut(waiter).expect("a waiter in hand exists");
        let gone = row.target.is_some_and(|target| {
            self.servers.get(target).is_none_or(|row| matches!(row.state, ServerState::Leaving | ServerState::Down))
        });
        let kind = self.state.refuses().filter(|_| !serves);
        let kind = kind.or(if row.due <= now { Some(Kind::WaitTimeout) } else { None });
        if let Some(kind) = kind.or(gone.then_some(Kind::ServerDown)) {
            let waited = now.since(row.arrived);
            self.waiters.discard(waiter);
            return PickUp::Refused(Refusal { waited, ..Refusal::of(kind) });
        }
        (row.outcome, row.waker) = (Outcome::Queued, Some(waker.clone()));
        if row.due < self.armed {
            self.armed = row.due;
            effects.rearm = true;
        }
        let (position, class, target) = (row.position, row.class, row.target);
        self.put_in_queue(waiter, position, class, target);
        match target {
            Some(server) => self.offer_idle(server, now, effects),
            None => self.offer_all(now, effects),
        }
        // If another connection was idle, it has been granted already and the waiter will be woken.
        PickUp::Waiting
    }

    /// Removes a waiter that went away. A connection that it was given goes to the next waiter in the same step.
    pub fn cancel(&mut self, waiter: Key, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.waiters.get(waiter) else { return };
        let outcome = row.outcome;
        if outcome == Outcome::Queued {
            self.unqueue(waiter);
        }
        self.waiters.discard(waiter);
        match outcome {
            Outcome::Queued => self.counters.waiters_gone += 1,
            Outcome::Failed(_) => {}
            Outcome::Given(connection) => {
                self.counters.waiters_gone += 1;
                self.counters.checkins += 1;
                self.give_back(connection, Ending::Unused, 0, now, effects);
            }
        }
        self.signal_drain(effects);
    }

    pub(super) fn unqueue(&mut self, waiter: Key) {
        let Some(row) = self.waiters.get_mut(waiter) else { return };
        let (class, target) = (row.class, row.target);
        self.waiting_in_all -= 1;
        let waiters = &self.waiters;
        let waits = |key: Key| key != waiter && waiters.get(key).is_some_and(Waiter::is_queued);
        match target {
            None => self.waiting.remove(class, waiter, waits),
            Some(target) => {
                if let Some(row) = self.servers.get_mut(target) {
                    row.waiting.remove(class, waiter, waits);
                }
            }
        }
    }

    pub(super) fn fail_waiter(&mut self, waiter: Key, kind: Kind, effects: &mut Effects<K>) {
        if self.waiters.get(waiter).is_some_and(Waiter::is_queued) {
            self.unqueue(waiter);
            let row = self.waiters.get_mut(waiter).expect("checked above");
            row.outcome = Outcome::Failed(kind);
            effects.wake.add(row.waker.take());
        }
    }

    /// The first waiter that may take a connection of this server.
    pub(super) fn next_waiter(&mut self, server: Key) -> Option<Key> {
        if self.waiting_in_all == 0 {
            return None;
        }
        let waiters = &self.waiters;
        let fits = |key: Key| match waiters.get(key).filter(|waiter| waiter.is_queued()) {
            None => WaiterFit::Gone,
            Some(waiter) if waiter.may_take(server) => WaiterFit::Yes,
            Some(_) => WaiterFit::No,
        };
        let row = self.servers.get_mut(server)?;
        let any = if row.eligible { self.waiting.first(fits) } else { None };
        let first = if row.waiting.is_empty() { any } else { row.waiting.first(fits).into_iter().chain(any).min() };
        first.map(|(_, waiter)| waiter)
    }
}
