//! One key of one limit on one node, as a pure state machine: `(state, input, now) → effects`.
//!
//! | decider  | a request finds nothing in stock    | the store answers                                     |
//! |----------|-------------------------------------|-------------------------------------------------------|
//! | pool     | waits; a draw goes out, one at most | waiters in order, the rest into stock                 |
//! | pool     | dry a moment ago: refused at once   | short or nothing: draws are paced, doors are refused  |
//! | exact    | asks for itself                     | admitted, or refused and remembered                   |
//! | slots    | waits; asks for what is missing     | waiters in order                                      |
//! | (outage) | its own share, all, or nothing      | back to the above, with nothing in hand               |
//!
//! A batch counts from the *start* of its draw. While somebody waits the stock is swept, so that nobody who comes later
//! is served before; whatever lets permits in serves the queue in the same step, so that nobody sleeps beside them.

mod booking;
mod exact;
mod pool;
mod slots;

pub use slots::Holds;

use super::{
    definition::{Decider, MILLISECOND, Terms},
    demand::Demand,
    gcra::{FullAt, Returnable, Share},
    queue::{Class, Patience, Queue, WAITERS_MAX, Waiter},
    stock::{Batch, Death, Stock},
};

/// The longest that a request waits for the store's word.
pub const PATIENCE_NS: u64 = 50 * MILLISECOND;

/// What the limiter stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Footing {
    Store,
    /// The store is gone: a share of the limit, starting empty.
    Alone(Share),
    /// The store is gone, and so is everything else.
    Closed,
    /// The store is gone, and nothing is limited.
    Open,
}

/// What all keys of a limit have in common at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub terms: Terms,
    pub footing: Footing,
    /// How much of the demand one draw covers, and how far apart draws of a dry pool are.
    pub batch_ns: u64,
    /// Permits of a second that may be booked ahead; 0: none.
    pub bookable: u64,
    /// By how many what the store has is shared.
    pub nodes: u64,
    /// A lower definition comes into force then: nothing that was drawn before lives longer.
    pub ends_ns: u64,
}

/// Where a permit came from: a refund goes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Batch(Death),
    Share(Returnable),
    /// Taken by the store's own word. Once the bucket there may have been full since, giving back would be giving more.
    Ledger {
        until_ns: u64,
    },
    /// The same, of the window of the calendar that ends then, by hive time.
    Window {
        end_ms: u64,
    },
    Slots,
    /// Costs nothing, or nothing was limited.
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
    /// The store is gone, and this limit is closed without it.
    Outage,
    /// More than the limit could ever give at once.
    CostTooHigh,
    /// Too many wait already.
    QueueFull,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<W> {
    Draw {
        want: u64,
        need: u64,
        /// Of the next second.
        book: u64,
    },
    Take {
        call: u64,
        cost: u64,
    },
    /// This node holds so many slots, or wants to.
    Hold {
        slots: u64,
    },
    Grant {
        token: W,
        /// Of slots perhaps more than it cost, if it wished for more.
        permits: u64,
        origin: Origin,
        waited_ns: u64,
    },
    /// Taken for somebody who has gone.
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

/// What the store has answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Drawn {
    pub given: u64,
    /// How long until what was needed is there.
    pub retry_ms: u64,
    /// Permits that are left there, and, where it decides by itself, how long until it is full if nobody takes.
    pub pool: u64,
    pub full_ms: u64,
    /// The end of the window that it was taken in, by hive time; 0 without windows.
    pub window_ms: u64,
    /// Of the second that begins then; 0 and 0 if nothing was asked for.
    pub booked: u64,
    pub begins_ms: u64,
}

impl Drawn {
    /// Nothing is booked.
    pub fn now(given: u64, retry_ms: u64) -> Drawn {
        Drawn { given, retry_ms, pool: 0, full_ms: retry_ms, window_ms: 0, booked: 0, begins_ms: 0 }
    }
}

impl Origin {
    /// Of what the store took by itself, when it was asked at `asked_ns`.
    pub fn taken(asked_ns: u64, full_ms: u64, window_ms: u64) -> Origin {
        match window_ms {
            0 => Origin::Ledger { until_ns: asked_ns.saturating_add(full_ms.saturating_mul(MILLISECOND)) },
            end_ms => Origin::Window { end_ms },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flying {
    started_ns: u64,
    want: u64,
    book: u64,
}

/// What the store had left when it last decided by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Told {
    left: u64,
    full_at_ns: u64,
}

/// A refusal that is still true: asking again would bring the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Refused {
    until_ns: u64,
    cost: u64,
    version: u64,
}

struct Asked<W> {
    call: u64,
    started_ns: u64,
    version: u64,
    waiter: Waiter<W>,
}

/// Everything about a key that a request does not need on its short way.
pub struct Key<W> {
    queue: Queue<W>,
    /// Gathered for the head of the queue.
    held: Batch,
    flying: Option<Flying>,
    /// After a short answer nothing is drawn before this.
    paced_until_ns: u64,
    short_at_ns: Option<u64>,
    /// Draws count here as time, a pace each: it runs ahead of the clock as far as they came faster.
    pace_ns: u64,
    /// What the last draw brought, and how long it took.
    last_given: u64,
    last_trip_ns: u64,
    last_started_ns: u64,
    /// It brought less than was wanted.
    is_dry: bool,
    /// The pool was nearly full then.
    is_plenty: bool,
    draw_at_ns: u64,
    booking: booking::Booking,
    void_at_ns: u64,
    refused: Option<Refused>,
    told: Option<Told>,
    asked: Vec<Asked<W>>,
    calls: u64,
    slots: slots::Slots,
    demand: Demand,
    /// What the stock was when it was last looked at.
    seen_count: u64,
    admitted: u64,
}

impl<W> Default for Key<W> {
    fn default() -> Key<W> {
        Key {
            queue: Queue::default(),
            held: Batch::NONE,
            flying: None,
            paced_until_ns: 0,
            short_at_ns: None,
            pace_ns: 0,
            last_given: 0,
            last_trip_ns: 0,
            last_started_ns: 0,
            is_dry: false,
            is_plenty: false,
            draw_at_ns: u64::MAX,
            booking: booking::Booking::default(),
            void_at_ns: 0,
            refused: None,
            told: None,
            asked: Vec::new(),
            calls: 0,
            slots: slots::Slots::default(),
            demand: Demand::default(),
            seen_count: 0,
            admitted: 0,
        }
    }
}

impl<W> Key<W> {
    /// A request whose short way failed.
    pub fn ask(
        &mut self,
        waiter: Waiter<W>,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        if waiter.cost > setting.terms.cost_max() {
            effects.push(Effect::Refuse { token: waiter.token, retry_ns: 0, reason: Reason::CostTooHigh });
            return;
        }
        // Somebody may have filled it while the lock was waited for.
        let pool = matches!((setting.footing, setting.terms.decider), (Footing::Store, Decider::Pool { .. }));
        if pool
            && self.queue.is_empty()
            && let Some(taken) = stock.take(now_ns, waiter.cost)
        {
            let (token, permits, origin) = (waiter.token, waiter.cost, Origin::Batch(taken.dies));
            effects.push(Effect::Grant { token, permits, origin, waited_ns: 0 });
            return;
        }
        self.demand.add(now_ns, waiter.cost);
        if self.queue.len() >= WAITERS_MAX {
            effects.push(Effect::Refuse { token: waiter.token, retry_ns: PATIENCE_NS, reason: Reason::QueueFull });
            return;
        }
        self.queue.push(waiter);
        self.attend(now_ns, setting, stock, full_at, effects);
    }

    /// Does whatever is due. Harmless at any time.
    pub fn attend(
        &mut self,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.observe(now_ns, stock);
        match setting.footing {
            Footing::Store => match setting.terms.decider {
                Decider::Pool { life_ns } => self.attend_pool(now_ns, life_ns, setting, stock, effects),
                Decider::Exact | Decider::Calendar(_) => self.attend_exact(now_ns, setting, effects),
                Decider::Slots => self.attend_slots(now_ns, setting, effects),
            },
            Footing::Alone(share) if setting.terms.decider != Decider::Slots => {
                self.draw_at_ns = u64::MAX;
                // More than the share ever has at once: whoever wants it would wait in vain, and everybody behind it.
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
                            self.refuse_doors(retry_ns, Reason::Exhausted, effects);
                            self.draw_at_ns = now_ns.saturating_add(retry_ns);
                            break;
                        }
                    }
                }
            }
            // What is held stays usable; nothing can be added to it.
            Footing::Alone(_) | Footing::Closed => {
                let again_ns = now_ns.saturating_add(super::definition::SECOND);
                self.draw_at_ns = if self.slots.is_unsure() { again_ns } else { u64::MAX };
                self.slots.keep();
                self.serve_slots(now_ns, effects);
                self.refuse_doors(super::definition::SECOND, Reason::Outage, effects);
            }
            Footing::Open => {
                self.draw_at_ns = u64::MAX;
                while let Some(head) = self.queue.head() {
                    let permits = head.wish.max(head.cost);
                    self.grant_to_head(permits, Origin::Nowhere, now_ns, effects);
                }
            }
        }
        self.expire(now_ns, effects);
    }

    /// The limit stands on something else now, or has another version: what was remembered may be wrong, and whoever
    /// waits may be served.
    pub fn changed(
        &mut self,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.paced_until_ns = 0;
        self.refused = None;
        // Calls in flight end by their deadlines; their answers, if any come, find nobody.
        let was_asking = self.flying.take().is_some();
        if setting.terms.decider == Decider::Slots {
            self.slots.changed(was_asking, setting.terms.burst);
        }
        if setting.footing != Footing::Store {
            self.booking.drips.clear();
        }
        self.attend(now_ns, setting, stock, full_at, effects);
    }

    /// Drawn permits are void: the clock jumped, or the limit is lower now.
    pub fn void(&mut self, now_ns: u64, stock: &Stock) {
        self.observe(now_ns, stock);
        stock.sweep(now_ns);
        self.held = Batch::NONE;
        self.booking.drips.clear();
        self.seen_count = stock.count();
        self.void_at_ns = now_ns;
    }

    /// Nothing that is here lives beyond this.
    pub fn end_at(&mut self, ends_ns: u64, now_ns: u64, stock: &Stock) {
        self.observe(now_ns, stock);
        let until = |batch: Batch| Batch { dies: batch.dies.min(Death::at(ends_ns)), ..batch };
        for batch in stock.sweep(now_ns).into_iter().filter(|batch| batch.count > 0) {
            stock.install(now_ns, until(batch), batch.count / 2);
        }
        self.held = until(self.held);
        self.booking.drips.end_at(ends_ns);
        self.seen_count = stock.count();
    }

    fn is_void(&self, started_ns: u64) -> bool {
        self.void_at_ns > 0 && started_ns <= self.void_at_ns
    }

    /// Nobody answers any more: whoever waits is told.
    pub fn close(&mut self, effects: &mut Vec<Effect<W>>) {
        let waiting = self.queue.remove(|_| true);
        let asked = std::mem::take(&mut self.asked).into_iter().map(|asked| asked.waiter);
        let refuse = |waiter: Waiter<W>| Effect::Refuse { token: waiter.token, retry_ns: 0, reason: Reason::Outage };
        effects.extend(waiting.into_iter().chain(asked).map(refuse));
    }

    /// When `attend` has something to do again.
    pub fn wake_at_ns(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.waiter.deadline_ns).min();
        let waiting = self.queue.deadline_ns();
        let due = [asked, waiting, Some(self.draw_at_ns), self.slots.wake_at_ns()];
        due.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// A key about which there is nothing to remember.
    pub fn is_idle(&self, now_ns: u64, stock: &Stock) -> bool {
        self.queue.is_empty()
            && self.flying.is_none()
            && self.asked.is_empty()
            && self.slots.is_none_held()
            && stock.left(now_ns) == 0
            && self.booking.drips.is_empty(now_ns)
            && self.paced_until_ns <= now_ns
            && self.refused.is_none_or(|refused| refused.until_ns <= now_ns)
    }

    /// Permits that were given out here since this was last asked.
    pub fn take_admitted(&mut self, now_ns: u64, stock: &Stock) -> u64 {
        self.observe(now_ns, stock);
        std::mem::take(&mut self.admitted)
    }

    pub fn demand_per_second(&self, now_ns: u64) -> f64 {
        self.demand.per_second(now_ns)
    }

    pub fn waiting(&self) -> usize {
        self.queue.len() + self.asked.len()
    }

    /// What the short way has used since the last look.
    fn observe(&mut self, now_ns: u64, stock: &Stock) {
        let count = stock.count();
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

    fn refuse_doors(&mut self, retry_ns: u64, reason: Reason, effects: &mut Vec<Effect<W>>) {
        let doors = self.queue.remove(|waiter| waiter.patience == Patience::Door);
        effects.extend(doors.into_iter().map(|waiter| Effect::Refuse { token: waiter.token, retry_ns, reason }));
    }

    fn expire(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let retry_ns = self.retry_ns(now_ns);
        let mut late = Vec::new();
        if self.queue.deadline_ns().is_some_and(|deadline| deadline <= now_ns) {
            late = self.queue.remove(|waiter| waiter.deadline_ns <= now_ns);
        }
        while let Some(at) = self.asked.iter().position(|asked| asked.waiter.deadline_ns <= now_ns) {
            late.push(self.asked.remove(at).waiter);
        }
        effects.extend(late.into_iter().map(|waiter| {
            let reason = if waiter.patience == Patience::Door { Reason::StoreSilent } else { Reason::Deadline };
            Effect::Refuse { token: waiter.token, retry_ns, reason }
        }));
    }

    pub fn forget_refusal(&mut self) {
        self.refused = None;
    }

    /// How long the last refusal still holds; 0 if there is none.
    pub fn refused_for_ns(&self, now_ns: u64) -> u64 {
        let remembered = self.refused.map_or(0, |refused| refused.until_ns);
        let refused_ns = remembered.max(self.paced_until_ns).saturating_sub(now_ns);
        let booked_ns = self.booking.drips.there_at_ns(now_ns, 1).map(|at_ns| at_ns - now_ns);
        booked_ns.map_or(refused_ns, |booked_ns| refused_ns.min(booked_ns))
    }

    /// What the store has said to be left there, and until when that is worth something.
    pub fn told_left(&self, now_ns: u64) -> Option<u64> {
        self.told.filter(|told| now_ns < told.full_at_ns).map(|told| told.left)
    }

    fn hear_left(&mut self, drawn: Drawn, now_ns: u64) {
        let full_at_ns = now_ns.saturating_add(drawn.full_ms.saturating_mul(MILLISECOND));
        self.told = Some(Told { left: drawn.pool, full_at_ns });
    }

    /// How long a refused request should stay away.
    fn retry_ns(&self, now_ns: u64) -> u64 {
        self.refused_for_ns(now_ns).max(MILLISECOND)
    }
}

/// A request at the door: refused as soon as the store says that there is nothing.
pub fn door<W>(token: W, cost: u64, now_ns: u64) -> Waiter<W> {
    Waiter {
        token,
        cost,
        wish: cost,
        class: Class::Normal,
        patience: Patience::Door,
        since_ns: now_ns,
        deadline_ns: now_ns.saturating_add(PATIENCE_NS),
    }
}

#[cfg(test)]
mod tests;
