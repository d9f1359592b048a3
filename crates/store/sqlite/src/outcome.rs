//! What an error of SQLite means: which class, which code.
//!
//! Whatever may pass by itself is `Retry` (busy, full disk, no access); what only a person can mend is `Fatal`
//! (missing tables, a broken file). Unknown errors are `Retry`, so that no event is given up for them.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};
use rusqlite::{Error, ErrorCode};

/// `place` says what was being done: a verb and a thing, or where a statement stands.
pub(crate) fn failure(error: &Error, place: impl Display) -> Failure {
    let (class, code) = match error {
        Error::SqliteFailure(cause, message) => judge(cause.code, message.as_deref().unwrap_or_default()),
        Error::SqlInputError { error, msg, .. } => judge(error.code, msg),
        Error::MultipleStatement => (Class::Fatal, "two-statements"),
        Error::InvalidPath(_) | Error::NulError(_) => (Class::Fatal, "bad-path"),
        // A value of another type than our own tables have: rows were changed by hand.
        Error::FromSqlConversionFailure(..)
        | Error::InvalidColumnType(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..) => (Class::Fatal, "unreadable-row"),
        _ => (Class::Retry, "store-error"),
    };
    Failure::new(class, code, format!("{place}: {}{}", detail(error), hint(code)))
}

fn judge(code: ErrorCode, message: &str) -> (Class, &'static str) {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (Class::Retry, "database-busy")
        }
        ErrorCode::DiskFull => (Class::Retry, "disk-full"),
        ErrorCode::SystemIoFailure => (Class::Retry, "io-error"),
        ErrorCode::CannotOpen => (Class::Retry, "cannot-open"),
        ErrorCode::ReadOnly => (Class::Retry, "read-only"),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => (Class::Retry, "access-denied"),
        ErrorCode::OperationInterrupted => (Class::Retry, "statement-timeout"),
        ErrorCode::OutOfMemory => (Class::Retry, "out-of-memory"),
        ErrorCode::SchemaChanged => (Class::Retry, "schema-changed"),
        ErrorCode::DatabaseCorrupt => (Class::Fatal, "database-corrupt"),
        ErrorCode::NotADatabase => (Class::Fatal, "not-a-database"),
        ErrorCode::ConstraintViolation => (Class::Fatal, "constraint"),
        ErrorCode::TooBig => (Class::Fatal, "too-big"),
        ErrorCode::Unknown if message.starts_with("no such table") => (Class::Fatal, "missing-table"),
        ErrorCode::Unknown if message.starts_with("no such column") => (Class::Fatal, "missing-column"),
        // SQLITE_ERROR has no code of its own in the driver: syntax, unknown functions, wrong counts.
        ErrorCode::Unknown => (Class::Fatal, "bad-statement"),
        _ => (Class::Retry, "store-error"),
    }
}

/// Without the statement's text, which is ours or stands at the place that is named.
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
        "database-busy" => "; another connection holds the lock, it is tried again",
        "disk-full" => "; free some space, it is tried again",
        "cannot-open" => "; does the file exist, and its folder allow writing?",
        "missing-table" => "; is it being migrated, or the source not installed?",
        "database-corrupt" => "; restore it from a backup, `pragma integrity_check` says more",
        _ => "",
    }
}
