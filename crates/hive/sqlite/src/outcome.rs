//! What an error of SQLite means for the hive: nearly everything may pass, a broken file does not.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use rusqlite::{Error, ErrorCode};

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

pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
