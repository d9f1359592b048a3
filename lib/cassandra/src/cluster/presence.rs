//! Which servers have come back, and in which version each speaks.
//!
//! The version is agreed on once for all connections to a server; when the last of them has ended, anew: the server may have
//! been upgraded meanwhile.
//! A server has come back when somebody is connected to it again after all earlier connections have ended: it may have
//! been started anew, and have forgotten what it had prepared. One that nobody was connected to for long is forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use honeyflow_pool::{Server, ServerId};
use tokio::time::Instant;

use crate::connection::{Connection, Life};
use crate::wire::Version;

const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct Presence {
    seen: Mutex<HashMap<SocketAddr, Seen>>,
}

#[derive(Debug)]
struct Seen {
    /// As connections call it; statements remember a server as long as its name is borne.
    name: Arc<str>,
    /// The address, too: the first connection is made before the id is known.
    spoken: Option<(ServerId, Version)>,
    lives: Vec<Life>,
    /// The version above was refused since.
    disagreed: bool,
    asked_at: Instant,
}

impl Presence {
    /// What it is called, by all that are or were connected to it.
    pub fn name(&self, server: SocketAddr, now: Instant) -> Arc<str> {
        let mut seen = self.lock();
        let name = || server.to_string().into();
        let unseen = || Seen { name: name(), spoken: None, lives: Vec::new(), disagreed: false, asked_at: now };
        let known = seen.entry(server).or_insert_with(unseen);
        known.asked_at = now;
        Arc::clone(&known.name)
    }

    /// True if the server was here before, and then was not.
    pub fn came(&self, server: &Server, connection: &Connection) -> bool {
        let mut seen = self.lock();
        let Some(known) = seen.get_mut(&server.address) else { return false };
        let before = known.spoken.replace((server.id.clone(), connection.version())).is_some();
        known.disagreed = false;
        known.lives.retain(|life| !life.is_over());
        known.lives.push(connection.life());
        before && known.lives.len() == 1
    }

    /// In which version it is spoken to, while anybody is connected to it.
    pub fn agreed(&self, server: SocketAddr) -> Option<Version> {
        let mut seen = self.lock();
        let known = seen.get_mut(&server)?;
        known.lives.retain(|life| !life.is_over());
        let (_, version) = known.spoken.as_ref().filter(|_| !known.lives.is_empty() && !known.disagreed)?;
        Some(*version)
    }

    /// It does not speak that version any more.
    pub fn disagree(&self, server: SocketAddr) {
        if let Some(known) = self.lock().get_mut(&server) {
            known.disagreed = true;
        }
    }

    /// Whoever has left for good leaves nothing behind.
    pub fn forget(&self, now: Instant) {
        self.lock().retain(|_, known| {
            known.lives.retain(|life| !life.is_over());
            !known.lives.is_empty() || now.saturating_duration_since(known.asked_at) < FORGOTTEN_AFTER
        });
    }

    /// Those of these servers that speak this version; `None` if all do, as far as is known. Where nobody has told who is
    /// there, of those that somebody was connected to.
    pub fn speakers(&self, version: Version, among: &[Server]) -> Option<Vec<ServerId>> {
        let seen = self.lock();
        let spoken = seen.iter().filter_map(|(address, known)| Some((*address, known.spoken.as_ref()?)));
        if among.is_empty() {
            let (same, other): (Vec<_>, Vec<_>) =
                spoken.map(|(_, spoken)| spoken).partition(|(_, own)| *own == version);
            return (!other.is_empty()).then(|| same.into_iter().map(|(id, _)| id.clone()).collect());
        }
        let by_id: HashMap<ServerId, Version> = spoken
            .flat_map(|(address, (id, version))| [(ServerId::from(address), *version), (id.clone(), *version)])
            .collect();
        let version_of =
            |server: &Server| by_id.get(&server.id).or_else(|| by_id.get(&ServerId::from(server.address))).copied();
        let differs = |server: &&Server| version_of(server).is_some_and(|other| other != version);
        among.iter().any(|server| differs(&server)).then(|| {
            among.iter().filter(|server| version_of(server) == Some(version)).map(|server| server.id.clone()).collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_nobody_asked_for_long_is_forgotten() {
        let (presence, begun) = (Presence::default(), Instant::now());
        for minute in 0..1000_u16 {
            let now = begun + Duration::from_secs(60) * u32::from(minute);
            presence.forget(now);
            presence.name(SocketAddr::from(([10, 0, 0, 1], minute + 1)), now);
            presence.name(SocketAddr::from(([10, 0, 0, 2], 9042)), now);
        }
        assert_eq!(presence.lock().len(), 61);
        let same = SocketAddr::from(([10, 0, 0, 2], 9042));
        assert!(Arc::ptr_eq(&presence.name(same, begun), &presence.name(same, begun)));
    }
}
