//! Delivers the changes of leases to the work that runs under them. No loss is missed and nothing piles up: newer
//! changes replace the ones that a slow reader has not read yet. The reader must read a loss in time: until then it may
//! still work under a lease that another node holds.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use honeyflow_event::Name;
use honeyflow_runtime::Moment;
use tokio::sync::Notify;

use crate::{contract::HeldLease, term::Term};

#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// The lease was granted, or a new epoch was minted: the previous term is dead.
    Gained(Term),
    /// Another node should hold it: end the work before `until`, then call [`super::Hive::left`].
    Leave {
        held: HeldLease,
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
    /// Leases that the reader believes it holds.
    gained: BTreeSet<Name>,
    /// For each lost lease, until when the reader should have read the loss.
    read_by: BTreeMap<Name, Moment>,
    closed: bool,
}

impl Mailbox {
    /// Posts a change. `read_by`: until when the reader should have read a loss.
    pub fn post(&self, change: Change, read_by: Moment) {
        let mut letters = self.letters();
        match &change {
            // The reader never read that it was gained, so it need not read that it was lost.
            Change::Lost { lease, .. } if !letters.gained.contains(lease) => {
                letters.forget(lease, |_| true);
            }
            Change::Lost { lease, .. } => {
                letters.forget(lease, |_| true);
                letters.read_by.entry(lease.clone()).or_insert(read_by);
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

    /// The next change; `None` once the mailbox is closed and empty. For one reader.
    pub async fn next(&self) -> Option<Change> {
        loop {
            {
                let mut letters = self.letters();
                if let Some(change) = letters.waiting.pop_front() {
                    match &change {
                        Change::Gained(term) => letters.gained.insert(term.lease().clone()),
                        Change::Lost { lease, .. } => {
                            letters.read_by.remove(lease);
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

    /// The leases whose loss should have been read before `now`; each is returned once. Gains since then are dropped,
    /// and the reader does not see them.
    pub fn overdue(&self, now: Moment) -> Vec<Name> {
        let mut letters = self.letters();
        let overdue: Vec<Name> =
            letters.read_by.iter().filter(|(_, by)| **by < now).map(|(lease, _)| lease.clone()).collect();
        for lease in &overdue {
            letters.forget(lease, |waiting| !matches!(waiting, Change::Lost { .. }));
            letters.read_by.insert(lease.clone(), Moment::FAR);
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
    fn hv_20_a_slow_reader_never_misses_a_loss_and_reads_only_current_gains() {
        let mailbox = Mailbox::default();
        let post = |change| mailbox.post(change, Moment::FAR);
        post(gained(1));
        post(lost());
        assert_eq!(all(&mailbox), [], "a gain that was never read needs no loss");
        post(gained(2));
        assert_eq!(all(&mailbox), [gained(2)]);
        post(lost());
        for epoch in 3..100 {
            post(gained(epoch));
        }
        assert_eq!(all(&mailbox), [lost(), gained(99)], "the loss, and the current gain");
        let held = HeldLease { lease: "duty/a".into(), epoch: Epoch(99) };
        post(Change::Leave { held, until: Moment(5) });
        post(lost());
        mailbox.close();
        assert_eq!(all(&mailbox), [lost()]);
    }

    #[test]
    fn hv_46_a_loss_that_is_not_read_in_time_is_reported_once() {
        let mailbox = Mailbox::default();
        let overdue = |now: u64| mailbox.overdue(Moment(now));
        mailbox.post(gained(1), Moment::FAR);
        mailbox.post(lost(), Moment(5));
        assert!(overdue(9).is_empty(), "the gain was never read");
        mailbox.post(gained(2), Moment::FAR);
        assert_eq!(all(&mailbox), [gained(2)]);
        mailbox.post(lost(), Moment(10));
        mailbox.post(gained(3), Moment::FAR);
        mailbox.post(lost(), Moment(50));
        mailbox.post(gained(4), Moment::FAR);
        assert!(overdue(10).is_empty());
        assert_eq!(overdue(11), ["duty/a".into()], "the first loss counts");
        assert!(overdue(12).is_empty(), "once");
        assert_eq!(all(&mailbox), [lost()], "later gains are dropped");
        mailbox.post(gained(5), Moment::FAR);
        assert_eq!(all(&mailbox), [gained(5)]);
        mailbox.post(lost(), Moment(60));
        assert_eq!(all(&mailbox), [lost()]);
        assert!(overdue(99).is_empty(), "read in time");
    }
}
