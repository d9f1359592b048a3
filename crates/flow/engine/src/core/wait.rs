//! Runs that wait for an event, by name and perhaps by key. They hold no worker, and take no room unless they are many.
//!
//! A wait begins with a checkpoint of its end's time, and ends once, with one of its outcome. From its beginning on every
//! event of its name is judged as it arrives; what came before was kept in the store and is looked through once the
//! beginning has committed. Between the two nothing falls: of events whose signals are being written when a wait begins,
//! it is asked as well.
//!
//! | what happened                        | what follows                                                    |
//! |--------------------------------------|-----------------------------------------------------------------|
//! | an event arrives                     | kept as a signal; asked of everyone who waits for its name      |
//! | it matches                           | the wait's outcome is written, and then the event's row may go  |
//! | it cannot be judged                  | it is no match; the reason is told should the time run out      |
//! | time over, no question open          | failed or skipped, written                                      |
//! | resumed by another owner             | what it needs is done again; it waits as long as it still may   |

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hashbrown::{HashMap, HashSet};
use honeyflow_event::{Event, EventId, Key, Name, Target};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::{
    Op, Signal, Wanted,
    write::{Checkpoint, Checkpointed},
};
use honeyflow_workflow::{Role, State};

use super::{
    Begun, Core,
    input::{Effect, LookId},
    judge::Question,
    plan::{Plan, SourceId},
    run::{Life, Wait},
    settle::After,
    timer::Waiting,
};
use crate::slots::Slot;

/// How long before a wait began an event may have come.
pub const SIGNAL_KEPT: Duration = Duration::from_secs(60 * 60);
/// A wait whose time ran out while nobody was there: what came meanwhile is read first.
const RESUMED_AT_LEAST: Duration = Duration::from_secs(5);
/// Waits that are looked up together, and signals read for each at a time.
const LOOKS_MAX: usize = 200;
const SIGNALS_PAGE: u32 = 100;

#[derive(Default)]
pub(crate) struct Waits {
    /// By source: the names that workflows wait for.
    names: Vec<HashSet<Name>>,
    /// By the source's name, whichever its shard; tenant and name.
    open: HashMap<(Name, Name, Name), Named>,
    /// Events whose signals are being written: whoever begins to wait meanwhile is asked about them.
    unkept: HashMap<(SourceId, EventId), Vec<Arc<Event>>>,
    deadlines: BTreeSet<(Moment, Waiting)>,
    looks: Vec<Looks>,
    last_look: LookId,
    /// Runs that only wait, and their rows.
    dormant: (usize, usize),
}

#[derive(Default)]
struct Named {
    of_any_key: Vec<Waiting>,
    by_key: HashMap<Key, Vec<Waiting>>,
}

/// Of one source: who is still to be looked up, behind which signal.
#[derive(Default)]
struct Looks {
    pending: Vec<(Waiting, i64)>,
    under_way: Option<(LookId, Vec<(Waiting, i64)>)>,
}

impl Waits {
    pub fn new(plan: &Plan) -> Waits {
        let names = plan.sources.iter().map(|source| {
            let begins = |workflow: &&Arc<super::plan::WorkflowPlan>| {
                let on = &workflow.graph.on;
                on.is_empty() || on.iter().any(|on| on.source == source.name)
            };
            let steps = plan.workflows.iter().filter(begins).flat_map(|workflow| &workflow.graph.steps);
            steps.filter(|step| step.role == Role::Wait).map(name_of).collect()
        });
        let looks = plan.sources.iter().map(|_| Looks::default()).collect();
        Waits { names: names.collect(), looks, ..Waits::default() }
    }

    pub fn next_deadline(&self) -> Moment {
        self.deadlines.first().map_or(Moment::FAR, |(at, _)| *at)
    }

    pub fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.deadlines.iter().map(|(_, waiting)| waiting)
    }

    pub fn forget_source(&mut self, source: SourceId) {
        self.unkept.retain(|(of, _), _| *of != source);
        self.looks[source as usize] = Looks::default();
    }

    pub fn kept(&mut self, source: SourceId, event: EventId) {
        self.unkept.remove(&(source, event));
    }

    /// Whether somebody waits for the name, or may.
    fn is_signal(&self, source: SourceId, place: &(Name, Name, Name)) -> bool {
        self.names[source as usize].contains(&place.2) || self.open.contains_key(place)
    }

    fn add(&mut self, place: (Name, Name, Name), key: Option<&Key>, waiting: Waiting, deadline: Moment) {
        let named = self.open.entry(place).or_default();
        match key {
            Some(key) => named.by_key.entry(key.clone()).or_default().push(waiting),
            None => named.of_any_key.push(waiting),
        }
        self.deadlines.insert((deadline, waiting));
    }

    fn remove(&mut self, place: &(Name, Name, Name), wait: &Wait, waiting: Waiting) {
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

fn name_of(step: &honeyflow_workflow::Step) -> Name {
    step.settings.get("name").and_then(|name| name.as_str()).unwrap_or_default().into()
}

impl Core {
    fn place(&self, source: SourceId, tenant: &Name, name: &Name) -> (Name, Name, Name) {
        (self.plan.sources[source as usize].name.clone(), tenant.clone(), name.clone())
    }

    fn place_of(&self, slot: Slot, name: &Name) -> (Name, Name, Name) {
        let run = self.runs.get(slot).expect("looked up by the caller");
        self.place(run.source, &self.keys.get(run.key).tenant, name)
    }

    /// Runs that something can be done for.
    pub(crate) fn busy_runs(&self) -> usize {
        self.runs.len() - self.waits.dormant.0.min(self.plan.limits.waiting_runs_max)
    }

    pub(crate) fn dormant_runs(&self) -> usize {
        self.waits.dormant.0
    }

    pub(crate) fn busy_rows(&self) -> usize {
        self.rows.len().saturating_sub(self.waits.dormant.1.min(self.plan.limits.waiting_runs_max))
    }

    /// An event that a run of an earlier owner may be waiting for stays where it is until that run goes on.
    pub(crate) fn comes_too_early(
        &mut self,
        source: SourceId,
        event: &Event,
        targets: &[Target],
        owed: &[(&Target, u16, usize)],
    ) -> bool {
        let name = &self.plan.sources[source as usize].name;
        let shards = self.plan.sources.iter().zip(&self.sources).filter(|(plan, _)| plan.name == *name);
        let mut begun = shards.map(|(_, state)| &state.checkpoints).filter(|all| !all.is_empty()).peekable();
        let state = &self.sources[source as usize];
        if begun.peek().is_none() || matches!(state.begun(event, owed, &self.plan), Begun::Covers) {
            return false;
        }
        let awaits = |run: &honeyflow_store::Settled, one: &Checkpoint| {
            let pinned = self.plan.pinned(source, &run.workflow, one.version).ok();
            let graph = pinned.map(|workflow| &self.plan.workflows[workflow].graph);
            let step = graph.and_then(|graph| graph.step(&one.step).map(|step| &graph.steps[step as usize]));
            let name = step.filter(|step| step.role == Role::Wait).map(name_of);
            run.tenant == event.tenant && name.is_some_and(|name| targets.iter().any(|target| target.entity == name))
        };
        let early = begun
            .flatten()
            .any(|(run, all)| all.iter().any(|one| matches!(one.outcome, Checkpointed::Until(_)) && awaits(run, one)));
        if early {
            self.sources[source as usize].crowded = true;
            self.counters.overflowed += 1;
        }
        early
    }

    /// Who waits for the event now, each with the event as it is seen by that name.
    pub(crate) fn awaited_by(
        &self,
        source: SourceId,
        event: &Arc<Event>,
        targets: &[Target],
    ) -> Vec<(Waiting, Arc<Event>)> {
        let mut found = Vec::new();
        if self.waits.open.is_empty() || event.workflow.is_some() {
            return found;
        }
        for target in targets {
            let Some(named) = self.waits.open.get(&self.place(source, &event.tenant, &target.entity)) else { continue };
            let seen = seen_as(event, target);
            let of_key = named.by_key.get(&target.key).into_iter().flatten();
            found.extend(named.of_any_key.iter().chain(of_key).map(|waiting| (*waiting, seen.clone())));
        }
        found
    }

    /// Whoever waits for it later finds it. Written before its row can go, or together with that.
    pub(crate) fn keep_signals(&mut self, source: SourceId, event: &Arc<Event>, targets: &[Target]) -> bool {
        let mut kept = false;
        if event.workflow.is_some() {
            return kept;
        }
        for target in targets {
            let place = self.place(source, &event.tenant, &target.entity);
            if self.waits.is_signal(source, &place) {
                kept = true;
                let op = Op::Signal { event: event.clone(), target: target.clone(), keep: SIGNAL_KEPT };
                self.push_op(source, op, After::Kept(event.id));
                self.waits.unkept.entry((source, event.id)).or_default().push(seen_as(event, target));
            }
        }
        self.counters.signals += u64::from(kept);
        kept
    }

    pub(crate) fn ask_whether(&mut self, waiting: Waiting, event: Arc<Event>, row: Option<Slot>) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let workflow = run.workflow;
        let Some(wait) = run.wait_mut(waiting.step) else { return };
        wait.asked += 1;
        self.judging.put(workflow, Question::Matches { waiting, event, row });
    }

    pub(crate) fn begin_wait(&mut self, waiting: Waiting, attempt: u32, millis: u64, key: Option<&Key>) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let source = run.source;
        let state = &self.sources[source as usize];
        let store_now = state.store_ahead_ms + i64::try_from(self.now.0 / 1000).unwrap_or(i64::MAX / 4);
        let millis = i64::try_from(millis).unwrap_or(i64::MAX / 4);
        run.given = true;
        let name = name_of(&run.plan.graph.steps[waiting.step as usize]);
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
            // The look that follows.
            asked: 1,
            overdue: false,
            unclear: None,
        }));
        let place = self.place_of(waiting.run, &name);
        self.waits.add(place.clone(), key, waiting, deadline);
        // Their writes may come after our look: of other shards, and where the wait's beginning was written before.
        let meets = |event: &&Arc<Event>| event.tenant == place.1 && event.entity == place.2;
        let of_key = |event: &&Arc<Event>| key.is_none_or(|key| event.key == *key);
        let unkept: Vec<_> = (self.waits.unkept.iter())
            .filter(|((of, _), _)| self.plan.sources[*of as usize].name == place.0)
            .flat_map(|(_, events)| events.iter().filter(meets).filter(of_key).cloned())
            .collect();
        unkept.into_iter().for_each(|event| self.ask_whether(waiting, event, None));
        if resumed {
            self.look_for(waiting);
            self.note_dormant(waiting.run);
        } else {
            let began = Checkpointed::Until(until_ms);
            self.checkpoint(waiting, attempt, began, Vec::new(), After::Awaiting(waiting));
        }
    }

    pub(crate) fn look_for(&mut self, waiting: Waiting) {
        if let Some(run) = self.runs.get_mut(waiting.run)
            && run.wait_mut(waiting.step).is_some()
        {
            let source = run.source;
            self.waits.looks[source as usize].pending.push((waiting, 0));
        }
    }

    /// Looks up what is to be looked up.
    pub(crate) fn look(&mut self, effects: &mut Vec<Effect>) {
        for source in 0..self.sources.len() {
            let looks = &mut self.waits.looks[source];
            if looks.pending.is_empty() || looks.under_way.is_some() || self.sources[source].term.is_none() {
                continue;
            }
            let count = looks.pending.len().min(LOOKS_MAX);
            let pending: Vec<_> = looks.pending.drain(..count).collect();
            let (mut asked, mut wanted) = (Vec::new(), Vec::new());
            for (waiting, after) in pending {
                let Some(run) = self.runs.get_mut(waiting.run) else { continue };
                let tenant = self.keys.get(run.key).tenant.clone();
                let Some(wait) = run.wait_mut(waiting.step) else { continue };
                wanted.push(Wanted {
                    tenant,
                    name: wait.name.clone(),
                    key: wait.key.clone(),
                    since_ms: wait.since_ms,
                    after,
                    limit: SIGNALS_PAGE,
                });
                asked.push((waiting, after));
            }
            if !wanted.is_empty() {
                self.waits.last_look += 1;
                let look = self.waits.last_look;
                self.waits.looks[source].under_way = Some((look, asked));
                effects.push(Effect::Look { source: super::id(source), look, wanted });
            }
        }
    }

    pub(crate) fn found(&mut self, source: SourceId, look: LookId, result: Result<Vec<Vec<Signal>>, Failure>) {
        let looks = &mut self.waits.looks[source as usize];
        let Some((_, asked)) = looks.under_way.take_if(|(under_way, _)| *under_way == look) else { return };
        let found = match result {
            Ok(found) if found.len() == asked.len() => found,
            other => {
                if let Err(failure) = other {
                    self.counters.note_store_failure(&failure);
                }
                self.waits.looks[source as usize].pending.extend(asked);
                return;
            }
        };
        for ((waiting, _), signals) in asked.into_iter().zip(found) {
            let more = signals.last().filter(|_| signals.len() >= SIGNALS_PAGE as usize).map(|last| last.id);
            for Signal { event, .. } in signals {
                self.ask_whether(waiting, event, None);
            }
            match more {
                Some(after) => self.waits.looks[source as usize].pending.push((waiting, after)),
                None => self.answered_wait(waiting),
            }
        }
    }

    /// What was asked about an event has an answer.
    pub(crate) fn answer_wait(&mut self, waiting: Waiting, event: &Event, result: Result<bool, Failure>) {
        let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else { return };
        match result {
            Ok(true) => {
                let output = Some(Arc::new(event.as_json()));
                self.end_wait(waiting, Checkpointed::Done(output.clone()), After::Finished(waiting, output));
                return;
            }
            Ok(false) => {}
            Err(failure) => wait.unclear = Some(format!("event {} could not be judged: {failure}", event.id)),
        }
        self.answered_wait(waiting);
    }

    fn answered_wait(&mut self, waiting: Waiting) {
        let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else { return };
        wait.asked -= 1;
        if wait.asked == 0 && wait.overdue {
            self.time_out(waiting);
        }
    }

    /// Nothing is decided while an answer is open: the event may be the one.
    pub(crate) fn end_overdue_waits(&mut self) {
        while let Some((at, waiting)) = self.waits.deadlines.first().copied()
            && at <= self.now
        {
            self.waits.deadlines.pop_first();
            let Some(wait) = self.runs.get_mut(waiting.run).and_then(|run| run.wait_mut(waiting.step)) else {
                continue;
            };
            wait.overdue = true;
            if wait.asked == 0 {
                self.time_out(waiting);
            }
        }
    }

    fn time_out(&mut self, waiting: Waiting) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let step = run.plan.graph.steps[waiting.step as usize].clone();
        let unclear = run.wait_mut(waiting.step).and_then(|wait| wait.unclear.take());
        if step.settings.get("on-timeout").and_then(|word| word.as_str()) == Some("skip") {
            self.end_wait(waiting, Checkpointed::Skipped, After::Skipped(waiting));
            return;
        }
        let mut message = format!("no event `{}` came within {:?}", name_of(&step), step.timeout);
        if let Some(unclear) = unclear {
            message = format!("{message}; {unclear}");
        }
        let failure = Failure::reject("wait-timeout", message);
        self.end_wait(waiting, Checkpointed::Failed(failure.clone()), After::Failed(waiting, failure));
    }

    fn end_wait(&mut self, waiting: Waiting, outcome: Checkpointed, after: After) {
        self.unregister(waiting);
        let Some(run) = self.runs.get(waiting.run) else { return };
        let attempt = run.attempt;
        self.checkpoint(waiting, attempt, outcome, Vec::new(), after);
        self.note_dormant(waiting.run);
    }

    fn unregister(&mut self, waiting: Waiting) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let extra = run.extras.as_mut().and_then(|extras| extras.steps.iter_mut().find(|e| e.step == waiting.step));
        let Some(wait) = extra.and_then(|extra| extra.wait.take()) else { return };
        let place = self.place_of(waiting.run, &wait.name);
        self.waits.remove(&place, &wait, waiting);
    }

    /// The run ends, is forgotten or moves: whatever it waits for.
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
            self.unregister(Waiting { run: slot, step, index });
        }
    }

    /// Whether a time or an event must come before anything of the run can be done.
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
        let dormant = run.life == Life::Open && run.leased == 0 && ready.peek().is_some() && ready.all(waits);
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

/// Under the name and key that it leads to.
fn seen_as(event: &Arc<Event>, target: &Target) -> Arc<Event> {
    if event.entity == target.entity && event.key == target.key {
        return event.clone();
    }
    Arc::new(Event { entity: target.entity.clone(), key: target.key.clone(), ..(**event).clone() })
}
