//! Checks a request before it is sent: its names must fit into their columns.

use honeyflow_event::Name;
use honeyflow_hive::{Request, contract::limit};
use honeyflow_runtime::Failure;

use crate::{codes, schema::NAME_CHARS_MAX};

/// Refuses names that are too long. A server that is not in strict mode would cut them, and so name another lease.
///
/// # Errors
/// If a name is too long; the message shows it.
pub(crate) fn check(request: &Request) -> Result<(), Failure> {
    match names(request).into_iter().find(|name| name.len() > NAME_CHARS_MAX && name.chars().count() > NAME_CHARS_MAX) {
        Some(name) => Err(Failure::reject(
            codes::NAME_TOO_LONG,
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
        // A name that is too long in another request finds no row.
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
