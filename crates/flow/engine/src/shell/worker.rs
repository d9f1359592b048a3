//! The worker inside the node: one task per batch, bounded by the room that it offered to the core.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hashbrown::HashMap;
use honeyflow_evaluate::Evaluator;
use honeyflow_hive::limit::Permit;
use honeyflow_step::Step;
use tokio::{sync::mpsc, task::AbortHandle};

use super::evaluate;
use crate::core::{BatchId, Evaluation, Input, input::Work};

/// The batches being executed, so that a cancelled one can be stopped.
#[derive(Clone, Default)]
pub(super) struct Attempts(Arc<Mutex<HashMap<BatchId, AbortHandle>>>);

impl Attempts {
    fn with<T>(&self, change: impl FnOnce(&mut HashMap<BatchId, AbortHandle>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Aborts the step; the core is informed that the batch has no answer.
    pub fn stop(&self, batch: BatchId) {
        if let Some(attempt) = self.with(|all| all.remove(&batch)) {
            attempt.abort();
        }
    }
}

/// Executes a batch. `slots` of concurrency limits are free again when the step has ended: answered, failed, stopped
/// or panicked.
pub(super) fn work(
    steps: &[Vec<Arc<dyn Step>>],
    evaluator: impl FnOnce(&str) -> Arc<Evaluator>,
    attempts: &Attempts,
    batch: BatchId,
    (work, slots): (Work, Vec<Permit<'static>>),
    inputs: mpsc::Sender<Input>,
) {
    match work {
        Work::Execute { workflow, step, batch: work } => {
            let timeout = work.timeout;
            let step = steps[workflow][step as usize].clone();
            // A separate task: a panic ends the batch, not the node.
            let attempt = tokio::spawn(async move {
                // Dropped after the step, also if the task is aborted.
                let _slots = slots;
                tokio::time::timeout(timeout, step.execute(work)).await
            });
            let attempts = attempts.clone();
            attempts.with(|all| all.insert(batch, attempt.abort_handle()));
            tokio::spawn(async move {
                let ended = attempt.await;
                attempts.with(|all| all.remove(&batch));
                let input = match ended {
                    Ok(Ok(outcomes)) => Input::Outcomes { batch, outcomes },
                    Ok(Err(_)) => Input::TimedOut { batch },
                    Err(stopped) if stopped.is_cancelled() => Input::Unanswered { batch },
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
                let one = move |item: &_| evaluate::evaluate_step(&graph, step, item);
                let results = evaluator.run(Arc::new(items), timeout, Arc::new(one)).await;
                let results = results.into_iter().map(|result| result.unwrap_or_else(Evaluation::Failed)).collect();
                let _ = inputs.send(Input::Evaluated { batch, results }).await;
            });
        }
    }
}

/// The time limit for the expressions of a batch; one item may use two fifths of it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
