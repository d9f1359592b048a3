//! Which servers are up, for requests that must not leave the choice among replicas to chance.
//!
//! Looked at anew only after the pool has told of a change: most requests find what the last one saw.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use honeyflow_pool::{Changes, Pool, ServerId, ServerState};

use crate::cluster::Cluster;

pub struct Standing {
    seen: Mutex<Seen>,
}

struct Seen {
    changes: Changes,
    /// `None` until somebody asks.
    up: Option<HashSet<ServerId>>,
}

impl Standing {
    pub fn new(pool: &Pool<Cluster>) -> Self {
        Self { seen: Mutex::new(Seen { changes: pool.control().changes(), up: None }) }
    }

    /// The first of these that is up, in their order; the very first if none is.
    pub fn first<'s>(&self, pool: &Pool<Cluster>, servers: &'s [ServerId]) -> Option<&'s ServerId> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = seen.has_changed();
        let up = seen.up.take().filter(|_| !changed).unwrap_or_else(|| servers_up(pool));
        let first = servers.iter().find(|server| up.contains(*server)).or(servers.first());
        seen.up = Some(up);
        first
    }
}

impl Seen {
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

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Standing")
    }
}
