//! Classifies errors of PostgreSQL and of the connection for the hive. Nearly all of them are temporary, and a node
//! waits until they pass. An error that only a person can fix is `Fatal`: a join that meets it fails at once.

use honeyflow_runtime::{Class, Failure};

use crate::{
    codes,
    driver::{Error, PgDatabaseError},
};

/// Why a request was not answered: an error of the database, or a failure of our own.
pub(crate) enum Stop {
    Sql(Error),
    Failed(Failure),
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
    pub fn failure(self, doing: &str) -> Failure {
        match self {
            Stop::Sql(error) => failure(&error, doing),
            Stop::Failed(failure) => failure,
        }
    }
}

/// Makes a failure of an error. `doing` says what was tried: a verb and an object.
pub(crate) fn failure(error: &Error, doing: &str) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => state(error).map_or((Class::Retry, codes::HIVE_ERROR), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, codes::NO_CONNECTION),
        Error::Tls(_) => (Class::Retry, codes::NO_TLS),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, codes::BAD_URL),
        Error::Encode(_) => (Class::Reject, codes::BAD_TEXT),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) => {
            (Class::Retry, codes::UNREADABLE_ROW)
        }
        _ => (Class::Retry, codes::HIVE_ERROR),
    };
    Failure::new(class, code, format!("{doing}: {}{}", detail(error), hint(code, error)))
}

/// The SQLSTATE, if the server has answered.
pub(crate) fn state(error: &Error) -> Option<&str> {
    answer(error).map(PgDatabaseError::code)
}

fn answer(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()
}

/// Whether the transaction collided with another one and was rolled back, so that it can be repeated.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(state(error), Some("40P01" | "40001"))
}

pub(crate) fn is_missing_table(error: &Error) -> bool {
    state(error) == Some("42P01")
}

/// Whether another node created the tables at the same time. Tables and types have unique names, so ours failed.
pub(crate) fn is_made_by_another(error: &Error) -> bool {
    matches!(state(error), Some("42P07" | "23505" | "42710"))
}

/// Whether the connection can be used again. Any error other than an answer of the server leaves the protocol in an
/// unknown state. A read-only server stays read-only, but a new connection may reach its successor.
pub(crate) fn is_usable(error: &Error) -> bool {
    match error {
        Error::Database(_) => !state(error).is_some_and(|state| {
            state.starts_with("08") || state.starts_with("57P") || judge(state).1 == codes::READ_ONLY
        }),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::Encode(_) => true,
        Error::RowNotFound => true,
        _ => false,
    }
}

fn judge(state: &str) -> (Class, &'static str) {
    match state {
        "57P01" | "57P02" | "57P03" | "57P05" => (Class::Retry, codes::NO_CONNECTION),
        "28P01" | "28000" => (Class::Fatal, codes::ACCESS_DENIED),
        "3D000" => (Class::Fatal, codes::MISSING_DATABASE),
        "42501" => (Class::Fatal, codes::NO_PRIVILEGE),
        // A standby can neither write nor report the end of its log.
        "25006" | "55000" => (Class::Retry, codes::READ_ONLY),
        "40P01" | "40001" => (Class::Retry, codes::COLLISION),
        "55P03" => (Class::Retry, codes::DATABASE_BUSY),
        "57014" => (Class::Retry, codes::STATEMENT_TIMEOUT),
        "53100" => (Class::Retry, codes::DISK_FULL),
        "53300" => (Class::Retry, codes::TOO_MANY_CONNECTIONS),
        "22P02" | "22P05" | "22021" => (Class::Reject, codes::BAD_TEXT),
        _ if state.starts_with("08") => (Class::Retry, codes::NO_CONNECTION),
        _ => (Class::Retry, codes::HIVE_ERROR),
    }
}

/// The error text without the text of our statement.
fn detail(error: &Error) -> String {
    match answer(error) {
        Some(answer) => match answer.hint() {
            Some(hint) => format!("{} ({hint})", answer.message()),
            None => answer.message().to_owned(),
        },
        None => error.to_string(),
    }
}

fn hint(code: &str, error: &Error) -> &'static str {
    let message = answer(error).map_or("", PgDatabaseError::message);
    match code {
        codes::NO_CONNECTION => "; is the server up, and the address right?",
        codes::NO_TLS => "; does the server support TLS, and is its certificate trusted (sslrootcert)?",
        codes::ACCESS_DENIED => "; check user and password in the address, and the server's pg_hba.conf",
        codes::MISSING_DATABASE => "; create it, or name another one in the address",
        codes::NO_PRIVILEGE if message.contains("pg_control_system") => {
            "; the hive must know which server it is on: `grant execute on function pg_control_system() to …` this role"
        }
        codes::NO_PRIVILEGE if message.contains("pg_walfile_name") || message.contains("pg_current_wal_insert_lsn") => {
            "; the hive must know which server it is on: `grant execute on function pg_walfile_name(pg_lsn), \
             pg_current_wal_insert_lsn() to …` this role"
        }
        codes::NO_PRIVILEGE if message.contains("row-level security") => {
            "; a node whose row is hidden looks dead: make the role the tables' owner, or `alter role … bypassrls`"
        }
        codes::NO_PRIVILEGE if message.contains("schema") => {
            "; let this role create tables (`grant create on schema public to …`), or create the hive's tables for it"
        }
        codes::NO_PRIVILEGE => "; grant this role the rights on the hive's tables",
        codes::READ_ONLY => "; this server is read-only, give the address of the primary",
        codes::DATABASE_BUSY => "; another transaction holds the rows, the request is retried",
        codes::DISK_FULL => "; free some space, the request is retried",
        codes::TOO_MANY_CONNECTIONS => "; raise max_connections, or put a pooler in front of the server",
        _ => "",
    }
}
