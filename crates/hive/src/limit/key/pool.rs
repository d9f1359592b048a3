//! Drawing from the store's pool.

use super::{
    Batch, Death, Drawn, Effect, Flying, Footing, Key, Origin, Patience, Reason, Refused, Setting, Stock, Waiter,
};
use crate::limit::definition::{Decider, MILLISECOND};

/// A key that expects fewer requests than this per batch is cold: single permits, never ahead of the request. That is exact.
const COLD_BELOW: f64 = 2.75;

/// A dry pool is asked at the pace; this many more may come at once before.
const PACE_BURST: u64 = 4;

/// So long after a short answer the pool counts as dry: draws keep to the pace, even if some are answered in full.
const CONTENDED_NS: u64 = 10_000 * MILLISECOND;

/// From here on a pool counts as full, and a node's part of it as small.
const PLENTY: f64 = 0.7;
const SMALL_PART: f64 = 10.0;

/// So long is waited for what was booked before the pool is asked.
const SOON_NS: u64 = 25 * MILLISECOND;

/// Fewer are taken one by one, each to the end of its own life.
const POUR_MIN: u64 = 16;

/// What a batch may live, out of a hundred: the rest is for clocks that run at different rates.
const LIFE_PERCENT: u64 = 99;

/// A little slower than batches are long.
fn pace_ns(setting: &Setting) -> u64 {
    setting.batch_ns + setting.batch_ns / 16
}

fn dies_at_ns(started_ns: u64, life_ns: u64) -> u64 {
    let life_ns = if crate::planted::on("batch-lives-on") { life_ns * 100 } else { life_ns / 100 * LIFE_PERCENT };
    started_ns.saturating_add(life_ns)
}

impl<W> Key<W> {
    pub(super) fn attend_pool(
        &mut self,
        now_ns: u64,
        life_ns: u64,
        setting: &Setting,
        stock: &Stock,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.draw_if_due(now_ns, life_ns, setting, stock, effects);
        self.draw_at_ns = self.draw_at_ns.min(self.booking_wakes_at_ns(now_ns));
    }

    pub(super) fn is_contended(&self, now_ns: u64) -> bool {
        self.short_at_ns.is_some_and(|short_at_ns| now_ns.saturating_sub(short_at_ns) < CONTENDED_NS)
    }

    fn draw_if_due(
        &mut self,
        now_ns: u64,
        life_ns: u64,
        setting: &Setting,
        stock: &Stock,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.serve(now_ns, stock, effects);
        let relaxed = self.is_relaxed(now_ns, life_ns, setting);
        let ahead_ns = if relaxed { life_ns / 5 * 4 } else { setting.batch_ns.min(life_ns / 2) };
        // What was booked comes by itself.
        let (expected, requests) = self.beyond_booked(now_ns, ahead_ns);
        let is_cold = requests < COLD_BELOW;
        if self.is_contended(now_ns) {
            let due_ns = self.pace_ns.saturating_sub(PACE_BURST * pace_ns(setting));
            self.paced_until_ns = self.paced_until_ns.max(due_ns);
        }
        if self.is_dry
            && let Some(until_ns) = self.booking.drips.cut_until_ns(now_ns)
        {
            self.paced_until_ns = self.paced_until_ns.max(until_ns);
        }
        self.booking.settle(now_ns);
        let book = self.to_book(now_ns, setting);
        let paced = now_ns < self.paced_until_ns;
        if paced {
            self.refuse_hopeless(now_ns, effects);
        }
        let left = stock.left(now_ns);
        // Whoever waits gets what was booked, if that is soon there.
        let waiting = self.queue.cost().saturating_sub(self.booking.drips.left_by(now_ns, now_ns + SOON_NS));
        let due = waiting > 0
            || (!is_cold && (left <= self.low_mark(expected, ahead_ns, relaxed) || now_ns >= self.draw_at_ns));
        self.draw_at_ns = u64::MAX;
        if self.flying.is_some() {
            return;
        }
        if let Some(book) = book {
            let beyond = (self.beyond_booked(now_ns, life_ns).0.round() as u64).max(self.queue.cost());
            let need = self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.alive(now_ns).count));
            return self.send(now_ns, beyond.max(need).min(setting.terms.cost_max()), need, book, setting, effects);
        }
        if paced {
            if due || !is_cold {
                self.draw_at_ns = self.paced_until_ns;
            }
            return;
        }
        if !due {
            // Before it dies is a time to draw the next, if anybody still comes.
            self.draw_at_ns = match relaxed {
                _ if is_cold || left == 0 => u64::MAX,
                false => now_ns + life_ns.min(setting.batch_ns * 2) / 4,
                true => (self.last_started_ns + life_ns / 10 * 9).max(now_ns + life_ns / 10),
            };
            return;
        }
        let need = self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.alive(now_ns).count));
        let ahead = if is_cold { 0 } else { (expected.round() as u64).saturating_sub(left) };
        let want = ahead.max(waiting).max(need).min(setting.terms.cost_max());
        if want == 0 {
            return;
        }
        self.send(now_ns, want, need, 0, setting, effects);
    }

    fn send(&mut self, now_ns: u64, want: u64, need: u64, book: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.flying = Some(Flying { started_ns: now_ns, want, book });
        self.last_started_ns = now_ns;
        // Draws that were all answered in full are not held against a node.
        let ahead_max_ns = now_ns + PACE_BURST * pace_ns(setting);
        self.pace_ns = self.pace_ns.clamp(now_ns, ahead_max_ns) + pace_ns(setting);
        effects.push(Effect::Draw { want, need, book });
    }

    /// After a short answer only so many wait for the next draw as it may serve in time; the others know at once.
    fn refuse_hopeless(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let retry_ns = self.retry_ns(now_ns);
        let answer_ns = self.paced_until_ns.max(now_ns).saturating_add(self.last_trip_ns);
        let mut room = self.last_given.max(1);
        let (drips, mut before) = (&self.booking.drips, 0);
        let hopeless = self.queue.remove(|waiter| {
            if waiter.patience == Patience::Step {
                before += waiter.cost;
                return false;
            }
            let booked_ns = drips.there_at_ns(now_ns, before + waiter.cost);
            if booked_ns.is_some_and(|at_ns| at_ns < waiter.deadline_ns) {
                before += waiter.cost;
                return false;
            }
            let waits = waiter.deadline_ns > answer_ns && waiter.cost <= room;
            room -= if waits { waiter.cost } else { 0 };
            !waits
        });
        let refused = |waiter: Waiter<W>| Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::Exhausted };
        effects.extend(hopeless.into_iter().map(refused));
    }

    /// At half of it the next is drawn; relaxed, when as much is left as is used until an answer comes.
    fn low_mark(&self, expected: f64, ahead_ns: u64, relaxed: bool) -> u64 {
        let answer_ns = (2 * self.last_trip_ns).clamp(ahead_ns / 8, ahead_ns / 2);
        let part = if relaxed { answer_ns as f64 / ahead_ns as f64 } else { 0.5 };
        (expected * part) as u64
    }

    /// The pool is nearly full, and this node's part of it is small: larger batches, fewer of them. Some die unused, and
    /// nobody misses them.
    fn is_relaxed(&self, now_ns: u64, life_ns: u64, setting: &Setting) -> bool {
        let full = setting.terms.burst as f64 / 2.0;
        !self.is_contended(now_ns)
            && self.last_pool as f64 >= full * PLENTY
            && self.demand.within(now_ns, life_ns) <= full / SMALL_PART
    }

    /// The store has answered a draw that began at `started_ns`, or has failed to.
    pub fn drawn(
        &mut self,
        started_ns: u64,
        answer: Option<Drawn>,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        let Some(flying) = self.flying.take_if(|flying| flying.started_ns == started_ns) else {
            // Void: whatever it was drawn for has changed since. Spent.
            return;
        };
        self.observe(now_ns, stock);
        self.booked(&flying, answer.filter(|_| !self.is_void(started_ns)), now_ns, life_ns / 100 * LIFE_PERCENT);
        if self.is_void(started_ns) {
            // Spent as well: it was drawn under what does not hold any more.
            return self.attend_pool(now_ns, life_ns, setting, stock, effects);
        }
        let pace_ns = pace_ns(setting);
        let Some(drawn) = answer else {
            // Not known to be dry; a store that fails is asked again at the pace of one that is.
            self.paced_until_ns = (started_ns + pace_ns).max(now_ns);
            self.refuse_doors(pace_ns, Reason::StoreSilent, effects);
            self.draw_at_ns = self.paced_until_ns;
            return;
        };
        let batch = Batch::new(drawn.given, dies_at_ns(started_ns, life_ns)).alive(now_ns);
        if self.queue.is_empty() {
            let relaxed = self.is_relaxed(now_ns, life_ns, setting);
            let ahead_ns = if relaxed { life_ns } else { setting.batch_ns };
            let low = self.low_mark(self.demand.within(now_ns, ahead_ns), ahead_ns, relaxed);
            stock.install(now_ns, batch, if relaxed { low } else { low.max(batch.count / 2) });
            self.seen_count = stock.count();
        } else {
            self.hold(now_ns, batch);
        }
        (self.last_given, self.last_trip_ns) = (drawn.given, now_ns.saturating_sub(started_ns));
        (self.last_pool, self.is_dry) = (drawn.pool, drawn.given < flying.want.max(1));
        if drawn.given < flying.want.div_ceil(2) {
            let soonest_ns = now_ns + drawn.retry_ms.max(1).saturating_mul(MILLISECOND).min(pace_ns);
            (self.paced_until_ns, self.short_at_ns) = (soonest_ns, Some(now_ns));
        }
        if drawn.given == 0 && flying.want > 0 {
            let until_ns = now_ns.saturating_add(drawn.retry_ms.saturating_mul(MILLISECOND));
            self.refused = Some(Refused { until_ns, cost: 1, version: setting.terms.version });
        }
        self.attend_pool(now_ns, life_ns, setting, stock, effects);
    }

    /// Permits that were not used and whose batch is not in stock any more: to those who wait, or back into stock, to die
    /// when they would have.
    pub fn put_back(
        &mut self,
        batch: Batch,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        if batch.alive(now_ns).count == 0 || batch.dies < Death::at(dies_at_ns(self.void_at_ns, life_ns)) {
            return;
        }
        self.observe(now_ns, stock);
        self.hold(now_ns, batch);
        if setting.footing == Footing::Store {
            self.attend_pool(now_ns, life_ns, setting, stock, effects);
        }
    }

    fn hold(&mut self, now_ns: u64, batch: Batch) {
        let held = self.held.alive(now_ns);
        self.held = held.joined(batch.alive(now_ns));
    }

    /// Gives what is here to those who wait, in order; what is left goes back to where requests find it.
    fn serve(&mut self, now_ns: u64, stock: &Stock, effects: &mut Vec<Effect<W>>) {
        if !self.queue.is_empty() {
            for batch in stock.sweep(now_ns) {
                self.hold(now_ns, batch);
            }
            self.seen_count = stock.count();
        }
        self.held = self.held.alive(now_ns);
        while let Some(head) = self.queue.head() {
            let cost = head.cost;
            let dies = if cost <= self.held.count {
                self.held.count -= cost;
                self.held.dies
            } else {
                let Some(dies_ns) = self.booking.drips.take(now_ns, cost) else { return };
                Death::at(dies_ns)
            };
            self.grant_head(Origin::Batch(dies), now_ns, effects);
        }
        if self.held.count == 0 && stock.left(now_ns) == 0 {
            self.held = self.poured(now_ns);
        }
        if self.held.count > 0 {
            let batch = std::mem::replace(&mut self.held, Batch::NONE);
            stock.install(now_ns, batch, batch.count / 2);
            self.seen_count = stock.count();
        }
    }

    /// Many that have come go into stock, where requests find them without the key's lock.
    fn poured(&mut self, now_ns: u64) -> Batch {
        let left = self.booking.drips.left(now_ns);
        let dies_ns = if left >= POUR_MIN { self.booking.drips.take(now_ns, left) } else { None };
        dies_ns.map_or(Batch::NONE, |dies_ns| Batch::new(left, dies_ns))
    }
}
