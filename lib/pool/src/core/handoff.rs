//! Checkout, checkin and the hand-off between them. Idle connections and waiters change together: whatever gives a
//! connection back offers it to the next waiter before anybody else can see it.

use std::{panic::Location, task::Waker, time::Duration};

use honeyflow_runtime::Moment;
use smallvec::SmallVec;

use super::{Carried, Class, Core, Effects, Key, Row, TICK, open::Worn, ring::ServerState, waiting::Outcome};
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
    /// In microseconds.
    pub waited: u64,
    /// Of a shared connection: to be given back with [`Core::loan_over`].
    pub loan: Option<Key>,
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
    /// No answer in this time, and nobody waits any longer: another server was quicker.
    Overtaken(Duration),
    /// No answer until the deadline.
    Silent,
    /// The request's own doing.
    Neutral,
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
            match self.take_ready(server, now, effects) {
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

    /// A connection of this server with a free stream, if it lives and is not about to end.
    fn take_ready(&mut self, server: Key, now: Moment, effects: &mut Effects<K>) -> Option<Key> {
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
                self.lost(connection, now, effects);
                continue;
            }
            if found.says_goodbye() {
                self.goes(connection, now, effects);
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
        let (server, carried, exclusive) = (row.server, row.carried.clone(), row.exclusive);
        let loan = if exclusive { None } else { self.loan_out(site, now) };
        Lent { connection, server, carried, begun: now, waited: 0, loan }
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
        if row.exclusive {
            (row.due, row.lent_at, row.site, row.warned) = (due, now, site, false);
            let look_at = due.min(now.after(self.rules.loan_warn));
            if look_at < self.armed {
                self.armed = look_at;
                effects.rearm = true;
            }
        }
        row.record.checkouts.add(now);
        server.in_flight += 1;
        server.served += 1;
        server.health.started();
        self.turn += 1;
        server.last_turn = self.turn;
        self.loans += 1;
        self.counters.checkouts += 1;
        if let Some(micros) = waited {
            row.record.hand_offs.add(now);
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

    /// A loan comes back, used for so many microseconds.
    pub fn checkin(&mut self, connection: Key, ending: Ending, used: u64, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        self.counters.checkins += 1;
        self.give_back(connection, ending, used, now, effects);
        self.drained(effects);
    }

    pub(super) fn give_back(
        &mut self,
        connection: Key,
        ending: Ending,
        used: u64,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        // Closed meanwhile, at its deadline or by a drain: nothing is left to come back.
        let Some(row) = self.connections.get_mut(connection) else { return };
        self.loans -= 1;
        row.record.checkins.add(now);
        let server = self.servers.get_mut(row.server).expect("the server of a connection exists");
        if ending == Ending::Answered {
            row.answered = true;
            server.answered(used);
        }
        let exclusive = row.exclusive;
        let broken = row.carried.broken();
        if broken || exclusive && matches!(ending, Ending::Discarded | Ending::CutOff) {
            row.in_flight -= 1;
            server.in_flight -= 1;
            if broken {
                self.lost(connection, now, effects);
            } else {
                self.remove(connection, effects);
            }
            return;
        }
        if ending == Ending::CutOff {
            row.orphans += 1;
            row.orphaned.push_back(now);
            server.orphans += 1;
            if row.orphans > self.rules.max_orphans && row.worn.is_none() {
                row.worn = Some(Worn::Orphans);
                effects.reconcile = true;
            }
            // Nobody waits for the answers of one that is to go.
            if row.retiring && row.in_flight == row.orphans {
                self.remove(connection, effects);
            }
            return;
        }
        row.in_flight -= 1;
        row.idle_since = now;
        server.in_flight -= 1;
        row.due = Moment::FAR;
        let idles = self.waiting_in_all == 0 && row.takes_more() && ending != Ending::Discarded;
        if idles && !row.in_ready {
            row.in_ready = true;
            server.ready.push_back(connection);
        }
        if matches!(ending, Ending::Answered | Ending::Finished) {
            let decay = self.rules.decay(!exclusive);
            let aged = now >= row.age_due;
            if row.worn.is_none() && (aged || decay > 0 && self.falls(decay)) {
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

    /// The stream of a caller that had gone at that time is free again: by its late answer, or because it was never sent.
    pub fn orphan_over(
        &mut self,
        connection: Key,
        gone_at: Moment,
        answered: bool,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        let Some(row) = self.connections.get_mut(connection) else { return };
        self.counters.late_answers += u64::from(answered);
        row.answered |= answered;
        row.orphans -= 1;
        row.in_flight -= 1;
        row.idle_since = now;
        if let Some(at) = row.orphaned.iter().position(|at| *at == gone_at) {
            row.orphaned.remove(at);
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
            if row.says_goodbye() {
                return self.goes(connection, now, effects);
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
            let Some(connection) = self.take_ready(server, now, effects) else { return };
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

    pub(super) fn grant(&mut self, connection: Key, waiter: Key, now: Moment, effects: &mut Effects<K>) -> &Row<K> {
        self.unqueue(waiter);
        let row = self.waiters.get_mut(waiter).expect("a queued waiter exists");
        (row.outcome, row.served) = (Outcome::Given(connection), now);
        effects.wake.add(row.waker.take());
        let (due, site, waited) = (row.due, row.site, now.micros_since(row.arrived));
        self.count_loan(connection, due, site, Some(waited), now, effects)
    }

    /// Ends a connection under its loans.
    pub(super) fn cut(&mut self, connection: Key, effects: &mut Effects<K>) -> u32 {
        let Some(row) = self.connections.get(connection) else { return 0 };
        let loans = row.in_flight - row.orphans;
        self.remove(connection, effects);
        loans
    }
}
