//! Steps under a limit: they wait for permits, which is no attempt and no failure.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys};

/// `do → index` with `do` under a limit, and a second workflow without a limit.
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

/// WF-72: m of n permits are granted: m items go out, the others wait, no other step waits, and none counts as tried or
/// failed.
#[test]
fn wf_72_one_item_goes_out_per_permit_and_the_others_wait() {
    let mut table = Table::new(&limited());
    table.rows(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(table.done("do").len(), 3, "the other workflow does not wait");
    assert!(table.given.is_empty(), "no item of a limited step goes out without a permit");
    assert_eq!(table.takes.front().map(|(limit, _, permits)| (&**limit, *permits)), Some(("api", 3)));
    let attempts = table.status().attempts;
    assert_eq!(table.permit(2, None), 3);
    let (batch, work) = table.next();
    assert_eq!(keys(&work.items), ["a", "b"]);
    assert_eq!(table.status().attempts, attempts + 2, "only items that went out count as attempts");
    assert_eq!(table.takes.front().map(|(_, _, permits)| *permits), Some(1), "permits for the others are requested");
    let waits: Vec<&str> = table.runs().iter().map(|run| run.waits_for).collect();
    assert!(waits.contains(&"limit"), "{waits:?}");
    table.answer(batch, 2, &Outcome::Done(None));
    assert_eq!(table.permit(1, None), 1);
    let last = table.given.iter().find(|(_, work)| &*work.step == "do").map(|(_, work)| work.items.len());
    assert_eq!((last, table.given_back), (Some(1), 0));
    assert_eq!(table.status().retries + table.status().rejects, 0);
}

/// WF-72: a permit for a run that was cancelled meanwhile goes back at once.
#[test]
fn wf_72_unused_permits_go_back() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a"), (2, "b")]);
    table.send(Input::Cancel { workflow: "limited".into(), entity: "book".into(), key: "a".into() });
    assert_eq!(table.permit(2, None), 2);
    let (_, work) = table.next();
    assert_eq!((keys(&work.items), table.given_back), (vec!["b"], 1));
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    table.send(Input::Pause { workflow: "limited".into(), paused: true });
    table.permit(1, None);
    assert!(table.given.is_empty());
    assert_eq!(table.given_back, 1, "a paused workflow gives out no step and keeps no permit");
    assert!(table.takes.is_empty(), "nor requested");
    table.send(Input::Pause { workflow: "limited".into(), paused: false });
    table.pass(100);
    table.permit(1, None);
    assert_eq!(table.done("do").len(), 1);
}

/// HV-74: the core waits for a used-up limit as long as the limit said, but at most 5 s.
#[test]
fn hv_74_a_used_up_limit_is_waited_for() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    table.permit(0, Some(700));
    assert_eq!(table.reason(), "limit");
    assert_eq!(table.status().closed.iter().map(|closed| closed.reason).collect::<Vec<_>>(), ["limit"]);
    table.pass(600);
    assert!(table.takes.is_empty(), "not requested earlier");
    table.pass(200);
    table.permit(0, Some(86_400_000));
    table.pass(6_000);
    table.permit(1, None);
    assert_eq!(table.done("do").len(), 1);
    assert!(table.status().closed.is_empty());
}

/// Every attempt takes a permit, also the second one of the same item.
#[test]
fn wf_72_a_second_attempt_needs_another_permit() {
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

/// A grant for another request than the one under way changes nothing.
#[test]
fn a_late_permit_is_not_used() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a")]);
    let (limit, take, _) = table.takes.pop_front().unwrap();
    table.send(Input::Permitted { limit: limit.clone(), take: take + 7, permits: 5, wait: None });
    assert!(table.given.is_empty());
    table.send(Input::Permitted { limit, take, permits: 1, wait: None });
    assert_eq!(table.done("do").len(), 1);
}

/// Suspects go out apart from other items, and never more than there are permits.
#[test]
fn wf_72_suspects_keep_to_the_limit() {
    let mut table = Table::new(&alone());
    table.rows(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    table.permit(4, None);
    table.given.clear();
    table.send(Input::WorkerLost { worker: 0 });
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
