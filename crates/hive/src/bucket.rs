//! A limit's bucket in the store: what flows back, what is given. Pure, in integers.
//!
//! Time is converted in whole periods of a rule in lowest terms and moves on only by what was converted, so that no
//! number of draws at any spacing loses anything.

pub mod booking;

pub use booking::{Booked, SLOT_MS};

use crate::contract::limit::{Book, Definition, Denial, Draw, Drawn, Left, MICRO, Rule, SlotsHeld, Window};

impl Rule {
    /// So many permits in that time, and so many at once.
    pub fn rate(permits: u64, period_ms: u64, burst: u64) -> Rule {
        let rate_u = permits.saturating_mul(MICRO);
        let common = greatest_common_divisor(rate_u, period_ms).max(1);
        Rule { rate_u: rate_u / common, period_ms: period_ms / common, burst_u: burst.saturating_mul(MICRO) }
    }

    /// So many at a time, or in a window of the calendar.
    pub fn count(max: u64) -> Rule {
        Rule { rate_u: 0, period_ms: 1, burst_u: max.saturating_mul(MICRO) }
    }

    /// What a pool may hold: the other half of the burst is out in batches.
    pub fn pool_u(&self) -> u64 {
        self.burst_u / 2
    }

    /// How long a drawn batch lives: half the burst at the full rate.
    pub fn batch_life_ms(&self) -> u64 {
        self.flow_ms(self.pool_u()).unwrap_or(0)
    }

    /// How long so much takes to flow back.
    pub fn flow_ms(&self, amount_u: u64) -> Option<u64> {
        (self.rate_u > 0).then(|| amount_u.div_ceil(self.rate_u).saturating_mul(self.period_ms))
    }
}

pub(crate) fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Definition {
    /// Of the present one and the one to come, which is in force.
    pub fn in_force(now: Definition, next: Option<Definition>, hive_ms: u64) -> Definition {
        next.filter(|next| next.effective_ms <= hive_ms).unwrap_or(now)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    /// What it was last counted under.
    pub version: u64,
    pub rule: Rule,
    pub pool_u: u64,
    /// Up to where time has been converted.
    pub pool_ms: u64,
    pub issued_u: u64,
    /// The end of the window that it was filled for; 0 without windows.
    pub reset_ms: u64,
    pub booked: Booked,
}

impl Bucket {
    /// Full, unless the store may have forgotten what was given a moment ago.
    pub fn fresh(definition: &Definition, cap_u: u64, lineage_ms: u64, hive_ms: u64) -> Bucket {
        let Definition { version, rule, .. } = *definition;
        let forgot = lineage_ms > 0 && hive_ms < lineage_ms.saturating_add(rule.batch_life_ms());
        let pool_u = if forgot { 0 } else { cap_u };
        let booked = Booked::unknown(rule.bookable_u(), lineage_ms, hive_ms);
        Bucket { version, rule, pool_u, pool_ms: hive_ms, issued_u: 0, reset_ms: 0, booked }
    }

    /// A draw, with what it books.
    pub fn answer(&mut self, definition: &Definition, draw: &Draw, hive_ms: u64) -> Drawn {
        let drawn = self.draw(definition, draw.want, draw.need, hive_ms);
        let Some(book) = draw.book else { return drawn };
        let (booked, begins_ms) = self.book(book, hive_ms);
        Drawn { booked, begins_ms, ..drawn }
    }

    /// Permits of the next second, and how long until that begins. None while that second comes again: it is given away.
    fn book(&mut self, book: Book, hive_ms: u64) -> (u64, u64) {
        let is_ahead = self.booked.is_ahead(hive_ms);
        let booked = if is_ahead { 0 } else { self.booked.book(self.rule.bookable_u(), book) };
        (booked, SLOT_MS - hive_ms % SLOT_MS)
    }

    pub fn draw(&mut self, definition: &Definition, want: u64, need: u64, hive_ms: u64) -> Drawn {
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
        Drawn { granted, pool_u: self.pool_u, version: self.version, retry_ms, booked: 0, begins_ms: 0 }
    }

    /// Brings the bucket up to date; [`Bucket::take`] may follow.
    ///
    /// # Errors
    /// Why the cost cannot be taken now.
    pub fn ask(
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
            // A clock that went back over the edge, or nodes with different calendars, must not fill it again.
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

    pub fn left(&self, hive_ms: u64) -> Left {
        let full_ms = match self.reset_ms {
            0 => self.until_ms(self.rule.burst_u, hive_ms).unwrap_or(0),
            reset_ms => reset_ms.saturating_sub(hive_ms),
        };
        Left { pool_u: self.pool_u, version: self.version, full_ms }
    }

    pub fn refund(&mut self, cost: u64, window: Option<Window>) {
        if window.is_some_and(|window| window.end_ms != self.reset_ms) {
            return;
        }
        let back_u = cost.saturating_mul(MICRO).min(self.rule.burst_u.saturating_sub(self.pool_u)).min(self.issued_u);
        self.pool_u += back_u;
        self.issued_u -= back_u;
    }

    /// Slots: `issued_u` is what all nodes have. Answers what this one has then.
    ///
    /// Where the limit has become a rate, nodes that were told before still have theirs. A rate says nothing of how many at
    /// once: there are as many as before, and the bucket stays one of slots, which is not idle while anybody has some.
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

    /// With what has come of what was booked.
    pub fn issued_by_u(&self, hive_ms: u64) -> u64 {
        self.issued_u.saturating_add(self.booked.between_u(self.pool_ms, hive_ms))
    }

    /// What is booked of the second that it is.
    pub fn booked_u(&self, hive_ms: u64) -> u64 {
        match (hive_ms / SLOT_MS).saturating_sub(self.booked.slot) {
            0 => self.booked.now_u,
            1 => self.booked.next_u,
            _ => 0,
        }
    }

    /// Nothing would be different if the bucket were not there.
    pub fn is_idle(&self, idle_ms: u64, hive_ms: u64) -> bool {
        if self.rule.rate_u == 0 {
            return if self.reset_ms > 0 { self.reset_ms <= hive_ms } else { self.issued_u == 0 };
        }
        hive_ms.saturating_sub(self.pool_ms) >= idle_ms && self.until_ms(self.rule.burst_u, hive_ms) == Some(0)
    }

    /// Under a changed definition the old rule counts until that came into force.
    fn count(&mut self, definition: &Definition, cap_u: impl Fn(&Rule) -> u64, hive_ms: u64) {
        // A clock that went back: what was converted stays converted, and time goes on from here.
        if (hive_ms < self.pool_ms || self.booked.is_ahead(hive_ms)) && !crate::planted::on("bookings of another clock")
        {
            self.booked.go_back(hive_ms);
        }
        self.pool_ms = self.pool_ms.min(hive_ms);
        if self.version != definition.version {
            let since_ms = definition.effective_ms.clamp(self.pool_ms, hive_ms);
            let (old_rule, old_cap_u) = (self.rule, cap_u(&self.rule));
            self.refill(old_cap_u, since_ms);
            (self.version, self.rule) = (definition.version, definition.rule);
            let new_cap_u = cap_u(&self.rule);
            // Where nothing flows back, what was used of a window stays used, whatever there is of it now.
            let is_count = old_rule.rate_u == 0 && self.rule.rate_u == 0;
            let kept_u =
                if is_count { new_cap_u.saturating_sub(old_cap_u.saturating_sub(self.pool_u)) } else { self.pool_u };
            self.pool_u = kept_u.min(new_cap_u);
            self.pool_ms = since_ms;
        }
        self.refill(cap_u(&self.rule), hive_ms);
        self.booked.turn(self.rule.bookable_u(), hive_ms);
    }

    fn refill(&mut self, cap_u: u64, hive_ms: u64) {
        if self.rate_u() == 0 {
            self.pool_ms = hive_ms;
            return;
        }
        let periods = hive_ms.saturating_sub(self.pool_ms) / self.rule.period_ms;
        let until_ms = self.pool_ms + periods * self.rule.period_ms;
        let flowed_u = periods.saturating_mul(self.rate_u());
        let booked_u = self.booked.between_u(self.pool_ms, until_ms);
        self.issued_u = self.issued_u.saturating_add(booked_u);
        let free_u = flowed_u.saturating_sub(booked_u);
        let filled_u = self.pool_u.saturating_add(free_u);
        (self.pool_u, self.pool_ms) = if filled_u >= cap_u { (cap_u, hive_ms) } else { (filled_u, until_ms) };
    }

    fn rate_u(&self) -> u64 {
        if self.rule.period_ms == 0 { 0 } else { self.rule.rate_u }
    }

    /// Until so much is in it. `None`: never by itself.
    fn until_ms(&self, amount_u: u64, hive_ms: u64) -> Option<u64> {
        let missing_u = amount_u.saturating_sub(self.pool_u);
        let flow_ms = if missing_u == 0 { 0 } else { self.rule.flow_ms(missing_u)? };
        Some(self.pool_ms.saturating_add(flow_ms).saturating_sub(hive_ms))
    }
}

#[cfg(test)]
mod tests;
