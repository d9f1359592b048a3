//! Detects servers that have come back.
//!
//! A server has come back when a connection to it is opened after all earlier connections to it have ended: it may have
//! been restarted, and have forgotten the statements it had prepared. A server without connections, and without an
//! attempt to connect for an hour, is forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::{Connection, Liveness};

const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct ServerReturns {
    servers: Mutex<HashMap<SocketAddr, KnownServer>>,
}

#[derive(Debug)]
struct KnownServer {
    /// The name that all connections share. Statements remember a server for as long as this name exists.
    name: Arc<str>,
    /// Whether a connection to it was ever opened.
    was_connected: bool,
    connections: Vec<Liveness>,
    last_attempt_at: Instant,
}

impl KnownServer {
    fn drop_ended(&mut self) {
        self.connections.retain(|connection| !connection.has_ended());
    }
}

impl ServerReturns {
    /// Records an attempt to connect, and returns the name that all connections to the server share.
    pub fn name(&self, server: SocketAddr, now: Instant) -> Arc<str> {
        let mut servers = self.lock();
        let unknown = || KnownServer {
            name: server.to_string().into(),
            was_connected: false,
            connections: Vec::new(),
            last_attempt_at: now,
        };
        let known = servers.entry(server).or_insert_with(unknown);
        known.last_attempt_at = now;
        Arc::clone(&known.name)
    }

    /// Records a new connection. Returns true if the server has come back: it was connected before, and all earlier
    /// connections have ended.
    pub fn connected(&self, server: SocketAddr, connection: &Connection) -> bool {
        let mut servers = self.lock();
        let Some(known) = servers.get_mut(&server) else { return false };
        let was_connected = std::mem::replace(&mut known.was_connected, true);
        known.drop_ended();
        known.connections.push(connection.liveness());
        was_connected && known.connections.len() == 1
    }

    /// Whether a connection to the server is open.
    pub fn is_connected(&self, server: SocketAddr) -> bool {
        let mut servers = self.lock();
        let Some(known) = servers.get_mut(&server) else { return false };
        known.drop_ended();
        !known.connections.is_empty()
    }

    /// Forgets the servers that have been absent for too long, and returns them.
    pub fn forget_absent(&self, now: Instant) -> Vec<SocketAddr> {
        let mut forgotten = Vec::new();
        self.lock().retain(|server, known| {
            known.drop_ended();
            let is_kept =
                !known.connections.is_empty() || now.saturating_duration_since(known.last_attempt_at) < FORGOTTEN_AFTER;
            if !is_kept {
                forgotten.push(*server);
            }
            is_kept
        });
        forgotten
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, KnownServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_connection_attempts_for_an_hour_is_forgotten() {
        let (returns, begun) = (ServerReturns::default(), Instant::now());
        for minute in 0..1000_u16 {
            let now = begun + Duration::from_secs(60) * u32::from(minute);
            returns.forget_absent(now);
            returns.name(SocketAddr::from(([10, 0, 0, 1], minute + 1)), now);
            returns.name(SocketAddr::from(([10, 0, 0, 2], 9042)), now);
        }
        assert_eq!(returns.lock().len(), 61);
        let same = SocketAddr::from(([10, 0, 0, 2], 9042));
        assert!(Arc::ptr_eq(&returns.name(same, begun), &returns.name(same, begun)));
    }
}
