//! The model database: `apply(now, request) → reply`, plain data in and out. It holds the application's rows, the
//! outbox and everything else that a store keeps, in ordered maps; each request is one transaction.
//!
//! It is not the product's memory backend: it also records what the invariants need, and lets transactions commit long
//! after they got their ids. The world draws the faults, not this file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use honeyflow_engine::planted;
use honeyflow_event::{Changes, Event, EventId, Key, Kind, Name, PRIORITY_FAN_OUT, PRIORITY_LEVELS};
use honeyflow_hive::contract::HIVE_TIME_START_MS;
use honeyflow_invariant::{fence::AcceptedWrite, loss::EventOutcome, pin::PinnedVersion};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply, NewEvent, Op, Poll, PollReply, RecoveredState, Reply, Request, RunKey, Signal, SignalQuery,
    admin::{Definition, NewDefinition, Versions},
    poll::{Sweep, UnreadRow},
    write::{Checkpoint, CheckpointOutcome, FanOut, ParkRequest, Pause, StoredFailure},
};
use serde_json::{Value, json};

use crate::model_hive::ModelHive;

/// Where simulated time begins, in milliseconds since 1970.
const START_MS: i64 = HIVE_TIME_START_MS + 200_000_000_000;

#[derive(Clone, Debug)]
pub struct OutboxRow {
    pub event: Event,
    pub ready_ms: Option<i64>,
    pub shard: u16,
}

#[derive(Clone, Debug)]
pub struct ParkedEntry {
    pub run: RunKey,
    /// 0, unless the entry is about a single message or row.
    pub event: EventId,
    pub step: Name,
    pub version: u32,
    pub code: String,
}

/// A step of a run: run, step and index.
pub type OfStep = (RunKey, Name, u32);

#[derive(Debug, Default)]
pub struct ModelStore {
    pub hive: ModelHive,
    pub shards: u16,
    pub outbox: BTreeMap<EventId, OutboxRow>,
    next_id: EventId,
    pub parked: Vec<ParkedEntry>,
    failures: BTreeMap<OfStep, (u32, i64, Failure)>,
    checkpoints: BTreeMap<OfStep, Checkpoint>,
    /// When each checkpoint was stored, as the journal counts.
    checkpointed_at: BTreeMap<OfStep, u64>,
    /// The keys to which a cause leads, as an edge statement would find them.
    pub edges: BTreeMap<Key, BTreeSet<Key>>,
    /// Deduplication marks of finished messages.
    dedupe: BTreeSet<(Name, Arc<str>, Arc<str>)>,
    pub paused: Vec<Pause>,
    /// Signals with the times since when and until when they are kept; numbered from 1.
    signals: Vec<(i64, i64, Arc<Event>)>,
    pub schema_version: i64,
    definitions: Vec<Definition>,
    pub journal: Journal,
}

/// The history of the store, for the invariants. `at` counts the world's events.
#[derive(Debug, Default)]
pub struct Journal {
    pub at: u64,
    pub accepted: Vec<AcceptedWrite>,
    pub fenced: u64,
    pub ends: BTreeMap<EventId, Vec<(EventOutcome, u64)>>,
    pub parks: Vec<Park>,
    pub charges: Vec<(RunKey, Name)>,
    pub emitted: Vec<Arc<str>>,
    /// What was done for a row that names its workflow, apart from the run of that workflow.
    pub misled: Vec<String>,
    /// The checkpoints that have ever committed: workflow, step and a row that it covers.
    pub checkpointed: BTreeSet<(Name, Name, EventId)>,
    /// The version of every checkpoint that was ever stored.
    pub pinned: Vec<PinnedVersion>,
    /// How many runs have ended, by run key.
    pub ended: BTreeMap<RunKey, u64>,
    /// Every event that was ever visible.
    pub stored: BTreeMap<EventId, Event>,
    /// When an event is due, by the store's clock.
    pub due: BTreeMap<EventId, i64>,
}

#[derive(Clone, Debug)]
pub struct Park {
    pub run: RunKey,
    pub step: Name,
    pub cancelled: bool,
    /// If the run was parked for its deadline, the milliseconds since its oldest event was stored.
    pub overdue_after_ms: Option<i64>,
    pub at: u64,
}

impl ModelStore {
    pub fn new(shards: u16) -> ModelStore {
        ModelStore { shards, schema_version: 1, ..ModelStore::default() }
    }

    /// Milliseconds since 1970 on the store's clock.
    pub fn clock_ms(now_us: u64) -> i64 {
        START_MS + i64::try_from(now_us / 1000).unwrap_or(i64::MAX / 2)
    }

    pub fn hive_ms(now_us: u64) -> u64 {
        (Self::clock_ms(now_us) - HIVE_TIME_START_MS).cast_unsigned()
    }

    /// Takes an event id. A transaction does so when it inserts, long before it commits.
    pub fn take_id(&mut self) -> EventId {
        self.next_id += 1;
        self.next_id
    }

    pub fn insert(&mut self, event: Event, ready_ms: Option<i64>) {
        let shard = shard_of(&event.key, self.shards);
        self.next_id = self.next_id.max(event.id);
        self.journal.ends.entry(event.id).or_default();
        self.journal.stored.insert(event.id, event.clone());
        self.journal.due.extend(ready_ms.map(|at| (event.id, at)));
        self.outbox.insert(event.id, OutboxRow { event, ready_ms, shard });
    }

    pub fn apply(&mut self, now_us: u64, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Poll(poll) => Ok(Reply::Polled(self.poll(now_us, &poll))),
            Request::Write(write) => {
                let journals = |op: &Op| matches!(op, Op::Checkpoint(_) | Op::Charge { .. });
                let unchecked = planted::on("PB-2") && write.ops.iter().all(journals);
                if !self.hive.admits(&write.fence) && !unchecked {
                    self.journal.fenced += 1;
                    return Ok(Reply::Fenced);
                }
                let accepted = AcceptedWrite { lease: write.fence.lease().clone(), epoch: write.fence.epoch() };
                self.journal.accepted.push(accepted);
                for op in write.ops {
                    self.perform(now_us, op);
                }
                Ok(Reply::Committed)
            }
            Request::Append { events, .. } => {
                let ids = events.into_iter().map(|event| self.append(now_us, event)).collect();
                Ok(Reply::Appended { ids, repeated: false })
            }
            Request::Recover { shard } => Ok(Reply::Recovered(self.recover(now_us, shard))),
            Request::Signals(wanted) => {
                Ok(Reply::Signals(wanted.iter().map(|wanted| self.signals(now_us, wanted)).collect()))
            }
            Request::Admin(Admin::PutDefinitions(wanted)) => {
                Ok(Reply::Admin(AdminReply::Versions(self.put_definitions(now_us, wanted))))
            }
            Request::Admin(Admin::Definitions { workflow }) => {
                let mut all = self.definitions.clone();
                all.retain(|known| workflow.as_ref().is_none_or(|workflow| *workflow == known.workflow));
                all.sort_by(|a, b| (&a.workflow, a.version).cmp(&(&b.workflow, b.version)));
                Ok(Reply::Admin(AdminReply::Definitions(all)))
            }
            Request::Admin(Admin::Waiting { events }) => {
                let waiting = events.into_iter().filter(|id| self.outbox.contains_key(id));
                Ok(Reply::Admin(AdminReply::Ids(waiting.collect())))
            }
            Request::Load(_) | Request::Admin(_) => {
                Err(Failure::reject("not-modelled", "scripted steps read the model's rows themselves"))
            }
        }
    }

    fn put_definitions(&mut self, now_us: u64, wanted: Vec<NewDefinition>) -> Versions {
        let mut versions = Versions::default();
        let mut put = BTreeSet::new();
        for NewDefinition { workflow, content } in wanted {
            let known = self.definitions.iter().filter(|known| known.workflow == workflow);
            let newest = known.clone().map(|known| known.version).max().unwrap_or(0);
            let version = known.filter(|known| known.content == content).map(|known| known.version).max();
            let version = version.unwrap_or_else(|| {
                let created_ms = Self::clock_ms(now_us);
                self.definitions.push(Definition {
                    workflow: workflow.clone(),
                    version: newest + 1,
                    content,
                    created_ms,
                });
                newest + 1
            });
            versions.numbers.push(version);
            put.insert((workflow, version));
        }
        let checkpoints = self.checkpoints.values().map(|kept| (kept.run.workflow.clone(), kept.version));
        let parked = self.parked.iter().map(|entry| (entry.run.workflow.clone(), entry.version));
        let named: BTreeSet<(Name, u32)> = checkpoints.chain(parked).filter(|name| !put.contains(name)).collect();
        versions.begun = self.definitions.clone();
        versions.begun.retain(|known| named.contains(&(known.workflow.clone(), known.version)));
        versions.begun.sort_by(|a, b| (&a.workflow, a.version).cmp(&(&b.workflow, b.version)));
        versions
    }

    fn append(&mut self, now_us: u64, new: NewEvent) -> EventId {
        let id = self.take_id();
        let store_ms = Self::clock_ms(now_us);
        let event = Event {
            id,
            format: 1,
            kind: new.kind,
            tenant: new.tenant,
            entity: new.entity,
            key: new.key,
            priority: new.priority,
            workflow: new.workflow,
            created_ms: store_ms,
            dedupe: new.dedupe,
            traceparent: new.traceparent,
            root: new.root,
            change: new.change,
            columns: new.columns,
            payload: new.payload,
        };
        let ready_ms = new.delay.map(|delay| store_ms + i64::try_from(delay.as_millis()).unwrap_or(0));
        self.insert(event, ready_ms);
        id
    }

    fn perform(&mut self, now_us: u64, op: Op) {
        match op {
            Op::Settle { events, runs } => {
                for event in events {
                    if let Some(row) = self.remove(event, EventOutcome::Settled)
                        && let Some(dedupe) = row.event.dedupe
                    {
                        self.dedupe.insert((row.event.entity, row.event.key, dedupe));
                    }
                }
                for run in &runs {
                    self.clear(run);
                }
            }
            Op::Charge { run, step, index, attempts, due_in, failure } => {
                self.journal.charges.push((run.clone(), step.clone()));
                let due = Self::clock_ms(now_us) + i64::try_from(due_in.as_millis()).unwrap_or(0);
                let entry = self.failures.entry((run, step, index)).or_insert((0, 0, failure.clone()));
                if attempts > entry.0 {
                    *entry = (attempts, due, failure);
                }
            }
            Op::Park(parked) => {
                self.note_misled("parked", &parked.run.workflow, &parked.events);
                self.park(now_us, *parked);
            }
            Op::ParkRow { event, failure } => {
                if let Some(row) = self.remove(event, EventOutcome::Parked) {
                    let Event { tenant, entity, key, workflow, .. } = row.event;
                    let workflow = workflow.unwrap_or_else(|| "".into());
                    let run = RunKey { tenant, entity, key, workflow };
                    self.parked.push(ParkedEntry {
                        run,
                        event,
                        step: "".into(),
                        version: 0,
                        code: failure.code.into_owned(),
                    });
                }
            }
            Op::Checkpoint(checkpoint) => {
                self.note_misled("stored a checkpoint", &checkpoint.run.workflow, &checkpoint.covers);
                self.checkpoint(now_us, *checkpoint);
            }
            Op::Signal { event, keep } => {
                let now = Self::clock_ms(now_us);
                let until = now + i64::try_from(keep.as_millis()).unwrap_or(0);
                let event = event.stored();
                self.note_misled("stored a signal", "", &[event.id]);
                if !self
                    .signals
                    .iter()
                    .any(|(_, _, kept)| (kept.id, &kept.entity, &kept.key) == (event.id, &event.entity, &event.key))
                {
                    self.signals.push((now, until, Arc::new(event)));
                }
            }
            Op::Replace { event, by } => {
                self.note_misled("replaced the row", "", &[event]);
                if self.remove(event, EventOutcome::Replaced).is_some() {
                    for new in by {
                        self.append(now_us, new);
                    }
                }
            }
            Op::FanOut(page) => self.fan_out(now_us, &page),
            Op::History(_) => {}
        }
    }

    /// Notes the rows that name another workflow than the one that worked with them.
    fn note_misled(&mut self, what: &str, workflow: &str, events: &[EventId]) {
        for event in events {
            let Some(wanted) = self.journal.stored.get(event).and_then(|stored| stored.workflow.as_ref()) else {
                continue;
            };
            if **wanted != *workflow {
                self.journal.misled.push(format!("event {event} names {wanted}, and `{workflow}` has {what} for it"));
            }
        }
    }

    /// Writes one page of a fan-out. The next position gets a new row, so that a repetition finds none.
    fn fan_out(&mut self, now_us: u64, page: &FanOut) {
        let waits = |row: &&OutboxRow| row.event.kind == Kind::Row && row.event.priority == PRIORITY_FAN_OUT;
        if self.outbox.values().filter(waits).count() >= page.pending_max as usize {
            return;
        }
        let Some(row) = self.remove(page.event, EventOutcome::Replaced) else { return };
        let mut found: BTreeSet<Key> =
            page.causes.iter().filter_map(|cause| self.edges.get(cause)).flatten().cloned().collect();
        found.retain(|key| page.after.as_ref().is_none_or(|after| key > after));
        let keys: Vec<Key> = found.into_iter().take(page.page as usize).collect();
        let last = keys.last().filter(|_| keys.len() >= page.page as usize).cloned();
        let blank = NewEvent {
            kind: Kind::Row,
            tenant: page.tenant.clone(),
            entity: page.entity.clone(),
            key: "".into(),
            priority: PRIORITY_FAN_OUT,
            workflow: page.workflow.clone(),
            delay: None,
            dedupe: None,
            traceparent: None,
            root: Some(page.root),
            change: Changes::RELATED,
            columns: None,
            payload: Some(page.payload.clone()),
        };
        for key in keys {
            self.append(now_us, NewEvent { key, ..blank.clone() });
        }
        if let Some(last) = last {
            let position: Option<Value> = row.event.payload.as_deref().and_then(|text| serde_json::from_str(text).ok());
            let mut position = position.unwrap_or_else(|| json!({}));
            position["after"] = json!(*last);
            let (entity, key) = (row.event.entity, row.event.key);
            let (kind, payload) = (Kind::FanOut, Some(position.to_string().into()));
            let change = Changes::UNKNOWN;
            self.append(now_us, NewEvent { kind, entity, key, change, payload, ..blank });
        }
    }

    fn remove(&mut self, event: EventId, fate: EventOutcome) -> Option<OutboxRow> {
        let row = self.outbox.remove(&event)?;
        let at = self.journal.at;
        self.journal.ends.entry(event).or_default().push((fate, at));
        Some(row)
    }

    fn clear(&mut self, run: &RunKey) {
        *self.journal.ended.entry(run.clone()).or_default() += 1;
        self.failures.retain(|(of, ..), _| of != run);
        self.checkpoints.retain(|(of, ..), _| of != run);
        // A parked message contains its own data, so a later success does not heal it; it heals only rows, which are
        // read again.
        self.parked.retain(|entry| entry.run != *run || entry.event != 0);
    }

    fn park(&mut self, now_us: u64, parked: ParkRequest) {
        let ParkRequest { run, message, events, step, version, failure, .. } = parked;
        let event = message.unwrap_or(0);
        let cancelled = failure.code == "cancelled";
        self.parked.retain(|entry| entry.run != run || entry.step != step || entry.event != event);
        let created = events.iter().filter_map(|id| self.outbox.get(id)).map(|row| row.event.created_ms).min();
        let overdue_after_ms =
            (failure.code == "deadline").then(|| Self::clock_ms(now_us) - created.unwrap_or(i64::MIN / 2));
        let code = failure.code.into_owned();
        self.parked.push(ParkedEntry { run: run.clone(), event, step: step.clone(), version, code });
        self.journal.parks.push(Park { run: run.clone(), step, cancelled, overdue_after_ms, at: self.journal.at });
        *self.journal.ended.entry(run.clone()).or_default() += 1;
        self.failures.retain(|(of, ..), _| *of != run);
        self.checkpoints.retain(|(of, ..), _| *of != run);
        for event in events {
            self.remove(event, EventOutcome::Parked);
        }
    }

    /// Stores a checkpoint. The first outcome stays, except that the end of a wait replaces its begin.
    fn checkpoint(&mut self, now_us: u64, checkpoint: Checkpoint) {
        let of = (checkpoint.run.clone(), checkpoint.step.clone(), checkpoint.index);
        for event in &checkpoint.covers {
            let workflow = checkpoint.run.workflow.clone();
            self.journal.checkpointed.insert((workflow, checkpoint.step.clone(), *event));
        }
        let waits = |outcome: &CheckpointOutcome| matches!(outcome, CheckpointOutcome::Until(_));
        if let Some(stored) = self.checkpoints.get(&of)
            && (!waits(&stored.outcome) || waits(&checkpoint.outcome))
            && (!planted::on("PB-19") || checkpoint.emit.is_empty())
        {
            return;
        }
        let Checkpoint { run, covers, version, phase, .. } = &checkpoint;
        // The same rows may form another run, if they have another obligation and their owner is lost.
        let ended = self.journal.ended.get(run).copied().unwrap_or(0);
        let run = format!("{}/{}/{} of {covers:?}, after {ended} others", run.entity, run.key, run.workflow);
        self.journal.pinned.push(PinnedVersion { run, phase: *phase, version: *version });
        for new in &checkpoint.emit {
            self.journal.emitted.extend(new.dedupe.clone());
            self.append(now_us, new.clone());
        }
        self.checkpointed_at.insert(of.clone(), self.journal.at);
        self.checkpoints.insert(of, Checkpoint { emit: Vec::new(), ..checkpoint });
    }

    /// Whether the step was recorded as done by that time, in the run that this event belongs to.
    pub fn was_done(&self, of: &OfStep, event: EventId, by: u64) -> bool {
        let done =
            |kept: &Checkpoint| matches!(kept.outcome, CheckpointOutcome::Done(_)) && kept.covers.contains(&event);
        self.checkpoints.get(of).is_some_and(done) && self.checkpointed_at.get(of).is_some_and(|at| *at < by)
    }

    fn signals(&self, now_us: u64, wanted: &SignalQuery) -> Vec<Signal> {
        let now = Self::clock_ms(now_us);
        let numbered = (1..).zip(&self.signals).filter(|(id, (kept, until, event))| {
            *id > wanted.after
                && *kept >= wanted.since_ms
                && *until > now
                && event.tenant == wanted.tenant
                && event.entity == wanted.name
                && wanted.key.as_ref().is_none_or(|key| event.key == *key)
        });
        let found = numbered.map(|(id, (_, _, event))| Signal { id, event: event.clone() });
        found.take(wanted.limit as usize).collect()
    }

    /// The checkpoints of a key: step and the rows they cover.
    pub fn journaled(&self, key: &str) -> Vec<(Name, Vec<EventId>)> {
        let of_key = self.checkpoints.iter().filter(|((run, ..), _)| &*run.key == key);
        of_key.map(|((_, step, _), checkpoint)| (step.clone(), checkpoint.covers.clone())).collect()
    }

    fn recover(&self, now_us: u64, shard: u16) -> RecoveredState {
        let store_ms = Self::clock_ms(now_us);
        let is_ours = |run: &RunKey| shard_of(&run.key, self.shards) == shard;
        let failures = self.failures.iter().filter(|((run, ..), _)| is_ours(run)).map(
            |((run, step, index), (attempts, due, failure))| StoredFailure {
                run: run.clone(),
                step: step.clone(),
                index: *index,
                attempts: *attempts,
                due_in: Duration::from_millis((due - store_ms).max(0).cast_unsigned()),
                failure: failure.clone(),
            },
        );
        let is_there = |checkpoint: &&Checkpoint| checkpoint.covers.iter().all(|id| self.outbox.contains_key(id));
        let ours = self.checkpoints.values().filter(|checkpoint| is_ours(&checkpoint.run));
        let mut checkpoints: Vec<Checkpoint> = ours.filter(is_there).cloned().collect();
        checkpoints.sort_by(|a, b| (&a.run, a.phase, a.stamp).cmp(&(&b.run, b.phase, b.stamp)));
        RecoveredState { failures: failures.collect(), checkpoints, paused: self.paused.clone(), store_ms }
    }

    fn poll(&mut self, now_us: u64, poll: &Poll) -> PollReply {
        let store_ms = Self::clock_ms(now_us);
        let mut polled = PollReply { store_ms, schema_version: self.schema_version, ..PollReply::default() };
        let mut repeats = Vec::new();
        match &poll.sweep {
            Some(sweep) => self.sweep(poll, sweep, &mut polled, &mut repeats),
            None => {
                polled.looked_to = poll.levels.map(|level| level.after);
                for priority in 0..PRIORITY_LEVELS {
                    self.level(poll, priority, &mut polled, &mut repeats);
                }
                self.newest(poll, &mut polled, &mut repeats);
            }
        }
        let delayed = self.outbox.values().filter(|row| row.shard == poll.shard).filter_map(|row| row.ready_ms);
        polled.next_due_ms = delayed.filter(|at| *at > store_ms).min().map(|at| (at - store_ms).cast_unsigned());
        for event in repeats {
            self.remove(event, EventOutcome::Settled);
        }
        polled
    }

    fn level(&self, poll: &Poll, priority: usize, polled: &mut PollReply, repeats: &mut Vec<EventId>) {
        let level = poll.levels[priority];
        let mut room = level.room;
        let of_level = |row: &&OutboxRow| row.shard == poll.shard && usize::from(row.event.priority) == priority;
        let early = if planted::on("early start of a delayed event") { 1_000 } else { 0 };
        let due = |row: &&OutboxRow| {
            row.ready_ms.is_some_and(|at| at <= polled.store_ms + early) && !passes_over(poll, &row.event)
        };
        let mut found: Vec<&OutboxRow> =
            self.outbox.values().filter(of_level).filter(due).take(room as usize).collect();
        room -= u32::try_from(found.len()).unwrap_or(room);
        for row in self.outbox.range(level.after + 1..).map(|(_, row)| row).filter(of_level) {
            if room == 0 {
                break;
            }
            if row.ready_ms.is_some() {
                continue;
            }
            polled.looked_to[priority] = row.event.id;
            if !passes_over(poll, &row.event) {
                room -= 1;
                found.push(row);
            }
        }
        found.sort_by_key(|row| row.event.id);
        for row in found {
            self.read(poll, row, polled, repeats);
        }
    }

    fn newest(&self, poll: &Poll, polled: &mut PollReply, repeats: &mut Vec<EventId>) {
        let there: BTreeSet<EventId> = polled.events.iter().map(|event| event.id).collect();
        let fresh = |row: &&OutboxRow| {
            let after = poll.levels[usize::from(row.event.priority).min(9)].after;
            row.shard == poll.shard
                && row.ready_ms.is_none()
                && row.event.id > after
                && !there.contains(&row.event.id)
                && !passes_over(poll, &row.event)
        };
        let mut found: Vec<&OutboxRow> = self.outbox.values().rev().filter(fresh).take(poll.newest as usize).collect();
        found.reverse();
        let before = polled.events.len();
        for row in found {
            self.read(poll, row, polled, repeats);
        }
        polled.newest = polled.events.len() - before;
    }

    fn sweep(&self, poll: &Poll, sweep: &Sweep, polled: &mut PollReply, repeats: &mut Vec<EventId>) {
        let wanted = |row: &&OutboxRow| {
            row.shard == poll.shard
                && row.ready_ms.is_none_or(|at| at <= polled.store_ms)
                && sweep.known.binary_search(&row.event.id).is_err()
                && !passes_over(poll, &row.event)
        };
        let range = self.outbox.range(sweep.from..=sweep.to.max(sweep.from)).map(|(_, row)| row);
        let found: Vec<&OutboxRow> = range.filter(wanted).take(sweep.room as usize).collect();
        for row in found {
            self.read(poll, row, polled, repeats);
        }
    }

    fn read(&self, poll: &Poll, row: &OutboxRow, polled: &mut PollReply, repeats: &mut Vec<EventId>) {
        let event = &row.event;
        if let Some(dedupe) = &event.dedupe
            && self.dedupe.contains(&(event.entity.clone(), event.key.clone(), dedupe.clone()))
        {
            repeats.push(event.id);
            return;
        }
        let bytes = event.payload.as_ref().map_or(0, |payload| payload.len() as u64);
        if bytes > poll.payload_bytes_max {
            let oversized = UnreadRow { id: event.id, bytes };
            if !polled.oversized.contains(&oversized) {
                polled.oversized.push(oversized);
            }
            return;
        }
        polled.events.push(event.clone());
    }
}

fn passes_over(poll: &Poll, event: &Event) -> bool {
    poll.passed_over.iter().any(|passed| passed.entity == event.entity && passed.workflow == event.workflow)
}

pub fn shard_of(key: &str, shards: u16) -> u16 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    u16::try_from((hash >> 17) % u64::from(shards.max(1))).unwrap_or(0)
}
