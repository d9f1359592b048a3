//! Those who wait: how they get in line, what becomes of them, and how they leave. Nobody is overtaken inside a class, and
//! whoever is put back has its old place.

use std::{panic::Location, task::Waker, time::Duration};

use honeyflow_runtime::Moment;

use super::{
    Carried, Checkout, Class, Core, Effects, Ending, Key, Lent, PickUp, Refusal, Request, Tried,
    queue::{Fits, Place},
    ring::ServerState,
};
use crate::error::Kind;

#[derive(Debug)]
pub struct Waiter {
    pub place: Place,
    pub class: Class,
    pub arrived: Moment,
    /// When it was given what it waited for.
    pub served: Moment,
    pub due: Moment,
    pub target: Option<Key>,
    /// Most have tried nobody yet.
    pub tried: Option<Box<Tried>>,
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
    pub fn queued(&self) -> bool {
        self.outcome == Outcome::Queued
    }

    pub fn may_take(&self, server: Key) -> bool {
        self.tried.as_ref().is_none_or(|tried| !tried.contains(&server))
    }
}

impl<K: Carried> Core<K> {
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
        if let Some(refusal) = self.too_late(request, now) {
            self.counters.refused_early += 1;
            return Checkout::Refused(refusal);
        }
        self.last_arrival = self.last_arrival.max(now);
        self.sequence += 1;
        let place = Place { arrival: self.last_arrival.after(request.class.handicap()), sequence: self.sequence };
        if self.waiting_in_all >= self.rules.queue_limit && !self.displace(place, effects) {
            self.counters.refused_full += 1;
            return Checkout::Refused(Refusal::of(Kind::QueueFull));
        }
        let waker = waker.clone();
        let waiter = self.waiters.insert(Waiter {
            place,
            class: request.class,
            arrived: now,
            served: Moment::default(),
            due: request.due,
            target: request.target,
            tried: (!request.tried.is_empty()).then(|| Box::new(Tried::from_slice(request.tried))),
            site: request.site,
            outcome: Outcome::Queued,
            waker: Some(waker),
        });
        self.credit_request();
        self.put_in_queue(waiter, place, request.class, request.target);
        if request.due < self.armed {
            self.armed = request.due;
            effects.rearm = true;
        }
        // Growth above the target begins when somebody waits.
        effects.reconcile |= self.rules.max.is_some();
        Checkout::Queued(waiter)
    }

    fn put_in_queue(&mut self, waiter: Key, place: Place, class: Class, target: Option<Key>) {
        let queue = match target {
            None => Some(&mut self.waiting),
            Some(target) => self.servers.get_mut(target).map(|row| &mut row.waiting),
        };
        if let Some(queue) = queue {
            queue.put(class, place, waiter);
            self.waiting_in_all += 1;
        }
    }

    /// The last of all makes room for one who comes before it.
    fn displace(&mut self, newcomer: Place, effects: &mut Effects<K>) -> bool {
        let waiters = &self.waiters;
        let waits = |key: Key| waiters.get(key).is_some_and(Waiter::queued);
        let queues = std::iter::once(&self.waiting).chain(self.servers.iter().map(|(_, row)| &row.waiting));
        let last = queues.filter_map(|queue| queue.last(waits)).max_by_key(|(place, _)| *place);
        match last {
            Some((place, waiter)) if newcomer < place => {
                self.counters.waiters_displaced += 1;
                self.fail_waiter(waiter, Kind::QueueFull, effects);
                true
            }
            _ => false,
        }
    }

    /// Whether the wait would outlast the deadline, as far as that can be told.
    fn too_late(&mut self, request: &Request<'_>, now: Moment) -> Option<Refusal> {
        if !self.rules.early_refusal {
            return None;
        }
        let estimate = match request.target {
            Some(target) => {
                let row = self.servers.get_mut(target)?;
                let ahead = row.waiting.ahead_of(request.class);
                row.pace.beyond(request.due, ahead, now)
            }
            None if self.eligible.is_empty() => {
                // Nothing is open: hopeless only if no server will even be tried in time.
                let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
                let next = ring
                    .filter(|row| row.state != ServerState::Leaving && self.rules.wants(row.tier))
                    .map(|row| if row.opening > 0 { now } else { row.connecting.next_try })
                    .min()?;
                (next > request.due).then(|| next.since(now))
            }
            None => self.pace.beyond(request.due, self.waiting.ahead_of(request.class), now),
        }?;
        Some(Refusal { kind: Kind::WouldTimeOut, waited: Duration::ZERO, estimate: Some(estimate) })
    }

    /// What has become of a waiter; asked by its owner, who was woken or is just curious. The clock is read only if what
    /// it was given is no more: its wait ended with the hand-off.
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
                    let loan = if exclusive { None } else { self.loan_out(site, begun) };
                    return PickUp::Lent(Lent { connection, server, carried, begun, waited, loan });
                }
                let (broken, now) = (found.map(|row| row.carried.broken()), now());
                match broken {
                    Some(true) => {
                        self.counters.dead_idle += 1;
                        self.lost(connection, now, effects);
                    }
                    // It is under way there for others.
                    Some(false) => {
                        self.goes(connection, now, effects);
                        self.give_back(connection, Ending::Unused, 0, now, effects);
                    }
                    None => {}
                }
                self.counters.checkins += 1;
                self.wait_on(waiter, now, waker, effects)
            }
        }
    }

    /// Its connection died on the way: back to the old place, with the old deadline.
    fn wait_on(&mut self, waiter: Key, now: Moment, waker: &Waker, effects: &mut Effects<K>) -> PickUp<K> {
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
        let (place, class, target) = (row.place, row.class, row.target);
        self.put_in_queue(waiter, place, class, target);
        match target {
            Some(server) => self.offer_idle(server, now, effects),
            None => self.offer_all(now, effects),
        }
        // If there was another one idle it has been given already, and the wake-up is on its way.
        PickUp::Waiting
    }

    /// The waiter has gone. What it had been given goes to the next in the same step.
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
        self.drained(effects);
    }

    pub(super) fn unqueue(&mut self, waiter: Key) {
        let Some(row) = self.waiters.get_mut(waiter) else { return };
        let (class, target) = (row.class, row.target);
        self.waiting_in_all -= 1;
        let waiters = &self.waiters;
        let waits = |key: Key| key != waiter && waiters.get(key).is_some_and(Waiter::queued);
        match target {
            None => self.waiting.left(class, waiter, waits),
            Some(target) => {
                if let Some(row) = self.servers.get_mut(target) {
                    row.waiting.left(class, waiter, waits);
                }
            }
        }
    }

    pub(super) fn fail_waiter(&mut self, waiter: Key, kind: Kind, effects: &mut Effects<K>) {
        if self.waiters.get(waiter).is_some_and(Waiter::queued) {
            self.unqueue(waiter);
            let row = self.waiters.get_mut(waiter).expect("looked at just now");
            row.outcome = Outcome::Failed(kind);
            effects.wake.add(row.waker.take());
        }
    }

    /// The first of those who want this server and those who take any.
    pub(super) fn next_waiter(&mut self, server: Key) -> Option<Key> {
        if self.waiting_in_all == 0 {
            return None;
        }
        let waiters = &self.waiters;
        let fits = |key: Key| match waiters.get(key).filter(|waiter| waiter.queued()) {
            None => Fits::Gone,
            Some(waiter) if waiter.may_take(server) => Fits::Yes,
            Some(_) => Fits::No,
        };
        let row = self.servers.get_mut(server)?;
        let any = if row.eligible { self.waiting.first(fits) } else { None };
        let first = if row.waiting.is_empty() { any } else { row.waiting.first(fits).into_iter().chain(any).min() };
        first.map(|(_, waiter)| waiter)
    }
}
