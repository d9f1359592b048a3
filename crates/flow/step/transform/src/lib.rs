//! `transform`: evaluates a jq expression over each item's input, in process. It reads only the item and writes
//! nothing.
//!
//! `honeyflow_evaluate` runs the evaluations on separate threads with a time limit; `honeyflow_workflow::expression` is
//! the expression language.

mod kind;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use honeyflow_evaluate::{Evaluator, Pool, Work, variables};
use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Item, Outcome, Step};
use honeyflow_workflow::Expression;
pub use kind::kind;
use serde_json::Value;

/// The threads of a pool that a step creates for itself.
const THREADS: usize = 2;

pub struct TransformStep {
    evaluator: Arc<Evaluator>,
    work: Work<Item, Document>,
}

impl TransformStep {
    /// Creates a step with its own threads, which start with the first batch.
    pub fn new(expression: Expression) -> TransformStep {
        TransformStep::on(Arc::new(Pool::new(THREADS)), expression)
    }

    /// Creates a step that evaluates on threads shared with other steps.
    pub fn on(pool: Arc<Pool>, expression: Expression) -> TransformStep {
        let work: Work<Item, Document> = Arc::new(move |item| {
            let variables = variables::for_item(item, std::slice::from_ref(&expression));
            let input = item.input.as_deref().unwrap_or(&Value::Null);
            let value = expression.evaluate(input, &variables);
            outcome::document(value.map_err(|message| Failure::reject("expression-failed", message))?)
        });
        TransformStep { evaluator: Arc::new(Evaluator::new(pool)), work }
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
