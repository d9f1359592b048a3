//! Attempts: the wait before the next one, which items are suspected, and attempts that never end.

use std::time::Duration;

use honeyflow_engine::core::Input;
use honeyflow_runtime::{Failure, Moment};
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, parked, settled};

fn lone(step: honeyflow_workflow::builder::Step) -> Vec<Workflow> {
    vec![Workflow::new("lone").on("shop", "book").step("do", step)]
}

/// WF-60: the waits after rejects are about 1, 4, 16 and 64 s, and never less than half of that.
#[test]
fn wf_60_rejects_wait_longer_each_time() {
    let mut table = Table::new(&lone(step("work").set("tries", 5)));
    table.rows(&[(1, "a")]);
    table.wait_for_batch();
    for around in [1_000, 4_000, 16_000, 64_000] {
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::reject("bad", "no")));
        table.commit_all();
        let waited = table.wait_for_batch();
        assert!((around / 2..=around * 3 / 2 + 10).contains(&waited), "{waited} instead of {around}");
    }
}

/// WF-60: retries are not counted attempts, and end only if the step sets `give-up-after`.
#[test]
fn wf_60_a_retried_step_gives_up_after_its_give_up_time() {
    let mut table = Table::new(&lone(step("work").set("give-up-after", "30s")));
    table.rows(&[(1, "a")]);
    let began = table.now();
    while table.open_runs() > 0 {
        assert!(table.now().since(began) < Duration::from_secs(3600), "it is tried for ever");
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
        let ops = table.commit_all();
        if let [parked] = parked(&ops)[..] {
            assert_eq!(&*parked.failure.code, "down", "with its last error");
        }
    }
    let took = table.now().since(began);
    assert!(took > Duration::from_secs(30) && took < Duration::from_secs(120), "{took:?}");
}

/// WF-61, RL-14: if the worker does not end a step at its time-out, the batch is taken back and its answer refused.
#[test]
fn wf_61_an_attempt_past_its_time_out_is_taken_back_and_its_answer_refused() {
    let mut table = Table::new(&lone(step("work").set("timeout", "2s")));
    table.rows(&[(1, "a")]);
    let (hung, work) = table.next();
    assert_eq!(work.timeout, Duration::from_secs(2));
    table.pass(8_000);
    assert_eq!(table.cancelled, [hung]);
    let (again, _) = table.next();
    table.answer(hung, 1, &Outcome::Done(None));
    assert_eq!((table.open_runs(), table.status().stale_answers), (1, 1));
    table.send(Input::TimedOut { batch: again });
    let (last, _) = table.next();
    table.answer(last, 1, &Outcome::Done(None));
    assert_eq!(settled(&table.commit_all()), [1]);
    assert_eq!(table.status().timed_out, 2);
}

/// WF-63: the batch is halved down to a single item; only that item is blamed, and parked after three deaths.
#[test]
fn wf_63_one_item_that_kills_its_worker_is_found_and_the_others_get_through() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    let names: Vec<String> = (1..=16).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    let (mut gone, mut ops, mut deaths, mut sizes) = (Vec::new(), Vec::new(), 0, Vec::new());
    while table.open_runs() > 0 {
        let (batch, work) = table.next();
        if keys(&work.items).contains(&"k11") {
            deaths += 1;
            assert!(deaths < 100, "it is never found");
            sizes.push(work.items.len());
            table.send(Input::WorkerLost { worker: 0 });
            table.hello(0, 8);
            // The other batches of the worker are given out again too.
            table.given.retain(|(other, _)| *other > batch);
        } else {
            table.answer(batch, work.items.len(), &Outcome::Done(None));
        }
        let written = table.commit_all();
        gone.extend(settled(&written));
        ops.extend(written);
    }
    let parked = parked(&ops);
    assert_eq!((parked.len(), &*parked[0].run.key, &*parked[0].failure.code), (1, "k11", "kills-worker"));
    assert_eq!(gone.len(), 15, "no innocent item is parked");
    assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0].div_ceil(2)), "{sizes:?}");
    assert!(deaths <= 8, "{deaths} workers had to die");
}

/// WF-63: an item is innocent if its worker also held an item that kills workers, even on trial and repeatedly.
#[test]
fn wf_63_an_item_on_trial_is_not_blamed_for_other_batches() {
    let mut table = Table::new(&lone(step("work").set("tries", 1).set("batch", 1)));
    table.rows(&[(1, "innocent")]);
    table.send(Input::WorkerLost { worker: 0 });
    for turn in 0..5 {
        try_alone(&mut table);
        table.rows(&[(10 + turn, &format!("killer{turn}"))]);
        assert_eq!(table.given.len(), 2, "one worker holds both");
        table.send(Input::WorkerLost { worker: 0 });
        assert!(parked(&table.commit_all()).is_empty());
    }
    try_alone(&mut table);
    table.send(Input::WorkerLost { worker: 0 });
    try_alone(&mut table);
    table.send(Input::WorkerLost { worker: 0 });
    let ops = table.commit_all();
    assert_eq!(&*parked(&ops)[0].run.key, "innocent", "if the worker held it alone, it is blamed");
}

/// Answers all other batches, until the worker holds only the innocent item.
fn try_alone(table: &mut Table) {
    table.given.clear();
    table.hello(0, 8);
    while let Some(at) = table.given.iter().position(|(_, work)| &*work.items[0].key != "innocent") {
        let (batch, _) = table.given.remove(at).expect("just found");
        table.answer(batch, 1, &Outcome::Done(None));
    }
    assert_eq!(table.given.len(), 1);
}

/// WF-63: a time-out does not prove an item guilty while the step finishes no other batch: then the target hangs.
#[test]
fn wf_63_no_item_is_blamed_while_the_target_hangs() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    table.rows(&[(1, "a")]);
    for _ in 0..10 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.send(Input::TimedOut { batch });
    }
    table.wait_for_batch();
    table.done("do");
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// WF-95: a batch has as many items as the step allows, and fewer once its batches take long.
#[test]
fn wf_95_a_batch_has_one_step_and_a_bounded_number_of_items() {
    let mut table = Table::new(&lone(step("work").set("batch", 8)));
    table.hello(0, 1);
    let names: Vec<String> = (1..=40).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    let mut sizes = Vec::new();
    for took_ms in [10, 3_000, 3_000, 10, 10, 10] {
        let (batch, work) = table.next();
        let mut distinct = keys(&work.items);
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), work.items.len(), "no key twice");
        sizes.push(work.items.len());
        table.pass(took_ms);
        table.answer(batch, work.items.len(), &Outcome::Done(None));
    }
    assert_eq!(sizes, [8, 8, 4, 2, 4, 8]);
}

/// WF-115: for ten minutes all calls fail. Few calls are made, no attempt is counted or given up, and when the target
/// is back, all items are done.
#[test]
fn wf_115_a_target_that_is_down_for_long_gets_few_calls() {
    let mut table = Table::new(&lone(step("work").set("tries", 1)));
    let names: Vec<String> = (1..=200).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    let end = table.now().after(Duration::from_secs(600));
    let (mut calls, mut late_calls) = (0, 0);
    while table.now() < end {
        while let Some((batch, work)) = table.given.pop_front() {
            calls += 1;
            late_calls += usize::from(end.since(table.now()) < Duration::from_secs(300));
            table.answer(batch, work.items.len(), &failed(Failure::retry("down", "not now")));
        }
        table.pass(100);
    }
    assert!(calls <= 600 && late_calls <= 60, "{calls} calls, {late_calls} in the second half");
    assert!(late_calls > 10, "it is still probed");
    assert!(table.written.is_empty() && table.open_runs() == 200);
    let back = table.now();
    while table.open_runs() > 0 {
        assert!(table.now().since(back) < Duration::from_secs(3600), "it is never done");
        while let Some((batch, work)) = table.given.pop_front() {
            table.answer(batch, work.items.len(), &Outcome::Done(None));
        }
        table.commit_all();
        table.pass(100);
    }
    let took = table.now().since(back);
    assert!(took < Duration::from_secs(90), "{took:?}");
}

/// WF-76: a poll is made at the time at which a delayed row is due.
#[test]
fn wf_76_a_delayed_row_is_polled_when_it_is_due() {
    let mut table = Table::new(&lone(step("work")));
    // After a long idle time, polls are far apart.
    for _ in 0..40 {
        table.rows(&[]);
    }
    table.answer_poll(honeyflow_source::Intake { next_due_ms: Some(7), ..honeyflow_source::Intake::default() });
    let before: Moment = table.now();
    while !table.is_polling() {
        table.pass(1);
    }
    assert_eq!(table.now().since(before), Duration::from_millis(7));
}
