//! Pool mode: the node draws batches of permits from the store's bucket, and decides on requests with them.

use super::{
    Batch, CallInFlight, Effect, Expiry, Key, LocalPermits, Mode, Origin, Patience, Reason, RememberedRefusal, Setting,
    StoreAnswer, Waiter,
};
use crate::limit::definition::{Decider, MILLISECOND, SECOND};

/// A key that expects fewer requests than this per batch is cold: the node draws when a request waits, never in
/// advance.
const COLD_BELOW: f64 = 5.0;

/// A cold key draws the permits expected in a batch's life, less this many times their square root, so that hardly any
/// expire. With few requests that is only the one that waits, which is exact.
const UNSURE: f64 = 1.0;

/// Draws from a dry pool keep to the pace; this many draws may be made at once before that.
const PACE_BURST: u64 = 4;

/// The time after an answer with too few permits for which the pool counts as contended: draws keep to the pace, even
/// if some are answered in full.
const CONTENDED_NS: u64 = 4_000 * MILLISECOND;

/// A pool counts as full from this part of its size on, until it is down to `STILL_PLENTY`.
const PLENTY: f64 = 0.9;
const STILL_PLENTY: f64 = 0.5;
/// A node's demand is small if it is at most this part of a full pool.
const SMALL_PART: f64 = 1.0 / 6.0;
/// From a full pool the node draws more than it expects to need: this many times the square root of it.
const SPARE: f64 = 0.4;
/// After a batch that was soon used up, the next is up to `GROWTH` times as large, but at most `GROWN_PART` of a full
/// pool.
const GROWTH: f64 = 3.0;
const GROWN_PART: f64 = 0.08;

/// If reserved permits are available within this time, the node waits for them instead of asking the pool.
const SOON_NS: u64 = 25 * MILLISECOND;

/// Fewer reserved permits than this are taken one by one, so that each lives until its own expiry.
const RESERVED_BATCH_MIN: u64 = 16;

/// The part of a batch's life that is used, in percent: the rest allows for clocks that run at different rates.
pub(super) const LIFE_PERCENT: u64 = 99;

/// The time between paced draws: a little longer than a batch covers.
fn pace_ns(setting: &Setting) -> u64 {
    setting.batch_ns + setting.batch_ns / 16
}

/// The next batch is drawn when half of the expected permits are left.
fn low_mark(expected: f64) -> u64 {
    (expected / 2.0) as u64
}

fn expires_at_ns(started_ns: u64, life_ns: u64) -> u64 {
    let life_ns = if crate::planted::on("batch-lives-on") { life_ns * 100 } else { life_ns / 100 * LIFE_PERCENT };
    started_ns.saturating_add(life_ns)
}

impl<W> Key<W> {
    pub(super) fn attend_pool(
        &mut self,
        now_ns: u64,
        life_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.draw_if_due(now_ns, life_ns, setting, local, effects);
        self.draw_at_ns = self.draw_at_ns.min(self.reservation_wakes_at_ns(now_ns));
    }

    pub(super) fn is_contended(&self, now_ns: u64) -> bool {
        self.short_at_ns.is_some_and(|short_at_ns| now_ns.saturating_sub(short_at_ns) < CONTENDED_NS)
    }

    fn draw_if_due(
        &mut self,
        now_ns: u64,
        life_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.serve(now_ns, local, effects);
        let relaxed = self.is_relaxed(now_ns, life_ns, setting);
        let ahead_ns = if relaxed { life_ns } else { setting.batch_ns.min(life_ns / 2) };
        // Reserved permits become available without a draw.
        let (expected, requests) = self.expected_beyond_reserved(now_ns, ahead_ns);
        let is_cold = requests < COLD_BELOW;
        if self.is_contended(now_ns) {
            self.keep_pace(setting);
        }
        if self.is_dry
            && let Some(until_ns) = self.reservation.seconds.cut_until_ns(now_ns)
        {
            self.paced_until_ns = self.paced_until_ns.max(until_ns);
        }
        self.reservation.record_ended_seconds(now_ns);
        let reserve = self.permits_to_reserve(now_ns, setting);
        let paced = now_ns < self.paced_until_ns;
        if paced {
            self.refuse_hopeless(now_ns, effects);
        }
        let left = local.available(now_ns);
        // Waiters get reserved permits, if those are available soon.
        let waiting = self.queue.cost().saturating_sub(self.reservation.seconds.available_by(now_ns, now_ns + SOON_NS));
        let on_demand = is_cold || relaxed;
        let due = waiting > 0 || (!on_demand && (left <= low_mark(expected) || now_ns >= self.draw_at_ns));
        self.draw_at_ns = u64::MAX;
        if self.in_flight.is_some() {
            return;
        }
        if let Some(reserve) = reserve {
            let beyond = (self.expected_beyond_reserved(now_ns, life_ns).0.round() as u64).max(self.queue.cost());
            let need =
                self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.unless_expired(now_ns).count));
            return self.send_draw(
                now_ns,
                beyond.max(need).min(setting.terms.cost_max()),
                need,
                reserve,
                setting,
                effects,
            );
        }
        if paced {
            if due || !is_cold {
                self.draw_at_ns = self.paced_until_ns;
            }
            return;
        }
        if !due {
            // Before the batch expires the node looks again whether to draw the next one.
            if !on_demand && left > 0 {
                self.draw_at_ns = now_ns + life_ns.min(setting.batch_ns * 2) / 4;
            }
            return;
        }
        let need = self.queue.head().map_or(0, |head| head.cost.saturating_sub(self.held.unless_expired(now_ns).count));
        let ahead = match relaxed {
            // The estimate of the demand holds for two batches at most, even if they live longer.
            _ if is_cold => waiting + self.surely_expected(now_ns, life_ns.min(2 * setting.batch_ns)),
            true => (expected + SPARE * expected.sqrt()).round() as u64,
            false => (expected.round() as u64).saturating_sub(left),
        };
        let grown = if relaxed { self.grown_batch(now_ns, life_ns, setting) } else { 0 };
        let want = ahead.max(grown).max(waiting).max(need).min(setting.terms.cost_max());
        if want == 0 {
            return;
        }
        self.send_draw(now_ns, want, need, 0, setting, effects);
    }

    /// After `PACE_BURST` draws at once, allows one draw per pace.
    fn keep_pace(&mut self, setting: &Setting) {
        let due_ns = self.pace_ns.saturating_sub(PACE_BURST * pace_ns(setting));
        self.paced_until_ns = self.paced_until_ns.max(due_ns);
    }

    fn send_draw(
        &mut self,
        now_ns: u64,
        want: u64,
        need: u64,
        reserve: u64,
        setting: &Setting,
        effects: &mut Vec<Effect<W>>,
    ) {
        self.in_flight = Some(CallInFlight { started_ns: now_ns, want, reserve });
        self.last_started_ns = now_ns;
        // A long series of draws that were answered in full puts the node at most `PACE_BURST` draws ahead of the pace.
        let ahead_max_ns = now_ns + PACE_BURST * pace_ns(setting);
        self.pace_ns = self.pace_ns.clamp(now_ns, ahead_max_ns) + pace_ns(setting);
        effects.push(Effect::Draw { want, need, reserve });
    }

    /// After an answer with too few permits, refuses at once the immediate requests that the next draw cannot serve in
    /// time.
    fn refuse_hopeless(&mut self, now_ns: u64, effects: &mut Vec<Effect<W>>) {
        let retry_ns = self.retry_ns(now_ns);
        let answer_ns = self.paced_until_ns.max(now_ns).saturating_add(self.last_trip_ns);
        let mut room = self.last_given.max(1);
        let (seconds, mut before) = (&self.reservation.seconds, 0);
        let hopeless = self.queue.remove(|waiter| {
            if waiter.patience == Patience::UntilDeadline {
                before += waiter.cost;
                return false;
            }
            let reserved_ns = seconds.available_at_ns(now_ns, before + waiter.cost);
            if reserved_ns.is_some_and(|at_ns| at_ns < waiter.deadline_ns) {
                before += waiter.cost;
                return false;
            }
            let waits = waiter.deadline_ns > answer_ns && waiter.cost <= room;
            room -= if waits { waiter.cost } else { 0 };
            !waits
        });
        let refusal = |waiter: Waiter<W>| Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::Exhausted };
        effects.extend(hopeless.into_iter().map(refusal));
    }

    /// Whether the pool is nearly full and this node's demand is small. Then it draws larger and fewer batches, and
    /// only when a request waits. Some permits expire unused, which does no harm while the pool is full.
    fn is_relaxed(&self, now_ns: u64, life_ns: u64, setting: &Setting) -> bool {
        let full = setting.terms.burst as f64 / 2.0;
        !self.is_contended(now_ns)
            && self.is_plenty
            && self.demand.expected_permits(now_ns, life_ns) <= full * SMALL_PART
    }

    /// A low estimate of the permits needed in `span_ns`, beyond the reserved ones.
    fn surely_expected(&self, now_ns: u64, span_ns: u64) -> u64 {
        let per_second = self.demand.steady_per_second(now_ns).min(self.demand.per_second(now_ns));
        let beyond = (per_second - self.reservation.seconds.per_second(now_ns) as f64).max(0.0);
        let usual = self.demand.usual_cost();
        let requests = beyond / usual * span_ns as f64 / SECOND as f64;
        ((requests - UNSURE * requests.sqrt()).max(0.0).floor() * usual) as u64
    }

    /// If the last batch was used up before it expired, a burst of requests has begun: the next batch grows by how
    /// quickly that happened.
    fn grown_batch(&self, now_ns: u64, life_ns: u64, setting: &Setting) -> u64 {
        let used_in_ns = now_ns.saturating_sub(self.last_started_ns).max(1);
        if used_in_ns >= life_ns {
            return 0;
        }
        let quicker = life_ns as f64 / used_in_ns as f64;
        let most = setting.terms.burst as f64 / 2.0 * GROWN_PART;
        (self.last_given as f64 * quicker.min(GROWTH)).min(most) as u64
    }

    /// Handles the answer to the draw that began at `started_ns`. `None`: the store failed to answer.
    pub fn on_draw_answer(
        &mut self,
        started_ns: u64,
        answer: Option<StoreAnswer>,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.started_ns == started_ns) else {
            // The setting has changed since, and the draw is not waited for any more: its permits are spent.
            return;
        };
        // The limit is not in pool mode any more: the permits are spent.
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        self.count_local_takes(now_ns, local);
        if answer.is_some() && self.is_void(started_ns) {
            // The permits are void, because they were drawn before the clock jumped or the limit was lowered.
            self.on_reservation_answer(&in_flight, None, now_ns, setting);
            return self.attend_pool(now_ns, life_ns, setting, local, effects);
        }
        self.on_reservation_answer(&in_flight, answer, now_ns, setting);
        let pace_ns = pace_ns(setting);
        let Some(drawn) = answer else {
            // The pool may not be dry, but a store that fails is asked again at the pace of a dry one.
            self.paced_until_ns = (started_ns + pace_ns).max(now_ns);
            self.refuse_immediate(pace_ns, Reason::StoreSilent, effects);
            self.draw_at_ns = self.paced_until_ns;
            return;
        };
        let expires_ns = expires_at_ns(started_ns, life_ns).min(setting.ends_ns);
        let batch = Batch::new(drawn.given, expires_ns).unless_expired(now_ns);
        if self.queue.is_empty() {
            let low = low_mark(self.demand.expected_permits(now_ns, setting.batch_ns)).max(batch.count / 2);
            local.install(now_ns, batch, if self.is_relaxed(now_ns, life_ns, setting) { 0 } else { low });
            self.seen_count = local.count();
        } else {
            self.collect(now_ns, batch);
        }
        (self.last_given, self.last_trip_ns) = (drawn.given, now_ns.saturating_sub(started_ns));
        self.is_dry = drawn.given < in_flight.want.max(1);
        let missing = (setting.terms.burst / 2).saturating_sub(drawn.pool);
        let full_ms = setting.terms.rate.ns_for(missing) / MILLISECOND;
        self.remember_remainder(StoreAnswer { full_ms, ..drawn }, now_ns);
        let plenty = if self.is_plenty { STILL_PLENTY } else { PLENTY };
        self.is_plenty = drawn.pool as f64 >= setting.terms.burst as f64 / 2.0 * plenty;
        if drawn.given < in_flight.want.div_ceil(2) {
            let soonest_ns = now_ns + drawn.retry_ms.max(1).saturating_mul(MILLISECOND).min(pace_ns);
            (self.paced_until_ns, self.short_at_ns) = (soonest_ns, Some(now_ns));
        }
        if drawn.given == 0 && in_flight.want > 0 {
            let until_ns = now_ns.saturating_add(drawn.retry_ms.saturating_mul(MILLISECOND));
            self.refusal = Some(RememberedRefusal { until_ns, cost: 1, version: setting.terms.version });
        }
        self.attend_pool(now_ns, life_ns, setting, local, effects);
    }

    /// Discards the answer to a draw, because it was made under another definition than the one in force here.
    pub fn discard_draw(
        &mut self,
        started_ns: u64,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.started_ns == started_ns) else { return };
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        self.count_local_takes(now_ns, local);
        self.on_reservation_answer(&in_flight, None, now_ns, setting);
        // Mostly the node and the store agree a moment later. Until then the draws for waiters must not empty the pool.
        self.keep_pace(setting);
        self.attend_pool(now_ns, life_ns, setting, local, effects);
    }

    /// Takes back permits that were not used, and whose batch is not held locally any more. They go to waiters or
    /// become local permits again, with their old expiry.
    pub fn put_back(
        &mut self,
        batch: Batch,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Decider::Pool { life_ns } = setting.terms.decider else { return };
        if batch.expires < Expiry::at(expires_at_ns(self.void_at_ns, life_ns)) {
            return;
        }
        // It may have been taken before this node knew of a lower limit.
        let batch = Batch { expires: batch.expires.min(Expiry::at(setting.ends_ns)), ..batch }.unless_expired(now_ns);
        if batch.count == 0 {
            return;
        }
        self.count_local_takes(now_ns, local);
        self.collect(now_ns, batch);
        if setting.mode == Mode::Store {
            self.attend_pool(now_ns, life_ns, setting, local, effects);
        }
    }

    fn collect(&mut self, now_ns: u64, batch: Batch) {
        let held = self.held.unless_expired(now_ns);
        self.held = held.merge(batch.unless_expired(now_ns));
    }

    /// Gives the permits that are here to the waiters, in order. The rest becomes local permits for the fast path.
    fn serve(&mut self, now_ns: u64, local: &LocalPermits, effects: &mut Vec<Effect<W>>) {
        if !self.queue.is_empty() {
            for batch in local.take_all(now_ns) {
                self.collect(now_ns, batch);
            }
            self.seen_count = local.count();
        }
        self.held = self.held.unless_expired(now_ns);
        while let Some(head) = self.queue.head() {
            let cost = head.cost;
            let expires = if cost <= self.held.count {
                self.held.count -= cost;
                self.held.expires
            } else {
                let Some(expires_ns) = self.reservation.seconds.take(now_ns, cost) else { return };
                Expiry::at(expires_ns)
            };
            self.grant_head(Origin::Batch(expires), now_ns, effects);
        }
        if self.held.count == 0 && local.available(now_ns) == 0 {
            self.held = self.take_reserved_batch(now_ns);
        }
        if self.held.count > 0 {
            let batch = std::mem::replace(&mut self.held, Batch::NONE);
            local.install(now_ns, batch, batch.count / 2);
            self.seen_count = local.count();
        }
    }

    /// Takes the available reserved permits if they are many, so that the fast path finds them without the key's lock.
    fn take_reserved_batch(&mut self, now_ns: u64) -> Batch {
        let left = self.reservation.seconds.available(now_ns);
        let expires_ns = if left >= RESERVED_BATCH_MIN { self.reservation.seconds.take(now_ns, left) } else { None };
        expires_ns.map_or(Batch::NONE, |expires_ns| Batch::new(left, expires_ns))
    }
}
