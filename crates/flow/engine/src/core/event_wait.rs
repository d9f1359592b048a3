//! Runs that wait for an event, by its name and optionally its key. They hold no worker, and up to `waiting_runs_max`
//! of them do not count towards the limit of open runs.
//!
//! A wait begins with a checkpoint of the time at which it ends, and ends once, with a checkpoint of its outcome. From
//! its beginning on, each event of its name is checked as it arrives. Earlier events are stored as signals, and are
//! looked up once the beginning has committed. No event is missed between the two: events whose signals are being
//! written when a wait begins are checked too.
//!
//! | what happened                        | what follows                                                    |
//! |--------------------------------------|-----------------------------------------------------------------|
//! | an event arrives                     | stored as a signal; checked for each run that waits for its name |
//! | it matches                           | the wait's outcome is written, then the event's row may be deleted |
//! | its check fails                      | it is no match; the message of a later time-out gives the reason |
//! | time over, no check pending          | the step is failed or skipped, and that is written              |
//! | resumed by another owner             | the steps it needs are executed again; it waits for the rest of its time |

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hashbrown::{HashMap, HashSet};
use honeyflow_event::{Event, EventId, EventView, Key, Name, Target};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::Lead;
use honeyflow_store::{
    Op, Signal, SignalQuery,
    write::{Checkpoint, CheckpointOutcome},
};
use honeyflow_workflow::{Role, State};

use super::{
    Core, EarlierRun,
    event_check::PendingCheck,
    input::{Effect, LookupId},
    plan::{Plan, SourceId},
    run::{RunPhase, Wait},
    settle::OnCommit,
    timer::WaitingStep,
};
use crate::{codes, slots::Slot};

/// How long a signal is stored: an event that arrived up to this long before a wait began can end it.
pub const SIGNAL_KEPT: Duration = Duration::from_secs(60 * 60);
/// The least time of a resumed wait. If it ran out while no node owned the run, the signals that arrived meanwhile are
/// read first.
const RESUMED_AT_LEAST: Duration = Duration::from_secs(5);
/// Waits that are looked up in one request.
const LOOKS_MAX: usize = 200;
const SIGNALS_PAGE: u32 = 100;

#[derive(Default)]
pub(crate) struct Waits {
    /// For each source, the event names that workflows wait for.
    names: Vec<HashSet<Name>>,
    /// The open waits, by the name of the source (not its shard), tenant and event name.
    open: HashMap<(Name, Name, Name), NameWaiters>,
    /// Events whose signals are being written: a wait that begins meanwhile is checked against them.
    unstored: HashMap<(SourceId, EventId), Vec<EventView>>,
    deadlines: BTreeSet<(Moment, WaitingStep)>,
    lookups: Vec<SignalLookups>,
    last_lookup: LookupId,
    /// The number of runs that only wait, and of their rows.
    dormant: (usize, usize),
}

#[derive(Default)]
struct NameWaiters {
    of_any_key: Vec<WaitingStep>,
    by_key: HashMap<Key, Vec<WaitingStep>>,
}

/// The signal lookups of one source: which waits, each with the id of the last signal read.
#[derive(Default)]
struct SignalLookups {
    pending: Vec<(WaitingStep, i64)>,
    under_way: Option<(LookupId, Vec<(WaitingStep, i64)>)>,
}

impl Waits {
    pub fn new(plan: &Plan) -> Waits {
        let names = plan.sources.iter().map(|source| {
            let begins = |workflow: &&Arc<super::plan::WorkflowPlan>| {
                let on = &workflow.graph.on;
                on.is_empty() || on.iter().any(|on| on.source == source.name)
            };
            let steps = plan.workflows.iter().filter(begins).flat_map(|workflow| &workflow.graph.steps);
            steps.filter(|step| step.role == Role::Wait).map(awaited_name).collect()
        });
        let lookups = plan.sources.iter().map(|_| SignalLookups::default()).collect();
        Waits { names: names.collect(), lookups, ..Waits::default() }
    }

    pub fn next_deadline(&self) -> Moment {
        self.deadlines.first().map_or(Moment::FAR, |(at, _)| *at)
    }

    pub fn waiting(&self) -> impl Iterator<Item = &WaitingStep> {
        self.deadlines.iter().map(|(_, waiting)| waiting)
    }

    pub fn forget_source(&mut self, source: SourceId) {
        self.unstored.retain(|(of, _), _| *of != source);
        self.lookups[source as usize] = SignalLookups::default();
    }

    pub fn on_signal_stored(&mut self, source: SourceId, event: EventId) {
        self.unstored.remove(&(source, event));
    }

    /// Whether a run waits for the name, or a workflow may wait for it later.
    fn is_signal(&self, source: SourceId, place: &(Name, Name, Name)) -> bool {
        self.names[source as usize].contains(&place.2) || self.open.contains_key(place)
    }

    fn add(&mut self, place: (Name, Name, Name), key: Option<&Key>, waiting: WaitingStep, deadline: Moment) {
        let named = self.open.entry(place).or_default();
        match key {
            Some(key) => named.by_key.entry(key.clone()).or_default().push(waiting),
            None => named.of_any_key.push(waiting),
        }
        self.deadlines.insert((deadline, waiting));
    }

    fn remove(&mut self, place: &(Name, Name, Name), wait: &Wait, waiting: WaitingStep) {
        self.deadlines.remove(&(wait.deadline, waiting));
        let Some(named) = self.open.get_mut(place) else { return };
        match &wait.key {
            Some(key) => {
                if let Some(all) = named.by_key.get_mut(key) {
                    all.retain(|other| *other != waiting);
                    if all.is_empty() {
                        named.by_key.remove(key);
                    }
                }
            }
            None => named.of_any_key.retain(|other| *other != waiting),
        }
        if named.of_any_key.is_empty() && named.by_key.is_empty() {
            self.open.remove(place);
        }
    }
}

fn awaited_name(step: &honeyflow_workflow::Step) -> Name {
    step.settings.get("name").and_then(|name| name.as_str()).unwrap_or_default().into()
}

impl Core {
    fn wait_name(&self, source: SourceId, tenant: &Name, name: &Name) -> (Name, Name, Name) {
        (self.plan.sources[source as usize].name.clone(), tenant.clone(), name.clone())
    }

    fn wait_name_of_run(&self, slot: Slot, name: &Name) -> (Name, Name, Name) {
        let run = self.runs.get(slot).expect("looked up by the caller");
        self.wait_name(run.source, &self.keys.get(run.key).tenant, name)
    }

    /// The number of open runs that count towards the limit: all but those that only wait.
    pub(crate) fn busy_runs(&self) -> usize {
        self.runs.len() - self.waits.dormant.0.min(self.plan.limits.waiting_runs_max)
    }

    pub(crate) fn dormant_runs(&self) -> usize {
        self.waits.dormant.0
    }

    pub(crate) fn busy_rows(&self) -> usize {
        self.rows.len().saturating_sub(self.waits.dormant.1.min(self.plan.limits.waiting_runs_max))
    }

    /// Whether a run of an earlier owner, not resumed yet, may wait for the event: then its row stays in the table
    /// until that run is resumed.
    pub(crate) fn is_too_early(
        &mut self,
        source: SourceId,
        event: &Event,
        leads: &[Lead],
        owed: &[(&Target, u16, usize)],
    ) -> bool {
        let name = &self.plan.sources[source as usize].name;
        let shards = self.plan.sources.iter().zip(&self.sources).filter(|(plan, _)| plan.name == *name);
        let mut begun = shards.map(|(_, state)| &state.checkpoints).filter(|all| !all.is_empty()).peekable();
        let state = &self.sources[source as usize];
        if begun.peek().is_none() || matches!(state.earlier_run(event, owed, &self.plan), EarlierRun::Covers) {
            return false;
        }
        let awaits = |run: &honeyflow_store::RunKey, one: &Checkpoint| {
            let pinned = self.plan.find_version(source, &run.workflow, one.version).ok();
            let graph = pinned.map(|workflow| &self.plan.workflows[workflow].graph);
            let step = graph.and_then(|graph| graph.step(&one.step).map(|step| &graph.steps[step as usize]));
            let name = step.filter(|step| step.role == Role::Wait).map(awaited_name);
            run.tenant == event.tenant && name.is_some_and(|name| leads.iter().any(|lead| lead.target.entity == name))
        };
        let early = begun.flatten().any(|(run, all)| {
            all.iter().any(|one| matches!(one.outcome, CheckpointOutcome::Until(_)) && awaits(run, one))
        });
        if early {
            self.sources[source as usize].crowded = true;
            self.counters.overflowed += 1;
        }
        early
    }

    /// Returns the steps that wait for the event now, each with the event under the name they wait for.
    pub(crate) fn waiters_of(
        &self,
        source: SourceId,
        event: &Arc<Event>,
        leads: &[Lead],
    ) -> Vec<(WaitingStep, EventView)> {
        let mut found = Vec::new();
        if self.waits.open.is_empty() || event.workflow.is_some() {
            return found;
        }
        for Lead { target, change } in leads {
            let Some(named) = self.waits.open.get(&self.wait_name(source, &event.tenant, &target.entity)) else {
                continue;
            };
            let seen = EventView::new(event.clone(), target.clone(), *change);
            let of_key = named.by_key.get(&target.key).into_iter().flatten();
            found.extend(named.of_any_key.iter().chain(of_key).map(|waiting| (*waiting, seen.clone())));
        }
        found
    }

    /// Stores the event as a signal, so that a wait that begins later finds it. It is written before the event's row
    /// can be deleted, or in the same write.
    pub(crate) fn store_signals(&mut self, source: SourceId, event: &Arc<Event>, leads: &[Lead]) -> bool {
        let mut kept = false;
        if event.workflow.is_some() {
            return kept;
        }
        for Lead { target, change } in leads {
            let place = self.wait_name(source, &event.tenant, &target.entity);
            if self.waits.is_signal(source, &place) {
                kept = true;
                let view = EventView::new(event.clone(), target.clone(), *change);
                let op = Op::Signal { event: Box::new(view.clone()), keep: SIGNAL_KEPT };
                self.push_op(source, op, OnCommit::SignalStored(event.id));
                self.waits.unstored.entry((source, event.id)).or_default().push(view);
            }
        }
        self.counters.signals += u64::from(kept);
        kept
    }

    pub(crate) fn check_match(&mut self, waiting: WaitingStep, event: EventView, row: Option<Slot>) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let workflow = run.workflow;
        let Some(wait) = run.wait_mut(waiting.step) else { return };
        wait.pending_answers += 1;
        self.event_checks.add(workflow, PendingCheck::Matches { waiting, event: Box::new(event), row });
    }

    pub(crate) fn begin_wait(&mut self, waiting: WaitingStep, attempt: u32, millis: u64, key: Option<&Key>) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let source = run.source;
        let state = &self.sources[source as usize];
        let store_now = state.store_ahead_ms + i64::try_from(self.now.0 / 1000).unwrap_or(i64::MAX / 4);
        let millis = i64::try_from(millis).unwrap_or(i64::MAX / 4);
        run.given = true;
        let name = awaited_name(&run.plan.graph.steps[waiting.step as usize]);
        let extra = run.extra(waiting.step, waiting.index);
        extra.evaluated = true;
        let resumed = extra.until_ms.is_some();
        let until_ms = *extra.until_ms.get_or_insert(store_now.saturating_add(millis));
        let left = Duration::from_millis(u64::try_from(until_ms - store_now).unwrap_or(0));
        let deadline = self.now.after(if resumed { left.max(RESUMED_AT_LEAST) } else { left });
        let kept_ms = i64::try_from(SIGNAL_KEPT.as_millis()).unwrap_or(0);
        extra.wait = Some(Box::new(Wait {
            name: name.clone(),
            key: key.cloned(),
            deadline,
            since_ms: until_ms.saturating_sub(millis).saturating_sub(kept_ms),
            // The signal lookup that follows.
            pending_answers: 1,
            overdue: false,
            unclear: None,
        }));
        let place = self.wait_name_of_run(waiting.run, &name);
        self.waits.add(place.clone(), key, waiting, deadline);
        // The signals of these events may be written after our lookup: by another shard, or if the wait's beginning was
        // written by an earlier owner.
        let meets = |event: &&EventView| event.newest.tenant == place.1 && event.target.entity == place.2;
        let of_key = |event: &&EventView| key.is_none_or(|key| event.target.key == *key);
        let unkept: Vec<_> = (self.waits.unstored.iter())
            .filter(|((of, _), _)| self.plan.sources[*of as usize].name == place.0)
            .flat_map(|(_, events)| events.iter().filter(meets).filter(of_key).cloned())
            .collect();
        unkept.into_iter().for_each(|event| self.check_match(waiting, event, None));
        if resumed {
            self.queue_lookup(waiting);
            self.note_dormant(waiting.run);
        } else {
            let began = CheckpointOutcome::Until(until_ms);
            self.checkpoint(waiting, attempt, began, Vec::new(), OnCommit::Awaiting(waiting));
        }
    }

    pub(crate) fn queue_lookup(&mut self, waiting: WaitingStep) {
        if let Some(run) = self.runs.get_mut(waiting.run)
            && run.wait_mut(waiting.step).is_some()
        {
            let source = run.source;
            self.waits.lookups[source as usize].pending.push((waiting, 0));
        }
    }

    /// Sends the pending signal lookups, one request per source at a time.
    pub(crate) fn look_up_signals(&mut self, effects: &mut Vec<Effect>) {
        for source in 0..self.sources.len() {
            let lookups = &mut self.waits.lookups[source];
            if lookups.pending.is_empty() || lookups.under_way.is_some() || self.sources[source].term.is_none() {
                continue;
            }
            let count = lookups.pending.len().min(LOOKS_MAX);
            let pending: Vec<_> = lookups.pending.drain(..count).collect();
            let (mut waiters, mut wanted) = (Vec::new(), Vec::new());
            for (waiting, after) in pending {
                let Some(run) = self.runs.get_mut(waiting.run) else { continue };
                let tenant = self.keys.get(run.key).tenant.clone();
                let Some(wait) = run.wait_mut(waiting.step) else { continue };
                wanted.push(SignalQuery {
                    tenant,
                    name: wait.name.clone(),
                    key: wait.key.clone(),
                    since_ms: wait.since_ms,
                    after,
                    limit: SIGNALS_PAGE,
                });
                waiters.push((waiting, after));
            }
            if !wanted.is_empty() {
                self.waits.last_lookup += 1;
                let lookup = self.waits.last_lookup;
                self.waits.lookups[source].under_way = Some((lookup, waiters));
                effects.push(Effect::LookUpSignals { source: super::id(source), lookup, wanted });
            }
        }
    }

    pub(crate) fn on_signals_found(
        &mut self,
        source: SourceId,
        lookup: LookupId,
        result: Result<Vec<Vec<Signal>>, Failure>,
    ) {
        let lookups = &mut self.waits.lookups[source as usize];
        let Some((_, waiters)) = lookups.under_way.take_if(|(under_way, _)| *under_way == lookup) else { return };
        let found = match result {
            Ok(found) if found.len() == waiters.len() => found,
            other => {
                if let Err(failure) = other {
                    self.counters.note_store_failure(&failure);
                }
                self.waits.lookups[source as usize].pending.extend(waiters);
                return;
            }
        };
        for ((waiting, _), signals) in waiters.into_iter().zip(found) {
            let more = signals.last().filter(|_| signals.len() >= SIGNALS_PAGE as usize).map(|last| last.id);
            for Signal { event, .. } in signals {
                let (entity, key, change) = (event.entity.clone(), event.key.clone(), event.change);
                let event = EventView::new(event, Target { entity, key }, change);
                self.check_match(waiting, event, None);
            }
            match more {
                Some(after) => self.waits.lookups[source as usize].pending.push((waiting, after)),
                None => self.note_answer(waiting),
            }
        }
    }

    /// Handles the answer to an event check.
    pub(crate) fn on_match_checked(&mut self, waiting: WaitingStep, event: &EventView, result: Result<bool, Failure>) {
        let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else { return };
        match result {
            Ok(true) => {
                let output = Some(Arc::new(event.as_json()));
                self.end_wait(waiting, CheckpointOutcome::Done(output.clone()), OnCommit::Finished(waiting, output));
                return;
            }
            Ok(false) => {}
            Err(failure) => {
                wait.unclear = Some(format!("the check of event {} failed: {failure}", event.newest.id));
            }
        }
        self.note_answer(waiting);
    }

    fn note_answer(&mut self, waiting: WaitingStep) {
        let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else { return };
        wait.pending_answers -= 1;
        if wait.pending_answers == 0 && wait.overdue {
            self.time_out(waiting);
        }
    }

    /// Ends the waits whose time is over; a wait with a pending check first gets its answer, since that event may
    /// match.
    pub(crate) fn end_overdue_waits(&mut self) {
        while let Some((at, waiting)) = self.waits.deadlines.first().copied()
            && at <= self.now
        {
            self.waits.deadlines.pop_first();
            let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else {
                continue;
            };
            wait.overdue = true;
            if wait.pending_answers == 0 {
                self.time_out(waiting);
            }
        }
    }

    fn time_out(&mut self, waiting: WaitingStep) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let step = run.plan.graph.steps[waiting.step as usize].clone();
        let unclear = run.wait_mut(waiting.step).and_then(|wait| wait.unclear.take());
        if step.settings.get("on-timeout").and_then(|word| word.as_str()) == Some("skip") {
            self.end_wait(waiting, CheckpointOutcome::Skipped, OnCommit::Skipped(waiting));
            return;
        }
        let mut message = format!("no event `{}` came within {:?}", awaited_name(&step), step.timeout);
        if let Some(unclear) = unclear {
            message = format!("{message}; {unclear}");
        }
        let failure = Failure::reject(codes::WAIT_TIMEOUT, message);
        self.end_wait(waiting, CheckpointOutcome::Failed(failure.clone()), OnCommit::Failed(waiting, failure));
    }

    fn end_wait(&mut self, waiting: WaitingStep, outcome: CheckpointOutcome, after: OnCommit) {
        self.unregister(waiting);
        let Some(run) = self.runs.get(waiting.run) else { return };
        let attempt = run.attempt;
        self.checkpoint(waiting, attempt, outcome, Vec::new(), after);
        self.note_dormant(waiting.run);
    }

    fn unregister(&mut self, waiting: WaitingStep) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let extra = run.extras.as_mut().and_then(|extras| extras.steps.iter_mut().find(|e| e.step == waiting.step));
        let Some(wait) = extra.and_then(|extra| extra.wait.take()) else { return };
        let place = self.wait_name_of_run(waiting.run, &wait.name);
        self.waits.remove(&place, &wait, waiting);
    }

    /// Removes all waits of a run that ends, is dropped or moves to another slot.
    pub(crate) fn stop_waiting(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        if std::mem::take(&mut run.dormant) {
            let rows = run.rows.len();
            self.waits.dormant.0 -= 1;
            self.waits.dormant.1 -= rows;
        }
        let waits = |extra: &super::run::StepExtra| extra.wait.is_some().then_some((extra.step, extra.index));
        let steps = run.extras.iter().flat_map(|extras| &extras.steps);
        let open: Vec<_> = steps.filter_map(waits).collect();
        for (step, index) in open {
            self.unregister(WaitingStep { run: slot, step, index });
        }
    }

    /// Notes whether the run only waits, for a time or an event.
    pub(crate) fn note_dormant(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        if run.extras.is_none() && !run.dormant {
            return;
        }
        let graph = run.plan.graph.clone();
        let waits = |step: u16| {
            run.find_extra(step, 0).is_some_and(|extra| {
                extra.wait.is_some() || (graph.steps[step as usize].role == Role::Sleep && extra.evaluated)
            })
        };
        let mut ready = graph.ids().filter(|step| run.run.state(&graph, *step) == State::Ready).peekable();
        let dormant = run.phase == RunPhase::Open && run.leased == 0 && ready.peek().is_some() && ready.all(waits);
        if dormant != run.dormant {
            run.dormant = dormant;
            let rows = run.rows.len();
            let (runs, of_runs) = &mut self.waits.dormant;
            if dormant {
                (*runs, *of_runs) = (*runs + 1, *of_runs + rows);
            } else {
                (*runs, *of_runs) = (*runs - 1, *of_runs - rows);
            }
        }
    }
}
