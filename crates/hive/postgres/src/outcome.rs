//! What an error of PostgreSQL or of the way to it means for a hive: nearly everything may pass, and a
//! node waits for it. What only a person can mend is `Fatal`: whoever joins with it is told at once.

use honeyflow_runtime::{Class, Failure};

use crate::driver::{Error, PgDatabaseError};

/// Why a request was not answered: the database said so, or we did.
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

/// `doing` is a verb and a thing.
pub(crate) fn failure(error: &Error, doing: &str) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => state(error).map_or((Class::Retry, "hive-error"), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, "no-connection"),
        Error::Tls(_) => (Class::Retry, "no-tls"),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, "bad-url"),
        Error::Encode(_) => (Class::Reject, "bad-text"),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) => (Class::Retry, "unreadable-row"),
        _ => (Class::Retry, "hive-error"),
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

/// The transaction met another one and was undone; the same again will do.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(state(error), Some("40P01" | "40001"))
}

pub(crate) fn is_missing_table(error: &Error) -> bool {
    state(error) == Some("42P01")
}

/// Another node has made the tables at the same time: tables and types have unique names.
pub(crate) fn is_made_by_another(error: &Error) -> bool {
    matches!(state(error), Some("42P07" | "23505" | "42710"))
}

/// Whether the connection can be used on. Anything but an answer of the server leaves it in the middle of something;
/// a server that only reads will not do better the next time, but another one may have taken its place.
pub(crate) fn is_of_use(error: &Error) -> bool {
    match error {
        Error::Database(_) => !state(error)
            .is_some_and(|state| state.starts_with("08") || state.starts_with("57P") || judge(state).1 == "read-only"),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::Encode(_) => true,
        Error::RowNotFound => true,
        _ => false,
    }
}

fn judge(state: &str) -> (Class, &'static str) {
    match state {
        "57P01" | "57P02" | "57P03" | "57P05" => (Class::Retry, "no-connection"),
        "28P01" | "28000" => (Class::Fatal, "access-denied"),
        "3D000" => (Class::Fatal, "missing-database"),
        "42501" => (Class::Fatal, "no-privilege"),
        // A standby cannot write, nor say where its log ends.
        "25006" | "55000" => (Class::Retry, "read-only"),
        "40P01" | "40001" => (Class::Retry, "collision"),
        "55P03" => (Class::Retry, "database-busy"),
        "57014" => (Class::Retry, "statement-timeout"),
        "53100" => (Class::Retry, "disk-full"),
        "53300" => (Class::Retry, "too-many-connections"),
        "22P02" | "22P05" | "22021" => (Class::Reject, "bad-text"),
        _ if state.starts_with("08") => (Class::Retry, "no-connection"),
        _ => (Class::Retry, "hive-error"),
    }
}

/// Without the statement's text, which is ours.
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
        "no-connection" => "; is the server up, and the address right?",
        "no-tls" => "; does the server speak TLS, and is its certificate known (sslrootcert)?",
        "access-denied" => "; look at user and password in the address, and at the server's pg_hba.conf",
        "missing-database" => "; create it, or name another one in the address",
        "no-privilege" if message.contains("pg_control_system") => {
            "; the hive must know which server it is on: `grant execute on function pg_control_system() to …` this role"
        }
        "no-privilege" if message.contains("pg_walfile_name") || message.contains("pg_current_wal_insert_lsn") => {
            "; the hive must know which server it is on: `grant execute on function pg_walfile_name(pg_lsn), \
             pg_current_wal_insert_lsn() to …` this role"
        }
        "no-privilege" if message.contains("row-level security") => {
            "; what is hidden looks dead: make the role the tables' owner, or `alter role … bypassrls`"
        }
        "no-privilege" if message.contains("schema") => {
            "; let this role make tables (`grant create on schema public to …`), or make the hive's tables for it"
        }
        "no-privilege" => "; grant this role what the hive's tables need",
        "read-only" => "; this server only reads, give the address of the primary",
        "database-busy" => "; another transaction holds the rows, it is tried again",
        "disk-full" => "; free some space, it is tried again",
        "too-many-connections" => "; raise max_connections, or put a pooler before the server",
        _ => "",
    }
}
