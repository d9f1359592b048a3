//! Connections by what they are for, so that nothing waits behind something slower: a beat has one of its own, which
//! neither a take that waits for a lock nor any number of draws can hold up.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_hive::Request;
use honeyflow_runtime::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::session::Session;

/// Servers and poolers close what is idle for long, and say so only to the next message.
const IDLE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Lanes {
    heart: Arc<Lane>,
    change: Arc<Lane>,
    limit: Arc<Lane>,
    read: Arc<Lane>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { heart: Lane::of(1), change: Lane::of(2), limit: Lane::of(2), read: Lane::of(2) }
    }
}

impl Lanes {
    pub fn of(&self, request: &Request) -> &Arc<Lane> {
        match request {
            Request::Beat { .. } | Request::Join { .. } | Request::Leave { .. } => &self.heart,
            Request::Limit(_) => &self.limit,
            Request::View | Request::Events { .. } | Request::History { .. } | Request::Tally => &self.read,
            _ => &self.change,
        }
    }
}

pub(crate) struct Lane {
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<(Instant, Session)>>,
}

impl Lane {
    fn of(connections: usize) -> Arc<Lane> {
        Arc::new(Lane { turns: Arc::new(Semaphore::new(connections)), idle: Mutex::default() })
    }

    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.turns)
            .acquire_owned()
            .await
            .map_err(|_| Failure::retry("hive-stopped", "the hive is being closed"))
    }

    /// One that was used a moment ago. To be given back after use; whoever goes away with it closes it.
    pub fn take(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| since.elapsed() < IDLE_MAX);
        idle.pop().map(|(_, session)| session)
    }

    pub fn give_back(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), session));
    }
}
