//! The transitions of a run, one by one: the effect of an answer, a pause, a cancel or a lost lease.

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::{Op, write::RecoveredState};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, parked, plain, settled};

fn lone(step: honeyflow_workflow::builder::Step) -> Vec<Workflow> {
    vec![Workflow::new("lone").on("shop", "book").step("do", step)]
}

#[test]
fn wf_46_a_run_begins_with_all_its_roots_unless_it_is_blocked() {
    let forked = Workflow::new("fork")
        .on("shop", "book")
        .step("left", step("work"))
        .step("right", step("work"))
        .step("join", step("work").needs(["left", "right"]));
    let mut table = Table::new(&[forked]);
    table.rows(&[(1, "a")]);
    let roots: Vec<String> = table.given.iter().map(|(_, work)| work.step.to_string()).collect();
    assert_eq!(roots, ["left", "right"], "neither waits for the other");
    table.rows(&[(2, "a")]);
    assert_eq!((table.open_runs(), table.given.len()), (1, 2), "the key is not free");
    table.send(Input::Pause { workflow: "fork".into(), paused: true });
    table.rows(&[(3, "b")]);
    assert_eq!(table.given.len(), 2, "the workflow is paused");
}

#[test]
fn wf_48_a_target_that_is_down_costs_no_counted_attempt() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    table.rows(&[(1, "a")]);
    for _ in 0..40 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
        assert!(table.given.is_empty(), "not at once");
    }
    assert!(table.written.is_empty(), "no counted attempt, no park");
    table.wait_for_batch();
    table.done("do");
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// WF-48: the target says when to come back, and no item is sent earlier.
#[test]
fn wf_48_retry_after_is_obeyed() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    let later = Failure::retry_after(std::time::Duration::from_secs(7), "busy", "later");
    table.answer(batch, 1, &failed(later));
    table.rows(&[(2, "b")]);
    table.pass(6_900);
    assert!(table.given.is_empty(), "the gate of its target is closed for all");
    let waited = table.wait_for_batch();
    assert!(waited <= 300, "{waited}");
}

#[test]
fn wf_49_a_reject_counts_one_attempt_and_the_last_one_fails_the_step() {
    let mut table = Table::new(&lone(step("work").set("tries", 3)));
    table.rows(&[(1, "a")]);
    for tries in 1..=3 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::reject("bad", "no")));
        let ops = table.commit_all();
        let counted =
            ops.iter().find_map(|op| if let Op::Charge { attempts, .. } = op { Some(*attempts) } else { None });
        assert_eq!(counted, (tries < 3).then_some(tries));
        assert_eq!(parked(&ops).len(), usize::from(tries == 3));
    }
    assert_eq!(table.open_runs(), 0);
}

/// WF-50: a step that cannot work costs no counted attempt, and its events stay in the table.
#[test]
fn wf_50_fatal_stops_the_workflow_and_leaves_its_events() {
    let mut both = lone(step("work").set("tries", 1));
    both.push(Workflow::new("other").on("shop", "book").set("exclusion", "workflow").step("see", step("load")));
    let mut table = Table::new(&both);
    table.rows(&[(1, "a")]);
    let at = table.given.iter().position(|(_, work)| &*work.step == "do").expect("given");
    let (batch, _) = table.given.remove(at).expect("it is there");
    table.answer(batch, 1, &failed(Failure::fatal("no-such-table", "a table is missing")));
    assert_eq!(table.alarms, ["workflow-stopped"]);
    let closed = table.status().closed;
    assert_eq!((&*closed[0].name, closed[0].reason), ("lone", "fatal"));
    assert!(closed[0].detail.contains("a table is missing"), "{closed:?}");
    table.done("see");
    assert_eq!(
        settled(&table.commit_all()),
        [0_i64; 0],
        "the other workflow continues, and the row stays for this one"
    );
    let waited = table.wait_for_batch();
    assert!(waited > 10_000, "it is tried again after a while, not at once: {waited}");
    table.done("do");
    assert_eq!(settled(&table.commit_all()), [1], "the fatal failure cost no counted attempt");
    assert!(table.status().closed.is_empty());
}

/// WF-34: a sleep holds no worker, and the steps that it needed are not executed again.
#[test]
fn wf_51_a_run_that_only_waits_holds_no_worker() {
    let sleepy = Workflow::new("sleepy")
        .on("shop", "book")
        .step("load", step("load"))
        .step("nap", step("sleep").needs(["load"]).set("for", "30s"))
        .step("index", step("index").needs(["load", "nap"]));
    let mut table = Table::new(&[sleepy]);
    table.rows(&[(1, "a")]);
    table.done("load");
    let ops = table.commit_all();
    assert!(matches!(&ops[..], [Op::Checkpoint(_)]), "it survives the node: {ops:?}");
    let status = table.status();
    assert_eq!((status.held_by_workers, status.ready, status.open_runs), (0, 0, 1));
    assert_eq!(table.reason(), "delay");
    table.pass(29_900);
    assert!(table.given.is_empty(), "never early");
    table.pass(200);
    assert_eq!(keys(&table.done("index")), ["a"]);
}

/// WF-52: attempts at workers end as usual; no new one goes out until the workflow is resumed.
#[test]
fn wf_52_a_pause_lets_attempts_end_and_gives_out_no_new_ones() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.send(Input::Pause { workflow: "index".into(), paused: true });
    table.done("load");
    table.rows(&[(2, "b")]);
    table.pass(60_000);
    assert!(table.given.is_empty() && table.written.is_empty());
    assert!(table.runs().iter().all(|run| run.waits_for == "paused"));
    table.send(Input::Pause { workflow: "index".into(), paused: false });
    let mut steps: Vec<String> = table.given.iter().map(|(_, work)| work.step.to_string()).collect();
    steps.sort();
    assert_eq!(steps, ["index", "load"], "each run continues where it was");
}

/// WF-53, WF-54: late answers of workers are refused; the event is parked as cancelled.
#[test]
fn wf_54_a_cancelled_run_is_parked_and_late_answers_change_nothing() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    table.send(Input::Cancel { workflow: "index".into(), entity: "book".into(), key: "a".into() });
    table.answer(batch, 1, &Outcome::Done(None));
    assert!(table.given.is_empty(), "its dependents do not start");
    let ops = table.commit_all();
    let parked = parked(&ops);
    assert_eq!((&*parked[0].failure.code, &parked[0].events[..]), ("cancelled", &[1][..]));
    assert_eq!((settled(&ops), table.open_runs()), (vec![], 0));
    table.rows(&[(2, "a")]);
    assert_eq!(keys(&table.done("load")), ["a"], "the key is free");
}

/// WF-56, WF-57: the verdict alone decides between acknowledgement and park.
#[test]
fn wf_56_and_wf_57_success_acknowledges_and_failure_parks() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    table.rows(&[(1, "good"), (2, "bad")]);
    let (batch, work) = table.next();
    let outcome = |key: &str| match key {
        "bad" => failed(Failure::reject("bad", "no")),
        _ => Outcome::Done(None),
    };
    let outcomes = work.items.iter().map(|item| outcome(&item.key)).collect();
    table.send(Input::Outcomes { batch, outcomes });
    let ops = table.commit_all();
    assert_eq!((settled(&ops), parked(&ops)[0].events.clone()), (vec![1], vec![2]));
}

/// WF-58: the node that lost the lease writes nothing more; the next owner continues from the checkpoint.
#[test]
fn wf_58_a_lost_run_is_dropped_and_the_next_owner_resumes_it() {
    let called = Workflow::new("called")
        .on("shop", "book")
        .step("load", step("load"))
        .step("call", step("call").needs(["load"]))
        .step("index", step("index").needs(["call"]));
    let mut table = Table::new(&[called]);
    table.rows(&[(1, "a"), (2, "a")]);
    table.done("load");
    table.done("call");
    let ops = table.commit();
    let Op::Checkpoint(checkpoint) = &ops[0] else { panic!("{ops:?}") };
    let (batch, _) = table.next();
    table.send(Input::Lost { lease: "shard/shop/0".into() });
    table.answer(batch, 1, &Outcome::Done(None));
    assert_eq!((table.open_runs(), table.written.len()), (0, 0), "no further effect");
    table.next_owner(RecoveredState { checkpoints: vec![(**checkpoint).clone()], ..RecoveredState::default() });
    table.rows(&[(1, "a"), (2, "a"), (3, "a")]);
    let mut again: Vec<String> = table.given.iter().map(|(_, work)| work.step.to_string()).collect();
    again.sort();
    assert_eq!(again, ["index", "load"], "the call is not made again");
    while let Some((batch, _)) = table.given.pop_front() {
        table.answer(batch, 1, &Outcome::Done(None));
    }
    assert_eq!(settled(&table.commit()), [1, 2], "exactly the rows that it covers");
}
