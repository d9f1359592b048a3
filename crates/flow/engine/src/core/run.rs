//! A run in memory: the rows it works on, its progress, and its failures so far.

use std::sync::Arc;

use honeyflow_event::{Document, EventId, EventView, Key, Name, Priority, Stamp, Target};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::write::RunKey;
use honeyflow_workflow::{Instances, Run, StepId};
use smallvec::SmallVec;

use super::{
    Core, Row,
    input::RunName,
    plan::{SourceId, WorkflowPlan},
};
use crate::slots::Slot;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunPhase {
    Open,
    /// The run was cancelled or is overdue, and workers still hold some of its attempts.
    Cancelling,
    /// The acknowledgement or park is under way; the key is held until it has committed.
    Settling,
}

pub(crate) struct RunState {
    /// The number of the run, unique in this core.
    pub number: u64,
    /// The definition version that the run began with; a later configuration does not change it.
    pub plan: Arc<WorkflowPlan>,
    pub workflow: usize,
    pub source: SourceId,
    pub entity: Name,
    pub key: Slot,
    pub rows: SmallVec<[Slot; 2]>,
    pub run: Run,
    pub stamp: Stamp,
    pub level: Priority,
    pub phase: RunPhase,
    /// An attempt was given out: rows that arrive from now on wait for the next run.
    pub given: bool,
    /// The number of attempts that workers hold.
    pub leased: u32,
    pub attempt: u32,
    pub outputs: Option<Box<[Document]>>,
    /// Details that most runs do not need.
    pub extras: Option<Box<Extras>>,
    pub opened_at: Moment,
    /// When the run is overdue; [`Moment::FAR`] if its workflow sets no deadline.
    pub deadline: Moment,
    /// The run only waits: for a time or for an event.
    pub dormant: bool,
}

#[derive(Default)]
pub(crate) struct Extras {
    pub steps: Vec<StepExtra>,
    pub instances: Vec<ForEachState>,
    /// The run was resumed from checkpoints: exactly these rows form it.
    pub covers: Option<Vec<EventId>>,
    /// The run's deadline is stored in the journal.
    pub deadline_stored: bool,
    /// Steps that have failed finally: step, instance, attempts and error.
    pub failed: Vec<(StepId, u32, u32, Failure)>,
}

pub(crate) struct ForEachState {
    pub step: StepId,
    pub instances: Instances,
    pub inputs: Vec<Document>,
    /// The elements of `for-each`.
    pub items: Vec<Document>,
    pub outputs: Vec<Document>,
}

#[derive(Default)]
pub(crate) struct StepExtra {
    pub step: StepId,
    pub index: u32,
    /// Attempts so far that were answered with `Reject`.
    pub counted_attempts: u32,
    /// The weighted sum of worker deaths and time-outs while this item was alone in its batch.
    pub deaths: u32,
    /// Retries since the last success.
    pub retries: u32,
    pub retrying_since: Option<Moment>,
    /// The value of the step's `input` expression.
    pub input: Option<Document>,
    pub evaluated: bool,
    /// When the step's wait ends, by the store's clock. It is fixed when the wait begins and survives a change of
    /// owner.
    pub until_ms: Option<i64>,
    /// The step waits for an event.
    pub wait: Option<Box<Wait>>,
}

/// A wait that has begun and not ended.
pub(crate) struct Wait {
    pub name: Name,
    /// None: an event of any key may match.
    pub key: Option<Key>,
    pub deadline: Moment,
    /// Signals stored before this time of the store's clock are too old for the wait.
    pub since_ms: i64,
    /// Event checks and signal lookups that have no answer yet.
    pub pending_answers: u32,
    /// Its time is over; it ends as soon as the pending answers are in.
    pub overdue: bool,
    /// Why the last event check failed, if one did.
    pub unclear: Option<String>,
}

impl RunState {
    pub fn extra(&mut self, step: StepId, index: u32) -> &mut StepExtra {
        let steps = &mut self.extras.get_or_insert_default().steps;
        let at = steps.iter().position(|extra| extra.step == step && extra.index == index).unwrap_or_else(|| {
            steps.push(StepExtra { step, index, ..StepExtra::default() });
            steps.len() - 1
        });
        &mut steps[at]
    }

    pub fn find_extra(&self, step: StepId, index: u32) -> Option<&StepExtra> {
        self.extras.as_ref()?.steps.iter().find(|extra| extra.step == step && extra.index == index)
    }

    pub fn each(&mut self, step: StepId) -> Option<&mut ForEachState> {
        self.extras.as_mut()?.instances.iter_mut().find(|each| each.step == step)
    }

    pub fn has_each(&self, step: StepId) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.instances.iter().any(|each| each.step == step))
    }

    pub fn output(&self, step: StepId) -> Document {
        self.outputs.as_ref().and_then(|outputs| outputs[step as usize].clone())
    }

    pub fn store_output(&mut self, step: StepId, output: Document) {
        if output.is_none() || !self.plan.graph.steps[step as usize].output_read {
            return;
        }
        let count = self.plan.graph.steps.len();
        self.outputs.get_or_insert_with(|| vec![None; count].into_boxed_slice())[step as usize] = output;
    }

    /// Returns the step's wait for an event, while it lasts.
    pub fn wait_mut(&mut self, step: StepId) -> Option<&mut Wait> {
        let extra = self.extras.as_mut()?.steps.iter_mut().find(|extra| extra.step == step)?;
        extra.wait.as_deref_mut()
    }

    pub fn waits_for_event(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(|extra| extra.wait.is_some()))
    }

    /// Whether a check or lookup is pending that may end one of the run's waits.
    pub fn has_pending_answers(&self) -> bool {
        let has_pending = |extra: &StepExtra| extra.wait.as_ref().is_some_and(|wait| wait.pending_answers > 0);
        self.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(has_pending))
    }

    pub fn is_exclusive(&self) -> bool {
        self.plan.exclusion == honeyflow_workflow::Exclusion::Key
    }
}

impl Core {
    /// Returns the run's identity in the store.
    pub(crate) fn run_identity(&self, run: &RunState) -> RunKey {
        let key = self.keys.get(run.key);
        RunKey {
            tenant: key.tenant.clone(),
            entity: run.entity.clone(),
            key: key.key.clone(),
            workflow: run.plan.name.clone(),
        }
    }

    /// Returns the run's identity for expressions.
    pub(crate) fn run_name(&self, run: &RunState) -> RunName {
        let key = self.keys.get(run.key);
        RunName {
            workflow: run.plan.name.clone(),
            version: run.plan.graph.version,
            tenant: key.tenant.clone(),
            entity: run.entity.clone(),
            key: key.key.clone(),
        }
    }

    /// Returns the newest of the events that the run works on.
    pub(crate) fn newest_event(&self, run: &RunState) -> Arc<honeyflow_event::Event> {
        let newest = |a: &&Arc<honeyflow_event::Event>, b: &&Arc<honeyflow_event::Event>| a.id.cmp(&b.id);
        let rows = run.rows.iter().filter_map(|slot| self.rows.get(*slot)).map(|row| &row.event);
        let found = if crate::planted::on("PB-18") { rows.min_by(newest) } else { rows.max_by(newest) };
        found.expect("a run holds at least one row").clone()
    }

    /// Returns the events of the run as its expressions see them.
    pub(crate) fn event_view(&self, run: &RunState) -> EventView {
        let newest = self.newest_event(run);
        let target = Target { entity: run.entity.clone(), key: self.keys.get(run.key).key.clone() };
        let rows = || run.rows.iter().filter_map(|slot| self.rows.get(*slot));
        let change = |row: &Row| row.change_for(&target.entity, &target.key);
        let newest_change = rows().find(|row| row.event.id == newest.id).map_or(newest.change, change);
        let mut view = EventView::new(newest.clone(), target.clone(), newest_change);
        for row in rows().filter(|row| row.event.id != newest.id) {
            view.add(&row.event, change(row));
        }
        view
    }

    pub(crate) fn row_ids(&self, run: &RunState) -> Vec<EventId> {
        run.rows.iter().filter_map(|slot| self.rows.get(*slot)).map(|row| row.event.id).collect()
    }
}
