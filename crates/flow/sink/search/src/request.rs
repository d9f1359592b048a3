//! A request to a server, and whether it is idempotent.

use std::time::Duration;

use bytes::Bytes;
use honeyflow_pool::RequestOptions;
use http::{Method, uri::PathAndQuery};

use crate::bulk::Bulk;

/// A request.
///
/// ```
/// use honeyflow_sink_search::Request;
///
/// assert!(Request::get("/books/_count").is_idempotent());
/// assert!(!Request::post("/books/_doc", r#"{"title": "Momo"}"#).is_idempotent());
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: Method,
    /// Path and query; begins with `/`.
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) content: &'static str,
    pub(crate) answer_bytes_max: Option<usize>,
    idempotent: bool,
}

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

impl Request {
    pub fn get(path: impl Into<String>) -> Request {
        Request::new(Method::GET, path, Bytes::new(), true)
    }

    /// A read with a body: `_search`, `_count`, `_mget`.
    pub fn read(path: impl Into<String>, body: impl Into<Bytes>) -> Request {
        Request::new(Method::POST, path, body, true)
    }

    /// A bulk. Each of its writes has a version, so sending it again changes nothing.
    pub fn bulk(bulk: Bulk) -> Request {
        Request { content: LINES, ..Request::new(Method::POST, "/_bulk", bulk.into_bytes(), true) }
    }

    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Request {
        Request::new(Method::POST, path, body, false)
    }

    /// Settings, mappings, a whole index. The last request wins, so it is not idempotent unless the caller knows that
    /// no other client sends one.
    pub fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Request {
        Request::new(Method::PUT, path, body, false)
    }

    pub fn delete(path: impl Into<String>) -> Request {
        Request::new(Method::DELETE, path, Bytes::new(), false)
    }

    fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>, idempotent: bool) -> Request {
        Request { method, path: path.into(), body: body.into(), content: JSON, answer_bytes_max: None, idempotent }
    }

    /// Marks the request as idempotent: the caller knows that sending it twice does no harm.
    #[must_use]
    pub fn idempotent(self) -> Request {
        Request { idempotent: true, ..self }
    }

    /// Limits the answer to `bytes_max` bytes; a longer one is an error.
    #[must_use]
    pub fn answered_within_bytes(self, bytes_max: usize) -> Request {
        Request { answer_bytes_max: Some(bytes_max), ..self }
    }

    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Returns what the request needs from the pool.
    pub fn want(&self, within: Duration) -> RequestOptions {
        let want = RequestOptions::within(within);
        if self.idempotent { want.idempotent() } else { want }
    }

    /// Returns the path as it is sent, below `prefix`.
    pub(crate) fn target(&self, prefix: &str) -> Result<PathAndQuery, String> {
        if !self.path.starts_with('/') {
            return Err("its path does not begin with `/`".to_owned());
        }
        let whole = if prefix.is_empty() { self.path.clone() } else { format!("{prefix}{}", self.path) };
        PathAndQuery::try_from(whole).map_err(|error| format!("its path: {error}"))
    }
}

/// A successful answer of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_142_reads_and_versioned_bulks_are_idempotent() {
        let mut bulk = Bulk::default();
        bulk.index("books", "1", 7, &serde_json::json!({})).unwrap();
        for (request, idempotent) in [
            (Request::get("/"), true),
            (Request::read("/books/_search", "{}"), true),
            (Request::bulk(bulk), true),
            (Request::post("/books/_doc", "{}"), false),
            (Request::put("/books", "{}"), false),
            (Request::delete("/books"), false),
            (Request::put("/books/_doc/1?version=3&version_type=external", "{}").idempotent(), true),
        ] {
            assert_eq!(request.is_idempotent(), idempotent, "{request:?}");
        }
    }

    #[test]
    fn a_path_that_could_change_the_request_is_refused() {
        for path in ["books", "", "/a b", "/a\r\nhost: other", "http://other/"] {
            assert!(Request::get(path).target("").is_err(), "{path:?}");
        }
        assert_eq!(Request::get("/a?b=c").target("/search").unwrap(), "/search/a?b=c");
    }
}
