//! The arithmetic of a limit's bucket in the store: how it refills and what it gives. Pure functions on integers.
//!
//! Time is converted into permits in whole periods of a rule in lowest terms, and `pool_ms` advances only by the
//! converted time, so that no number of draws, however they are spaced, loses a part of a permit.

pub mod reservation;

pub use reservation::{Reservations, SECOND_MS};

use crate::contract::limit::{
    Definition, Denial, Draw, DrawOutcome, MICRO, Remainder, ReservationRequest, Rule, SlotsHeld, Window,
};

impl Rule {
    /// The rule of a rate: `permits` per period, and up to `burst` at once.
    pub fn rate(permits: u64, period_ms: u64, burst: u64) -> Rule {
        let rate_u = permits.saturating_mul(MICRO);
        let common = greatest_common_divisor(rate_u, period_ms).max(1);
        Rule { rate_u: rate_u / common, period_ms: period_ms / common, burst_u: burst.saturating_mul(MICRO) }
    }

    /// The rule of `max` slots, or of a quota of `max` per calendar window.
    pub fn count(max: u64) -> Rule {
        Rule { rate_u: 0, period_ms: 1, burst_u: max.saturating_mul(MICRO) }
    }

    /// The most that the pool may hold, half the burst: the other half is in the batches of the nodes.
    pub fn pool_u(&self) -> u64 {
        self.burst_u / 2
    }

    /// The life of a drawn batch: the time in which half the burst flows back.
    pub fn batch_life_ms(&self) -> u64 {
        self.flow_ms(self.pool_u()).unwrap_or(0)
    }

    /// The time in which this amount flows back; `None` if nothing ever does.
    pub fn flow_ms(&self, amount_u: u64) -> Option<u64> {
        (self.rate_u > 0).then(|| amount_u.div_ceil(self.rate_u).saturating_mul(self.period_ms))
    }
}

pub(crate) fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Definition {
    /// Returns which of the present and the next definition is in force.
    pub fn in_force(now: Definition, next: Option<Definition>, hive_ms: u64) -> Definition {
        next.filter(|next| next.effective_ms <= hive_ms).unwrap_or(now)
    }
}

/// The state of one key in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    /// The version and the rule under which it was last counted.
    pub version: u64,
    pub rule: Rule,
    pub pool_u: u64,
    /// The time up to which time has been converted into permits.
    pub pool_ms: u64,
    pub issued_u: u64,
    /// The end of the calendar window that it was filled for; 0 without windows.
    pub reset_ms: u64,
    pub reservations: Reservations,
}

impl Bucket {
    /// A new bucket. It is full, unless the store may have lost what it gave out a moment ago.
    pub fn fresh(definition: &Definition, cap_u: u64, lineage_ms: u64, hive_ms: u64) -> Bucket {
        let Definition { version, rule, .. } = *definition;
        let forgot = lineage_ms > 0 && hive_ms < lineage_ms.saturating_add(rule.batch_life_ms());
        let pool_u = if forgot { 0 } else { cap_u };
        let reservations = Reservations::unknown(rule.reservable_u(), lineage_ms, hive_ms);
        Bucket { version, rule, pool_u, pool_ms: hive_ms, issued_u: 0, reset_ms: 0, reservations }
    }

    /// Answers a draw, and its reservation if it asks for one.
    pub fn draw_and_reserve(&mut self, definition: &Definition, draw: &Draw, hive_ms: u64) -> DrawOutcome {
        let drawn = self.draw(definition, draw.want, draw.need, hive_ms);
        let Some(request) = draw.reserve else { return drawn };
        let (reserved, begins_ms) = self.reserve(request, hive_ms);
        DrawOutcome { reserved, begins_ms, ..drawn }
    }

    /// Reserves permits of the next second. Returns how many, and the time until that second begins. After the clock
    /// went back it reserves none until the second is over for which permits were given already.
    fn reserve(&mut self, request: ReservationRequest, hive_ms: u64) -> (u64, u64) {
        let is_ahead = self.reservations.is_ahead(hive_ms);
        let reserved = if is_ahead { 0 } else { self.reservations.reserve(self.rule.reservable_u(), request) };
        (reserved, SECOND_MS - hive_ms % SECOND_MS)
    }

    pub fn draw(&mut self, definition: &Definition, want: u64, need: u64, hive_ms: u64) -> DrawOutcome {
        let cap_u = if crate::planted::on("pool cap forgotten") { |_: &Rule| u64::MAX / 4 } else { Rule::pool_u };
        self.count(definition, cap_u, hive_ms);
        let pool = self.pool_u / MICRO;
        let offered = want.min(self.pool_u / 2 / MICRO);
        let granted = match need {
            need if need <= offered => offered,
            need if need <= pool => need,
            _ => 0,
        };
        self.pool_u -= granted * MICRO;
        self.issued_u = self.issued_u.saturating_add(granted * MICRO);
        let wanted_u = need.max(1).saturating_mul(MICRO);
        let retry_ms =
            (granted == 0 && wanted_u <= self.rule.pool_u()).then(|| self.until_ms(wanted_u, hive_ms)).flatten();
        DrawOutcome { granted, pool_u: self.pool_u, version: self.version, retry_ms, reserved: 0, begins_ms: 0 }
    }

    /// Brings the bucket up to date and checks whether it has the cost; [`Bucket::take`] may follow.
    ///
    /// # Errors
    /// The reason why the cost cannot be taken now.
    pub fn check_take(
        &mut self,
        definition: &Definition,
        cost: u64,
        window: Option<Window>,
        hive_ms: u64,
    ) -> Result<(), Denial> {
        let cost_u = cost.saturating_mul(MICRO);
        if cost_u > definition.rule.burst_u {
            return Err(Denial::TooLarge);
        }
        self.count(definition, |rule| rule.burst_u, hive_ms);
        if let Some(window) = window {
            if !(window.start_ms..window.end_ms).contains(&hive_ms) {
                return Err(Denial::OtherWindow { hive_ms });
            }
            // A clock that went back into the last window, or nodes with different calendars, must not fill it again.
            if window.start_ms >= self.reset_ms {
                self.reset_ms = window.end_ms;
                self.pool_u = self.rule.burst_u;
            }
        }
        if self.pool_u >= cost_u {
            return Ok(());
        }
        let retry_ms = match window {
            Some(window) => window.end_ms.max(self.reset_ms) - hive_ms,
            None => self.until_ms(cost_u, hive_ms).unwrap_or(u64::MAX),
        };
        Err(Denial::Empty { pool_u: self.pool_u, retry_ms })
    }

    pub fn take(&mut self, cost: u64) {
        let cost_u = cost.saturating_mul(MICRO).min(self.pool_u);
        self.pool_u -= cost_u;
        self.issued_u = self.issued_u.saturating_add(cost_u);
    }

    pub fn left(&self, hive_ms: u64) -> Remainder {
        let full_ms = match self.reset_ms {
            0 => self.until_ms(self.rule.burst_u, hive_ms).unwrap_or(0),
            reset_ms => reset_ms.saturating_sub(hive_ms),
        };
        Remainder { pool_u: self.pool_u, version: self.version, full_ms }
    }

    pub fn refund(&mut self, cost: u64, window: Option<Window>) {
        if window.is_some_and(|window| window.end_ms != self.reset_ms) {
            return;
        }
        let back_u = cost.saturating_mul(MICRO).min(self.rule.burst_u.saturating_sub(self.pool_u)).min(self.issued_u);
        self.pool_u += back_u;
        self.issued_u -= back_u;
    }

    /// Changes the slots of one node from `has` to `wants`, as far as slots are free. For slots `issued_u` is the sum
    /// of what all nodes have. Returns what this node has then.
    ///
    /// If the limit has become a rate, nodes with the older definition still have slots. A rate does not say how many
    /// slots there are: there are as many as before, and the bucket stays a bucket of slots, which is not idle while a
    /// node has some.
    pub fn slots(&mut self, definition: &Definition, has: u64, wants: u64) -> SlotsHeld {
        let is_known = definition.rule.rate_u > 0 && self.rule.rate_u == 0;
        let burst_u = if is_known { self.rule.burst_u } else { definition.rule.burst_u };
        (self.version, self.rule) = (definition.version, Rule { burst_u, ..Rule::count(0) });
        let free = (self.rule.burst_u.saturating_sub(self.issued_u)) / MICRO;
        let now_has = if wants <= has { wants } else { has + free.min(wants - has) };
        self.give_back(has);
        self.issued_u += now_has * MICRO;
        let max = self.rule.burst_u / MICRO;
        let free = self.rule.burst_u.saturating_sub(self.issued_u) / MICRO;
        let over = self.issued_u.saturating_sub(self.rule.burst_u) / MICRO;
        SlotsHeld { has: now_has, free, over, max, version: self.version }
    }

    pub fn give_back(&mut self, slots: u64) {
        self.issued_u = self.issued_u.saturating_sub(slots * MICRO);
    }

    /// All permits issued until then, including the reserved ones that have become available.
    pub fn total_issued_u(&self, hive_ms: u64) -> u64 {
        self.issued_u.saturating_add(self.reservations.flow_between_u(self.pool_ms, hive_ms))
    }

    /// The permits reserved of the present second.
    pub fn reserved_u(&self, hive_ms: u64) -> u64 {
        match (hive_ms / SECOND_MS).saturating_sub(self.reservations.second) {
            0 => self.reservations.now_u,
            1 => self.reservations.next_u,
            _ => 0,
        }
    }

    /// Whether the bucket could be deleted without any effect.
    pub fn is_idle(&self, idle_ms: u64, hive_ms: u64) -> bool {
        if self.rule.rate_u == 0 {
            return if self.reset_ms > 0 { self.reset_ms <= hive_ms } else { self.issued_u == 0 };
        }
        hive_ms.saturating_sub(self.pool_ms) >= idle_ms && self.until_ms(self.rule.burst_u, hive_ms) == Some(0)
    }

    /// Brings the bucket up to date. If the definition has changed, the old rule counts until the new one came into
    /// force.
    fn count(&mut self, definition: &Definition, cap_u: impl Fn(&Rule) -> u64, hive_ms: u64) {
        // If the clock went back, converted time stays converted, and time goes on from here.
        if (hive_ms < self.pool_ms || self.reservations.is_ahead(hive_ms))
            && !crate::planted::on("bookings of another clock")
        {
            self.reservations.step_back(hive_ms);
        }
        self.pool_ms = self.pool_ms.min(hive_ms);
        if self.version != definition.version {
            let since_ms = definition.effective_ms.clamp(self.pool_ms, hive_ms);
            let (old_rule, old_cap_u) = (self.rule, cap_u(&self.rule));
            self.refill(old_cap_u, since_ms);
            (self.version, self.rule) = (definition.version, definition.rule);
            let new_cap_u = cap_u(&self.rule);
            // In a quota nothing flows back: what was used in the window stays used under the new quota.
            let is_count = old_rule.rate_u == 0 && self.rule.rate_u == 0;
            let kept_u =
                if is_count { new_cap_u.saturating_sub(old_cap_u.saturating_sub(self.pool_u)) } else { self.pool_u };
            self.pool_u = kept_u.min(new_cap_u);
            self.pool_ms = since_ms;
        }
        self.refill(cap_u(&self.rule), hive_ms);
        self.reservations.advance(self.rule.reservable_u(), hive_ms);
    }

    fn refill(&mut self, cap_u: u64, hive_ms: u64) {
        if self.rate_u() == 0 {
            self.pool_ms = hive_ms;
            return;
        }
        let periods = hive_ms.saturating_sub(self.pool_ms) / self.rule.period_ms;
        let until_ms = self.pool_ms + periods * self.rule.period_ms;
        let flowed_u = periods.saturating_mul(self.rate_u());
        let reserved_u = self.reservations.flow_between_u(self.pool_ms, until_ms);
        self.issued_u = self.issued_u.saturating_add(reserved_u);
        let free_u = flowed_u.saturating_sub(reserved_u);
        let filled_u = self.pool_u.saturating_add(free_u);
        (self.pool_u, self.pool_ms) = if filled_u >= cap_u { (cap_u, hive_ms) } else { (filled_u, until_ms) };
    }

    fn rate_u(&self) -> u64 {
        if self.rule.period_ms == 0 { 0 } else { self.rule.rate_u }
    }

    /// The time until the bucket contains this amount; `None` if nothing flows back.
    fn until_ms(&self, amount_u: u64, hive_ms: u64) -> Option<u64> {
        let missing_u = amount_u.saturating_sub(self.pool_u);
        let flow_ms = if missing_u == 0 { 0 } else { self.rule.flow_ms(missing_u)? };
        Some(self.pool_ms.saturating_add(flow_ms).saturating_sub(hive_ms))
    }
}

#[cfg(test)]
mod tests;
