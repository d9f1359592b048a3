//! Maps an error of PostgreSQL or of the connection to a failure: its class, its code, and a hint what to do.
//!
//! An error that may pass by itself is `Retry`: no connection, no access, a full disk, a server that is read-only for
//! now. An error that only an operator can fix is `Fatal`; an error caused by the data of one request is `Reject`. An
//! unknown error is `Retry`, so that no event is lost because of it.

use std::fmt::Display;

use honeyflow_runtime::{Class, Failure};

use crate::{
    codes,
    driver::{Error, PgDatabaseError},
};

/// Returns the failure for an error. `place` says what the store was doing (a verb and an object), or gives the
/// statement's path in the configuration.
pub(crate) fn failure(error: &Error, place: impl Display) -> Failure {
    let (class, code) = match error {
        Error::Database(_) => state(error).map_or((Class::Retry, codes::STORE_ERROR), judge),
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => (Class::Retry, codes::NO_CONNECTION),
        Error::Tls(_) => (Class::Retry, codes::NO_TLS),
        Error::Configuration(_) | Error::InvalidArgument(_) => (Class::Fatal, codes::BAD_URL),
        // A value has another type than our tables declare: the tables were changed by hand.
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::TypeNotFound { .. } => {
            (Class::Fatal, codes::UNREADABLE_ROW)
        }
        Error::Encode(_) => (Class::Reject, codes::BAD_VALUE),
        _ => (Class::Retry, codes::STORE_ERROR),
    };
    Failure::new(class, code, format!("{place}: {}{}", detail(error), hint(code)))
}

/// Returns the SQLSTATE, if the server has answered.
pub(crate) fn state(error: &Error) -> Option<&str> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::code)
}

/// Returns whether the transaction collided with another one, so that a retry will probably succeed.
pub(crate) fn is_collision(error: &Error) -> bool {
    matches!(state(error), Some("40P01" | "40001" | "55P03"))
}

pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    state(error) == Some("55P03")
}

/// Returns whether the data of a single request may have caused the error, so that the other requests of the group
/// succeed without it.
pub(crate) fn is_data_error(error: &Error) -> bool {
    match error {
        Error::Database(_) => {
            state(error).is_some_and(|state| matches!(&state[..2.min(state.len())], "21" | "22" | "23" | "P0" | "54"))
        }
        Error::Encode(_) => true,
        _ => false,
    }
}

/// Returns whether the connection is still usable. An error that is not a reply of the server leaves it in an unknown
/// state.
pub(crate) fn is_server_reply(error: &Error) -> bool {
    match error {
        Error::Database(_) => !state(error).is_some_and(|state| state.starts_with("08") || state.starts_with("57P")),
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::ColumnNotFound(_) | Error::Encode(_) => true,
        _ => false,
    }
}

fn judge(state: &str) -> (Class, &'static str) {
    match state {
        "57P01" | "57P02" | "57P03" | "57P05" => (Class::Retry, codes::NO_CONNECTION),
        "28P01" | "28000" => (Class::Retry, codes::ACCESS_DENIED),
        "3D000" => (Class::Retry, codes::MISSING_DATABASE),
        "42501" => (Class::Retry, codes::NO_PRIVILEGE),
        "25006" => (Class::Retry, codes::READ_ONLY),
        "40P01" | "40001" => (Class::Retry, codes::COLLISION),
        "55P03" => (Class::Retry, codes::DATABASE_BUSY),
        "57014" => (Class::Retry, codes::STATEMENT_TIMEOUT),
        "25P03" | "25P02" => (Class::Retry, codes::TRANSACTION_ENDED),
        "53100" => (Class::Retry, codes::DISK_FULL),
        "53200" => (Class::Retry, codes::OUT_OF_MEMORY),
        "53300" => (Class::Retry, codes::TOO_MANY_CONNECTIONS),
        "42P01" => (Class::Fatal, codes::MISSING_TABLE),
        "42703" => (Class::Fatal, codes::MISSING_COLUMN),
        "42883" | "42704" => (Class::Fatal, codes::MISSING_FUNCTION),
        "08P01" => (Class::Fatal, codes::BAD_PARAMETERS),
        "22021" | "22P05" => (Class::Reject, codes::BAD_TEXT),
        _ => match &state[..2.min(state.len())] {
            "22" | "54" => (Class::Reject, codes::BAD_VALUE),
            "23" | "P0" | "21" => (Class::Fatal, codes::CONSTRAINT),
            "42" => (Class::Fatal, codes::BAD_STATEMENT),
            "08" => (Class::Retry, codes::NO_CONNECTION),
            "XX" => (Class::Fatal, codes::DATABASE_CORRUPT),
            _ => (Class::Retry, codes::STORE_ERROR),
        },
    }
}

/// Returns the message of the error. It leaves out the statement's text, which is ours or is found under the path in
/// the message, and the values of the row, which the server's own detail would repeat.
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
        codes::NO_CONNECTION => "; is the server up, and the address right?",
        codes::NO_TLS => "; does the server speak TLS, and is its certificate known (sslrootcert)?",
        codes::ACCESS_DENIED => "; check user and password in the address, and the server's pg_hba.conf",
        codes::MISSING_DATABASE => "; create it, or name another one in the address",
        codes::NO_PRIVILEGE => "; grant what `honeyflow source install --print` lists",
        codes::READ_ONLY => "; this server is read-only, give the address of the primary",
        codes::COLLISION | codes::DATABASE_BUSY => "; another transaction holds the rows, Honeyflow retries",
        codes::DISK_FULL => "; free some space, Honeyflow retries",
        codes::TOO_MANY_CONNECTIONS => "; raise max_connections, or put a pooler before the server",
        codes::MISSING_TABLE => "; is it being migrated, or the source not installed?",
        codes::BAD_PARAMETERS => "; $keys is the only parameter that a statement may use",
        codes::DATABASE_CORRUPT => "; look at the server's log, restore from a backup",
        _ => "",
    }
}
