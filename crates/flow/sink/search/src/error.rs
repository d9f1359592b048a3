//! Errors: what failed, and at which server. An error text never quotes the body of an answer, since that may contain
//! documents.

use std::{error, fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;

/// A cause and the server where it happened: `10.0.0.7:9200 answered 429 (rejected_execution_exception)`.
#[derive(Debug)]
pub struct Error {
    pub server: Arc<str>,
    pub cause: Cause,
}

/// What failed. Each text continues a sentence that begins with the name of the server.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("could not be connected to")]
    Connect(#[source] io::Error),
    #[error("could not be connected to by TLS: {0}")]
    Tls(String),
    #[error("was not asked: cannot read the secret of its login: {0}")]
    Secret(String),
    #[error("does not speak HTTP/2; set the version to 1 or \"agreed\"")]
    NotHttp2,
    #[error("did not answer {asked} within {within:?}")]
    Silent { asked: &'static str, within: Duration },
    /// The connection had ended before the request was sent.
    #[error("was not asked: the connection had ended")]
    NotSent(#[source] Option<hyper::Error>),
    #[error("lost the connection during the request")]
    Lost(#[source] hyper::Error),
    #[error("sent something that is not HTTP")]
    Malformed(#[source] hyper::Error),
    #[error("sent an answer without length or chunks: its end looks like a broken connection")]
    Endless,
    #[error("sent an answer of more than {bytes_max} bytes; request less at once, or raise answer-bytes-max")]
    TooLong { bytes_max: usize },
    #[error("{0}")]
    Refused(Refusal),
    #[error("sent a list of servers that cannot be read: {0}")]
    Cluster(String),
    #[error(
        "published {count} servers of which none can be reached ({first}); the configured ones are used: let the servers \
         publish addresses that can be reached from here, translate them, or turn sniffing off"
    )]
    Unreachable { count: usize, first: String },
    #[error("was not asked: {0}")]
    Request(String),
}

/// An answer with a status other than success.
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The server's type of the error: `rejected_execution_exception`.
    pub kind: Option<Box<str>>,
    /// How long the server asks clients to wait.
    pub retry_after: Option<Duration>,
    /// The body, cut to [`Refusal::BODY_BYTES_MAX`]. Do not log it.
    pub body: Bytes,
}

impl Refusal {
    pub const BODY_BYTES_MAX: usize = 16 * 1024;
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({}, {:?}, {:?}, {} bytes)", self.status, self.kind, self.retry_after, self.body.len())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered {}", self.status)?;
        if let Some(kind) = &self.kind {
            write!(f, " ({kind})")?;
        }
        f.write_str(match self.status {
            300..=399 => ": redirects are not followed, configure the server itself",
            401 => ": check user and password",
            403 => ": the user is not permitted, or the index is read-only",
            413 => ": send less at once",
            _ => "",
        })
    }
}

impl Cause {
    pub(crate) fn at(self, server: &Arc<str>) -> Error {
        Error { server: server.clone(), cause: self }
    }
}

impl Error {
    /// The status, if the server answered with one other than success.
    pub fn status(&self) -> Option<u16> {
        match &self.cause {
            Cause::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server, self.cause)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.cause.source()
    }
}
