//! The reconciler: decides how many connections each server should have, and which to open, replace or close now.
//!
//! There is no state "filling": every call compares the open and opening connections with the target, so no flag can
//! get stuck.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use honeyflow_runtime::{Backoff, Moment};

use super::{
    Change, ConnectionRow, Core, Effects, Key, PooledConnection,
    apply_rules::STEPS,
    control::State,
    counters::Record,
    ring::{ServerRow, ServerState},
    rules::CONNECTING_PER_SERVER,
};
use crate::{error::Kind, outage::LastError, server::Server};

/// Why a connection is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplaceReason {
    Decay,
    Age,
    Orphans,
    /// It was opened with settings that have changed since.
    Settings,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Fill,
    /// One above the target, for the waiters.
    Grow,
    Replace(Key),
}

/// A connect that the shell must make. It reports back with [`Core::opened`], [`Core::failed`] or [`Core::abandoned`].
#[derive(Clone, Debug)]
pub struct PendingConnect {
    pub server: Key,
    pub to: Server,
    /// The write timeout that the transport uses for the whole life of the connection.
    pub write_timeout: Duration,
    purpose: Purpose,
}

/// Why a connect failed.
#[derive(Clone, Debug)]
pub struct ConnectFailure {
    pub message: Arc<str>,
    /// A refused login is retried later than other failures, since frequent tries would look like an attack.
    pub kind: Kind,
    pub timed_out: bool,
    /// The machine answered, but the port is closed: the server may be back at any moment.
    pub refused: bool,
}

impl ConnectFailure {
    pub fn of(kind: Kind, message: impl Into<Arc<str>>) -> ConnectFailure {
        ConnectFailure { message: message.into(), kind, timed_out: false, refused: false }
    }
}

/// The back-off of one server: when the pool may connect to it again.
#[derive(Clone, Copy, Debug)]
pub struct ConnectBackoff {
    pub failures: u32,
    pub next_try: Moment,
    good_since: Option<Moment>,
    hurried_at: Option<Moment>,
    login_refusals: u32,
}

const BACKOFF_BASE: Duration = Duration::from_millis(100);
const REFUSED_MAX: Duration = Duration::from_secs(1);
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// Up to this number of refused logins, the server may only be starting, and the next try comes soon.
const LOGINS_SOON: u32 = 2;
const LOGIN_SOON: Duration = Duration::from_secs(1);
const LOGIN_LATER: Duration = Duration::from_secs(30);
const ORPHAN_MAX: Duration = Duration::from_secs(30);
/// The reconciler runs at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl ConnectBackoff {
    pub fn first(next_try: Moment) -> ConnectBackoff {
        ConnectBackoff { failures: 0, next_try, good_since: None, hurried_at: None, login_refusals: 0 }
    }

    fn succeeded(&mut self, now: Moment) {
        self.login_refusals = 0;
        self.good_since.get_or_insert(now);
        self.next_try = self.next_try.min(now);
    }

    /// Sets the next try after a failure. Returns true once, when a login has been refused so often that an operator
    /// must learn of it.
    fn failed(&mut self, failed: &ConnectFailure, most: Duration, random: u64, now: Moment) -> bool {
        if self.good_since.take().is_some_and(|since| now.since(since) >= FORGIVEN_AFTER) {
            self.failures = 0;
        }
        if failed.kind == Kind::Login {
            // Logins that are refused at the same time count once; otherwise a starting server would get the long wait.
            if self.login_refusals > 0 && now < self.next_try {
                return false;
            }
            self.login_refusals += 1;
            self.next_try = now.after(if self.login_refusals <= LOGINS_SOON { LOGIN_SOON } else { LOGIN_LATER });
            return self.login_refusals == LOGINS_SOON + 1;
        }
        let most = if failed.refused { most.min(REFUSED_MAX) } else { most };
        let again = now.after(Backoff::new(BACKOFF_BASE, most).wait(self.failures, random));
        // Another failure does not shorten the wait after a refused login.
        self.next_try = if self.login_refusals > 0 { self.next_try.max(again) } else { again };
        self.failures = self.failures.saturating_add(1);
        false
    }

    /// Shortens the wait to what the changed settings allow, except after a refused login.
    pub fn no_later_than(&mut self, latest: Moment) {
        if self.login_refusals == 0 {
            self.next_try = self.next_try.min(latest);
        }
    }

    /// Makes the next try due now, at most once a second and never after a refused login.
    fn hurry(&mut self, now: Moment) -> bool {
        let lately = self.hurried_at.is_some_and(|at| now.since(at) < LOOK_EVERY);
        if lately || self.login_refusals > 0 || self.next_try <= now {
            return false;
        }
        (self.hurried_at, self.next_try) = (Some(now), now);
        true
    }
}

impl ServerRow {
    fn connects_under_way(&self) -> u32 {
        self.opening + self.replacing
    }

    pub fn target(&self, target: u32, wanted: bool) -> u32 {
        if wanted && self.state != ServerState::Leaving { target } else { 0 }
    }
}

impl<K: PooledConnection> Core<K> {
    pub(super) fn is_shared(&self) -> bool {
        self.shared.unwrap_or(false)
    }

    /// How many connections the pool should have.
    pub fn wanted(&self) -> u32 {
        let target = self.rules.target(self.is_shared());
        let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
        ring.map(|row| row.target(target, self.rules.wants(row.tier))).sum()
    }

    pub fn open_count(&self) -> u32 {
        self.servers.iter().map(|(_, row)| row.serving).sum()
    }

    /// Adds the connects to make now to `opens`, and retires connections that are above the target. Returns when to
    /// call it again.
    pub fn reconcile(&mut self, now: Moment, opens: &mut Vec<PendingConnect>, effects: &mut Effects<K>) -> Moment {
        self.seen = self.seen.max(now);
        if self.state != State::Active {
            return Moment::FAR;
        }
        self.mark_expired(now);
        self.shrink(now, effects);
        while let Some(open) = self.next_deficit(now) {
            opens.push(open);
        }
        while let Some(open) = self.next_replacement(now) {
            opens.push(open);
        }
        let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
        let tries = ring.map(|row| row.connecting.next_try).filter(|at| *at > now);
        tries.min().unwrap_or(Moment::FAR).min(now.after(LOOK_EVERY))
    }

    fn mark_expired(&mut self, now: Moment) {
        for (_, row) in self.connections.iter_mut() {
            if row.replace_reason.is_none() && now >= row.age_due {
                row.replace_reason = Some(ReplaceReason::Age);
            }
            if row.replace_reason.is_none() && row.orphaned.front().is_some_and(|since| now.since(*since) > ORPHAN_MAX)
            {
                row.replace_reason = Some(ReplaceReason::Orphans);
            }
        }
    }

    /// Retires connections above the target that are idle for too long, and those above the maximum at once.
    fn shrink(&mut self, now: Moment, effects: &mut Effects<K>) {
        let (target, max) = (self.rules.target(self.is_shared()), self.rules.max(self.is_shared()));
        for at in 0..self.ring.len() {
            let key = self.ring[at];
            let Some(server) = self.servers.get(key) else { continue };
            let wanted = self.rules.wants(server.tier);
            let (target, max) = (server.target(target, wanted), server.target(max, wanted));
            let mut serving = server.serving;
            if serving <= target {
                continue;
            }
            let mut rows: Vec<(bool, Moment, Key)> = self
                .connections
                .iter()
                .filter(|(_, row)| row.server == key && !row.retiring)
                .map(|(connection, row)| (row.in_flight > 0, row.idle_since, connection))
                .collect();
            rows.sort_unstable();
            for (busy, idle_since, connection) in rows {
                if serving <= target {
                    break;
                }
                let idle_max = self.connections.get(connection).map_or(Duration::MAX, |row| row.idle_max);
                let idle_out = !busy && now.since(idle_since) >= idle_max;
                if serving > max || idle_out {
                    serving -= 1;
                    self.counters.idled_out += u64::from(idle_out);
                    self.retire(connection, effects);
                }
            }
        }
    }

    /// The next connect to make: round-robin over the servers that lack a connection and are not in back-off.
    fn next_deficit(&mut self, now: Moment) -> Option<PendingConnect> {
        if self.opening >= self.rules.max_connecting {
            return None;
        }
        let (target, max) = (self.rules.target(self.is_shared()), self.rules.max(self.is_shared()));
        let growing: u32 = self.servers.iter().map(|(_, row)| (row.serving + row.opening).saturating_sub(target)).sum();
        let length = self.ring.len();
        for step in 0..length {
            let at = (self.cursor + step) % length;
            let key = self.ring[at];
            let row = self.servers.get_mut(key)?;
            let wanted = self.rules.wants(row.tier) && row.state != ServerState::Leaving;
            if !wanted || row.connecting.next_try > now || row.connects_under_way() >= CONNECTING_PER_SERVER {
                continue;
            }
            let have = row.serving + row.opening;
            let waiters = if row.eligible { self.waiting.len() } else { 0 } + row.waiting.len();
            let purpose = if have < target {
                Purpose::Fill
            } else if have < max && row.serving > 0 && (growing as usize) < waiters {
                Purpose::Grow
            } else {
                continue;
            };
            row.opening += 1;
            self.opening += 1;
            self.cursor = (at + 1) % length;
            let write_timeout = self.rules.write_timeout;
            return Some(PendingConnect { server: key, to: row.server.clone(), write_timeout, purpose });
        }
        None
    }

    fn next_replacement(&mut self, now: Moment) -> Option<PendingConnect> {
        if self.opening >= self.rules.max_connecting {
            return None;
        }
        let open: u32 = self.open_count();
        let under_way: u32 = self.servers.iter().map(|(_, row)| row.replacing).sum();
        if under_way >= (open / 10).max(1) {
            return None;
        }
        let budget = self.rules.recycle_budget;
        let servers = &self.servers;
        let (key, row) = self.connections.iter_mut().find(|(_, row)| {
            row.replace_reason.is_some()
                && !row.replacing
                && !row.retiring
                && servers.get(row.server).is_some_and(|server| {
                    server.state != ServerState::Leaving
                        && server.replacing < budget
                        && server.connects_under_way() < CONNECTING_PER_SERVER
                        && server.connecting.next_try <= now
                })
        })?;
        row.replacing = true;
        let server = self.servers.get_mut(row.server)?;
        server.replacing += 1;
        self.opening += 1;
        let write_timeout = self.rules.write_timeout;
        Some(PendingConnect {
            server: row.server,
            to: server.server.clone(),
            write_timeout,
            purpose: Purpose::Replace(key),
        })
    }

    fn connect_ended(&mut self, open: &PendingConnect) {
        self.opening -= 1;
        if let Some(row) = self.servers.get_mut(open.server) {
            match open.purpose {
                Purpose::Fill | Purpose::Grow => row.opening -= 1,
                Purpose::Replace(_) => row.replacing -= 1,
            }
        }
        if let Purpose::Replace(old) = open.purpose
            && let Some(row) = self.connections.get_mut(old)
        {
            row.replacing = false;
        }
    }

    /// Adds a connection that was opened. Returns `None` and closes it if it is no longer needed.
    pub fn opened(
        &mut self,
        open: &PendingConnect,
        carried: K,
        streams: u32,
        took: Duration,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> Option<Key> {
        self.seen = self.seen.max(now);
        self.connect_ended(open);
        self.counters.connects_ok += 1;
        effects.reconcile = true;
        let (offered, streams) = (streams, self.rules.streams(streams));
        self.shared = Some(streams > 1);
        let target = self.rules.target(streams > 1);
        let lowered = [self.draw(), self.draw()].map(|random| (random % (STEPS + 1)) as u16);
        let row = self.servers.get_mut(open.server).expect("a server stays during a connect");
        row.connects.record(took);
        row.connecting.succeeded(now);
        row.last_error = None;
        let nobody_waits = self.waiting.is_empty() && row.waiting.is_empty();
        let superfluous = open.purpose == Purpose::Grow && nobody_waits && row.serving >= target;
        if self.state != State::Active || row.state == ServerState::Leaving || superfluous {
            row.closing += 1;
            self.closing += 1;
            effects.close.push((open.server, carried));
            return None;
        }
        row.serving += 1;
        let mut opened = ConnectionRow {
            carried,
            server: open.server,
            streams,
            exclusive: streams == 1,
            offered,
            lowered,
            in_flight: 0,
            orphans: 0,
            orphaned: VecDeque::new(),
            retiring: false,
            // The settings may have changed during the connect.
            replace_reason: (open.write_timeout != self.rules.write_timeout).then_some(ReplaceReason::Settings),
            replacing: false,
            in_ready: false,
            opened_at: now,
            idle_since: now,
            age_due: Moment::FAR,
            idle_max: Duration::MAX,
            due: Moment::FAR,
            lent_at: now,
            site: None,
            warned: false,
            answered: false,
            record: Record::default(),
        };
        opened.set_times(&self.rules);
        let key = self.connections.insert(opened);
        let first = row.serving == 1;
        if let Purpose::Replace(old) = open.purpose
            && let Some(replace_reason) = self.connections.get(old).and_then(|row| row.replace_reason)
        {
            match replace_reason {
                ReplaceReason::Decay => self.counters.decayed += 1,
                ReplaceReason::Age => self.counters.aged += 1,
                ReplaceReason::Orphans | ReplaceReason::Settings => {}
            }
            self.retire(old, effects);
        }
        self.offer(key, now, effects);
        if first {
            self.refresh_eligible(now, effects);
        }
        Some(key)
    }

    pub fn failed(&mut self, open: &PendingConnect, failed: &ConnectFailure, now: Moment, effects: &mut Effects<K>) {
        self.connect_ended(open);
        if failed.timed_out {
            self.counters.connects_timed_out += 1;
        } else {
            self.counters.connects_failed += 1;
        }
        self.record_failure(open.server, failed, now, effects);
        self.forget_if_empty(open.server, effects);
        effects.reconcile = true;
    }

    fn record_failure(&mut self, server: Key, failed: &ConnectFailure, now: Moment, effects: &mut Effects<K>) {
        self.back_off(server, failed, now, effects);
        if let Some(row) = self.servers.get_mut(server) {
            row.last_error = Some(LastError { kind: failed.kind, why: failed.message.clone() });
        }
    }

    fn back_off(&mut self, server: Key, failed: &ConnectFailure, now: Moment, effects: &mut Effects<K>) {
        let random = self.draw();
        let most = self.rules.max_backoff;
        self.counters.logins_refused += u64::from(failed.kind == Kind::Login);
        if let Some(row) = self.servers.get_mut(server)
            && row.connecting.failed(failed, most, random, now)
        {
            let (id, why) = (row.server.id.clone(), failed.message.clone());
            effects.changes.push(Change::LoginRefused { id, why });
        }
    }

    /// The error of a server that refused our login, while it must not be tried again.
    pub fn login_wait(&self, address: SocketAddr, now: Moment) -> Option<Arc<str>> {
        let mut here = self.servers.iter().map(|(_, row)| row).filter(|row| row.server.address == address);
        here.find_map(|row| {
            let waits = row.connecting.login_refusals > 0 && row.connecting.next_try > now;
            let said = row.last_error.as_ref().filter(|trouble| waits && trouble.kind == Kind::Login)?;
            Some(said.why.clone())
        })
    }

    /// Counts a login that discovery made and the server refused, as if the pool had made it.
    pub fn login_refused(
        &mut self,
        address: SocketAddr,
        failed: &ConnectFailure,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        // A leaving server may have used the same address before.
        let stays = |row: &ServerRow| row.server.address == address && row.state != ServerState::Leaving;
        let here = self.servers.iter().find(|(_, row)| stays(row)).map(|(key, _)| key);
        if let Some(key) = here {
            self.record_failure(key, failed, now, effects);
        }
    }

    /// Takes back a connect whose task ended without a result.
    pub fn abandoned(&mut self, open: &PendingConnect, effects: &mut Effects<K>) {
        self.connect_ended(open);
        self.forget_if_empty(open.server, effects);
        effects.reconcile = true;
    }

    /// Ends the back-off of a server that is reported to be up.
    pub fn hurry(&mut self, address: SocketAddr, now: Moment, effects: &mut Effects<K>) {
        for (_, row) in self.servers.iter_mut() {
            if row.server.address == address {
                effects.reconcile |= row.connecting.hurry(now);
            }
        }
    }

    /// Removes a connection that has ended by itself. If it ended soon after it was opened, that counts as a failed
    /// connect; otherwise the pool would redial without a pause a server that accepts and hangs up.
    pub fn died(&mut self, connection: Key, why: &str, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        self.count_early_end(connection, why, now, effects);
        self.remove(connection, effects);
        self.signal_drain(effects);
    }

    /// Retires a connection whose server said goodbye: its requests in flight may finish, and another is opened.
    /// Servers do that after a number of requests or a time. It counts as a failure only if nothing was answered
    /// before.
    pub fn on_goodbye(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        let Some(row) = self.connections.get(connection).filter(|row| !row.retiring) else { return };
        if !row.answered
            && let Some(server) = self.servers.get(row.server)
        {
            let why = format!("{} accepts no more requests on the connection", server.server);
            self.count_early_end(connection, &why, now, effects);
        }
        self.retire(connection, effects);
        self.signal_drain(effects);
    }

    /// Notes that the server has answered on a connection.
    pub fn mark_answered(&mut self, connection: Key) {
        if let Some(row) = self.connections.get_mut(connection).filter(|row| !row.answered) {
            row.answered = true;
        }
    }

    fn count_early_end(&mut self, connection: Key, why: &str, now: Moment, effects: &mut Effects<K>) {
        // A retiring connection ends anyway.
        let Some(row) = self.connections.get(connection).filter(|row| !row.retiring) else { return };
        let (server, young) = (row.server, now.since(row.opened_at) < FORGIVEN_AFTER);
        if row.in_flight == 0 {
            self.counters.dead_idle += 1;
        }
        if young {
            self.record_failure(server, &ConnectFailure::of(Kind::Protocol, why), now, effects);
        } else if let Some(row) = self.servers.get_mut(server) {
            row.last_error = Some(LastError { kind: Kind::Protocol, why: why.into() });
        }
    }

    /// Removes a connection that was found broken before its watcher reported why. A young one counts as a failed
    /// connect.
    pub(super) fn remove_broken(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.connections.get(connection) else { return };
        let (server, young) = (row.server, now.since(row.opened_at) < FORGIVEN_AFTER);
        let ended = ConnectFailure::of(Kind::Protocol, "the connection ended");
        if young {
            self.back_off(server, &ended, now, effects);
        }
        if let Some(row) = self.servers.get_mut(server) {
            row.last_error.get_or_insert(LastError { kind: ended.kind, why: ended.message });
        }
        self.remove(connection, effects);
    }

    /// Gives a connection no more requests; it closes when the last one has ended.
    pub(super) fn retire(&mut self, connection: Key, effects: &mut Effects<K>) {
        let Some(row) = self.connections.get_mut(connection) else { return };
        if !row.retiring {
            row.retiring = true;
            let server = self.servers.get_mut(row.server).expect("the server of a connection exists");
            server.serving -= 1;
            server.retiring += 1;
            if std::mem::take(&mut row.in_ready) {
                server.ready.retain(|other| *other != connection);
            }
            effects.reconcile = true;
            // `remove` does the same, but only after the last requests in flight have ended.
            if server.serving == 0 && server.state != ServerState::Leaving {
                self.refresh_eligible(self.seen, effects);
            }
        }
        if self.connections.get(connection).is_some_and(|row| row.in_flight == row.orphans) {
            self.remove(connection, effects);
        }
    }

    /// Removes a connection from the pool and has it closed. Loans of it that come back later are ignored.
    pub(super) fn remove(&mut self, connection: Key, effects: &mut Effects<K>) {
        let Some(row) = self.connections.remove(connection) else { return };
        self.counters.wrong_answers += u64::from(row.carried.answered_wrongly());
        self.loans -= (row.in_flight - row.orphans) as usize;
        let server = self.servers.get_mut(row.server).expect("the server of a connection exists");
        if row.in_ready {
            server.ready.retain(|other| *other != connection);
        }
        server.in_flight -= row.in_flight;
        server.orphans -= row.orphans;
        if row.retiring {
            server.retiring -= 1;
        } else {
            server.serving -= 1;
        }
        server.closing += 1;
        self.closing += 1;
        effects.close.push((row.server, row.carried));
        effects.reconcile = true;
        if server.serving == 0 && server.state != ServerState::Leaving {
            self.refresh_eligible(self.seen, effects);
        }
    }

    /// Notes that a removed connection has been closed.
    pub fn closed(&mut self, server: Key, effects: &mut Effects<K>) {
        self.closing -= 1;
        effects.reconcile = true;
        if let Some(row) = self.servers.get_mut(server) {
            row.closing -= 1;
        }
        self.forget_if_empty(server, effects);
        self.signal_drain(effects);
    }

    /// Whether no connection is being opened or closed.
    pub fn at_rest(&self) -> bool {
        self.closing == 0 && self.opening == 0
    }

    /// All open connections, for their watchers.
    pub fn live(&self) -> impl Iterator<Item = (Key, &K)> {
        self.connections.iter().map(|(key, row)| (key, &row.carried))
    }

    /// Lends a connection for a heartbeat if it has a free stream; an exclusive one only while it is idle.
    pub fn borrow(
        &mut self,
        connection: Key,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> Option<super::LentConnection<K>> {
        let row = self.connections.get(connection)?;
        (row.in_ready && row.takes_more()).then(|| self.lend_for_probe(connection, now, effects))
    }

    /// Removes a connection from the pool without closing it; the pool replaces it.
    pub fn detach(&mut self, connection: Key, effects: &mut Effects<K>) {
        let before = effects.close.len();
        let server = self.connections.get(connection).map(|row| row.server);
        self.remove(connection, effects);
        // The caller owns and closes it from now on.
        if effects.close.len() > before {
            effects.close.pop();
            if let Some(server) = server {
                self.closed(server, effects);
            }
        }
        self.signal_drain(effects);
    }
}
