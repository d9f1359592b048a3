//! Classifies errors of SQLite for the hive: nearly all of them are temporary, a broken file is not.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use rusqlite::{Error, ErrorCode};

use crate::codes;

/// Why a request was not answered: an error of the database, or a failure of our own.
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
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (Class::Retry, codes::DATABASE_BUSY),
        Some(ErrorCode::DiskFull) => (Class::Retry, codes::DISK_FULL),
        Some(ErrorCode::CannotOpen) => (Class::Retry, codes::CANNOT_OPEN),
        Some(ErrorCode::SystemIoFailure) => (Class::Retry, codes::IO_ERROR),
        Some(ErrorCode::ReadOnly) => (Class::Retry, codes::READ_ONLY),
        Some(ErrorCode::DatabaseCorrupt) => (Class::Fatal, codes::DATABASE_CORRUPT),
        Some(ErrorCode::NotADatabase) => (Class::Fatal, codes::NOT_A_DATABASE),
        _ => (Class::Retry, codes::HIVE_ERROR),
    };
    Failure::new(class, code, format!("{doing}: {error}"))
}
