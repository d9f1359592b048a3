//! Errors: what failed, and at which server.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::value::ValueMismatch;
use crate::wire::request::TooLong;
use crate::wire::{Code, Malformed, Refusal, Version};

/// A cause and the server where it happened: `127.0.0.1:9042 did not answer EXECUTE within 2s`.
#[derive(Debug, Clone)]
pub struct Error {
    pub server: Arc<str>,
    pub cause: Cause,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server, self.cause)
    }
}

impl std::error::Error for Error {
    /// The operating system's error of a connect: the pool distinguishes a refused connect from a slow one.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Connect(error) => Some(&**error),
            _ => None,
        }
    }
}

/// What failed. Each text continues a sentence that begins with the name of the server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    #[error("could not be connected to")]
    Connect(Arc<io::Error>),
    #[error("could not be connected to by TLS: {0}")]
    Tls(String),
    #[error("refused the login: {0}; check user and password, and whether the server is still starting")]
    Login(String),
    #[error(
        "speaks version {spoken} of the protocol, but {asked} was requested; set lowest-version and highest-version to match"
    )]
    Version { asked: Version, spoken: u8 },
    #[error(
        "speaks version {spoken} of the protocol, but the listing began in {asked}; its next page must come from another server"
    )]
    OtherVersion { asked: Version, spoken: Version },
    #[error("did not answer {asked} within {within:?}")]
    Silent { asked: &'static str, within: Duration },
    #[error("closed the connection{0}")]
    Ended(Ending),
    #[error("sent something that is not CQL: {0}")]
    Malformed(#[from] Malformed),
    #[error("answered {asked} with {got}")]
    Unexpected { asked: &'static str, got: &'static str },
    #[error("answered a request that was never sent (stream {0})")]
    Stranger(i16),
    #[error("accepted no data for {0:?}")]
    Stuck(Duration),
    #[error("lost the connection during the request: it {why}")]
    Lost { why: Box<Cause>, sent: bool },
    #[error("is not used any more: this client closed the connection")]
    Closed,
    #[error("refused: {0}")]
    Refused(Refusal),
    #[error("was not asked: {0}")]
    Unfit(#[from] ValueMismatch),
    #[error("was not asked: {0}")]
    TooLong(#[from] TooLong),
    #[error(
        "was not asked: it speaks version 4 of the protocol, which cannot carry the keyspace of a request; write \
         tables as `{0}.table`, or make {0} the keyspace of the connection"
    )]
    KeyspaceUnspoken(String),
    #[error("was not asked: a prepared statement keeps the keyspace it was prepared in; prepare it in {0}")]
    KeyspaceOfPrepared(String),
    #[error("was not asked: a conditional statement cannot have a timestamp; remove one of them")]
    TimestampOnConditional,
}

/// The operating system's error when the connection ended, if there was one.
#[derive(Debug, Clone)]
pub struct Ending(pub Option<Arc<io::Error>>);

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// Whether the server may have executed the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    No,
    Unknown,
}

impl Cause {
    pub(crate) fn at(self, server: &Arc<str>) -> Error {
        Error { server: Arc::clone(server), cause: self }
    }

    pub(crate) fn broken(error: io::Error) -> Self {
        let only_ended = error.kind() == io::ErrorKind::UnexpectedEof;
        Self::Ended(Ending((!only_ended).then(|| Arc::new(error))))
    }

    pub fn executed(&self) -> Executed {
        match self {
            Self::Lost { sent, .. } if *sent => Executed::Unknown,
            Self::Silent { .. } | Self::Ended(_) | Self::Malformed(_) | Self::Unexpected { .. } => Executed::Unknown,
            Self::Stranger(_) | Self::Stuck(_) => Executed::Unknown,
            Self::Refused(refusal) => match refusal.code {
                Code::Server
                | Code::Truncate
                | Code::WriteTimeout { .. }
                | Code::WriteFailure { .. }
                | Code::CdcWriteFailure
                | Code::CasUnknown { .. }
                | Code::Other(_) => Executed::Unknown,
                _ => Executed::No,
            },
            _ => Executed::No,
        }
    }
}
