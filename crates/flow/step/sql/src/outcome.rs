//! From what the store gave to an outcome per item.

use honeyflow_runtime::{Class, Failure};
use honeyflow_step::Outcome;
use honeyflow_store::{Loaded, Reply, misplaced};

/// What one call amounts to, for `count` keys.
pub enum Called {
    /// One outcome per key, in order.
    Each(Vec<Outcome>),
    /// The store refuses the keys as a whole, and one of them may be to blame.
    RefusedTogether,
}

pub fn of_reply(reply: Result<Reply, Failure>, count: usize) -> Called {
    let all = |failure: Failure| Called::Each(vec![Outcome::Failed(failure); count]);
    match reply {
        Ok(Reply::Loaded(loaded)) if loaded.len() == count => Called::Each(loaded.into_iter().map(of_loaded).collect()),
        // nobody can tell which answer belongs to which key
        Ok(Reply::Loaded(loaded)) => {
            all(Failure::retry("bad-answer", format!("the store gave {} documents for {count} keys", loaded.len())))
        }
        Ok(other) => all(misplaced(&other)),
        Err(failure) if failure.class == Class::Reject && count > 1 => Called::RefusedTogether,
        Err(failure) => all(failure),
    }
}

fn of_loaded(loaded: Loaded) -> Outcome {
    match loaded {
        Loaded::Document(document) => Outcome::Done(document),
        Loaded::Rejected(failure) => Outcome::Failed(failure),
    }
}
