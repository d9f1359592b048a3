//! The interface of limits for a request: a [`Limit`] to take from, a [`Permit`] if it admits, a [`Refusal`] if it does
//! not.
//!
//! The fast path reads the coarse time and changes one atomic word. A request that finds no local permits takes the
//! slow path: it locks the key, and if necessary waits for the drawing task to bring an answer of the store.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use honeyflow_event::Name;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    clock::LocalClock,
    counters::{Counters, Snapshot},
    definition::{Decider, SECOND, Terms},
    key::{Effect, Key, Mode, Origin, PATIENCE_NS, Reason, Setting, SlotsAnswer, StoreAnswer},
    keys::{self, Entry, Keys, WHOLE},
    local_permits::{Batch, ExactTimeNeeded, LocalTake},
    permit::{CostReservation, Grant, Permit},
    queue::{Class, Patience, Waiter},
    store_health::StoreHealth,
};
use crate::contract::NodeId;

const GRACE: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A refusal of a limit: its reason, and when to try again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub limit: Name,
    pub retry_after: Duration,
    pub reason: Reason,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refusal { limit, retry_after, reason } = self;
        match reason {
            Reason::CostTooHigh => write!(f, "limit {limit}: the cost is more than it can ever give at once"),
            reason => write!(f, "limit {limit} refuses ({}); try again in {retry_after:?}", reason.name()),
        }
    }
}

impl std::error::Error for Refusal {}

pub(super) type Verdict = Result<Grant, Refusal>;

/// A waiting caller. It gets one result; a permit goes back by itself if the caller has gone.
pub struct Token {
    pub(super) caller: oneshot::Sender<Verdict>,
}

/// A message to the drawing task.
pub(super) enum Signal {
    Attend {
        limit: Arc<State>,
        key: u128,
    },
    Wake {
        limit: Arc<State>,
        key: u128,
        at_ns: u64,
    },
    Call {
        limit: Arc<State>,
        key: u128,
        started_ns: u64,
        call: Call,
    },
    TakeAll {
        takes: Vec<(Arc<State>, u128, u64)>,
        caller: oneshot::Sender<Result<Vec<Grant>, (usize, Refusal)>>,
    },
    Refund {
        limit: Arc<State>,
        key: u128,
        permits: u64,
        /// The end of the calendar window that they were taken from.
        end_ms: Option<u64>,
    },
    Defined,
    /// The hive's limits have this version.
    Version(u64),
}

/// What the heartbeat reports to the drawing task. Only the newest value is kept. It is not queued, so that it cannot
/// be lost when there are too many signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct News {
    /// The identity of this process.
    pub node: Option<NodeId>,
    /// This node may have been removed from the hive: no heartbeat has been answered since.
    pub cut_off: bool,
    /// How often this node was cut off. Slots that it lost meanwhile do not come back when it is trusted again.
    pub cut_offs: u64,
    /// The number of nodes has changed, and the settings have to be computed again.
    pub recount: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Draw { want: u64, need: u64, reserve: u64 },
    Take { call: u64, cost: u64 },
    Hold { slots: u64 },
}

/// The state that all limits of a node share.
pub(super) struct Common {
    pub clock: LocalClock,
    store_health: Mutex<StoreHealth>,
    news: Mutex<News>,
    pub has_news: Notify,
    pub signals: mpsc::Sender<Signal>,
}

impl Common {
    pub fn new(clock: LocalClock, store_health: StoreHealth, signals: mpsc::Sender<Signal>) -> Common {
        Common {
            clock,
            store_health: Mutex::new(store_health),
            news: Mutex::default(),
            has_news: Notify::new(),
            signals,
        }
    }

    /// Changes the news and wakes the drawing task. After a panic under the lock it is still used: every state is
    /// valid.
    pub fn update_news(&self, update: impl FnOnce(&mut News)) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *news;
        update(&mut news);
        if *news != before {
            self.has_news.notify_one();
        }
    }

    /// Returns the news and clears `recount`.
    pub fn news(&self) -> News {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let current = *news;
        news.recount = false;
        current
    }

    /// The health of the store. After a panic under the lock it is still used: every state is valid.
    pub fn store_health(&self) -> MutexGuard<'_, StoreHealth> {
        self.store_health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct State {
    pub name: Name,
    /// The same clock as that of `common`, without the indirection.
    pub clock: LocalClock,
    pub common: Arc<Common>,
    /// The definition that this process declared.
    pub defined: Terms,
    pub setting: ArcSwap<Setting>,
    /// See [`Setting::ends_ns`].
    pub ends_ns: AtomicU64,
    pub keys: Keys,
    pub counters: Counters,
}

impl State {
    pub fn refuse(&self, retry_ns: u64, reason: Reason) -> Refusal {
        self.counters.count_denied(reason);
        Refusal { limit: self.name.clone(), retry_after: Duration::from_nanos(retry_ns), reason }
    }

    /// Runs a step of the key's state machine under its lock, then performs its effects without a lock.
    pub fn step(
        self: &Arc<State>,
        key: u128,
        run: impl FnOnce(&mut Key<Token>, &Entry, u64, &Setting, &mut Vec<Effect<Token>>),
    ) {
        let mut effects = Vec::new();
        let stepped = self.keys.find(key, |entry| {
            let mut slow = entry.slow();
            let core = slow.get_or_insert_default();
            let now_ns = self.common.clock.now_ns();
            let woken_at_ns = core.wake_at_ns();
            run(core, entry, now_ns, &self.setting.load(), &mut effects);
            self.counters.admitted.fetch_add(core.take_admitted(now_ns, &entry.local), Ordering::Relaxed);
            let at_ns = core.wake_at_ns();
            (now_ns, (at_ns < woken_at_ns).then_some(at_ns))
        });
        let Some((now_ns, wake_at_ns)) = stepped else { return };
        if let Some(at_ns) = wake_at_ns {
            let _ = self.common.signals.try_send(Signal::Wake { limit: self.clone(), key, at_ns });
        }
        for effect in effects {
            self.perform(key, now_ns, effect);
        }
    }

    fn perform(self: &Arc<State>, key: u128, started_ns: u64, effect: Effect<Token>) {
        let call = match effect {
            Effect::Grant { token, permits, origin, waited_ns } => {
                self.counters.count_wait(waited_ns);
                // If the caller has gone, `send` returns the grant, and dropping it gives the permits back.
                let grant = Grant::new(Limit(self.clone()), key, permits, origin);
                drop(token.caller.send(Ok(grant)));
                return;
            }
            Effect::Refuse { token, retry_ns, reason } => {
                drop(token.caller.send(Err(self.refuse(retry_ns, reason))));
                return;
            }
            Effect::GiveBack { permits, origin } => return self.give_back(key, origin, permits),
            Effect::Draw { want, need, reserve } => Call::Draw { want, need, reserve },
            Effect::Take { call, cost } => Call::Take { call, cost },
            Effect::Hold { slots } => Call::Hold { slots },
        };
        let signal = Signal::Call { limit: self.clone(), key, started_ns, call };
        if self.common.signals.try_send(signal).is_err() {
            // The queue of signals is full, or the drawing task has ended.
            self.on_call_failed(key, started_ns, call);
        }
    }

    /// Handles a call that failed.
    pub fn on_call_failed(self: &Arc<State>, key: u128, started_ns: u64, call: Call) {
        match call {
            Call::Draw { .. } => self.on_draw_answer(key, started_ns, None),
            Call::Take { call, .. } => self.on_decision(key, call, started_ns, None),
            Call::Hold { .. } => self.on_slots_answer(key, started_ns, None),
        }
    }

    pub fn on_draw_answer(self: &Arc<State>, key: u128, started_ns: u64, answer: Option<StoreAnswer>) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.on_draw_answer(started_ns, answer, now_ns, setting, &entry.local, effects);
        });
    }

    /// Discards the answer to a draw.
    pub fn discard_draw(self: &Arc<State>, key: u128, started_ns: u64) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.discard_draw(started_ns, now_ns, setting, &entry.local, effects);
        });
    }

    pub fn on_decision(self: &Arc<State>, key: u128, call: u64, asked_ns: u64, answer: Option<StoreAnswer>) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.on_decision(call, asked_ns, answer, now_ns, setting, &entry.local, &entry.full_at, effects);
        });
    }

    pub fn on_slots_answer(self: &Arc<State>, key: u128, started_ns: u64, answer: Option<SlotsAnswer>) {
        self.step(key, |core, _, now_ns, setting, effects| {
            core.on_slots_answer(started_ns, answer, now_ns, setting, effects);
        });
    }

    pub fn attend(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            entry.attention_requested.store(false, Ordering::Release);
            core.attend(now_ns, setting, &entry.local, &entry.full_at, effects);
        });
    }

    /// Tells the key that the setting has changed.
    pub fn on_setting_changed(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.on_setting_changed(now_ns, setting, &entry.local, &entry.full_at, effects);
        });
    }

    pub fn drop_slots(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.drop_slots();
            core.attend(now_ns, setting, &entry.local, &entry.full_at, effects);
        });
    }

    pub fn close(self: &Arc<State>, key: u128) {
        self.step(key, |core, _, _, _, effects| core.close(effects));
    }

    pub fn hold_under_new_identity(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.hold_under_new_identity(now_ns, effects);
            core.attend(now_ns, setting, &entry.local, &entry.full_at, effects);
        });
    }

    /// Computes and stores the setting that follows from these terms and the health of the store.
    pub fn set(&self, terms: &Terms) -> Setting {
        let setting = self.common.store_health().setting(terms);
        let setting = Setting { ends_ns: self.ends_ns.load(Ordering::Relaxed), ..setting };
        self.setting.store(Arc::new(setting));
        setting
    }

    /// A lower definition comes into force at `ends_ns`. Drawn permits expire by then, so that they are not used later
    /// even if the drawing task runs late.
    pub fn expire_by(&self, ends_ns: u64) {
        let known_ns = self.ends_ns.fetch_min(ends_ns, Ordering::Relaxed);
        if known_ns <= ends_ns || crate::planted::on("drawn outlives the change") {
            return;
        }
        self.set(&self.setting.load().terms);
        let now_ns = self.common.clock.now_ns();
        self.keys.for_each(|_, entry| match entry.slow().as_mut() {
            Some(core) => core.expire_by(ends_ns, now_ns, &entry.local),
            None => drop(entry.local.take_all(now_ns)),
        });
    }

    /// Voids all drawn permits.
    pub fn void_permits(&self) {
        let now_ns = self.common.clock.now_ns();
        self.keys.for_each(|_, entry| match entry.slow().as_mut() {
            Some(core) => core.void_permits(now_ns, &entry.local),
            None => drop(entry.local.take_all(now_ns)),
        });
    }

    /// Gives permits back to the store, into the calendar window that ends at `end_ms` if the limit has windows.
    fn refund(self: &Arc<State>, key: u128, permits: u64, end_ms: Option<u64>) {
        // After the refund, the store may admit what it refused before.
        self.step(key, |core, _, _, _, _| core.forget_refusal());
        let _ = self.common.signals.try_send(Signal::Refund { limit: self.clone(), key, permits, end_ms });
    }

    pub fn give_back(self: &Arc<State>, key: u128, origin: Origin, permits: u64) {
        match origin {
            Origin::Batch(expires) => {
                let now_ns = self.common.clock.now_ns();
                if self.keys.find(key, |entry| entry.local.put_back(now_ns, expires, permits)) == Some(false) {
                    self.step(key, |core, entry, now_ns, setting, effects| {
                        core.put_back(Batch { count: permits, expires }, now_ns, setting, &entry.local, effects);
                    });
                }
            }
            Origin::Share(until) => {
                if let Mode::Alone(share) = self.setting.load().mode {
                    let now_ns = self.common.clock.now_ns();
                    self.keys.find(key, |entry| entry.full_at.put_back(&share, until, now_ns, permits));
                }
            }
            Origin::Ledger { until_ns } if self.common.clock.now_ns() >= until_ns => {}
            Origin::Ledger { .. } => self.refund(key, permits, None),
            Origin::Window { end_ms } => self.refund(key, permits, Some(end_ms)),
            Origin::Slots => self.step(key, |core, _, now_ns, setting, effects| {
                core.on_slot_freed(permits, now_ns, setting, effects);
            }),
            Origin::Nowhere => {}
        }
    }
}

/// A limit of this node. Cheap to clone.
///
/// ```no_run
/// # async fn order(api: honeyflow_hive::limit::Limit) -> Result<(), honeyflow_hive::limit::Refusal> {
/// api.key("client-7").try_take(1).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limit(pub(super) Arc<State>);

/// One key of a limit; the limit as a whole is a key too.
#[derive(Clone, Copy)]
pub struct LimitKey<'a> {
    limit: &'a Limit,
    key: u128,
}

/// What could be taken now. Nothing is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peek {
    pub left: u64,
    /// The time until at least one permit is available; zero if one is.
    pub retry_after: Duration,
    /// The most permits that can be available at once.
    pub burst: u64,
}

impl Limit {
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    pub fn terms(&self) -> Terms {
        self.0.setting.load().terms
    }

    /// One key of the limit. A key is what the limit counts by: a client, an address, a tenant.
    #[inline]
    pub fn key(&self, key: &str) -> LimitKey<'_> {
        LimitKey { limit: self, key: keys::hash(key) }
    }

    /// The limit as a whole.
    #[inline]
    pub fn whole(&self) -> LimitKey<'_> {
        LimitKey { limit: self, key: WHOLE }
    }

    /// Calls [`LimitKey::try_take`] for the limit as a whole.
    ///
    /// # Errors
    /// As there.
    pub async fn try_take(&self, cost: u64) -> Result<Permit<'_>, Refusal> {
        self.whole().try_take(cost).await
    }

    /// Calls [`LimitKey::take`] for the limit as a whole.
    ///
    /// # Errors
    /// As there.
    pub async fn take(&self, cost: u64, within: Duration) -> Result<Permit<'_>, Refusal> {
        self.whole().take(cost, within).await
    }

    pub fn snapshot(&self) -> Snapshot {
        let State { name, setting, keys, counters, .. } = &*self.0;
        let setting = setting.load();
        let snapshot = counters.snapshot(name, &setting, self.0.clock.now_ns(), keys.count(), keys.overflowed());
        let slots = (setting.terms.decider == Decider::Slots).then(|| {
            let mut in_use = 0;
            keys.for_each(|_, entry| in_use += entry.slow().as_ref().map_or(0, |core| core.slots_in_use()));
            (in_use, setting.terms.burst)
        });
        Snapshot { slots, ..snapshot }
    }

    pub(super) fn is_exact(&self) -> bool {
        let setting = self.0.setting.load();
        setting.mode == Mode::Store && matches!(setting.terms.decider, Decider::Exact | Decider::Calendar(_))
    }
}

impl<'a> LimitKey<'a> {
    pub(super) fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// The key as the store knows it.
    pub fn hash(&self) -> u128 {
        self.key
    }

    /// Takes from the local permits. It never asks the store and never waits.
    #[inline(always)]
    pub fn take_local(&self, cost: u64) -> Option<Permit<'a>> {
        let soon_ns = self.limit.0.clock.soon_ns();
        let taken = match self.limit.0.keys.whole(self.key) {
            Some(entry) => self.take_from_entry(entry, soon_ns, cost),
            None => self.take_from_key(soon_ns, cost),
        }?;
        Some(Permit::borrowed(self.limit, self.key, cost, Origin::Batch(taken.expires)))
    }

    #[inline]
    fn take_from_entry(&self, entry: &Entry, soon_ns: u64, cost: u64) -> Option<LocalTake> {
        let taken = match entry.local.take_at_coarse_time(soon_ns, cost) {
            Ok(taken) => taken,
            Err(ExactTimeNeeded) => self.take_at_exact_time(entry, cost),
        }?;
        if taken.low {
            self.call_for_attention(entry);
        }
        Some(taken)
    }

    #[cold]
    fn take_at_exact_time(&self, entry: &Entry, cost: u64) -> Option<LocalTake> {
        entry.local.take(self.limit.0.clock.now_ns(), cost)
    }

    /// Kept out of `take_local`, so that it stays small enough to be inlined.
    #[inline(never)]
    fn take_from_key(&self, soon_ns: u64, cost: u64) -> Option<LocalTake> {
        self.limit.0.keys.find(self.key, |entry| self.take_from_entry(entry, soon_ns, cost))?
    }

    /// Takes as many local permits as there are in one batch, up to `most`. Returns `None` if there are none.
    pub fn take_local_up_to(&self, most: u64) -> Option<Permit<'a>> {
        let now_ns = self.limit.0.clock.now_ns();
        loop {
            let left = self.limit.0.keys.find(self.key, |entry| entry.local.largest(now_ns))?.min(most);
            if left == 0 {
                return None;
            }
            // Another request may have taken them meanwhile.
            if let Some(permit) = self.take_local(left) {
                return Some(permit);
            }
        }
    }

    #[cold]
    fn call_for_attention(&self, entry: &Entry) {
        let State { common, .. } = &*self.limit.0;
        if !entry.attention_requested.swap(true, Ordering::AcqRel) {
            let _ = common.signals.try_send(Signal::Attend { limit: self.limit.0.clone(), key: self.key });
        }
    }

    /// Takes the cost, or returns why not. Without local permits it waits for an answer of the store, at most 50 ms. It
    /// never waits for permits.
    ///
    /// # Errors
    /// [`Refusal`], with the time after which to try again.
    pub async fn try_take(self, cost: u64) -> Result<Permit<'a>, Refusal> {
        match self.take_local(cost) {
            Some(permit) => Ok(permit),
            None => self.ask((cost, cost), Class::Normal, None).await,
        }
    }

    /// Takes the cost as soon as it is available, in order of arrival; waits for at most `within`.
    ///
    /// # Errors
    /// [`Refusal`], at the latest when the time is over; at once if the cost can never be met.
    pub async fn take(self, cost: u64, within: Duration) -> Result<Permit<'a>, Refusal> {
        self.take_as(Class::Normal, cost, within).await
    }

    /// Takes as [`LimitKey::take`] does, before waiters of lower classes.
    ///
    /// # Errors
    /// As there.
    pub async fn take_as(self, class: Class, cost: u64, within: Duration) -> Result<Permit<'a>, Refusal> {
        match self.take_local(cost) {
            Some(permit) => Ok(permit),
            None => self.ask((cost, cost), class, Some(within)).await,
        }
    }

    /// Waits for one slot of a concurrency limit, and takes as many more as are free then, up to `most`. Any other
    /// limit gives one permit.
    ///
    /// # Errors
    /// As [`LimitKey::take`].
    pub async fn take_up_to(self, most: u64, within: Duration) -> Result<Permit<'a>, Refusal> {
        self.ask((1, most), Class::Normal, Some(within)).await
    }

    /// Takes as [`LimitKey::take_up_to`] does, without waiting for a slot to become free.
    ///
    /// # Errors
    /// As [`LimitKey::try_take`].
    pub async fn try_take_up_to(self, most: u64) -> Result<Permit<'a>, Refusal> {
        self.ask((1, most), Class::Normal, None).await
    }

    /// Takes the highest cost that an action may have; [`CostReservation::commit`] gives back what it did not cost.
    ///
    /// # Errors
    /// As [`LimitKey::try_take`].
    pub async fn reserve(self, max: u64) -> Result<CostReservation<'a>, Refusal> {
        self.try_take(max).await.map(CostReservation::new)
    }

    /// Returns what could be taken now, as far as this node knows.
    pub fn peek(&self) -> Peek {
        let state = &self.limit.0;
        let now_ns = state.common.clock.now_ns();
        let setting = state.setting.load();
        let (left, retry_ns, remainder) = state
            .keys
            .find(self.key, |entry| {
                let slow = entry.slow();
                if setting.terms.decider == Decider::Slots {
                    let left = slow.as_ref().map(|core| core.slots_left(setting.nodes));
                    return (0, 0, left);
                }
                let left = match setting.mode {
                    Mode::Alone(share) => entry.full_at.left(&share, now_ns),
                    Mode::Open => setting.terms.burst,
                    Mode::Store | Mode::Closed => entry.local.available(now_ns),
                };
                let retry_ns = slow.as_ref().map_or(0, |core| core.refused_for_ns(now_ns));
                let remainder = slow.as_ref().and_then(|core| core.known_remainder(now_ns));
                (left, if left > 0 { 0 } else { retry_ns }, remainder)
            })
            .unwrap_or((0, 0, None));
        // No local permits and no refusal: the store may have what it last answered, or everything if it has not
        // answered. Other nodes take from it, too.
        let fair =
            |left: u64| if setting.terms.decider == Decider::Slots { left } else { left.div_ceil(setting.nodes) };
        let in_store = remainder.map_or_else(|| setting.terms.cost_max().div_ceil(setting.nodes), fair);
        let left = if left == 0 && retry_ns == 0 { in_store } else { left };
        Peek { left, retry_after: Duration::from_nanos(retry_ns), burst: setting.terms.burst }
    }

    fn ask(
        self,
        (cost, most): (u64, u64),
        class: Class,
        within: Option<Duration>,
    ) -> impl Future<Output = Result<Permit<'a>, Refusal>> {
        let asked = self.ask_now((cost, most), class, within);
        async move {
            let verdict = match asked {
                Ok(permit) => return permit,
                Err(verdict) => verdict,
            };
            // The key's state machine ends the wait in time; this timeout is for a drawing task that has ended.
            let longest = within.unwrap_or(Duration::ZERO).min(YEAR) + GRACE;
            match tokio::time::timeout(longest, verdict).await {
                Ok(Ok(verdict)) => verdict.map(|grant| grant.claim(self.limit)),
                Ok(Err(_)) | Err(_) => Err(self.limit.0.refuse(PATIENCE_NS, Reason::StoreSilent)),
            }
        }
    }

    fn ask_now(
        self,
        (cost, most): (u64, u64),
        class: Class,
        within: Option<Duration>,
    ) -> Result<Result<Permit<'a>, Refusal>, oneshot::Receiver<Verdict>> {
        let state = &self.limit.0;
        if cost == 0 {
            return Ok(Ok(Permit::borrowed(self.limit, self.key, 0, Origin::Nowhere)));
        }
        let now_ns = state.common.clock.now_ns();
        let key = state.keys.place_key(self.key, now_ns);
        let setting = state.setting.load();
        if let (Mode::Alone(share), None) = (setting.mode, within)
            && setting.terms.decider != Decider::Slots
        {
            let taken = state.keys.find(key, |entry| entry.full_at.take(&share, now_ns, cost));
            return Ok(match taken.unwrap_or(Err(PATIENCE_NS)) {
                Ok(until) => {
                    state.counters.admitted.fetch_add(cost, Ordering::Relaxed);
                    Ok(Permit::borrowed(self.limit, key, cost, Origin::Share(until)))
                }
                Err(_) if cost > setting.terms.cost_max() => Err(state.refuse(0, Reason::CostTooHigh)),
                Err(_) if cost > share.burst => Err(state.refuse(SECOND, Reason::Outage)),
                Err(retry_ns) => Err(state.refuse(retry_ns, Reason::Exhausted)),
            });
        }
        let (caller, verdict) = oneshot::channel();
        let (patience, wait_ns) = match within {
            None => (Patience::Immediate, PATIENCE_NS),
            Some(within) => (Patience::UntilDeadline, u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)),
        };
        let waiter = Waiter {
            token: Token { caller },
            cost,
            up_to: most.max(cost),
            class,
            patience,
            since_ns: now_ns,
            deadline_ns: now_ns.saturating_add(wait_ns),
        };
        state.step(key, |core, entry, now_ns, setting, effects| {
            core.ask(waiter, now_ns, setting, &entry.local, &entry.full_at, effects);
            if state.common.signals.is_closed() {
                core.close(effects);
            }
        });
        Err(verdict)
    }
}

#[cfg(test)]
mod tests;
