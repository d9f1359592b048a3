//! Defects of an earlier engine: messages that failed, could not be read, or were too many; and metrics that were
//! wrong.

use honeyflow_engine::core::plan::Limits;
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Leads};
use honeyflow_step::Outcome;
use honeyflow_store::{Op, poll::UnreadRow};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, leads_to, message, parked, plain, row, settled, taken};

fn calls() -> Vec<Workflow> {
    vec![Workflow::new("mail").on("shop", "book").step("send", step("work").set("tries", 2))]
}

/// WF-48, WF-63: after any kind of failure the next attempt gets the same input and a higher number.
#[test]
fn emcee_retry_redelivers_input() {
    type FailBatch = fn(&mut Table, u64);
    let failures: [(&str, FailBatch); 4] = [
        ("a target that is down", |table, batch| table.answer(batch, 1, &failed(Failure::retry("down", "not now")))),
        ("a target that is busy", |table, batch| {
            let busy = Failure::retry_after(std::time::Duration::from_secs(1), "busy", "later");
            table.answer(batch, 1, &failed(busy));
        }),
        ("a bad item", |table, batch| table.answer(batch, 1, &failed(Failure::reject("bad", "no")))),
        ("a dead worker", |table, batch| {
            table.send(honeyflow_engine::core::Input::Unanswered { batch });
        }),
    ];
    for (name, fail) in failures {
        let mut table = Table::new(&calls());
        let event = message(1, "a", r#"{"to":"someone"}"#);
        table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
        let (batch, first) = table.next();
        assert_eq!(first.items[0].input.as_deref().map(|input| input["payload"]["to"].clone()), Some("someone".into()));
        fail(&mut table, batch);
        table.commit_all();
        table.wait_for_batch();
        let (_, again) = table.next();
        assert_eq!(again.items[0].input, first.items[0].input, "{name}");
        assert_eq!(again.items[0].idempotency_key(&again), first.items[0].idempotency_key(&first), "{name}");
        assert!(again.items[0].attempt > first.items[0].attempt, "{name}");
    }
}

/// WF-57: the earlier engine left a failed message where it was. Here it is retried while that can help, else parked.
#[test]
fn emcee_failed_message_is_returned_or_parked() {
    let mut table = Table::new(&calls());
    let event = message(7, "a", r#"{"to":"x@invalid"}"#);
    table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
    for _ in 0..2 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        assert_eq!(table.open_runs(), 1);
        table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
        assert!(table.written.is_empty(), "its row stays, and no attempt is counted");
    }
    let mut ops = Vec::new();
    for _ in 0..2 {
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::reject("no-such-address", "unknown address")));
        ops.extend(table.commit_all());
    }
    let parked = parked(&ops);
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].message, &parked[0].events[..]), (Some(7), &[7][..]));
    assert_eq!(parked[0].payload.as_deref(), Some(r#"{"to":"x@invalid"}"#));
    assert_eq!(&*parked[0].failure.code, "no-such-address");
    assert_eq!(table.open_runs(), 0);
}

/// WF-123: an unreadable row is parked at once and unchanged; other rows continue.
#[test]
fn emcee_unreadable_message_is_parked() {
    let mut table = Table::new(&calls());
    let torn = Failure::reject("unreadable-row", "its payload is not what its format says");
    let rows = vec![
        taken(message(1, "a", "{"), Leads::Unreadable(torn)),
        taken(message(2, "a", "{}"), leads_to(&message(2, "a", "{}"))),
    ];
    let oversized = vec![UnreadRow { id: 3, bytes: 2 << 20 }];
    table.answer_poll(Intake { taken: rows, oversized, ..Intake::default() });
    let ops = table.commit_all();
    let rows: Vec<(i64, &str)> = ops
        .iter()
        .filter_map(|op| if let Op::ParkRow { event, failure } = op { Some((*event, &*failure.code)) } else { None })
        .collect();
    assert_eq!(rows, [(3, "payload-too-large"), (1, "unreadable-row")]);
    assert_eq!(keys(&table.done("send")), ["a"]);
    assert_eq!(settled(&table.commit_all()), [2]);
}

/// WF-94: the rows asked for and the rows in memory never exceed the room.
#[test]
fn emcee_poll_never_exceeds_room() {
    let limits = Limits { runs_max: 40, rows_max: 60, poll_rows_max: 25, ..Limits::default() };
    let mut table = Table::with_limits(&plain(), limits);
    table.hello(0, 0);
    let mut next = 1;
    for turn in 0..50 {
        table.pass(1_100);
        if !table.is_polling() {
            break;
        }
        let asked = table.polled();
        let swept = asked.sweep.as_ref().map_or(0, |sweep| sweep.room);
        let room = asked.levels.iter().map(|level| level.room).sum::<u32>() + asked.newest + swept;
        assert!(room as usize + table.open_runs() <= 40 && room <= 25, "turn {turn}: {room}");
        // As many rows as it asked for; several rows share a key.
        let rows: Vec<(i64, String)> =
            (next..).take(room as usize).map(|id| (id, format!("{}", id - id % 3))).collect();
        next += i64::from(room);
        let rows: Vec<(i64, &str)> = rows.iter().map(|(id, key)| (*id, key.as_str())).collect();
        table.rows(&rows);
        assert!(table.open_runs() <= 40 && table.status().rows_in_flight <= 60);
    }
    assert!(!table.is_polling(), "without room there is no poll");
    assert!(table.open_runs() > 20);
}

/// WF-116: when all work is done, every counter agrees with the rows.
#[test]
fn emcee_metrics_match_ledger() {
    let mut table = Table::new(&plain());
    let stray = row(9, "x", 4);
    let mut rows: Vec<_> = [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "bad")]
        .map(|(id, key)| row(id, key, 4))
        .map(|event| (leads_to(&event), event))
        .map(|(leads, event)| taken(event, leads))
        .into();
    rows.push(taken(stray, Leads::To(smallvec::SmallVec::new())));
    table.answer_poll(Intake { taken: rows, ..Intake::default() });
    // Two rows that wait for the run of their key, and form one run then.
    table.rows(&[(6, "c"), (7, "c")]);
    let (mut gone, mut set_aside, mut attempts, mut retries, mut rejects) = (Vec::new(), Vec::new(), 0, 0, 0);
    for turn in 0..40 {
        while let Some((batch, work)) = table.given.pop_front() {
            attempts += work.items.len() as u64;
            let outcome = |item: &honeyflow_step::Item| match (&*work.step, &*item.key) {
                ("index", "bad") => failed(Failure::reject("bad", "no")),
                ("index", _) if turn == 0 => failed(Failure::retry("down", "not now")),
                _ => Outcome::Done(None),
            };
            let outcomes: Vec<Outcome> = work.items.iter().map(outcome).collect();
            let bad = |outcome: &&Outcome, code| matches!(outcome, Outcome::Failed(failure) if failure.code == code);
            retries += outcomes.iter().filter(|outcome| bad(outcome, "down")).count() as u64;
            rejects += outcomes.iter().filter(|outcome| bad(outcome, "bad")).count() as u64;
            table.send(honeyflow_engine::core::Input::Outcomes { batch, outcomes });
        }
        let ops = table.commit_all();
        gone.extend(settled(&ops));
        set_aside.extend(parked(&ops).iter().flat_map(|parked| parked.events.clone()));
        table.pass(2_000);
    }
    gone.sort_unstable();
    assert_eq!((&gone[..], &set_aside[..]), (&[1, 2, 3, 4, 6, 7, 9][..], &[5][..]));
    let status = table.status();
    assert_eq!((status.open_runs, status.rows_in_flight, status.keys_in_work, status.held_by_workers), (0, 0, 0, 0));
    assert_eq!(status.events, (gone.len() + set_aside.len()) as u64);
    assert_eq!(status.parked, set_aside.len() as u64);
    let ended = status.workflows[0].ended;
    assert_eq!((ended + status.merged + status.unmatched, status.unmatched, status.merged), (status.events, 1, 2));
    assert_eq!((status.attempts, status.retries, status.rejects), (attempts, retries, rejects));
    assert!(retries > 0 && rejects > 1);
}
