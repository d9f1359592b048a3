//! Gates: whether steps of a workflow or target may be given out now. A gate is closed by an open breaker, a pause, a
//! stopped workflow, or a target that said when to come back. The reason is also the answer to "why does it wait".
//!
//! A breaker: passing → (≥ 20 outcomes in 30 s, half of them `Retry`, from ≥ 3 calls) → open → after 1, 2, 4 … 10 s
//! probing with 1, 2, 4 … items → passing, or open again.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};
use serde::Serialize;

use super::{
    plan::{Plan, TargetId},
    ready::Queue,
};

const WINDOW: Duration = Duration::from_secs(30);
const OUTCOMES_MIN: u32 = 20;
const CALLS_MIN: u32 = 3;
/// A stopped workflow is tried again after this long.
const STOPPED_FOR: Duration = Duration::from_secs(60);
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Passing,
    Open {
        until: Moment,
    },
    /// Half open: `allowed` items may be out at once, `out` of them are.
    Probing {
        allowed: u32,
        out: u32,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    state: State,
    window_from: Moment,
    fine: u32,
    failed: u32,
    failed_calls: u32,
    opened_times: u32,
    pub last_failure: Option<Failure>,
}

impl Breaker {
    fn new() -> Breaker {
        Breaker {
            state: State::Passing,
            window_from: Moment::default(),
            fine: 0,
            failed: 0,
            failed_calls: 0,
            opened_times: 0,
            last_failure: None,
        }
    }

    fn passes(&self, now: Moment) -> bool {
        match self.state {
            State::Passing => true,
            State::Open { until } => now >= until,
            State::Probing { allowed, out } => out < allowed,
        }
    }

    fn allowed(&self) -> usize {
        match self.state {
            State::Passing => usize::MAX,
            State::Open { .. } => 1,
            State::Probing { allowed, out } => (allowed - out).max(1) as usize,
        }
    }

    fn on_given(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match &mut self.state {
            State::Passing => {}
            State::Open { .. } => self.state = State::Probing { allowed: 1, out: count },
            State::Probing { out, .. } => *out = out.saturating_add(count),
        }
    }

    /// A batch has ended, answered or not: a lost probe must not block the target for ever.
    fn on_returned(&mut self, count: usize) {
        if let State::Probing { out, .. } = &mut self.state {
            *out = out.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Counts the outcomes of one call. If the breaker opens, returns until when.
    fn record(&mut self, fine: u32, failed: u32, now: Moment, random: u64) -> Option<Moment> {
        if now.since(self.window_from) > WINDOW {
            (self.window_from, self.fine, self.failed, self.failed_calls) = (now, 0, 0, 0);
        }
        self.fine += fine;
        self.failed += failed;
        self.failed_calls += u32::from(failed > 0);
        match self.state {
            State::Probing { allowed, out } => {
                if failed * 2 >= fine + failed && failed > 0 {
                    return Some(self.open(now, random));
                }
                if fine == 0 {
                    return None;
                }
                self.state = State::Probing { allowed: allowed.saturating_mul(2), out };
                if allowed >= 256 {
                    *self = Breaker::new();
                    self.window_from = now;
                }
                None
            }
            State::Passing => {
                let outcomes = self.fine + self.failed;
                let closes = outcomes >= OUTCOMES_MIN && self.failed * 2 >= outcomes && self.failed_calls >= CALLS_MIN;
                closes.then(|| self.open(now, random))
            }
            State::Open { .. } => None,
        }
    }

    fn open(&mut self, now: Moment, random: u64) -> Moment {
        let wait = WAIT_FIRST.saturating_mul(1 << self.opened_times.min(8)).min(WAIT_MAX);
        self.opened_times += 1;
        let jitter = Duration::from_millis(random % 200);
        let until = now.after(wait + jitter);
        self.state = State::Open { until };
        (self.fine, self.failed, self.failed_calls) = (0, 0, 0);
        until
    }
}

pub(crate) struct Gates {
    targets: Vec<Breaker>,
    workflows: Vec<WorkflowGate>,
    names: Vec<Name>,
}

struct WorkflowGate {
    paused: bool,
    fatal: Option<StoppedWorkflow>,
    storm: Storm,
    parked_from: Moment,
    parked: u32,
}

/// A workflow that was stopped by a bug or bad configuration. It is tried again every 60 s: the cause may be gone.
struct StoppedWorkflow {
    failure: Failure,
    until: Moment,
}

/// Too many runs of a workflow are due for parking: they probably have a common cause, so parking is slowed, never
/// stopped. While it lasts, runs begin one by one; runs that have begun continue.
#[derive(Clone, Default, Debug)]
struct Storm {
    until: Option<Moment>,
    times: u32,
}

impl Storm {
    fn passes(&self, now: Moment) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    fn close(&mut self, now: Moment, random: u64) -> Moment {
        let wait = WAIT_FIRST.saturating_mul(1 << self.times.min(8)).min(WAIT_MAX);
        self.times += 1;
        let until = now.after(wait + Duration::from_millis(random % 200));
        self.until = Some(until);
        until
    }
}

impl WorkflowGate {
    fn is_running(&self, now: Moment) -> bool {
        self.fatal.as_ref().is_none_or(|stopped| now >= stopped.until)
    }
}

/// The reason why a workflow, target or limit lets no step pass.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClosedGate {
    pub name: Name,
    pub reason: &'static str,
    pub detail: String,
}

impl Gates {
    pub fn new(plan: &Plan) -> Gates {
        Gates {
            targets: plan.targets.iter().map(|_| Breaker::new()).collect(),
            workflows: plan
                .workflows
                .iter()
                .map(|_| WorkflowGate {
                    paused: false,
                    fatal: None,
                    storm: Storm::default(),
                    parked_from: Moment::default(),
                    parked: 0,
                })
                .collect(),
            names: plan.workflows.iter().map(|workflow| workflow.name.clone()).collect(),
        }
    }

    pub fn passes(&self, queue: &Queue, now: Moment) -> bool {
        let workflow = &self.workflows[queue.workflow];
        !workflow.paused
            && workflow.is_running(now)
            && (!queue.begins || workflow.storm.passes(now))
            && (queue.kind == super::plan::EXPRESSION || self.targets[queue.target as usize].passes(now))
    }

    pub fn allowed(&self, queue: &Queue) -> usize {
        let storm = if queue.begins && self.workflows[queue.workflow].storm.until.is_some() { 1 } else { usize::MAX };
        if queue.kind == super::plan::EXPRESSION {
            return storm;
        }
        storm.min(self.targets[queue.target as usize].allowed())
    }

    /// Notes a batch that was given out. If it used the one run that a storm allows, returns when the next may begin.
    pub fn on_given(&mut self, queue: &Queue, count: usize, now: Moment) -> Option<Moment> {
        if queue.kind != super::plan::EXPRESSION {
            self.targets[queue.target as usize].on_given(count);
        }
        let storm = &mut self.workflows[queue.workflow].storm;
        storm.until.as_mut().filter(|_| queue.begins).map(|until| {
            *until = now.after(WAIT_FIRST);
            *until
        })
    }

    /// The batch has ended, with or without an answer.
    pub fn on_returned(&mut self, target: TargetId, count: usize) {
        self.targets[target as usize].on_returned(count);
    }

    pub fn record(&mut self, target: TargetId, fine: u32, failed: u32, now: Moment, random: u64) -> Option<Moment> {
        self.targets[target as usize].record(fine, failed, now, random)
    }

    pub fn note(&mut self, target: TargetId, failure: &Failure) {
        self.targets[target as usize].last_failure = Some(failure.clone());
    }

    /// Whether the breaker lets everything pass: it is neither open nor probing.
    pub fn is_passing(&self, target: TargetId) -> bool {
        self.targets[target as usize].state == State::Passing
    }

    /// Opens the breaker until the time that the target gave, for example with a 429.
    pub fn open_until(&mut self, target: TargetId, until: Moment) {
        let breaker = &mut self.targets[target as usize];
        let until = match breaker.state {
            State::Open { until: before } => before.max(until),
            _ => until,
        };
        breaker.state = State::Open { until };
    }

    pub fn pause(&mut self, workflow: &str, paused: bool) {
        for (name, gate) in self.names.iter().zip(&mut self.workflows) {
            if &**name == workflow {
                gate.paused = paused;
            }
        }
    }

    /// Stops the workflow. Returns until when, and whether it was running before.
    pub fn stop(&mut self, workflow: usize, failure: Failure, now: Moment) -> (Moment, bool) {
        let until = now.after(STOPPED_FOR);
        let before = self.workflows[workflow].fatal.replace(StoppedWorkflow { failure, until });
        (until, before.is_none())
    }

    pub fn is_stopped(&self, workflow: usize, now: Moment) -> bool {
        !self.workflows[workflow].is_running(now)
    }

    pub fn clear_fatal(&mut self) {
        self.workflows.iter_mut().for_each(|workflow| workflow.fatal = None);
    }

    /// Counts a run of the workflow that is due for parking. If it was one too many, returns until when runs are
    /// slowed.
    pub fn on_park(&mut self, workflow: usize, max_per_minute: u32, now: Moment, random: u64) -> Option<Moment> {
        let gate = &mut self.workflows[workflow];
        if now.since(gate.parked_from) > Duration::from_secs(60) {
            (gate.parked_from, gate.parked) = (now, 0);
        }
        gate.parked += 1;
        (gate.parked > max_per_minute).then(|| gate.storm.close(now, random))
    }

    /// A run of the workflow has succeeded: a storm is over.
    pub fn on_success(&mut self, workflow: usize) {
        let gate = &mut self.workflows[workflow];
        gate.fatal = None;
        if gate.storm.until.is_some() {
            gate.storm = Storm::default();
            gate.parked = 0;
        }
    }

    pub fn is_gated(&self, workflow: usize, targets: &[TargetId], now: Moment) -> bool {
        let gate = &self.workflows[workflow];
        gate.paused
            || !gate.is_running(now)
            || !gate.storm.passes(now)
            || targets.iter().any(|target| matches!(self.targets[*target as usize].state, State::Open { .. }))
    }

    /// Returns the reason why a step waits, if a gate is closed for it.
    pub fn reason(
        &self,
        workflow: usize,
        target: TargetId,
        expression: bool,
        begins: bool,
        now: Moment,
    ) -> Option<&'static str> {
        let gate = &self.workflows[workflow];
        if gate.paused {
            Some("paused")
        } else if !gate.is_running(now) {
            Some("fatal")
        } else if begins && !gate.storm.passes(now) {
            Some("storm")
        } else if !expression && !self.targets[target as usize].passes(now) {
            Some("breaker")
        } else {
            None
        }
    }

    pub fn closed_gates(&self, plan: &Plan, now: Moment) -> Vec<ClosedGate> {
        let mut closed = Vec::new();
        for ((gate, name), planned) in self.workflows.iter().zip(&self.names).zip(&plan.workflows) {
            let mut say = |reason, detail| closed.push(ClosedGate { name: name.clone(), reason, detail });
            if let Some(stopped) = &gate.fatal {
                say("fatal", stopped.failure.message.clone());
            }
            if gate.paused && !planned.older {
                say("paused", "resume it with `honeyflow workflow resume`".to_owned());
            }
            if !gate.storm.passes(now) {
                say("storm", "too many keys were due for parking within a minute".to_owned());
            }
        }
        for (breaker, name) in self.targets.iter().zip(&plan.targets) {
            // A half-open breaker lets some items pass, perhaps all there are: that is no reason to wait.
            if !breaker.passes(now) {
                let detail = breaker.last_failure.as_ref().map_or_else(String::new, |failure| failure.message.clone());
                closed.push(ClosedGate { name: name.clone(), reason: "breaker", detail });
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000)
    }

    #[test]
    fn wf_114_a_breaker_closes_on_half_of_twenty_and_probes_its_way_back() {
        let mut breaker = Breaker::new();
        assert_eq!(breaker.record(0, 500, seconds(1), 0), None, "one call alone closes nothing");
        assert_eq!(breaker.record(0, 1, seconds(1), 0), None);
        let until = breaker.record(0, 1, seconds(1), 0).expect("the third failed call closes it");
        assert_eq!(until, seconds(2));
        assert!(!breaker.passes(seconds(1)) && breaker.passes(seconds(2)));
        assert_eq!(breaker.allowed(), 1);
        breaker.on_given(1);
        assert!(!breaker.passes(seconds(2)), "one probe at a time");
        assert_eq!(breaker.record(0, 1, seconds(3), 0), Some(seconds(5)), "twice as long");
        breaker.on_given(1);
        for _ in 0..9 {
            let allowed = u32::try_from(breaker.allowed()).unwrap_or(1);
            breaker.on_returned(1);
            assert_eq!(breaker.record(allowed, 0, seconds(6), 0), None);
        }
        assert_eq!(breaker.state, State::Passing);
    }

    #[test]
    fn wf_114_more_good_than_bad_keeps_it_open() {
        let mut breaker = Breaker::new();
        for _ in 0..100 {
            assert_eq!(breaker.record(6, 4, seconds(1), 0), None);
        }
    }
}
