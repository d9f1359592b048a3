//! `transform`: a jq expression over each item's input, in process. Nothing is read but the item, nothing is written.
//!
//! [`Evaluator`] is the part that keeps evaluations off the reactor and within their time; whoever evaluates
//! expressions for items uses it. The expression language itself is `honeyflow_workflow::expression`.

mod evaluator;
mod kind;
mod lane;
mod outcome;
mod pool;
mod strikes;
#[cfg(test)]
mod tests;
pub mod variables;

use std::sync::Arc;

pub use evaluator::{Evaluator, Work};
use futures_util::future::BoxFuture;
use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_workflow::Expression;
pub use kind::kind;
pub use pool::Pool;
use serde_json::Value;

/// Of a pool that a step makes for itself.
const THREADS: usize = 2;

pub struct TransformStep {
    evaluator: Arc<Evaluator>,
    work: Work<Document>,
}

impl TransformStep {
    /// With threads of its own, begun when the first batch comes.
    pub fn new(expression: Expression) -> TransformStep {
        TransformStep::on(Arc::new(Pool::new(THREADS)), expression)
    }

    /// On threads that it shares with other steps.
    pub fn on(pool: Arc<Pool>, expression: Expression) -> TransformStep {
        let work: Work<Document> = Arc::new(move |item| {
            let variables = variables::of(item, std::slice::from_ref(&expression));
            let input = item.input.as_deref().unwrap_or(&Value::Null);
            let value = expression.evaluate(input, &variables);
            outcome::document(value.map_err(|message| Failure::reject("expression-failed", message))?)
        });
        TransformStep { evaluator: Arc::new(Evaluator::new(pool)), work }
    }

    /// Threads that were given up and still run: each holds a core.
    pub fn abandoned(&self) -> usize {
        self.evaluator.abandoned()
    }
}

impl Step for TransformStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let (evaluator, work) = (Arc::clone(&self.evaluator), Arc::clone(&self.work));
        Box::pin(async move {
            let batch = Arc::new(batch);
            let results = evaluator.run(Arc::clone(&batch), batch.timeout, work).await;
            results.into_iter().map(|result| result.map_or_else(Outcome::Failed, Outcome::Done)).collect()
        })
    }
}
