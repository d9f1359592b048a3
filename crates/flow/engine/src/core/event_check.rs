//! Checks of arriving events by expressions that the shell evaluates: whether an event begins a run, and whether it is
//! the event that a run waits for.
//!
//! Each workflow has one request under way, so that events keep their order and a slow expression delays only its own
//! workflow. An event owes its run until the answer says that it does not.

use std::{collections::VecDeque, time::Duration};

use honeyflow_event::{EventView, Target};
use honeyflow_runtime::{Class, Failure, Moment};
use honeyflow_workflow::{Graph, Unmatched, graph::CompiledOn};

use super::{
    Core,
    dispatch::outputs,
    input::{CheckId, CheckQuestion, Effect, EventCheck},
    plan::{EntityId, Plan},
    settle::OnCommit,
    timer::{Timer, WaitingStep},
};
use crate::{codes, slots::Slot};

/// The most events in one request.
const ITEMS_MAX: usize = 500;
/// The wait before a check that was not reached in time is sent again.
const CHECK_AGAIN_AFTER: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct EventChecks {
    workflows: Vec<WorkflowChecks>,
    last: CheckId,
    len: usize,
}

struct WorkflowChecks {
    /// The workflow has an `on` with a `when`.
    checks_events: bool,
    /// The workflow has an `on` with a `change`.
    filters_changes: bool,
    waiting: VecDeque<PendingCheck>,
    under_way: Option<(CheckId, Vec<PendingCheck>)>,
    not_before: Moment,
}

pub(crate) enum PendingCheck {
    Begins {
        row: Slot,
        entity: EntityId,
        target: Target,
    },
    /// The event's row stays in the table until the answer was handled.
    Matches {
        waiting: WaitingStep,
        event: Box<EventView>,
        row: Option<Slot>,
    },
}

impl EventChecks {
    pub fn new(plan: &Plan) -> EventChecks {
        let of_workflow = |graph: &honeyflow_workflow::Graph| WorkflowChecks {
            checks_events: graph.on.iter().any(|on| on.when.is_some()),
            filters_changes: graph.on.iter().any(|on| !on.change.is_unknown()),
            waiting: VecDeque::new(),
            under_way: None,
            not_before: Moment::default(),
        };
        let workflows = plan.workflows.iter().map(|workflow| of_workflow(&workflow.graph)).collect();
        EventChecks { workflows, ..EventChecks::default() }
    }

    /// Whether the workflow asks for certain changes only.
    pub fn filters_changes(&self, workflow: usize) -> bool {
        self.workflows[workflow].filters_changes
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn take_answered(&mut self, check: CheckId) -> Option<(usize, Vec<PendingCheck>)> {
        let is_answered = |of: &WorkflowChecks| of.under_way.as_ref().is_some_and(|(under_way, _)| *under_way == check);
        let workflow = self.workflows.iter().position(is_answered)?;
        let (_, checks) = self.workflows[workflow].under_way.take()?;
        self.len -= checks.len();
        Some((workflow, checks))
    }

    pub fn add(&mut self, workflow: usize, pending: PendingCheck) {
        self.workflows[workflow].waiting.push_back(pending);
        self.len += 1;
    }

    fn put_back(&mut self, workflow: usize, checks: Vec<PendingCheck>, not_before: Moment) {
        let of = &mut self.workflows[workflow];
        of.not_before = not_before;
        self.len += checks.len();
        checks.into_iter().rev().for_each(|pending| of.waiting.push_front(pending));
    }
}

/// Returns each `on` of the graph that the event meets, apart from its `when`. An event that names its workflow meets all
/// of its entity.
pub fn met_by<'a>(graph: &'a Graph, source: &'a str, event: &'a EventView) -> impl Iterator<Item = &'a CompiledOn> {
    let accepts =
        |on: &CompiledOn| event.newest.workflow.is_some() || on.accepts(event.change, event.newest.columns.as_deref());
    graph.on.iter().filter(move |on| *on.source == *source && on.entity == event.target.entity && accepts(on))
}

impl Core {
    /// Whether the row must be checked before it owes the workflow a run: every `on` that it meets has a `when`.
    pub(crate) fn must_check(&self, row: Slot, target: &Target, workflow: usize) -> bool {
        let Some(row) = self.rows.get(row).filter(|_| self.event_checks.workflows[workflow].checks_events) else {
            return false;
        };
        let source = &self.plan.sources[row.source as usize].name;
        let view = row.view(target.clone());
        met_by(&self.plan.workflows[workflow].graph, source, &view).all(|on| on.when.is_some())
    }

    /// Sends the pending checks of each workflow that has no request under way.
    pub(crate) fn send_checks(&mut self, effects: &mut Vec<Effect>) {
        if self.event_checks.len == 0 || self.draining {
            return;
        }
        for workflow in 0..self.event_checks.workflows.len() {
            let of = &mut self.event_checks.workflows[workflow];
            if of.under_way.is_some() || self.now < of.not_before || self.gates.is_stopped(workflow, self.now) {
                continue;
            }
            let (mut checks, mut items) = (Vec::new(), Vec::new());
            while items.len() < ITEMS_MAX
                && let Some(pending) = self.event_checks.workflows[workflow].waiting.pop_front()
            {
                match self.event_check(workflow, &pending) {
                    Some(item) => {
                        items.push(item);
                        checks.push(pending);
                    }
                    // The row or run is gone, for example with its lease.
                    None => {
                        self.event_checks.len -= 1;
                        self.drop_check(&pending);
                    }
                }
            }
            if !items.is_empty() {
                self.event_checks.last += 1;
                let check = self.event_checks.last;
                self.event_checks.workflows[workflow].under_way = Some((check, checks));
                effects.push(Effect::CheckEvents { check, workflow, items });
            }
        }
    }

    fn event_check(&self, workflow: usize, pending: &PendingCheck) -> Option<EventCheck> {
        match pending {
            PendingCheck::Begins { row, target, .. } => {
                let row = self.rows.get(*row)?;
                let source = self.plan.sources[row.source as usize].name.clone();
                let graph = self.plan.workflows[workflow].graph.clone();
                let event = row.view(target.clone());
                Some(EventCheck { graph, event, question: CheckQuestion::Begins { source } })
            }
            PendingCheck::Matches { waiting, event, .. } => {
                let run = self.runs.get(waiting.run)?;
                run.find_extra(waiting.step, 0)?.wait.as_ref()?;
                let name = self.run_name(run);
                let question = CheckQuestion::Matches { step: waiting.step, run: name, outputs: outputs(run) };
                Some(EventCheck { graph: run.plan.graph.clone(), event: (**event).clone(), question })
            }
        }
    }

    /// Drops a check whose run or row is gone.
    fn drop_check(&mut self, pending: &PendingCheck) {
        if let PendingCheck::Matches { row: Some(row), .. } = pending {
            self.end_obligation(*row);
        }
    }

    pub(crate) fn on_events_checked(
        &mut self,
        check: CheckId,
        results: Vec<Result<bool, Failure>>,
        effects: &mut Vec<Effect>,
    ) {
        let Some((workflow, checks)) = self.event_checks.take_answered(check) else {
            self.counters.stale_answers += 1;
            return;
        };
        let mut again = Vec::new();
        let mut not_before = self.now;
        let mut results = results.into_iter();
        for pending in checks {
            let result =
                results.next().unwrap_or_else(|| Err(Failure::retry(codes::NO_ANSWER, "the check has no answer")));
            match result {
                Err(failure) if matches!(failure.class, Class::Retry | Class::RetryAfter) => {
                    not_before = self.now.after(CHECK_AGAIN_AFTER);
                    again.push(pending);
                }
                Err(failure) if failure.class == Class::Fatal => {
                    not_before = self.stop_workflow(workflow, failure, effects);
                    again.push(pending);
                }
                result => self.answer_check(workflow, pending, result),
            }
        }
        if !again.is_empty() {
            self.timers.set(not_before, Timer::Gate);
            self.event_checks.put_back(workflow, again, not_before);
        }
    }

    fn answer_check(&mut self, workflow: usize, pending: PendingCheck, result: Result<bool, Failure>) {
        match pending {
            PendingCheck::Begins { row, entity, target } => match result {
                Ok(false) => self.end_unmatched(row, workflow),
                Ok(true) => self.owe_run(row, entity, &target, workflow),
                Err(failure) => {
                    // The event fails as a separate run, in its turn: it never merges, and does not count as passed.
                    if let Some(row) = self.rows.get_mut(row) {
                        row.rejected.push((workflow, failure));
                    }
                    self.owe_run(row, entity, &target, workflow);
                }
            },
            PendingCheck::Matches { waiting, event, row } => {
                self.on_match_checked(waiting, &event, result);
                if let Some(row) = row {
                    self.end_obligation(row);
                }
            }
        }
    }

    pub(crate) fn owe_run(&mut self, row: Slot, entity: EntityId, target: &Target, workflow: usize) {
        let Some(state) = self.rows.get_mut(row) else { return };
        state.matched = true;
        let (source, tenant) = (state.source, state.event.tenant.clone());
        let key = self.keys.find_or_insert(source, (entity, &target.entity), &tenant, &target.key);
        self.owe(key, workflow, row);
        self.start_runs(key);
    }

    /// The workflow does not want the event. An event that no workflow wants is acknowledged, or parked if a workflow
    /// says so.
    fn end_unmatched(&mut self, slot: Slot, workflow: usize) {
        let park = self.plan.workflows[workflow].graph.definition.unmatched == Unmatched::Park;
        let Some(row) = self.rows.get_mut(slot) else { return };
        row.park_unmatched |= park;
        if row.owes > 1 || row.matched {
            self.end_obligation(slot);
            return;
        }
        let (source, event) = (row.source, row.event.id);
        self.counters.unmatched += 1;
        if row.park_unmatched {
            row.owes = 0;
            let failure = Failure::reject(codes::UNMATCHED, "no `when` of a workflow accepts this event");
            self.counters.parked += 1;
            self.push_op(source, honeyflow_store::Op::ParkRow { event, failure }, OnCommit::RowGone(slot));
        } else {
            self.end_obligation(slot);
        }
    }

    /// Ends one obligation of the row without a separate write: the writes that follow from it are collected already.
    pub(crate) fn end_obligation(&mut self, slot: Slot) {
        let Some(row) = self.rows.get_mut(slot) else { return };
        row.owes -= 1;
        if row.owes > 0 {
            row.unsettled -= 1;
        } else {
            let (source, event) = (row.source, row.event.id);
            self.sources[source as usize].settling.rows.push((slot, event));
        }
    }
}
