//! Runs as people see them: which are open and why they wait, and the history of those that ended.

use honeyflow_event::Name;
use honeyflow_store::{Op, write::History};
use honeyflow_workflow::{State, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Core, run::RunState, settle::OnCommit};
use crate::slots::Slot;

/// An open run, as the API, the CLI and the page show it.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    /// The number of the run, unique on this node since its start; 0 for a stranded run.
    pub number: u64,
    pub workflow: Name,
    pub version: u32,
    pub entity: Name,
    pub key: String,
    pub source: Name,
    pub events: usize,
    pub level: u8,
    pub open_ms: u64,
    pub attempts: u32,
    /// Why it waits: `behind`, `breaker`, `crowded`, `paused`, `fatal`, `storm`, `limit`, `no-worker`, `back-off`, `delay`,
    /// `awaiting`, `shard-moving`, `working`, `cancelling` or `settling`.
    pub waits_for: &'static str,
    pub steps: Vec<StepView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepView {
    pub name: Name,
    pub state: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    pub charges: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Core {
    /// Returns the stranded runs, then the open runs, the oldest first; only those of `key` if it is given.
    pub fn runs(&self, key: Option<&str>, limit: usize) -> Vec<RunView> {
        let wanted = |run: &RunState| key.is_none_or(|key| *self.keys.get(run.key).key == *key);
        let mut found: Vec<(Slot, &RunState)> = self.runs.iter().filter(|(_, run)| wanted(run)).collect();
        found.sort_by_key(|(_, run)| run.opened_at);
        let places = self.run_places();
        let open = found.into_iter().map(|(slot, run)| self.view(run, self.reason(slot, run, &places)));
        self.stranded_views(key).into_iter().chain(open).take(limit).collect()
    }

    fn view(&self, run: &RunState, waits_for: &'static str) -> RunView {
        let graph = &run.plan.graph;
        let steps = graph.ids().map(|step| StepView {
            name: graph.steps[step as usize].name.clone(),
            state: state_name(run.run.state(graph, step)),
            charges: run.find_extra(step, 0).map_or(0, |extra| extra.counted_attempts),
            retries: run.find_extra(step, 0).map_or(0, |extra| extra.retries),
        });
        RunView {
            number: run.number,
            workflow: run.plan.name.clone(),
            version: self.plan.number(run.source, run.workflow),
            entity: run.entity.clone(),
            key: self.keys.get(run.key).key.to_string(),
            source: self.plan.sources[run.source as usize].name.clone(),
            events: run.rows.len(),
            level: run.level,
            open_ms: u64::try_from(self.now.since(run.opened_at).as_millis()).unwrap_or(u64::MAX),
            attempts: run.attempt,
            waits_for,
            steps: steps.collect(),
        }
    }

    /// Stores the history of a run that has ended, if its workflow keeps it.
    pub(crate) fn store_history(&mut self, slot: Slot, verdict: Verdict) {
        let Some(run) = self.runs.get(slot) else { return };
        let keeps = match run.plan.graph.definition.history {
            honeyflow_workflow::History::None => false,
            honeyflow_workflow::History::Failed => verdict == Verdict::Failed,
            _ => true,
        };
        if !keeps {
            return;
        }
        let history = History {
            run: self.run_identity(run),
            version: self.plan.number(run.source, run.workflow),
            verdict: if verdict == Verdict::Succeeded { "succeeded" } else { "failed" },
            steps: timeline(run, &self.row_ids(run)),
        };
        let source = run.source;
        self.push_op(source, Op::History(Box::new(history)), OnCommit::Nothing);
    }
}

/// Returns the states and errors of the run's steps. The events tell one run of a key from the next.
fn timeline(run: &RunState, events: &[honeyflow_event::EventId]) -> Value {
    let graph = &run.plan.graph;
    let failed = run.extras.as_ref().map(|extras| extras.failed.as_slice()).unwrap_or_default();
    let steps = graph.ids().map(|step| {
        let errors: Vec<Value> = failed
            .iter()
            .filter(|(of, ..)| *of == step)
            .map(|(_, index, attempt, failure)| json!({ "index": index, "attempt": attempt, "failure": failure }))
            .collect();
        let name = &*graph.steps[step as usize].name;
        json!({ "step": name, "state": state_name(run.run.state(graph, step)), "errors": errors, "events": events })
    });
    Value::Array(steps.collect())
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Ready => "ready",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Skipped => "skipped",
        State::Blocked => "blocked",
        State::Cancelled => "cancelled",
    }
}
