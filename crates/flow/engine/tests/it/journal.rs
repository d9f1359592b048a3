//! Which operations are written, when, and which go into the same write.

use honeyflow_engine::core::{Input, plan::Limits};
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Leads};
use honeyflow_step::Outcome;
use honeyflow_store::{
    Op,
    write::{CheckpointOutcome, RecoveredState, StoredFailure},
};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, leads_to, parked, plain, row, settled, taken};

/// WF-79: a park stores what a person needs to understand the failure and to retry; the same write deletes the row.
#[test]
fn wf_79_a_park_stores_everything_and_deletes_its_row() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a"), (2, "a")]);
    table.done("load");
    for _ in 0..2 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::reject("bad-field", "price is no number")));
        let ops = table.commit();
        let [parked] = parked(&ops)[..] else { continue };
        assert_eq!((&*parked.run.workflow, &*parked.run.entity, &*parked.run.key), ("index", "book", "a"));
        assert_eq!((&*parked.step, parked.version, parked.attempts), ("index", 1, 2));
        assert_eq!((&*parked.failure.code, &parked.events[..]), ("bad-field", &[1, 2][..]));
        let kept = ops.iter().any(|op| matches!(op, Op::History(history) if history.verdict == "failed"));
        assert!(kept, "{ops:?}");
    }
    assert_eq!(table.open_runs(), 0);
}

fn journaling() -> Vec<Workflow> {
    vec![
        Workflow::new("long")
            .on("shop", "book")
            .step("load", step("load"))
            .step("call", step("call").needs(["load"]).set("tries", 3))
            .step("nap", step("sleep").needs(["call"]).set("for", "5s"))
            .step("index", step("index").needs(["call", "nap"])),
    ]
}

/// WF-81: a result that cannot be produced again is written before a dependent step starts.
#[test]
fn wf_81_outputs_waits_and_counted_attempts_are_written_first() {
    let mut table = Table::new(&journaling());
    table.rows(&[(1, "a")]);
    table.done("load");
    assert!(table.written.is_empty(), "a load can be repeated");
    let (batch, _) = table.next();
    table.answer(batch, 1, &failed(Failure::reject("bad", "no")));
    let ops = table.commit_all();
    assert!(matches!(&ops[..], [Op::Charge { attempts: 1, .. }]), "{ops:?}");
    table.wait_for_batch();
    table.done("call");
    assert_eq!(table.status().ready, 0, "no dependent starts before the commit");
    let ops = table.commit();
    let [Op::Checkpoint(call)] = &ops[..] else { panic!("{ops:?}") };
    assert_eq!((&*call.step, &call.covers[..]), ("call", &[1][..]));
    assert!(matches!(&call.outcome, CheckpointOutcome::Done(Some(_))));
    let ops = table.commit();
    let [Op::Checkpoint(nap)] = &ops[..] else { panic!("{ops:?}") };
    assert!(matches!(nap.outcome, CheckpointOutcome::Until(_)));
}

/// WF-34, WF-81: no step follows the sleep; still the key is held until it is over.
#[test]
fn wf_34_a_sleep_at_the_end_continues_under_the_next_owner() {
    let sleepy = [Workflow::new("sleepy").on("shop", "book").step("nap", step("sleep").set("for", "1h"))];
    let mut table = Table::new(&sleepy);
    table.rows(&[(1, "a")]);
    let ops = table.commit_all();
    let [Op::Checkpoint(nap)] = &ops[..] else { panic!("{ops:?}") };
    let CheckpointOutcome::Until(until) = nap.outcome else { panic!("{nap:?}") };
    table.next_owner(RecoveredState { checkpoints: vec![(**nap).clone()], ..RecoveredState::default() });
    let event = row(1, "a", 4);
    let taken = vec![taken(event.clone(), leads_to(&event))];
    table.answer_poll(Intake { taken, store_ms: until - 3_000, ..Intake::default() });
    table.pass(2_900);
    assert_eq!((table.written.len(), table.open_runs()), (0, 1), "it sleeps on");
    table.pass(200);
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// WF-82: retries, queues and the outputs of repeatable steps are not stored; if they are lost, the work is repeated.
#[test]
fn wf_82_results_that_can_be_repeated_are_not_written() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    for _ in 0..5 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
    }
    table.send(Input::WorkerLost { worker: 0 });
    table.hello(0, 8);
    assert!(table.written.is_empty());
    table.next_owner(RecoveredState::default());
    table.rows(&[(1, "a")]);
    assert_eq!(keys(&table.done("load")), ["a"], "the run begins again");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// WF-81: counted attempts survive their node, with the rest of the wait.
#[test]
fn counted_attempts_of_an_earlier_owner_still_count() {
    let mut table = Table::new(&plain());
    let run =
        honeyflow_store::RunKey { tenant: "".into(), entity: "book".into(), key: "a".into(), workflow: "index".into() };
    let failure = Failure::reject("bad", "no");
    let due_in = std::time::Duration::from_secs(3);
    let charged = StoredFailure { run, step: "index".into(), index: 0, attempts: 1, due_in, failure };
    table.next_owner(RecoveredState { failures: vec![charged], ..RecoveredState::default() });
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, _) = table.next();
    table.answer(batch, 1, &failed(Failure::reject("bad", "no")));
    let ops = table.commit_all();
    assert_eq!(parked(&ops).len(), 1, "two attempts: the earlier owner has used one");
}

/// WF-83: 500 runs without checkpoints cost one write, which deletes 500 rows.
#[test]
fn wf_83_runs_without_checkpoints_cost_one_grouped_delete() {
    let mut table = Table::new(&plain());
    let names: Vec<String> = (1..=500).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    assert_eq!(table.done("load").len(), 500);
    assert_eq!(table.done("index").len(), 500);
    assert_eq!(table.written.len(), 1);
    let ops = table.commit();
    assert_eq!((ops.len(), settled(&ops).len()), (1, 500));
}

/// WF-84: one fenced write per group. If its outcome is unknown, the same write is sent again, which changes nothing if
/// the first one has committed; until the outcome is known, no key is free.
#[test]
fn wf_84_completion_is_one_write_and_is_repeated_if_its_outcome_is_unknown() {
    let mut table = Table::with_limits(&plain(), Limits { settle_rows_max: 3, ..Limits::default() });
    table.rows(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    table.done("load");
    table.done("index");
    let (write, request) = table.written.pop_front().expect("written");
    assert_eq!(settled(&request.ops), [1, 2, 3]);
    assert!(table.written.is_empty(), "the next group waits for this one");
    table.rows(&[(5, "a")]);
    table.send(Input::Written { write, result: Err(Failure::retry("unknown", "the connection was lost")) });
    table.pass(10_000);
    let (_, again) = table.written.front().expect("sent again");
    assert_eq!(settled(&again.ops), [1, 2, 3, 4], "with the rows that were added meanwhile");
    assert_eq!(again.fence, request.fence);
    assert!(table.given.is_empty(), "a is not free yet");
    table.commit();
    assert_eq!(keys(&table.done("load")), ["a"]);
}

fn begun_for(key: &str, covers: Vec<i64>) -> RecoveredState {
    let run =
        honeyflow_store::RunKey { tenant: "".into(), entity: "book".into(), key: key.into(), workflow: "long".into() };
    let checkpoint = honeyflow_store::write::Checkpoint {
        run,
        version: 1,
        covers,
        phase: 0,
        step: "call".into(),
        index: 0,
        attempt: 1,
        stamp: honeyflow_event::Stamp::default(),
        outcome: CheckpointOutcome::Done(None),
        emit: Vec::new(),
    };
    RecoveredState { checkpoints: vec![checkpoint], ..RecoveredState::default() }
}

/// The row that an earlier owner's run covers leads to more than a page by now: other rows replace it, and no run waits
/// for it.
#[test]
fn a_covered_row_that_becomes_a_fan_out_blocks_no_key() {
    let mut table = Table::new(&journaling());
    table.next_owner(begun_for("a", vec![1]));
    let (author, book) = (row(1, "author", 4), row(2, "a", 4));
    let leads = leads_to(&book);
    let rows = vec![taken(author, Leads::Replace(Vec::new())), taken(book, leads)];
    table.answer_poll(Intake { taken: rows, ..Intake::default() });
    assert_eq!(keys(&table.done("load")), ["a"]);
}

/// The rows of a key that wait for the covered one are read again and again, and can take all the room of a poll; then
/// a sweep looks behind them.
#[test]
fn a_covered_row_is_found_behind_the_rows_that_wait_for_it() {
    let mut table = Table::with_limits(&journaling(), Limits { poll_rows_max: 1, ..Limits::default() });
    table.next_owner(begun_for("a", vec![9]));
    for _ in 0..3000 {
        if table.polled().sweep.is_some_and(|sweep| sweep.to >= 9) {
            table.rows(&[(9, "a")]);
            assert!(!table.given.is_empty(), "the run continues");
            return;
        }
        table.rows(&[(1, "a")]);
        table.pass(10);
    }
    panic!("no sweep has looked far enough");
}

/// A step whose answer is refused is not journaled as done.
#[test]
fn a_stale_answer_leaves_no_checkpoint() {
    let mut table = Table::new(&journaling());
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, _) = table.next();
    table.send(Input::Unanswered { batch });
    table.answer(batch, 1, &Outcome::Done(None));
    assert!(table.written.is_empty());
}
