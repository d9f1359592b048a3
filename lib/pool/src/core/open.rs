//! The reconciler: how many connections each server should have, which to open now, which to replace, which to let go.
//!
//! There is no state "filling": open and opening are compared with the target every time anew, so nothing can stick.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use honeyflow_runtime::{Backoff, Moment};

use super::{
    Carried, Change, Core, Effects, Key, Row,
    control::State,
    count::Record,
    fit::STEPS,
    ring::{ServerRow, ServerState},
    rules::CONNECTING_PER_SERVER,
};
use crate::{error::Kind, outage::Trouble, server::Server};

/// Why a connection is to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worn {
    Decay,
    Age,
    Orphans,
    /// It was opened under settings that hold no more.
    Settings,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Fill,
    /// Above the target, for those who wait.
    Grow,
    Replace(Key),
}

/// A connect to be made; reported back with [`Core::opened`], [`Core::failed`] or [`Core::abandoned`].
#[derive(Clone, Debug)]
pub struct Open {
    pub server: Key,
    pub to: Server,
    /// What the transport is to be told for the connection's life.
    pub write_timeout: Duration,
    purpose: Purpose,
}

/// Why a connect failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub message: Arc<str>,
    /// After a refused login, trying again soon would only look like an attack.
    pub kind: Kind,
    pub timed_out: bool,
    /// The machine is there, but nobody listens: it may be back any moment.
    pub refused: bool,
}

impl Failed {
    pub fn of(kind: Kind, message: impl Into<Arc<str>>) -> Failed {
        Failed { message: message.into(), kind, timed_out: false, refused: false }
    }
}

/// When a server may be tried again.
#[derive(Clone, Copy, Debug)]
pub struct Connecting {
    pub failures: u32,
    pub next_try: Moment,
    good_since: Option<Moment>,
    hurried_at: Option<Moment>,
    login_refusals: u32,
}

const BACKOFF_BASE: Duration = Duration::from_millis(100);
const REFUSED_MAX: Duration = Duration::from_secs(1);
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// So often it may be that the server is only starting.
const LOGINS_SOON: u32 = 2;
const LOGIN_SOON: Duration = Duration::from_secs(1);
const LOGIN_LATER: Duration = Duration::from_secs(30);
const ORPHAN_MAX: Duration = Duration::from_secs(30);
/// The reconciler looks at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Connecting {
    pub fn first(next_try: Moment) -> Connecting {
        Connecting { failures: 0, next_try, good_since: None, hurried_at: None, login_refusals: 0 }
    }

    fn succeeded(&mut self, now: Moment) {
        self.login_refusals = 0;
        self.good_since.get_or_insert(now);
        self.next_try = self.next_try.min(now);
    }

    /// True: a login has been refused for so long that people should hear of it; said once.
    fn failed(&mut self, failed: &Failed, most: Duration, random: u64, now: Moment) -> bool {
        if self.good_since.take().is_some_and(|since| now.since(since) >= FORGIVEN_AFTER) {
            self.failures = 0;
        }
        if failed.kind == Kind::Login {
            // Several at once are refused once, or a server that is only starting would be left alone for long.
            if self.login_refusals > 0 && now < self.next_try {
                return false;
            }
            self.login_refusals += 1;
            self.next_try = now.after(if self.login_refusals <= LOGINS_SOON { LOGIN_SOON } else { LOGIN_LATER });
            return self.login_refusals == LOGINS_SOON + 1;
        }
        let most = if failed.refused { most.min(REFUSED_MAX) } else { most };
        let again = now.after(Backoff::new(BACKOFF_BASE, most).wait(self.failures, random));
        // Whoever refused our login is not asked sooner because something else failed as well.
        self.next_try = if self.login_refusals > 0 { self.next_try.max(again) } else { again };
        self.failures = self.failures.saturating_add(1);
        false
    }

    /// The settings allow no longer waits. Whoever refused our login is left alone all the same.
    pub fn no_later_than(&mut self, latest: Moment) {
        if self.login_refusals == 0 {
            self.next_try = self.next_try.min(latest);
        }
    }

    /// Good news: due now, at most once a second, and never for one that refused our login.
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

impl<K: Carried> Core<K> {
    pub(super) fn is_shared(&self) -> bool {
        self.shared.unwrap_or(false)
    }

    /// How many connections there should be in all.
    pub fn wanted(&self) -> u32 {
        let target = self.rules.target(self.is_shared());
        let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
        ring.map(|row| row.target(target, self.rules.wants(row.tier))).sum()
    }

    pub fn open_count(&self) -> u32 {
        self.servers.iter().map(|(_, row)| row.serving).sum()
    }

    /// What to open now; what is too old or too many goes. Says when to look again.
    pub fn reconcile(&mut self, now: Moment, opens: &mut Vec<Open>, effects: &mut Effects<K>) -> Moment {
        self.seen = self.seen.max(now);
        if self.state != State::Active {
            return Moment::FAR;
        }
        self.find_worn(now);
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

    fn find_worn(&mut self, now: Moment) {
        for (_, row) in self.connections.iter_mut() {
            if row.worn.is_none() && now >= row.age_due {
                row.worn = Some(Worn::Age);
            }
            if row.worn.is_none() && row.orphaned.front().is_some_and(|since| now.since(*since) > ORPHAN_MAX) {
                row.worn = Some(Worn::Orphans);
            }
        }
    }

    /// Above the target by idle time, above the maximum at once.
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

    /// The next server, in turn, that lacks a connection and may be tried.
    fn next_deficit(&mut self, now: Moment) -> Option<Open> {
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
            return Some(Open { server: key, to: row.server.clone(), write_timeout, purpose });
        }
        None
    }

    fn next_replacement(&mut self, now: Moment) -> Option<Open> {
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
            row.worn.is_some()
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
        Some(Open { server: row.server, to: server.server.clone(), write_timeout, purpose: Purpose::Replace(key) })
    }

    fn under_way_no_more(&mut self, open: &Open) {
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

    /// A connection has come about. `None` if nobody wants it any more.
    pub fn opened(
        &mut self,
        open: &Open,
        carried: K,
        streams: u32,
        took: Duration,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> Option<Key> {
        self.seen = self.seen.max(now);
        self.under_way_no_more(open);
        self.counters.connects_ok += 1;
        effects.reconcile = true;
        let (offered, streams) = (streams, self.rules.streams(streams));
        self.shared = Some(streams > 1);
        let target = self.rules.target(streams > 1);
        let lowered = [self.draw(), self.draw()].map(|random| (random % (STEPS + 1)) as u16);
        let row = self.servers.get_mut(open.server).expect("a server stays while a connect is under way");
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
        let mut opened = Row {
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
            // The settings may have changed while it was opened.
            worn: (open.write_timeout != self.rules.write_timeout).then_some(Worn::Settings),
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
            && let Some(worn) = self.connections.get(old).and_then(|row| row.worn)
        {
            match worn {
                Worn::Decay => self.counters.decayed += 1,
                Worn::Age => self.counters.aged += 1,
                Worn::Orphans | Worn::Settings => {}
            }
            self.retire(old, effects);
        }
        self.offer(key, now, effects);
        if first {
            self.refresh_eligible(now, effects);
        }
        Some(key)
    }

    pub fn failed(&mut self, open: &Open, failed: &Failed, now: Moment, effects: &mut Effects<K>) {
        self.under_way_no_more(open);
        if failed.timed_out {
            self.counters.connects_timed_out += 1;
        } else {
            self.counters.connects_failed += 1;
        }
        self.set_back(open.server, failed, now, effects);
        self.forget_if_empty(open.server, effects);
        effects.reconcile = true;
    }

    fn set_back(&mut self, server: Key, failed: &Failed, now: Moment, effects: &mut Effects<K>) {
        self.back_off(server, failed, now, effects);
        if let Some(row) = self.servers.get_mut(server) {
            row.last_error = Some(Trouble { kind: failed.kind, why: failed.message.clone() });
        }
    }

    fn back_off(&mut self, server: Key, failed: &Failed, now: Moment, effects: &mut Effects<K>) {
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

    /// What a server said that refused our login and is to be left alone for a while.
    pub fn login_wait(&self, address: SocketAddr, now: Moment) -> Option<Arc<str>> {
        let mut here = self.servers.iter().map(|(_, row)| row).filter(|row| row.server.address == address);
        here.find_map(|row| {
            let waits = row.connecting.login_refusals > 0 && row.connecting.next_try > now;
            let said = row.last_error.as_ref().filter(|trouble| waits && trouble.kind == Kind::Login)?;
            Some(said.why.clone())
        })
    }

    /// A login refused outside of the pool counts as one that was refused here.
    pub fn login_refused(&mut self, address: SocketAddr, failed: &Failed, now: Moment, effects: &mut Effects<K>) {
        // One that leaves may have had the address before.
        let stays = |row: &ServerRow| row.server.address == address && row.state != ServerState::Leaving;
        let here = self.servers.iter().find(|(_, row)| stays(row)).map(|(key, _)| key);
        if let Some(key) = here {
            self.set_back(key, failed, now, effects);
        }
    }

    /// The task that connected has gone without a word.
    pub fn abandoned(&mut self, open: &Open, effects: &mut Effects<K>) {
        self.under_way_no_more(open);
        self.forget_if_empty(open.server, effects);
        effects.reconcile = true;
    }

    /// Good news of a server: whatever keeps it waiting ends now.
    pub fn hurry(&mut self, address: SocketAddr, now: Moment, effects: &mut Effects<K>) {
        for (_, row) in self.servers.iter_mut() {
            if row.server.address == address {
                effects.reconcile |= row.connecting.hurry(now);
            }
        }
    }

    /// A connection has ended by itself. One that ended soon after it began counts as a failed connect, or a server that
    /// accepts and hangs up would be dialled without a pause.
    pub fn died(&mut self, connection: Key, why: &str, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        self.held_against(connection, why, now, effects);
        self.remove(connection, effects);
        self.drained(effects);
    }

    /// The server takes nothing new on a connection: what is under way may end there, and another is opened. Servers
    /// say so after so many requests or so much time, and it is no fault of theirs unless they answered nothing before.
    pub fn goes(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        self.seen = self.seen.max(now);
        let Some(row) = self.connections.get(connection).filter(|row| !row.retiring) else { return };
        if !row.answered
            && let Some(server) = self.servers.get(row.server)
        {
            let why = format!("{} takes no more on the connection", server.server);
            self.held_against(connection, &why, now, effects);
        }
        self.retire(connection, effects);
        self.drained(effects);
    }

    /// Something was answered on a connection.
    pub fn heard_on(&mut self, connection: Key) {
        if let Some(row) = self.connections.get_mut(connection).filter(|row| !row.answered) {
            row.answered = true;
        }
    }

    fn held_against(&mut self, connection: Key, why: &str, now: Moment, effects: &mut Effects<K>) {
        // Of one that was to go anyway, its end says nothing.
        let Some(row) = self.connections.get(connection).filter(|row| !row.retiring) else { return };
        let (server, young) = (row.server, now.since(row.opened_at) < FORGIVEN_AFTER);
        if row.in_flight == 0 {
            self.counters.dead_idle += 1;
        }
        if young {
            self.set_back(server, &Failed::of(Kind::Protocol, why), now, effects);
        } else if let Some(row) = self.servers.get_mut(server) {
            row.last_error = Some(Trouble { kind: Kind::Protocol, why: why.into() });
        }
    }

    /// A connection was found broken before anybody heard why. Of a young one it means the same as if somebody had.
    pub(super) fn lost(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.connections.get(connection) else { return };
        let (server, young) = (row.server, now.since(row.opened_at) < FORGIVEN_AFTER);
        let ended = Failed::of(Kind::Protocol, "the connection ended");
        if young {
            self.back_off(server, &ended, now, effects);
        }
        if let Some(row) = self.servers.get_mut(server) {
            row.last_error.get_or_insert(Trouble { kind: ended.kind, why: ended.message });
        }
        self.remove(connection, effects);
    }

    /// No more requests on it; it closes when the last has ended.
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
            // Nobody else says so while its last requests are under way.
            if server.serving == 0 && server.state != ServerState::Leaving {
                self.refresh_eligible(self.seen, effects);
            }
        }
        if self.connections.get(connection).is_some_and(|row| row.in_flight == row.orphans) {
            self.remove(connection, effects);
        }
    }

    /// The connection is no longer one of ours; whatever is still on loan of it comes back to nobody.
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

    /// A removed connection has been closed.
    pub fn closed(&mut self, server: Key, effects: &mut Effects<K>) {
        self.closing -= 1;
        effects.reconcile = true;
        if let Some(row) = self.servers.get_mut(server) {
            row.closing -= 1;
        }
        self.forget_if_empty(server, effects);
        self.drained(effects);
    }

    /// Whether nothing is being opened or closed any more.
    pub fn at_rest(&self) -> bool {
        self.closing == 0 && self.opening == 0
    }

    /// All connections that live, for those who watch them.
    pub fn live(&self) -> impl Iterator<Item = (Key, &K)> {
        self.connections.iter().map(|(key, row)| (key, &row.carried))
    }

    /// Takes a connection for a sign of life, if that disturbs nobody: an exclusive one only while idle.
    pub fn borrow(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) -> Option<super::Lent<K>> {
        let row = self.connections.get(connection)?;
        (row.in_ready && row.takes_more()).then(|| self.lend_for_probe(connection, now, effects))
    }

    /// Takes a connection out for good; it is replaced.
    pub fn detach(&mut self, connection: Key, effects: &mut Effects<K>) {
        let before = effects.close.len();
        let server = self.connections.get(connection).map(|row| row.server);
        self.remove(connection, effects);
        // It belongs to the caller now, who closes it.
        if effects.close.len() > before {
            effects.close.pop();
            if let Some(server) = server {
                self.closed(server, effects);
            }
        }
        self.drained(effects);
    }
}
