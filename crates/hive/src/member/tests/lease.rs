//! One lease: taken, minted, lost, read.

use super::*;
use crate::contract::Refusal;

fn settled(table: &mut Table) {
    assert!(table.is_settled());
}

#[test]
fn hv_34_a_lease_that_another_holds_is_neither_taken_nor_read_again() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.answer_all();
    for _ in 0..20 {
        table.pass(1_000);
        assert_eq!(table.request(is_take), None);
        assert_eq!(table.request(is_look), None, "the view shows when it changes");
        table.answer_all();
        settled(&mut table);
    }
}

#[test]
fn hv_34_taking_names_the_epoch_that_was_read() {
    let mut table = Table::new();
    table.leases.push(row(DUTY, 4, None));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    let Some(Request::Take { claims, node, .. }) = table.request(is_take) else { panic!("{:?}", table.in_flight) };
    assert_eq!((claims[0].epoch, *node), (Epoch(4), id(ME)));
}

#[test]
fn hv_36_after_a_lost_race_the_row_is_read_before_the_next_try() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.reply(is_take, Ok(Reply::Refused(Refusal::Raced)));
    table.in_flight.retain(|(_, request)| *request == Request::Tally);
    table.pass(500);
    assert_eq!(table.request(is_take), None);
    assert!(table.request(is_look).is_some());
}

/// HV-36: an unanswered take may have succeeded; then this node holds the lease, under an epoch it does not know.
#[test]
fn hv_36_after_an_unanswered_take_the_row_is_read_and_a_new_epoch_minted() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    assert!(!is_granted(&table.reply(is_take, broken())));
    table.leases = vec![row(DUTY, 77, Some(ME))];
    table.pass(500);
    assert!(!is_granted(&table.answer_look()), "the row alone grants no term");
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims[0].epoch, Epoch(77));
    assert!(is_granted(&table.grant(is_mint, 80)));
}

#[test]
fn hv_36_minting_refused_means_the_lease_has_gone() {
    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(70) });
    let refused = Ok(Reply::Refused(Refusal::Raced));
    let is_floored = |request: &Request| matches!(request, Request::HandOver { claims, .. } if claims[0].floor.0 == 70);
    assert!(is_lost(&table.reply(is_floored, refused)));
}

/// RL-12: whether an epoch was minted is unknown: the old one may be invalid, so it is not used.
#[test]
fn rl_12_an_unanswered_mint_is_not_trusted() {
    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    assert!(is_lost(&table.reply(is_mint, broken())));
}

/// HV-50: nothing pauses while a new epoch is minted, and the old term ends with it.
#[test]
fn hv_50_a_new_epoch_replaces_the_old_one() {
    let mut table = Table::holding();
    let old = table.member.leases[DUTY].term().unwrap().clone();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    assert!(old.lives_at(table.now), "until the new one is there");
    let effects = table.grant(is_mint, 6);
    assert!(matches!(&effects[..], [Effect::Granted(term)] if term.epoch() == Epoch(6)), "{effects:?}");
    assert!(!old.lives_at(table.now));
}

#[test]
fn hv_41_a_refused_fence_kills_the_term_unless_a_new_epoch_was_minted() {
    let mut table = Table::holding();
    assert!(!is_lost(&table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(4) })), "an older epoch of this node");
    assert!(is_lost(&table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(5) })));
    assert!(table.request(is_look).is_some(), "it reads who holds the lease");
}

/// If the row shows another holder, the row is right.
#[test]
fn two_queens_by_check_then_set() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.leases = vec![row(DUTY, 9, Some(2))];
    table.head.version += 1;
    table.pass(2_200);
    table.answer_heartbeat();
    let effects = table.answer_view();
    assert!(is_lost(&effects), "{effects:?}");
    assert_eq!(table.request(is_take), None);
}

#[test]
fn hv_36_a_lease_received_by_hand_over_is_minted_before_it_is_used() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.leases = vec![row(DUTY, 8, Some(ME))];
    table.head.version += 1;
    table.answer_all();
    table.pass(2_200);
    table.answer_heartbeat();
    assert!(!is_granted(&table.answer_view()));
    assert!(is_granted(&table.grant(is_mint, 9)));
}

#[test]
fn hv_23_while_minting_is_early_nothing_is_tried() {
    let mut table = Table::new();
    table.head.lineage_ms = table.head.hive_ms - 1_000;
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.answer_all();
    for _ in 0..4 {
        table.pass(1_000);
        table.answer_all();
        assert_eq!(table.request(is_take), None);
        settled(&mut table);
    }
    table.pass(1_000);
    assert!(table.request(is_take).is_some(), "{:?}", table.in_flight);
}

#[test]
fn hv_23_a_hold_stops_minting_until_a_person_accepts_the_restore() {
    let mut table = Table::new();
    table.head.hold = Some("restore".into());
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_all();
    for _ in 0..20 {
        table.pass(1_000);
        table.answer_all();
        assert_eq!(table.request(is_take), None);
    }
    table.head.hold = None;
    table.pass(2_200);
    table.answer_heartbeat();
    table.answer_look();
    assert!(table.request(is_take).is_some(), "{:?}", table.in_flight);
}

/// HV-23: after a restore the row names this node under a much older epoch. The node reads it although the epoch is
/// lower than the known one: otherwise no node would ever hold the lease.
#[test]
fn hv_23_a_lease_that_a_restore_gave_this_node_is_held_even_if_the_hold_was_missed() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 9, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.answer_all();
    table.leases = vec![row(DUTY, 4, Some(ME))];
    (table.head.version, table.head.lineage_ms) = (table.head.hive_ms, table.head.hive_ms);
    table.pass(2_200);
    table.answer_heartbeat();
    table.answer_all();
    for _ in 0..4 {
        table.pass(1_000);
        table.answer_all();
    }
    assert!(is_granted(&table.grant(is_mint, 10)), "{:?}", table.in_flight);
}

/// HV-53: a row that shows a lower epoch than before, for example after a manual change, counts as a restore.
#[test]
fn hv_23_an_epoch_that_fell_is_reported_too() {
    let mut table = Table::holding();
    table.pass(10);
    table.leases = vec![row(DUTY, 2, Some(ME))];
    table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(5) });
    table.answer_look();
    assert_eq!(table.request(is_mint), None, "not before a heartbeat reply shows whether it is the same server");
    // Reported again until the store has acknowledged it.
    for _ in 0..2 {
        table.answer_heartbeat();
        assert_eq!(table.request(is_mint), None);
        let is_behind = |request: &Request| matches!(request, Request::Behind { .. });
        let Some(Request::Behind { leases, .. }) = table.request(is_behind) else { panic!("{:?}", table.in_flight) };
        assert_eq!(leases[..], [HeldLease { lease: DUTY.into(), epoch: Epoch(5) }]);
        table.reply(is_behind, broken());
        table.pass(600);
        assert_eq!(table.request(is_mint), None);
    }
}

/// Another server, which is recorded already, answers the next heartbeat.
fn moved(table: &mut Table) -> Vec<Effect> {
    (table.head.server, table.head.lineage) = ("p2".into(), Some("p2".into()));
    table.head.version += 1_000;
    // The first request after a pause makes the member send a heartbeat early.
    table.step(Input::Traffic(table.now));
    table.pass(300);
    table.answer_heartbeat()
}

/// HV-23: a lease that the old server has granted does not exist in the new one.
#[test]
fn hv_23_an_answer_of_the_old_server_grants_nothing() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    let taken = Ok(Reply::Taken(vec![HeldLease { lease: DUTY.into(), epoch: Epoch(77) }]));
    moved(&mut table);
    let effects = table.reply(is_take, taken.clone());
    assert!(!is_granted(&effects), "{effects:?}");
    table.pass(600);
    table.answer_look();
    assert!(table.request(is_take).is_some(), "in the new server the lease is free: {:?}", table.in_flight);

    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    assert!(is_lost(&moved(&mut table)));
    let effects = table.reply(is_mint, taken);
    assert!(!is_granted(&effects), "{effects:?}");
}

/// HV-23: rows of the old server do not count either: otherwise the new one would seem to have gone back.
#[test]
fn hv_23_rows_of_the_old_server_are_not_compared_with_the_new_one() {
    let is_behind = |request: &Request| matches!(request, Request::Behind { .. });
    for late in [is_look, is_view] {
        let mut table = Table::holding();
        table.answer_all();
        table.head.version += 1;
        table.pass(2_200);
        table.answer_heartbeat();
        table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(5) });
        let (before, head) = (table.leases.clone(), table.head.clone());
        moved(&mut table);
        let leases = vec![row(DUTY, 90, Some(2))];
        let old = if late(&Request::View) {
            Reply::View(Box::new(View { head, nodes: table.nodes.clone(), leases }))
        } else {
            Reply::Leases { hive_ms: 0, leases }
        };
        table.reply(late, Ok(old));
        table.leases = before;
        table.successor_of = vec![DUTY.into()];
        for _ in 0..6 {
            table.answer_all();
            table.pass(1_000);
        }
        assert_eq!(table.request(is_behind), None);
    }
}
