//! Chooses a server for each request, and decides which servers are suspect.
//!
//! A server is suspect in comparison with the others, never by a fixed time: if all servers are slow, none is suspect.
//! A server stays suspect for a minimum time and until good answers prove it well, so that states do not flap.

use std::{collections::VecDeque, time::Duration};

use honeyflow_runtime::Moment;

use super::{
    Core, Effects, Judgement, Key, LentConnection, PooledConnection, Request, TICK, TriedServers,
    ring::{ServerRow, ServerState},
};

const STAY_MAX: Duration = Duration::from_secs(300);
/// A server that is suspect again within this time stays suspect twice as long.
const RELAPSE: Duration = Duration::from_secs(60);
const FAULTS_IN_ROW: u32 = 5;
const ANSWERS_ENOUGH: u32 = 10;
const PROOFS: u32 = 3;
/// Bad ticks in a row until a server is suspect. When all servers become slow at once, one shows it first; several
/// ticks tell the two cases apart.
const ACCUSATIONS: u32 = 3;
const SLACK: Duration = Duration::from_millis(5);
const WINDOW_MIN: Duration = Duration::from_millis(200);
const SAMPLES: usize = 256;
/// One of this number of idempotent requests goes to a suspect server.
const CANARY: u32 = 200;
const PROBE_EVERY: Duration = Duration::from_millis(250);
const START_WEIGHT: f64 = 0.1;

#[derive(Debug)]
#[repr(C)]
pub struct Health {
    /// The decaying average of request times, in microseconds.
    latency: f64,
    /// Answers since the last reset.
    answers: u32,
    started: u64,
    ended: u64,
    faults_in_row: u32,
    /// The number of ticks in a row that found it slow or stuck.
    accused: u32,
    samples: VecDeque<Sample>,
    suspect: Option<Suspicion>,
    stay: Duration,
    ended_at: Option<Moment>,
    up_since: Moment,
    probe_at: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    started: u64,
    ended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since: Moment,
    proofs: u32,
}

impl Health {
    pub fn new(stay: Duration) -> Health {
        Health {
            latency: 0.0,
            answers: 0,
            started: 0,
            ended: 0,
            faults_in_row: 0,
            accused: 0,
            samples: VecDeque::new(),
            suspect: None,
            stay,
            ended_at: None,
            up_since: Moment::default(),
            probe_at: Moment::default(),
        }
    }

    pub fn is_suspect(&self) -> bool {
        self.suspect.is_some()
    }

    #[inline]
    pub fn started(&mut self) {
        self.started += 1;
    }

    #[inline]
    pub fn answered(&mut self, used_micros: u64) {
        self.ended += 1;
        self.faults_in_row = 0;
        self.took(used_micros);
    }

    /// Records the time of a request, whether or not it ended with an answer.
    #[inline]
    pub fn took(&mut self, used_micros: u64) {
        self.answers = self.answers.saturating_add(1);
        let share = if self.answers == 1 { 1.0 } else { 0.15 };
        self.latency += (used_micros as f64 - self.latency) * share;
    }

    pub fn returned(&mut self, now: Moment) {
        self.up_since = now;
    }

    /// Forgets the measurements of a server that went down.
    pub fn went_down(&mut self) {
        self.suspect = None;
        self.clear();
        self.samples.clear();
    }

    fn clear(&mut self) {
        (self.latency, self.answers, self.faults_in_row) = (0.0, 0, 0);
    }

    fn enter(&mut self, stay: Duration, now: Moment) {
        let relapse = self.ended_at.is_some_and(|at| now.since(at) < RELAPSE);
        self.stay = if relapse { (self.stay * 2).min(STAY_MAX) } else { stay };
        self.suspect = Some(Suspicion { since: now, proofs: 0 });
        self.probe_at = now;
    }

    fn leave(&mut self, now: Moment) {
        self.suspect = None;
        self.ended_at = Some(now);
        self.samples.clear();
        self.clear();
    }

    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.latency as u64)
    }

    /// The part of its full share of requests that it gets during slow start.
    fn weight(&self, slow_start: Duration, now: Moment) -> f64 {
        if slow_start.is_zero() {
            return 1.0;
        }
        let grown = now.since(self.up_since).as_secs_f64() / slow_start.as_secs_f64();
        (START_WEIGHT + (1.0 - START_WEIGHT) * grown).min(1.0)
    }

    /// How many requests started and ended since the latest sample that is at least `window` old; `None` without one.
    fn counts_since(&self, window: Duration, now: Moment) -> Option<(u64, u64)> {
        let from = self.samples.iter().rev().find(|sample| now.since(sample.at) >= window)?;
        Some((self.started - from.started, self.ended - from.ended))
    }
}

impl<K: PooledConnection> Core<K> {
    /// Chooses a server for a request without a target: the better of two random eligible servers, else the best that
    /// has a free connection.
    pub(super) fn choose(&mut self, request: &Request<'_>, now: Moment) -> Option<Key> {
        if request.idempotent
            && let Some(canary) = self.canary(request)
        {
            return Some(canary);
        }
        let count = self.eligible.len();
        if count == 1 {
            let only = self.eligible[0];
            return self.free(only, request.tried).then_some(only);
        }
        if !request.near.is_empty()
            && let Some(near) = self.choose_near(request, now)
        {
            return Some(near);
        }
        if count == 0 {
            return None;
        }
        let all = std::mem::take(&mut self.eligible);
        let pair = self.draw_pair(&all, now);
        let best = self.best_of(&pair, request.tried).or_else(|| self.best_of(&all, request.tried));
        self.eligible = all;
        best
    }

    /// Chooses among the preferred servers with the same draw, so that slow start holds there too and a slow server
    /// still gets some requests.
    fn choose_near(&mut self, request: &Request<'_>, now: Moment) -> Option<Key> {
        let near: TriedServers = request.near.iter().copied().filter(|key| self.free(*key, request.tried)).collect();
        if near.len() < 2 {
            return near.first().copied();
        }
        let pair = self.draw_pair(&near, now);
        self.best_of(&pair, request.tried)
    }

    fn draw_pair(&mut self, among: &[Key], now: Moment) -> [Key; 2] {
        let first = self.draw_server(among, now);
        [first, self.draw_second(first, among, now)]
    }

    /// Draws one of these servers, in proportion to their weights.
    fn draw_server(&mut self, among: &[Key], now: Moment) -> Key {
        let mut key = among[0];
        for _ in 0..8 {
            let random = self.draw();
            key = among[(random >> 32) as usize % among.len()];
            if self.passes_slow_start(key, random, now) {
                break;
            }
        }
        key
    }

    /// Draws the second server. It may be the first again while that one has no request in flight, so that slower
    /// servers still get some. A first server with requests in flight is compared with another one; otherwise a server
    /// that never answers would attract more and more callers.
    fn draw_second(&mut self, first: Key, among: &[Key], now: Moment) -> Key {
        let second = self.draw_server(among, now);
        if second != first || self.servers.get(first).is_none_or(|row| row.in_flight == 0) {
            return second;
        }
        let random = self.draw();
        let mut others = among.iter().copied().filter(|key| *key != first);
        let other = others.nth((random >> 32) as usize % (among.len() - 1));
        other.filter(|other| self.passes_slow_start(*other, random, now)).unwrap_or(first)
    }

    fn passes_slow_start(&self, key: Key, random: u64, now: Moment) -> bool {
        let weight = self.servers.get(key).map_or(1.0, |row| row.health.weight(self.rules.slow_start, now));
        weight >= 1.0 || f64::from(random as u32) < weight * f64::from(u32::MAX)
    }

    fn free(&self, server: Key, tried: &[Key]) -> bool {
        self.servers.get(server).is_some_and(|row| row.eligible && !row.ready.is_empty()) && !tried.contains(&server)
    }

    /// The server with the fewest requests in flight, then the quickest, then the one used longest ago.
    pub(super) fn best_of(&self, servers: &[Key], tried: &[Key]) -> Option<Key> {
        let free = servers.iter().filter(|key| self.free(**key, tried));
        free.filter_map(|key| Some((*key, self.servers.get(*key)?)))
            .min_by(|(_, one), (_, other)| {
                let load = one.in_flight.cmp(&other.in_flight);
                load.then_with(|| one.health.latency.total_cmp(&other.health.latency))
                    .then_with(|| one.last_turn.cmp(&other.last_turn))
            })
            .map(|(key, _)| key)
    }

    fn canary(&mut self, request: &Request<'_>) -> Option<Key> {
        let suspect = self.ring.iter().copied().find(|key| {
            self.servers
                .get(*key)
                .is_some_and(|row| row.state == ServerState::Suspect && !row.eligible && !row.ready.is_empty())
                && !request.tried.contains(key)
        })?;
        self.canary += 1;
        (self.canary.is_multiple_of(CANARY)).then_some(suspect)
    }

    /// Whether there is an eligible server that the request has not tried.
    pub fn has_untried_server(&self, tried: &[Key]) -> bool {
        self.eligible.iter().any(|key| !tried.contains(key))
    }

    /// Whether the ring has another server that the request has not tried and may use once it is connected.
    fn has_untried_server_soon(&self, tried: &TriedServers) -> bool {
        let wanted = |key: &Key| {
            let row = self.servers.get(*key);
            row.is_some_and(|row| row.state != ServerState::Leaving && self.rules.wants(row.tier))
        };
        self.ring.iter().any(|key| !tried.contains(key) && wanted(key))
    }

    /// Updates a server's health by one request, if the checkin of its loan did not.
    pub fn judge(&mut self, server: Key, judgement: Judgement, now: Moment, effects: &mut Effects<K>) {
        let stay = self.rules.suspect_stay;
        let Some(row) = self.servers.get_mut(server) else { return };
        match judgement {
            Judgement::Answered(used) => {
                row.answered(u64::try_from(used.as_micros()).unwrap_or(u64::MAX));
                self.record_proof(server, Some(used), now, effects);
            }
            // A time below the usual one proves nothing: the answer may have been about to come. For a server without
            // answers, the median of its tier is the usual time.
            Judgement::Overtaken(used) => {
                let (tier, known) = (row.tier, row.health.answers > 0);
                let usual = if known { row.health.latency() } else { self.median_of_tier(tier) };
                if used > usual {
                    let row = self.servers.get_mut(server).expect("checked above");
                    row.took_at_least(u64::try_from(used.as_micros()).unwrap_or(u64::MAX));
                    self.record_proof(server, None, now, effects);
                }
            }
            Judgement::Neutral => row.health.ended += 1,
            Judgement::Fault | Judgement::Silent => {
                if judgement == Judgement::Fault {
                    row.health.ended += 1;
                }
                row.health.faults_in_row += 1;
                if row.health.faults_in_row >= FAULTS_IN_ROW && row.state == ServerState::Up {
                    self.suspect(server, stay, now, effects);
                }
                self.record_proof(server, None, now, effects);
            }
        }
    }

    /// Uses the result of a probe: it counts for the health, and an answer also ends the back-off of the server.
    pub fn probed(&mut self, server: Key, took: Option<Duration>, now: Moment, effects: &mut Effects<K>) {
        self.record_proof(server, took, now, effects);
        if took.is_some()
            && let Some(row) = self.servers.get(server)
        {
            let address = row.server.address;
            self.hurry(address, now, effects);
        }
    }

    fn record_proof(&mut self, server: Key, took: Option<Duration>, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get(server) else { return };
        if !row.health.is_suspect() {
            return;
        }
        let good = took.is_some_and(|took| took <= self.median_of_tier(row.tier) * 2 + SLACK);
        let row = self.servers.get_mut(server).expect("checked above");
        let (stay, health) = (row.health.stay, &mut row.health);
        let Some(suspect) = &mut health.suspect else { return };
        suspect.proofs = if good { suspect.proofs + 1 } else { 0 };
        if suspect.proofs >= PROOFS && now.since(suspect.since) >= stay {
            health.leave(now);
            self.refresh_eligible(now, effects);
        }
    }

    /// The median latency of the tier's servers that are up.
    fn median_of_tier(&self, tier: u8) -> Duration {
        self.median_of(|row| row.tier == tier && row.state == ServerState::Up)
    }

    fn median_of(&self, counts: impl Fn(&ServerRow) -> bool) -> Duration {
        let ring = self.ring.iter().filter_map(|key| self.servers.get(*key));
        let mut latencies: Vec<f64> =
            ring.filter(|row| counts(row) && row.health.answers > 0).map(|row| row.health.latency).collect();
        latencies.sort_by(f64::total_cmp);
        let middle = latencies.len().saturating_sub(1) / 2;
        Duration::from_micros(latencies.get(middle).copied().unwrap_or(0.0) as u64)
    }

    fn suspect(&mut self, server: Key, stay: Duration, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get(server) else { return };
        let tier = row.tier;
        let of_tier = |key: &&Key| {
            self.servers
                .get(**key)
                .is_some_and(|row| row.tier == tier && matches!(row.state, ServerState::Up | ServerState::Suspect))
        };
        let members = self.ring.iter().filter(of_tier).count();
        let suspects = self.servers.iter().filter(|(_, row)| row.tier == tier && row.health.is_suspect()).count();
        // If half a tier were suspect, slow would be the usual case.
        if (suspects + 1) * 2 >= members {
            return;
        }
        let row = self.servers.get_mut(server).expect("checked above");
        row.health.enter(stay, now);
        self.counters.suspicions += 1;
        self.refresh_eligible(now, effects);
        self.tick_at = self.tick_at.min(now.after(TICK));
        effects.rearm = true;
    }

    /// Checks every server about ten times a second, while there is traffic or a suspect server.
    pub(super) fn tick(&mut self, now: Moment, effects: &mut Effects<K>) {
        let window = WINDOW_MIN.max(self.median_of(|row| row.state == ServerState::Up) * 2);
        for at in 0..self.ring.len() {
            self.check_server(self.ring[at], window, now, effects);
        }
        for (_, row) in self.servers.iter_mut() {
            let health = &mut row.health;
            health.samples.push_back(Sample { at: now, started: health.started, ended: health.ended });
            if health.samples.len() > SAMPLES {
                health.samples.pop_front();
            }
        }
        self.judge_overtaken(now, effects);
        self.lift_if_half_suspect(now, effects);
        self.send_probes(now, effects);
        self.report_overdue(now, effects);
        let idle = self.loans == 0 && self.overtaken.is_empty();
        let quiet = self.counters.checkouts == self.ticked_checkouts && idle;
        let suspects = self.servers.iter().any(|(_, row)| row.health.is_suspect());
        self.ticked_checkouts = self.counters.checkouts;
        self.tick_at = if quiet && !suspects { Moment::FAR } else { now.after(TICK) };
    }

    fn check_server(&mut self, key: Key, window: Duration, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get(key) else { return };
        if row.state != ServerState::Up {
            return;
        }
        let median = self.median_of_tier(row.tier);
        let slow = row.health.answers >= ANSWERS_ENOUGH
            && row.health.latency() > median * 3
            && row.health.latency() > median + SLACK;
        let stuck = row.health.counts_since(window, now).is_some_and(|(started, ended)| {
            // A request whose hedge was quicker counts as in flight; an orphan does not.
            let under_way = u64::from(row.in_flight - row.orphans) + self.overtaken_at(key);
            let old = under_way.saturating_sub(started);
            let exclusive = self.shared == Some(false);
            let many = if exclusive { old >= u64::from(row.serving + row.retiring) } else { old >= 10 };
            let others = self.ring.iter().filter_map(|other| self.servers.get(*other)).filter(|other| {
                other.server.id != row.server.id && other.tier == row.tier && other.state == ServerState::Up
            });
            let others_ended: u64 =
                others.filter_map(|other| other.health.counts_since(window, now)).map(|(_, ended)| ended).sum();
            ended < 2 && old > 0 && many && others_ended >= 2
        });
        let failing = row.health.faults_in_row >= FAULTS_IN_ROW;
        let row = self.servers.get_mut(key).expect("checked above");
        row.health.accused = if slow || stuck { row.health.accused + 1 } else { 0 };
        if failing || row.health.accused >= ACCUSATIONS {
            row.health.accused = 0;
            self.suspect(key, self.rules.suspect_stay, now, effects);
        }
    }

    /// Ends the suspicion of all servers of a tier if half of them or more are suspect.
    fn lift_if_half_suspect(&mut self, now: Moment, effects: &mut Effects<K>) {
        for tier in 0..=super::rules::REMOTE {
            let here = |row: &super::ring::ServerRow| {
                row.tier == tier && matches!(row.state, ServerState::Up | ServerState::Suspect)
            };
            let members = self.servers.iter().filter(|(_, row)| here(row)).count();
            let suspects = self.servers.iter().filter(|(_, row)| here(row) && row.health.is_suspect()).count();
            if suspects > 0 && suspects * 2 >= members {
                for (_, row) in self.servers.iter_mut() {
                    if row.tier == tier && row.health.is_suspect() {
                        row.health.leave(now);
                    }
                }
                self.refresh_eligible(now, effects);
            }
        }
    }

    fn send_probes(&mut self, now: Moment, effects: &mut Effects<K>) {
        for at in 0..self.ring.len() {
            let key = self.ring[at];
            let Some(row) = self.servers.get_mut(key) else { continue };
            if row.state != ServerState::Suspect || row.health.probe_at > now {
                continue;
            }
            row.health.probe_at = now.after(PROBE_EVERY);
            if let Some(connection) = row.ready.front().copied() {
                let lent = self.lend_for_probe(connection, now, effects);
                effects.probe.push(lent);
            }
        }
    }

    /// Probes a server that a notice reports as down. The notice alone changes nothing.
    pub fn on_down_notice(&mut self, address: std::net::SocketAddr, now: Moment, effects: &mut Effects<K>) {
        let doubted = self.ring.iter().copied().find(|key| {
            self.servers.get(*key).is_some_and(|row| row.server.address == address && !row.ready.is_empty())
        });
        let connection = doubted.and_then(|key| self.servers.get(key)?.ready.front().copied());
        if let Some(connection) = connection {
            let lent = self.lend_for_probe(connection, now, effects);
            effects.probe.push(lent);
        }
    }

    /// Lends a connection to the pool itself for a probe. The loan has no deadline, since the probe has its own.
    pub(super) fn lend_for_probe(
        &mut self,
        connection: Key,
        now: Moment,
        effects: &mut Effects<K>,
    ) -> LentConnection<K> {
        let lent = self.lend(connection, Moment::FAR, None, now, effects);
        if let Some(row) = self.servers.get_mut(lent.server) {
            row.health.started -= 1;
            row.served -= 1;
        }
        lent
    }

    /// Enough for sixty hedges: that many requests may be in flight at one server when it stops.
    pub const SPECULATE_CREDIT_MAX: u32 = 6000;
    pub const RETRY_CREDIT_AT_FIRST: u32 = 1000;
    /// Enough for a thousand retries: all requests in flight may be lost at once, and are then retried at once.
    const RETRY_CREDIT_MAX: u32 = 100_000;

    /// Adds the part of a retry and of a hedge that each request earns.
    #[inline]
    pub(super) fn credit_request(&mut self) {
        self.retry_credit = (self.retry_credit + self.rules.retry_budget).min(Self::RETRY_CREDIT_MAX);
        self.speculate_credit = (self.speculate_credit + self.rules.speculate_budget).min(Self::SPECULATE_CREDIT_MAX);
    }

    /// Takes a retry from the budget, if there is one and another server to try.
    pub fn may_retry(&mut self, tried: &TriedServers) -> bool {
        let another = self.has_untried_server(tried);
        self.take_retry(another)
    }

    /// Takes a retry for a request that was lost with its connection. The other servers may have lost theirs at the
    /// same time and come back, so a server that is down now counts as one to try.
    pub fn may_retry_lost(&mut self, tried: &TriedServers) -> bool {
        let another = self.has_untried_server(tried) || self.has_untried_server_soon(tried);
        self.take_retry(another)
    }

    fn take_retry(&mut self, another: bool) -> bool {
        let allowed = self.rules.retry_budget > 0 && self.retry_credit >= 100 && another;
        if allowed {
            self.retry_credit -= 100;
            self.counters.retries += 1;
        }
        allowed
    }

    /// Takes a hedge from the budget, if one is allowed; never while a request waits for a connection. `late`: half of
    /// the request's time has passed without an answer. Such a request counts as lost and may use the retry budget too:
    /// requests that are only slow may have used up the hedges, and while all requests are stuck none earns a new one.
    pub fn may_speculate(&mut self, tried: &TriedServers, late: bool) -> bool {
        if self.rules.speculate_budget == 0 || self.waiting_in_all > 0 || !self.has_untried_server(tried) {
            return false;
        }
        let credit = if self.speculate_credit >= 100 {
            &mut self.speculate_credit
        } else if late && self.rules.retry_budget > 0 && self.retry_credit >= 100 {
            &mut self.retry_credit
        } else {
            return false;
        };
        *credit -= 100;
        self.counters.speculations += 1;
        true
    }

    /// The time that 99 % of this server's requests stay below; `None` with fewer than 100 of them.
    pub fn p99(&self, server: Key) -> Option<Duration> {
        let row = self.servers.get(server)?;
        (row.uses.count() >= 100).then(|| row.uses.quantile(0.99))
    }
}
