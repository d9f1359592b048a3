//! Lanes: separate connections for each kind of request, so that no request waits behind a slower kind. Heartbeats have
//! their own connection, which neither a take that waits for a lock nor any number of draws can delay.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_hive::Request;
use honeyflow_runtime::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{codes, session::Session};

/// Servers and poolers close connections that are idle for long, and report it only on the next message.
const IDLE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Lanes {
    heart: Arc<Lane>,
    change: Arc<Lane>,
    limit: Arc<Lane>,
    read: Arc<Lane>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            heart: Lane::with_connections(1),
            change: Lane::with_connections(2),
            limit: Lane::with_connections(2),
            read: Lane::with_connections(2),
        }
    }
}

impl Lanes {
    pub fn lane_for(&self, request: &Request) -> &Arc<Lane> {
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
    fn with_connections(connections: usize) -> Arc<Lane> {
        Arc::new(Lane { turns: Arc::new(Semaphore::new(connections)), idle: Mutex::default() })
    }

    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.turns)
            .acquire_owned()
            .await
            .map_err(|_| Failure::retry(codes::HIVE_STOPPED, "the hive is being closed"))
    }

    /// Takes a connection that was used recently. Give it back after use; dropping it closes it.
    pub fn take(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| since.elapsed() < IDLE_MAX);
        idle.pop().map(|(_, session)| session)
    }

    pub fn give_back(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), session));
    }
}
