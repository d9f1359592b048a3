//! The options of one request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::wire::{Consistency, Serial, Version};

/// The options of one request.
///
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
    /// If set, the request goes only to servers that speak this version.
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
    /// Sets the deadline of the whole request: waiting, sending, the answer, and all retries.
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

    /// Sets the timestamp in microseconds; it is sent unchanged. Without one the server uses its own clock.
    #[must_use]
    pub fn timestamp(self, microseconds: i64) -> Self {
        Self { timestamp: Some(microseconds), ..self }
    }

    /// Sets the number of rows in a page; zero or less = all rows at once.
    #[must_use]
    pub fn page_size(self, rows: i32) -> Self {
        Self { page_size: (rows > 0).then_some(rows), ..self }
    }

    /// Continues after an earlier page. If the servers speak different versions, use [`crate::Session::pages`]: it
    /// stays with servers that can read the page state of the first one.
    #[must_use]
    pub fn page(self, page: Bytes) -> Self {
        Self { page: Some(page), ..self }
    }

    /// Restricts the request to servers that speak this version: each version encodes the page state differently.
    pub(crate) fn only_version(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Sets the keyspace of this request. Only for text: a prepared statement has the keyspace it was prepared in.
    /// Version 4 of the protocol cannot carry it, so such servers are used only if their connections are in that
    /// keyspace already.
    #[must_use]
    pub fn keyspace(self, keyspace: impl Into<Arc<str>>) -> Self {
        Self { keyspace: Some(keyspace.into()), ..self }
    }

    /// Marks the request as idempotent. Only such requests are retried if their outcome is unknown, or sent to two
    /// servers.
    #[must_use]
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Makes the server store a trace of the request, under the id that comes with the answer.
    #[must_use]
    pub fn tracing(self) -> Self {
        Self { tracing: true, ..self }
    }
}
