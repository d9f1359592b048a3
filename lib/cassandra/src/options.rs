//! How one request is to be carried out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::wire::{Consistency, Serial, Version};

/// ```
/// use std::time::Duration;
/// use honeyflow_cassandra::{Consistency, Options};
///
/// let how = Options::within(Duration::from_secs(2)).consistency(Consistency::LocalQuorum).timestamp(17).idempotent();
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) within: Duration,
    pub(crate) consistency: Consistency,
    pub(crate) serial: Option<Serial>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) page_size: Option<i32>,
    pub(crate) page: Option<Bytes>,
    pub(crate) keyspace: Option<Arc<str>>,
    pub(crate) idempotent: bool,
    pub(crate) tracing: bool,
    /// Only at servers that speak it.
    pub(crate) version: Option<Version>,
}

const WITHIN: Duration = Duration::from_secs(5);
const PAGE_SIZE: i32 = 5000;

impl Default for Options {
    fn default() -> Self {
        Self {
            within: WITHIN,
            consistency: Consistency::default(),
            serial: None,
            timestamp: None,
            page_size: Some(PAGE_SIZE),
            page: None,
            keyspace: None,
            idempotent: false,
            tracing: false,
            version: None,
        }
    }
}

impl Options {
    /// The whole time: waiting, sending, being answered, and whatever is tried again.
    pub fn within(time: Duration) -> Self {
        Self { within: time, ..Self::default() }
    }

    #[must_use]
    pub fn consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }

    #[must_use]
    pub fn serial(self, serial: Serial) -> Self {
        Self { serial: Some(serial), ..self }
    }

    /// Microseconds; sent as it is. Without one the server takes its own clock.
    #[must_use]
    pub fn timestamp(self, microseconds: i64) -> Self {
        Self { timestamp: Some(microseconds), ..self }
    }

    /// Rows in a page; zero or less: all at once.
    #[must_use]
    pub fn page_size(self, rows: i32) -> Self {
        Self { page_size: (rows > 0).then_some(rows), ..self }
    }

    /// Goes on where an earlier page ended. Among servers of different versions [`crate::Session::pages`] does better:
    /// it stays with those that can read what the first one wrote.
    #[must_use]
    pub fn page(self, page: Bytes) -> Self {
        Self { page: Some(page), ..self }
    }

    /// Where a page ends is written differently in each version of the protocol.
    pub(crate) fn spoken(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Of this request alone, as text: a prepared statement has the keyspace it was prepared in. Servers that speak version 4
    /// only cannot be told, and are not asked unless their connections are in that keyspace already.
    #[must_use]
    pub fn keyspace(self, keyspace: impl Into<Arc<str>>) -> Self {
        Self { keyspace: Some(keyspace.into()), ..self }
    }

    /// It may be done twice: only such requests are tried again when their outcome is unknown, or tried at two servers.
    #[must_use]
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// The server keeps what it did, under the id that comes with the answer.
    #[must_use]
    pub fn tracing(self) -> Self {
        Self { tracing: true, ..self }
    }
}
