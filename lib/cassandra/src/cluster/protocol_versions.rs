//! Remembers which version of the protocol each server speaks.
//!
//! All connections to a server use the version that the first one has negotiated. When the last connection has ended,
//! the next one negotiates again: the server may have been upgraded meanwhile.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use honeyflow_pool::{Server, ServerId};

use crate::wire::Version;

#[derive(Debug, Default)]
pub struct ProtocolVersions {
    servers: Mutex<HashMap<SocketAddr, NegotiatedVersion>>,
}

#[derive(Debug)]
struct NegotiatedVersion {
    /// The id under which the pool knew the server; the first connection is opened before discovery tells the id.
    server: ServerId,
    version: Version,
    /// The server has refused this version since.
    is_refused: bool,
}

impl ProtocolVersions {
    /// Records the version of a new connection.
    pub fn record(&self, server: &Server, version: Version) {
        let negotiated = NegotiatedVersion { server: server.id.clone(), version, is_refused: false };
        self.lock().insert(server.address, negotiated);
    }

    /// Records that the server has refused the negotiated version.
    pub fn refuse(&self, server: SocketAddr) {
        if let Some(negotiated) = self.lock().get_mut(&server) {
            negotiated.is_refused = true;
        }
    }

    /// Returns the version negotiated last, unless the server has refused it since. Only valid while a connection is
    /// open.
    pub fn negotiated(&self, server: SocketAddr) -> Option<Version> {
        let servers = self.lock();
        servers.get(&server).filter(|negotiated| !negotiated.is_refused).map(|negotiated| negotiated.version)
    }

    pub fn forget(&self, forgotten: &[SocketAddr]) {
        if !forgotten.is_empty() {
            self.lock().retain(|server, _| !forgotten.contains(server));
        }
    }

    /// Returns those of the servers `among` that speak this version; `None` if no server is known to speak another one.
    /// If `among` is empty, since discovery has not listed any server, chooses from the servers that were connected.
    pub fn speakers(&self, version: Version, among: &[Server]) -> Option<Vec<ServerId>> {
        let servers = self.lock();
        if among.is_empty() {
            let (same, other): (Vec<_>, Vec<_>) = servers.values().partition(|known| known.version == version);
            return (!other.is_empty()).then(|| same.into_iter().map(|known| known.server.clone()).collect());
        }
        let by_id: HashMap<ServerId, Version> = servers
            .iter()
            .flat_map(|(address, known)| [ServerId::from(*address), known.server.clone()].map(|id| (id, known.version)))
            .collect();
        let version_of =
            |server: &Server| by_id.get(&server.id).or_else(|| by_id.get(&ServerId::from(server.address))).copied();
        let differs = |server: &&Server| version_of(server).is_some_and(|other| other != version);
        among.iter().any(|server| differs(&server)).then(|| {
            among.iter().filter(|server| version_of(server) == Some(version)).map(|server| server.id.clone()).collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, NegotiatedVersion>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
