//! A run continues by the definition version that it began with: the version number is in its checkpoints. A run
//! without checkpoints begins by the newest version.
//!
//! If this node cannot execute a version (its definition is not stored, or a kind or sink of it is gone), its runs are
//! stranded: their rows stay in the table, no newer run of the key begins in that workflow, and an alarm is raised.
//! Nothing is dropped: a node that has the definition continues the run.

use honeyflow_event::{Event, EventId, Kind, Name, PRIORITY_REINDEX, Target};
use honeyflow_source::Lead;
use honeyflow_store::write::{Checkpoint, RunKey, WHOLE_RUN_STEP};
use serde::Serialize;
use smallvec::SmallVec;

use super::{
    Core, SourceState,
    gate::ClosedGate,
    input::Effect,
    plan::SourceId,
    run_view::{RunView, StepView},
};
use crate::{codes, slots::Slot};

/// The obligations of a row: target, entity and the index of the workflow's plan.
pub(crate) type Obligations<'t> = SmallVec<[(&'t Target, u16, usize); 2]>;

/// A run that this node cannot continue, because it cannot execute its version.
pub(crate) struct StrandedRun {
    version: u32,
    covers: Vec<EventId>,
    /// The steps that have checkpoints.
    steps: Vec<Name>,
}

/// The runs of one version that wait for a node that can execute it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StrandedVersion {
    pub source: Name,
    pub workflow: Name,
    pub version: u32,
    pub runs: usize,
    pub why: String,
}

impl SourceState {
    /// Whether the row belongs to a stranded run.
    fn is_stranded(&self, event: EventId) -> bool {
        !self.stranded.is_empty() && self.stranded.values().any(|stranded| stranded.covers.contains(&event))
    }
}

impl Core {
    /// Takes over the checkpoints that an earlier owner, or the retry of a parked run, has left: each run is either to
    /// be resumed, or stranded.
    pub(crate) fn file_checkpoints(
        &mut self,
        source: SourceId,
        checkpoints: Vec<Checkpoint>,
        effects: &mut Vec<Effect>,
    ) {
        for checkpoint in checkpoints {
            let state = &mut self.sources[source as usize];
            let Err(why) = self.plan.find_version(source, &checkpoint.run.workflow, checkpoint.version) else {
                state.checkpoints.entry(checkpoint.run.clone()).or_default().push(checkpoint);
                continue;
            };
            let Checkpoint { run, version, covers, step, .. } = checkpoint;
            let is_news =
                |(other, known): (&RunKey, &StrandedRun)| other.workflow != run.workflow || known.version != version;
            if state.stranded.iter().all(is_news) {
                let message = format!("runs of workflow {} wait: version {version} {why}", run.workflow);
                effects.push(Effect::Alarm { code: codes::alarm::NO_WORKER, message });
            }
            let stranded =
                state.stranded.entry(run).or_insert_with(|| StrandedRun { version, covers, steps: Vec::new() });
            if *step != *WHOLE_RUN_STEP {
                stranded.steps.push(step);
            }
        }
    }

    /// Takes over the checkpoints of rows that a poll has found. For a row in flight they are known already.
    pub(crate) fn file_polled_checkpoints(
        &mut self,
        source: SourceId,
        mut kept: Vec<Checkpoint>,
        effects: &mut Vec<Effect>,
    ) {
        if kept.is_empty() {
            return;
        }
        let state = &self.sources[source as usize];
        let is_new = |event: &EventId| !state.in_flight.contains_key(event) && !state.lingering.contains(event);
        kept.retain(|checkpoint| {
            checkpoint.covers.iter().all(is_new)
                && !state.checkpoints.contains_key(&checkpoint.run)
                && !state.stranded.contains_key(&checkpoint.run)
        });
        self.file_checkpoints(source, kept, effects);
    }

    /// Makes a run that was begun for the row an obligation of the version it began with, even if the configuration
    /// leads the row elsewhere now or no longer has the workflow.
    pub(crate) fn pin_versions<'t>(
        &self,
        source: SourceId,
        event: &Event,
        leads: &'t [Lead],
        owed: &mut Obligations<'t>,
    ) {
        let state = &self.sources[source as usize];
        if state.checkpoints.is_empty() {
            return;
        }
        for Lead { target, .. } in leads {
            let first = RunKey {
                tenant: event.tenant.clone(),
                entity: target.entity.clone(),
                key: target.key.clone(),
                workflow: "".into(),
            };
            let of_key =
                |run: &RunKey| run.tenant == first.tenant && run.entity == first.entity && run.key == first.key;
            for (run, kept) in state.checkpoints.range(first.clone()..).take_while(|(run, _)| of_key(run)) {
                let Some(kept) = kept.first().filter(|kept| kept.covers.contains(&event.id)) else { continue };
                let Ok(pinned) = self.plan.find_version(source, &run.workflow, kept.version) else { continue };
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

    /// Whether the row must stay in the table because another node may be able to work on it: it belongs to a stranded
    /// run of a workflow that is not owed here, or is addressed to one workflow that is no longer configured. A row of a
    /// fill or reindex does not wait for a workflow that is gone: nothing has changed, and a later fill reads it again.
    pub(crate) fn is_for_others(&mut self, source: SourceId, event: &Event, owed: &Obligations<'_>) -> bool {
        let state = &self.sources[source as usize];
        let is_owed = |workflow: &Name| owed.iter().any(|(_, _, at)| self.plan.workflows[*at].name == *workflow);
        let mut stranded = state.stranded.iter().filter(|(_, stranded)| stranded.covers.contains(&event.id));
        if stranded.any(|(run, _)| !is_owed(&run.workflow)) {
            return true;
        }
        let Some(workflow) = event.workflow.as_ref().filter(|_| owed.is_empty()) else { return false };
        let is_current = self.plan.workflows.iter().any(|planned| !planned.older && planned.name == *workflow);
        let mut versions = self.plan.sources[source as usize].versions.iter();
        // A workflow that never had a definition here cannot be executed by any node.
        let is_fill = event.kind == Kind::Row && event.priority == PRIORITY_REINDEX;
        if is_current || is_fill || !versions.any(|known| known.workflow == *workflow) {
            return false;
        }
        let left = (event.entity.clone(), workflow.clone());
        let lefts = &mut self.sources[source as usize].unconfigured;
        if !lefts.contains(&left) {
            lefts.push(left);
        }
        true
    }

    /// Whether the row belongs to a stranded run of the workflow. That run has begun; the `when` of the newest version
    /// is not asked.
    pub(crate) fn is_stranded_run(&self, source: SourceId, event: EventId, workflow: usize) -> bool {
        let stranded = &self.sources[source as usize].stranded;
        let name = &self.plan.workflows[workflow].name;
        stranded.iter().any(|(run, stranded)| run.workflow == *name && stranded.covers.contains(&event))
    }

    /// Whether the row belongs to a stranded run: it stays as it is, even if it leads elsewhere now.
    pub(crate) fn is_stranded_row(&self, source: SourceId, event: EventId) -> bool {
        self.sources[source as usize].is_stranded(event)
    }

    /// Whether no run of the key may begin in this workflow, because an earlier one is stranded.
    pub(crate) fn is_stranded_key(&self, key: Slot, workflow: usize) -> bool {
        let stranded = &self.sources[self.keys.get(key).source as usize].stranded;
        !stranded.is_empty() && stranded.contains_key(&self.run_identity_of(key, workflow))
    }

    /// Returns the identity of the key's run in the store, which does not contain the version.
    pub(crate) fn run_identity_of(&self, key: Slot, workflow: usize) -> RunKey {
        let key = self.keys.get(key);
        RunKey {
            tenant: key.tenant.clone(),
            entity: key.entity_name.clone(),
            key: key.key.clone(),
            workflow: self.plan.workflows[workflow].name.clone(),
        }
    }

    /// Whether the row belongs to a run that is to be resumed: it joins no other run.
    pub(crate) fn is_resumed_row(&self, key: Slot, workflow: usize, event: EventId) -> bool {
        let checkpoints = &self.sources[self.keys.get(key).source as usize].checkpoints;
        if checkpoints.is_empty() {
            return false;
        }
        let kept = checkpoints.get(&self.run_identity_of(key, workflow)).and_then(|kept| kept.first());
        kept.is_some_and(|first| first.covers.contains(&event))
    }

    pub(crate) fn stranded_versions(&self) -> Vec<StrandedVersion> {
        let mut all: Vec<StrandedVersion> = Vec::new();
        for (source, (planned, state)) in self.plan.sources.iter().zip(&self.sources).enumerate() {
            for (run, stranded) in &state.stranded {
                let same = |known: &&mut StrandedVersion| {
                    known.source == planned.name && known.workflow == run.workflow && known.version == stranded.version
                };
                if let Some(known) = all.iter_mut().find(same) {
                    known.runs += 1;
                    continue;
                }
                let why = self.plan.find_version(super::id(source), &run.workflow, stranded.version).err();
                all.push(StrandedVersion {
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

    /// Returns the stranded versions and unconfigured workflows as closed gates, for the list of reasons to wait.
    pub(crate) fn stranded_gates(&self) -> Vec<ClosedGate> {
        let versions = self.stranded_versions().into_iter().map(|none| ClosedGate {
            name: none.workflow,
            reason: "no-worker",
            detail: format!("version {} {}; {} runs wait for it", none.version, none.why, none.runs),
        });
        let left = self.sources.iter().flat_map(|source| &source.unconfigured).map(|(entity, workflow)| ClosedGate {
            name: workflow.clone(),
            reason: "no-worker",
            detail: format!("events of {entity} are addressed to this workflow, which is no longer configured"),
        });
        versions.chain(left).collect()
    }

    pub(crate) fn stranded_views(&self, key: Option<&str>) -> Vec<RunView> {
        let mut views = Vec::new();
        for (planned, state) in self.plan.sources.iter().zip(&self.sources) {
            let wanted = |run: &RunKey| key.is_none_or(|key| *run.key == *key);
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
