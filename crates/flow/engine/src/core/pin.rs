//! What was begun goes on by the version it began with: its number stands in its checkpoints. What has none begins by
//! the newest.
//!
//! A version that cannot be worked by here (its definition is not stored, a kind or sink of it is gone) strands its
//! runs: their rows stay, nothing newer of the key passes them in their workflow, and people are told. Nothing is
//! dropped, and whoever has the definition goes on.

use honeyflow_event::{Event, EventId, Name, Target};
use honeyflow_store::write::{Checkpoint, OF_RUN, Settled};
use serde::Serialize;
use smallvec::SmallVec;

use super::{
    Core, SourceState,
    gate::Closed,
    input::Effect,
    people::{RunView, StepView},
    plan::SourceId,
};
use crate::slots::Slot;

/// An obligation: the document, its entity, and the workflow's plan.
pub(crate) type Owes<'t> = SmallVec<[(&'t Target, u16, usize); 2]>;

/// A run that nobody here can go on with.
pub(crate) struct Stranded {
    version: u32,
    covers: Vec<EventId>,
    /// Steps that are done.
    steps: Vec<Name>,
}

/// Runs of a version that wait for a node that can work by it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NoWorker {
    pub source: Name,
    pub workflow: Name,
    pub version: u32,
    pub runs: usize,
    pub why: String,
}

impl SourceState {
    /// Whether the row belongs to a run that is stranded.
    fn is_stranded(&self, event: EventId) -> bool {
        !self.stranded.is_empty() && self.stranded.values().any(|stranded| stranded.covers.contains(&event))
    }
}

impl Core {
    /// Files what an earlier owner, or a retried entry, has left: to be gone on with, or stranded.
    pub(crate) fn take_up(&mut self, source: SourceId, checkpoints: Vec<Checkpoint>, effects: &mut Vec<Effect>) {
        for checkpoint in checkpoints {
            let state = &mut self.sources[source as usize];
            let Err(why) = self.plan.pinned(source, &checkpoint.run.workflow, checkpoint.version) else {
                state.checkpoints.entry(checkpoint.run.clone()).or_default().push(checkpoint);
                continue;
            };
            let Checkpoint { run, version, covers, step, .. } = checkpoint;
            let is_news =
                |(other, known): (&Settled, &Stranded)| other.workflow != run.workflow || known.version != version;
            if state.stranded.iter().all(is_news) {
                let message = format!("runs of workflow {} wait: version {version} {why}", run.workflow);
                effects.push(Effect::Alarm { code: "no-worker", message });
            }
            let stranded = state.stranded.entry(run).or_insert_with(|| Stranded { version, covers, steps: Vec::new() });
            if *step != *OF_RUN {
                stranded.steps.push(step);
            }
        }
    }

    /// A poll has found rows that take a run up again. Of a row in flight it tells what is known already.
    pub(crate) fn take_up_again(&mut self, source: SourceId, mut kept: Vec<Checkpoint>, effects: &mut Vec<Effect>) {
        if kept.is_empty() {
            return;
        }
        let state = &self.sources[source as usize];
        let is_new = |event: &EventId| !state.known.contains_key(event) && !state.lingering.contains(event);
        kept.retain(|checkpoint| {
            checkpoint.covers.iter().all(is_new)
                && !state.checkpoints.contains_key(&checkpoint.run)
                && !state.stranded.contains_key(&checkpoint.run)
        });
        self.take_up(source, kept, effects);
    }

    /// What was begun for a row is owed to the version it began with, also where the configuration leads the row
    /// elsewhere now, or has the workflow no more.
    pub(crate) fn pin<'t>(&self, source: SourceId, event: &Event, targets: &'t [Target], owed: &mut Owes<'t>) {
        let state = &self.sources[source as usize];
        if state.checkpoints.is_empty() {
            return;
        }
        for target in targets {
            let first = Settled {
                tenant: event.tenant.clone(),
                entity: target.entity.clone(),
                key: target.key.clone(),
                workflow: "".into(),
            };
            let of_key =
                |run: &Settled| run.tenant == first.tenant && run.entity == first.entity && run.key == first.key;
            for (run, kept) in state.checkpoints.range(first.clone()..).take_while(|(run, _)| of_key(run)) {
                let Some(kept) = kept.first().filter(|kept| kept.covers.contains(&event.id)) else { continue };
                let Ok(pinned) = self.plan.pinned(source, &run.workflow, kept.version) else { continue };
                let same = |owes: &&mut (&Target, u16, usize)| {
                    owes.0 == target && self.plan.workflows[owes.2].name == run.workflow
                };
                if let Some(owes) = owed.iter_mut().find(same) {
                    owes.2 = if crate::planted::on("unpinned replay") { owes.2 } else { pinned };
                } else if let Some(entity) = self.plan.sources[source as usize].entities.get(&target.entity) {
                    owed.push((target, entity.id, pinned));
                }
            }
        }
    }

    /// Whether the row must stay where it is because somebody else can work on it, perhaps: it belongs to a run whose
    /// workflow is not owed here, or is for a workflow alone that is not configured any more.
    pub(crate) fn is_for_others(&mut self, source: SourceId, event: &Event, owed: &Owes<'_>) -> bool {
        let state = &self.sources[source as usize];
        let is_owed = |workflow: &Name| owed.iter().any(|(_, _, at)| self.plan.workflows[*at].name == *workflow);
        let mut stranded = state.stranded.iter().filter(|(_, stranded)| stranded.covers.contains(&event.id));
        if stranded.any(|(run, _)| !is_owed(&run.workflow)) {
            return true;
        }
        let Some(workflow) = event.workflow.as_ref().filter(|_| owed.is_empty()) else { return false };
        let is_current = self.plan.workflows.iter().any(|planned| !planned.older && planned.name == *workflow);
        let mut versions = self.plan.sources[source as usize].versions.iter();
        // What never had a definition here is no work of anybody's.
        if is_current || !versions.any(|known| known.workflow == *workflow) {
            return false;
        }
        let left = (event.entity.clone(), workflow.clone());
        let lefts = &mut self.sources[source as usize].left;
        if !lefts.contains(&left) {
            lefts.push(left);
        }
        true
    }

    /// Whether the row belongs to a run of the workflow that is stranded: it has begun, whatever the newest version
    /// says of its events.
    pub(crate) fn is_stranded_run(&self, source: SourceId, event: EventId, workflow: usize) -> bool {
        let stranded = &self.sources[source as usize].stranded;
        let name = &self.plan.workflows[workflow].name;
        stranded.iter().any(|(run, stranded)| run.workflow == *name && stranded.covers.contains(&event))
    }

    /// A row of a stranded run stays as it is, wherever it leads now.
    pub(crate) fn is_stranded_row(&self, source: SourceId, event: EventId) -> bool {
        self.sources[source as usize].is_stranded(event)
    }

    /// Whether a run of the key must not begin in this workflow, because one that began is stranded.
    pub(crate) fn is_stranded_key(&self, key: Slot, workflow: usize) -> bool {
        let stranded = &self.sources[self.keys.get(key).source as usize].stranded;
        !stranded.is_empty() && stranded.contains_key(&self.run_of(key, workflow))
    }

    /// Which run of the key, for the store: versions do not tell them apart.
    pub(crate) fn run_of(&self, key: Slot, workflow: usize) -> Settled {
        let key = self.keys.get(key);
        Settled {
            tenant: key.tenant.clone(),
            entity: key.entity_name.clone(),
            key: key.key.clone(),
            workflow: self.plan.workflows[workflow].name.clone(),
        }
    }

    /// Whether the row takes up a run that began before: it joins no other.
    pub(crate) fn is_resumed_row(&self, key: Slot, workflow: usize, event: EventId) -> bool {
        let checkpoints = &self.sources[self.keys.get(key).source as usize].checkpoints;
        if checkpoints.is_empty() {
            return false;
        }
        let kept = checkpoints.get(&self.run_of(key, workflow)).and_then(|kept| kept.first());
        kept.is_some_and(|first| first.covers.contains(&event))
    }

    pub(crate) fn no_worker(&self) -> Vec<NoWorker> {
        let mut all: Vec<NoWorker> = Vec::new();
        for (source, (planned, state)) in self.plan.sources.iter().zip(&self.sources).enumerate() {
            for (run, stranded) in &state.stranded {
                let same = |known: &&mut NoWorker| {
                    known.source == planned.name && known.workflow == run.workflow && known.version == stranded.version
                };
                if let Some(known) = all.iter_mut().find(same) {
                    known.runs += 1;
                    continue;
                }
                let why = self.plan.pinned(super::id(source), &run.workflow, stranded.version).err();
                all.push(NoWorker {
                    source: planned.name.clone(),
                    workflow: run.workflow.clone(),
                    version: stranded.version,
                    runs: 1,
                    why: why.unwrap_or_default(),
                });
            }
        }
        all
    }

    /// The same, beside every other reason why something waits.
    pub(crate) fn without_worker(&self) -> Vec<Closed> {
        let versions = self.no_worker().into_iter().map(|none| Closed {
            name: none.workflow,
            reason: "no-worker",
            detail: format!("version {} {}; {} runs wait for it", none.version, none.why, none.runs),
        });
        let left = self.sources.iter().flat_map(|source| &source.left).map(|(entity, workflow)| Closed {
            name: workflow.clone(),
            reason: "no-worker",
            detail: format!("events of {entity} are for this workflow alone, which is not configured any more"),
        });
        versions.chain(left).collect()
    }

    pub(crate) fn stranded_views(&self, key: Option<&str>) -> Vec<RunView> {
        let mut views = Vec::new();
        for (planned, state) in self.plan.sources.iter().zip(&self.sources) {
            let wanted = |run: &Settled| key.is_none_or(|key| *run.key == *key);
            views.extend(state.stranded.iter().filter(|(run, _)| wanted(run)).map(|(run, stranded)| {
                let done = |name: &Name| StepView { name: name.clone(), state: "succeeded", charges: 0, retries: 0 };
                RunView {
                    number: 0,
                    workflow: run.workflow.clone(),
                    version: stranded.version,
                    entity: run.entity.clone(),
                    key: run.key.to_string(),
                    source: planned.name.clone(),
                    events: stranded.covers.len(),
                    level: 0,
                    open_ms: 0,
                    attempts: 0,
                    waits_for: "no-worker",
                    steps: stranded.steps.iter().map(done).collect(),
                }
            }));
        }
        views
    }
}
