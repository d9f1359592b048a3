//! Turns the store's reply into an outcome per item.

use honeyflow_runtime::{Class, Failure};
use honeyflow_step::Outcome;
use honeyflow_store::{LoadResult, Reply, mismatched_reply};

/// The result of one load of several keys.
pub enum BatchResult {
    /// One outcome per key, in order.
    Each(Vec<Outcome>),
    /// The store rejects the keys as a whole; one of them may be the cause.
    RefusedTogether,
}

pub fn load_result(reply: Result<Reply, Failure>, count: usize) -> BatchResult {
    let all = |failure: Failure| BatchResult::Each(vec![Outcome::Failed(failure); count]);
    match reply {
        Ok(Reply::Loaded(loaded)) if loaded.len() == count => {
            BatchResult::Each(loaded.into_iter().map(of_loaded).collect())
        }
        // the documents cannot be assigned to the keys
        Ok(Reply::Loaded(loaded)) => all(Failure::retry(
            honeyflow_step::codes::BAD_ANSWER,
            format!("the store gave {} documents for {count} keys", loaded.len()),
        )),
        Ok(other) => all(mismatched_reply(&other)),
        Err(failure) if failure.class == Class::Reject && count > 1 => BatchResult::RefusedTogether,
        Err(failure) => all(failure),
    }
}

fn of_loaded(loaded: LoadResult) -> Outcome {
    match loaded {
        LoadResult::Document(document) => Outcome::Done(document),
        LoadResult::Rejected(failure) => Outcome::Failed(failure),
    }
}
