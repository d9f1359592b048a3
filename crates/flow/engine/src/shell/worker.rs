//! The worker in the node: a task per batch, bounded by the room the core was told of.

use std::sync::Arc;

use honeyflow_step::Step;
use honeyflow_workflow::expression::STACK_BYTES;
use tokio::sync::mpsc;

use super::evaluate;
use crate::core::{BatchId, Input, input::Work};

pub(super) fn work(steps: &[Vec<Arc<dyn Step>>], batch: BatchId, work: Work, inputs: mpsc::Sender<Input>) {
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
            // A thread of its own with a stack for the deepest expression there can be. The answer is lost with it if it
            // panics or never ends: then the batch is taken back at its deadline.
            let evaluation = std::thread::Builder::new().name("expressions".to_owned()).stack_size(STACK_BYTES);
            let started = evaluation.spawn(move || {
                let results = evaluate::all(&graph, step, &items);
                let _ = inputs.blocking_send(Input::Evaluated { batch, results });
            });
            if let Err(error) = started {
                tracing::error!(%error, "no thread for expressions");
            }
        }
    }
}
