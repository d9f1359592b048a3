//! The tables beside the outbox: failures, checkpoints, parked entries, dedupe marks, pauses, tasks, history, signals.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hashbrown::HashMap;
use honeyflow_event::{Changes, Event, EventId, Key, Kind, Name, Priority};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    RunKey, Signal, SignalQuery,
    admin::{ParkedFilter, RetryMode, Task},
    write::{Checkpoint, CheckpointOutcome, Pause, StoredFailure, WHOLE_RUN_STEP},
};

use crate::definition::Definitions;

/// How long a `dedupe` mark or an idempotency key is remembered.
pub(crate) const DEDUPE_MS: i64 = 24 * 60 * 60 * 1000;

const HISTORY_MAX: usize = 10_000;
/// The number of newest history entries that are compared to detect a repeated write: a repeat follows the first write
/// closely.
const REPEATS_LOOKED_AT: usize = 64;

#[derive(Default)]
pub(crate) struct Journal {
    failures: BTreeMap<(RunKey, Name, u32), Charge>,
    /// The key is: run, id of the parked entry that owns the checkpoint (0: a live run), phase, step and index.
    checkpoints: BTreeMap<(RunKey, i64, u32, Name, u32), Checkpoint>,
    pub parked: BTreeMap<i64, Entry>,
    parked_last: i64,
    done: HashMap<(Name, Name, Key, Arc<str>), i64>,
    pub requests: HashMap<String, StoredRequest>,
    pauses: BTreeMap<(String, String), Pause>,
    pub tasks: BTreeMap<(String, String), Task>,
    pub history: Vec<serde_json::Value>,
    pub definitions: Definitions,
    signals: BTreeMap<i64, StoredSignal>,
    signals_last: i64,
}

/// A stored event for which a run may wait.
struct StoredSignal {
    event: Arc<Event>,
    kept_ms: i64,
    until_ms: i64,
}

struct Charge {
    attempts: u32,
    due_ms: i64,
    failure: Failure,
}

/// A stored request of the event endpoint, remembered by its idempotency key.
pub(crate) struct StoredRequest {
    pub body_hash: u64,
    pub ids: Vec<EventId>,
    pub until_ms: i64,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub tenant: Name,
    pub entity: Name,
    pub key: Key,
    pub workflow: Option<Name>,
    pub step: Name,
    /// The id of the message's row; 0 if a run reads the current data.
    pub event: EventId,
    pub format: u16,
    pub kind: Kind,
    pub priority: Priority,
    pub version: u32,
    pub attempts: u32,
    pub failure: Failure,
    pub change: Changes,
    pub columns: Option<Arc<str>>,
    pub payload: Option<Arc<str>>,
    pub parked_ms: i64,
}

impl Entry {
    fn item(&self) -> (&Name, &Name, &Key, &Option<Name>, &Name, EventId) {
        (&self.tenant, &self.entity, &self.key, &self.workflow, &self.step, self.event)
    }

    pub fn run(&self) -> Option<RunKey> {
        let (tenant, entity, key) = (self.tenant.clone(), self.entity.clone(), self.key.clone());
        Some(RunKey { tenant, entity, key, workflow: self.workflow.clone()? })
    }
}

pub(crate) fn matches(filter: &ParkedFilter, id: i64, entry: &Entry) -> bool {
    let ParkedFilter { id: wanted, tenant, entity, key, workflow, code } = filter;
    wanted.is_none_or(|wanted| wanted == id)
        && tenant.as_ref().is_none_or(|tenant| *tenant == entry.tenant)
        && entity.as_ref().is_none_or(|entity| *entity == entry.entity)
        && key.as_ref().is_none_or(|key| *key == entry.key)
        && workflow.as_ref().is_none_or(|workflow| Some(workflow) == entry.workflow.as_ref())
        && code.as_ref().is_none_or(|code| **code == *entry.failure.code)
}

impl Journal {
    pub fn is_done(&self, event: &Event, now_ms: i64) -> bool {
        let Some(dedupe) = &event.dedupe else { return false };
        let mark = (event.tenant.clone(), event.entity.clone(), event.key.clone(), dedupe.clone());
        self.done.get(&mark).is_some_and(|until_ms| *until_ms > now_ms)
    }

    pub fn mark_done(&mut self, event: Event, now_ms: i64) {
        if let Some(dedupe) = event.dedupe {
            self.done.insert((event.tenant, event.entity, event.key, dedupe), now_ms + DEDUPE_MS);
        }
    }

    /// Removes everything stored for a run that has succeeded, except parked messages: they carry their own data.
    pub fn clear(&mut self, run: &RunKey) {
        self.clear_failures(run);
        if !self.checkpoints.is_empty() {
            let parked = &self.parked;
            let kept = |id: i64| parked.get(&id).is_some_and(|entry| entry.event != 0);
            self.checkpoints.retain(|(of, parked, ..), _| of != run || kept(*parked));
        }
        if !self.parked.is_empty() {
            self.parked.retain(|_, entry| entry.event != 0 || entry.run().as_ref() != Some(run));
        }
    }

    pub fn clear_failures(&mut self, run: &RunKey) {
        if !self.failures.is_empty() {
            self.failures.retain(|(of, ..), _| of != run);
        }
    }

    /// Stores the counted attempts of an item. A repeated write has the same number of attempts and must not delay the
    /// due time.
    pub fn charge(&mut self, run: RunKey, step: Name, index: u32, attempts: u32, due_ms: i64, failure: Failure) {
        let charge = Charge { attempts, due_ms, failure };
        self.failures
            .entry((run, step, index))
            .and_modify(|stored| {
                if attempts > stored.attempts {
                    *stored = Charge { attempts, due_ms, failure: charge.failure.clone() };
                }
            })
            .or_insert(charge);
    }

    pub fn failures(&self, now_ms: i64) -> impl Iterator<Item = StoredFailure> {
        self.failures.iter().map(move |((run, step, index), charge)| StoredFailure {
            run: run.clone(),
            step: step.clone(),
            index: *index,
            attempts: charge.attempts,
            due_in: Duration::from_millis((charge.due_ms - now_ms).max(0).cast_unsigned()),
            failure: charge.failure.clone(),
        })
    }

    /// Stores a checkpoint; returns whether it was stored. The first outcome stays; only the start of a wait is
    /// replaced by its end.
    pub fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> bool {
        let Checkpoint { run, phase, step, index, .. } = &checkpoint;
        let place = (run.clone(), 0, *phase, step.clone(), *index);
        match self.checkpoints.get_mut(&place) {
            Some(stored) => {
                let ends_wait = matches!(stored.outcome, CheckpointOutcome::Until(_))
                    && !matches!(checkpoint.outcome, CheckpointOutcome::Until(_));
                if ends_wait {
                    // The covered rows were fixed when the wait started.
                    let covers = std::mem::take(&mut stored.covers);
                    *stored = Checkpoint { covers, emit: Vec::new(), ..checkpoint };
                }
                ends_wait
            }
            None => {
                self.checkpoints.insert(place, Checkpoint { emit: Vec::new(), ..checkpoint });
                true
            }
        }
    }

    /// Returns the checkpoints of runs whose rows are for one workflow alone, if all those rows are in `events`.
    pub fn resumed(&self, events: &[Event]) -> Vec<Checkpoint> {
        if self.checkpoints.is_empty() {
            return Vec::new();
        }
        let is_there = |id: &EventId| events.iter().any(|event| event.id == *id);
        let of_one = |id: Option<&EventId>, workflow: &Name| {
            events.iter().any(|event| Some(&event.id) == id && event.workflow.as_ref() == Some(workflow))
        };
        let resumed =
            |kept: &Checkpoint| of_one(kept.covers.first(), &kept.run.workflow) && kept.covers.iter().all(is_there);
        self.checkpoints().into_iter().filter(resumed).collect()
    }

    /// Returns whether a checkpoint or a parked event names the version.
    pub fn names_version(&self, workflow: &str, version: u32) -> bool {
        self.checkpoints.values().any(|kept| *kept.run.workflow == *workflow && kept.version == version)
            || self.parked.values().any(|entry| entry.workflow.as_deref() == Some(workflow) && entry.version == version)
    }

    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.checkpoints.iter().filter(|((_, parked, ..), _)| *parked == 0).map(|(_, stored)| stored.clone()).collect()
    }

    /// Parks an item; an equal item is parked once. Its outputs are stored with the parked entry.
    pub fn park(&mut self, entry: Entry) {
        let known = self.parked.iter().find(|(_, stored)| stored.item() == entry.item()).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            self.parked_last += 1;
            self.parked_last
        });
        if let Some(run) = entry.run() {
            self.clear_failures(&run);
            self.move_checkpoints(&run, 0, id, None);
        }
        self.parked.insert(id, entry);
    }

    /// Removes a parked entry that is retried as `event`; the outputs that `mode` keeps become those of `event`.
    pub fn take_up(&mut self, id: i64, event: EventId, mode: &RetryMode) {
        let Some(run) = self.parked.remove(&id).and_then(|entry| entry.run()) else { return };
        self.clear_failures(&run);
        // The retry executes failed steps again.
        let is_kept = |step: &Name, kept: &Checkpoint| match mode {
            _ if matches!(kept.outcome, CheckpointOutcome::Failed(_)) || **step == *WHOLE_RUN_STEP => false,
            RetryMode::Continue => true,
            RetryMode::Without(steps) => !steps.contains(step),
            RetryMode::FromStart => false,
        };
        self.checkpoints.retain(|(_, parked, _, step, _), kept| *parked != id || is_kept(step, kept));
        self.move_checkpoints(&run, id, 0, Some(event));
    }

    pub fn drop_parked(&mut self, id: i64) {
        self.parked.remove(&id);
        self.checkpoints.retain(|(_, parked, ..), _| *parked != id);
    }

    fn move_checkpoints(&mut self, run: &RunKey, from: i64, to: i64, covers: Option<EventId>) {
        let moved: Vec<_> =
            self.checkpoints.keys().filter(|(of, parked, ..)| of == run && *parked == from).cloned().collect();
        for place in moved {
            let Some(mut checkpoint) = self.checkpoints.remove(&place) else { continue };
            checkpoint.covers = covers.map_or(checkpoint.covers, |event| vec![event]);
            let (run, _, phase, step, index) = place;
            let place = (run, to, phase, step, index);
            // The output of a live run is newer than a parked one.
            if to != 0 || !self.checkpoints.contains_key(&place) {
                self.checkpoints.insert(place, checkpoint);
            }
        }
    }

    /// Stores the history of an ended run once: a repeated write has the same steps, times included.
    pub fn put_history(&mut self, mut ended: serde_json::Value, now_ms: i64) {
        let same = |stored: &serde_json::Value| {
            ["tenant", "entity", "key", "workflow", "version", "verdict", "steps"]
                .iter()
                .all(|field| stored[field] == ended[field])
        };
        if !self.history.iter().rev().take(REPEATS_LOOKED_AT).any(same) {
            ended["ended_ms"] = now_ms.into();
            self.history.push(ended);
        }
        if self.history.len() > HISTORY_MAX {
            self.history.drain(..HISTORY_MAX / 10);
        }
    }

    pub fn put_signal(&mut self, event: Event, kept_ms: i64, until_ms: i64) {
        self.signals.retain(|_, kept| kept.until_ms > kept_ms);
        let name = |event: &Event| (event.id, event.tenant.clone(), event.entity.clone(), event.key.clone());
        if !self.signals.values().any(|kept| name(&kept.event) == name(&event)) {
            self.signals_last += 1;
            self.signals.insert(self.signals_last, StoredSignal { event: Arc::new(event), kept_ms, until_ms });
        }
    }

    pub fn signals(&self, wanted: &SignalQuery, now_ms: i64) -> Vec<Signal> {
        let meets = |kept: &&StoredSignal| {
            kept.event.tenant == wanted.tenant
                && kept.event.entity == wanted.name
                && wanted.key.as_ref().is_none_or(|key| kept.event.key == *key)
                && kept.kept_ms >= wanted.since_ms
                && kept.until_ms > now_ms
        };
        self.signals
            .range(wanted.after.saturating_add(1)..)
            .filter(|(_, kept)| meets(kept))
            .take(wanted.limit as usize)
            .map(|(id, kept)| Signal { id: *id, event: Arc::clone(&kept.event) })
            .collect()
    }

    pub fn pause(&mut self, pause: Pause, now_ms: i64) {
        let place = (pause.noun.clone(), pause.name.clone());
        let since_ms = self.pauses.get(&place).map_or(now_ms, |stored| stored.since_ms);
        self.pauses.insert(place, Pause { since_ms, ..pause });
    }

    pub fn resume(&mut self, noun: String, name: String) {
        self.pauses.remove(&(noun, name));
    }

    pub fn paused(&self) -> Vec<Pause> {
        self.pauses.values().cloned().collect()
    }
}
