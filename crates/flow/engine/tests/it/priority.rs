//! WF-69: what waits longer rises, every level keeps its share, and the first level does not wait behind the others.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_event::{Event, EventId, Priority};
use honeyflow_source::Intake;
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, leads_to, row, taken};

const MINUTE_MS: u64 = 60_000;

fn lone(batch: u32) -> Vec<Workflow> {
    vec![Workflow::new("lone").on("shop", "book").step("do", step("work").set("batch", batch))]
}

/// A table without a worker, and the id of its last row.
struct Backlog {
    table: Table,
    last: EventId,
}

impl Backlog {
    fn new(workflows: &[Workflow]) -> Backlog {
        let mut table = Table::new(workflows);
        table.hello(0, 0);
        Backlog { table, last: 0 }
    }

    /// Adds events of a level for all workflows, or for one.
    fn add(&mut self, level: Priority, count: i64, workflow: Option<&str>) {
        let ids = self.last + 1..=self.last + count;
        self.last += count;
        let event = |id| {
            let event = Event { workflow: workflow.map(Into::into), ..(*row(id, &format!("k{id}"), level)).clone() };
            Arc::new(event)
        };
        let events = ids.map(event).map(|event| taken(event.clone(), leads_to(&event)));
        self.table.answer_poll(Intake { taken: events.collect(), ..Intake::default() });
    }

    /// One worker takes one batch of each kind at a time.
    fn begin(&mut self) {
        self.table.hello(0, 1);
    }

    /// Answers the oldest batch; returns its workflow and the levels of its items.
    fn serve(&mut self) -> (String, Vec<Priority>) {
        let (batch, work) = self.table.next();
        let levels = work.items.iter().map(|item| item.event.priority).collect();
        self.table.answer(batch, work.items.len(), &Outcome::Done(None));
        (work.workflow.to_string(), levels)
    }

    /// Serves batches of one item; returns their levels.
    fn levels(&mut self, count: usize) -> Vec<Priority> {
        (0..count).map(|_| self.serve().1[0]).collect()
    }
}

/// Returns the level that is served first, after `waiting` has waited and when work of level `fresh` has just come.
fn first(waiting: Priority, waited_ms: u64, fresh: Priority) -> Priority {
    let mut backlog = Backlog::new(&lone(1));
    backlog.add(waiting, 1, None);
    backlog.table.pass(waited_ms);
    backlog.add(fresh, 1, None);
    backlog.begin();
    backlog.levels(1)[0]
}

#[test]
fn wf_69_waiting_work_rises_one_level_in_half_a_minute() {
    for level in 3..=6 {
        assert_eq!(first(level, 59_000, level - 2), level - 2, "level {level} has risen once");
        assert_eq!(first(level, 59_000, level - 1), level - 1, "a tie: level {level} has risen once");
        assert_eq!(first(level, 60_000, level - 1), level, "level {level} has risen twice");
    }
    assert_eq!(first(2, 61_000, 1), 2);
}

#[test]
fn wf_69_work_rises_by_three_levels_at_most() {
    assert_eq!(first(6, 60 * MINUTE_MS, 4), 6);
    assert_eq!(first(6, 60 * MINUTE_MS, 3), 3);
    assert_eq!(first(1, 60 * MINUTE_MS, 0), 0, "nothing goes before the first level");
}

#[test]
fn wf_69_background_work_does_not_rise() {
    for level in 7..=9 {
        assert_eq!(first(level, 60 * MINUTE_MS, level - 1), level - 1);
    }
}

/// 5 % are one batch of twenty.
#[test]
fn wf_69_each_level_with_work_keeps_its_share() {
    for level in 1..=9 {
        let mut backlog = Backlog::new(&lone(1));
        backlog.add(0, 400, None);
        backlog.add(level, 100, None);
        backlog.begin();
        let served = backlog.levels(200);
        for twenty in served.chunks(20) {
            assert_eq!(twenty.iter().filter(|served| **served == level).count(), 1, "level {level}: {twenty:?}");
        }
    }
}

#[test]
fn wf_69_nine_levels_keep_their_shares_behind_the_first() {
    let mut backlog = Backlog::new(&lone(1));
    (0..=9).for_each(|level| backlog.add(level, 300, None));
    backlog.begin();
    let served = backlog.levels(400);
    for level in 1..=9 {
        let times = served.iter().filter(|served| **served == level).count();
        assert!((19..=21).contains(&times), "level {level} is served {times} times of 400");
    }
}

/// The share is one of items: a level that waits with full batches gets one full batch of twenty.
#[test]
fn wf_69_shares_are_counted_in_items() {
    let mut backlog = Backlog::new(&lone(10));
    backlog.add(0, 2_000, None);
    backlog.add(9, 200, None);
    backlog.begin();
    let served: Vec<_> = (0..100).map(|_| backlog.serve().1).collect();
    let last = served.iter().flatten().filter(|level| **level == 9).count();
    assert_eq!(last, 50, "of {} items", served.iter().flatten().count());
}

/// Single items of a better level are owed their share after each large batch, and still do not hold up the last one.
#[test]
fn wf_69_a_trickle_does_not_hold_up_the_other_shares() {
    let mut backlog = Backlog::new(&lone(10));
    backlog.add(0, 3_000, None);
    backlog.add(9, 200, None);
    backlog.begin();
    let mut last = 0;
    for _ in 0..200 {
        backlog.add(1, 1, None);
        last += backlog.serve().1.iter().filter(|level| **level == 9).count();
    }
    assert!(last >= 50, "{last} items of the last level in 200 batches");
}

/// Nor do they hold up a workflow with larger batches of the same level.
#[test]
fn wf_70_a_trickle_does_not_hold_up_another_workflow() {
    let one = |name: &str, batch: u32| {
        let only = step("work").set("batch", batch);
        Workflow::new(name).on("shop", "book").set("exclusion", "workflow").step("do", only)
    };
    let mut backlog = Backlog::new(&[one("large", 10), one("small", 1)]);
    backlog.add(0, 2_000, Some("small"));
    backlog.add(9, 200, Some("large"));
    backlog.begin();
    let mut served = Vec::new();
    for _ in 0..1_000 {
        backlog.add(9, 1, Some("small"));
        served.push(backlog.serve());
    }
    let large = served.iter().filter(|(name, _)| name == "large").count();
    assert!((4..=6).contains(&large), "{large} batches of ten");
}

/// One kind of step may be idle while another has a backlog: what the idle one serves is not the busy one's share.
#[test]
fn wf_69_each_kind_of_step_keeps_the_shares() {
    let one = |name: &str, kind| {
        Workflow::new(name).on("shop", "book").set("exclusion", "workflow").step("do", step(kind).set("batch", 1))
    };
    let mut backlog = Backlog::new(&[one("busy", "work"), one("idle", "shape")]);
    backlog.add(0, 400, Some("busy"));
    backlog.add(9, 400, None);
    backlog.begin();
    let served: Vec<_> = (0..400).map(|_| backlog.serve()).collect();
    let busy: Vec<Priority> = served.iter().filter(|(name, _)| name == "busy").map(|(_, levels)| levels[0]).collect();
    assert_eq!(busy.len(), 200);
    assert_eq!(busy.iter().filter(|level| **level == 9).count(), 10, "{busy:?}");
}

/// Workflows take turns in the share of their level, too.
#[test]
fn wf_70_workflows_take_turns_in_a_share() {
    let one = |name: &str| {
        Workflow::new(name).on("shop", "book").set("exclusion", "workflow").step("do", step("work").set("batch", 1))
    };
    let mut backlog = Backlog::new(&[one("a"), one("b")]);
    backlog.add(0, 400, Some("a"));
    backlog.add(9, 100, None);
    backlog.begin();
    let served: Vec<_> = (0..400).map(|_| backlog.serve()).collect();
    for name in ["a", "b"] {
        let times = served.iter().filter(|(of, levels)| of == name && levels[0] == 9).count();
        assert_eq!(times, 10, "the share of {name}");
    }
}

/// The shares of nine levels may fall due together; still only one of them goes before the first level.
#[test]
fn wf_69_the_first_level_waits_one_batch_at_most() {
    for before in 0..60 {
        let mut backlog = Backlog::new(&lone(1));
        (1..=9).for_each(|level| backlog.add(level, 300, None));
        backlog.begin();
        backlog.levels(before);
        backlog.add(0, 1, None);
        backlog.levels(1);
        let next = backlog.levels(2);
        assert!(next.contains(&0), "after {before} batches, {next:?} go before it");
    }
}

/// A new worker changes nothing: the shares belong to the node.
#[test]
fn wf_69_shares_hold_over_the_loss_of_a_worker() {
    let mut backlog = Backlog::new(&lone(1));
    backlog.add(0, 400, None);
    backlog.add(9, 10, None);
    backlog.begin();
    let mut served = backlog.levels(10);
    backlog.table.next();
    backlog.table.send(Input::WorkerLost { worker: 0 });
    backlog.table.hello(1, 1);
    served.extend(backlog.levels(12));
    assert!(served.contains(&9), "{served:?}");
}
