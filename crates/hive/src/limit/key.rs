//! The slow path of one key of one limit on one node, as a pure state machine: `(state, input, now) → effects`. A
//! request comes here when the fast path finds no local permits.
//!
//! | decider  | a request finds no local permits            | the store answers                                       |
//! |----------|---------------------------------------------|---------------------------------------------------------|
//! | pool     | waits; at most one draw is in flight        | serves waiters in order, keeps the rest locally         |
//! | pool     | pool was dry a moment ago: refused at once  | too little: draws are paced, immediate requests refused |
//! | exact    | the store is asked for this request         | admits, or refuses and remembers the refusal            |
//! | slots    | waits; the node asks for the missing slots  | serves waiters in order                                 |
//! | (outage) | uses the share, admits all, or refuses all  | back to the rows above, without any permits             |
//!
//! The life of a batch counts from the *start* of its draw. While requests wait, the local permits are kept out of
//! reach of the fast path, so that a later request is not served first. Each step that adds permits also serves the
//! queue, so that no request waits while permits for it are available.

mod exact;
mod pool;
mod reservation;
mod slots;

pub use slots::SlotsAnswer;

use super::{
    definition::{Decider, MILLISECOND, Terms},
    demand::Demand,
    gcra::{FullAt, RefundDeadline, Share},
    local_permits::{Batch, Expiry, LocalPermits},
    queue::{Class, Patience, Queue, WAITERS_MAX, Waiter},
};

/// The longest time that a request waits for an answer of the store.
pub const PATIENCE_NS: u64 = 50 * MILLISECOND;

/// How a limit decides at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Store,
    /// The store does not answer: the node uses its share of the limit, which begins empty.
    Alone(Share),
    /// The store does not answer, and everything is refused.
    Closed,
    /// The store does not answer, and nothing is limited.
    Open,
}

/// What all keys of a limit have in common at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub terms: Terms,
    pub mode: Mode,
    /// One draw covers the demand of this time, and draws from a dry pool are this far apart.
    pub batch_ns: u64,
    /// The permits of a second that may be reserved in advance; 0: none.
    pub reservable: u64,
    /// The number of nodes that share the store's permits.
    pub nodes: u64,
    /// A lower definition comes into force then: all permits that were drawn before expire by that time.
    pub ends_ns: u64,
}

/// The origin of a permit, to which a refund goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Batch(Expiry),
    Share(RefundDeadline),
    /// The store decided, and took it from its bucket. After `until_ns` the bucket may have been full, and a refund
    /// would add more than was taken.
    Ledger {
        until_ns: u64,
    },
    /// The store decided, and took it from the calendar window that ends then, in hive time.
    Window {
        end_ms: u64,
    },
    Slots,
    /// It cost nothing, or nothing was limited.
    Nowhere,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The limit is used up.
    Exhausted,
    /// The deadline came first.
    Deadline,
    /// The store did not answer in time.
    StoreSilent,
    /// The store does not answer, and this limit is closed without it.
    Outage,
    /// The cost is more than the limit can ever give at once.
    CostTooHigh,
    /// Too many requests wait already.
    QueueFull,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<W> {
    Draw {
        want: u64,
        need: u64,
        /// The permits of the next second to reserve.
        reserve: u64,
    },
    Take {
        call: u64,
        cost: u64,
    },
    /// Tells the store how many slots this node holds or wants to hold.
    Hold {
        slots: u64,
    },
    Grant {
        token: W,
        /// For slots this may be more than the cost, if the request takes more.
        permits: u64,
        origin: Origin,
        waited_ns: u64,
    },
    /// Gives back permits that were taken for a caller who has gone.
    GiveBack {
        permits: u64,
        origin: Origin,
    },
    Refuse {
        token: W,
        retry_ns: u64,
        reason: Reason,
    },
}

/// The answer of the store to a draw or to one decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoreAnswer {
    pub given: u64,
    /// The time until the needed permits are available.
    pub retry_ms: u64,
    /// The permits that remain in the store, and, if the store decides, the time until its bucket is full without
    /// further takes.
    pub pool: u64,
    pub full_ms: u64,
    /// The end of the calendar window that it was taken from, in hive time; 0 without windows.
    pub window_ms: u64,
    /// The permits reserved of the second that begins in `begins_ms`; both are 0 if no reservation was asked for.
    pub reserved: u64,
    pub begins_ms: u64,
}

impl StoreAnswer {
    /// An answer without a reservation.
    pub fn now(given: u64, retry_ms: u64) -> StoreAnswer {
        StoreAnswer { given, retry_ms, pool: 0, full_ms: retry_ms, window_ms: 0, reserved: 0, begins_ms: 0 }
    }
}

impl Origin {
    /// The origin of permits that the store took by its own decision; the node asked at `asked_ns`.
    pub fn from_store(asked_ns: u64, full_ms: u64, window_ms: u64) -> Origin {
        match window_ms {
            0 => Origin::Ledger { until_ns: asked_ns.saturating_add(full_ms.saturating_mul(MILLISECOND)) },
            end_ms => Origin::Window { end_ms },
        }
    }
}

/// A draw, or a request for slots, that has not been answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CallInFlight {
    started_ns: u64,
    want: u64,
    reserve: u64,
}

/// The permits that remained in the store when it last answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KnownRemainder {
    left: u64,
    full_at_ns: u64,
}

/// A refusal that still holds: until then the store would give the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RememberedRefusal {
    until_ns: u64,
    cost: u64,
    version: u64,
}

/// A waiter on whose request the store is deciding.
struct PendingDecision<W> {
    call: u64,
    started_ns: u64,
    version: u64,
    waiter: Waiter<W>,
}

/// The state of a key that the fast path of a request does not need.
pub struct Key<W> {
    queue: Queue<W>,
    /// Permits that are collected for the head of the queue.
    held: Batch,
    in_flight: Option<CallInFlight>,
    /// After an answer with too few permits, the next draw is not made before this time.
    paced_until_ns: u64,
    short_at_ns: Option<u64>,
    /// The time that the draws have used up, one pace each. It is ahead of the clock by as much as they came faster.
    pace_ns: u64,
    /// The permits that the last draw brought, and how long it took.
    last_given: u64,
    last_trip_ns: u64,
    last_started_ns: u64,
    /// The last draw brought less than was wanted.
    is_dry: bool,
    /// The pool was nearly full at the last draw.
    is_plenty: bool,
    draw_at_ns: u64,
    reservation: reservation::ReservationState,
    void_at_ns: u64,
    refusal: Option<RememberedRefusal>,
    remainder: Option<KnownRemainder>,
    pending: Vec<PendingDecision<W>>,
    calls: u64,
    slots: slots::Slots,
    demand: Demand,
    /// The number of local permits when it was last read.
    seen_count: u64,
    admitted: u64,
}

impl<W> Default for Key<W> {
    fn default() -> Key<W> {
        Key {
            queue: Queue::default(),
            held: Batch::NONE,
            in_flight: None,
            paced_until_ns: 0,
            short_at_ns: None,
            pace_ns: 0,
            last_given: 0,
            last_trip_ns: 0,
            last_started_ns: 0,
            is_dry: false,
            is_plenty: false,
            draw_at_ns: u64::MAX,
            reservation: reservation::ReservationState::default(),
            void_at_ns: 0,
            refusal: None,
            remainder: None,
            pending: Vec::new(),
            calls: 0,
            slots: slots::Slots::default(),
            demand: Demand::default(),
            seen_count: 0,
            admitted: 0,
        }
    }
}

impl<W> Key<W> {
    /// Handles a request that found no local permits.
    pub fn ask(
        &mut self,
        waiter: Waiter<W>,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        if waiter.cost > setting.terms.cost_max() {
            effects.push(Effect::Refuse { token: waiter.token, retry_ns: 0, reason: Reason::CostTooHigh });
            return;
        }
        // A draw may have been answered while this request waited for the lock.
        let pool = matches!((setting.mode, setting.terms.decider), (Mode::Store, Decider::Pool { .. }));
        if pool
            && self.queue.is_empty()
            && let Some(taken) = local.take(now_ns, waiter.cost)
        {
            let (token, permits, origin) = (waiter.token, waiter.cost, Origin::Batch(taken.expires));
            effects.push(Effect::Grant { token, permits, origin, waited_ns: 0 });
            return;
        }
        self.demand.add(now_ns, waiter.cost);
        if self.queue.len() >= WAITERS_MAX {
            effects.push(Effect::Refuse { token: waiter.token, retry_ns: PATIENCE_NS, reason: Reason::QueueFull });
            return;
        }
        self.queue.push(waiter);
        self.attend(now_ns, setting, local, full_at, effects);
    }

    /// Does everything that is due. It may be called at any time.
    pub fn attend(
        &mut self,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.count_local_takes(now_ns, local);
        match setting.mode {
            Mode::Store => match setting.terms.decider {
                Decider::Pool { life_ns } => self.attend_pool(now_ns, life_ns, setting, local, effects),
                Decider::Exact | Decider::Calendar(_) => self.attend_exact(now_ns, setting, effects),
                Decider::Slots => self.attend_slots(now_ns, setting, effects),
            },
            Mode::Alone(share) if setting.terms.decider != Decider::Slots => {
                self.draw_at_ns = u64::MAX;
                // A cost above the share's burst can never be met: it would block the queue for ever.
                let too_large = self.queue.remove(|waiter| waiter.cost > share.burst);
                effects.extend(too_large.into_iter().map(|waiter| Effect::Refuse {
                    token: waiter.token,
                    retry_ns: super::definition::SECOND,
                    reason: Reason::Outage,
                }));
                while let Some(head) = self.queue.head() {
                    match full_at.take(&share, now_ns, head.cost) {
                        Ok(until) => self.grant_head(Origin::Share(until), now_ns, effects),
                        Err(retry_ns) => {
                            self.refuse_immediate(retry_ns, Reason::Exhausted, effects);
                            self.draw_at_ns = now_ns.saturating_add(retry_ns);
                            break;
                        }
                    }
                }
            }
            // Slots that the node holds stay usable; it cannot get more.
            Mode::Alone(_) | Mode::Closed => {
                let again_ns = now_ns.saturating_add(super::definition::SECOND);
                self.draw_at_ns = if self.slots.is_unsure() { again_ns } else { u64::MAX };
                self.slots.stop_yielding();
                self.serve_slots(now_ns, effects);
                self.refuse_immediate(super::definition::SECOND, Reason::Outage, effects);
            }
            Mode::Open => {
                self.draw_at_ns = u64::MAX;
                while let Some(head) = self.queue.head() {
                    let permits = head.up_to.max(head.cost);
                    self.grant_to_head(permits, Origin::Nowhere, now_ns, effects);
                }
            }
        }
        self.expire(now_ns, effects);
    }

    /// The mode or the version of the limit has changed: remembered answers may be wrong, and waiters may now be
    /// served.
    pub fn on_setting_changed(
        &mut self,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.paced_until_ns = 0;
        self.refusal = None;
        // Calls in flight end by their deadlines; answers that still arrive are ignored.
        let was_asking = self.in_flight.take().is_some();
        if setting.terms.decider == Decider::Slots {
            self.slots.on_setting_changed(was_asking, setting.terms.burst);
        }
        if setting.mode != Mode::Store {
            self.reservation.seconds.clear();
        }
        self.attend(now_ns, setting, local, full_at, effects);
    }

    /// Voids all drawn permits: the clock has jumped, or the limit is lower now.
    pub fn void_permits(&mut self, now_ns: u64, local: &LocalPermits) {
        self.count_local_takes(now_ns, local);
        local.take_all(now_ns);
        self.held = Batch::NONE;
        self.reservation.seconds.clear();
        self.seen_count = local.count();
        self.void_at_ns = now_ns;
    }

    /// Lets all permits here expire at `ends_ns` at the latest.
    pub fn expire_by(&mut self, ends_ns: u64, now_ns: u64, local: &LocalPermits) {
        self.count_local_takes(now_ns, local);
        let until = |batch: Batch| Batch { expires: batch.expires.min(Expiry::at(ends_ns)), ..batch };
        for batch in local.take_all(now_ns).into_iter().filter(|batch| batch.count > 0) {
            local.install(now_ns, until(batch), batch.count / 2);
        }
        self.held = until(self.held);
        self.reservation.seconds.end_at(ends_ns);
        self.seen_count = local.count();
    }

    fn is_void(&self, started_ns: u64) -> bool {
        self.void_at_ns > 0 && started_ns <= self.void_at_ns
    }

    /// Refuses all waiters: the drawing task has ended, and no answer will come.
    pub fn close(&mut self, effects: &mut Vec<Effect<W>>) {
        let waiting = self.queue.remove(|_| true);
        let pending = std::mem::take(&mut self.pending).into_iter().map(|pending| pending.waiter);
        let refuse = |waiter: Waiter<W>| Effect::Refuse { token: waiter.token, retry_ns: 0, reason: Reason::Outage };
        effects.extend(waiting.into_iter().chain(pending).map(refuse));
    }

    /// The time at which `attend` has to be called next.
    pub fn wake_at_ns(&self) -> u64 {
        let pending = self.pending.iter().map(|pending| pending.waiter.deadline_ns).min();
        let waiting = self.queue.deadline_ns();
        let due = [pending, waiting, Some(self.draw_at_ns), self.slots.wake_at_ns()];
        due.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Whether the key has no state to remember.
    pub fn is_idle(&self, now_ns: u64, local: &LocalPermits) -> bool {
        self.queue.is_empty()
            && self.in_flight.is_none()
            && self.pending.is_empty()
            && self.slots.has_none()
            && local.available(now_ns) == 0
            && self.reservation.seconds.is_empty(now_ns)
            && self.paced_until_ns <= now_ns
            && self.refusal.is_none_or(|refusal| refusal.until_ns <= now_ns)
    }

    /// Returns the permits that were given out here since the last call.
    pub fn take_admitted(&mut self, now_ns: u64, local: &LocalPermits) -> u64 {
        self.count_local_takes(now_ns, local);
        std::mem::take(&mut self.admitted)
    }

    pub fn demand_per_second(&self, now_ns: u64) -> f64 {
        self.demand.per_second(now_ns)
    }

    pub fn waiting(&self) -> usize {
        self.queue.len() + self.pending.len()
    }

    /// Counts the permits that the fast path has taken since the last call.
    fn count_local_takes(&mut self, now_ns: u64, local: &LocalPermits) {
        let count = local.count();
        let used = self.seen_count.saturating_sub(count);
        if used > 0 {
            self.demand.add_used(now_ns, used);
            self.admitted += used;
        }
        self.seen_count = count;
    }

    fn grant_head(&mut self, origin: Origin, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let cost = self.queue.head().map_or(0, |head| head.cost);
        self.grant_to_head(cost, origin, now_ns, effects);
    }

    fn grant_to_head(&mut self, permits: u64, origin: Origin, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        if let Some(waiter) = self.queue.pop() {
            self.admitted += permits;
            let waited_ns = now_ns.saturating_sub(waiter.since_ns);
            effects.push(Effect::Grant { token: waiter.token, permits, origin, waited_ns });
        }
    }

    /// Refuses the requests that do not wait for permits.
    fn refuse_immediate(&mut self, retry_ns: u64, reason: Reason, effects: &mut Vec<Effect<W>>) {
        let immediate = self.queue.remove(|waiter| waiter.patience == Patience::Immediate);
        effects.extend(immediate.into_iter().map(|waiter| Effect::Refuse { token: waiter.token, retry_ns, reason }));
    }

    /// Refuses the waiters whose deadline has passed.
    fn expire(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let retry_ns = self.retry_ns(now_ns);
        let mut late = Vec::new();
        if self.queue.deadline_ns().is_some_and(|deadline| deadline <= now_ns) {
            late = self.queue.remove(|waiter| waiter.deadline_ns <= now_ns);
        }
        while let Some(at) = self.pending.iter().position(|pending| pending.waiter.deadline_ns <= now_ns) {
            late.push(self.pending.remove(at).waiter);
        }
        effects.extend(late.into_iter().map(|waiter| {
            let reason = if waiter.patience == Patience::Immediate { Reason::StoreSilent } else { Reason::Deadline };
            Effect::Refuse { token: waiter.token, retry_ns, reason }
        }));
    }

    pub fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    /// The nanoseconds for which the last refusal still holds; 0 if there is none.
    pub fn refused_for_ns(&self, now_ns: u64) -> u64 {
        let remembered = self.refusal.map_or(0, |refusal| refusal.until_ns);
        let refused_ns = remembered.max(self.paced_until_ns).saturating_sub(now_ns);
        let reserved_ns = self.reservation.seconds.available_at_ns(now_ns, 1).map(|at_ns| at_ns - now_ns);
        reserved_ns.map_or(refused_ns, |reserved_ns| refused_ns.min(reserved_ns))
    }

    /// The permits that remained in the store when it last answered, until its bucket will be full.
    pub fn known_remainder(&self, now_ns: u64) -> Option<u64> {
        self.remainder.filter(|remainder| now_ns < remainder.full_at_ns).map(|remainder| remainder.left)
    }

    fn remember_remainder(&mut self, drawn: StoreAnswer, now_ns: u64) {
        let full_at_ns = now_ns.saturating_add(drawn.full_ms.saturating_mul(MILLISECOND));
        self.remainder = Some(KnownRemainder { left: drawn.pool, full_at_ns });
    }

    /// The time after which a refused request should try again.
    fn retry_ns(&self, now_ns: u64) -> u64 {
        self.refused_for_ns(now_ns).max(MILLISECOND)
    }
}

/// A request that does not wait for permits: it is refused as soon as the store says that there are none.
pub fn immediate<W>(token: W, cost: u64, now_ns: u64) -> Waiter<W> {
    Waiter {
        token,
        cost,
        up_to: cost,
        class: Class::Normal,
        patience: Patience::Immediate,
        since_ns: now_ns,
        deadline_ns: now_ns.saturating_add(PATIENCE_NS),
    }
}

#[cfg(test)]
mod tests;
