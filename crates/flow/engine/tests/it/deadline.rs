//! Deadlines of runs: they hold in every state of a run and over a change of its owner.

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_step::Outcome;
use honeyflow_store::{
    Op, RecoveredState,
    write::{Checkpoint, CheckpointOutcome, WHOLE_RUN_STEP},
};
use honeyflow_workflow::{
    Workflow,
    builder::{Step, step},
};

use crate::table::{Table, failed, keys, leads_to, parked, row, settled, taken};

/// `load → middle → index`, to be done within ten seconds.
fn within_ten_seconds(middle: Step) -> Vec<Workflow> {
    vec![
        Workflow::new("quick")
            .on("shop", "book")
            .set("deadline", "10s")
            .step("load", step("load"))
            .step("middle", middle.needs(["load"]))
            .step("index", step("index").needs(["load", "middle"])),
    ]
}

fn assert_parked_for_its_deadline(ops: &[Op]) {
    let parked = parked(ops);
    assert_eq!(parked.len(), 1, "{ops:?}");
    assert_eq!((&*parked[0].failure.code, &*parked[0].step, &parked[0].events[..]), ("deadline", "middle", &[1][..]));
    assert!(parked[0].failure.message.contains("10s"), "{}", parked[0].failure.message);
}

/// WF-61: the run may sleep, wait for an event, or wait between two attempts.
#[test]
fn wf_61_a_deadline_ends_a_run_that_waits() {
    for middle in
        [step("sleep").set("for", "1h"), step("wait").set("name", "payment").set("timeout", "1h"), step("work")]
    {
        let mut table = Table::new(&within_ten_seconds(middle));
        table.rows(&[(1, "a")]);
        table.done("load");
        table.commit_all();
        if let Some((batch, work)) = table.given.pop_front() {
            assert_eq!(&*work.step, "middle");
            table.answer(batch, 1, &failed(Failure::retry_after(std::time::Duration::from_secs(60), "busy", "later")));
        }
        table.pass(9_900);
        assert_eq!((table.open_runs(), table.written.len()), (1, 0));
        table.pass(200);
        assert_parked_for_its_deadline(&table.commit_all());
        table.pass(4_000_000);
        assert!(table.given.is_empty() && table.open_runs() == 0, "no step or run is left");
    }
}

/// WF-61: an attempt that a worker holds gets the same grace period as that of a cancelled run.
#[test]
fn wf_61_a_deadline_takes_back_attempts_from_workers() {
    let mut table = Table::new(&within_ten_seconds(step("work")));
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, _) = table.next();
    table.pass(10_000);
    assert_eq!(table.withdrawn, [(batch, vec![0], true)]);
    assert!(table.written.is_empty(), "the key is held");
    table.answer(batch, 1, &Outcome::Done(None));
    assert_parked_for_its_deadline(&table.commit_all());
}

#[test]
fn wf_61_a_run_that_ends_in_time_is_not_affected() {
    let mut table = Table::new(&within_ten_seconds(step("work")));
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("middle");
    table.pass(9_000);
    table.done("index");
    table.pass(60_000);
    let ops = table.commit_all();
    assert_eq!((settled(&ops), parked(&ops).len(), ops.len()), (vec![1], 0, 1), "not even while its end is written");
}

fn checkpoints(ops: Vec<Op>) -> Vec<Checkpoint> {
    ops.into_iter().filter_map(|op| if let Op::Checkpoint(one) = op { Some(*one) } else { None }).collect()
}

/// WF-61: the deadline counts from the run's beginning, also after a change of owner.
#[test]
fn wf_61_a_deadline_survives_its_owner() {
    let mut table = Table::new(&within_ten_seconds(step("call")));
    table.rows(&[(1, "a")]);
    table.pass(4_000);
    table.done("load");
    table.done("middle");
    let kept = checkpoints(table.commit_all());
    let [of_run, _] = &kept[..] else { panic!("{kept:?}") };
    let CheckpointOutcome::Until(until) = of_run.outcome else { panic!("{of_run:?}") };
    assert_eq!((&*of_run.step, &of_run.covers[..]), (WHOLE_RUN_STEP, &[1][..]));
    // Another node takes over when three seconds are left.
    table.next_owner(RecoveredState { checkpoints: kept.clone(), ..RecoveredState::default() });
    let event = row(1, "a", 4);
    let intake = Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() };
    table.answer_poll(Intake { store_ms: until - 3_000, ..intake.clone() });
    let (load, _) = table.next();
    table.pass(2_900);
    assert!(table.withdrawn.is_empty());
    table.pass(200);
    assert_eq!(table.withdrawn.len(), 1);
    table.send(Input::Unanswered { batch: load });
    assert_eq!(parked(&table.commit_all())[0].failure.code, "deadline");
    // The deadline passed while no node owned the run.
    table.next_owner(RecoveredState { checkpoints: kept, ..RecoveredState::default() });
    table.answer_poll(Intake { store_ms: until + 60_000, ..intake });
    table.pass(11_000);
    assert_eq!(parked(&table.commit_all())[0].failure.code, "deadline");
}

/// WF-21: a run without a checkpoint begins again at the next owner, with its full time.
#[test]
fn wf_61_a_run_that_begins_again_has_its_full_time() {
    let mut table = Table::new(&within_ten_seconds(step("work")));
    table.rows(&[(1, "a")]);
    table.pass(9_000);
    assert!(table.written.is_empty());
    table.next_owner(RecoveredState::default());
    table.rows(&[(1, "a")]);
    table.pass(9_000);
    assert_eq!(keys(&table.done("load")), ["a"]);
    table.done("middle");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [1]);
}
