//! RL-23: the key that goes out with each call.

use std::sync::Arc;

use honeyflow_engine::core::plan::{Limits, Plan};
use honeyflow_event::{Event, EventId};
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_store::RecoveredState;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, leads_to, plan, row, taken};

fn calls() -> Vec<Workflow> {
    vec![Workflow::new("charge").on("shop", "book").step("call", step("work").set("tries", 2))]
}

fn installed_as(install_id: u128) -> Plan {
    let mut plan = plan(&calls(), Limits::default());
    plan.sources[0].install_id = install_id;
    plan
}

fn written(id: EventId, created_ms: i64) -> Intake {
    let event = Arc::new(Event { created_ms, ..(*row(id, "a", 4)).clone() });
    Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() }
}

/// Returns the keys of the next batch.
fn next_keys(table: &mut Table) -> Vec<String> {
    table.wait_for_batch();
    let (batch, work) = table.next();
    let keys = work.items.iter().map(|item| item.idempotency_key(&work)).collect();
    table.answer(batch, work.items.len(), &failed(Failure::retry("down", "not now")));
    keys
}

fn key_of(install_id: u128, id: EventId, created_ms: i64) -> String {
    let mut table = Table::with_plan(installed_as(install_id));
    table.answer_poll(written(id, created_ms));
    next_keys(&mut table).remove(0)
}

#[test]
fn rl_23_a_key_is_equal_over_attempts_restarts_and_owners() {
    let mut table = Table::with_plan(installed_as(7));
    table.answer_poll(written(5, 1_000));
    let first = next_keys(&mut table);
    assert_eq!(next_keys(&mut table), first, "a second attempt");
    table.next_owner(RecoveredState::default());
    table.answer_poll(written(5, 1_000));
    assert_eq!(next_keys(&mut table), first, "another owner reads the same row");
    table.next_owner_with(installed_as(7), RecoveredState::default());
    table.answer_poll(written(5, 1_000));
    assert_eq!(next_keys(&mut table), first, "a node with another configuration");
}

#[test]
fn rl_23_another_install_or_a_number_used_twice_has_another_key() {
    assert_eq!(key_of(7, 1, 1_000), key_of(7, 1, 1_000));
    assert_ne!(key_of(7, 1, 1_000), key_of(8, 1, 1_000), "another database, or another install of it");
    assert_ne!(key_of(7, 1, 1_000), key_of(7, 1, 2_000), "a restored file uses the number again");
}

/// The newest row names the call: an older one that merged with it was never sent.
#[test]
fn rl_23_the_newest_row_of_a_run_counts() {
    let mut table = Table::with_plan(installed_as(7));
    let older = written(4, 500).taken.remove(0);
    let mut both = written(5, 1_000);
    both.taken.insert(0, older);
    table.answer_poll(both);
    assert_eq!(next_keys(&mut table), [key_of(7, 5, 1_000)]);
}
