//! What a connection is to be like.

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
    /// What to ask for; the server may have less.
    pub compression: Compression,
    pub login: Option<Arc<dyn Login>>,
    pub tls: Option<Tls>,
    /// Set before the first request.
    pub keyspace: Option<String>,
    /// The longest body that is taken, unpacked too.
    pub frame_bytes_max: usize,
    /// Requests under way at once.
    pub streams_max: u16,
    /// Requests that wait for a stream or for the socket.
    pub queue_max: usize,
    /// A write without progress for so long ends the connection.
    pub write_timeout: Duration,
    /// So many requests whose caller has gone, and the connection takes nothing new. Of those outside of loans: a pool
    /// counts its own (`max-orphans`).
    pub orphans_max: usize,
    /// Or one of them for so long.
    pub orphan_age_max: Duration,
    /// How long the kernel waits for a peer that acknowledges nothing; below a pool, its `heartbeat-timeout`.
    pub dead_after: Duration,
}

/// Streams are numbered by 15 bits.
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
