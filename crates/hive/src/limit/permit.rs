//! Permits that were taken. Dropping one uses it up; a caller may give back what it did not use. Slots become free when
//! their permit is dropped.

use honeyflow_event::Name;

use super::{
    handle::{Limit, LimitKey, Refusal, Signal},
    key::{Origin, PATIENCE_NS, Reason},
};

/// The limit of a permit, borrowed or owned.
enum LimitRef<'a> {
    Borrowed(&'a Limit),
    Owned(Limit),
}

/// Permits or slots that were taken from a limit. Dropping it uses up the permits, but makes the slots free again.
pub struct Permit<'a> {
    limit: LimitRef<'a>,
    key: u128,
    cost: u64,
    origin: Origin,
}

impl<'a> Permit<'a> {
    #[inline]
    pub(super) fn borrowed(limit: &'a Limit, key: u128, cost: u64, origin: Origin) -> Permit<'a> {
        Permit { limit: LimitRef::Borrowed(limit), key, cost, origin }
    }

    fn limit(&self) -> &Limit {
        match &self.limit {
            LimitRef::Borrowed(limit) => limit,
            LimitRef::Owned(limit) => limit,
        }
    }

    pub fn cost(&self) -> u64 {
        self.cost
    }

    pub fn limit_name(&self) -> &Name {
        self.limit().name()
    }

    /// Whether these are slots, which become free when this is dropped.
    pub fn is_slot(&self) -> bool {
        self.origin == Origin::Slots
    }

    /// Whether it was taken from this node's share while the store did not answer.
    pub fn is_from_share(&self) -> bool {
        matches!(self.origin, Origin::Share(_))
    }

    /// Returns the same permit without the borrow of its limit.
    pub fn into_owned(mut self) -> Permit<'static> {
        let origin = std::mem::replace(&mut self.origin, Origin::Nowhere);
        Permit { limit: LimitRef::Owned(self.limit().clone()), key: self.key, cost: self.cost, origin }
    }

    /// Kept out of `drop`, which is nearly free for permits that are not slots and stays small enough to be inlined.
    #[cold]
    #[inline(never)]
    fn free(&self) {
        self.limit().0.give_back(self.key, Origin::Slots, self.cost);
    }

    /// Splits off `part` of it, at most all, as a separate permit.
    #[must_use]
    pub fn split(&mut self, part: u64) -> Permit<'static> {
        let part = part.min(self.cost);
        self.cost -= part;
        Permit { limit: LimitRef::Owned(self.limit().clone()), key: self.key, cost: part, origin: self.origin }
    }

    /// Gives back what was not used: at most its cost, and only until its batch expires.
    pub fn refund(mut self, unused: u64) {
        let unused = unused.min(self.cost);
        self.cost -= unused;
        if unused > 0 {
            self.limit().0.give_back(self.key, self.origin, unused);
        }
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.origin == Origin::Slots && self.cost > 0 {
            self.free();
        }
    }
}

/// Permits for the highest cost that an action may have, taken before the cost is known. Dropping it uses up all of
/// them. This is not the reservation of a node's next second, which is in [`super::reserved_second`].
pub struct CostReservation<'a>(Permit<'a>);

impl<'a> CostReservation<'a> {
    pub(super) fn new(permit: Permit<'a>) -> CostReservation<'a> {
        CostReservation(permit)
    }

    pub fn max(&self) -> u64 {
        self.0.cost
    }

    /// Gives back the permits beyond the actual cost.
    pub fn commit(self, actual: u64) {
        let unused = self.0.cost.saturating_sub(actual);
        self.0.refund(unused);
    }
}

/// Permits on their way to a waiter. They go back if the waiter has gone.
pub(super) struct Grant {
    limit: Limit,
    key: u128,
    cost: u64,
    origin: Origin,
}

impl Grant {
    pub fn new(limit: Limit, key: u128, cost: u64, origin: Origin) -> Grant {
        Grant { limit, key, cost, origin }
    }

    pub fn claim(mut self, limit: &Limit) -> Permit<'_> {
        let origin = std::mem::replace(&mut self.origin, Origin::Nowhere);
        Permit::borrowed(limit, self.key, self.cost, origin)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.origin != Origin::Nowhere {
            self.limit.0.give_back(self.key, self.origin, self.cost);
        }
    }
}

/// Takes from all of these limits or from none. The limits for which the store decides are decided in one operation.
/// The others are taken first, in the order of their names, and their permits go back if any limit refuses.
///
/// # Errors
/// The first refusal.
pub async fn all<'a>(wanted: &[(LimitKey<'a>, u64)]) -> Result<Vec<Permit<'a>>, Refusal> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| {
        let order_of = |at: usize| (wanted[at].0.limit().name(), wanted[at].0.hash());
        order_of(*a).cmp(&order_of(*b))
    });
    let (exact, other): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|at| wanted[*at].0.limit().is_exact());
    let mut taken = PartialTakes(Vec::with_capacity(wanted.len()));
    for at in other {
        let (keyed, cost) = wanted[at];
        taken.0.push((at, keyed.try_take(cost).await?));
    }
    if let Some(first) = exact.first() {
        let takes = exact.iter().map(|at| {
            let (keyed, cost) = &wanted[*at];
            let state = keyed.limit().0.clone();
            let key = state.keys.place_key(keyed.hash(), state.common.clock.now_ns());
            (state, key, *cost)
        });
        let takes: Vec<_> = takes.filter(|(_, _, cost)| *cost > 0).collect();
        let state = &wanted[*first].0.limit().0;
        let (caller, verdict) = tokio::sync::oneshot::channel();
        let silent = || state.refuse(PATIENCE_NS, Reason::StoreSilent);
        let verdict = if takes.is_empty() {
            Ok(Vec::new())
        } else if state.common.signals.try_send(Signal::TakeAll { takes, caller }).is_err() {
            Err(silent())
        } else {
            verdict.await.unwrap_or_else(|_| Err((0, silent()))).map_err(|(_, denied)| denied)
        };
        let mut grants = verdict?.into_iter();
        for at in exact {
            let (keyed, cost) = wanted[at];
            let permit = match if cost == 0 { None } else { grants.next() } {
                Some(grant) => grant.claim(keyed.limit()),
                None => Permit::borrowed(keyed.limit(), keyed.hash(), cost, Origin::Nowhere),
            };
            taken.0.push((at, permit));
        }
    }
    Ok(taken.into_permits())
}

/// The permits taken so far. They go back if a limit refuses, or if the caller stops waiting.
struct PartialTakes<'a>(Vec<(usize, Permit<'a>)>);

impl<'a> PartialTakes<'a> {
    fn into_permits(mut self) -> Vec<Permit<'a>> {
        let mut taken = std::mem::take(&mut self.0);
        taken.sort_by_key(|(at, _)| *at);
        taken.into_iter().map(|(_, permit)| permit).collect()
    }
}

impl Drop for PartialTakes<'_> {
    fn drop(&mut self) {
        for (_, permit) in self.0.drain(..) {
            let cost = permit.cost();
            permit.refund(cost);
        }
    }
}
