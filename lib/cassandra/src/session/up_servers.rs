//! The servers that are up, for requests that need a fixed choice among replicas.
//!
//! The list is read again only after the pool has reported a change; most requests use the stored one.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use honeyflow_pool::{Changes, Pool, ServerId, ServerState};

use crate::cluster::Cluster;

pub struct UpServers {
    snapshot: Mutex<Snapshot>,
}

struct Snapshot {
    changes: Changes,
    /// `None` before the first use.
    up: Option<HashSet<ServerId>>,
}

impl UpServers {
    pub fn new(pool: &Pool<Cluster>) -> Self {
        Self { snapshot: Mutex::new(Snapshot { changes: pool.control().changes(), up: None }) }
    }

    /// Returns the first of these servers that is up; the first of all if none is up.
    pub fn first<'s>(&self, pool: &Pool<Cluster>, servers: &'s [ServerId]) -> Option<&'s ServerId> {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = snapshot.has_changed();
        let up = snapshot.up.take().filter(|_| !changed).unwrap_or_else(|| servers_up(pool));
        let first = servers.iter().find(|server| up.contains(*server)).or(servers.first());
        snapshot.up = Some(up);
        first
    }
}

impl Snapshot {
    fn has_changed(&mut self) -> bool {
        let mut changed = false;
        let mut at_once = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(_)) = pin!(self.changes.next()).poll(&mut at_once) {
            changed = true;
        }
        changed
    }
}

fn servers_up(pool: &Pool<Cluster>) -> HashSet<ServerId> {
    let servers = pool.status().servers.into_iter();
    servers.filter(|one| one.state == ServerState::Up).map(|one| one.server.id).collect()
}

impl std::fmt::Debug for UpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UpServers")
    }
}
