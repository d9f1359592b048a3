//! What an error of the server or of the way to it means for the hive: nearly everything may pass.
//!
//! An error that the server has answered before our `commit` was reached says that nothing was done. Without an answer
//! to a message that commits, nobody knows: that leaves as `Retry` and is never repeated here.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};

use crate::driver::{Error, MySqlDatabaseError};

pub(crate) type Answer<T> = Result<T, Stop>;

/// Why a request has no reply yet.
#[derive(Debug)]
pub(crate) enum Stop {
    Sql(Error),
    Failed(Failure),
    /// The hive's one row has to be made first.
    NoView,
    /// This server only reads; whoever writes is elsewhere.
    ReadOnly,
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

impl Stop {
    pub fn failure(self, doing: impl Display) -> Failure {
        match self {
            Stop::Sql(error) => failure(&error, doing),
            Stop::Failed(failure) => failure,
            Stop::NoView => Failure::retry("hive-error", format!("{doing}: the hive's row is gone again and again")),
            Stop::ReadOnly => {
                let hint = hint("read-only");
                Failure::retry("read-only", format!("{doing}: the server is read-only{hint}"))
            }
        }
    }
}

/// The server's number, if it has answered.
pub(crate) fn number(error: &Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

/// The transaction has met another one and was rolled back: the same again will do. A key that stands already is one
/// that somebody else has just made.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(number(error), Some(1213 | 1205 | 1020 | 1062))
}

pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    number(error) == Some(1205)
}

pub(crate) fn is_duplicate(error: &Error) -> bool {
    number(error) == Some(1062)
}

/// No table, or one of an older version.
pub(crate) fn is_unmade(error: &Error) -> bool {
    matches!(number(error), Some(1146 | 1054))
}

pub(crate) fn is_read_only(error: &Error) -> bool {
    matches!(number(error), Some(1290 | 1792 | 1836))
}

/// Whether the connection can be used on. Anything but an answer leaves it in the middle of something.
pub(crate) fn is_answer(error: &Error) -> bool {
    match error {
        Error::Database(_) => !number(error).is_some_and(is_end),
        Error::Decode(_) | Error::ColumnDecode { .. } => true,
        _ => false,
    }
}

/// The server ends the session with these.
fn is_end(number: u16) -> bool {
    matches!(number, 1053 | 1927 | 1152 | 1159 | 1184 | 4031 | 3169)
}

pub(crate) fn failure(error: &Error, doing: impl Display) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => number(error).map_or((Class::Retry, "hive-error"), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, "no-connection"),
        // The driver says it this way when a password must not travel in the open.
        Error::Configuration(why) if why.to_string().contains("RSA") => (Class::Fatal, "no-tls"),
        Error::Tls(_) => (Class::Retry, "no-tls"),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, "bad-url"),
        Error::Decode(_) | Error::ColumnDecode { .. } => (Class::Retry, "unreadable-row"),
        _ => (Class::Retry, "hive-error"),
    };
    Failure::new(class, code, format!("{doing}: {}{}", detail(error), hint(code)))
}

fn judge(number: u16) -> (Class, &'static str) {
    match number {
        number if is_end(number) => (Class::Retry, "no-connection"),
        1317 | 1969 | 3024 => (Class::Retry, "statement-ended"),
        1044 | 1045 | 1129 | 1130 | 1698 | 1862 | 1820 | 3118 => (Class::Fatal, "access-denied"),
        1049 => (Class::Fatal, "missing-database"),
        1142 | 1143 | 1227 | 1370 => (Class::Fatal, "no-privilege"),
        1290 | 1792 | 1836 => (Class::Retry, "read-only"),
        1213 | 1020 | 1062 => (Class::Retry, "collision"),
        1205 => (Class::Retry, "database-busy"),
        1040 | 1203 | 1226 => (Class::Retry, "too-many-connections"),
        3 | 1021 | 1114 => (Class::Retry, "disk-full"),
        1146 | 1054 => (Class::Retry, "missing-table"),
        1665 => (Class::Fatal, "binlog-by-statement"),
        1047 => (Class::Retry, "not-primary"),
        _ => (Class::Retry, "hive-error"),
    }
}

fn detail(error: &Error) -> String {
    match error.as_database_error() {
        Some(answer) => match number(error) {
            Some(number) => format!("{} ({number})", answer.message()),
            None => answer.message().to_owned(),
        },
        None => error.to_string(),
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "no-connection" => "; is the server up, and the address right?",
        "no-tls" => {
            "; does the server speak TLS, and is its certificate known (ssl-mode, ssl-ca)? Without it a password of \
             caching_sha2_password cannot be sent"
        }
        "access-denied" => "; look at user and password in the address, and from which hosts the account may come",
        "missing-database" => "; create it, or name another one in the address",
        "no-privilege" => "; let an administrator make the tables and grant what this account needs",
        "read-only" => "; it may be a replica, give the address of the primary; it is tried again on a new connection",
        "collision" | "database-busy" => "; another transaction holds the rows, nothing was done and it is tried again",
        "too-many-connections" => "; raise max_connections, or the account's own limit",
        "disk-full" => "; free some space, it is tried again",
        "missing-table" => "; is it being migrated, or was it dropped?",
        "binlog-by-statement" => "; set binlog_format to ROW or MIXED",
        "not-primary" => "; this server is cut off from its cluster",
        _ => "",
    }
}

/// The server says nothing: whether it has done what was asked is unknown.
pub(crate) fn silent(timeout: std::time::Duration, doing: impl Display) -> Failure {
    let hint = hint("no-connection");
    Failure::retry("no-answer", format!("{doing}: no answer within {timeout:?}{hint}"))
}
