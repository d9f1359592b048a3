//! Expressions over arriving events, judged outside and before runs exist: whether an event begins one, and whether it is
//! what a run waits for.
//!
//! Each workflow has one question under way, so that events keep their order, and a slow expression holds up its own
//! workflow alone. An event owes its run until the answer says that it does not.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use honeyflow_event::{Event, Target};
use honeyflow_runtime::{Class, Failure, Moment};
use honeyflow_workflow::Unmatched;

use super::{
    Core, Row,
    dispatch::outputs,
    input::{Asks, Effect, JudgeId, ToJudge},
    plan::{EntityId, Plan},
    settle::After,
    timer::{Timer, Waiting},
};
use crate::slots::Slot;

/// Events in one question.
const ITEMS_MAX: usize = 500;
/// Before a question is asked again that was not reached in time.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct Judging {
    workflows: Vec<OfWorkflow>,
    last: JudgeId,
    len: usize,
}

struct OfWorkflow {
    /// It has an `on` with a `when`.
    asks: bool,
    waiting: VecDeque<Question>,
    under_way: Option<(JudgeId, Vec<Question>)>,
    not_before: Moment,
}

pub(crate) enum Question {
    Begins {
        row: Slot,
        entity: EntityId,
        target: Target,
    },
    /// The row stays until the answer has led to something.
    Matches {
        waiting: Waiting,
        event: Arc<Event>,
        row: Option<Slot>,
    },
}

impl Judging {
    pub fn new(plan: &Plan) -> Judging {
        let of_workflow = |graph: &honeyflow_workflow::Graph| OfWorkflow {
            asks: graph.on.iter().any(|on| on.when.is_some()),
            waiting: VecDeque::new(),
            under_way: None,
            not_before: Moment::default(),
        };
        let workflows = plan.workflows.iter().map(|workflow| of_workflow(&workflow.graph)).collect();
        Judging { workflows, ..Judging::default() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn answered(&mut self, judge: JudgeId) -> Option<(usize, Vec<Question>)> {
        let asked = |of: &OfWorkflow| of.under_way.as_ref().is_some_and(|(under_way, _)| *under_way == judge);
        let workflow = self.workflows.iter().position(asked)?;
        let (_, questions) = self.workflows[workflow].under_way.take()?;
        self.len -= questions.len();
        Some((workflow, questions))
    }

    pub fn put(&mut self, workflow: usize, question: Question) {
        self.workflows[workflow].waiting.push_back(question);
        self.len += 1;
    }

    fn put_back(&mut self, workflow: usize, questions: Vec<Question>, not_before: Moment) {
        let of = &mut self.workflows[workflow];
        of.not_before = not_before;
        self.len += questions.len();
        questions.into_iter().rev().for_each(|question| of.waiting.push_front(question));
    }
}

impl Core {
    /// Whether the event has to be looked at before it owes the workflow a run: every `on` that it meets has a `when`.
    pub(crate) fn must_judge(&self, source: usize, target: &Target, workflow: usize) -> bool {
        let source = &self.plan.sources[source].name;
        self.judging.workflows[workflow].asks
            && self.plan.workflows[workflow]
                .graph
                .on
                .iter()
                .filter(|on| on.source == *source && on.entity == target.entity)
                .all(|on| on.when.is_some())
    }

    /// Asks what can be asked.
    pub(crate) fn ask(&mut self, effects: &mut Vec<Effect>) {
        if self.judging.len == 0 || self.draining {
            return;
        }
        for workflow in 0..self.judging.workflows.len() {
            let of = &mut self.judging.workflows[workflow];
            if of.under_way.is_some() || self.now < of.not_before || self.gates.is_stopped(workflow, self.now) {
                continue;
            }
            let (mut questions, mut items) = (Vec::new(), Vec::new());
            while items.len() < ITEMS_MAX
                && let Some(question) = self.judging.workflows[workflow].waiting.pop_front()
            {
                match self.to_judge(workflow, &question) {
                    Some(item) => {
                        items.push(item);
                        questions.push(question);
                    }
                    // What it was about is gone: with its lease, say.
                    None => {
                        self.judging.len -= 1;
                        self.let_go(&question);
                    }
                }
            }
            if !items.is_empty() {
                self.judging.last += 1;
                let judge = self.judging.last;
                self.judging.workflows[workflow].under_way = Some((judge, questions));
                effects.push(Effect::Judge { judge, workflow, items });
            }
        }
    }

    fn to_judge(&self, workflow: usize, question: &Question) -> Option<ToJudge> {
        match question {
            Question::Begins { row, target, .. } => {
                let Row { event, source, .. } = self.rows.get(*row)?;
                let source = self.plan.sources[*source as usize].name.clone();
                let graph = self.plan.workflows[workflow].graph.clone();
                Some(ToJudge { graph, event: event.clone(), target: target.clone(), asks: Asks::Begins { source } })
            }
            Question::Matches { waiting, event, .. } => {
                let run = self.runs.get(waiting.run)?;
                run.find_extra(waiting.step, 0)?.wait.as_ref()?;
                let name = self.run_name(run);
                let target = Target { entity: name.entity.clone(), key: name.key.clone() };
                let asks = Asks::Matches { step: waiting.step, run: name, outputs: outputs(run) };
                Some(ToJudge { graph: run.plan.graph.clone(), event: event.clone(), target, asks })
            }
        }
    }

    /// Nobody asks any more.
    fn let_go(&mut self, question: &Question) {
        if let Question::Matches { row: Some(row), .. } = question {
            self.owes_less(*row);
        }
    }

    pub(crate) fn judged(&mut self, judge: JudgeId, results: Vec<Result<bool, Failure>>, effects: &mut Vec<Effect>) {
        let Some((workflow, questions)) = self.judging.answered(judge) else {
            self.counters.stale_answers += 1;
            return;
        };
        let mut again = Vec::new();
        let mut not_before = self.now;
        let mut results = results.into_iter();
        for question in questions {
            let result = results.next().unwrap_or_else(|| Err(Failure::retry("no-answer", "it was not judged")));
            match result {
                Err(failure) if matches!(failure.class, Class::Retry | Class::RetryAfter) => {
                    not_before = self.now.after(AGAIN);
                    again.push(question);
                }
                Err(failure) if failure.class == Class::Fatal => {
                    not_before = self.stop_workflow(workflow, failure, effects);
                    again.push(question);
                }
                result => self.answer_question(workflow, question, result),
            }
        }
        if !again.is_empty() {
            self.timers.set(not_before, Timer::Gate);
            self.judging.put_back(workflow, again, not_before);
        }
    }

    fn answer_question(&mut self, workflow: usize, question: Question, result: Result<bool, Failure>) {
        match question {
            Question::Begins { row, entity, target } => match result {
                Ok(false) => self.owes_nothing(row, workflow),
                Ok(true) => self.begins(row, entity, &target, workflow),
                Err(failure) => {
                    // It fails as a run of its own, in its turn: never merged, never taken for an event that passed.
                    if let Some(row) = self.rows.get_mut(row) {
                        row.rejected.push((workflow, failure));
                    }
                    self.begins(row, entity, &target, workflow);
                }
            },
            Question::Matches { waiting, event, row } => {
                self.answer_wait(waiting, &event, result);
                if let Some(row) = row {
                    self.owes_less(row);
                }
            }
        }
    }

    pub(crate) fn begins(&mut self, row: Slot, entity: EntityId, target: &Target, workflow: usize) {
        let Some(state) = self.rows.get_mut(row) else { return };
        state.matched = true;
        let (source, tenant) = (state.source, state.event.tenant.clone());
        let key = self.keys.find_or_insert(source, (entity, &target.entity), &tenant, &target.key);
        self.owe(key, workflow, row);
        self.start_runs(key);
    }

    /// The workflow does not want the event after all. What nobody wants is acknowledged, or parked if so set.
    fn owes_nothing(&mut self, slot: Slot, workflow: usize) {
        let park = self.plan.workflows[workflow].graph.definition.unmatched == Unmatched::Park;
        let Some(row) = self.rows.get_mut(slot) else { return };
        row.park_unmatched |= park;
        if row.owes > 1 || row.matched {
            self.owes_less(slot);
            return;
        }
        let (source, event) = (row.source, row.event.id);
        self.counters.unmatched += 1;
        if row.park_unmatched {
            row.owes = 0;
            let failure = Failure::reject("unmatched", "no `when` of a workflow lets this event in");
            self.counters.parked += 1;
            self.push_op(source, honeyflow_store::Op::ParkRow { event, failure }, After::RowGone(slot));
        } else {
            self.owes_less(slot);
        }
    }

    /// One obligation less, without a write of its own: whatever it led to is on its way already.
    pub(crate) fn owes_less(&mut self, slot: Slot) {
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
