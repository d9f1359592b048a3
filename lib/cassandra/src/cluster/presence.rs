//! Which servers have come back, and in which version each speaks.
//!
//! A server has come back when somebody is connected to it again after all earlier connections have ended: it may have
//! been started anew, and have forgotten what it had prepared.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use honeyflow_pool::{Server, ServerId};

use crate::connection::{Connection, Life};
use crate::wire::Version;

#[derive(Debug, Default)]
pub struct Presence {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    lives: HashMap<SocketAddr, Vec<Life>>,
    /// Under the id and under the address: the first connection is made before the id is known.
    versions: HashMap<ServerId, Version>,
}

impl Presence {
    /// True if the server was here before, and then was not.
    pub fn came(&self, server: &Server, connection: &Connection) -> bool {
        let mut seen = self.lock();
        for id in [server.id.clone(), ServerId::from(server.address)] {
            seen.versions.insert(id, connection.version());
        }
        let known = seen.lives.contains_key(&server.address);
        let lives = seen.lives.entry(server.address).or_default();
        lives.retain(|life| !life.is_over());
        lives.push(connection.life());
        known && lives.len() == 1
    }

    /// Those of these servers that speak this version; `None` if all do, as far as is known.
    pub fn speakers(&self, version: Version, among: &[Server]) -> Option<Vec<ServerId>> {
        let seen = self.lock();
        let version_of = |server: &Server| {
            seen.versions.get(&server.id).or_else(|| seen.versions.get(&ServerId::from(server.address))).copied()
        };
        let differs = |server: &&Server| version_of(server).is_some_and(|other| other != version);
        among.iter().any(|server| differs(&server)).then(|| {
            among.iter().filter(|server| version_of(server) == Some(version)).map(|server| server.id.clone()).collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
