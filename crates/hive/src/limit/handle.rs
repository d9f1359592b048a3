//! Limits as a request sees them: [`Limit`] to take from, [`Permit`] for what was taken, [`Denied`] for what was not.
//!
//! The short way is one look at the time and one atomic word. Whoever finds that empty goes the long way, under the key's
//! lock and if need be to the drawing task, and waits there for a word from the store.

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
    key::{Drawn, Effect, Footing, Holds, Key, Origin, PATIENCE_NS, Reason, Setting},
    keys::{self, Entry, Keys, WHOLE},
    permit::{Grant, Permit, Reservation},
    queue::{Class, Patience, Waiter},
    standing::Standing,
    stock::{Batch, Late, Taken},
};
use crate::contract::NodeId;

const GRACE: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Why not, and when to come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    pub limit: Name,
    pub retry_after: Duration,
    pub reason: Reason,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Denied { limit, retry_after, reason } = self;
        match reason {
            Reason::CostTooHigh => write!(f, "limit {limit}: the cost is more than it can ever give at once"),
            reason => write!(f, "limit {limit} refuses ({}); try again in {retry_after:?}", reason.name()),
        }
    }
}

impl std::error::Error for Denied {}

pub(super) type Verdict = Result<Grant, Denied>;

/// Who waits: told once, with a permit that goes back by itself if nobody is there any more.
pub struct Token {
    pub(super) told: oneshot::Sender<Verdict>,
}

/// What the drawing task hears.
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
        told: oneshot::Sender<Result<Vec<Grant>, (usize, Denied)>>,
    },
    Refund {
        limit: Arc<State>,
        key: u128,
        permits: u64,
        /// Of the window that they were taken in.
        end_ms: Option<u64>,
    },
    Defined,
    /// The hive's limits have this version.
    Version(u64),
}

/// What the heartbeat tells the drawing task. It is kept and not queued: none of it may be lost in a crowd of signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct News {
    /// Who this process is.
    pub node: Option<NodeId>,
    /// This node may be no member any more: no beat was answered since.
    pub cut_off: bool,
    /// How often that was so. What happened in between does not come back with trust.
    pub cut_offs: u64,
    /// Settings follow from what was counted.
    pub recount: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Draw { want: u64, need: u64, book: u64 },
    Take { call: u64, cost: u64 },
    Hold { slots: u64 },
}

/// What all limits of a node have in common.
pub(super) struct Common {
    pub clock: LocalClock,
    standing: Mutex<Standing>,
    news: Mutex<News>,
    pub has_news: Notify,
    pub signals: mpsc::Sender<Signal>,
}

impl Common {
    pub fn new(clock: LocalClock, standing: Standing, signals: mpsc::Sender<Signal>) -> Common {
        Common { clock, standing: Mutex::new(standing), news: Mutex::default(), has_news: Notify::new(), signals }
    }

    /// Whole values: no state of them is half a state.
    pub fn tell(&self, tell: impl FnOnce(&mut News)) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *news;
        tell(&mut news);
        if *news != before {
            self.has_news.notify_one();
        }
    }

    /// What was told, and no recount any more.
    pub fn news(&self) -> News {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let told = *news;
        news.recount = false;
        told
    }

    /// Plain numbers: no state of them is half a state.
    pub fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct State {
    pub name: Name,
    /// The same as that of `common`, one step nearer to the request.
    pub clock: LocalClock,
    pub common: Arc<Common>,
    /// As this process was told to define it.
    pub defined: Terms,
    pub setting: ArcSwap<Setting>,
    /// See [`Setting::ends_ns`].
    pub ends_ns: AtomicU64,
    pub keys: Keys,
    pub counters: Counters,
}

impl State {
    pub fn denied(&self, retry_ns: u64, reason: Reason) -> Denied {
        self.counters.denied(reason);
        Denied { limit: self.name.clone(), retry_after: Duration::from_nanos(retry_ns), reason }
    }

    /// Runs the core of a key under its lock, then, with no lock held, does what it says.
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
            self.counters.admitted.fetch_add(core.take_admitted(now_ns, &entry.stock), Ordering::Relaxed);
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
                self.counters.waited(waited_ns);
                // If nobody listens any more the grant comes back, and goes back as it is dropped.
                let grant = Grant::new(Limit(self.clone()), key, permits, origin);
                drop(token.told.send(Ok(grant)));
                return;
            }
            Effect::Refuse { token, retry_ns, reason } => {
                drop(token.told.send(Err(self.denied(retry_ns, reason))));
                return;
            }
            Effect::GiveBack { permits, origin } => return self.give_back(key, origin, permits),
            Effect::Draw { want, need, book } => Call::Draw { want, need, book },
            Effect::Take { call, cost } => Call::Take { call, cost },
            Effect::Hold { slots } => Call::Hold { slots },
        };
        let signal = Signal::Call { limit: self.clone(), key, started_ns, call };
        if self.common.signals.try_send(signal).is_err() {
            // More is going on than this node can ask for; or it is on its way out.
            self.failed(key, started_ns, call);
        }
    }

    /// A call that brought nothing.
    pub fn failed(self: &Arc<State>, key: u128, started_ns: u64, call: Call) {
        match call {
            Call::Draw { .. } => self.drawn(key, started_ns, None),
            Call::Take { call, .. } => self.decided(key, call, started_ns, None),
            Call::Hold { .. } => self.held(key, started_ns, None),
        }
    }

    pub fn drawn(self: &Arc<State>, key: u128, started_ns: u64, answer: Option<Drawn>) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.drawn(started_ns, answer, now_ns, setting, &entry.stock, effects);
        });
    }

    /// A draw was answered, and nothing of it counts.
    pub fn spent(self: &Arc<State>, key: u128, started_ns: u64) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.spent(started_ns, now_ns, setting, &entry.stock, effects);
        });
    }

    pub fn decided(self: &Arc<State>, key: u128, call: u64, asked_ns: u64, answer: Option<Drawn>) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.decided(call, asked_ns, answer, now_ns, setting, &entry.stock, &entry.full_at, effects);
        });
    }

    pub fn held(self: &Arc<State>, key: u128, started_ns: u64, answer: Option<Holds>) {
        self.step(key, |core, _, now_ns, setting, effects| core.holds(started_ns, answer, now_ns, setting, effects));
    }

    pub fn attend(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            entry.attended.store(false, Ordering::Release);
            core.attend(now_ns, setting, &entry.stock, &entry.full_at, effects);
        });
    }

    /// The setting has changed.
    pub fn changed(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.changed(now_ns, setting, &entry.stock, &entry.full_at, effects);
        });
    }

    pub fn let_go(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.let_go();
            core.attend(now_ns, setting, &entry.stock, &entry.full_at, effects);
        });
    }

    pub fn close(self: &Arc<State>, key: u128) {
        self.step(key, |core, _, _, _, effects| core.close(effects));
    }

    pub fn hold_again(self: &Arc<State>, key: u128) {
        self.step(key, |core, entry, now_ns, setting, effects| {
            core.hold_again(now_ns, effects);
            core.attend(now_ns, setting, &entry.stock, &entry.full_at, effects);
        });
    }

    /// What follows from these terms, as things stand.
    pub fn set(&self, terms: &Terms) -> Setting {
        let setting = self.common.standing().setting(terms);
        let setting = Setting { ends_ns: self.ends_ns.load(Ordering::Relaxed), ..setting };
        self.setting.store(Arc::new(setting));
        setting
    }

    /// A lower definition comes into force then: whatever runs late on this node, nothing that was drawn is used after it.
    pub fn end_at(&self, ends_ns: u64) {
        let known_ns = self.ends_ns.fetch_min(ends_ns, Ordering::Relaxed);
        if known_ns <= ends_ns || crate::planted::on("drawn outlives the change") {
            return;
        }
        self.set(&self.setting.load().terms);
        let now_ns = self.common.clock.now_ns();
        self.keys.each(|_, entry| match entry.slow().as_mut() {
            Some(core) => core.end_at(ends_ns, now_ns, &entry.stock),
            None => drop(entry.stock.sweep(now_ns)),
        });
    }

    /// Nothing that was drawn counts any more.
    pub fn void(&self) {
        let now_ns = self.common.clock.now_ns();
        self.keys.each(|_, entry| match entry.slow().as_mut() {
            Some(core) => core.void(now_ns, &entry.stock),
            None => drop(entry.stock.sweep(now_ns)),
        });
    }

    /// Into that window of the calendar, if there are windows.
    fn refund(self: &Arc<State>, key: u128, permits: u64, end_ms: Option<u64>) {
        // With what comes back a refusal that is remembered may not be true any more.
        self.step(key, |core, _, _, _, _| core.forget_refusal());
        let _ = self.common.signals.try_send(Signal::Refund { limit: self.clone(), key, permits, end_ms });
    }

    pub fn give_back(self: &Arc<State>, key: u128, origin: Origin, permits: u64) {
        match origin {
            Origin::Batch(dies) => {
                let now_ns = self.common.clock.now_ns();
                if self.keys.find(key, |entry| entry.stock.put_back(now_ns, dies, permits)) == Some(false) {
                    self.step(key, |core, entry, now_ns, setting, effects| {
                        core.put_back(Batch { count: permits, dies }, now_ns, setting, &entry.stock, effects);
                    });
                }
            }
            Origin::Share(until) => {
                if let Footing::Alone(share) = self.setting.load().footing {
                    let now_ns = self.common.clock.now_ns();
                    self.keys.find(key, |entry| entry.full_at.put_back(&share, until, now_ns, permits));
                }
            }
            Origin::Ledger { until_ns } if self.common.clock.now_ns() >= until_ns => {}
            Origin::Ledger { .. } => self.refund(key, permits, None),
            Origin::Window { end_ms } => self.refund(key, permits, Some(end_ms)),
            Origin::Slots => self.step(key, |core, _, now_ns, setting, effects| {
                core.slot_freed(permits, now_ns, setting, effects);
            }),
            Origin::Nowhere => {}
        }
    }
}

/// A limit of this node. Cheap to clone.
///
/// ```no_run
/// # async fn order(api: honeyflow_hive::limit::Limit) -> Result<(), honeyflow_hive::limit::Denied> {
/// api.key("client-7").try_take(1).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limit(pub(super) Arc<State>);

/// One key of a limit; the limit as a whole is a key too.
#[derive(Clone, Copy)]
pub struct Keyed<'a> {
    limit: &'a Limit,
    key: u128,
}

/// What could be taken now, without taking it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peek {
    pub left: u64,
    /// Until there is at least one; zero if there is.
    pub retry_after: Duration,
    /// The most there can be.
    pub burst: u64,
}

impl Limit {
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    pub fn terms(&self) -> Terms {
        self.0.setting.load().terms
    }

    /// By whatever the limit counts: a client, an address, a tenant.
    #[inline]
    pub fn key(&self, key: &str) -> Keyed<'_> {
        Keyed { limit: self, key: keys::hash(key) }
    }

    /// The limit as a whole.
    #[inline]
    pub fn whole(&self) -> Keyed<'_> {
        Keyed { limit: self, key: WHOLE }
    }

    /// [`Keyed::try_take`] of the whole.
    ///
    /// # Errors
    /// As there.
    pub async fn try_take(&self, cost: u64) -> Result<Permit<'_>, Denied> {
        self.whole().try_take(cost).await
    }

    /// [`Keyed::take`] of the whole.
    ///
    /// # Errors
    /// As there.
    pub async fn take(&self, cost: u64, within: Duration) -> Result<Permit<'_>, Denied> {
        self.whole().take(cost, within).await
    }

    pub fn snapshot(&self) -> Snapshot {
        let State { name, setting, keys, counters, .. } = &*self.0;
        let setting = setting.load();
        let snapshot = counters.snapshot(name, &setting, self.0.clock.now_ns(), keys.count(), keys.overflowed());
        let slots = (setting.terms.decider == Decider::Slots).then(|| {
            let mut in_use = 0;
            keys.each(|_, entry| in_use += entry.slow().as_ref().map_or(0, |core| core.slots_in_use()));
            (in_use, setting.terms.burst)
        });
        Snapshot { slots, ..snapshot }
    }

    pub(super) fn is_exact(&self) -> bool {
        let setting = self.0.setting.load();
        setting.footing == Footing::Store && matches!(setting.terms.decider, Decider::Exact | Decider::Calendar(_))
    }
}

impl<'a> Keyed<'a> {
    pub(super) fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// As the store knows it.
    pub fn hash(&self) -> u128 {
        self.key
    }

    /// What is in stock here, at once: never asks, never waits.
    #[inline(always)]
    pub fn take_local(&self, cost: u64) -> Option<Permit<'a>> {
        let soon_ns = self.limit.0.clock.soon_ns();
        let taken = match self.limit.0.keys.whole(self.key) {
            Some(entry) => self.take_of(entry, soon_ns, cost),
            None => self.take_of_key(soon_ns, cost),
        }?;
        Some(Permit::lent(self.limit, self.key, cost, Origin::Batch(taken.dies)))
    }

    #[inline]
    fn take_of(&self, entry: &Entry, soon_ns: u64, cost: u64) -> Option<Taken> {
        let taken = match entry.stock.take_by(soon_ns, cost) {
            Ok(taken) => taken,
            Err(Late) => self.take_late(entry, cost),
        }?;
        if taken.low {
            self.call_for_attention(entry);
        }
        Some(taken)
    }

    #[cold]
    fn take_late(&self, entry: &Entry, cost: u64) -> Option<Taken> {
        entry.stock.take(self.limit.0.clock.now_ns(), cost)
    }

    /// Apart from the rest, which stays small enough to stand where it is called.
    #[inline(never)]
    fn take_of_key(&self, soon_ns: u64, cost: u64) -> Option<Taken> {
        self.limit.0.keys.find(self.key, |entry| self.take_of(entry, soon_ns, cost))?
    }

    /// As much of it as is in stock here, at once; none if nothing is.
    pub fn take_local_up_to(&self, most: u64) -> Option<Permit<'a>> {
        let now_ns = self.limit.0.clock.now_ns();
        loop {
            let left = self.limit.0.keys.find(self.key, |entry| entry.stock.largest(now_ns))?.min(most);
            if left == 0 {
                return None;
            }
            // Somebody else may have been quicker.
            if let Some(permit) = self.take_local(left) {
                return Some(permit);
            }
        }
    }

    #[cold]
    fn call_for_attention(&self, entry: &Entry) {
        let State { common, .. } = &*self.limit.0;
        if !entry.attended.swap(true, Ordering::AcqRel) {
            let _ = common.signals.try_send(Signal::Attend { limit: self.limit.0.clone(), key: self.key });
        }
    }

    /// Takes the cost, or says why not. Waits for the store's word if nothing is in stock, at most 50 ms, and never for
    /// permits.
    ///
    /// # Errors
    /// [`Denied`], with the time after which it may be otherwise.
    pub async fn try_take(self, cost: u64) -> Result<Permit<'a>, Denied> {
        match self.take_local(cost) {
            Some(permit) => Ok(permit),
            None => self.ask((cost, cost), Class::Normal, None).await,
        }
    }

    /// Takes the cost as soon as it is there: in order of arrival, for as long as `within` says.
    ///
    /// # Errors
    /// [`Denied`], at the latest when the time is over; at once if the cost can never be met.
    pub async fn take(self, cost: u64, within: Duration) -> Result<Permit<'a>, Denied> {
        self.take_as(Class::Normal, cost, within).await
    }

    /// As [`Keyed::take`], before those of a lesser class.
    ///
    /// # Errors
    /// As there.
    pub async fn take_as(self, class: Class, cost: u64, within: Duration) -> Result<Permit<'a>, Denied> {
        match self.take_local(cost) {
            Some(permit) => Ok(permit),
            None => self.ask((cost, cost), class, Some(within)).await,
        }
    }

    /// Of a limit on how many at once: as soon as one slot is free, and as many more of them as are free then, up to
    /// `most`. Any other limit gives one permit.
    ///
    /// # Errors
    /// As [`Keyed::take`].
    pub async fn take_up_to(self, most: u64, within: Duration) -> Result<Permit<'a>, Denied> {
        self.ask((1, most), Class::Normal, Some(within)).await
    }

    /// The same of what is free now, or can be had at once.
    ///
    /// # Errors
    /// As [`Keyed::try_take`].
    pub async fn try_take_up_to(self, most: u64) -> Result<Permit<'a>, Denied> {
        self.ask((1, most), Class::Normal, None).await
    }

    /// Takes the most that something may cost; [`Reservation::commit`] says what it did.
    ///
    /// # Errors
    /// As [`Keyed::try_take`].
    pub async fn reserve(self, max: u64) -> Result<Reservation<'a>, Denied> {
        self.try_take(max).await.map(Reservation::of)
    }

    /// What could be taken, as far as this node knows.
    pub fn peek(&self) -> Peek {
        let state = &self.limit.0;
        let now_ns = state.common.clock.now_ns();
        let setting = state.setting.load();
        let (left, retry_ns, told) = state
            .keys
            .find(self.key, |entry| {
                let slow = entry.slow();
                if setting.terms.decider == Decider::Slots {
                    let left = slow.as_ref().map(|core| core.slots_left(setting.nodes));
                    return (0, 0, left);
                }
                let left = match setting.footing {
                    Footing::Alone(share) => entry.full_at.left(&share, now_ns),
                    Footing::Open => setting.terms.burst,
                    Footing::Store | Footing::Closed => entry.stock.left(now_ns),
                };
                let retry_ns = slow.as_ref().map_or(0, |core| core.refused_for_ns(now_ns));
                let told = slow.as_ref().and_then(|core| core.told_left(now_ns));
                (left, if left > 0 { 0 } else { retry_ns }, told)
            })
            .unwrap_or((0, 0, None));
        // Nothing here and nothing refused: the store has what it has said, or all, for all that is known. Others take from
        // it, too.
        let fair =
            |left: u64| if setting.terms.decider == Decider::Slots { left } else { left.div_ceil(setting.nodes) };
        let there = told.map_or_else(|| setting.terms.cost_max().div_ceil(setting.nodes), fair);
        let left = if left == 0 && retry_ns == 0 { there } else { left };
        Peek { left, retry_after: Duration::from_nanos(retry_ns), burst: setting.terms.burst }
    }

    fn ask(
        self,
        (cost, most): (u64, u64),
        class: Class,
        within: Option<Duration>,
    ) -> impl Future<Output = Result<Permit<'a>, Denied>> {
        let asked = self.ask_now((cost, most), class, within);
        async move {
            let told = match asked {
                Ok(permit) => return permit,
                Err(told) => told,
            };
            // The core ends the wait in time; this is for a drawing task that has gone away.
            let longest = within.unwrap_or(Duration::ZERO).min(YEAR) + GRACE;
            match tokio::time::timeout(longest, told).await {
                Ok(Ok(verdict)) => verdict.map(|grant| grant.claim(self.limit)),
                Ok(Err(_)) | Err(_) => Err(self.limit.0.denied(PATIENCE_NS, Reason::StoreSilent)),
            }
        }
    }

    fn ask_now(
        self,
        (cost, most): (u64, u64),
        class: Class,
        within: Option<Duration>,
    ) -> Result<Result<Permit<'a>, Denied>, oneshot::Receiver<Verdict>> {
        let state = &self.limit.0;
        if cost == 0 {
            return Ok(Ok(Permit::lent(self.limit, self.key, 0, Origin::Nowhere)));
        }
        let now_ns = state.common.clock.now_ns();
        let key = state.keys.place(self.key, now_ns);
        let setting = state.setting.load();
        if let (Footing::Alone(share), None) = (setting.footing, within)
            && setting.terms.decider != Decider::Slots
        {
            let taken = state.keys.find(key, |entry| entry.full_at.take(&share, now_ns, cost));
            return Ok(match taken.unwrap_or(Err(PATIENCE_NS)) {
                Ok(until) => {
                    state.counters.admitted.fetch_add(cost, Ordering::Relaxed);
                    Ok(Permit::lent(self.limit, key, cost, Origin::Share(until)))
                }
                Err(_) if cost > setting.terms.cost_max() => Err(state.denied(0, Reason::CostTooHigh)),
                Err(_) if cost > share.burst => Err(state.denied(SECOND, Reason::Outage)),
                Err(retry_ns) => Err(state.denied(retry_ns, Reason::Exhausted)),
            });
        }
        let (told, verdict) = oneshot::channel();
        let (patience, wait_ns) = match within {
            None => (Patience::Door, PATIENCE_NS),
            Some(within) => (Patience::Step, u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)),
        };
        let waiter = Waiter {
            token: Token { told },
            cost,
            wish: most.max(cost),
            class,
            patience,
            since_ns: now_ns,
            deadline_ns: now_ns.saturating_add(wait_ns),
        };
        state.step(key, |core, entry, now_ns, setting, effects| {
            core.ask(waiter, now_ns, setting, &entry.stock, &entry.full_at, effects);
            if state.common.signals.is_closed() {
                core.close(effects);
            }
        });
        Err(verdict)
    }
}

#[cfg(test)]
mod tests;
