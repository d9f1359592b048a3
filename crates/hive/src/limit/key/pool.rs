//! Drawing from the store's pool.

use super::{
    Batch, Death, Drawn, Effect, Flying, Footing, Key, Origin, Patience, Reason, Refused, Setting, Stock, Waiter,
};
use crate::limit::definition::{Decider, MILLISECOND, SECOND};

/// A key that expects fewer requests than this per batch is cold: drawn when somebody waits, never ahead.
const COLD_BELOW: f64 = 5.0;

/// A cold key draws what comes within a batch's life but for so many times its square root: hardly any of it dies. With few
/// requests that is the one that waits, which is exact.
const UNSURE: f64 = 1.0;

/// A dry pool is asked at the pace; this many more may come at once before.
const PACE_BURST: u64 = 4;

/// So long after a short answer the pool counts as dry: draws keep to the pace, even if some are answered in full.
const CONTENDED_NS: u64 = 4_000 * MILLISECOND;

/// From here on a pool counts as full, until it is down to there.
const PLENTY: f64 = 0.9;
const STILL_PLENTY: f64 = 0.5;
/// Up to here a node's part of a full pool is small.
const SMALL_PART: f64 = 1.0 / 6.0;
/// Drawn of a full pool beyond what is expected: so many times its square root.
const SPARE: f64 = 0.4;
/// A batch that was soon used up is followed by one so many times as large, up to this part of a full pool.
const GROWTH: f64 = 3.0;
const GROWN_PART: f64 = 0.08;

/// So long is waited for what was booked before the pool is asked.
const SOON_NS: u64 = 25 * MILLISECOND;

/// Fewer are taken one by one, each to the end of its own life.
const POUR_MIN: u64 = 16;

/// What a batch may live, out of a hundred: the rest is for clocks that run at different rates.
pub(super) const LIFE_PERCENT: u64 = 99;

/// A little slower than batches are long.
fn pace_ns(setting: &Setting) -> u64 {
    setting.batch_ns + setting.batch_ns / 16
}

/// At half of it the next is drawn.
fn low_mark(expected: f64) -> u64 {
    (expected / 2.0) as u64
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
        let ahead_ns = if relaxed { life_ns } else { setting.batch_ns.min(life_ns / 2) };
        // What was booked comes by itself.
        let (expected, requests) = self.beyond_booked(now_ns, ahead_ns);
        let is_cold = requests < COLD_BELOW;
        if self.is_contended(now_ns) {
            self.keep_pace(setting);
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
        let on_demand = is_cold || relaxed;
        let due = waiting > 0 || (!on_demand && (left <= low_mark(expected) || now_ns >= self.draw_at_ns));
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
            if !on_demand && left > 0 {
                self.draw_at_ns = now_ns + life_ns.min(setting.batch_ns * 2) / 4;
            }
            return;
        }
        let need = self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.alive(now_ns).count));
        let ahead = match relaxed {
            // What is known of demand is good for a few batches, however long they live.
            _ if is_cold => waiting + self.surely_within(now_ns, life_ns.min(2 * setting.batch_ns)),
            true => (expected + SPARE * expected.sqrt()).round() as u64,
            false => (expected.round() as u64).saturating_sub(left),
        };
        let grown = if relaxed { self.grown(now_ns, life_ns, setting) } else { 0 };
        let want = ahead.max(grown).max(waiting).max(need).min(setting.terms.cost_max());
        if want == 0 {
            return;
        }
        self.send(now_ns, want, need, 0, setting, effects);
    }

    /// Beyond a few draws at once, one for each pace.
    fn keep_pace(&mut self, setting: &Setting) {
        let due_ns = self.pace_ns.saturating_sub(PACE_BURST * pace_ns(setting));
        self.paced_until_ns = self.paced_until_ns.max(due_ns);
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

    /// The pool is nearly full, and this node's part of it is small: larger batches, fewer of them, and none before somebody
    /// asks. Some die unused, and nobody misses them.
    fn is_relaxed(&self, now_ns: u64, life_ns: u64, setting: &Setting) -> bool {
        let full = setting.terms.burst as f64 / 2.0;
        !self.is_contended(now_ns) && self.is_plenty && self.demand.within(now_ns, life_ns) <= full * SMALL_PART
    }

    /// What certainly comes in that time, beyond what is booked.
    fn surely_within(&self, now_ns: u64, span_ns: u64) -> u64 {
        let per_second = self.demand.steady_per_second(now_ns).min(self.demand.per_second(now_ns));
        let beyond = (per_second - self.booking.drips.per_second(now_ns) as f64).max(0.0);
        let usual = self.demand.usual_cost();
        let requests = beyond / usual * span_ns as f64 / SECOND as f64;
        ((requests - UNSURE * requests.sqrt()).max(0.0).floor() * usual) as u64
    }

    /// What was used up before it died tells of a burst that begins: more, by how quickly that was.
    fn grown(&self, now_ns: u64, life_ns: u64, setting: &Setting) -> u64 {
        let used_in_ns = now_ns.saturating_sub(self.last_started_ns).max(1);
        if used_in_ns >= life_ns {
            return 0;
        }
        let quicker = life_ns as f64 / used_in_ns as f64;
        let most = setting.terms.burst as f64 / 2.0 * GROWN_PART;
        (self.last_given as f64 * quicker.min(GROWTH)).min(most) as u64
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
        let Some(flying) = self.flying.take_if(|flying| flying.started_ns == started_ns) else {
            // Void: whatever it was drawn for has changed since. Spent.
            return;
        };
        // As it is if there is no pool any more.
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        self.observe(now_ns, stock);
        if answer.is_some() && self.is_void(started_ns) {
            // Spent as well: it was drawn under what does not hold any more.
            self.booked(&flying, None, now_ns, setting);
            return self.attend_pool(now_ns, life_ns, setting, stock, effects);
        }
        self.booked(&flying, answer, now_ns, setting);
        let pace_ns = pace_ns(setting);
        let Some(drawn) = answer else {
            // Not known to be dry; a store that fails is asked again at the pace of one that is.
            self.paced_until_ns = (started_ns + pace_ns).max(now_ns);
            self.refuse_doors(pace_ns, Reason::StoreSilent, effects);
            self.draw_at_ns = self.paced_until_ns;
            return;
        };
        let dies_ns = dies_at_ns(started_ns, life_ns).min(setting.ends_ns);
        let batch = Batch::new(drawn.given, dies_ns).alive(now_ns);
        if self.queue.is_empty() {
            let low = low_mark(self.demand.within(now_ns, setting.batch_ns)).max(batch.count / 2);
            stock.install(now_ns, batch, if self.is_relaxed(now_ns, life_ns, setting) { 0 } else { low });
            self.seen_count = stock.count();
        } else {
            self.hold(now_ns, batch);
        }
        (self.last_given, self.last_trip_ns) = (drawn.given, now_ns.saturating_sub(started_ns));
        self.is_dry = drawn.given < flying.want.max(1);
        let missing = (setting.terms.burst / 2).saturating_sub(drawn.pool);
        let full_ms = setting.terms.rate.ns_for(missing) / MILLISECOND;
        self.hear_left(Drawn { full_ms, ..drawn }, now_ns);
        let plenty = if self.is_plenty { STILL_PLENTY } else { PLENTY };
        self.is_plenty = drawn.pool as f64 >= setting.terms.burst as f64 / 2.0 * plenty;
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

    /// It was drawn under another definition than is in force here: nothing of it counts.
    pub fn spent(
        &mut self,
        started_ns: u64,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(flying) = self.flying.take_if(|flying| flying.started_ns == started_ns) else { return };
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        self.observe(now_ns, stock);
        self.booked(&flying, None, now_ns, setting);
        // Mostly the two agree a moment later; as long as they do not, whoever waits must not empty the pool.
        self.keep_pace(setting);
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
        if batch.dies < Death::at(dies_at_ns(self.void_at_ns, life_ns)) {
            return;
        }
        // It was taken before anybody knew of a lower limit.
        let batch = Batch { dies: batch.dies.min(Death::at(setting.ends_ns)), ..batch }.alive(now_ns);
        if batch.count == 0 {
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
