//! Steps with `for-each`: one instance per element, at most `parallel` at a time.
//!
//! If the step has checkpoints, its list is written before the first instance starts, and each instance's output when
//! it is done. The next owner continues with the same elements: finished instances are not executed again, and the list
//! is not evaluated again from data that may have changed.

use std::sync::Arc;

use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use honeyflow_store::write::{Checkpoint, CheckpointOutcome, LIST_INDEX};
use honeyflow_workflow::{End, Graph, Instances, StepId};
use serde_json::{Map, Value};

use super::{
    Core,
    ready::ReadyItem,
    run::{ForEachState, RunPhase, RunState},
    settle::OnCommit,
    timer::WaitingStep,
};
use crate::{codes, slots::Slot};

const INSTANCES_MAX: usize = 10_000;

impl Core {
    /// The list was evaluated: creates the instances.
    pub(crate) fn begin_for_each(
        &mut self,
        waiting: WaitingStep,
        attempt: u32,
        inputs: Vec<Document>,
        items: Vec<Document>,
    ) {
        let WaitingStep { run: slot, step, .. } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let definition = run.plan.graph.steps[step as usize].clone();
        if inputs.len() > INSTANCES_MAX {
            let message = format!("for-each gave {} items, the limit is {INSTANCES_MAX}", inputs.len());
            self.fail(waiting, Failure::reject(codes::PLAN_LIMIT, message));
            return;
        }
        if inputs.is_empty() {
            self.finish(waiting, End::Succeeded, Some(Arc::new(Value::Array(Vec::new()))));
            return;
        }
        let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        let instances = Instances::new(count, definition.parallel, definition.tolerate);
        let outputs = vec![None; inputs.len()];
        let list = (definition.checkpoint == honeyflow_workflow::Checkpoint::Always)
            .then(|| write_list(&items, definition.input.is_some().then_some(&inputs[..])));
        run.extra(step, 0).evaluated = true;
        run.extras.get_or_insert_default().instances.push(ForEachState { step, instances, inputs, items, outputs });
        let Some(list) = list else {
            self.start_instances(slot, step);
            return;
        };
        let of_list = WaitingStep { index: LIST_INDEX, ..waiting };
        self.checkpoint(
            of_list,
            attempt,
            CheckpointOutcome::Done(Some(list)),
            Vec::new(),
            OnCommit::ListStored(of_list),
        );
    }

    /// Starts the instances once their list is stored, unless the run was ended meanwhile.
    pub(crate) fn start_listed(&mut self, waiting: WaitingStep) {
        if self.runs.get(waiting.run).is_some_and(|run| run.phase == RunPhase::Open) {
            self.start_instances(waiting.run, waiting.step);
        }
    }

    /// Queues as many instances as may run together.
    pub(crate) fn start_instances(&mut self, slot: Slot, step: StepId) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        let (workflow, level) = (run.workflow, run.level);
        let Some(each) = run.each(step) else { return };
        let queue = self.ready.queue(workflow, step, false);
        while let Some(index) = each.instances.next() {
            self.ready.push(queue, level, ReadyItem { run: slot, index, since: self.now, level }, false);
        }
    }
}

/// The inputs are the elements themselves unless the step has an `input` expression.
fn write_list(items: &[Document], inputs: Option<&[Document]>) -> Arc<Value> {
    let values = |documents: &[Document]| {
        Value::Array(documents.iter().map(|one| one.as_deref().cloned().unwrap_or(Value::Null)).collect())
    };
    let mut list = Map::new();
    list.insert("items".to_owned(), values(items));
    if let Some(inputs) = inputs {
        list.insert("inputs".to_owned(), values(inputs));
    }
    Arc::new(Value::Object(list))
}

fn read_list(list: &Value) -> Option<(Vec<Document>, Vec<Document>)> {
    let documents = |name: &str| -> Option<Vec<Document>> {
        let values = list.get(name)?.as_array()?;
        Some(values.iter().map(|value| (!value.is_null()).then(|| Arc::new(value.clone()))).collect())
    };
    let items = documents("items")?;
    let inputs = documents("inputs").unwrap_or_else(|| items.clone());
    (inputs.len() == items.len()).then_some((inputs, items))
}

/// Restores the lists that an earlier owner has stored for the run. A step whose instances are all done is added to
/// `finished`.
pub(crate) fn restore(
    state: &mut RunState,
    graph: &Graph,
    checkpoints: &[&Checkpoint],
    finished: &mut Vec<(StepId, End)>,
) {
    let listed = |checkpoint: &&&Checkpoint| checkpoint.index == LIST_INDEX && !crate::planted::on("list made again");
    for kept in checkpoints.iter().filter(listed) {
        let Some(step) = graph.step(&kept.step) else { continue };
        let CheckpointOutcome::Done(Some(list)) = &kept.outcome else { continue };
        let Some((inputs, items)) = read_list(list) else { continue };
        let definition = &graph.steps[step as usize];
        let mut outputs: Vec<Document> = vec![None; inputs.len()];
        let mut ended = Vec::new();
        for one in checkpoints.iter().filter(|one| one.step == kept.step && one.index != LIST_INDEX) {
            if let (CheckpointOutcome::Done(output), Some(place)) = (&one.outcome, outputs.get_mut(one.index as usize))
            {
                *place = output.clone();
                ended.push(one.index);
            }
        }
        let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        let instances = Instances::restore(count, definition.parallel, definition.tolerate, ended);
        if instances.verdict().is_some() {
            state.store_output(step, collect_outputs(&outputs));
            finished.push((step, End::Succeeded));
        }
        state.extra(step, 0).evaluated = true;
        state.extras.get_or_insert_default().instances.push(ForEachState { step, instances, inputs, items, outputs });
    }
}

/// Returns the output that dependents see: an array in the order of the list, null where an instance failed.
pub(crate) fn collect_outputs(outputs: &[Document]) -> Document {
    let outputs = outputs.iter().map(|output| output.as_deref().cloned().unwrap_or(Value::Null));
    Some(Arc::new(Value::Array(outputs.collect())))
}

/// The run begins again in another slot: of steps with checkpoints, the unfinished instances are started again.
pub(crate) fn reopen(run: &mut RunState) {
    let graph = run.plan.graph.clone();
    let Some(extras) = &mut run.extras else { return };
    extras
        .instances
        .retain(|each| graph.steps[each.step as usize].checkpoint == honeyflow_workflow::Checkpoint::Always);
    for each in &mut extras.instances {
        each.instances.reopen();
    }
}
