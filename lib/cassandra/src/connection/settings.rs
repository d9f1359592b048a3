//! The settings of a connection.

use std::sync::Arc;
use std::time::Duration;

use honeyflow_tls::Tls;

use super::login::Login;
use crate::wire::{Compression, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub lowest: Version,
    pub highest: Version,
}

impl Versions {
    pub fn contain(self, version: Version) -> bool {
        (self.lowest..=self.highest).contains(&version)
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub versions: Versions,
    /// The compression to request; the server may not support it.
    pub compression: Compression,
    pub login: Option<Arc<dyn Login>>,
    pub tls: Option<Tls>,
    /// The keyspace of the connection; it is set before the first request.
    pub keyspace: Option<String>,
    /// The longest body that is accepted, both packed and unpacked.
    pub frame_bytes_max: usize,
    /// The largest number of requests in flight.
    pub streams_max: u16,
    /// The largest number of requests that wait for a stream or for the socket.
    pub queue_max: usize,
    /// A write that makes no progress for this time ends the connection.
    pub write_timeout: Duration,
    /// With more orphans than this the connection takes no new request. Counts only requests outside of loans: a pool
    /// counts its own (`max-orphans`).
    pub orphans_max: usize,
    /// With an orphan older than this the connection takes no new request.
    pub orphan_age_max: Duration,
    /// How long the kernel waits for a peer that acknowledges nothing; in a pool, its `heartbeat-timeout`.
    pub dead_after: Duration,
}

/// The largest number of streams: a stream number has 15 bits.
pub const STREAMS_MAX: u16 = 1 << 15;

impl Default for Settings {
    fn default() -> Self {
        Self {
            versions: Versions { lowest: Version::V4, highest: Version::V5 },
            compression: Compression::None,
            login: None,
            tls: None,
            keyspace: None,
            frame_bytes_max: 64 << 20,
            streams_max: 1024,
            queue_max: 1024,
            write_timeout: Duration::from_secs(5),
            orphans_max: 256,
            orphan_age_max: Duration::from_secs(30),
            dead_after: Duration::from_secs(5),
        }
    }
}
