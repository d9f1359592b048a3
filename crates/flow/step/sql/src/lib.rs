//! `sql.load`: executes the entity's document statement once per batch, with all keys as one parameter. A key without a
//! row gives `null`.
//!
//! This crate contains no SQL: the store rewrites and executes the statement, read-only and in one snapshot.

mod kind;
mod outcome;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_store::{Load, Request, Statement, Store};
pub use kind::kind;
use outcome::BatchResult;

#[derive(Clone)]
pub struct LoadStep {
    store: Arc<dyn Store>,
    statement: Arc<Statement>,
}

impl LoadStep {
    pub fn new(store: Arc<dyn Store>, statement: Arc<Statement>) -> LoadStep {
        LoadStep { store, statement }
    }

    async fn load(&self, keys: &[Key], timeout: Duration) -> BatchResult {
        let load = Load { statement: Arc::clone(&self.statement), keys: keys.to_vec(), expand: None, timeout };
        outcome::load_result(self.store.call(Request::Load(load)).await, keys.len())
    }
}

impl Step for LoadStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let step = self.clone();
        Box::pin(async move {
            let keys: Vec<Key> = batch.items.iter().map(|item| item.key.clone()).collect();
            let deadline = Instant::now() + batch.timeout;
            let mut outcomes = Vec::with_capacity(keys.len());
            // a part that the store rejects is halved until the guilty keys are alone; the first half goes first, so
            // that outcomes stay in order
            let mut parts: Vec<&[Key]> = vec![&keys];
            while let Some(part) = parts.pop() {
                let time_left = deadline.saturating_duration_since(Instant::now());
                if part.is_empty() {
                    continue;
                }
                if time_left.is_zero() && part.len() < keys.len() {
                    outcomes.extend(part.iter().map(|_| Outcome::Failed(not_reached())));
                    continue;
                }
                match step.load(part, time_left).await {
                    BatchResult::Each(each) => outcomes.extend(each),
                    BatchResult::RefusedTogether => {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                }
            }
            outcomes
        })
    }
}

fn not_reached() -> Failure {
    Failure::retry("not-reached", "the batch's time was over before this key was loaded apart from the others")
}
