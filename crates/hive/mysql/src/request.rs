//! What can be said of a request before anything is asked: its names fit, and what it is called in messages.

use honeyflow_event::Name;
use honeyflow_hive::{Request, contract::limit};
use honeyflow_runtime::Failure;

use crate::schema::NAME_CHARS_MAX;

/// A server that is not strict would cut a name that is too long, and mean another lease.
///
/// # Errors
/// Which name is too long.
pub(crate) fn check(request: &Request) -> Result<(), Failure> {
    match names(request).into_iter().find(|name| name.len() > NAME_CHARS_MAX && name.chars().count() > NAME_CHARS_MAX) {
        Some(name) => Err(Failure::reject(
            "name-too-long",
            format!("the name {name:?} has more than {NAME_CHARS_MAX} characters; give a shorter one"),
        )),
        None => Ok(()),
    }
}

fn names(request: &Request) -> Vec<&Name> {
    match request {
        Request::Join { name, .. } => vec![name],
        Request::Look { leases } => leases.iter().collect(),
        Request::Take { claims, .. } | Request::HandOver { claims, .. } => {
            claims.iter().map(|claim| &claim.lease).collect()
        }
        Request::Limit(limit::Request::Draw(draws)) => draws.iter().map(|draw| &draw.limit).collect(),
        Request::Limit(limit::Request::Exact { takes, .. }) => takes.iter().map(|take| &take.limit).collect(),
        Request::Limit(limit::Request::Slots { asks, .. }) => asks.iter().map(|ask| &ask.limit).collect(),
        Request::Limit(limit::Request::Set { limit, .. }) => vec![limit],
        // Whatever else names a row finds none.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_be_cut_is_refused() {
        let look = |name: String| check(&Request::Look { leases: vec!["queen".into(), name.into()] });
        assert_eq!(look("ü".repeat(NAME_CHARS_MAX)), Ok(()));
        assert_eq!(look("x".repeat(NAME_CHARS_MAX + 1)).unwrap_err().code, "name-too-long");
    }
}
