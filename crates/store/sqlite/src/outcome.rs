//! Maps an error of SQLite to a failure: its class and its code.
//!
//! An error that may pass by itself is `Retry` (busy, full disk, no access); an error that only an operator can fix is
//! `Fatal` (missing tables, a broken file). An unknown error is `Retry`, so that no event is lost because of it.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use rusqlite::{Error, ErrorCode};

use crate::codes;

/// Returns the failure for an error. `place` says what the store was doing (a verb and an object), or gives the
/// statement's path in the configuration.
pub(crate) fn failure(error: &Error, place: impl Display) -> Failure {
    let (class, code) = match error {
        Error::SqliteFailure(cause, message) => judge(cause.code, message.as_deref().unwrap_or_default()),
        Error::SqlInputError { error, msg, .. } => judge(error.code, msg),
        Error::MultipleStatement => (Class::Fatal, codes::TWO_STATEMENTS),
        Error::InvalidPath(_) | Error::NulError(_) => (Class::Fatal, codes::BAD_PATH),
        // A value has another type than our tables declare: rows were changed by hand.
        Error::FromSqlConversionFailure(..)
        | Error::InvalidColumnType(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..) => (Class::Fatal, codes::UNREADABLE_ROW),
        _ => (Class::Retry, codes::STORE_ERROR),
    };
    Failure::new(class, code, format!("{place}: {}{}", detail(error), hint(code)))
}

fn judge(code: ErrorCode, message: &str) -> (Class, &'static str) {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (Class::Retry, codes::DATABASE_BUSY)
        }
        ErrorCode::DiskFull => (Class::Retry, codes::DISK_FULL),
        ErrorCode::SystemIoFailure => (Class::Retry, codes::IO_ERROR),
        ErrorCode::CannotOpen => (Class::Retry, codes::CANNOT_OPEN),
        ErrorCode::ReadOnly => (Class::Retry, codes::READ_ONLY),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            (Class::Retry, codes::ACCESS_DENIED)
        }
        ErrorCode::OperationInterrupted => (Class::Retry, codes::STATEMENT_TIMEOUT),
        ErrorCode::OutOfMemory => (Class::Retry, codes::OUT_OF_MEMORY),
        ErrorCode::SchemaChanged => (Class::Retry, codes::SCHEMA_CHANGED),
        ErrorCode::DatabaseCorrupt => (Class::Fatal, codes::DATABASE_CORRUPT),
        ErrorCode::NotADatabase => (Class::Fatal, codes::NOT_A_DATABASE),
        ErrorCode::ConstraintViolation => (Class::Fatal, codes::CONSTRAINT),
        ErrorCode::TooBig => (Class::Fatal, codes::TOO_BIG),
        ErrorCode::Unknown if message.starts_with("no such table") => (Class::Fatal, codes::MISSING_TABLE),
        ErrorCode::Unknown if message.starts_with("no such column") => (Class::Fatal, codes::MISSING_COLUMN),
        // The driver has no separate code for SQLITE_ERROR: syntax, unknown functions, wrong counts.
        ErrorCode::Unknown => (Class::Fatal, codes::BAD_STATEMENT),
        _ => (Class::Retry, codes::STORE_ERROR),
    }
}

/// Returns the message of the error, without the statement's text: that is ours, or is found under the path in the
/// message.
fn detail(error: &Error) -> String {
    match error {
        Error::SqliteFailure(cause, message) => message.clone().unwrap_or_else(|| cause.to_string()),
        Error::SqlInputError { msg, sql, offset, .. } => match near(sql, *offset) {
            Some(near) => format!("{msg} (near `{near}`)"),
            None => msg.clone(),
        },
        other => other.to_string(),
    }
}

fn near(sql: &str, offset: i32) -> Option<&str> {
    let rest = sql.get(usize::try_from(offset).ok()?..)?;
    let end = rest.char_indices().nth(40).map_or(rest.len(), |(at, _)| at);
    rest.get(..end)?.lines().next()
}

fn hint(code: &str) -> &'static str {
    match code {
        codes::DATABASE_BUSY => "; another connection holds the lock, Honeyflow retries",
        codes::DISK_FULL => "; free some space, Honeyflow retries",
        codes::CANNOT_OPEN => "; does the file exist, and its folder allow writing?",
        codes::MISSING_TABLE => "; is it being migrated, or the source not installed?",
        codes::DATABASE_CORRUPT => "; restore it from a backup, `pragma integrity_check` shows details",
        _ => "",
    }
}
