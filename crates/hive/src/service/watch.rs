//! Delivers the changes of the view. Versions rise; a reader that falls behind gets a fresh snapshot, never a gap.

use std::sync::Arc;

use tokio::sync::broadcast::{Receiver, error::RecvError};
use uuid::Uuid;

use super::shared::{Membership, Shared};
use crate::contract::{Event, View};

#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    pub view: Arc<View>,
    /// The events between the previous update and this one; `None` if this is a snapshot.
    pub events: Option<Vec<Event>>,
}

pub struct Watch {
    updates: Receiver<Update>,
    shared: Arc<Shared>,
    /// Origin and version of the last update.
    last_shown: Option<(Option<Uuid>, u64)>,
}

impl Watch {
    pub(super) fn new(updates: Receiver<Update>, shared: Arc<Shared>) -> Watch {
        Watch { updates, shared, last_shown: None }
    }

    /// The next update; `None` once this node is no member any more.
    pub async fn next(&mut self) -> Option<Update> {
        if self.last_shown.is_none()
            && let Some(view) = self.shared.view()
        {
            return Some(self.show(Update { view, events: None }));
        }
        let mut membership = self.shared.membership();
        loop {
            let update = tokio::select! {
                biased;
                update = self.updates.recv() => update,
                _ = membership.wait_for(|membership| matches!(membership, Membership::Ended(_))) => return None,
            };
            let update = match update {
                Ok(update) => update,
                Err(RecvError::Lagged(_)) => Update { view: self.shared.view()?, events: None },
                Err(RecvError::Closed) => return None,
            };
            let head = &update.view.head;
            let Some((origin, version)) = self.last_shown else { return Some(self.show(update)) };
            if head.origin == origin && head.version <= version {
                continue;
            }
            let follows = head.origin == origin
                && update.events.as_ref().and_then(|events| events.first()).is_some_and(|e| e.version == version + 1);
            let events = update.events.filter(|_| follows);
            return Some(self.show(Update { view: update.view, events }));
        }
    }

    fn show(&mut self, update: Update) -> Update {
        self.last_shown = Some((update.view.head.origin, update.view.head.version));
        update
    }
}
