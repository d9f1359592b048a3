//! What happens to leases, for the one who works under them. Nothing is missed and nothing piles up: what a slow reader
//! has not heard yet is replaced by what is true now.

use std::{
    collections::{BTreeSet, VecDeque},
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
    closed: bool,
}

impl Mailbox {
    pub fn post(&self, change: Change) {
        let mut letters = self.letters();
        match &change {
            // Whoever never heard that it was gained need not hear that it was lost.
            Change::Lost { lease, .. } if !letters.gained.contains(lease) => {
                letters.forget(lease, |_| true);
            }
            Change::Lost { lease, .. } => {
                letters.forget(lease, |_| true);
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
                        Change::Lost { lease, .. } => letters.gained.remove(lease),
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
        mailbox.post(gained(1));
        mailbox.post(lost());
        assert_eq!(all(&mailbox), [], "never heard of, never had");
        mailbox.post(gained(2));
        assert_eq!(all(&mailbox), [gained(2)]);
        mailbox.post(lost());
        for epoch in 3..100 {
            mailbox.post(gained(epoch));
        }
        assert_eq!(all(&mailbox), [lost(), gained(99)], "the loss, and what stands now");
        let held = Held { lease: "duty/a".into(), epoch: Epoch(99) };
        mailbox.post(Change::Leave { held, until: Moment(5) });
        mailbox.post(lost());
        mailbox.close();
        assert_eq!(all(&mailbox), [lost()]);
    }
}
