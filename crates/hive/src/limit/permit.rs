//! What was taken: used up by default, given back in part or whole if it was not needed. Slots come back by themselves.

use honeyflow_event::Name;

use super::{
    handle::{Denied, Keyed, Limit, Signal},
    key::{Origin, PATIENCE_NS, Reason},
};

enum Whose<'a> {
    Lent(&'a Limit),
    Own(Limit),
}

/// Taken from a limit. Dropping it uses it up, except for slots: those are free again.
pub struct Permit<'a> {
    whose: Whose<'a>,
    key: u128,
    cost: u64,
    origin: Origin,
}

impl<'a> Permit<'a> {
    #[inline]
    pub(super) fn lent(limit: &'a Limit, key: u128, cost: u64, origin: Origin) -> Permit<'a> {
        Permit { whose: Whose::Lent(limit), key, cost, origin }
    }

    fn limit(&self) -> &Limit {
        match &self.whose {
            Whose::Lent(limit) => limit,
            Whose::Own(limit) => limit,
        }
    }

    pub fn cost(&self) -> u64 {
        self.cost
    }

    pub fn limit_name(&self) -> &Name {
        self.limit().name()
    }

    /// Whether it comes back by itself once it is dropped.
    pub fn is_slot(&self) -> bool {
        self.origin == Origin::Slots
    }

    /// Whether it is of this node's own share, while the store was away.
    pub fn is_of_share(&self) -> bool {
        matches!(self.origin, Origin::Share(_))
    }

    /// The same, to be kept for as long as one likes.
    pub fn owned(mut self) -> Permit<'static> {
        let origin = std::mem::replace(&mut self.origin, Origin::Nowhere);
        Permit { whose: Whose::Own(self.limit().clone()), key: self.key, cost: self.cost, origin }
    }

    /// Apart from the rest: dropping any other permit is nearly nothing, and stays small enough to stand where it is done.
    #[cold]
    #[inline(never)]
    fn free(&self) {
        self.limit().0.give_back(self.key, Origin::Slots, self.cost);
    }

    /// A part of it, at most all, as a permit of its own.
    #[must_use]
    pub fn split(&mut self, part: u64) -> Permit<'static> {
        let part = part.min(self.cost);
        self.cost -= part;
        Permit { whose: Whose::Own(self.limit().clone()), key: self.key, cost: part, origin: self.origin }
    }

    /// Gives back what was not used: at most what it cost, and only while its batch lives.
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

/// The most that something may cost. Dropped without a word, all of it is used up.
pub struct Reservation<'a>(Permit<'a>);

impl<'a> Reservation<'a> {
    pub(super) fn of(permit: Permit<'a>) -> Reservation<'a> {
        Reservation(permit)
    }

    pub fn max(&self) -> u64 {
        self.0.cost
    }

    /// It cost this much; the rest goes back.
    pub fn commit(self, actual: u64) {
        let unused = self.0.cost.saturating_sub(actual);
        self.0.refund(unused);
    }
}

/// On its way to whoever waits. It goes back if it does not arrive.
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
        Permit::lent(limit, self.key, self.cost, origin)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.origin != Origin::Nowhere {
            self.limit.0.give_back(self.key, self.origin, self.cost);
        }
    }
}

/// Takes from all of these or from none. Those that the store decides are decided in one operation; the others are taken
/// first, in the order of their names, and go back if anything is refused.
///
/// # Errors
/// The first refusal.
pub async fn all<'a>(wanted: &[(Keyed<'a>, u64)]) -> Result<Vec<Permit<'a>>, Denied> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| {
        let place = |at: usize| (wanted[at].0.limit().name(), wanted[at].0.hash());
        place(*a).cmp(&place(*b))
    });
    let (exact, other): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|at| wanted[*at].0.limit().is_exact());
    let mut taken = Gathered(Vec::with_capacity(wanted.len()));
    for at in other {
        let (keyed, cost) = wanted[at];
        taken.0.push((at, keyed.try_take(cost).await?));
    }
    if let Some(first) = exact.first() {
        let takes = exact.iter().map(|at| {
            let (keyed, cost) = &wanted[*at];
            let state = keyed.limit().0.clone();
            let key = state.keys.place(keyed.hash(), state.common.clock.now_ns());
            (state, key, *cost)
        });
        let takes: Vec<_> = takes.filter(|(_, _, cost)| *cost > 0).collect();
        let state = &wanted[*first].0.limit().0;
        let (told, verdict) = tokio::sync::oneshot::channel();
        let silent = || state.denied(PATIENCE_NS, Reason::StoreSilent);
        let verdict = if takes.is_empty() {
            Ok(Vec::new())
        } else if state.common.signals.try_send(Signal::TakeAll { takes, told }).is_err() {
            Err(silent())
        } else {
            verdict.await.unwrap_or_else(|_| Err((0, silent()))).map_err(|(_, denied)| denied)
        };
        let mut grants = verdict?.into_iter();
        for at in exact {
            let (keyed, cost) = wanted[at];
            let permit = match if cost == 0 { None } else { grants.next() } {
                Some(grant) => grant.claim(keyed.limit()),
                None => Permit::lent(keyed.limit(), keyed.hash(), cost, Origin::Nowhere),
            };
            taken.0.push((at, permit));
        }
    }
    Ok(taken.whole())
}

/// Taken so far. It goes back if anything is refused, or if nobody waits for the rest any more.
struct Gathered<'a>(Vec<(usize, Permit<'a>)>);

impl<'a> Gathered<'a> {
    fn whole(mut self) -> Vec<Permit<'a>> {
        let mut taken = std::mem::take(&mut self.0);
        taken.sort_by_key(|(at, _)| *at);
        taken.into_iter().map(|(_, permit)| permit).collect()
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        for (_, permit) in self.0.drain(..) {
            let cost = permit.cost();
            permit.refund(cost);
        }
    }
}
