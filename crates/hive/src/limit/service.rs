//! The drawing task, one per node and store. It sends the requests of the keys to the store and brings the answers
//! back, wakes keys when something is due, and informs them when the store stops or starts to answer, or a limit
//! changes.

mod answer;
pub mod change;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::pin,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicU64},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, Moment, time::BootClock};
use tokio::sync::{mpsc, oneshot};

use super::{
    calendar,
    clock::LocalClock,
    counters::Snapshot,
    definition::{Decider, Definition, Terms},
    handle::{Call, Common, Limit, News, Refusal, Signal, State},
    headcount::Headcount,
    key::Reason,
    keys::{self, Keys},
    permit::Grant,
    store_health::StoreHealth,
};
use crate::{
    codes,
    contract::{
        HiveStore, NodeId, Reply, Request,
        limit::{self as ledger, Draw, ExactTake, Key, ReservationRequest, Slots, Window},
    },
};

/// The capacity of the signal queue. Each key has few signals at a time; while the queue is full, calls count as
/// failed.
const SIGNALS_MAX: usize = 65_536;
/// The number of draw requests in flight at which further draws wait.
const IN_FLIGHT_MAX: usize = 64;
/// The most draws in one request.
const DRAWS_MAX: usize = 128;
/// A call without an answer counts as failed after this time.
const CALL: Duration = Duration::from_millis(500);
/// The two clocks are compared this often, and may differ by `JUMP`.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
const JUMP: Duration = Duration::from_millis(20);

pub struct Config {
    pub store: Arc<dyn HiveStore>,
    pub node: NodeId,
    /// The number of nodes to divide by while the real number is unknown.
    pub expected_nodes: u64,
    /// The operations a second for one limit, from all nodes together.
    pub store_budget: u64,
    /// The weight of this node when nodes share a limit.
    pub weight: u64,
    pub clock: LocalClock,
    /// The boot clock, which goes on while the machine sleeps; `clock` does not.
    pub boot: Arc<dyn Clock>,
}

impl Config {
    pub fn new(store: Arc<dyn HiveStore>, node: NodeId) -> Config {
        Config {
            store,
            node,
            expected_nodes: Headcount::EXPECTED,
            store_budget: StoreHealth::STORE_BUDGET,
            weight: 1,
            clock: LocalClock::default(),
            boot: Arc::new(BootClock),
        }
    }
}

/// The limits of this node. Cheap to clone.
#[derive(Clone)]
pub struct Limits(Arc<Registry>);

struct Registry {
    common: Arc<Common>,
    limits: RwLock<BTreeMap<Name, Arc<State>>>,
}

impl Registry {
    /// All limits. After a panic under the lock the map is still used: its entries are always complete.
    fn all(&self) -> Vec<Arc<State>> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Limits {
    /// Defines a limit, or returns the one that has this name already.
    ///
    /// # Errors
    /// `bad-limit`: numbers that make no sense, or another definition under the same name.
    pub fn define(&self, definition: &Definition) -> Result<Limit, Failure> {
        // Version 0: the store has not confirmed it yet. The store's versions begin at 1.
        let terms = Terms { version: 0, ..Terms::from_definition(definition)? };
        let mut limits = self.0.limits.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = limits.get(&definition.name) {
            if known.defined == terms {
                return Ok(Limit(known.clone()));
            }
            let why = format!("limit {} is defined twice, and differently: keep one of the two", definition.name);
            return Err(Failure::reject(codes::BAD_LIMIT, why));
        }
        let common = self.0.common.clone();
        let setting = common.store_health().setting(&terms);
        let state = Arc::new(State {
            name: definition.name.clone(),
            clock: common.clock.clone(),
            common,
            defined: terms,
            setting: arc_swap::ArcSwap::from_pointee(setting),
            ends_ns: AtomicU64::new(u64::MAX),
            keys: Keys::new(definition.keys_max),
            counters: super::counters::Counters::default(),
        });
        limits.insert(definition.name.clone(), state.clone());
        let _ = self.0.common.signals.try_send(Signal::Defined);
        Ok(Limit(state))
    }

    pub fn get(&self, name: &str) -> Option<Limit> {
        self.0.limits.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned().map(Limit)
    }

    /// Records how many nodes share the limits, as published and as counted by this node. The heartbeat calls it.
    pub fn set_node_counts(&self, published: u64, own: u64) {
        self.0.common.store_health().headcount.record(published, own);
        self.0.common.update_news(|news| news.recount = true);
    }

    /// Forgets how many nodes there are, because this process is a new member now.
    pub fn forget_node_counts(&self) {
        self.0.common.store_health().headcount.forget();
        self.0.common.update_news(|news| news.recount = true);
    }

    /// Sets the identity under which slots are held from now on. Slots of the old identity become free when that member
    /// is removed.
    pub fn set_node(&self, node: NodeId) {
        self.0.common.update_news(|news| news.node = Some(node));
    }

    /// The heartbeat has had no answer until its trust ended. Requests do not have to wait for the store to find that
    /// out.
    pub fn on_trust_lost(&self) {
        let now_ns = self.0.common.clock.now_ns();
        let opened = self.0.common.store_health().open_breaker(now_ns);
        self.0.common.update_news(|news| {
            news.recount |= opened;
            news.cut_off = true;
            news.cut_offs += 1;
        });
    }

    /// A heartbeat was answered: this node is a member, and its slots are its own.
    pub fn on_trust_renewed(&self) {
        self.0.common.update_news(|news| news.cut_off = false);
    }

    /// Reports the version of the hive's limits, which an answered heartbeat contains.
    pub fn on_limits_version(&self, version: u64) {
        let _ = self.0.common.signals.try_send(Signal::Version(version));
    }

    /// The metrics, one snapshot per limit.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.0.all().into_iter().map(|state| Limit(state).snapshot()).collect()
    }
}

type TakeAllCaller = oneshot::Sender<Result<Vec<Grant>, (usize, Refusal)>>;

/// The purpose of a request to the store.
enum Purpose {
    Draws(Vec<(Arc<State>, u128, u64)>),
    Take { limit: Arc<State>, key: u128, call: u64, cost: u64, may_retry: bool },
    Slots(Vec<(Arc<State>, u128, u64)>),
    All { takes: Vec<(Arc<State>, u128, u64)>, caller: TakeAllCaller, may_retry: bool },
    Refund,
    Limits,
    Set(Name),
}

/// A call to the store that has been answered or has failed.
struct FinishedCall {
    purpose: Purpose,
    asked_ns: u64,
    result: Result<Reply, Failure>,
}

pub struct Service {
    store: Arc<dyn HiveStore>,
    node: NodeId,
    weight: u64,
    registry: Arc<Registry>,
    signals: mpsc::Receiver<Signal>,
    in_flight: FuturesUnordered<BoxFuture<'static, FinishedCall>>,
    draws: Vec<(Arc<State>, u128, u64, Draw)>,
    slot_requests: Vec<(Arc<State>, u128, u64, Slots)>,
    wakes: BTreeSet<(u64, Name, u128)>,
    wake_at: BTreeMap<(Name, u128), u64>,
    changes: Vec<change::Change>,
    /// The newest version of the hive's limits that was read, and whether a request for the definitions is in flight.
    version: u64,
    reading: bool,
    /// When to read the definitions, even if the heartbeat does not report a change.
    read_at_ns: Option<u64>,
    /// Limits of which the store has recorded what this process declared.
    recorded: BTreeSet<Name>,
    /// Limits that were in the store at some time as this process declared them; a later change by an operator stays.
    was_set: BTreeSet<Name>,
    /// The number of the last request for slots; it grows with each.
    seq: u64,
    /// While the heartbeat is not answered, no slots are asked for: the store would free them when it removes this
    /// member, without this node knowing.
    cut_off: bool,
    cut_offs: u64,
    /// A hive time, and the local time at which it was read.
    hive_ms: Option<(u64, u64)>,
    boot: Arc<dyn Clock>,
    compared: (Moment, u64),
}

impl Service {
    pub fn new(config: Config) -> (Service, Limits) {
        let (sender, signals) = mpsc::channel(SIGNALS_MAX);
        let store_health = StoreHealth::new(config.expected_nodes, config.store_budget);
        let compared = (config.boot.now(), config.clock.now_ns());
        let common = Arc::new(Common::new(config.clock, store_health, sender));
        let registry = Arc::new(Registry { common, limits: RwLock::default() });
        let service = Service {
            store: config.store,
            node: config.node,
            weight: config.weight.max(1),
            registry: registry.clone(),
            signals,
            in_flight: FuturesUnordered::new(),
            draws: Vec::new(),
            slot_requests: Vec::new(),
            wakes: BTreeSet::new(),
            wake_at: BTreeMap::new(),
            changes: Vec::new(),
            version: 0,
            reading: false,
            read_at_ns: None,
            recorded: BTreeSet::new(),
            was_set: BTreeSet::new(),
            seq: 0,
            cut_off: false,
            cut_offs: 0,
            hive_ms: None,
            boot: config.boot,
            compared,
        };
        (service, Limits(registry))
    }

    /// Runs until `shutdown` completes. Callers that wait then are refused.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let common = self.registry.common.clone();
        loop {
            // Before any request or answer: the news about the node decides on its slots.
            self.apply_news();
            let wait = self.wait();
            // Answers come before signals: a caller waits for each answer, there are few of them, and signals never
            // end.
            tokio::select! {
                biased;
                () = &mut shutdown => {
                    // From now on no request is sent; later callers find the channel closed.
                    self.signals.close();
                    return self.registry.all().iter().for_each(|state| each_key(state, State::close));
                }
                () = common.has_news.notified() => {}
                Some(finished) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.apply_news();
                    self.on_finished_call(finished);
                }
                Some(signal) = self.signals.recv() => {
                    self.apply_news();
                    self.on_signal(signal);
                    // Further signals that have arrived meanwhile go out in the same request.
                    for _ in 0..DRAWS_MAX {
                        let Ok(signal) = self.signals.try_recv() else { break };
                        self.on_signal(signal);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.compare_clocks();
            self.run_due();
            self.send();
        }
    }

    fn now_ns(&self) -> u64 {
        self.registry.common.clock.now_ns()
    }

    fn wait(&self) -> Duration {
        let now_ns = self.now_ns();
        let key = self.wakes.first().map(|(at_ns, ..)| *at_ns);
        let change = self.changes.iter().map(|change| change.at_ns).min();
        let breaker = self.registry.common.store_health().breaker.wake_at_ns();
        let at_ns = [key, change, breaker, self.read_at_ns].into_iter().flatten().min().unwrap_or(u64::MAX);
        Duration::from_nanos(at_ns.saturating_sub(now_ns)).min(COMPARE_EVERY)
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Attend { limit, key } => limit.attend(key),
            Signal::Wake { limit, key, at_ns } => self.wake(&limit, key, at_ns),
            Signal::Call { limit, key, started_ns, call } => self.call(limit, key, started_ns, call),
            Signal::TakeAll { takes, caller } => self.take_all(takes, caller, true),
            Signal::Refund { limit, key, permits, end_ms } => {
                let now = || self.window(&limit).map(|window| window.end_ms);
                let end_ms = if crate::planted::on("refund into any window") { now() } else { end_ms };
                let window = end_ms.map(|end_ms| Window { start_ms: 0, end_ms });
                let exact = ExactTake { limit: limit.name.clone(), key: Key(key), cost: permits, window };
                self.ask(Purpose::Refund, ledger::Request::Refund(vec![exact]));
            }
            Signal::Defined => self.read_limits(),
            Signal::Version(version) if version != self.version => self.read_limits(),
            Signal::Version(_) => {}
        }
    }

    fn apply_news(&mut self) {
        let News { node, cut_off, cut_offs, recount } = self.registry.common.news();
        if recount {
            self.refresh_settings();
        }
        self.cut_off = cut_off;
        if std::mem::replace(&mut self.cut_offs, cut_offs) != cut_offs {
            self.each_key_with_slots(State::drop_slots);
        }
        if let Some(node) = node.filter(|node| *node != self.node) {
            self.node = node;
            self.each_key_with_slots(State::hold_under_new_identity);
        }
    }

    fn wake(&mut self, limit: &Arc<State>, key: u128, at_ns: u64) {
        let place = (limit.name.clone(), key);
        match self.wake_at.get(&place) {
            Some(known) if *known <= at_ns => return,
            Some(known) => {
                self.wakes.remove(&(*known, place.0.clone(), key));
            }
            None => {}
        }
        self.wakes.insert((at_ns, place.0.clone(), key));
        self.wake_at.insert(place, at_ns);
    }

    /// Does everything that is due: wakes keys, brings changes into force, opens the breaker, sends a probe.
    fn run_due(&mut self) {
        let now_ns = self.now_ns();
        let opened = self.registry.common.store_health().tick(None, now_ns);
        if opened {
            tracing::warn!(
                "the store of the limits has not answered for 1 s: this node keeps to its share of each limit"
            );
            self.refresh_settings();
        }
        while self.wakes.first().is_some_and(|(at_ns, ..)| *at_ns <= now_ns) {
            let Some((_, name, key)) = self.wakes.pop_first() else { break };
            self.wake_at.remove(&(name.clone(), key));
            let limit = self.registry.limits.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
            let Some(limit) = limit else { continue };
            limit.attend(key);
            let again = limit.keys.find(key, |entry| entry.slow().as_ref().map(|core| core.wake_at_ns())).flatten();
            if let Some(at_ns) = again.filter(|at_ns| *at_ns < u64::MAX) {
                self.wake(&limit, key, at_ns.max(now_ns + 1));
            }
        }
        self.change_limits(now_ns);
        let probe = {
            let mut store_health = self.registry.common.store_health();
            store_health.breaker.is_open() && store_health.breaker.allows(now_ns)
        };
        if probe {
            self.reading = false;
        }
        if probe || self.read_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.read_at_ns = None;
            self.read_limits();
        }
    }

    /// Computes the settings again after the store's health has changed, and informs the keys of limits whose mode
    /// changed.
    fn refresh_settings(&mut self) {
        for state in self.registry.all() {
            let before = state.setting.load_full();
            if state.set(&before.terms).mode != before.mode {
                self.notify_keys(&state);
            }
        }
    }

    /// Informs the keys of a limit that its setting has changed. Every waiter has a deadline, so its key has a wake-up
    /// time; only keys with slots may have none.
    fn notify_keys(&self, state: &Arc<State>) {
        if state.setting.load().terms.decider == Decider::Slots {
            return each_key(state, State::on_setting_changed);
        }
        let waiting = self.wake_at.keys().filter(|(name, _)| *name == state.name);
        for (_, key) in waiting {
            state.on_setting_changed(*key);
        }
    }

    /// Calls `run` for each key of the concurrency limits.
    fn each_key_with_slots(&self, run: impl Fn(&Arc<State>, u128)) {
        for state in self.registry.all() {
            if state.setting.load().terms.decider == Decider::Slots {
                each_key(&state, &run);
            }
        }
    }

    fn compare_clocks(&mut self) {
        let (boot, local_ns) = (self.boot.now(), self.now_ns());
        let by_boot = boot.since(self.compared.0);
        let by_counter = Duration::from_nanos(local_ns.saturating_sub(self.compared.1));
        if by_boot >= COMPARE_EVERY {
            self.compared = (boot, local_ns);
            // The rates of the two clocks differ a little, too.
            if by_boot.abs_diff(by_counter) > JUMP + by_boot / 100 {
                tracing::warn!(
                    ?by_boot,
                    ?by_counter,
                    "the machine slept or its clock jumped: discarded the drawn permits"
                );
                self.registry.all().iter().for_each(|state| state.void_permits());
            }
        }
    }

    fn call(&mut self, limit: Arc<State>, key: u128, started_ns: u64, call: Call) {
        let is_open = self.registry.common.store_health().breaker.is_open();
        if is_open || (self.cut_off && matches!(call, Call::Hold { .. })) {
            limit.on_call_failed(key, started_ns, call);
            return;
        }
        limit.counters.store_operations.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match call {
            Call::Draw { want, need, reserve } => {
                let reserve = (reserve > 0).then_some(ReservationRequest { want: reserve, weight: self.weight });
                let draw = Draw { limit: limit.name.clone(), key: Key(key), want, need, reserve };
                self.draws.push((limit, key, started_ns, draw));
            }
            Call::Take { call, cost } => self.take(limit, key, call, cost, true),
            Call::Hold { slots } => {
                self.seq += 1;
                let key_of_slots = Key(keys::slots_key(key));
                let slots = Slots { limit: limit.name.clone(), key: key_of_slots, seq: self.seq, wants: slots };
                self.slot_requests.push((limit, key, started_ns, slots));
            }
        }
    }

    fn take(&mut self, limit: Arc<State>, key: u128, call: u64, cost: u64, may_retry: bool) {
        let exact = ExactTake { limit: limit.name.clone(), key: Key(key), cost, window: self.window(&limit) };
        let request = ledger::Request::Exact { takes: vec![exact], peek: false };
        self.ask(Purpose::Take { limit, key, call, cost, may_retry }, request);
    }

    fn take_all(&mut self, takes: Vec<(Arc<State>, u128, u64)>, caller: TakeAllCaller, may_retry: bool) {
        if self.registry.common.store_health().breaker.is_open() {
            if let Some((limit, ..)) = takes.first() {
                let denied = limit.refuse(super::definition::SECOND, Reason::Outage);
                drop(caller.send(Err((0, denied))));
            }
            return;
        }
        let asked = takes.iter().map(|(limit, key, cost)| ExactTake {
            limit: limit.name.clone(),
            key: Key(*key),
            cost: *cost,
            window: self.window(limit),
        });
        let request = ledger::Request::Exact { takes: asked.collect(), peek: false };
        self.ask(Purpose::All { takes, caller, may_retry }, request);
    }

    /// The present calendar window, as far as this node knows; the store refuses if it is another.
    fn window(&self, limit: &State) -> Option<Window> {
        let Decider::Calendar(every) = limit.setting.load().terms.decider else { return None };
        let hive_ms = match self.hive_ms {
            Some((hive_ms, at_ns)) => hive_ms + self.now_ns().saturating_sub(at_ns) / 1_000_000,
            None => 0,
        };
        Some(calendar::window(every, hive_ms))
    }

    /// Sends the draws that were collected, at most `DRAWS_MAX` per request, and one request for all slots.
    fn send(&mut self) {
        while !self.draws.is_empty() && self.in_flight.len() < IN_FLIGHT_MAX {
            let some: Vec<_> = self.draws.drain(..self.draws.len().min(DRAWS_MAX)).collect();
            let (purposes, draws) = some.into_iter().map(|(limit, key, at, draw)| ((limit, key, at), draw)).unzip();
            self.ask(Purpose::Draws(purposes), ledger::Request::Draw(draws));
        }
        if !self.slot_requests.is_empty() {
            let some = std::mem::take(&mut self.slot_requests).into_iter();
            let (purposes, asks) = some.map(|(limit, key, at, ask)| ((limit, key, at), ask)).unzip();
            self.ask(Purpose::Slots(purposes), ledger::Request::Slots { node: self.node, asks });
        }
    }

    fn ask(&mut self, purpose: Purpose, request: ledger::Request) {
        let asked_ns = self.now_ns();
        self.registry.common.store_health().breaker.on_call(asked_ns);
        let answer = self.store.call(Request::Limit(request));
        self.in_flight.push(Box::pin(async move {
            let result = tokio::time::timeout(CALL, answer).await;
            let silent = |_| Err(Failure::retry(codes::STORE_SILENT, "the store did not answer in time"));
            FinishedCall { purpose, asked_ns, result: result.unwrap_or_else(silent) }
        }));
    }
}

/// Calls `run` for each key that has a slow path.
fn each_key(state: &Arc<State>, run: impl Fn(&Arc<State>, u128)) {
    let mut keys = Vec::new();
    state.keys.for_each(|key, entry| keys.extend(entry.slow().is_some().then_some(key)));
    keys.into_iter().for_each(|key| run(state, key));
}
