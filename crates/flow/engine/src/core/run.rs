//! A run in memory: what it works on, how far it is, what has gone wrong so far.

use std::sync::Arc;

use honeyflow_event::{Document, EventId, Key, Name, Priority, Stamp};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::write::Settled;
use honeyflow_workflow::{Instances, Run, StepId};
use smallvec::SmallVec;

use super::{
    Core,
    input::RunName,
    plan::{SourceId, WorkflowPlan},
};
use crate::slots::Slot;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Open,
    /// Ended from outside, and some of its attempts are still in workers' hands.
    Cancelling,
    /// Acknowledgement or park under way; the key is held until it has committed.
    Settling,
}

pub(crate) struct RunState {
    /// Tells runs of this core apart.
    pub number: u64,
    /// The version it began with, whatever the configuration says later.
    pub plan: Arc<WorkflowPlan>,
    pub workflow: usize,
    pub source: SourceId,
    pub entity: Name,
    pub key: Slot,
    pub rows: SmallVec<[Slot; 2]>,
    pub run: Run,
    pub stamp: Stamp,
    pub level: Priority,
    pub life: Life,
    /// An attempt was given out: rows that come now wait for the next run.
    pub given: bool,
    /// Attempts held by workers.
    pub leased: u32,
    pub attempt: u32,
    pub outputs: Option<Box<[Document]>>,
    /// Only where something is out of the ordinary.
    pub extras: Option<Box<Extras>>,
    pub opened_at: Moment,
    /// When it has taken too long; far away where its workflow sets no deadline.
    pub deadline: Moment,
    /// Nothing of it can be done before a time or an event comes.
    pub dormant: bool,
}

#[derive(Default)]
pub(crate) struct Extras {
    pub steps: Vec<StepExtra>,
    pub instances: Vec<Each>,
    /// Resumed from checkpoints: exactly these rows form the run.
    pub covers: Option<Vec<EventId>>,
    /// Its deadline stands in the journal.
    pub deadline_kept: bool,
    /// Steps that failed for good, with their errors.
    pub failed: Vec<(StepId, u32, u32, Failure)>,
}

pub(crate) struct Each {
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
    /// Rejects so far.
    pub charges: u32,
    /// Deaths and time-outs of a worker with this item alone, by their weight.
    pub deaths: u32,
    /// Retries in a row.
    pub retries: u32,
    pub retrying_since: Option<Moment>,
    /// What `input` gave.
    pub input: Option<Document>,
    pub evaluated: bool,
    /// When its wait ends, by the store's clock; known from the moment it has begun, whoever owns it.
    pub until_ms: Option<i64>,
    /// An event is awaited.
    pub wait: Option<Box<Wait>>,
}

/// A wait that has begun and not ended.
pub(crate) struct Wait {
    pub name: Name,
    /// None: an event of any key may be it.
    pub key: Option<Key>,
    pub deadline: Moment,
    /// Events kept before this time of the store's clock are too old for it.
    pub since_ms: i64,
    /// Questions about events and looks into the store that are not answered yet.
    pub asked: u32,
    /// Its time is over; only answers are waited for.
    pub overdue: bool,
    /// Why an event could not be judged, the last time.
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

    pub fn each(&mut self, step: StepId) -> Option<&mut Each> {
        self.extras.as_mut()?.instances.iter_mut().find(|each| each.step == step)
    }

    pub fn has_each(&self, step: StepId) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.instances.iter().any(|each| each.step == step))
    }

    pub fn output(&self, step: StepId) -> Document {
        self.outputs.as_ref().and_then(|outputs| outputs[step as usize].clone())
    }

    pub fn keep_output(&mut self, step: StepId, output: Document) {
        if output.is_none() || !self.plan.graph.steps[step as usize].output_read {
            return;
        }
        let count = self.plan.graph.steps.len();
        self.outputs.get_or_insert_with(|| vec![None; count].into_boxed_slice())[step as usize] = output;
    }

    /// The wait of a step for an event, while there is one.
    pub fn wait_mut(&mut self, step: StepId) -> Option<&mut Wait> {
        let extra = self.extras.as_mut()?.steps.iter_mut().find(|extra| extra.step == step)?;
        extra.wait.as_deref_mut()
    }

    pub fn awaits(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(|extra| extra.wait.is_some()))
    }

    /// Of an event that may end a wait: the answer is on its way.
    pub fn is_asked(&self) -> bool {
        let asked = |extra: &StepExtra| extra.wait.as_ref().is_some_and(|wait| wait.asked > 0);
        self.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(asked))
    }

    pub fn is_exclusive(&self) -> bool {
        self.plan.exclusion == honeyflow_workflow::Exclusion::Key
    }
}

impl Core {
    /// Which run, for the store.
    pub(crate) fn settled(&self, run: &RunState) -> Settled {
        let key = self.keys.get(run.key);
        Settled {
            tenant: key.tenant.clone(),
            entity: run.entity.clone(),
            key: key.key.clone(),
            workflow: run.plan.name.clone(),
        }
    }

    /// Which run, for expressions.
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

    /// The newest of the events that the run works on.
    pub(crate) fn newest_event(&self, run: &RunState) -> Arc<honeyflow_event::Event> {
        let newest = |a: &&Arc<honeyflow_event::Event>, b: &&Arc<honeyflow_event::Event>| a.id.cmp(&b.id);
        let rows = run.rows.iter().filter_map(|slot| self.rows.get(*slot)).map(|row| &row.event);
        let found = if crate::planted::on("PB-18") { rows.min_by(newest) } else { rows.max_by(newest) };
        found.expect("a run holds at least one row").clone()
    }

    pub(crate) fn row_ids(&self, run: &RunState) -> Vec<EventId> {
        run.rows.iter().filter_map(|slot| self.rows.get(*slot)).map(|row| row.event.id).collect()
    }
}
