//! The drawing task: one per node and store. It carries what the keys ask for to the store and the answers back, wakes
//! keys when something is due, and tells all of them when the store goes or comes back, or a limit changes.

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
    handle::{Call, Common, Denied, Limit, News, Signal, State},
    headcount::Headcount,
    key::Reason,
    keys::{self, Keys},
    permit::Grant,
    standing::Standing,
};
use crate::contract::{
    HiveStore, NodeId, Reply, Request,
    limit::{self as ledger, Book, Draw, Exact, Key, Slots, Window},
};

/// Signals under way. Each key has few at a time; beyond this a call counts as failed.
const SIGNALS_MAX: usize = 65_536;
/// Requests under way at once.
const FLIGHTS_MAX: usize = 64;
/// Draws in one request.
const DRAWS_MAX: usize = 128;
/// After so long a call counts as failed.
const CALL: Duration = Duration::from_millis(500);
/// How often the two clocks are compared, and by how much they may differ.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
const JUMP: Duration = Duration::from_millis(20);

pub struct Config {
    pub store: Arc<dyn HiveStore>,
    pub node: NodeId,
    /// By how many to divide while nobody has said how many there are.
    pub expected_nodes: u64,
    /// Operations a second for one limit, from all nodes together.
    pub store_budget: u64,
    /// Of this node, where limits are shared out.
    pub weight: u64,
    pub clock: LocalClock,
    /// Goes on while the machine sleeps, as `clock` does not.
    pub boot: Arc<dyn Clock>,
}

impl Config {
    pub fn new(store: Arc<dyn HiveStore>, node: NodeId) -> Config {
        Config {
            store,
            node,
            expected_nodes: Headcount::EXPECTED,
            store_budget: Standing::STORE_BUDGET,
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
    /// A map of whole entries: a panic leaves none half made.
    fn all(&self) -> Vec<Arc<State>> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Limits {
    /// Defines a limit, or gives the one that has this name already.
    ///
    /// # Errors
    /// `bad-limit`: numbers that make no sense, or another definition under the same name.
    pub fn define(&self, definition: &Definition) -> Result<Limit, Failure> {
        // Nobody has confirmed it yet: the store's versions begin at one.
        let terms = Terms { version: 0, ..Terms::of(definition)? };
        let mut limits = self.0.limits.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = limits.get(&definition.name) {
            if known.defined == terms {
                return Ok(Limit(known.clone()));
            }
            let why = format!("limit {} is defined twice, and differently: keep one of the two", definition.name);
            return Err(Failure::reject("bad-limit", why));
        }
        let common = self.0.common.clone();
        let setting = common.standing().setting(&terms);
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

    /// An answered beat: how many share the limits, as published and as counted here.
    pub fn counted(&self, published: u64, own: u64) {
        self.0.common.standing().headcount.heard(published, own);
        self.0.common.tell(|news| news.recount = true);
    }

    /// This process is another member now: how many there are is unknown again.
    pub fn rejoined(&self) {
        self.0.common.standing().headcount.forget();
        self.0.common.tell(|news| news.recount = true);
    }

    /// Under which name slots are held from now on. Those of another name come back when that one is buried.
    pub fn named(&self, node: NodeId) {
        self.0.common.tell(|news| news.node = Some(node));
    }

    /// The heartbeat has heard nothing for as long as it trusts in: nobody has to wait for the store to find out.
    pub fn cut_off(&self) {
        let now_ns = self.0.common.clock.now_ns();
        let opened = self.0.common.standing().cut_off(now_ns);
        self.0.common.tell(|news| {
            news.recount |= opened;
            news.cut_off = true;
            news.cut_offs += 1;
        });
    }

    /// A beat was answered: this node is a member, and what it is lent is its own.
    pub fn trusted(&self) {
        self.0.common.tell(|news| news.cut_off = false);
    }

    /// A beat has told the version of the hive's limits.
    pub fn noticed(&self, version: u64) {
        let _ = self.0.common.signals.try_send(Signal::Version(version));
    }

    /// One per limit, whatever the number of keys.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.0.all().into_iter().map(|state| Limit(state).snapshot()).collect()
    }
}

type Told = oneshot::Sender<Result<Vec<Grant>, (usize, Denied)>>;

/// What a request to the store was made for.
enum Aim {
    Draws(Vec<(Arc<State>, u128, u64)>),
    Take { limit: Arc<State>, key: u128, call: u64, cost: u64, again: bool },
    Slots(Vec<(Arc<State>, u128, u64)>),
    All { takes: Vec<(Arc<State>, u128, u64)>, told: Told, again: bool },
    Refund,
    Limits,
    Set(Name),
}

struct Landed {
    aim: Aim,
    asked_ns: u64,
    result: Result<Reply, Failure>,
}

pub struct Service {
    store: Arc<dyn HiveStore>,
    node: NodeId,
    weight: u64,
    registry: Arc<Registry>,
    heard: mpsc::Receiver<Signal>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    draws: Vec<(Arc<State>, u128, u64, Draw)>,
    holds: Vec<(Arc<State>, u128, u64, Slots)>,
    wakes: BTreeSet<(u64, Name, u128)>,
    wake_at: BTreeMap<(Name, u128), u64>,
    changes: Vec<change::Change>,
    /// The newest version of the hive's limits that was read, and whether it is being read again.
    version: u64,
    reading: bool,
    /// When to read them although nobody says that they have changed.
    read_at_ns: Option<u64>,
    /// Limits of which the store knows what this process was told.
    told: BTreeSet<Name>,
    /// Limits that stood in the store as this process was told; whoever sets them after that is right.
    set: BTreeSet<Name>,
    /// Grows with every ask for slots.
    seq: u64,
    /// While nobody answers the heartbeat no slots are asked for: they would end with a burial that nobody here hears of.
    cut_off: bool,
    cut_offs: u64,
    /// Hive time at a moment of ours.
    hive_ms: Option<(u64, u64)>,
    boot: Arc<dyn Clock>,
    compared: (Moment, u64),
}

impl Service {
    pub fn new(config: Config) -> (Service, Limits) {
        let (signals, heard) = mpsc::channel(SIGNALS_MAX);
        let standing = Standing::new(config.expected_nodes, config.store_budget);
        let compared = (config.boot.now(), config.clock.now_ns());
        let common = Arc::new(Common::new(config.clock, standing, signals));
        let registry = Arc::new(Registry { common, limits: RwLock::default() });
        let service = Service {
            store: config.store,
            node: config.node,
            weight: config.weight.max(1),
            registry: registry.clone(),
            heard,
            flights: FuturesUnordered::new(),
            draws: Vec::new(),
            holds: Vec::new(),
            wakes: BTreeSet::new(),
            wake_at: BTreeMap::new(),
            changes: Vec::new(),
            version: 0,
            reading: false,
            read_at_ns: None,
            told: BTreeSet::new(),
            set: BTreeSet::new(),
            seq: 0,
            cut_off: false,
            cut_offs: 0,
            hive_ms: None,
            boot: config.boot,
            compared,
        };
        (service, Limits(registry))
    }

    /// Until `shutdown` is done. Whoever waits then is refused.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let common = self.registry.common.clone();
        loop {
            // Before any question or answer: what is heard of the node decides on its slots.
            self.learn();
            let wait = self.wait();
            // Answers before questions, which never end: each of them was waited for, and there are few.
            tokio::select! {
                biased;
                () = &mut shutdown => {
                    // From now on nothing is asked for; whoever comes finds that out by itself.
                    self.heard.close();
                    return self.registry.all().iter().for_each(|state| each_key(state, State::close));
                }
                () = common.has_news.notified() => {}
                Some(landed) = self.flights.next(), if !self.flights.is_empty() => {
                    self.learn();
                    self.land(landed);
                }
                Some(signal) = self.heard.recv() => {
                    self.learn();
                    self.hear(signal);
                    // Whatever else has come meanwhile goes out in the same request.
                    for _ in 0..DRAWS_MAX {
                        let Ok(signal) = self.heard.try_recv() else { break };
                        self.hear(signal);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.compare_clocks();
            self.due();
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
        let breaker = self.registry.common.standing().breaker.wake_at_ns();
        let at_ns = [key, change, breaker, self.read_at_ns].into_iter().flatten().min().unwrap_or(u64::MAX);
        Duration::from_nanos(at_ns.saturating_sub(now_ns)).min(COMPARE_EVERY)
    }

    fn hear(&mut self, signal: Signal) {
        match signal {
            Signal::Attend { limit, key } => limit.attend(key),
            Signal::Wake { limit, key, at_ns } => self.wake(&limit, key, at_ns),
            Signal::Call { limit, key, started_ns, call } => self.call(limit, key, started_ns, call),
            Signal::TakeAll { takes, told } => self.take_all(takes, told, true),
            Signal::Refund { limit, key, permits, end_ms } => {
                let now = || self.window(&limit).map(|window| window.end_ms);
                let end_ms = if crate::planted::on("refund into any window") { now() } else { end_ms };
                let window = end_ms.map(|end_ms| Window { start_ms: 0, end_ms });
                let exact = Exact { limit: limit.name.clone(), key: Key(key), cost: permits, window };
                self.ask(Aim::Refund, ledger::Request::Refund(vec![exact]));
            }
            Signal::Defined => self.read_limits(),
            Signal::Version(version) if version != self.version => self.read_limits(),
            Signal::Version(_) => {}
        }
    }

    fn learn(&mut self) {
        let News { node, cut_off, cut_offs, recount } = self.registry.common.news();
        if recount {
            self.restand();
        }
        self.cut_off = cut_off;
        if std::mem::replace(&mut self.cut_offs, cut_offs) != cut_offs {
            self.each_with_slots(State::let_go);
        }
        if let Some(node) = node.filter(|node| *node != self.node) {
            self.node = node;
            self.each_with_slots(State::hold_again);
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

    /// Wakes keys, brings changes into force, opens the breaker: whatever time has come for.
    fn due(&mut self) {
        let now_ns = self.now_ns();
        let opened = self.registry.common.standing().tick(None, now_ns);
        if opened {
            tracing::warn!("the store of the limits has not answered for a second: each node keeps to its share");
            self.restand();
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
            let mut standing = self.registry.common.standing();
            standing.breaker.is_open() && standing.breaker.allows(now_ns)
        };
        if probe {
            self.reading = false;
        }
        if probe || self.read_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.read_at_ns = None;
            self.read_limits();
        }
    }

    /// What the limits stand on has changed: new settings, and everybody who waits is looked at.
    fn restand(&mut self) {
        for state in self.registry.all() {
            let before = state.setting.load_full();
            if state.set(&before.terms).footing != before.footing {
                self.tell_all(&state);
            }
        }
    }

    /// Everybody who waits has a deadline, and so a wake. Slots are held by keys that nobody waits for, too.
    fn tell_all(&self, state: &Arc<State>) {
        if state.setting.load().terms.decider == Decider::Slots {
            return each_key(state, State::changed);
        }
        let waiting = self.wake_at.keys().filter(|(name, _)| *name == state.name);
        for (_, key) in waiting {
            state.changed(*key);
        }
    }

    /// Slots in use are held under a new name, too; the others are left to whoever wants them.
    fn each_with_slots(&self, tell: impl Fn(&Arc<State>, u128)) {
        for state in self.registry.all() {
            if state.setting.load().terms.decider == Decider::Slots {
                each_key(&state, &tell);
            }
        }
    }

    fn compare_clocks(&mut self) {
        let (boot, local_ns) = (self.boot.now(), self.now_ns());
        let by_boot = boot.since(self.compared.0);
        let by_counter = Duration::from_nanos(local_ns.saturating_sub(self.compared.1));
        if by_boot >= COMPARE_EVERY {
            self.compared = (boot, local_ns);
            // The counters' rates differ a little, too.
            if by_boot.abs_diff(by_counter) > JUMP + by_boot / 100 {
                tracing::warn!(?by_boot, ?by_counter, "the machine slept, or its clock jumped: drawn permits are void");
                self.registry.all().iter().for_each(|state| state.void());
            }
        }
    }

    fn call(&mut self, limit: Arc<State>, key: u128, started_ns: u64, call: Call) {
        let is_open = self.registry.common.standing().breaker.is_open();
        if is_open || (self.cut_off && matches!(call, Call::Hold { .. })) {
            limit.failed(key, started_ns, call);
            return;
        }
        limit.counters.store_operations.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match call {
            Call::Draw { want, need, book } => {
                let book = (book > 0).then_some(Book { want: book, weight: self.weight });
                let draw = Draw { limit: limit.name.clone(), key: Key(key), want, need, book };
                self.draws.push((limit, key, started_ns, draw));
            }
            Call::Take { call, cost } => self.take(limit, key, call, cost, true),
            Call::Hold { slots } => {
                self.seq += 1;
                let key_of_slots = Key(keys::of_slots(key));
                let slots = Slots { limit: limit.name.clone(), key: key_of_slots, seq: self.seq, wants: slots };
                self.holds.push((limit, key, started_ns, slots));
            }
        }
    }

    fn take(&mut self, limit: Arc<State>, key: u128, call: u64, cost: u64, again: bool) {
        let exact = Exact { limit: limit.name.clone(), key: Key(key), cost, window: self.window(&limit) };
        let request = ledger::Request::Exact { takes: vec![exact], peek: false };
        self.ask(Aim::Take { limit, key, call, cost, again }, request);
    }

    fn take_all(&mut self, takes: Vec<(Arc<State>, u128, u64)>, told: Told, again: bool) {
        if self.registry.common.standing().breaker.is_open() {
            if let Some((limit, ..)) = takes.first() {
                let denied = limit.denied(super::definition::SECOND, Reason::Outage);
                drop(told.send(Err((0, denied))));
            }
            return;
        }
        let asked = takes.iter().map(|(limit, key, cost)| Exact {
            limit: limit.name.clone(),
            key: Key(*key),
            cost: *cost,
            window: self.window(limit),
        });
        let request = ledger::Request::Exact { takes: asked.collect(), peek: false };
        self.ask(Aim::All { takes, told, again }, request);
    }

    /// The window that it is now, as far as is known; the store says if it is another.
    fn window(&self, limit: &State) -> Option<Window> {
        let Decider::Calendar(every) = limit.setting.load().terms.decider else { return None };
        let hive_ms = match self.hive_ms {
            Some((hive_ms, at_ns)) => hive_ms + self.now_ns().saturating_sub(at_ns) / 1_000_000,
            None => 0,
        };
        Some(calendar::window(every, hive_ms))
    }

    /// One request for all draws that have gathered, one for all slots.
    fn send(&mut self) {
        while !self.draws.is_empty() && self.flights.len() < FLIGHTS_MAX {
            let some: Vec<_> = self.draws.drain(..self.draws.len().min(DRAWS_MAX)).collect();
            let (aims, draws) = some.into_iter().map(|(limit, key, at, draw)| ((limit, key, at), draw)).unzip();
            self.ask(Aim::Draws(aims), ledger::Request::Draw(draws));
        }
        if !self.holds.is_empty() {
            let some = std::mem::take(&mut self.holds).into_iter();
            let (aims, asks) = some.map(|(limit, key, at, ask)| ((limit, key, at), ask)).unzip();
            self.ask(Aim::Slots(aims), ledger::Request::Slots { node: self.node, asks });
        }
    }

    fn ask(&mut self, aim: Aim, request: ledger::Request) {
        let asked_ns = self.now_ns();
        self.registry.common.standing().breaker.asked(asked_ns);
        let answer = self.store.call(Request::Limit(request));
        self.flights.push(Box::pin(async move {
            let result = tokio::time::timeout(CALL, answer).await;
            let silent = |_| Err(Failure::retry("store-silent", "the store did not answer in time"));
            Landed { aim, asked_ns, result: result.unwrap_or_else(silent) }
        }));
    }
}

/// Of those that have ever waited.
fn each_key(state: &Arc<State>, tell: impl Fn(&Arc<State>, u128)) {
    let mut keys = Vec::new();
    state.keys.each(|key, entry| keys.extend(entry.slow().is_some().then_some(key)));
    keys.into_iter().for_each(|key| tell(state, key));
}
