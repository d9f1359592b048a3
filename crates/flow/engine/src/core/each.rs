//! Steps with `for-each`: one instance per element, so many at a time.
//!
//! Where the step is journaled its list is written before the first instance starts, and each instance's output when it is
//! done. Whoever takes over goes on with the same elements: what is done is not done again, and the list is not made again
//! from what may have changed.

use std::sync::Arc;

use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use honeyflow_store::write::{Checkpoint, Checkpointed, OF_LIST};
use honeyflow_workflow::{Checkpoint as Journaling, End, Graph, Instances, StepId};
use serde_json::{Map, Value};

use super::{
    Core,
    ready::Ready,
    run::{Each, Life, RunState},
    settle::After,
    timer::Waiting,
};
use crate::slots::Slot;

const INSTANCES_MAX: usize = 10_000;

impl Core {
    /// The list is known.
    pub(crate) fn begin_each(&mut self, waiting: Waiting, attempt: u32, inputs: Vec<Document>, items: Vec<Document>) {
        let Waiting { run: slot, step, .. } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let definition = run.plan.graph.steps[step as usize].clone();
        if inputs.len() > INSTANCES_MAX {
            let message = format!("for-each gave {} items, the limit is {INSTANCES_MAX}", inputs.len());
            self.fail(waiting, Failure::reject("plan-limit", message));
            return;
        }
        if inputs.is_empty() {
            self.finish(waiting, End::Succeeded, Some(Arc::new(Value::Array(Vec::new()))));
            return;
        }
        let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        let instances = Instances::new(count, definition.parallel, definition.tolerate);
        let outputs = vec![None; inputs.len()];
        let list = (definition.checkpoint == Journaling::Always)
            .then(|| write_list(&items, definition.input.is_some().then_some(&inputs[..])));
        run.extra(step, 0).evaluated = true;
        run.extras.get_or_insert_default().instances.push(Each { step, instances, inputs, items, outputs });
        let Some(list) = list else {
            self.start_instances(slot, step);
            return;
        };
        let of_list = Waiting { index: OF_LIST, ..waiting };
        self.checkpoint(of_list, attempt, Checkpointed::Done(Some(list)), Vec::new(), After::Listed(of_list));
    }

    /// Unless the run was ended meanwhile.
    pub(crate) fn start_listed(&mut self, waiting: Waiting) {
        if self.runs.get(waiting.run).is_some_and(|run| run.life == Life::Open) {
            self.start_instances(waiting.run, waiting.step);
        }
    }

    /// As many as may be at work together.
    pub(crate) fn start_instances(&mut self, slot: Slot, step: StepId) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        let (workflow, level) = (run.workflow, run.level);
        let Some(each) = run.each(step) else { return };
        let queue = self.ready.queue(workflow, step, false);
        while let Some(index) = each.instances.next() {
            self.ready.push(queue, level, Ready { run: slot, index, since: self.now, level }, false);
        }
    }
}

/// Inputs are the elements themselves unless the step makes others of them.
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

/// What an earlier owner has left of the run's lists. Steps all of whose instances are done are pushed.
pub(crate) fn restore(
    state: &mut RunState,
    graph: &Graph,
    checkpoints: &[&Checkpoint],
    finished: &mut Vec<(StepId, End)>,
) {
    let listed = |checkpoint: &&&Checkpoint| checkpoint.index == OF_LIST && !crate::planted::on("list made again");
    for kept in checkpoints.iter().filter(listed) {
        let Some(step) = graph.step(&kept.step) else { continue };
        let Checkpointed::Done(Some(list)) = &kept.outcome else { continue };
        let Some((inputs, items)) = read_list(list) else { continue };
        let definition = &graph.steps[step as usize];
        let mut outputs: Vec<Document> = vec![None; inputs.len()];
        let mut ended = Vec::new();
        for one in checkpoints.iter().filter(|one| one.step == kept.step && one.index != OF_LIST) {
            if let (Checkpointed::Done(output), Some(place)) = (&one.outcome, outputs.get_mut(one.index as usize)) {
                *place = output.clone();
                ended.push(one.index);
            }
        }
        let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        let instances = Instances::restore(count, definition.parallel, definition.tolerate, ended);
        if instances.verdict().is_some() {
            state.keep_output(step, gathered(&outputs));
            finished.push((step, End::Succeeded));
            continue;
        }
        state.extra(step, 0).evaluated = true;
        state.extras.get_or_insert_default().instances.push(Each { step, instances, inputs, items, outputs });
    }
}

/// What dependents see: an array in the order of the list, null where an instance failed.
pub(crate) fn gathered(outputs: &[Document]) -> Document {
    let outputs = outputs.iter().map(|output| output.as_deref().cloned().unwrap_or(Value::Null));
    Some(Arc::new(Value::Array(outputs.collect())))
}

/// The run begins anew in another slot: instances of journaled steps that are not done are started once more.
pub(crate) fn reopen(run: &mut RunState) {
    let graph = run.plan.graph.clone();
    let Some(extras) = &mut run.extras else { return };
    extras.instances.retain(|each| graph.steps[each.step as usize].checkpoint == Journaling::Always);
    for each in &mut extras.instances {
        each.instances.reopen();
    }
}
