//! Membership, trust, the watchdog, and the lineage.

use super::*;
use crate::contract::{Refusal, State};

#[test]
fn hv_9_nothing_is_taken_before_the_join_is_answered() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    assert!(matches!(&table.in_flight[..], [(_, Request::Join { .. })]), "{:?}", table.in_flight);
    table.pass(1_900);
    assert_eq!(table.in_flight.len(), 1);
}

/// HV-9: whether a row was created is unknown; no node uses it.
#[test]
fn hv_9_after_an_unanswered_join_the_node_takes_a_fresh_identity() {
    let mut table = Table::new();
    assert_eq!(table.pass(2_000), [Effect::Identify]);
    table.in_flight.clear();
    table.pass(1_000);
    assert!(table.in_flight.is_empty(), "not without an identity");
    table.step(Input::Identity(id(2)));
    assert!(
        matches!(&table.in_flight[..], [(_, Request::Join { node, .. })] if *node == id(2)),
        "{:?}",
        table.in_flight
    );
    let known = Ok(Reply::Refused(Refusal::Known));
    let effects = table.reply(|request| matches!(request, Request::Join { .. }), known);
    assert_eq!(effects, [Effect::Identify]);
}

#[test]
fn hv_9_a_joined_node_takes_nothing_before_its_first_heartbeat() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    let status = table.status();
    table.reply(|request| matches!(request, Request::Join { .. }), Ok(Reply::Joined(Box::new(status))));
    let Some(Request::Beat { state, read_only: false, .. }) = table.request(is_beat) else { panic!("no beat") };
    assert!(state.ready && state.eligible, "reported at once");
    table.answer_look();
    table.pass(1_000);
    assert_eq!(table.request(is_take), None, "found free, but not taken before the heartbeat is answered");
    table.answer_heartbeat();
    table.answer_view();
    assert!(table.request(is_take).is_some(), "{:?}", table.in_flight);
}

/// HV-17: a node that has to check something first is not ready before it has. A change is reported at once, and lasts.
#[test]
fn hv_17_a_node_that_has_to_check_first_is_not_ready_in_its_first_heartbeat() {
    let mut table = Table::with(|config| config.ready = false);
    let status = table.status();
    let joined = |request: &Request| matches!(request, Request::Join { .. });
    table.reply(joined, Ok(Reply::Joined(Box::new(status.clone()))));
    let ready = |table: &Table| match table.request(is_beat) {
        Some(Request::Beat { state, .. }) => Some(state.ready),
        _ => None,
    };
    assert_eq!(ready(&table), Some(false));
    table.answer_heartbeat();
    table.step(Input::Ready(true));
    assert_eq!(ready(&table), Some(true), "at once, not with the next heartbeat");
    table.reply(is_beat, Ok(Reply::Beat(Box::new(Status { member: false, ..status.clone() }))));
    table.step(Input::Identity(id(2)));
    table.pass(1_000);
    table.reply(joined, Ok(Reply::Joined(Box::new(status))));
    assert_eq!(ready(&table), Some(true), "removed and joined again, it is as ready as before");
}

#[test]
fn hv_12_trust_counts_from_the_start_of_the_heartbeat_not_from_its_answer() {
    let mut table = Table::holding();
    table.pass(2_200);
    let sent_at = table.now;
    table.pass(1_500);
    table.effects.clear();
    table.answer_heartbeat();
    assert!(table.effects.contains(&Effect::Trust(sent_at.after(Duration::from_millis(4_800)))), "{:?}", table.effects);
}

#[test]
fn hv_12_when_trust_ends_every_term_dies_without_a_request() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    assert!(!is_lost(&table.pass(4_700)) && term.lives_at(table.now));
    assert!(is_lost(&table.pass(100)) && !term.lives_at(table.now));
}

/// A late answer revives nothing: the lease continues only under a new epoch.
#[test]
fn late_beat_revives_dead_term() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.pass(2_200);
    table.pass(1_500);
    // Sent in time and answered in time, but the trust of the previous heartbeat has run out by now.
    table.now = table.now.after(Duration::from_millis(1_200));
    let effects = table.answer_heartbeat();
    assert!(is_lost(&effects) && !is_granted(&effects), "{effects:?}");
    assert!(!term.lives_at(table.now));
    assert_eq!(table.request(is_mint), None, "not before it has asked read-only and renewed its row");
    table.pass(500);
    table.reply(
        |request| matches!(request, Request::Beat { read_only: true, .. }),
        Ok(Reply::Beat(Box::new(Status { renewed: false, ..table.status() }))),
    );
    assert_eq!(table.request(is_mint), None);
    table.answer_heartbeat();
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims[0].epoch, Epoch(5));
    assert!(is_granted(&table.grant(is_mint, 9)));
    assert!(!term.lives_at(table.now), "the old one stays dead");
}

/// The work under a term reads the clock itself. If it finds the term dead, the term stays dead, even if a heartbeat
/// that would have extended it is answered at the same moment. Without a new epoch the lease would be held for ever,
/// without work.
#[test]
fn hv_13_a_term_that_was_found_dead_gets_a_new_epoch() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.pass(2_200);
    assert!(!term.lives_at(table.now.after(Duration::from_secs(5))), "checked a moment too late");
    let effects = table.answer_heartbeat();
    assert!(is_lost(&effects), "{effects:?}");
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims[0].epoch, Epoch(5));
    assert!(is_granted(&table.grant(is_mint, 9)));
    assert!(!term.lives_at(table.now));
}

#[test]
fn hv_10_a_node_without_trust_asks_without_renewing() {
    let mut table = Table::holding();
    for _ in 0..20 {
        table.pass(700);
    }
    let last = table.in_flight.iter().rev().find(|(_, request)| is_beat(request));
    assert!(matches!(last, Some((_, Request::Beat { read_only: true, .. }))), "{last:?}");
    let sent_after_trust = table.in_flight.iter().skip(3).any(|(_, request)| is_writing_beat(request));
    assert!(!sent_after_trust, "a node that gets no replies would hold its leases for ever: {:?}", table.in_flight);
}

#[test]
fn hv_10_a_failed_heartbeat_is_retried_soon() {
    let mut table = Table::holding();
    table.pass(2_200);
    table.reply(is_beat, broken());
    assert_eq!(table.request(is_beat), None);
    table.pass(500);
    assert!(table.request(is_writing_beat).is_some());
}

#[test]
fn hv_10_a_heartbeat_times_out_after_a_third_of_the_time_to_live() {
    let mut table = Table::holding();
    table.pass(2_200);
    let (late, _) = table.in_flight.remove(0);
    table.pass(2_000);
    table.pass(500);
    assert!(table.request(is_beat).is_some(), "another one is in flight");
    table.effects.clear();
    let result = Ok(Reply::Beat(Box::new(table.status())));
    table.step(Input::Answer { call: late, result });
    assert!(!table.effects.iter().any(|effect| matches!(effect, Effect::Trust(_))), "a late answer is ignored");
}

/// A node that comes back after its removal has another identity.
#[test]
fn old_identity_after_restart() {
    let mut table = Table::holding();
    table.pass(2_200);
    let removed = Status { member: false, ..table.status() };
    let effects = table.reply(is_beat, Ok(Reply::Beat(Box::new(removed))));
    assert!(is_lost(&effects) && effects.ends_with(&[Effect::Removed, Effect::Identify]), "{effects:?}");
    assert_eq!(table.member.node(), None);
    table.step(Input::Identity(id(2)));
    table.pass(500);
    let Some((_, Request::Join { node, .. })) = table.in_flight.last() else { panic!("{:?}", table.in_flight) };
    assert_eq!(*node, id(2));
}

/// HV-16
#[test]
fn hv_16_a_node_with_a_stalled_runtime_gives_up_its_leases_and_keeps_sending_heartbeats() {
    let mut table = Table::with(|config| config.pulsed = true);
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.grant(is_take, 5);
    for _ in 0..10 {
        table.pass(500);
        table.step(Input::Pulse);
        if table.request(is_beat).is_some() {
            table.answer_heartbeat();
        }
    }
    assert!(table.member.leases[DUTY].term().is_some());
    let mut lost = false;
    for _ in 0..4 {
        lost |= is_lost(&table.pass(750));
    }
    assert!(lost, "no pulse for half the time to live");
    assert!(table.request(is_release).is_some(), "{:?}", table.in_flight);
    while table.request(is_beat).is_some_and(|request| matches!(request, Request::Beat { state, .. } if state.eligible))
    {
        table.answer_heartbeat();
        table.pass(2_300);
    }
    let Some(Request::Beat { state: State { ready, eligible, .. }, .. }) = table.request(is_beat) else {
        panic!("{:?}", table.in_flight)
    };
    assert!(!ready && !eligible);
    let mut stuck = false;
    for _ in 0..60 {
        stuck |= table.pass(600).contains(&Effect::Stuck);
        if table.request(is_beat).is_some() {
            table.answer_heartbeat();
        }
    }
    assert!(stuck, "30 s without a pulse");
    table.step(Input::Pulse);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert!(state.ready && state.eligible, "alive again");
}

/// HV-16: a process that was suspended was asleep, not stuck.
#[test]
fn hv_16_a_suspended_process_is_not_stuck() {
    let mut table = Table::with(|config| config.pulsed = true);
    table.join();
    table.pass(100);
    table.answer_heartbeat_if_asked();
    let effects = table.pass(4_000);
    assert!(!table.member.watchdog.is_stalled() && !effects.contains(&Effect::Stuck));
}

#[test]
fn hv_23_another_store_ends_all_terms_and_is_recorded() {
    let mut table = Table::holding();
    table.pass(2_200);
    table.head.server = "new".into();
    let effects = table.answer_heartbeat();
    assert!(is_lost(&effects), "{effects:?}");
    let recorded = Request::NewLineage { was: Some("s".into()), found: "new".into() };
    table.reply(|request| *request == recorded, Ok(Reply::Done));
    assert_eq!(table.request(is_mint), None);
    (table.head.lineage, table.head.lineage_ms) = (Some("new".into()), table.head.hive_ms);
    table.answer_heartbeat();
    table.answer_look();
    assert_eq!(table.request(is_mint), None, "terms under the old lineage may not have ended");
    for _ in 0..7 {
        table.pass(1_000);
        table.answer_heartbeat_if_asked();
        table.answer_look_if_asked();
    }
    let Some(Request::HandOver { mint, .. }) = table.request(is_mint) else { panic!("{:?}", table.in_flight) };
    assert_eq!(&*mint.lineage, "new");
}

/// A take is in flight when the store is replaced: an answer of the old store grants nothing in the new one.
fn takes_from_the_store_before() -> bool {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_look();
    table.pass(2_200);
    table.head.server = "new".into();
    table.answer_heartbeat();
    is_granted(&table.grant(is_take, 5))
}

#[test]
fn hv_23_an_answer_of_the_old_store_grants_nothing() {
    assert!(!takes_from_the_store_before());
}

/// HV-86: random seeds rarely reach this case.
#[cfg(feature = "planted")]
#[test]
fn hv_86_the_planted_bug_of_accepting_an_old_stores_answer_is_found() {
    crate::planted::plant(Some("answers of another store"));
    let found = takes_from_the_store_before();
    crate::planted::plant(None);
    assert!(found);
}

#[test]
fn hv_23_a_store_that_went_back_ends_all_terms_and_gets_a_report() {
    let (table, effects) = gone_back();
    assert!(is_lost(&effects), "{effects:?}");
    let Some(Request::Behind { version, .. }) = table.request(|request| matches!(request, Request::Behind { .. }))
    else {
        panic!("{:?}", table.in_flight)
    };
    assert_eq!(*version, 30);
}

fn is_behind(request: &Request) -> bool {
    matches!(request, Request::Behind { .. })
}

/// A member with a lease that has just found that the store shows an older state, and its effects.
fn gone_back() -> (Table, Vec<Effect>) {
    let mut table = Table::holding();
    table.head.version = 30;
    table.pass(2_200);
    table.answer_heartbeat();
    table.pass(2_200);
    table.head.version = 20;
    let effects = table.answer_heartbeat();
    (table, effects)
}

/// HV-23: the node that finds it must not get its leases again before the store has set the hold for all nodes.
#[test]
fn hv_23_nothing_is_minted_before_the_store_has_acknowledged_that_it_went_back() {
    let (mut table, _) = gone_back();
    assert_eq!(table.request(is_mint), None);
    table.reply(is_behind, broken());
    table.pass(600);
    assert_eq!(table.request(is_mint), None, "the store has not acknowledged it");
    table.answer_heartbeat();
    assert_eq!(table.request(is_mint), None);
    table.reply(is_behind, Ok(Reply::Done));
    table.head.hold = Some("restore".into());
    for _ in 0..5 {
        table.answer_all();
        table.pass(500);
        assert_eq!(table.request(is_mint), None, "nor before a person has accepted it");
    }
    table.head.hold = None;
    let minted = (0..10).any(|_| {
        table.answer_all();
        table.pass(500);
        table.request(is_mint).is_some()
    });
    assert!(minted, "{:?}", table.in_flight);
}

/// HV-23: the report was lost, and meanwhile other nodes have raised the store's version above the known one.
#[test]
fn hv_23_a_report_that_the_store_has_not_acknowledged_is_sent_again() {
    let (mut table, _) = gone_back();
    table.reply(is_behind, broken());
    table.head.version = 31;
    table.pass(600);
    table.answer_heartbeat();
    assert!(table.request(is_behind).is_some(), "{:?}", table.in_flight);
}

/// HV-23: the same for a mint that was in flight when it was found.
#[test]
fn hv_23_a_lease_won_from_a_doubted_store_is_not_used() {
    let mut table = Table::holding();
    table.head.version = 30;
    table.pass(2_200);
    table.answer_heartbeat();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.pass(2_200);
    table.head.version = 20;
    assert!(is_lost(&table.answer_heartbeat()));
    let effects = table.grant(is_mint, 9);
    assert!(!is_granted(&effects), "{effects:?}");
}

#[test]
fn hv_21_leaving_releases_the_held_leases_and_then_deletes_the_row() {
    let mut table = Table::holding();
    table.step(Input::Leave);
    assert_eq!(table.request(|request| matches!(request, Request::Leave { .. })), None);
    let released = Ok(Reply::Released(vec![DUTY.into()]));
    table.reply(|request| matches!(request, Request::Release { held, .. } if held[0].epoch.0 == 5), released);
    let effects = table.reply(|request| matches!(request, Request::Leave { .. }), Ok(Reply::Done));
    assert_eq!(effects, [Effect::Left]);
}

/// HV-21: other members remove the row later.
#[test]
fn hv_21_without_the_store_it_still_ends_in_time() {
    let mut table = Table::holding();
    table.step(Input::Leave);
    let mut effects = Vec::new();
    for _ in 0..6 {
        effects.extend(table.pass(1_000));
    }
    assert_eq!(effects, [Effect::Left]);
}

/// HV-21: a failed Leave is retried, so that no node has to wait until the row expires.
#[test]
fn hv_21_a_failed_leave_is_retried() {
    let mut table = Table::holding();
    table.step(Input::Leave);
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    assert_eq!(table.reply(is_leave, broken()), []);
    assert!(table.request(is_leave).is_none(), "not at once");
    let due = table.member.wake_at();
    table.now = due;
    table.step(Input::Tick);
    assert_eq!(table.reply(is_leave, Ok(Reply::Done)), [Effect::Left]);
}

/// The same with other nodes present: a successor could not learn its role without the store.
#[test]
fn hv_21_without_the_store_the_node_waits_for_no_successor() {
    let mut table = leaving_among_others();
    let mut effects = Vec::new();
    for _ in 0..6 {
        effects.extend(table.pass(1_000));
    }
    assert!(is_lost(&effects) && effects.last() == Some(&Effect::Left), "{effects:?}");
}

/// HV-45: the node leads until a successor is warm, hands over to it, and only then deletes its row.
#[test]
fn hv_21_a_leaving_node_hands_over_first() {
    let mut table = leaving_among_others();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.answer_heartbeat();
    table.reply(|request| matches!(request, Request::SetSuccessor { successor: Some(_), .. }), Ok(Reply::Done));
    table.answer_look();
    table.pass(1_000);
    assert!(term.lives_at(table.now) && table.request(is_release).is_none(), "{:?}", table.in_flight);
    (table.leases[0].successor, table.leases[0].successor_is_warm) = (Some(id(2)), true);
    let effects = table.answer_look();
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    table.step(Input::Left(HeldLease { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(table.request(is_leave).is_none(), "not before it was handed over");
    let given = vec![HeldLease { lease: DUTY.into(), epoch: Epoch(9) }];
    table.reply(is_transfer, Ok(Reply::Taken(given)));
    assert!(table.request(is_release).is_none());
    assert_eq!(table.reply(is_leave, Ok(Reply::Done)), [Effect::Left]);
}

#[test]
fn hv_21_a_leaving_node_waits_five_seconds_for_a_cold_successor() {
    let mut table = leaving_among_others();
    table.pass(50);
    table.reply(|request| matches!(request, Request::SetSuccessor { successor: Some(_), .. }), Ok(Reply::Done));
    for _ in 0..49 {
        table.answer_all();
        table.pass(100);
        assert!(table.request(is_release).is_none() && table.request(is_leave).is_none(), "{:?}", table.in_flight);
    }
    table.answer_all();
    table.pass(60);
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    assert_eq!(table.reply(is_leave, Ok(Reply::Done)), [Effect::Left]);
}

/// The node was leaving, and other members removed it: it does not join again.
#[test]
fn hv_21_a_node_removed_while_it_leaves_is_gone() {
    let mut table = leaving_among_others();
    let status = Status { member: false, ..table.status() };
    let effects = table.reply(is_beat, Ok(Reply::Beat(Box::new(status))));
    assert_eq!(effects.last(), Some(&Effect::Left), "{effects:?}");
    assert!(!effects.contains(&Effect::Identify), "{effects:?}");
}

/// A member that is leaving while it leads a duty that another node wants too.
fn leaving_among_others() -> Table {
    let mut table = Table::holding();
    table.nodes.push(NodeRow { warm: vec![DUTY.into()], ..node(2) });
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::Leave);
    assert!(table.request(is_beat).is_some() && table.request(is_leave).is_none(), "{:?}", table.in_flight);
    table
}

fn is_leave(request: &Request) -> bool {
    matches!(request, Request::Leave { .. })
}

/// The bell only sends a heartbeat earlier; without it the next heartbeat reports the same.
#[test]
fn hv_24_a_bell_is_only_an_early_heartbeat() {
    let [mut rung, mut unrung] = [(); 2].map(|()| {
        let mut table = Table::new();
        table.join();
        table.answer_all();
        table.pass(1_000);
        table
    });
    let at = rung.now;
    assert_eq!(rung.step(Input::Traffic(at)), []);
    assert!(matches!(&rung.in_flight[..], [(_, Request::Beat { state, .. })] if state.engaged_age_ms == Some(0)));
    // As if the bell was lost: the next heartbeat finds the mark.
    unrung.member.traffic = Some(at);
    assert_eq!(unrung.in_flight, []);
    unrung.pass(1_200);
    assert!(matches!(&unrung.in_flight[..], [(_, Request::Beat { state, .. })] if state.engaged_age_ms == Some(1_200)));
    let [after_the_bell, after_none] = [&mut rung, &mut unrung].map(|table| {
        let effects = table.answer_heartbeat();
        let in_flight: Vec<Request> = table.in_flight.iter().map(|(_, request)| request.clone()).collect();
        (effects, in_flight)
    });
    assert_eq!(after_the_bell, after_none, "nothing else has changed");
    for table in [&mut rung, &mut unrung] {
        table.answer_all();
        assert_eq!((table.in_flight.len(), table.member.reported_traffic), (0, Some(at)));
    }
}

/// The first request after a pause is reported at once, later ones with regular heartbeats: one extra heartbeat, and no
/// other request.
#[test]
fn write_per_request() {
    let mut table = Table::new();
    table.join();
    table.answer_all();
    table.pass(1_000);
    assert_eq!(table.in_flight, []);
    table.step(Input::Traffic(table.now));
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.engaged_age_ms, Some(0));
    table.answer_all();
    for _ in 0..100 {
        table.pass(10);
        table.step(Input::Traffic(table.now));
    }
    assert_eq!(table.in_flight, [], "100 served requests, and no call to the store");
    table.pass(1_300);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.engaged_age_ms, Some(1_300), "HV-27: the age of the last one");
    table.answer_all();
    for _ in 0..20 {
        table.pass(1_600);
        table.answer_all();
    }
    table.pass(2_200);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.engaged_age_ms, None, "30 s after the last request");
}

/// HV-7: with a shorter engaged-ttl, the node reports a higher age; stores treat all ages alike.
#[test]
fn hv_27_traffic_counts_for_as_long_as_is_configured() {
    let mut table = Table::with(|config| config.engaged_ttl = Duration::from_secs(10));
    table.join();
    table.answer_all();
    table.pass(1_000);
    table.step(Input::Traffic(table.now));
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.engaged_age_ms, Some(20_000), "10 of 30 seconds remain");
    table.answer_all();
    for _ in 0..6 {
        table.pass(1_600);
        table.answer_all();
    }
    table.pass(2_200);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.engaged_age_ms, None);
}

#[test]
fn hv_29_a_node_without_a_published_count_counts_once_per_heartbeat() {
    let mut table = Table::new();
    table.join();
    let is_tally = |request: &Request| *request == Request::Tally;
    let tallied = Reply::Counted { hive_ms: 0, counts: counts(3, 0), published: false, removed: Vec::new() };
    table.effects.clear();
    table.reply(is_tally, Ok(tallied));
    let known = table.effects.iter().rev().find_map(|effect| match effect {
        Effect::Engaged(engaged) => Some(*engaged),
        _ => None,
    });
    assert_eq!(known.unwrap().count, Some(3));
    table.pass(500);
    assert_eq!(table.request(is_tally), None);
    table.head.counts = counts(4, table.head.hive_ms);
    table.pass(1_800);
    table.answer_heartbeat();
    assert_eq!(table.request(is_tally), None, "the queen has counted");
}

/// HV-30: before the first answer the divisor is the expected number, not one.
#[test]
fn hv_30_the_first_published_count_is_unknown() {
    let table = Table::new();
    let Some(Effect::Engaged(engaged)) = table.effects.first() else { panic!("{:?}", table.effects) };
    assert_eq!((engaged.count, engaged.divisor), (None, 16));
}

impl Table {
    /// The first request after a pause sends a heartbeat early; all requests are answered.
    pub fn ring(&mut self) {
        self.step(Input::Traffic(self.now));
        self.pass(300);
        self.answer_all();
    }

    pub fn answer_heartbeat_if_asked(&mut self) {
        if self.request(is_beat).is_some() {
            self.answer_heartbeat();
        }
    }

    pub fn answer_look_if_asked(&mut self) {
        if self.request(is_look).is_some() {
            self.answer_look();
        }
    }

    /// Answers all heartbeats and read requests until there are no more. Requests that change something are left to the
    /// test.
    pub fn answer_all(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..100 {
            let is_question = |(_, request): &(u64, Request)| is_beat(request) || is_view(request) || is_look(request);
            let found = self.in_flight.iter().find(|one| is_question(one) || one.1 == Request::Tally).cloned();
            let Some((_, request)) = found else { return effects };
            effects.extend(match request {
                Request::Beat { .. } => self.answer_heartbeat(),
                Request::View | Request::Events { .. } => self.answer_view(),
                Request::Look { .. } => self.answer_look(),
                _ => {
                    let counted =
                        Reply::Counted { hive_ms: 0, counts: counts(1, 0), published: false, removed: Vec::new() };
                    self.reply(|other| *other == Request::Tally, Ok(counted))
                }
            });
        }
        panic!("it never stops sending requests: {:?}", self.in_flight);
    }
}
