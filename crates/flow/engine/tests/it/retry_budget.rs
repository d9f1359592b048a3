//! The retry budget: retries are a small share of the load of a target that fails in part, until too many wait.

use std::{collections::HashSet, sync::Arc, time::Duration};

use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, settled};

fn done() -> Outcome {
    Outcome::Done(Some(Arc::new(serde_json::json!({}))))
}

fn busy() -> Outcome {
    failed(Failure::retry("busy", "try again"))
}

/// WF-65, RL-22: one item in twenty fails at each attempt. Without a budget they would be retried all the time.
#[test]
fn wf_65_retries_stay_a_tenth_of_what_a_target_gets() {
    let lone = Workflow::new("lone").on("shop", "book").step("do", step("work").set("batch", 10));
    let mut table = Table::new(&[lone]);
    let began = table.now();
    let (mut seen, mut first, mut again) = (HashSet::new(), 0_u64, 0_u64);
    for tick in 0..1200_i64 {
        let ids: Vec<i64> = (tick * 10 + 1..=tick * 10 + 10).collect();
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let rows: Vec<(i64, &str)> = ids.iter().copied().zip(names.iter().map(String::as_str)).collect();
        table.rows(&rows);
        while let Some((batch, work)) = table.given.pop_front() {
            let outcomes = work.items.iter().map(|item| {
                let id = item.event.id;
                *(if seen.insert(id) { &mut first } else { &mut again }) += 1;
                if id % 20 == 0 { busy() } else { Outcome::Done(None) }
            });
            let outcomes = outcomes.collect();
            table.send(honeyflow_engine::core::Input::Outcomes { batch, outcomes });
        }
        table.commit_all();
        table.pass(50);
    }
    assert_eq!(table.status().breaker_closed, 0, "it fails in part only");
    let seconds = table.now().since(began).as_secs() + 1;
    assert!(first > 11_000, "{first}");
    let budget = 500 + first / 10 + seconds;
    assert!(again <= budget, "{again} retries of {first} attempts");
    assert!(again > budget / 2, "they are retried: {again}");
}

/// WF-65: then no run begins that would add to them, and the retries go as soon as their back-off ends.
#[test]
fn wf_65_too_many_waiting_retries_stop_new_runs() {
    let called = Workflow::new("called")
        .on("shop", "book")
        .step("load", step("load"))
        .step("call", step("work").needs(["load"]).set("batch", 500));
    let mut table = Table::new(&[called]);
    let ids: Vec<i64> = (1..=3_000).collect();
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    for chunk in ids.chunks(500) {
        let rows: Vec<(i64, &str)> =
            chunk.iter().map(|id| (*id, names[usize::try_from(*id).unwrap() - 1].as_str())).collect();
        table.rows(&rows);
    }
    let mut failed = 0;
    while let Some((batch, work)) = table.given.pop_front() {
        let fails = |id: i64| id % 5 < 2 && &*work.step == "call";
        let outcomes: Vec<Outcome> =
            work.items.iter().map(|item| if fails(item.event.id) { busy() } else { done() }).collect();
        failed += outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        table.send(honeyflow_engine::core::Input::Outcomes { batch, outcomes });
    }
    assert_eq!((failed, table.status().breaker_closed), (1_200, 0));
    table.commit_all();
    let closed = table.status().closed;
    assert_eq!((&*closed[0].name, closed[0].reason), ("work", "crowded"), "{closed:?}");
    assert!(table.polled().passed_over.iter().any(|passed| &*passed.entity == "book"), "no further rows are read");
    table.rows(&[(5_000, "late")]);
    assert!(!table.given.iter().any(|(_, work)| &*work.step == "load"), "no run begins");
    assert_eq!(table.reason_of("late"), "crowded");
    let began = table.now();
    let mut done = 0;
    while done < 1_200 {
        assert!(table.now().since(began) < Duration::from_secs(10), "only {done} after ten seconds");
        while let Some(at) = table.given.iter().position(|(_, work)| &*work.step == "call") {
            let (batch, work) = table.given.remove(at).expect("just found");
            done += work.items.len();
            table.answer(batch, work.items.len(), &Outcome::Done(None));
        }
        table.commit_all();
        table.pass(50);
    }
    assert!(table.status().closed.is_empty());
    table.done("load");
    table.done("call");
    assert_eq!(settled(&table.commit_all()), [5_000]);
}

/// RL-43, PB-35
#[cfg(feature = "planted")]
#[test]
fn rl_43_retries_without_a_budget_are_found() {
    honeyflow_engine::planted::plant(Some("PB-35"));
    let found = std::panic::catch_unwind(wf_65_retries_stay_a_tenth_of_what_a_target_gets).is_err();
    honeyflow_engine::planted::plant(None);
    assert!(found);
}
