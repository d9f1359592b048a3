//! What an error of PostgreSQL or of the way to it means: which class, which code, what to do.
//!
//! Whatever may pass by itself is `Retry`: no connection, no access, a full disk, a server that is read-only for now.
//! What only a person can mend is `Fatal`; what lies in the data of one request is `Reject`. Unknown errors are `Retry`,
//! so that no event is given up for them.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};

use crate::driver::{Error, PgDatabaseError};

/// `place` says what was being done: a verb and a thing, or where a statement stands.
pub(crate) fn failure(error: &Error, place: impl Display) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => state(error).map_or((Class::Retry, "store-error"), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, "no-connection"),
        Error::Tls(_) => (Class::Retry, "no-tls"),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, "bad-url"),
        // A value of another type than our own tables have: they were changed by hand.
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::TypeNotFound { .. } => {
            (Class::Fatal, "unreadable-row")
        }
        Error::Encode(_) => (Class::Reject, "bad-value"),
        _ => (Class::Retry, "store-error"),
    };
    Failure::new(class, code, format!("{place}: {}{}", detail(error), hint(code)))
}

/// The SQLSTATE, if the server has answered.
pub(crate) fn state(error: &Error) -> Option<&str> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::code)
}

/// The transaction met another one; the same again will do.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(state(error), Some("40P01" | "40001" | "55P03"))
}

pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    state(error) == Some("55P03")
}

/// It may be one request's own fault: asked without its neighbours they will fare better.
pub(crate) fn is_of_the_data(error: &Error) -> bool {
    match error {
        Error::Database(_) => {
            state(error).is_some_and(|state| matches!(&state[..2.min(state.len())], "21" | "22" | "23" | "P0" | "54"))
        }
        Error::Encode(_) => true,
        _ => false,
    }
}

/// Whether the connection can be used on. Anything but an answer of the server leaves it in the middle of something.
pub(crate) fn is_answer(error: &Error) -> bool {
    match error {
        Error::Database(_) => !state(error).is_some_and(|state| state.starts_with("08") || state.starts_with("57P")),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::Encode(_) => true,
        _ => false,
    }
}

fn judge(state: &str) -> (Class, &'static str) {
    match state {
        "57P01" | "57P02" | "57P03" | "57P05" => (Class::Retry, "no-connection"),
        "28P01" | "28000" => (Class::Retry, "access-denied"),
        "3D000" => (Class::Retry, "missing-database"),
        "42501" => (Class::Retry, "no-privilege"),
        "25006" => (Class::Retry, "read-only"),
        "40P01" | "40001" => (Class::Retry, "collision"),
        "55P03" => (Class::Retry, "database-busy"),
        "57014" => (Class::Retry, "statement-timeout"),
        "25P03" | "25P02" => (Class::Retry, "transaction-ended"),
        "53100" => (Class::Retry, "disk-full"),
        "53200" => (Class::Retry, "out-of-memory"),
        "53300" => (Class::Retry, "too-many-connections"),
        "42P01" => (Class::Fatal, "missing-table"),
        "42703" => (Class::Fatal, "missing-column"),
        "42883" | "42704" => (Class::Fatal, "missing-function"),
        "08P01" => (Class::Fatal, "bad-parameters"),
        "22021" | "22P05" => (Class::Reject, "bad-text"),
        _ => match &state[..2.min(state.len())] {
            "22" | "54" => (Class::Reject, "bad-value"),
            "23" | "P0" | "21" => (Class::Fatal, "constraint"),
            "42" => (Class::Fatal, "bad-statement"),
            "08" => (Class::Retry, "no-connection"),
            "XX" => (Class::Fatal, "database-corrupt"),
            _ => (Class::Retry, "store-error"),
        },
    }
}

/// Without the statement's text, which is ours or stands at the place that is named, and without the values of the row
/// at fault, which the server's own detail repeats.
fn detail(error: &Error) -> String {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(answer) => match answer.hint() {
            Some(hint) => format!("{} ({hint})", answer.message()),
            None => answer.message().to_owned(),
        },
        None => error.to_string(),
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "no-connection" => "; is the server up, and the address right?",
        "no-tls" => "; does the server speak TLS, and is its certificate known (sslrootcert)?",
        "access-denied" => "; look at user and password in the address, and at the server's pg_hba.conf",
        "missing-database" => "; create it, or name another one in the address",
        "no-privilege" => "; grant what `honeyflow source install --print` lists",
        "read-only" => "; this server only reads, give the address of the primary",
        "collision" | "database-busy" => "; another transaction holds the rows, it is tried again",
        "disk-full" => "; free some space, it is tried again",
        "too-many-connections" => "; raise max_connections, or put a pooler before the server",
        "missing-table" => "; is it being migrated, or the source not installed?",
        "bad-parameters" => "; only $keys is bound",
        "database-corrupt" => "; look at the server's log, restore from a backup",
        _ => "",
    }
}
