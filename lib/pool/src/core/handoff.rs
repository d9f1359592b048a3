//! Checkout, checkin and the hand-off between them. Idle connections and waiters change together: whatever gives a
//! connection back offers it to the next waiter before anybody else can see it.

use std::{panic::Location, task::Waker, time::Duration};

use honeyflow_runtime::Moment;
use smallvec::SmallVec;

use super::{
    Carried, Class, Core, Effects, Key, Row, TICK, Tried,
    open::Worn,
    queue::{Fits, Place},
    ring::ServerState,
};
use crate::error::Kind;

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    pub class: Class,
    pub due: Moment,
    /// This server or none.
    pub target: Option<Key>,
    /// These rather than others.
    pub near: &'a [Key],
    /// These not again.
    pub tried: &'a [Key],
    pub idempotent: bool,
    pub site: Option<&'static Location<'static>>,
}

/// A connection on its way to a caller.
#[derive(Clone, Debug)]
pub struct Lent<K> {
    pub connection: Key,
    pub server: Key,
    pub carried: K,
    /// Since when: a waiter's from the hand-off on.
    pub begun: Moment,
    pub waited: Duration,
}

#[derive(Debug)]
pub enum Checkout<K> {
    Lent(Lent<K>),
    Queued(Key),
    Refused(Refusal),
}

#[derive(Debug)]
pub enum PickUp<K> {
    Lent(Lent<K>),
    Waiting,
    Refused(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub kind: Kind,
    pub waited: Duration,
    /// Of an early refusal: how long the wait would have been.
    pub estimate: Option<Duration>,
}

impl Refusal {
    pub fn of(kind: Kind) -> Refusal {
        Refusal { kind, waited: Duration::ZERO, estimate: None }
    }
}

/// How a loan ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The answer has come; the time counts for the server's health.
    Answered,
    /// The answer has come; somebody else judges what it means for the server.
    Finished,
    /// The connection has not been used.
    Unused,
    /// The caller left before its answer came.
    CutOff,
    /// The connection is of no more use.
    Discarded,
}

/// What a use says about a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    Answered(Duration),
    /// The server failed.
    Fault,
    /// No answer until the deadline.
    Silent,
    /// The request's own doing.
    Neutral,
}

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
    /// A connection at once, a place among the waiters, or a refusal.
    pub fn checkout(
        &mut self,
        request: &Request<'_>,
        now: Moment,
        waker: &Waker,
        effects: &mut Effects<K>,
    ) -> Checkout<K> {
        self.seen = self.seen.max(now);
        if let Some(kind) = self.state.refuses() {
            return Checkout::Refused(Refusal::of(kind));
        }
        let chosen = match request.target {
            None => self.choose(request, now),
            Some(target) => match self.servers.get(target).map(|row| row.state) {
                None | Some(ServerState::Leaving) => return Checkout::Refused(Refusal::of(Kind::UnknownServer)),
                Some(ServerState::Down) => return Checkout::Refused(Refusal::of(Kind::ServerDown)),
                Some(ServerState::Up | ServerState::Suspect) => Some(target),
            },
        };
        // A broken connection is found here at the latest; each one found is one less to look at.
        let mut next = chosen;
        while let Some(server) = next {
            match self.take_ready(server, effects) {
                Some(connection) => {
                    self.credit_request();
                    return Checkout::Lent(self.lend(connection, request.due, request.site, now, effects));
                }
                None if request.target.is_some() => break,
                None => next = self.choose(request, now).filter(|again| *again != server),
            }
        }
        self.enqueue(request, now, waker, effects)
    }

    /// A connection of this server with a free stream, if it lives.
    fn take_ready(&mut self, server: Key, effects: &mut Effects<K>) -> Option<Key> {
        loop {
            let row = self.servers.get(server)?;
            let at = match row.ready.len() {
                0 => return None,
                1 => 0,
                // Few, so looking at all is quick.
                _ if self.shared == Some(true) => {
                    let load = |at: &usize| self.connections.get(row.ready[*at]).map_or(0, |row| row.in_flight);
                    (0..row.ready.len()).min_by_key(load).unwrap_or(0)
                }
                _ if self.rules.lifo => row.ready.len() - 1,
                _ => 0,
            };
            let connection = row.ready[at];
            let found = self.connections.get(connection)?;
            if found.carried.broken() {
                self.counters.dead_idle += 1;
                self.remove(connection, effects);
                continue;
            }
            return Some(connection);
        }
    }

    pub(super) fn lend(
        &mut self,
        connection: Key,
        due: Moment,
        site: Option<&'static Location<'static>>,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> Lent<K> {
        let row = self.count_loan(connection, due, site, None, now, effects);
        let (server, carried) = (row.server, row.carried.clone());
        Lent { connection, server, carried, begun: now, waited: Duration::ZERO }
    }

    /// Counts the loan, a hand-off if somebody waited for it. The connection leaves the ready ones when it is full.
    #[inline]
    fn count_loan(
        &mut self,
        connection: Key,
        due: Moment,
        site: Option<&'static Location<'static>>,
        waited: Option<u64>,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> &mut Row<K> {
        let row = self.connections.get_mut(connection).expect("a ready connection exists");
        let server = self.servers.get_mut(row.server).expect("the server of a connection exists");
        row.in_flight += 1;
        if row.in_flight >= row.streams && row.in_ready {
            row.in_ready = false;
            if server.ready.front() == Some(&connection) {
                server.ready.pop_front();
            } else {
                server.ready.retain(|other| *other != connection);
            }
        }
        if row.streams == 1 {
            (row.due, row.lent_at, row.site, row.warned) = (due, now, site, false);
            let look_at = due.min(now.after(self.rules.loan_warn));
            if look_at < self.armed {
                self.armed = look_at;
                effects.rearm = true;
            }
        }
        row.record.checkouts += 1;
        row.record.first_checkout.get_or_insert(now);
        row.record.last_checkout = Some(now);
        server.in_flight += 1;
        server.served += 1;
        server.health.started();
        self.turn += 1;
        server.last_turn = self.turn;
        self.loans += 1;
        self.counters.checkouts += 1;
        if let Some(micros) = waited {
            row.record.hand_offs += 1;
            server.pace.count(now);
            server.waits.record_micros(micros);
            self.pace.count(now);
            self.counters.hand_offs += 1;
        }
        if self.tick_at == Moment::FAR {
            self.tick_at = now.after(TICK);
            effects.rearm = true;
        }
        row
    }

    fn enqueue(&mut self, request: &Request<'_>, now: Moment, waker: &Waker, effects: &mut Effects<K>) -> Checkout<K> {
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
                let (begun, waited) = (row.served, row.served.since(row.arrived));
                match self.connections.get(connection) {
                    Some(row) if !row.carried.broken() => {
                        self.waiters.discard(waiter);
                        let (server, carried) = (row.server, row.carried.clone());
                        return PickUp::Lent(Lent { connection, server, carried, begun, waited });
                    }
                    Some(_) => {
                        self.counters.dead_idle += 1;
                        self.remove(connection, effects);
                    }
                    None => {}
                }
                self.counters.checkins += 1;
                self.wait_on(waiter, now(), waker, effects)
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
                self.give_back(connection, Ending::Unused, Duration::ZERO, now, effects);
            }
        }
        self.drained(effects);
    }

    fn unqueue(&mut self, waiter: Key) {
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

    /// A loan comes back.
    pub fn checkin(&mut self, connection: Key, ending: Ending, used: Duration, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        self.counters.checkins += 1;
        self.give_back(connection, ending, used, now, effects);
        self.drained(effects);
    }

    pub(super) fn give_back(
        &mut self,
        connection: Key,
        ending: Ending,
        used: Duration,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        // Closed meanwhile, at its deadline or by a drain: nothing is left to come back.
        let Some(row) = self.connections.get_mut(connection) else { return };
        self.loans -= 1;
        row.record.checkins += 1;
        row.record.last_checkin = Some(now);
        let server = self.servers.get_mut(row.server).expect("the server of a connection exists");
        if ending == Ending::Answered {
            server.answered(used);
        }
        let exclusive = row.streams == 1;
        if row.carried.broken() || exclusive && matches!(ending, Ending::Discarded | Ending::CutOff) {
            row.in_flight -= 1;
            server.in_flight -= 1;
            self.remove(connection, effects);
            return;
        }
        if ending == Ending::CutOff {
            row.orphans += 1;
            row.oldest_orphan.get_or_insert(now);
            server.orphans += 1;
            if row.orphans > self.rules.max_orphans && row.worn.is_none() {
                row.worn = Some(Worn::Orphans);
                effects.reconcile = true;
            }
            return;
        }
        row.in_flight -= 1;
        row.idle_since = now;
        server.in_flight -= 1;
        row.due = Moment::FAR;
        let idles = self.waiting_in_all == 0 && !row.retiring && ending != Ending::Discarded;
        if idles && !row.in_ready {
            row.in_ready = true;
            server.ready.push_back(connection);
        }
        if matches!(ending, Ending::Answered | Ending::Finished) {
            // Loans of exclusive connections are watched by the clock, see `expire_loans`.
            self.counters.overdue_loans += u64::from(!exclusive && used >= self.rules.loan_warn);
            let decay = self.rules.decay(!exclusive);
            let aged = now >= row.age_due;
            if row.worn.is_none() && (aged || decay > 0 && self.draw() % 1_000_000_000 < u64::from(decay)) {
                let row = self.connections.get_mut(connection).expect("looked at just now");
                row.worn = Some(if aged { Worn::Age } else { Worn::Decay });
                effects.reconcile = true;
            }
        }
        if ending == Ending::Discarded {
            self.retire(connection, effects);
        } else if !idles {
            self.offer(connection, now, effects);
        }
    }

    /// The late answer of a caller that had gone: the stream is free again.
    pub fn answered_late(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        self.counters.late_answers += 1;
        let Some(row) = self.connections.get_mut(connection) else { return };
        row.orphans -= 1;
        row.in_flight -= 1;
        row.idle_since = now;
        if row.orphans == 0 {
            row.oldest_orphan = None;
        }
        if let Some(server) = self.servers.get_mut(row.server) {
            server.orphans -= 1;
            server.in_flight -= 1;
        }
        self.offer(connection, now, effects);
    }

    /// To waiters for as long as it has room and there are any, else to the idle ones.
    pub(super) fn offer(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        loop {
            let Some(row) = self.connections.get(connection) else { return };
            if row.retiring && row.in_flight == row.orphans {
                return self.remove(connection, effects);
            }
            if !row.takes_more() {
                return;
            }
            let server = row.server;
            let Some(waiter) = self.next_waiter(server) else { break };
            if !self.grant(connection, waiter, now, effects).takes_more() {
                return;
            }
        }
        let lifo_or_fifo_end = self.connections.get_mut(connection).filter(|row| !row.in_ready);
        if let Some(row) = lifo_or_fifo_end {
            row.in_ready = true;
            let server = row.server;
            self.servers.get_mut(server).expect("the server of a connection exists").ready.push_back(connection);
        }
    }

    /// All idle connections of a server to those who may have them: after it became eligible.
    pub(super) fn offer_idle(&mut self, server: Key, now: Moment, effects: &mut Effects<K>) {
        while self.servers.get(server).is_some_and(|row| !row.ready.is_empty()) {
            let Some(waiter) = self.next_waiter(server) else { return };
            let Some(connection) = self.take_ready(server, effects) else { return };
            self.grant(connection, waiter, now, effects);
        }
    }

    /// The same of all eligible servers. Broken ones found on the way may change who is.
    pub(super) fn offer_all(&mut self, now: Moment, effects: &mut Effects<K>) {
        let eligible: SmallVec<[Key; 8]> = self.eligible.iter().copied().collect();
        for server in eligible {
            self.offer_idle(server, now, effects);
        }
    }

    /// The first of those who want this server and those who take any.
    fn next_waiter(&mut self, server: Key) -> Option<Key> {
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

    fn grant(&mut self, connection: Key, waiter: Key, now: Moment, effects: &mut Effects<K>) -> &Row<K> {
        self.unqueue(waiter);
        let row = self.waiters.get_mut(waiter).expect("a queued waiter exists");
        (row.outcome, row.served) = (Outcome::Given(connection), now);
        effects.wake.add(row.waker.take());
        let (due, site, waited) = (row.due, row.site, now.micros_since(row.arrived));
        self.count_loan(connection, due, site, Some(waited), now, effects)
    }

    /// Whatever is due: waiters, loans, ticks. Says when to look again.
    pub fn expire(&mut self, now: Moment, effects: &mut Effects<K>) -> Moment {
        self.seen = self.seen.max(now);
        if now >= self.tick_at {
            self.tick(now, effects);
        }
        if now >= self.armed {
            self.expire_due(now, effects);
        }
        self.armed.min(self.tick_at)
    }

    fn expire_due(&mut self, now: Moment, effects: &mut Effects<K>) {
        let due: Vec<Key> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.queued() && waiter.due <= now)
            .map(|(key, _)| key)
            .collect();
        for waiter in due {
            self.counters.waiters_expired += 1;
            self.fail_waiter(waiter, Kind::WaitTimeout, effects);
        }
        self.expire_loans(now, effects);
        self.expire_leaving(now, effects);
        self.drained(effects);
        let waiters = self.waiters.iter().filter(|(_, waiter)| waiter.queued()).map(|(_, waiter)| waiter.due);
        let loans = self.connections.iter().filter(|(_, row)| row.in_flight > 0).map(|(_, row)| {
            let warn =
                if row.warned || row.streams > 1 { Moment::FAR } else { row.lent_at.after(self.rules.loan_warn) };
            row.due.min(warn)
        });
        let leaving = self.servers.iter().map(|(_, row)| row.leaves_by);
        self.armed = waiters.chain(loans).chain(leaving).min().unwrap_or(Moment::FAR);
    }

    fn expire_loans(&mut self, now: Moment, effects: &mut Effects<K>) {
        let mut late: Vec<Key> = Vec::new();
        for (key, row) in self.connections.iter_mut() {
            if row.streams > 1 || row.in_flight == 0 {
                continue;
            }
            if !row.warned && row.lent_at.after(self.rules.loan_warn) <= now {
                row.warned = true;
                self.counters.overdue_loans += 1;
                effects.overdue.extend(row.site);
            }
            if row.due <= now {
                late.push(key);
            }
        }
        for connection in late {
            // Given and not picked up: its waiter is told, the connection is as good as before.
            let given = self.waiters.iter().find(|(_, waiter)| waiter.outcome == Outcome::Given(connection));
            if let Some((waiter, _)) = given {
                self.counters.waiters_expired += 1;
                let row = self.waiters.get_mut(waiter).expect("found just now");
                row.outcome = Outcome::Failed(Kind::WaitTimeout);
                self.counters.checkins += 1;
                self.give_back(connection, Ending::Unused, Duration::ZERO, now, effects);
                continue;
            }
            self.counters.use_timeouts += 1;
            if let Some(row) = self.connections.get(connection)
                && let Some(server) = self.servers.get_mut(row.server)
            {
                server.health.silent();
            }
            self.remove(connection, effects);
        }
    }

    fn expire_leaving(&mut self, now: Moment, effects: &mut Effects<K>) {
        let due: Vec<Key> = self.servers.iter().filter(|(_, row)| row.leaves_by <= now).map(|(key, _)| key).collect();
        for server in due {
            if let Some(row) = self.servers.get_mut(server) {
                row.leaves_by = Moment::FAR;
            }
            let late: Vec<Key> =
                self.connections.iter().filter(|(_, row)| row.server == server).map(|(key, _)| key).collect();
            for connection in late {
                self.cut(connection, effects);
            }
        }
    }

    /// Ends a connection under its loans.
    pub(super) fn cut(&mut self, connection: Key, effects: &mut Effects<K>) -> u32 {
        let Some(row) = self.connections.get(connection) else { return 0 };
        let loans = row.in_flight - row.orphans;
        self.remove(connection, effects);
        loans
    }
}
