//! Checkout, checkin and the hand-off between them. Idle connections and waiters change in one step: every function
//! that frees a connection offers it to the next waiter before another request can take it.

use std::{panic::Location, task::Waker, time::Duration};

use honeyflow_runtime::Moment;
use smallvec::SmallVec;

use super::{
    Class, ConnectionRow, Core, Effects, Key, PooledConnection, TICK, reconcile::ReplaceReason, ring::ServerState,
    waiting::Outcome,
};
use crate::error::Kind;

/// The terms of one checkout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    pub class: Class,
    pub due: Moment,
    /// Use this server only.
    pub target: Option<Key>,
    /// Prefer these servers.
    pub near: &'a [Key],
    /// Do not use these servers: the request has tried them.
    pub tried: &'a [Key],
    pub idempotent: bool,
    pub site: Option<&'static Location<'static>>,
}

/// A connection that the core lends to a caller.
#[derive(Clone, Debug)]
pub struct LentConnection<K> {
    pub connection: Key,
    pub server: Key,
    pub carried: K,
    /// When the loan began; for a waiter, at the hand-off.
    pub begun: Moment,
    /// How long the caller waited, in microseconds.
    pub waited: u64,
    /// The loan of a shared connection, which ends with [`Core::end_shared_loan`].
    pub loan: Option<Key>,
}

#[derive(Debug)]
pub enum Checkout<K> {
    Lent(LentConnection<K>),
    Queued(Key),
    Refused(Refusal),
}

#[derive(Debug)]
pub enum PickUp<K> {
    Lent(LentConnection<K>),
    Waiting,
    Refused(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub kind: Kind,
    pub waited: Duration,
    /// How long the wait would have been, for an early refusal.
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
    /// The request was answered; its time counts for the server's health.
    Answered,
    /// The request ended; the caller reports what that means for the server's health.
    Finished,
    /// The connection has not been used.
    Unused,
    /// The caller went away before its answer came.
    CutOff,
    /// The connection is not usable any more.
    Discarded,
}

/// What one request says about its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    Answered(Duration),
    /// The server failed.
    Fault,
    /// No answer in this time, and the caller no longer waits: another server was quicker.
    Overtaken(Duration),
    /// No answer until the deadline.
    Silent,
    /// An error that the request itself caused.
    Neutral,
}

impl<K: PooledConnection> Core<K> {
    /// Lends a connection at once, queues the request, or refuses it.
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
        // `take_ready` removes broken connections. Each removal leaves fewer to check, so this loop ends.
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

    /// Returns a connection of this server that has a free stream, is not broken, and accepts requests.
    fn take_ready(&mut self, server: Key, now: Moment, effects: &mut Effects<K>) -> Option<Key> {
        loop {
            let row = self.servers.get(server)?;
            let at = match row.ready.len() {
                0 => return None,
                1 => 0,
                // There are few connections, so checking all is quick.
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
                self.remove_broken(connection, now, effects);
                continue;
            }
            if found.says_goodbye() {
                self.on_goodbye(connection, now, effects);
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
    ) -> LentConnection<K> {
        let row = self.count_loan(connection, due, site, None, now, effects);
        let (server, carried, exclusive) = (row.server, row.carried.clone(), row.exclusive);
        let loan = if exclusive { None } else { self.begin_shared_loan(site, now) };
        LentConnection { connection, server, carried, begun: now, waited: 0, loan }
    }

    /// Counts the loan, and a hand-off if a waiter gets it. A connection without a free stream leaves the ready list.
    #[inline]
    fn count_loan(
        &mut self,
        connection: Key,
        due: Moment,
        site: Option<&'static Location<'static>>,
        waited: Option<u64>,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> &mut ConnectionRow<K> {
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

    /// Takes a loan back that was used for `used` microseconds.
    pub fn checkin(&mut self, connection: Key, ending: Ending, used: u64, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        self.counters.checkins += 1;
        self.give_back(connection, ending, used, now, effects);
        self.signal_drain(effects);
    }

    pub(super) fn give_back(
        &mut self,
        connection: Key,
        ending: Ending,
        used: u64,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        // The connection was closed meanwhile, at its deadline or by a drain.
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
                self.remove_broken(connection, now, effects);
            } else {
                self.remove(connection, effects);
            }
            return;
        }
        if ending == Ending::CutOff {
            row.orphans += 1;
            row.orphaned.push_back(now);
            server.orphans += 1;
            if row.orphans > self.rules.max_orphans && row.replace_reason.is_none() {
                row.replace_reason = Some(ReplaceReason::Orphans);
                effects.reconcile = true;
            }
            // A retiring connection with only orphans closes: no caller waits for their answers.
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
            if row.replace_reason.is_none() && (aged || decay > 0 && self.draw_chance(decay)) {
                let row = self.connections.get_mut(connection).expect("checked above");
                row.replace_reason = Some(if aged { ReplaceReason::Age } else { ReplaceReason::Decay });
                effects.reconcile = true;
            }
        }
        if ending == Ending::Discarded {
            self.retire(connection, effects);
        } else if !idles {
            self.offer(connection, now, effects);
        }
    }

    /// Frees the stream of an orphan whose caller went away at `gone_at`: its late answer came, or it was never sent.
    pub fn end_orphan(
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

    /// Gives the free streams of a connection to waiters; if streams remain, the connection becomes ready.
    pub(super) fn offer(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        loop {
            let Some(row) = self.connections.get(connection) else { return };
            if row.retiring && row.in_flight == row.orphans {
                return self.remove(connection, effects);
            }
            if row.says_goodbye() {
                return self.on_goodbye(connection, now, effects);
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

    /// Gives the idle connections of a server that became eligible to the waiters that may take them.
    pub(super) fn offer_idle(&mut self, server: Key, now: Moment, effects: &mut Effects<K>) {
        while self.servers.get(server).is_some_and(|row| !row.ready.is_empty()) {
            let Some(waiter) = self.next_waiter(server) else { return };
            let Some(connection) = self.take_ready(server, now, effects) else { return };
            self.grant(connection, waiter, now, effects);
        }
    }

    /// Calls [`Core::offer_idle`] for all eligible servers. Broken connections found on the way may change which are
    /// eligible.
    pub(super) fn offer_all(&mut self, now: Moment, effects: &mut Effects<K>) {
        let eligible: SmallVec<[Key; 8]> = self.eligible.iter().copied().collect();
        for server in eligible {
            self.offer_idle(server, now, effects);
        }
    }

    pub(super) fn grant(
        &mut self,
        connection: Key,
        waiter: Key,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> &ConnectionRow<K> {
        self.unqueue(waiter);
        let row = self.waiters.get_mut(waiter).expect("a queued waiter exists");
        (row.outcome, row.served) = (Outcome::Given(connection), now);
        effects.wake.add(row.waker.take());
        let (due, site, waited) = (row.due, row.site, now.micros_since(row.arrived));
        self.count_loan(connection, due, site, Some(waited), now, effects)
    }

    /// Closes a connection that is on loan. Returns how many loans that cut off.
    pub(super) fn cut_off(&mut self, connection: Key, effects: &mut Effects<K>) -> u32 {
        let Some(row) = self.connections.get(connection) else { return 0 };
        let loans = row.in_flight - row.orphans;
        self.remove(connection, effects);
        loans
    }
}
