//! How much of what a target gets may be retries: a tenth of its first attempts, and one a second. Whatever is due beyond
//! that waits on. A target that fails altogether is its breaker's business; this one is for those that fail in part, where
//! every failure would bring more load.
//!
//! Where too many wait, more work would only add to them: then nothing begins that leads to the target, and those who wait
//! go as their back-off says.

use std::time::Duration;

use honeyflow_runtime::Moment;

use super::{
    Core,
    plan::{Plan, TargetId},
    ready::Queue,
    run::Life,
    timer::{Timer, Waiting},
};

/// In thousandths of a retry.
const EARNED_BY_FIRST: u64 = 100;
const EARNED_BY_SECOND: u64 = 1_000;
/// A whole batch may always come back.
const SAVED_MAX: u64 = 500_000;
/// So many items of a target that wait to be tried again are too many, until half of them are gone.
const DELAYED_MAX: usize = 1_000;
/// Between two looks at whether there is something to spend.
const LOOK_AFTER_MICROS: u64 = 500_000;

pub(crate) struct Budgets {
    targets: Vec<Budget>,
    /// How many targets are crowded: nearly always none.
    crowded: usize,
}

struct Budget {
    saved: u64,
    since: Moment,
    /// Items that wait to be tried again.
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

    /// So many items were given out for the first time.
    pub fn earn(&mut self, target: TargetId, first: usize) {
        let budget = &mut self.targets[target as usize];
        budget.saved = budget.saved.saturating_add(first as u64 * EARNED_BY_FIRST).min(SAVED_MAX);
    }

    /// The target is well again: whoever waits for it may come.
    pub fn forgive(&mut self, target: TargetId) {
        let budget = &mut self.targets[target as usize];
        budget.saved = budget.saved.max(budget.delayed as u64 * 1_000);
    }

    fn delay(&mut self, target: TargetId, items: usize) {
        let budget = &mut self.targets[target as usize];
        budget.delayed += items;
        if budget.delayed > DELAYED_MAX && !budget.crowded {
            budget.crowded = true;
            self.crowded += 1;
        }
    }

    /// How many of those that are due may go; `freely` if something else bounds them.
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

    fn left(&mut self, target: TargetId, items: usize) {
        let budget = &mut self.targets[target as usize];
        budget.delayed -= items;
        if budget.crowded && budget.delayed <= DELAYED_MAX / 2 {
            budget.crowded = false;
            self.crowded -= 1;
        }
    }

    /// Whether runs of the workflow may begin. Where they begin at the crowded target itself, those that come again stand in
    /// the same queue, before the others.
    pub fn admits(&self, plan: &Plan, queue: &Queue) -> bool {
        self.crowded == 0
            || !queue.begins
            || self.crowding(plan, queue.workflow).is_none_or(|target| target == queue.target)
    }

    /// A target of the workflow for which too many wait.
    pub fn crowding(&self, plan: &Plan, workflow: usize) -> Option<TargetId> {
        if self.crowded == 0 {
            return None;
        }
        plan.workflows[workflow].targets.iter().copied().find(|target| self.targets[*target as usize].crowded)
    }

    /// Targets for which too many wait, and how many these are.
    pub fn crowded(&self) -> impl Iterator<Item = (usize, usize)> {
        let targets = self.targets.iter().enumerate().filter(|(_, budget)| budget.crowded);
        targets.map(|(target, budget)| (target, budget.delayed))
    }
}

impl Core {
    /// They have failed together, and come back together.
    pub(crate) fn try_later(&mut self, target: TargetId, at: Moment, items: Vec<Waiting>) {
        self.budgets.delay(target, items.len());
        self.timers.set(at, Timer::Retries(target, items));
    }

    pub(crate) fn try_again(&mut self, target: TargetId, mut items: Vec<Waiting>) {
        let due = items.len();
        items.retain(|waiting| self.runs.get(waiting.run).is_some_and(|run| run.life == Life::Open));
        // A breaker that is not open to all counts by itself what it lets through.
        let freely = !self.gates.is_passing(target);
        let granted = self.budgets.grant(target, items.len(), freely, self.now);
        let rest = items.split_off(granted);
        self.budgets.left(target, due - rest.len());
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
        budgets.delay(0, 1_000);
        assert_eq!((budgets.grant(0, 100, false, seconds(0)), budgets.crowded), (0, 0));
        budgets.delay(0, 1);
        assert_eq!((budgets.grant(0, 100, false, seconds(0)), budgets.crowded), (100, 1));
        budgets.left(0, 500);
        assert_eq!(budgets.crowded, 1, "not until half of them are gone");
        budgets.left(0, 1);
        assert_eq!(budgets.crowded, 0);
    }
}
