//! What became of a request, as the engine understands it.

use honeyflow_cassandra::{Unfit, session::Error};
use honeyflow_pool::{Executed, Kind};
use honeyflow_runtime::{Class, Failure};

/// A request refused as such: about the table, or about the values that were bound.
pub const REFUSED: &str = "cassandra-refused";
pub const AWAY: &str = "cassandra-away";
const LOGIN: &str = "cassandra-login";

pub fn failure(error: &Error) -> Failure {
    let message = message(error);
    match error.class() {
        Class::RetryAfter => {
            let code = match &error.outage {
                Some(outage) if outage.login_refused() => LOGIN,
                Some(_) => AWAY,
                None => "cassandra-busy",
            };
            Failure::retry_after(error.retry_after.unwrap_or_default(), code, message)
        }
        // Whatever was sent may be sent again: its stamp makes it the same write.
        Class::Reject if error.executed == Executed::Unknown => Failure::retry("cassandra-unknown", message),
        Class::Reject => Failure::reject(REFUSED, message),
        Class::Fatal => Failure::fatal("cassandra-forbidden", message),
        Class::Retry if error.login_refused() => Failure::retry(LOGIN, message),
        Class::Retry if matches!(error.kind, Kind::UseTimeout | Kind::Protocol | Kind::Server(_)) => {
            Failure::retry("cassandra-unanswered", message)
        }
        Class::Retry => Failure::retry(AWAY, message),
    }
}

/// No server was reached, so that none would be for the next request.
pub fn is_away(failure: &Failure) -> bool {
    failure.code == AWAY || failure.code == LOGIN
}

pub fn unreadable(why: &Unfit) -> Failure {
    Failure::fatal("cassandra-row", format!("a row cannot be read: {why}"))
}

/// A request that reached nobody names those it could not reach.
fn message(error: &Error) -> String {
    let Some(cause) = &error.cause else { return error.to_string() };
    let system = std::error::Error::source(cause).map_or_else(String::new, |source| format!(": {source}"));
    format!("{error}: {cause}{system}")
}
