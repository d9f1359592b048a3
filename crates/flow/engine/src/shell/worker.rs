//! The worker in the node: a task per batch, bounded by the room the core was told of.

use std::{sync::Arc, time::Duration};

use honeyflow_evaluate::Evaluator;
use honeyflow_step::Step;
use tokio::sync::mpsc;

use super::evaluate;
use crate::core::{BatchId, Evaluated, Input, input::Work};

pub(super) fn work(
    steps: &[Vec<Arc<dyn Step>>],
    evaluator: impl FnOnce(&str) -> Arc<Evaluator>,
    batch: BatchId,
    work: Work,
    inputs: mpsc::Sender<Input>,
) {
    match work {
        Work::Execute { workflow, step, batch: work } => {
            let timeout = work.timeout;
            let step = steps[workflow][step as usize].clone();
            tokio::spawn(async move {
                // A task of its own: a panic is the end of the batch, not of the node.
                let attempt = tokio::spawn(async move { tokio::time::timeout(timeout, step.execute(work)).await });
                let input = match attempt.await {
                    Ok(Ok(outcomes)) => Input::Outcomes { batch, outcomes },
                    Ok(Err(_)) => Input::TimedOut { batch },
                    Err(panic) => {
                        tracing::error!(batch, %panic, "a step panicked");
                        Input::Unanswered { batch }
                    }
                };
                let _ = inputs.send(input).await;
            });
        }
        Work::Evaluate { graph, step, items } => {
            let evaluator = evaluator(&graph.name);
            let timeout = TIMEOUT.min(graph.steps[step as usize].timeout);
            tokio::spawn(async move {
                let one = move |item: &_| evaluate::one(&graph, step, item);
                let results = evaluator.run(Arc::new(items), timeout, Arc::new(one)).await;
                let results = results.into_iter().map(|result| result.unwrap_or_else(Evaluated::Failed)).collect();
                let _ = inputs.send(Input::Evaluated { batch, results }).await;
            });
        }
    }
}

/// Of the expressions of a batch; two fifths of it for one item.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
