//! Turns polled rows into obligations, and obligations into runs. A row owes one run per (entity, key, workflow) that
//! it leads to.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Event, EventId, Kind, Name, Target, view::related_payload};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::{Intake, Lead, Leads, TakenEvent};
use honeyflow_store::{
    Op,
    write::{Checkpoint, CheckpointOutcome, FanOut, LIST_INDEX, RunKey},
};
use honeyflow_workflow::{End, Exclusion, Order, Role, Run, State};
use smallvec::{SmallVec, smallvec};

use super::{
    Core, EarlierRun, Row, deadline,
    event_check::PendingCheck,
    fact::Fact,
    for_each,
    input::Effect,
    key::OwedRows,
    payload_bytes,
    plan::SourceId,
    ready::{ReadyItem, must_evaluate},
    run::{RunPhase, RunState},
    settle::OnCommit,
    timer::{Timer, WaitingStep},
    version_pin::Obligations,
};
use crate::{codes, slots::Slot};

impl Core {
    pub(crate) fn on_polled(
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
        if !state.poll.accept_answer(poll) {
            return;
        }
        let intake = match result {
            Ok(intake) => intake,
            Err(failure) => {
                state.lingering.clear();
                state.poll.on_failed(now, &limits, random);
                self.counters.poll_failures += 1;
                self.counters.note_store_failure(&failure);
                return;
            }
        };
        let is_new = |taken: &&TakenEvent| {
            !state.in_flight.contains_key(&taken.event.id) && !state.lingering.contains(&taken.event.id)
        };
        let found = intake.taken.iter().filter(is_new).count();
        state.poll.on_polled(&intake, found, now, &limits);
        if state.schema_version.is_some_and(|before| before != intake.schema_version) {
            // Tables that were missing may exist now: at the end of a migration they come back.
            state.poll.held.clear();
            state.poll.rewind();
            self.gates.clear_fatal();
            effects.push(Effect::Alarm {
                code: codes::alarm::SCHEMA_CHANGED,
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
                Failure::reject(codes::PAYLOAD_TOO_LARGE, format!("the payload has {bytes} bytes, the limit is {max}"))
            } else {
                Failure::reject(
                    codes::UNREADABLE_ROW,
                    "its kind is unknown, or its payload is not what its format says",
                )
            };
            self.park_row(source, oversized.id, failure);
        }
        self.file_polled_checkpoints(source, intake.resumed, effects);
        let (rows_before, last) = (self.counters.events, intake.taken.last().map(|taken| taken.event.id));
        for taken in intake.taken {
            self.take_event(source, taken);
        }
        let state = &mut self.sources[source as usize];
        let eager = self.counters.events > rows_before || !state.checkpoints.is_empty();
        state.poll.on_swept(last, eager, now);
        self.sources[source as usize].lingering.clear();
    }

    fn take_event(&mut self, source: SourceId, taken: TakenEvent) {
        let TakenEvent { event, leads, .. } = taken;
        let state = &self.sources[source as usize];
        if state.in_flight.contains_key(&event.id) && !crate::planted::on("PB-13") {
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
            Leads::To(leads) => self.admit(source, &event, &leads),
            Leads::Replace(by) => {
                // A run that was begun for this row begins again, for the rows that replace it.
                self.uncover(source, &event, &[]);
                let row = self.remember(source, event.clone(), &[], 1);
                self.push_op(source, Op::Replace { event: event.id, by }, OnCommit::RowGone(row));
            }
            Leads::Page(page) => {
                self.uncover(source, &event, &[]);
                let row = self.remember(source, event.clone(), &[], 1);
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
                    payload: related_payload(&event.entity, &event.key, page.root),
                    pending_max: limits.fan_out_pending_max,
                };
                self.push_op(source, Op::FanOut(Box::new(op)), OnCommit::RowGone(row));
            }
            Leads::Unreadable(_) if crate::planted::on("PB-29") => {
                let op = Op::Settle { events: vec![event.id], runs: Vec::new() };
                self.push_op(source, op, OnCommit::Nothing);
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
            self.push_op(source, Op::ParkRow { event, failure }, OnCommit::RowParked(event));
        }
    }

    fn remember(&mut self, source: SourceId, event: Arc<Event>, leads: &[Lead], owes: u32) -> Slot {
        let id = event.id;
        self.counters.events += 1;
        self.payload_bytes += payload_bytes(&event);
        let leads = if leads.iter().all(|lead| lead.change == event.change) { &[] } else { leads };
        let state = Row {
            event,
            source,
            leads: leads.into(),
            owes,
            unsettled: owes,
            matched: false,
            park_unmatched: false,
            rejected: Vec::new(),
        };
        let row = self.rows.insert(state);
        self.sources[source as usize].in_flight.insert(id, row);
        row
    }

    fn admit(&mut self, source: SourceId, event: &Arc<Event>, leads: &[Lead]) {
        let plan = self.plan.clone();
        let entities = &plan.sources[source as usize].entities;
        let wanted = |workflow: usize| match &event.workflow {
            Some(name) => plan.workflows[workflow].name == *name || crate::planted::on("PB-42"),
            None => true,
        };
        let mut owed: Obligations<'_> = SmallVec::new();
        for Lead { target, .. } in leads {
            let Some(entity) = entities.get(&target.entity) else { continue };
            owed.extend(entity.workflows.iter().filter(|w| wanted(**w)).map(|w| (target, entity.id, *w)));
        }
        self.pin_versions(source, event, leads, &mut owed);
        if self.is_for_others(source, event, &owed) {
            return;
        }
        let lacks_facts = self.drop_unwanted_changes(source, event, leads, &mut owed);
        self.uncover(source, event, &owed);
        if self.would_overflow(source, event, &owed) || self.is_too_early(source, event, leads, &owed) {
            return;
        }
        let waiters = self.waiters_of(source, event, leads);
        let count = u32::try_from(owed.len() + waiters.len()).unwrap_or(u32::MAX);
        let row = self.remember(source, event.clone(), leads, count);
        self.counters.unknown_changes += u64::from(lacks_facts);
        let signals = self.store_signals(source, event, leads);
        if let Some(row) = self.rows.get_mut(row) {
            row.matched = signals;
        }
        waiters.into_iter().for_each(|(waiting, event)| self.check_match(waiting, event, Some(row)));
        if count == 0 {
            self.counters.unmatched += u64::from(!signals);
            self.push_op(source, Op::Settle { events: vec![event.id], runs: Vec::new() }, OnCommit::RowGone(row));
            return;
        }
        for (target, entity, workflow) in owed {
            // If the run was begun before, whether the event begins it is not decided again.
            let check = self.must_check(row, target, workflow)
                && !matches!(
                    self.sources[source as usize].earlier_run(event, &[(target, entity, workflow)], &plan),
                    EarlierRun::Covers
                )
                && !self.is_stranded_run(source, event.id, workflow);
            if check {
                self.event_checks.add(workflow, PendingCheck::Begins { row, entity, target: target.clone() });
            } else {
                self.owe_run(row, entity, target, workflow);
            }
        }
    }

    /// Removes the obligations to workflows that do not ask for this change of the row. A row that names its workflow,
    /// or that belongs to a run that was begun, is not judged: that was decided before. Returns whether a workflow passed
    /// over the row because it does not say what changed.
    fn drop_unwanted_changes(
        &self,
        source: SourceId,
        event: &Event,
        leads: &[Lead],
        owed: &mut Obligations<'_>,
    ) -> bool {
        let filters = |workflow: usize| self.event_checks.filters_changes(workflow);
        if event.workflow.is_some() || !owed.iter().any(|(_, _, workflow)| filters(*workflow)) {
            return false;
        }
        let (plan, mut unknown) = (self.plan.clone(), false);
        owed.retain(|(target, entity, workflow)| {
            if !self.event_checks.filters_changes(*workflow) {
                return true;
            }
            let state = &self.sources[source as usize];
            let owes = [(*target, *entity, *workflow)];
            if matches!(state.earlier_run(event, &owes, &plan), EarlierRun::Covers)
                || self.is_stranded_run(source, event.id, *workflow)
            {
                return true;
            }
            let change = leads.iter().find(|lead| lead.target == **target).map_or(event.change, |lead| lead.change);
            let source = &plan.sources[source as usize].name;
            let ons = plan.workflows[*workflow].graph.on.iter();
            let ons = || ons.clone().filter(|on| on.source == *source && on.entity == target.entity);
            let accepted = ons().any(|on| on.accepts(change, event.columns.as_deref()))
                || (change.is_unknown() && crate::planted::on("PB-39"));
            unknown |= !accepted && ons().any(|on| on.lacks_facts(change, event.columns.as_deref()));
            accepted
        });
        unknown
    }

    /// Removes the row from checkpoints that it no longer leads to. Edges are followed again at each poll, so a covered
    /// row may lead elsewhere by now: its run continues without it. A run that no row is left for begins again from the
    /// start.
    fn uncover(&mut self, source: SourceId, event: &Event, owed: &[(&Target, u16, usize)]) {
        let plan = self.plan.clone();
        let leads = |run: &RunKey| {
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

    /// A key holds at most `rows_per_key_max` rows in memory; the others stay in the table until its run has ended.
    fn would_overflow(&mut self, source: SourceId, event: &Event, owed: &[(&Target, u16, usize)]) -> bool {
        let max = self.plan.limits.rows_per_key_max;
        match self.sources[source as usize].earlier_run(event, owed, &self.plan) {
            // A run that was begun goes first: it is always let in, and the other rows of its key wait in the table.
            EarlierRun::Covers => return false,
            EarlierRun::WithoutIt => {
                self.counters.overflowed += 1;
                return true;
            }
            EarlierRun::Nothing => {}
        }
        let limits = &self.plan.limits;
        if self.busy_rows() >= limits.rows_max || self.busy_runs() + self.event_checks.len() >= limits.runs_max {
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

    /// Adds the row to the key's open run if no attempt has been given out yet; else the row waits for the next run.
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
                    // A message carries its own data: it never merges.
                    let fresh = |row: &Slot| self.rows.get(*row).is_some_and(|row| row.event.kind == Kind::Row);
                    let merges = run.plan.order == Order::Latest && event_kind == Kind::Row && !rejected;
                    open && merges && run.rows.iter().all(fresh)
                }
            };
            if joins && run.phase == RunPhase::Open {
                run.rows.push(row_slot);
                self.counters.merged += 1;
                // No step of the run was given out or evaluated, so each ready step still stands in a queue.
                let untouched = !run.given && run.leased == 0 && run.extras.is_none();
                if untouched && level < run.level && run.plan.priority.is_none() {
                    run.level = level;
                    let graph = run.plan.graph.clone();
                    for step in graph.ids().filter(|step| run.run.state(&graph, *step) == State::Ready) {
                        let evaluate = must_evaluate(&graph.steps[step as usize]);
                        let queue = self.ready.queue(workflow, step, evaluate);
                        self.ready.push(
                            queue,
                            level,
                            ReadyItem { run: *slot, index: 0, since: self.now, level },
                            false,
                        );
                    }
                }
                return;
            }
        }
        match key.owed.iter_mut().find(|owed| owed.workflow == workflow) {
            Some(owed) => owed.rows.push(row_slot),
            None => {
                let at = key.owed.iter().position(|owed| owed.workflow > workflow).unwrap_or(key.owed.len());
                key.owed.insert(at, OwedRows { workflow, rows: smallvec![row_slot] });
            }
        }
    }

    /// Starts the owed runs that the key's exclusion allows, in the order of the workflows.
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
                ResumedRows::Waits => {
                    at += 1;
                    continue;
                }
                ResumedRows::Rows(rows) => Some(rows),
                ResumedRows::Nothing => None,
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
            self.begin_run(key_slot, source, entity, workflow, rows);
        }
        self.keys.release(key_slot);
    }

    /// The resumed run consists of exactly the rows that the earlier owner's checkpoints cover; all other rows of the
    /// key wait for the next run. It waits until all covered rows have been read: none of them can have been deleted.
    fn resumed_rows(&self, key_slot: Slot, at: usize) -> ResumedRows {
        let key = self.keys.get(key_slot);
        let source = &self.sources[key.source as usize];
        if source.checkpoints.is_empty() {
            return ResumedRows::Nothing;
        }
        let owed = &key.owed[at];
        let run = self.run_identity_of(key_slot, owed.workflow);
        let Some(covers) = source.checkpoints.get(&run).and_then(|all| all.first()).map(|first| &first.covers) else {
            return ResumedRows::Nothing;
        };
        let covered = |row: &&Slot| self.rows.get(**row).is_some_and(|row| covers.contains(&row.event.id));
        let rows: SmallVec<[Slot; 2]> = owed.rows.iter().filter(covered).copied().collect();
        if rows.len() < covers.len() { ResumedRows::Waits } else { ResumedRows::Rows(rows) }
    }

    fn begin_run(&mut self, key: Slot, source: SourceId, entity: Name, workflow: usize, rows: SmallVec<[Slot; 2]>) {
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
            phase: RunPhase::Open,
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
        self.counters.count_opened(&state);
        let slot = self.runs.insert(state);
        if let Some(key) = self.keys.get_mut(key) {
            key.open.push(slot);
        }
        self.set_deadline(slot);
        // Only ready steps are delayed here: a step that becomes ready later is not.
        for step in std::mem::take(&mut ready) {
            let due = delayed.iter().filter(|(other, _)| *other == step).map(|(_, wait)| *wait).max();
            let wait = wait.max(due.unwrap_or_default());
            if wait.is_zero() {
                ready.push(step);
            } else {
                let listed = self.runs.get(slot).is_some_and(|run| run.has_each(step));
                let index = if listed { LIST_INDEX } else { 0 };
                self.timers.set(self.now.after(wait), Timer::Cohort(vec![WaitingStep { run: slot, step, index }]));
            }
        }
        if self.fail_if_rejected(slot) {
            ready.clear();
        }
        self.make_ready(slot, &mut ready);
        self.scratch_steps = ready;
    }

    /// If the event's `when` could not be evaluated, the run fails before its first step.
    fn fail_if_rejected(&mut self, slot: Slot) -> bool {
        let Some(run) = self.runs.get_mut(slot) else { return false };
        let mut rejected = run.rows.iter().filter_map(|row| self.rows.get(*row)).flat_map(|row| &row.rejected);
        let of_workflow = rejected.find(|(workflow, _)| *workflow == run.workflow);
        let Some((_, failure)) = of_workflow else { return false };
        run.extras.get_or_insert_default().failed.insert(0, (0, 0, 1, failure.clone()));
        run.run.cancel(&run.plan.graph);
        true
    }

    /// Restores the counted attempts and checkpoints of an earlier owner. Returns how long the run as a whole still
    /// sleeps, and the steps that wait for their next attempt.
    fn resume(&mut self, state: &mut RunState, ready: &mut Vec<u16>) -> (Duration, Vec<(u16, Duration)>) {
        let source = &mut self.sources[state.source as usize];
        if source.counted_attempts.is_empty() && source.checkpoints.is_empty() {
            return (Duration::ZERO, Vec::new());
        }
        let run = self.run_identity(state);
        let source = &mut self.sources[state.source as usize];
        let mut delayed = Vec::new();
        for charged in source.counted_attempts.remove(&run).unwrap_or_default() {
            let Some(step) = state.plan.graph.step(&charged.step) else { continue };
            state.extra(step, charged.index).counted_attempts = charged.attempts;
            if !charged.due_in.is_zero() {
                delayed.push((step, charged.due_in));
            }
        }
        let checkpoints = source.checkpoints.remove(&run).unwrap_or_default();
        if checkpoints.is_empty() {
            return (Duration::ZERO, delayed);
        }
        // Rows that were polled while the resumed run had to go first were left in the table.
        if let Some(key) = self.keys.get_mut(state.key) {
            key.overflowed = true;
        }
        let source = &self.sources[state.source as usize];
        let store_now = source.store_ahead_ms + i64::try_from(self.now.0 / 1000).unwrap_or(i64::MAX);
        let (finished, wait) = restore(state, &checkpoints, ready, store_now, &mut delayed);
        if let Some(left) = deadline::time_left(&checkpoints, store_now) {
            state.deadline = self.now.after(left);
            state.extras.get_or_insert_default().deadline_stored = true;
        }
        let version = self.plan.number(state.source, state.workflow);
        self.facts.note(|| Fact::Resumed { run: state.number, began: checkpoints[0].version, version });
        for (step, _) in finished {
            self.facts.note(|| Fact::Ended { run: state.number, step });
        }
        (wait, delayed)
    }
}

/// A sleep continues if all steps that it needs have checkpoints. Otherwise it counts as ended once the rest of its
/// time has passed, and the steps that it needed are executed again then.
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
    for_each::restore(state, &graph, &of_run, &mut finished);
    for checkpoint in of_run {
        let Some(step) = graph.step(&checkpoint.step) else { continue };
        if graph.steps[step as usize].for_each.is_some() {
            continue;
        }
        match &checkpoint.outcome {
            CheckpointOutcome::Done(output) => {
                finished.push((step, End::Succeeded));
                missing |= graph.steps[step as usize].role == Role::Load && output.is_none();
                state.store_output(step, output.clone());
            }
            CheckpointOutcome::Failed(failure) => {
                finished.push((step, End::Failed));
                let entry = (step, checkpoint.index, checkpoint.attempt, failure.clone());
                state.extras.get_or_insert_default().failed.push(entry);
            }
            CheckpointOutcome::Skipped => finished.push((step, End::Skipped)),
            // The steps that the wait needs are executed again; then it continues for the rest of its time.
            CheckpointOutcome::Until(at_ms) if graph.steps[step as usize].role == Role::Wait => {
                state.extra(step, checkpoint.index).until_ms = Some(*at_ms);
            }
            CheckpointOutcome::Until(at_ms) => {
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
        state.run.set_missing();
    }
    state.extras.get_or_insert_default().covers = Some(covers.clone());
    (finished, wait)
}

/// Which of a key's rows an earlier owner's checkpoints cover.
enum ResumedRows {
    Nothing,
    Rows(SmallVec<[Slot; 2]>),
    /// Some of the covered rows have not been read yet.
    Waits,
}
