//! Turns errors of the cluster into failures of the engine, with a class and a code.

use honeyflow_cassandra::{ValueMismatch, session::Error};
use honeyflow_pool::{Execution, Kind};
use honeyflow_runtime::{Class, Failure};

use crate::codes;

pub fn from_error(error: &Error) -> Failure {
    let message = message(error);
    match error.class() {
        Class::RetryAfter => {
            let code = match &error.outage {
                Some(outage) if outage.login_refused() => codes::CASSANDRA_LOGIN,
                Some(_) => codes::CASSANDRA_AWAY,
                None => codes::CASSANDRA_BUSY,
            };
            Failure::retry_after(error.retry_after.unwrap_or_default(), code, message)
        }
        // Every request may be sent again: with the same stamp it is the same write.
        Class::Reject if error.executed == Execution::Unknown => Failure::retry(codes::CASSANDRA_UNKNOWN, message),
        Class::Reject => Failure::reject(codes::CASSANDRA_REFUSED, message),
        Class::Fatal => Failure::fatal(codes::CASSANDRA_FORBIDDEN, message),
        Class::Retry if error.login_refused() => Failure::retry(codes::CASSANDRA_LOGIN, message),
        Class::Retry if matches!(error.kind, Kind::UseTimeout | Kind::Protocol | Kind::Server(_)) => {
            Failure::retry(codes::CASSANDRA_UNANSWERED, message)
        }
        Class::Retry => Failure::retry(codes::CASSANDRA_AWAY, message),
    }
}

/// Whether no server was reached. The next request would not reach one either.
pub fn is_away(failure: &Failure) -> bool {
    failure.code == codes::CASSANDRA_AWAY || failure.code == codes::CASSANDRA_LOGIN
}

pub fn unreadable(why: &ValueMismatch) -> Failure {
    Failure::fatal(codes::CASSANDRA_ROW, format!("a row cannot be read: {why}"))
}

/// Describes the error with its cause, such as the servers that could not be reached.
fn message(error: &Error) -> String {
    let Some(cause) = &error.cause else { return error.to_string() };
    let system = std::error::Error::source(cause).map_or_else(String::new, |source| format!(": {source}"));
    format!("{error}: {cause}{system}")
}
