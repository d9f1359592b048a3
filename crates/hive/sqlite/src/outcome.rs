//! What an error of SQLite means for the hive: nearly everything may pass, a broken file does not.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use rusqlite::{Error, ErrorCode};

/// Why a request was not answered: the database said so, or we did.
pub(crate) enum Stop {
    Sql(Error),
    Failed(Failure),
}

impl Stop {
    pub fn is_busy(&self) -> bool {
        let Stop::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    pub fn failure(self, doing: impl Display) -> Failure {
        match self {
            Stop::Sql(error) => failure(&error, doing),
            Stop::Failed(failure) => failure,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Sql(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

pub(crate) fn failure(error: &Error, doing: impl Display) -> Failure {
    let (class, code) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (Class::Retry, "database-busy"),
        Some(ErrorCode::DiskFull) => (Class::Retry, "disk-full"),
        Some(ErrorCode::CannotOpen) => (Class::Retry, "cannot-open"),
        Some(ErrorCode::SystemIoFailure) => (Class::Retry, "io-error"),
        Some(ErrorCode::ReadOnly) => (Class::Retry, "read-only"),
        Some(ErrorCode::DatabaseCorrupt) => (Class::Fatal, "database-corrupt"),
        Some(ErrorCode::NotADatabase) => (Class::Fatal, "not-a-database"),
        _ => (Class::Retry, "hive-error"),
    };
    Failure::new(class, code, format!("{doing}: {error}"))
}
