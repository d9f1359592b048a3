//! One lease: taken, minted, lost, looked at.

use super::*;
use crate::contract::Refusal;

fn settled(table: &mut Table) {
    assert!(table.is_settled());
}

#[test]
fn hv_34_a_lease_that_another_holds_is_not_taken_and_not_asked_about() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.answer_all();
    for _ in 0..20 {
        table.pass(1_000);
        assert_eq!(table.request(is_take), None);
        assert_eq!(table.request(is_look), None, "its view tells when it changes");
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
    table.looked();
    let Some(Request::Take { claims, node, .. }) = table.request(is_take) else { panic!("{:?}", table.asked) };
    assert_eq!((claims[0].epoch, *node), (Epoch(4), id(ME)));
}

#[test]
fn hv_36_a_lost_race_is_looked_at_before_another_try() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.reply(is_take, Ok(Reply::Refused(Refusal::Raced)));
    table.asked.retain(|(_, request)| *request == Request::Tally);
    table.pass(500);
    assert_eq!(table.request(is_take), None);
    assert!(table.request(is_look).is_some());
}

/// HV-36: an unanswered take may have landed; then it is ours, under an epoch that nobody has told us.
#[test]
fn hv_36_an_unanswered_take_is_looked_at_and_minted_anew() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    assert!(!is_granted(&table.reply(is_take, broken())));
    table.leases = vec![row(DUTY, 77, Some(ME))];
    table.pass(500);
    assert!(!is_granted(&table.looked()), "by the row alone nobody acts");
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.asked) };
    assert_eq!(claims[0].epoch, Epoch(77));
    assert!(is_granted(&table.granted(is_mint, 80)));
}

#[test]
fn hv_36_minting_refused_means_the_lease_has_gone() {
    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(70) });
    let refused = Ok(Reply::Refused(Refusal::Raced));
    let is_floored = |request: &Request| matches!(request, Request::HandOver { claims, .. } if claims[0].floor.0 == 70);
    assert!(is_lost(&table.reply(is_floored, refused)));
}

/// RL-12: whether an epoch was minted is unknown: the old one may be gone, so it is not used.
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
    let effects = table.granted(is_mint, 6);
    assert!(matches!(&effects[..], [Effect::Granted(term)] if term.epoch() == Epoch(6)), "{effects:?}");
    assert!(!old.lives_at(table.now));
}

#[test]
fn hv_41_a_refused_fence_kills_the_term_unless_it_was_minted_anew() {
    let mut table = Table::holding();
    assert!(!is_lost(&table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(4) })), "an older one of ours");
    assert!(is_lost(&table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(5) })));
    assert!(table.request(is_look).is_some(), "who has it?");
}

/// The row says otherwise, whatever we believe.
#[test]
fn two_queens_by_check_then_set() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.leases = vec![row(DUTY, 9, Some(2))];
    table.head.version += 1;
    table.pass(2_200);
    table.beaten();
    let effects = table.seen();
    assert!(is_lost(&effects), "{effects:?}");
    assert_eq!(table.request(is_take), None);
}

#[test]
fn hv_36_what_becomes_ours_by_another_hand_is_minted_before_it_is_used() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.leases = vec![row(DUTY, 8, Some(ME))];
    table.head.version += 1;
    table.answer_all();
    table.pass(2_200);
    table.beaten();
    assert!(!is_granted(&table.seen()));
    assert!(is_granted(&table.granted(is_mint, 9)));
}

#[test]
fn hv_23_while_minting_is_early_nothing_is_tried() {
    let mut table = Table::new();
    table.head.lineage_ms = table.head.hive_ms - 1_000;
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.answer_all();
    for _ in 0..4 {
        table.pass(1_000);
        table.answer_all();
        assert_eq!(table.request(is_take), None);
        settled(&mut table);
    }
    table.pass(1_000);
    assert!(table.request(is_take).is_some(), "{:?}", table.asked);
}

#[test]
fn hv_23_a_hold_stops_minting_until_a_person_has_spoken() {
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
    table.beaten();
    table.looked();
    assert!(table.request(is_take).is_some(), "{:?}", table.asked);
}

/// HV-23: after a restore the row is ours under an epoch long past; that it is lower than what we knew is no reason not to
/// look, or nobody would ever hold it.
#[test]
fn hv_23_what_a_restore_made_ours_is_held_though_its_hold_was_missed() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 9, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.answer_all();
    table.leases = vec![row(DUTY, 4, Some(ME))];
    (table.head.version, table.head.lineage_ms) = (table.head.hive_ms, table.head.hive_ms);
    table.pass(2_200);
    table.beaten();
    table.answer_all();
    for _ in 0..4 {
        table.pass(1_000);
        table.answer_all();
    }
    assert!(is_granted(&table.granted(is_mint, 10)), "{:?}", table.asked);
}

/// HV-53: a person's row that shows an epoch lower than we have seen it is a restore like any other.
#[test]
fn hv_23_an_epoch_that_fell_is_told_too() {
    let mut table = Table::holding();
    table.pass(10);
    table.leases = vec![row(DUTY, 2, Some(ME))];
    table.step(Input::Stale { lease: DUTY.into(), epoch: Epoch(5) });
    table.looked();
    assert_eq!(table.request(is_mint), None, "not even before a beat has told whether it is the same server");
    // Said again until it has been heard.
    for _ in 0..2 {
        table.beaten();
        assert_eq!(table.request(is_mint), None);
        let is_behind = |request: &Request| matches!(request, Request::Behind { .. });
        let Some(Request::Behind { leases, .. }) = table.request(is_behind) else { panic!("{:?}", table.asked) };
        assert_eq!(leases[..], [Held { lease: DUTY.into(), epoch: Epoch(5) }]);
        table.reply(is_behind, broken());
        table.pass(600);
        assert_eq!(table.request(is_mint), None);
    }
}

/// The next beat is answered by another server, which has recorded itself already.
fn moved(table: &mut Table) -> Vec<Effect> {
    (table.head.server, table.head.lineage) = ("p2".into(), Some("p2".into()));
    table.head.version += 1_000;
    // The first request after a pause: a beat that does not wait for its time.
    table.step(Input::Traffic(table.now));
    table.pass(300);
    table.beaten()
}

/// HV-23: what the old server has granted, the new one never had.
#[test]
fn hv_23_an_answer_of_the_server_before_grants_nothing() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    let taken = Ok(Reply::Taken(vec![Held { lease: DUTY.into(), epoch: Epoch(77) }]));
    moved(&mut table);
    let effects = table.reply(is_take, taken.clone());
    assert!(!is_granted(&effects), "{effects:?}");
    table.pass(600);
    table.looked();
    assert!(table.request(is_take).is_some(), "looked at there, it is free: {:?}", table.asked);

    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    assert!(is_lost(&moved(&mut table)));
    let effects = table.reply(is_mint, taken);
    assert!(!is_granted(&effects), "{effects:?}");
}

/// HV-23: nor does what the old server shows count, or the new one would seem to have gone back.
#[test]
fn hv_23_an_answer_of_the_server_before_is_no_measure() {
    let is_behind = |request: &Request| matches!(request, Request::Behind { .. });
    for late in [is_look, is_view] {
        let mut table = Table::holding();
        table.answer_all();
        table.head.version += 1;
        table.pass(2_200);
        table.beaten();
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
        table.heir_of = vec![DUTY.into()];
        for _ in 0..6 {
            table.answer_all();
            table.pass(1_000);
        }
        assert_eq!(table.request(is_behind), None);
    }
}
