//! Steps under a limit: they wait for permits, and that is all they do.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys};

/// `load → index`, the load under a limit; and a workflow beside it that has none.
fn limited() -> Vec<Workflow> {
    let one = |name: &str| Workflow::new(name).on("shop", "book").set("exclusion", "workflow");
    vec![
        one("limited").step("do", step("work").set("limit", "api")).step("index", step("index").needs(["do"])),
        one("free").step("do", step("work")),
    ]
}

fn alone() -> Vec<Workflow> {
    limited().into_iter().take(1).collect()
}

/// WF-72: m of n granted: m go, the rest waits, nobody else does, and nothing was tried or has failed.
#[test]
fn wf_72_as_many_go_as_are_permitted_and_the_rest_waits() {
    let mut table = Table::new(&limited());
    table.rows(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(table.done("do").len(), 3, "the other workflow waits for nothing");
    assert!(table.given.is_empty(), "nothing of a limited step goes out without a permit");
    assert_eq!(table.takes.front().map(|(limit, _, permits)| (&**limit, *permits)), Some(("api", 3)));
    let attempts = table.status().attempts;
    assert_eq!(table.permit(2, None), 3);
    let (batch, work) = table.next();
    assert_eq!(keys(&work.items), ["a", "b"]);
    assert_eq!(table.status().attempts, attempts + 2, "an attempt is what went out");
    assert_eq!(table.takes.front().map(|(_, _, permits)| *permits), Some(1), "the rest is asked for");
    let waits: Vec<&str> = table.runs().iter().map(|run| run.waits_for).collect();
    assert!(waits.contains(&"limit"), "{waits:?}");
    table.answer(batch, 2, &Outcome::Done(None));
    assert_eq!(table.permit(1, None), 1);
    let last = table.given.iter().find(|(_, work)| &*work.step == "do").map(|(_, work)| work.items.len());
    assert_eq!((last, table.given_back), (Some(1), 0));
    assert_eq!(table.status().retries + table.status().rejects, 0);
}

/// WF-72: a permit for somebody who has gone goes back at once.
#[test]
fn wf_72_what_is_not_used_goes_back() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a"), (2, "b")]);
    table.tell(Input::Cancel { workflow: "limited".into(), entity: "book".into(), key: "a".into() });
    assert_eq!(table.permit(2, None), 2);
    let (_, work) = table.next();
    assert_eq!((keys(&work.items), table.given_back), (vec!["b"], 1));
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    table.tell(Input::Pause { workflow: "limited".into(), paused: true });
    table.permit(1, None);
    assert!(table.given.is_empty());
    assert_eq!(table.given_back, 1, "nothing of a paused workflow goes out, and no permit is kept for it");
    assert!(table.takes.is_empty(), "nor asked for");
    table.tell(Input::Pause { workflow: "limited".into(), paused: false });
    table.pass(100);
    table.permit(1, None);
    assert_eq!(table.done("do").len(), 1);
}

/// HV-74: a limit that is used up is waited for as long as it said, whatever that was.
#[test]
fn hv_74_a_used_up_limit_is_waited_for() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    table.permit(0, Some(700));
    assert_eq!(table.reason(), "limit");
    assert_eq!(table.status().closed.iter().map(|closed| closed.reason).collect::<Vec<_>>(), ["limit"]);
    table.pass(600);
    assert!(table.takes.is_empty(), "not asked for before");
    table.pass(200);
    table.permit(0, Some(86_400_000));
    table.pass(6_000);
    table.permit(1, None);
    assert_eq!(table.done("do").len(), 1);
    assert!(table.status().closed.is_empty());
}

/// Every attempt takes a permit, also the second one of an item.
#[test]
fn wf_72_a_second_try_needs_a_permit_of_its_own() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    table.permit(1, None);
    let (batch, _) = table.next();
    table.answer(batch, 1, &failed(Failure::retry("down", "it is down")));
    table.pass(120_000);
    assert!(table.given.is_empty());
    table.permit(1, None);
    assert_eq!(table.done("do").len(), 1);
}

/// An answer to a question that nobody asks any more changes nothing.
#[test]
fn a_late_permit_is_not_used() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    let (limit, take, _) = table.takes.pop_front().unwrap();
    table.tell(Input::Permitted { limit: limit.clone(), take: take + 7, permits: 5, wait: None });
    assert!(table.given.is_empty());
    table.tell(Input::Permitted { limit, take, permits: 1, wait: None });
    assert_eq!(table.done("do").len(), 1);
}

/// Suspects go out apart, and never more of them than there are permits.
#[test]
fn wf_72_suspects_keep_to_the_limit() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    table.permit(4, None);
    table.given.clear();
    table.tell(Input::WorkerLost { worker: 0 });
    table.hello(1, 8);
    let mut seen: Vec<Arc<str>> = Vec::new();
    for _ in 0..40 {
        if !table.takes.is_empty() {
            table.permit(1, None);
        }
        while let Some((batch, work)) = table.given.pop_front() {
            assert!(work.items.len() <= 1, "{}", work.items.len());
            seen.extend(work.items.iter().map(|item| Arc::from(&*item.key)));
            table.answer(batch, work.items.len(), &Outcome::Done(None));
        }
        table.pass(100);
    }
    seen.retain(|key| ["a", "b", "c", "d"].contains(&&**key));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}
