//! A term of a lease, and the fence that every effect under it shows.
//!
//! A term is alive while its node is trusted, until the lease gets another holder. Its end is one number that can fall
//! to zero and never rises again: once a caller has seen a term dead, every later check says the same, even if a
//! heartbeat is answered at the same moment.

mod atomic {
    pub use std::sync::atomic::{AtomicU64, Ordering};
}
mod end;

use std::{fmt, sync::Arc};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Clock, Moment};

use self::end::End;
use crate::contract::NodeId;

/// A lease, an epoch and a holder. A store's answer grants it, and it is dead for good once its trust has run out.
/// Cheap to clone; clones share one end.
///
/// ```compile_fail
/// // A term cannot be constructed: it is granted.
/// let term = honeyflow_hive::Term { lease: "queen".into(), epoch: honeyflow_event::Epoch(1) };
/// ```
///
/// ```compile_fail
/// // Nor can the constructor be called.
/// let term = honeyflow_hive::Term::granted;
/// ```
#[derive(Clone)]
pub struct Term {
    granted: Arc<Granted>,
}

struct Granted {
    lease: Name,
    epoch: Epoch,
    holder: NodeId,
    end: End,
    clock: Arc<dyn Clock>,
}

impl Term {
    /// Only [`crate::Member`] makes terms, from a store's answer. A term whose answer came too late is dead from the
    /// start.
    pub(crate) fn granted(lease: Name, epoch: Epoch, holder: NodeId, until: Moment, clock: Arc<dyn Clock>) -> Term {
        Term { granted: Arc::new(Granted { lease, epoch, holder, end: End::at(until.0), clock }) }
    }

    pub fn lease(&self) -> &Name {
        &self.granted.lease
    }

    pub fn epoch(&self) -> Epoch {
        self.granted.epoch
    }

    pub fn holder(&self) -> NodeId {
        self.granted.holder
    }

    /// Whether its holder may still act under it. Costs one atomic load and one reading of the clock.
    pub fn check(&self) -> bool {
        self.lives_at(self.granted.clock.now())
    }

    /// The same as [`Term::check`], at a time that the caller gives.
    pub fn lives_at(&self, now: Moment) -> bool {
        self.granted.end.is_after(now.0)
    }

    /// When it ends if no heartbeat is answered before; `Moment(0)` if it has ended.
    pub fn until(&self) -> Moment {
        Moment(self.granted.end.get())
    }

    /// The fence that a write under this term shows. For a dead term, a fence that no store accepts.
    pub fn fence(&self) -> Fence {
        self.fence_at(self.granted.clock.now()).unwrap_or_else(|| self.with_epoch(Epoch(0)))
    }

    /// The fence, or `None` if the term is dead at `now`.
    pub fn fence_at(&self, now: Moment) -> Option<Fence> {
        self.lives_at(now).then(|| self.with_epoch(self.granted.epoch))
    }

    /// With epoch 0 the fence never holds: no row has a holder under epoch 0.
    fn with_epoch(&self, epoch: Epoch) -> Fence {
        Fence { lease: self.granted.lease.clone(), epoch, holder: self.granted.holder }
    }

    /// Extends the term after an answered heartbeat. False if a caller has already seen it dead: then it stays dead.
    pub(crate) fn extend(&self, until: Moment) -> bool {
        self.granted.end.put_off(until.0)
    }

    /// A copy with an end of its own, for a copy of the [`crate::Member`] that explores another future.
    pub(crate) fn independent_copy(&self) -> Term {
        let Granted { lease, epoch, holder, end, clock } = &*self.granted;
        Term::granted(lease.clone(), *epoch, *holder, Moment(end.get()), clock.clone())
    }

    pub(crate) fn end(&self) {
        self.granted.end.end_now();
    }
}

impl PartialEq for Term {
    fn eq(&self, other: &Term) -> bool {
        (self.lease(), self.epoch(), self.holder()) == (other.lease(), other.epoch(), other.holder())
    }
}

impl Eq for Term {}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Term({} {} of {})", self.lease(), self.epoch().0, self.holder())
    }
}

/// The proof that a fenced request shows. The store compares it with the lease row in the transaction that writes.
///
/// ```compile_fail
/// // Without a term there is no fence, and without a fence no fenced request.
/// use honeyflow_hive::Request;
/// let count = Request::Count { every_ms: 0, remove: Vec::new() };
/// ```
///
/// ```compile_fail
/// let fence = honeyflow_hive::Fence { lease: "queen".into(), epoch: honeyflow_event::Epoch(1) };
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    lease: Name,
    epoch: Epoch,
    holder: NodeId,
}

impl Fence {
    pub fn lease(&self) -> &Name {
        &self.lease
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the lease row still has this epoch and holder. The same check as [`crate::fence`], for stores without
    /// SQL.
    pub fn holds(&self, epoch: Epoch, holder: Option<NodeId>) -> bool {
        (self.epoch == epoch && holder == Some(self.holder)) || crate::planted::on("PB-1")
    }

    pub fn holder(&self) -> NodeId {
        self.holder
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_runtime::time::BootClock;
    use uuid::Uuid;

    use super::*;

    fn term(until: u64) -> Term {
        Term::granted("queen".into(), Epoch(7), NodeId(Uuid::from_u128(1)), Moment(until), Arc::new(BootClock))
    }

    #[test]
    fn hv_41_a_dead_term_gives_no_fence_that_holds() {
        let living = term(Moment::FAR.0);
        assert!(living.check() && living.fence().holds(Epoch(7), Some(living.holder())));
        living.end();
        assert!(!living.check());
        assert!(!living.fence().holds(Epoch(7), Some(living.holder())));
        assert_eq!(living.fence_at(Moment(0)), None);
    }

    #[test]
    fn hv_13_a_term_once_seen_dead_stays_dead() {
        let term = term(100);
        assert!(term.lives_at(Moment(99)));
        assert!(!term.lives_at(Moment(100)));
        term.extend(Moment(500));
        assert!(!term.lives_at(Moment(101)) && !term.clone().lives_at(Moment(1)));
    }

    #[test]
    fn hv_12_an_answered_heartbeat_extends_a_term_and_never_shortens_it() {
        let term = term(100);
        term.extend(Moment(200));
        term.extend(Moment(150));
        assert!(term.lives_at(Moment(199)) && !term.lives_at(Moment(200)));
    }

    #[test]
    fn hv_2_a_term_that_ends_in_one_copy_lives_on_in_the_other() {
        let here = term(100);
        let elsewhere = here.independent_copy();
        here.end();
        assert!(!here.lives_at(Moment(5)) && elsewhere.lives_at(Moment(5)) && here.clone() == elsewhere);
    }

    #[test]
    fn hv_41_a_term_granted_too_late_is_dead_from_the_start() {
        assert!(!term(5).lives_at(Moment(5)));
    }
}
