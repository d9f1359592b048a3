//! Rows become obligations, obligations become runs. A row owes one run per (entity, key, workflow) it leads to.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Event, EventId, Kind, Name, Target};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::{Intake, Leads, Taken};
use honeyflow_store::{
    Op,
    write::{Checkpoint, Checkpointed, FanOut, OF_LIST, Settled},
};
use honeyflow_workflow::{End, Exclusion, Order, Role, Run, State};
use smallvec::{SmallVec, smallvec};

use super::{
    Begun, Core, Row, deadline, each,
    fact::Fact,
    input::Effect,
    judge::Question,
    key::Owed,
    payload_bytes,
    pin::Owes,
    plan::SourceId,
    ready::{Ready, must_evaluate},
    run::{Life, RunState},
    settle::After,
    timer::{Timer, Waiting},
};
use crate::slots::Slot;

impl Core {
    pub(crate) fn polled(
        &mut self,
        source: SourceId,
        poll: u64,
        result: Result<Intake, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let limits = self.plan.limits.clone();
        let random = self.random();
        let now = self.now;
        let state = &mut self.sources[source as usize];
        if !state.poll.answered(poll) {
            return;
        }
        let intake = match result {
            Ok(intake) => intake,
            Err(failure) => {
                state.lingering.clear();
                state.poll.failed(now, &limits, random);
                self.counters.poll_failures += 1;
                self.counters.note_store_failure(&failure);
                return;
            }
        };
        let is_new =
            |taken: &&Taken| !state.known.contains_key(&taken.event.id) && !state.lingering.contains(&taken.event.id);
        let found = intake.taken.iter().filter(is_new).count();
        state.poll.harvested(&intake, found, now, &limits);
        if state.schema_version.is_some_and(|before| before != intake.schema_version) {
            // What was missing may be there now: tables come back at the end of a migration.
            state.poll.held.clear();
            state.poll.rewind();
            self.gates.clear_fatal();
            effects.push(Effect::Alarm {
                code: "schema-changed",
                message: format!("the schema behind source {} has changed", self.plan.sources[source as usize].name),
            });
        }
        let state = &mut self.sources[source as usize];
        state.schema_version = Some(intake.schema_version);
        #[expect(clippy::cast_possible_wrap, reason = "milliseconds since start are far below 2^63")]
        let local_ms = (now.0 / 1000) as i64;
        state.store_ahead_ms = intake.store_ms - local_ms;
        for oversized in &intake.oversized {
            let (bytes, max) = (oversized.bytes, self.plan.sources[source as usize].payload_bytes_max);
            let failure = if bytes > max {
                Failure::reject("payload-too-large", format!("the payload has {bytes} bytes, the limit is {max}"))
            } else {
                Failure::reject("unreadable-row", "its kind is unknown, or its payload is not what its format says")
            };
            self.park_row(source, oversized.id, failure);
        }
        self.take_up_again(source, intake.resumed, effects);
        let (rows_before, last) = (self.counters.events, intake.taken.last().map(|taken| taken.event.id));
        for taken in intake.taken {
            self.take(source, taken);
        }
        let state = &mut self.sources[source as usize];
        let eager = self.counters.events > rows_before || !state.checkpoints.is_empty();
        state.poll.swept(last, eager, now);
        self.sources[source as usize].lingering.clear();
    }

    fn take(&mut self, source: SourceId, taken: Taken) {
        let Taken { event, leads, .. } = taken;
        let state = &self.sources[source as usize];
        if state.known.contains_key(&event.id) && !crate::planted::on("PB-13") {
            self.counters.seen_again += 1;
            return;
        }
        if state.lingering.contains(&event.id) {
            return;
        }
        if !matches!(leads, Leads::To(_)) && self.is_stranded_row(source, event.id) {
            return;
        }
        match leads {
            Leads::To(targets) => self.admit(source, &event, &targets),
            Leads::Replace(by) => {
                // Whatever was begun for it is begun anew, for the rows that come in its place.
                self.uncover(source, &event, &[]);
                let row = self.remember(source, event.clone(), 1);
                self.push_op(source, Op::Replace { event: event.id, by }, After::RowGone(row));
            }
            Leads::Page(page) => {
                self.uncover(source, &event, &[]);
                let row = self.remember(source, event.clone(), 1);
                let limits = &self.plan.limits;
                let op = FanOut {
                    event: event.id,
                    root: page.root,
                    tenant: event.tenant.clone(),
                    entity: page.entity,
                    workflow: event.workflow.clone(),
                    statement: page.statement,
                    causes: page.causes,
                    after: page.after,
                    page: limits.fan_out_page,
                    pending_max: limits.fan_out_pending_max,
                };
                self.push_op(source, Op::FanOut(Box::new(op)), After::RowGone(row));
            }
            Leads::Unreadable(_) if crate::planted::on("PB-29") => {
                let op = Op::Settle { events: vec![event.id], runs: Vec::new() };
                self.push_op(source, op, After::Nothing);
            }
            Leads::Unreadable(failure) => self.park_row(source, event.id, failure),
            Leads::Held(failure) => self.sources[source as usize].poll.hold(&event, failure),
        }
    }

    fn park_row(&mut self, source: SourceId, event: EventId, failure: Failure) {
        for all in self.sources[source as usize].checkpoints.values_mut() {
            all.iter_mut().for_each(|checkpoint| checkpoint.covers.retain(|covered| *covered != event));
        }
        self.sources[source as usize].checkpoints.retain(|_, all| all.iter().all(|c| !c.covers.is_empty()));
        if self.sources[source as usize].settling.parking_rows.insert(event) {
            self.counters.parked += 1;
            self.push_op(source, Op::ParkRow { event, failure }, After::RowParked(event));
        }
    }

    fn remember(&mut self, source: SourceId, event: Arc<Event>, owes: u32) -> Slot {
        let id = event.id;
        self.counters.events += 1;
        self.payload_bytes += payload_bytes(&event);
        let state =
            Row { event, source, owes, unsettled: owes, matched: false, park_unmatched: false, rejected: Vec::new() };
        let row = self.rows.insert(state);
        self.sources[source as usize].known.insert(id, row);
        row
    }

    fn admit(&mut self, source: SourceId, event: &Arc<Event>, targets: &[Target]) {
        let plan = self.plan.clone();
        let entities = &plan.sources[source as usize].entities;
        let wanted = |workflow: usize| match &event.workflow {
            Some(name) => plan.workflows[workflow].name == *name,
            None => true,
        };
        let mut owed: Owes<'_> = SmallVec::new();
        for target in targets {
            let Some(entity) = entities.get(&target.entity) else { continue };
            owed.extend(entity.workflows.iter().filter(|w| wanted(**w)).map(|w| (target, entity.id, *w)));
        }
        self.pin(source, event, targets, &mut owed);
        if self.is_for_others(source, event, &owed) {
            return;
        }
        self.uncover(source, event, &owed);
        if self.would_overflow(source, event, &owed) || self.comes_too_early(source, event, targets, &owed) {
            return;
        }
        let asked = self.awaited_by(source, event, targets);
        let count = u32::try_from(owed.len() + asked.len()).unwrap_or(u32::MAX);
        let row = self.remember(source, event.clone(), count);
        let signals = self.keep_signals(source, event, targets);
        if let Some(row) = self.rows.get_mut(row) {
            row.matched = signals;
        }
        asked.into_iter().for_each(|(waiting, event)| self.ask_whether(waiting, event, Some(row)));
        if count == 0 {
            self.counters.unmatched += u64::from(!signals);
            self.push_op(source, Op::Settle { events: vec![event.id], runs: Vec::new() }, After::RowGone(row));
            return;
        }
        for (target, entity, workflow) in owed {
            // What was begun before is never decided again.
            let judge = self.must_judge(source as usize, target, workflow)
                && !matches!(
                    self.sources[source as usize].begun(event, &[(target, entity, workflow)], &plan),
                    Begun::Covers
                )
                && !self.is_stranded_run(source, event.id, workflow);
            if judge {
                self.judging.put(workflow, Question::Begins { row, entity, target: target.clone() });
            } else {
                self.begins(row, entity, target, workflow);
            }
        }
    }

    /// Edges are followed afresh: a row that a checkpoint covers may lead elsewhere by now, and its run goes on without
    /// it; without any it begins anew.
    fn uncover(&mut self, source: SourceId, event: &Event, owed: &[(&Target, u16, usize)]) {
        let plan = self.plan.clone();
        let leads = |run: &Settled| {
            *run.tenant == *event.tenant
                && owed.iter().any(|(target, _, workflow)| {
                    target.entity == run.entity
                        && target.key == run.key
                        && plan.workflows[*workflow].name == run.workflow
                })
        };
        self.sources[source as usize].checkpoints.retain(|run, all| {
            if !leads(run) {
                all.iter_mut().for_each(|checkpoint| checkpoint.covers.retain(|covered| *covered != event.id));
            }
            all.iter().all(|checkpoint| !checkpoint.covers.is_empty())
        });
    }

    /// A key remembers a bounded number of rows; the rest stays in the table until its run has ended.
    fn would_overflow(&mut self, source: SourceId, event: &Event, owed: &[(&Target, u16, usize)]) -> bool {
        let max = self.plan.limits.rows_per_key_max;
        match self.sources[source as usize].begun(event, owed, &self.plan) {
            // What was begun goes first: it must find room, and the others of its key wait in the table.
            Begun::Covers => return false,
            Begun::WithoutIt => {
                self.counters.overflowed += 1;
                return true;
            }
            Begun::Nothing => {}
        }
        let limits = &self.plan.limits;
        if self.busy_rows() >= limits.rows_max || self.busy_runs() + self.judging.len() >= limits.runs_max {
            self.sources[source as usize].crowded = true;
            self.counters.overflowed += 1;
            return true;
        }
        for (target, entity, _) in owed {
            let Some(slot) = self.keys.find(source, *entity, &event.tenant, &target.key) else { continue };
            let Some(key) = self.keys.get_mut(slot) else { continue };
            if key.owed.iter().map(|owed| owed.rows.len()).sum::<usize>() >= max {
                key.overflowed = true;
                self.counters.overflowed += 1;
                return true;
            }
        }
        false
    }

    /// The row joins the open run if no attempt has been given out yet, else it waits for the next.
    pub(crate) fn owe(&mut self, key_slot: Slot, workflow: usize, row_slot: Slot) {
        let Some(row) = self.rows.get(row_slot) else { return };
        let (event_id, event_kind, level) = (row.event.id, row.event.kind, row.event.priority);
        let rejected = row.is_rejected(workflow);
        let resumed = self.is_resumed_row(key_slot, workflow, event_id);
        let Some(key) = self.keys.get_mut(key_slot) else { return };
        for slot in key.open.iter().filter(|_| !resumed) {
            let Some(run) = self.runs.get_mut(*slot) else { continue };
            if run.workflow != workflow {
                continue;
            }
            let covers = run.extras.as_ref().and_then(|extras| extras.covers.as_ref());
            let joins = match covers {
                Some(covers) => covers.contains(&event_id),
                None => {
                    let open = !run.given || crate::planted::on("PB-15");
                    // A message is data of its own: it never merges.
                    let fresh = |row: &Slot| self.rows.get(*row).is_some_and(|row| row.event.kind == Kind::Row);
                    let merges = run.plan.order == Order::Latest && event_kind == Kind::Row && !rejected;
                    open && merges && run.rows.iter().all(fresh)
                }
            };
            if joins && run.life == Life::Open {
                run.rows.push(row_slot);
                self.counters.merged += 1;
                // Nothing of it has been touched, so that all that is ready stands in a queue.
                let untouched = !run.given && run.leased == 0 && run.extras.is_none();
                if untouched && level < run.level && run.plan.priority.is_none() {
                    run.level = level;
                    let graph = run.plan.graph.clone();
                    for step in graph.ids().filter(|step| run.run.state(&graph, *step) == State::Ready) {
                        let evaluate = must_evaluate(&graph.steps[step as usize]);
                        let queue = self.ready.queue(workflow, step, evaluate);
                        self.ready.push(queue, level, Ready { run: *slot, index: 0, since: self.now, level }, false);
                    }
                }
                return;
            }
        }
        match key.owed.iter_mut().find(|owed| owed.workflow == workflow) {
            Some(owed) => owed.rows.push(row_slot),
            None => {
                let at = key.owed.iter().position(|owed| owed.workflow > workflow).unwrap_or(key.owed.len());
                key.owed.insert(at, Owed { workflow, rows: smallvec![row_slot] });
            }
        }
    }

    /// Starts what the key's exclusion allows, in the order of the workflows.
    pub(crate) fn start_runs(&mut self, key_slot: Slot) {
        let mut at = 0;
        while !self.draining {
            let Some(key) = self.keys.get_mut(key_slot) else { return };
            let Some(owed) = key.owed.get_mut(at) else { break };
            let workflow = owed.workflow;
            let plan = self.plan.workflows[workflow].clone();
            let excluded = key.open.iter().any(|slot| {
                self.runs.get(*slot).is_some_and(|run| match plan.exclusion {
                    Exclusion::Key => run.is_exclusive() && !crate::planted::on("single-flight"),
                    Exclusion::Workflow => run.plan.name == plan.name,
                    Exclusion::None => false,
                })
            });
            if excluded || self.is_stranded_key(key_slot, workflow) {
                at += 1;
                continue;
            }
            let resumed = match self.resumed_rows(key_slot, at) {
                Resumed::Waits => {
                    at += 1;
                    continue;
                }
                Resumed::Rows(rows) => Some(rows),
                Resumed::Nothing => None,
            };
            let Some(key) = self.keys.get_mut(key_slot) else { return };
            let Some(owed) = key.owed.get_mut(at) else { break };
            let fresh = |row: &&Slot| {
                self.rows.get(**row).is_some_and(|row| row.event.kind == Kind::Row && !row.is_rejected(workflow))
            };
            let merging =
                if plan.order == Order::Latest { owed.rows.iter().take_while(fresh).count().max(1) } else { 1 };
            let rows: SmallVec<[Slot; 2]> = match resumed {
                Some(rows) => {
                    owed.rows.retain(|row| !rows.contains(row));
                    rows
                }
                None => owed.rows.drain(..merging).collect(),
            };
            if owed.rows.is_empty() {
                key.owed.remove(at);
            }
            let (source, entity) = (key.source, key.entity_name.clone());
            self.counters.merged += rows.len() as u64 - 1;
            self.begin(key_slot, source, entity, workflow, rows);
        }
        self.keys.release(key_slot);
    }

    /// Exactly the rows that the checkpoints of an earlier owner cover form the run that goes on; all others of the key
    /// wait for the next. It waits until all of them have been read: none of them can have gone.
    fn resumed_rows(&self, key_slot: Slot, at: usize) -> Resumed {
        let key = self.keys.get(key_slot);
        let source = &self.sources[key.source as usize];
        if source.checkpoints.is_empty() {
            return Resumed::Nothing;
        }
        let owed = &key.owed[at];
        let run = self.run_of(key_slot, owed.workflow);
        let Some(covers) = source.checkpoints.get(&run).and_then(|all| all.first()).map(|first| &first.covers) else {
            return Resumed::Nothing;
        };
        let covered = |row: &&Slot| self.rows.get(**row).is_some_and(|row| covers.contains(&row.event.id));
        let rows: SmallVec<[Slot; 2]> = owed.rows.iter().filter(covered).copied().collect();
        if rows.len() < covers.len() { Resumed::Waits } else { Resumed::Rows(rows) }
    }

    fn begin(&mut self, key: Slot, source: SourceId, entity: Name, workflow: usize, rows: SmallVec<[Slot; 2]>) {
        let plan = self.plan.workflows[workflow].clone();
        let level = plan.priority.unwrap_or_else(|| {
            rows.iter().filter_map(|row| self.rows.get(*row)).map(|row| row.event.priority).min().unwrap_or(4)
        });
        let mut ready = std::mem::take(&mut self.scratch_steps);
        ready.clear();
        let mut state = RunState {
            number: self.facts.next_run(),
            run: Run::begin(&plan.graph, &mut ready),
            plan,
            workflow,
            source,
            entity,
            key,
            rows,
            stamp: honeyflow_event::Stamp::default(),
            level: level.min(9),
            life: Life::Open,
            given: false,
            leased: 0,
            attempt: 0,
            outputs: None,
            extras: None,
            opened_at: self.now,
            deadline: Moment::FAR,
            dormant: false,
        };
        self.note_opened(&state);
        let (wait, delayed) = self.resume(&mut state, &mut ready);
        self.counters.opened(&state);
        let slot = self.runs.insert(state);
        if let Some(key) = self.keys.get_mut(key) {
            key.open.push(slot);
        }
        self.set_deadline(slot);
        // A step that is not ready yet has its own time once it is.
        for step in std::mem::take(&mut ready) {
            let due = delayed.iter().filter(|(other, _)| *other == step).map(|(_, wait)| *wait).max();
            let wait = wait.max(due.unwrap_or_default());
            if wait.is_zero() {
                ready.push(step);
            } else {
                let listed = self.runs.get(slot).is_some_and(|run| run.has_each(step));
                let index = if listed { OF_LIST } else { 0 };
                self.timers.set(self.now.after(wait), Timer::Cohort(vec![Waiting { run: slot, step, index }]));
            }
        }
        if self.fail_if_rejected(slot) {
            ready.clear();
        }
        self.make_ready(slot, &mut ready);
        self.scratch_steps = ready;
    }

    /// Whether the event begins the run could not be told: then it has failed before its first step.
    fn fail_if_rejected(&mut self, slot: Slot) -> bool {
        let Some(run) = self.runs.get_mut(slot) else { return false };
        let mut rejected = run.rows.iter().filter_map(|row| self.rows.get(*row)).flat_map(|row| &row.rejected);
        let of_workflow = rejected.find(|(workflow, _)| *workflow == run.workflow);
        let Some((_, failure)) = of_workflow else { return false };
        run.extras.get_or_insert_default().failed.insert(0, (0, 0, 1, failure.clone()));
        run.run.cancel(&run.plan.graph);
        true
    }

    /// Takes up what an earlier owner has left: charges and checkpoints. Returns how long the run as a whole still
    /// sleeps, and the steps that wait for their next try.
    fn resume(&mut self, state: &mut RunState, ready: &mut Vec<u16>) -> (Duration, Vec<(u16, Duration)>) {
        let source = &mut self.sources[state.source as usize];
        if source.charges.is_empty() && source.checkpoints.is_empty() {
            return (Duration::ZERO, Vec::new());
        }
        let run = self.settled(state);
        let source = &mut self.sources[state.source as usize];
        let mut delayed = Vec::new();
        for charged in source.charges.remove(&run).unwrap_or_default() {
            let Some(step) = state.plan.graph.step(&charged.step) else { continue };
            state.extra(step, charged.index).charges = charged.attempts;
            if !charged.due_in.is_zero() {
                delayed.push((step, charged.due_in));
            }
        }
        let checkpoints = source.checkpoints.remove(&run).unwrap_or_default();
        if checkpoints.is_empty() {
            return (Duration::ZERO, delayed);
        }
        // Rows that came before their turn were left where they are.
        if let Some(key) = self.keys.get_mut(state.key) {
            key.overflowed = true;
        }
        let source = &self.sources[state.source as usize];
        let store_now = source.store_ahead_ms + i64::try_from(self.now.0 / 1000).unwrap_or(i64::MAX);
        let (finished, wait) = restore(state, &checkpoints, ready, store_now, &mut delayed);
        if let Some(left) = deadline::left(&checkpoints, store_now) {
            state.deadline = self.now.after(left);
            state.extras.get_or_insert_default().deadline_kept = true;
        }
        let version = self.plan.number(state.source, state.workflow);
        self.facts.note(|| Fact::Resumed { run: state.number, began: checkpoints[0].version, version });
        for (step, _) in finished {
            self.facts.note(|| Fact::Ended { run: state.number, step });
        }
        (wait, delayed)
    }
}

/// A sleep goes on sleeping if all that it needs is kept. Else it counts as ended once the rest of its time has passed: what
/// it needed is loaded afresh then.
fn restore(
    state: &mut RunState,
    checkpoints: &[Checkpoint],
    ready: &mut Vec<u16>,
    store_now: i64,
    delayed: &mut Vec<(u16, Duration)>,
) -> (Vec<(u16, End)>, Duration) {
    let graph = state.plan.graph.clone();
    let mut finished = Vec::new();
    let mut asleep = Vec::new();
    let mut missing = false;
    let mut wait = Duration::ZERO;
    let covers = &checkpoints[0].covers;
    let of_run: Vec<&Checkpoint> = checkpoints.iter().filter(|checkpoint| checkpoint.covers == *covers).collect();
    each::restore(state, &graph, &of_run, &mut finished);
    for checkpoint in of_run {
        let Some(step) = graph.step(&checkpoint.step) else { continue };
        if graph.steps[step as usize].for_each.is_some() {
            continue;
        }
        match &checkpoint.outcome {
            Checkpointed::Done(output) => {
                finished.push((step, End::Succeeded));
                missing |= graph.steps[step as usize].role == Role::Load && output.is_none();
                state.keep_output(step, output.clone());
            }
            Checkpointed::Failed(failure) => {
                finished.push((step, End::Failed));
                let entry = (step, checkpoint.index, checkpoint.attempt, failure.clone());
                state.extras.get_or_insert_default().failed.push(entry);
            }
            Checkpointed::Skipped => finished.push((step, End::Skipped)),
            // What it needs is done once more: then it goes on waiting, as long as it still may.
            Checkpointed::Until(at_ms) if graph.steps[step as usize].role == Role::Wait => {
                state.extra(step, checkpoint.index).until_ms = Some(*at_ms);
            }
            Checkpointed::Until(at_ms) => {
                asleep.push((step, Duration::from_millis(u64::try_from(at_ms - store_now).unwrap_or(0))));
            }
        }
    }
    ready.clear();
    state.run = Run::restore(&graph, &finished, ready);
    if !asleep.is_empty() {
        for (step, left) in asleep {
            if ready.contains(&step) && !left.is_zero() {
                state.extra(step, 0).evaluated = true;
                delayed.push((step, left));
            } else {
                finished.push((step, End::Succeeded));
                wait = wait.max(left);
            }
        }
        ready.clear();
        state.run = Run::restore(&graph, &finished, ready);
    }
    if missing {
        state.run.missing();
    }
    state.extras.get_or_insert_default().covers = Some(covers.clone());
    (finished, wait)
}

/// What an earlier owner's checkpoints mean for a key's rows.
enum Resumed {
    Nothing,
    Rows(SmallVec<[Slot; 2]>),
    /// Not all of the covered rows have been read yet.
    Waits,
}
