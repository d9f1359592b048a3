//! What happens to leases, for the one who works under them. Nothing is missed and nothing piles up: what a slow reader
//! has not heard yet is replaced by what is true now. A loss has to be heard in time: whoever does not is still at work
//! under a term that others may have by now.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;
use tokio::sync::Notify;

use crate::{contract::Held, term::Term};

#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Granted, or minted anew: the term before is dead.
    Gained(Term),
    /// Another node should have it: come to an end until then and say that it was left.
    Leave {
        held: Held,
        until: Moment,
    },
    Lost {
        lease: Name,
        cause: &'static str,
    },
}

impl Change {
    pub fn lease(&self) -> &Name {
        match self {
            Change::Gained(term) => term.lease(),
            Change::Leave { held, .. } => &held.lease,
            Change::Lost { lease, .. } => lease,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    posted: Notify,
}

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<Change>,
    /// Leases that the reader believes to hold.
    gained: BTreeSet<Name>,
    /// By lease that was lost: until when it should have heard so.
    hear_by: BTreeMap<Name, Moment>,
    closed: bool,
}

impl Mailbox {
    /// `hear_by`: of a loss.
    pub fn post(&self, change: Change, hear_by: Moment) {
        let mut letters = self.letters();
        match &change {
            // Whoever never heard that it was gained need not hear that it was lost.
            Change::Lost { lease, .. } if !letters.gained.contains(lease) => {
                letters.forget(lease, |_| true);
            }
            Change::Lost { lease, .. } => {
                letters.forget(lease, |_| true);
                letters.hear_by.entry(lease.clone()).or_insert(hear_by);
                letters.waiting.push_back(change);
            }
            Change::Gained(term) => {
                letters.forget(term.lease(), |waiting| !matches!(waiting, Change::Lost { .. }));
                letters.waiting.push_back(change);
            }
            Change::Leave { .. } => letters.waiting.push_back(change),
        }
        drop(letters);
        self.posted.notify_one();
    }

    pub fn close(&self) {
        self.letters().closed = true;
        self.posted.notify_one();
    }

    /// None once everything is over. For one reader.
    pub async fn next(&self) -> Option<Change> {
        loop {
            {
                let mut letters = self.letters();
                if let Some(change) = letters.waiting.pop_front() {
                    match &change {
                        Change::Gained(term) => letters.gained.insert(term.lease().clone()),
                        Change::Lost { lease, .. } => {
                            letters.hear_by.remove(lease);
                            letters.gained.remove(lease)
                        }
                        Change::Leave { .. } => false,
                    };
                    return Some(change);
                }
                if letters.closed {
                    return None;
                }
            }
            self.posted.notified().await;
        }
    }

    /// Leases whose loss should have been heard before `now`, each told once. What was gained since is given up, and not
    /// heard of.
    pub fn overdue(&self, now: Moment) -> Vec<Name> {
        let mut letters = self.letters();
        let overdue: Vec<Name> =
            letters.hear_by.iter().filter(|(_, by)| **by < now).map(|(lease, _)| lease.clone()).collect();
        for lease in &overdue {
            letters.forget(lease, |waiting| !matches!(waiting, Change::Lost { .. }));
            letters.hear_by.insert(lease.clone(), Moment::FAR);
        }
        overdue
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Letters {
    fn forget(&mut self, lease: &Name, which: impl Fn(&Change) -> bool) {
        self.waiting.retain(|waiting| waiting.lease() != lease || !which(waiting));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use honeyflow_event::Epoch;
    use honeyflow_runtime::time::BootClock;
    use uuid::Uuid;

    use super::*;
    use crate::contract::NodeId;

    fn gained(epoch: u64) -> Change {
        let holder = NodeId(Uuid::from_u128(1));
        Change::Gained(Term::granted("duty/a".into(), Epoch(epoch), holder, Moment::FAR, Arc::new(BootClock)))
    }

    fn lost() -> Change {
        Change::Lost { lease: "duty/a".into(), cause: "test" }
    }

    fn all(mailbox: &Mailbox) -> Vec<Change> {
        std::iter::from_fn(|| mailbox.next().now_or_never().flatten()).collect()
    }

    #[test]
    fn hv_20_a_slow_reader_never_misses_a_loss_and_hears_only_what_is_true() {
        let mailbox = Mailbox::default();
        let post = |change| mailbox.post(change, Moment::FAR);
        post(gained(1));
        post(lost());
        assert_eq!(all(&mailbox), [], "never heard of, never had");
        post(gained(2));
        assert_eq!(all(&mailbox), [gained(2)]);
        post(lost());
        for epoch in 3..100 {
            post(gained(epoch));
        }
        assert_eq!(all(&mailbox), [lost(), gained(99)], "the loss, and what stands now");
        let held = Held { lease: "duty/a".into(), epoch: Epoch(99) };
        post(Change::Leave { held, until: Moment(5) });
        post(lost());
        mailbox.close();
        assert_eq!(all(&mailbox), [lost()]);
    }

    #[test]
    fn hv_46_a_loss_that_is_not_heard_in_time_is_told_once() {
        let mailbox = Mailbox::default();
        let overdue = |now: u64| mailbox.overdue(Moment(now));
        mailbox.post(gained(1), Moment::FAR);
        mailbox.post(lost(), Moment(5));
        assert!(overdue(9).is_empty(), "it never heard that it had it");
        mailbox.post(gained(2), Moment::FAR);
        assert_eq!(all(&mailbox), [gained(2)]);
        mailbox.post(lost(), Moment(10));
        mailbox.post(gained(3), Moment::FAR);
        mailbox.post(lost(), Moment(50));
        mailbox.post(gained(4), Moment::FAR);
        assert!(overdue(10).is_empty());
        assert_eq!(overdue(11), ["duty/a".into()], "the first loss counts");
        assert!(overdue(12).is_empty(), "once");
        assert_eq!(all(&mailbox), [lost()], "nobody works under what was gained meanwhile");
        mailbox.post(gained(5), Moment::FAR);
        assert_eq!(all(&mailbox), [gained(5)]);
        mailbox.post(lost(), Moment(60));
        assert_eq!(all(&mailbox), [lost()]);
        assert!(overdue(99).is_empty(), "heard in time");
    }
}
