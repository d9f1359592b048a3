//! Classifies errors of the server and of the connection for the hive: nearly all of them are temporary.
//!
//! If the server answers with an error before our `commit` was reached, nothing was done. Without an answer to a
//! message that commits, the outcome is unknown: the failure is `Retry`, and this crate never repeats the message.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};

use crate::{
    codes,
    driver::{Error, MySqlDatabaseError},
};

pub(crate) type Answer<T> = Result<T, Stop>;

/// Why a request has no reply yet.
#[derive(Debug)]
pub(crate) enum Stop {
    Sql(Error),
    Failed(Failure),
    /// The view, the hive's one row, has to be made first.
    NoView,
    /// This server is read-only; another server accepts writes.
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
            Stop::NoView => {
                Failure::retry(codes::HIVE_ERROR, format!("{doing}: the hive's row is missing again after it was made"))
            }
            Stop::ReadOnly => {
                let hint = hint(codes::READ_ONLY);
                Failure::retry(codes::READ_ONLY, format!("{doing}: the server is read-only{hint}"))
            }
        }
    }
}

/// The server's error number, if it has answered.
pub(crate) fn number(error: &Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

/// Whether the transaction collided with another one and was rolled back, so that it can be repeated. A duplicate key
/// means that another node has just made the row.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(number(error), Some(1213 | 1205 | 1020 | 1062))
}

pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    number(error) == Some(1205)
}

pub(crate) fn is_duplicate(error: &Error) -> bool {
    number(error) == Some(1062)
}

/// Whether a table is missing or has an older version.
pub(crate) fn is_schema_missing(error: &Error) -> bool {
    matches!(number(error), Some(1146 | 1054))
}

pub(crate) fn is_read_only(error: &Error) -> bool {
    matches!(number(error), Some(1290 | 1792 | 1836))
}

/// Whether the connection can be used again. Any error other than an answer leaves the protocol in an unknown state.
pub(crate) fn is_answer(error: &Error) -> bool {
    match error {
        Error::Database(_) => !number(error).is_some_and(is_end),
        Error::Decode(_) | Error::ColumnDecode { .. } => true,
        _ => false,
    }
}

/// Whether the server ends the session with this error.
fn is_end(number: u16) -> bool {
    matches!(number, 1053 | 1927 | 1152 | 1159 | 1184 | 4031 | 3169)
}

pub(crate) fn failure(error: &Error, doing: impl Display) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => number(error).map_or((Class::Retry, codes::HIVE_ERROR), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, codes::NO_CONNECTION),
        // The driver reports it this way when a password must not be sent unencrypted.
        Error::Configuration(why) if why.to_string().contains("RSA") => (Class::Fatal, codes::NO_TLS),
        Error::Tls(_) => (Class::Retry, codes::NO_TLS),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, codes::BAD_URL),
        Error::Decode(_) | Error::ColumnDecode { .. } => (Class::Retry, codes::UNREADABLE_ROW),
        _ => (Class::Retry, codes::HIVE_ERROR),
    };
    Failure::new(class, code, format!("{doing}: {}{}", detail(error), hint(code)))
}

fn judge(number: u16) -> (Class, &'static str) {
    match number {
        number if is_end(number) => (Class::Retry, codes::NO_CONNECTION),
        1317 | 1969 | 3024 => (Class::Retry, codes::STATEMENT_ENDED),
        1044 | 1045 | 1129 | 1130 | 1698 | 1862 | 1820 | 3118 => (Class::Fatal, codes::ACCESS_DENIED),
        1049 => (Class::Fatal, codes::MISSING_DATABASE),
        1142 | 1143 | 1227 | 1370 => (Class::Fatal, codes::NO_PRIVILEGE),
        1290 | 1792 | 1836 => (Class::Retry, codes::READ_ONLY),
        1213 | 1020 | 1062 => (Class::Retry, codes::COLLISION),
        1205 => (Class::Retry, codes::DATABASE_BUSY),
        1040 | 1203 | 1226 => (Class::Retry, codes::TOO_MANY_CONNECTIONS),
        3 | 1021 | 1114 => (Class::Retry, codes::DISK_FULL),
        1146 | 1054 => (Class::Retry, codes::MISSING_TABLE),
        1665 => (Class::Fatal, codes::BINLOG_BY_STATEMENT),
        1047 => (Class::Retry, codes::NOT_PRIMARY),
        _ => (Class::Retry, codes::HIVE_ERROR),
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
        codes::NO_CONNECTION => "; is the server up, and the address right?",
        codes::NO_TLS => {
            "; does the server support TLS, and is its certificate trusted (ssl-mode, ssl-ca)? Without TLS a password of \
             caching_sha2_password cannot be sent"
        }
        codes::ACCESS_DENIED => {
            "; check user and password in the address, and from which hosts the account may connect"
        }
        codes::MISSING_DATABASE => "; create it, or name another one in the address",
        codes::NO_PRIVILEGE => "; let an administrator create the tables and grant what this account needs",
        codes::READ_ONLY => {
            "; it may be a replica, give the address of the primary; the next try uses a new connection"
        }
        codes::COLLISION | codes::DATABASE_BUSY => {
            "; another transaction holds the rows, nothing was done and the request is retried"
        }
        codes::TOO_MANY_CONNECTIONS => "; raise max_connections, or the account's own limit",
        codes::DISK_FULL => "; free some space, the request is retried",
        codes::MISSING_TABLE => "; is it being migrated, or was it dropped?",
        codes::BINLOG_BY_STATEMENT => "; set binlog_format to ROW or MIXED",
        codes::NOT_PRIMARY => "; this server is cut off from its cluster",
        _ => "",
    }
}

/// The failure for a server that does not answer: it is unknown whether the request was executed.
pub(crate) fn no_answer(timeout: std::time::Duration, doing: impl Display) -> Failure {
    let hint = hint(codes::NO_CONNECTION);
    Failure::retry(codes::NO_ANSWER, format!("{doing}: no answer within {timeout:?}{hint}"))
}
