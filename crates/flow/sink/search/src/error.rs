//! Why something did not happen, and at which server. Nothing that a server wrote into a body gets into a text: it may
//! quote documents.

use std::{error, fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;

/// What happened, with the server it happened at: `10.0.0.7:9200 answered 429 (rejected_execution_exception)`.
#[derive(Debug)]
pub struct Error {
    pub server: Arc<str>,
    pub cause: Cause,
}

/// Each text goes on after the name of the server.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("could not be connected to")]
    Connect(#[source] io::Error),
    #[error("could not be connected to by TLS: {0}")]
    Tls(String),
    #[error("was not asked: the secret of its login cannot be had: {0}")]
    Secret(String),
    #[error("does not speak HTTP/2; set the version to 1 or leave the choice to it")]
    NotHttp2,
    #[error("did not answer {asked} within {within:?}")]
    Silent { asked: &'static str, within: Duration },
    /// The connection had ended before the request was sent.
    #[error("was not asked: the connection had ended")]
    NotSent(#[source] Option<hyper::Error>),
    #[error("was lost under the request")]
    Lost(#[source] hyper::Error),
    #[error("sent something that is not HTTP")]
    Malformed(#[source] hyper::Error),
    #[error("sent an answer whose end cannot be told from a broken connection: neither a length nor chunks")]
    Endless,
    #[error("sent an answer of more than {bytes_max} bytes; ask for less at once, or allow longer answers")]
    TooLong { bytes_max: usize },
    #[error("{0}")]
    Refused(Refusal),
    #[error("described its cluster in a way that cannot be read: {0}")]
    Cluster(String),
    #[error(
        "named {count} servers of which none can be reached ({first}); the configured ones are used: have the servers \
         publish addresses that can be reached from here, translate them, or turn sniffing off"
    )]
    Unreachable { count: usize, first: String },
    #[error("was not asked: {0}")]
    Request(String),
}

/// An answer that is no success.
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The server's word for it: `rejected_execution_exception`.
    pub kind: Option<Box<str>>,
    /// How long it asks to be left alone.
    pub retry_after: Option<Duration>,
    /// What it wrote, cut to [`Refusal::BODY_BYTES_MAX`]. Not for logs.
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
            300..=399 => ": redirects are not followed, name the server itself",
            401 => ": check user and password",
            403 => ": the user may not do this, or the index takes no writes",
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
    /// The status, if the server answered with one that is no success.
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
