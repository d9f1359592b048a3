//! Drawing from the store's pool.

use super::{
    Batch, Death, Drawn, Effect, Flying, Footing, Key, Origin, Patience, Reason, Refused, Setting, Stock, Waiter,
};
use crate::limit::definition::{Decider, MILLISECOND};

/// A key that expects fewer requests than this per batch is cold: single permits, never ahead of the request. That is exact.
const COLD_BELOW: f64 = 2.0;

/// A dry pool is asked at the pace; this many more may come at once before.
const PACE_BURST: u64 = 4;

/// So long after a short answer the pool counts as dry: draws keep to the pace, even if some are answered in full.
const CONTENDED_NS: u64 = 3_000 * MILLISECOND;

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
        self.serve(now_ns, stock, effects);
        let ahead_ns = setting.batch_ns.min(life_ns / 2);
        let expected = self.demand.within(now_ns, ahead_ns);
        let is_cold = self.demand.requests_within(now_ns, ahead_ns) < COLD_BELOW;
        if self.short_at_ns.is_some_and(|short_at_ns| now_ns.saturating_sub(short_at_ns) < CONTENDED_NS) {
            let due_ns = self.pace_ns.saturating_sub(PACE_BURST * pace_ns(setting));
            self.paced_until_ns = self.paced_until_ns.max(due_ns);
        }
        let paced = now_ns < self.paced_until_ns;
        if paced {
            self.refuse_hopeless(now_ns, effects);
        }
        let left = stock.left(now_ns);
        let due =
            !self.queue.is_empty() || (!is_cold && (left <= self.low_mark(expected) || now_ns >= self.draw_at_ns));
        self.draw_at_ns = u64::MAX;
        if self.flying.is_some() {
            return;
        }
        if paced {
            if due || !is_cold {
                self.draw_at_ns = self.paced_until_ns;
            }
            return;
        }
        if !due {
            // Half of its life is a time to draw the next, if anybody still comes.
            self.draw_at_ns =
                if is_cold || left == 0 { u64::MAX } else { now_ns + life_ns.min(setting.batch_ns * 2) / 4 };
            return;
        }
        let need = self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.alive(now_ns).count));
        let waiting = self.queue.cost();
        let ahead = if is_cold { 0 } else { (expected.round() as u64).saturating_sub(left) };
        let want = ahead.max(waiting).max(need).min(setting.terms.cost_max());
        if want == 0 {
            return;
        }
        self.flying = Some(Flying { started_ns: now_ns, want });
        // Draws that were all answered in full are not held against a node.
        let ahead_max_ns = now_ns + PACE_BURST * pace_ns(setting);
        self.pace_ns = self.pace_ns.clamp(now_ns, ahead_max_ns) + pace_ns(setting);
        effects.push(Effect::Draw { want, need });
    }

    /// After a short answer only so many wait for the next draw as it may serve in time; the others know at once.
    fn refuse_hopeless(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let retry_ns = self.retry_ns(now_ns);
        let answer_ns = self.paced_until_ns.max(now_ns).saturating_add(self.last_trip_ns);
        let mut room = self.last_given.max(1);
        let hopeless = self.queue.remove(|waiter| {
            if waiter.patience == Patience::Step {
                return false;
            }
            let waits = waiter.deadline_ns > answer_ns && waiter.cost <= room;
            room -= if waits { waiter.cost } else { 0 };
            !waits
        });
        let refused = |waiter: Waiter<W>| Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::Exhausted };
        effects.extend(hopeless.into_iter().map(refused));
    }

    fn low_mark(&self, expected: f64) -> u64 {
        (expected / 2.0) as u64
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
            let expected = self.demand.within(now_ns, setting.batch_ns);
            stock.install(now_ns, batch, self.low_mark(expected).max(batch.count / 2));
            self.seen_count = stock.count();
        } else {
            self.hold(now_ns, batch);
        }
        (self.last_given, self.last_trip_ns) = (drawn.given, now_ns.saturating_sub(started_ns));
        if drawn.given < flying.want.div_ceil(2) {
            let soonest_ns = now_ns + drawn.retry_ms.max(1).saturating_mul(MILLISECOND).min(pace_ns);
            (self.paced_until_ns, self.short_at_ns) = (soonest_ns, Some(now_ns));
        }
        if drawn.given == 0 {
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
            if head.cost > self.held.count {
                return;
            }
            self.held.count -= head.cost;
            self.grant_head(Origin::Batch(self.held.dies), now_ns, effects);
        }
        if self.held.count > 0 {
            let batch = std::mem::replace(&mut self.held, Batch::NONE);
            stock.install(now_ns, batch, batch.count / 2);
            self.seen_count = stock.count();
        }
    }
}
