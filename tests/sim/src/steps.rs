//! Scripted steps: what a worker does when it executes a batch.

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_event::{Document, Key, Kind, Stamp};
use honeyflow_invariant::{graph::Effect, once::StartedEvent};
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Item, Outcome};
use honeyflow_workflow::{Role, StepId};
use serde_json::{Value, json};

use crate::{
    model_sink::ModelSink,
    model_store::ModelStore,
    options::Options,
    random::Random,
    shapes::Shapes,
    workload::{Application, Poison, message_of, store_of},
};

/// What a load with this stamp has read.
#[derive(Clone, Copy, Debug)]
pub struct LoadedRow {
    pub change: u64,
    pub poison: Option<Poison>,
    pub missing: bool,
}

/// What the workers of all nodes can read and change.
pub struct Surroundings<'a> {
    pub options: &'a Options,
    pub shapes: &'a Shapes,
    pub application: &'a Application,
    pub sinks: &'a mut [ModelSink],
    pub loads: &'a mut BTreeMap<(Key, Stamp), LoadedRow>,
    pub random: &'a mut Random,
    /// The stores, for committed checkpoints and due times of events.
    pub stores: &'a [ModelStore],
    pub effects: &'a mut Vec<Effect>,
    /// The starts of events that must not begin early.
    pub begun: &'a mut Vec<StartedEvent>,
    /// The step that answers `Fatal`; `fatals` counts the items that it has answered so.
    pub broken: Option<(usize, StepId)>,
    pub fatals: &'a mut u64,
    /// Whether transient failures happen.
    pub faulty: bool,
    /// The present time: `(microseconds, position in the history)`.
    pub now: (u64, u64),
}

/// The outcomes of a batch, or that the worker died of it.
pub enum BatchResult {
    Outcomes(Vec<Outcome>),
    Died,
}

impl Surroundings<'_> {
    pub fn execute(&mut self, workflow: usize, step: StepId, batch: &Batch) -> BatchResult {
        let role = self.shapes.workflows[workflow].graph[step].role;
        if self.broken == Some((workflow, step)) {
            *self.fatals += batch.items.len() as u64;
            let failure = Failure::fatal("no-such-thing", "what it works with is not there");
            return BatchResult::Outcomes(vec![Outcome::Failed(failure); batch.items.len()]);
        }
        let faults = &self.options.steps;
        if self.faulty && self.random.per_mille(faults.retry_after) {
            let after = std::time::Duration::from_millis(self.random.between(50, 1500));
            let failure = Failure::retry_after(after, "too-many", "come back later");
            return BatchResult::Outcomes(vec![Outcome::Failed(failure); batch.items.len()]);
        }
        let mut outcomes = Vec::with_capacity(batch.items.len());
        for item in &batch.items {
            match self.one(workflow, step, role, item) {
                Some(outcome) => outcomes.push(outcome),
                None => return BatchResult::Died,
            }
        }
        BatchResult::Outcomes(outcomes)
    }

    /// Executes one item. Returns `None` if the worker died.
    fn one(&mut self, workflow: usize, step: StepId, role: Role, item: &Item) -> Option<Outcome> {
        if self.faulty && self.random.per_mille(self.options.steps.retry_items) {
            return Some(Outcome::Failed(Failure::retry("down", "the target does not answer")));
        }
        self.note_begun(workflow, role, item);
        let loaded = (role == Role::Load).then(|| self.load(item));
        let poison = match item.event.kind {
            Kind::Message => message_of(item.event.payload.as_deref()).1,
            // A document of an earlier owner contains its change; otherwise take what was loaded for this stamp.
            _ => match item.input.as_deref().and_then(|input| input.get("r")).and_then(Value::as_u64) {
                Some(change) => self.application.poisons.get(&change).copied(),
                None => self.loads.get(&(item.key.clone(), item.stamp)).and_then(|seen| seen.poison),
            },
        };
        if let Some(poison) = poison.filter(|poison| (poison.workflow, poison.step) == (workflow, step)) {
            if poison.kills {
                return None;
            }
            return Some(Outcome::Failed(Failure::reject("poison", "this one is bad")));
        }
        Some(match role {
            Role::Load => Outcome::Done(loaded.flatten()),
            Role::Sink => self.write(workflow, step, item),
            _ => Outcome::Done(carry(item)),
        })
    }

    fn load(&mut self, item: &Item) -> Document {
        let (row, shown, document) = self.application.look(&(item.entity.clone(), item.key.clone()));
        let seen = LoadedRow { change: shown, poison: row.poison.filter(|_| row.alive), missing: !row.alive };
        self.loads.insert((item.key.clone(), item.stamp), seen);
        document
    }

    /// Records a start. It must come neither before its event is due nor before the end of a sleep step.
    fn note_begun(&mut self, workflow: usize, role: Role, item: &Item) {
        let now_ms = ModelStore::clock_ms(self.now.0);
        let due_ms = self.stores[store_of(&item.entity)].journal.due.get(&item.event.id).copied();
        let slept_ms = self.shapes.workflows[workflow].sleeps_ms;
        // A node's clock may be fast.
        let slept_ms = i64::try_from(slept_ms * 94 / 100).unwrap_or(0);
        let rests = slept_ms > 0 && role == Role::Sink && item.input.is_some();
        let rested_ms = rests.then(|| item.event.created_ms + slept_ms);
        for not_before in due_ms.into_iter().chain(rested_ms) {
            self.begun.push(StartedEvent { what: item.event.id, at: now_ms, not_before });
        }
    }

    fn write(&mut self, workflow: usize, step: StepId, item: &Item) -> Outcome {
        let sink = &mut self.sinks[self.shapes.workflows[workflow].sinks[&step]];
        if self.now.0 < sink.down_until {
            return Outcome::Failed(Failure::retry("down", "the sink is away"));
        }
        let shape = &self.shapes.workflows[workflow];
        if let (Some(need), Some(_)) = (shape.journals, &item.input) {
            let of = (shape.graph.name.clone(), shape.graph[need].name.clone(), item.event.id);
            let journaled = self.stores[store_of(&shape.entity)].journal.checkpointed.contains(&of);
            self.effects.push(Effect { what: format!("{} for {}", sink.name, item.key), journaled });
        }
        let written = sink.write(&item.key, item.stamp, &item.input, self.now);
        if self.faulty && self.random.per_mille(self.options.steps.unknown) {
            return Outcome::Failed(Failure::retry("unknown", "the answer was lost"));
        }
        match written {
            Ok(()) => Outcome::Done(None),
            Err(stored) => Outcome::Stale { stored },
        }
    }
}

/// The step passes on its input: the row's document, a message's payload, or an element of a list.
fn carry(item: &Item) -> Document {
    let input = item.input.as_deref()?;
    if input.get("c").is_some() || !input.is_object() {
        return item.input.clone();
    }
    if let Some(payload) = input.get("payload").filter(|payload| payload.is_object()) {
        return Some(Arc::new(json!({ "c": payload["c"] })));
    }
    let needs = input.as_object().into_iter().flat_map(|needs| needs.values());
    let found = needs.filter(|need| need.get("c").is_some()).max_by_key(|need| need["c"].as_u64());
    Some(Arc::new(found.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()))))
}
