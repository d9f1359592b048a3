//! The retry budget: how much of a target's load may be retries. It is a tenth of its first attempts, plus one retry
//! per second; retries beyond that wait longer. If a target fails altogether, its breaker opens; the budget is for
//! targets that fail in part, where each failure would otherwise add load.
//!
//! If too many retries of a target wait, new work would only add to them: then no run that leads to the target begins,
//! and the waiting retries go as soon as their back-off ends.

use std::time::Duration;

use honeyflow_runtime::Moment;

use super::{
    Core,
    plan::{Plan, TargetId},
    ready::Queue,
    run::RunPhase,
    timer::{Timer, WaitingStep},
};

/// The budget that a first attempt earns, in thousandths of a retry.
const EARNED_BY_FIRST: u64 = 100;
const EARNED_BY_SECOND: u64 = 1_000;
/// The most that can be saved: enough for one whole batch of retries.
const SAVED_MAX: u64 = 500_000;
/// If more items than this wait to be retried, the target is crowded, until half of them are gone.
const DELAYED_MAX: usize = 1_000;
/// The time between two checks of the budget.
const LOOK_AFTER_MICROS: u64 = 500_000;

pub(crate) struct Budgets {
    targets: Vec<Budget>,
    /// The number of crowded targets; nearly always zero.
    crowded: usize,
}

struct Budget {
    saved: u64,
    since: Moment,
    /// Items that wait to be retried.
    delayed: usize,
    crowded: bool,
}

impl Budget {
    fn earn_by_time(&mut self, now: Moment) {
        let millis = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.since = self.since.after(Duration::from_millis(millis));
        let earned = millis.saturating_mul(EARNED_BY_SECOND) / 1_000;
        self.saved = self.saved.saturating_add(earned).min(SAVED_MAX);
    }
}

impl Budgets {
    pub fn new(plan: &Plan) -> Budgets {
        let full = || Budget { saved: SAVED_MAX, since: Moment::default(), delayed: 0, crowded: false };
        Budgets { targets: plan.targets.iter().map(|_| full()).collect(), crowded: 0 }
    }

    /// Adds the earnings of `first` items that were given out for the first time.
    pub fn earn(&mut self, target: TargetId, first: usize) {
        let budget = &mut self.targets[target as usize];
        budget.saved = budget.saved.saturating_add(first as u64 * EARNED_BY_FIRST).min(SAVED_MAX);
    }

    /// The target is healthy again: raises the budget so that all waiting retries may go.
    pub fn allow_all(&mut self, target: TargetId) {
        let budget = &mut self.targets[target as usize];
        budget.saved = budget.saved.max(budget.delayed as u64 * 1_000);
    }

    fn add_delayed(&mut self, target: TargetId, items: usize) {
        let budget = &mut self.targets[target as usize];
        budget.delayed += items;
        if budget.delayed > DELAYED_MAX && !budget.crowded {
            budget.crowded = true;
            self.crowded += 1;
        }
    }

    /// Returns how many of the `due` retries may go; all if something else bounds them (`freely`).
    fn grant(&mut self, target: TargetId, due: usize, freely: bool, now: Moment) -> usize {
        let budget = &mut self.targets[target as usize];
        budget.earn_by_time(now);
        if freely || budget.crowded || crate::planted::on("PB-35") {
            return due;
        }
        let granted = due.min(usize::try_from(budget.saved / 1_000).unwrap_or(usize::MAX));
        budget.saved -= granted as u64 * 1_000;
        granted
    }

    fn remove_delayed(&mut self, target: TargetId, items: usize) {
        let budget = &mut self.targets[target as usize];
        budget.delayed -= items;
        if budget.crowded && budget.delayed <= DELAYED_MAX / 2 {
            budget.crowded = false;
            self.crowded -= 1;
        }
    }

    /// Whether runs of the workflow may begin. If they begin at the crowded target itself they may: the retries stand
    /// in the same queue, before them.
    pub fn admits(&self, plan: &Plan, queue: &Queue) -> bool {
        self.crowded == 0
            || !queue.begins
            || self.crowded_target(plan, queue.workflow).is_none_or(|target| target == queue.target)
    }

    /// Returns a crowded target of the workflow.
    pub fn crowded_target(&self, plan: &Plan, workflow: usize) -> Option<TargetId> {
        if self.crowded == 0 {
            return None;
        }
        plan.workflows[workflow].targets.iter().copied().find(|target| self.targets[*target as usize].crowded)
    }

    /// Returns the crowded targets, each with the number of retries that wait.
    pub fn crowded_targets(&self) -> impl Iterator<Item = (usize, usize)> {
        let targets = self.targets.iter().enumerate().filter(|(_, budget)| budget.crowded);
        targets.map(|(target, budget)| (target, budget.delayed))
    }
}

impl Core {
    /// Schedules items that failed together to be retried together.
    pub(crate) fn schedule_retries(&mut self, target: TargetId, at: Moment, items: Vec<WaitingStep>) {
        self.budgets.add_delayed(target, items.len());
        self.timers.set(at, Timer::Retries(target, items));
    }

    pub(crate) fn retry_due(&mut self, target: TargetId, mut items: Vec<WaitingStep>) {
        let due = items.len();
        items.retain(|waiting| self.runs.get(waiting.run).is_some_and(|run| run.phase == RunPhase::Open));
        // A breaker that is open or probing bounds the items itself.
        let freely = !self.gates.is_passing(target);
        let granted = self.budgets.grant(target, items.len(), freely, self.now);
        let rest = items.split_off(granted);
        self.budgets.remove_delayed(target, due - rest.len());
        for waiting in items {
            self.wake(waiting);
        }
        if !rest.is_empty() {
            let wait = LOOK_AFTER_MICROS + self.random() % LOOK_AFTER_MICROS;
            let at = self.now.after(Duration::from_micros(wait));
            self.timers.set(at, Timer::Retries(target, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets() -> Budgets {
        let budget = Budget { saved: SAVED_MAX, since: Moment::default(), delayed: 0, crowded: false };
        Budgets { targets: vec![budget], crowded: 0 }
    }

    fn seconds(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000)
    }

    #[test]
    fn wf_65_a_tenth_of_the_first_attempts_and_one_a_second() {
        let mut budgets = budgets();
        assert_eq!(budgets.grant(0, 600, false, seconds(0)), 500, "what was saved");
        assert_eq!(budgets.grant(0, 1, false, seconds(0)), 0);
        budgets.earn(0, 95);
        assert_eq!(budgets.grant(0, 100, false, seconds(0)), 9);
        assert_eq!(budgets.grant(0, 100, false, seconds(3)), 3, "and half a one is kept");
        budgets.earn(0, 5);
        assert_eq!(budgets.grant(0, 100, false, seconds(3)), 1);
        assert_eq!(budgets.grant(0, 100, true, seconds(3)), 100, "unless the breaker counts");
    }

    #[test]
    fn wf_65_a_crowd_is_bounded_by_its_back_off_alone() {
        let mut budgets = budgets();
        budgets.grant(0, 500, false, seconds(0));
        budgets.add_delayed(0, 1_000);
        assert_eq!((budgets.grant(0, 100, false, seconds(0)), budgets.crowded), (0, 0));
        budgets.add_delayed(0, 1);
        assert_eq!((budgets.grant(0, 100, false, seconds(0)), budgets.crowded), (100, 1));
        budgets.remove_delayed(0, 500);
        assert_eq!(budgets.crowded, 1, "not until half of them are gone");
        budgets.remove_delayed(0, 1);
        assert_eq!(budgets.crowded, 0);
    }
}
