//! Membership, trust, pulse, lineage.

use super::*;
use crate::contract::{Refusal, State};

#[test]
fn hv_9_nothing_is_taken_before_the_join_is_answered() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    assert!(matches!(&table.asked[..], [(_, Request::Join { .. })]), "{:?}", table.asked);
    table.pass(1_900);
    assert_eq!(table.asked.len(), 1);
}

/// HV-9: whether a row was made is unknown; it stays nobody's.
#[test]
fn hv_9_an_unanswered_join_is_given_up_under_that_identity() {
    let mut table = Table::new();
    assert_eq!(table.pass(2_000), [Effect::Identify]);
    table.asked.clear();
    table.pass(1_000);
    assert!(table.asked.is_empty(), "not without an identity");
    table.step(Input::Identity(id(2)));
    assert!(matches!(&table.asked[..], [(_, Request::Join { node, .. })] if *node == id(2)), "{:?}", table.asked);
    let known = Ok(Reply::Refused(Refusal::Known));
    let effects = table.reply(|request| matches!(request, Request::Join { .. }), known);
    assert_eq!(effects, [Effect::Identify]);
}

#[test]
fn hv_9_joined_it_is_neither_ready_nor_eligible_before_its_first_beat() {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    let status = table.status();
    table.reply(|request| matches!(request, Request::Join { .. }), Ok(Reply::Joined(Box::new(status))));
    let Some(Request::Beat { state, read_only: false, .. }) = table.request(is_beat) else { panic!("no beat") };
    assert!(state.ready && state.eligible, "said at once");
    table.looked();
    table.pass(1_000);
    assert_eq!(table.request(is_take), None, "found free, and not taken before that is answered");
    table.beaten();
    table.seen();
    assert!(table.request(is_take).is_some(), "{:?}", table.asked);
}

/// HV-17: whoever has to look first is not ready before it has; what it says then is told at once, and stays said.
#[test]
fn hv_17_a_node_that_has_to_look_first_is_not_ready_in_its_first_beat() {
    let mut table = Table::with(|config| config.ready = false);
    let status = table.status();
    let joined = |request: &Request| matches!(request, Request::Join { .. });
    table.reply(joined, Ok(Reply::Joined(Box::new(status.clone()))));
    let ready = |table: &Table| match table.request(is_beat) {
        Some(Request::Beat { state, .. }) => Some(state.ready),
        _ => None,
    };
    assert_eq!(ready(&table), Some(false));
    table.beaten();
    table.step(Input::Ready(true));
    assert_eq!(ready(&table), Some(true), "not with the next one");
    table.reply(is_beat, Ok(Reply::Beat(Box::new(Status { member: false, ..status.clone() }))));
    table.step(Input::Identity(id(2)));
    table.pass(1_000);
    table.reply(joined, Ok(Reply::Joined(Box::new(status))));
    assert_eq!(ready(&table), Some(true), "buried and come back, it is as ready as it was");
}

#[test]
fn hv_12_trust_counts_from_the_start_of_the_beat_not_from_its_answer() {
    let mut table = Table::holding();
    table.pass(2_200);
    let sent_at = table.now;
    table.pass(1_500);
    table.effects.clear();
    table.beaten();
    assert!(table.effects.contains(&Effect::Trust(sent_at.after(Duration::from_millis(4_800)))), "{:?}", table.effects);
}

#[test]
fn hv_12_past_its_trust_every_term_is_dead_without_asking_anyone() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    assert!(!is_lost(&table.pass(4_700)) && term.lives_at(table.now));
    assert!(is_lost(&table.pass(100)) && !term.lives_at(table.now));
}

/// The answer that comes late revives nothing: the lease goes on only under a new epoch.
#[test]
fn late_beat_revives_dead_term() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.pass(2_200);
    table.pass(1_500);
    // Sent in time, answered in time, and still: trust of the one before it has run out by now.
    table.now = table.now.after(Duration::from_millis(1_200));
    let effects = table.beaten();
    assert!(is_lost(&effects) && !is_granted(&effects), "{effects:?}");
    assert!(!term.lives_at(table.now));
    assert_eq!(table.request(is_mint), None, "not before it has asked and renewed");
    table.pass(500);
    table.reply(
        |request| matches!(request, Request::Beat { read_only: true, .. }),
        Ok(Reply::Beat(Box::new(Status { renewed: false, ..table.status() }))),
    );
    assert_eq!(table.request(is_mint), None);
    table.beaten();
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.asked) };
    assert_eq!(claims[0].epoch, Epoch(5));
    assert!(is_granted(&table.granted(is_mint, 9)));
    assert!(!term.lives_at(table.now), "the old one stays dead");
}

/// Whoever works under it looks at a clock of its own: a term that it has found dead is dead, though the beat that would
/// have kept it alive is answered in the same moment. A lease with a dead term would be held for ever, and not worked on.
#[test]
fn hv_13_a_term_that_was_found_dead_is_minted_anew() {
    let mut table = Table::holding();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.pass(2_200);
    assert!(!term.lives_at(table.now.after(Duration::from_secs(5))), "looked at a moment too late");
    let effects = table.beaten();
    assert!(is_lost(&effects), "{effects:?}");
    let Some(Request::HandOver { claims, .. }) = table.request(is_mint) else { panic!("{:?}", table.asked) };
    assert_eq!(claims[0].epoch, Epoch(5));
    assert!(is_granted(&table.granted(is_mint, 9)));
    assert!(!term.lives_at(table.now));
}

#[test]
fn hv_10_a_deaf_node_asks_without_renewing() {
    let mut table = Table::holding();
    for _ in 0..20 {
        table.pass(700);
    }
    let last = table.asked.iter().rev().find(|(_, request)| is_beat(request));
    assert!(matches!(last, Some((_, Request::Beat { read_only: true, .. }))), "{last:?}");
    let sent_after_trust = table.asked.iter().skip(3).any(|(_, request)| is_writing_beat(request));
    assert!(!sent_after_trust, "a node that cannot hear would hold its leases for ever: {:?}", table.asked);
}

#[test]
fn hv_10_a_failed_beat_is_tried_again_soon() {
    let mut table = Table::holding();
    table.pass(2_200);
    table.reply(is_beat, broken());
    assert_eq!(table.request(is_beat), None);
    table.pass(500);
    assert!(table.request(is_writing_beat).is_some());
}

#[test]
fn hv_10_an_unanswered_beat_is_given_up_after_a_third_of_the_time_to_live() {
    let mut table = Table::holding();
    table.pass(2_200);
    let (late, _) = table.asked.remove(0);
    table.pass(2_000);
    table.pass(500);
    assert!(table.request(is_beat).is_some(), "another one is under way");
    table.effects.clear();
    let result = Ok(Reply::Beat(Box::new(table.status())));
    table.step(Input::Answer { call: late, result });
    assert!(!table.effects.iter().any(|effect| matches!(effect, Effect::Trust(_))), "what comes late is not heard");
}

/// A node that comes back after its burial is somebody else.
#[test]
fn old_identity_after_restart() {
    let mut table = Table::holding();
    table.pass(2_200);
    let buried = Status { member: false, ..table.status() };
    let effects = table.reply(is_beat, Ok(Reply::Beat(Box::new(buried))));
    assert!(is_lost(&effects) && effects.ends_with(&[Effect::Buried, Effect::Identify]), "{effects:?}");
    assert_eq!(table.member.node(), None);
    table.step(Input::Identity(id(2)));
    table.pass(500);
    let Some((_, Request::Join { node, .. })) = table.asked.last() else { panic!("{:?}", table.asked) };
    assert_eq!(*node, id(2));
}

/// HV-16
#[test]
fn hv_16_a_node_whose_runtime_stands_still_gives_up_its_leases_and_beats_on() {
    let mut table = Table::with(|config| config.pulsed = true);
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.granted(is_take, 5);
    for _ in 0..10 {
        table.pass(500);
        table.step(Input::Pulse);
        if table.request(is_beat).is_some() {
            table.beaten();
        }
    }
    assert!(table.member.leases[DUTY].term().is_some());
    let mut lost = false;
    for _ in 0..4 {
        lost |= is_lost(&table.pass(750));
    }
    assert!(lost, "no pulse for half the time to live");
    assert!(table.request(is_release).is_some(), "{:?}", table.asked);
    while table.request(is_beat).is_some_and(|request| matches!(request, Request::Beat { state, .. } if state.eligible))
    {
        table.beaten();
        table.pass(2_300);
    }
    let Some(Request::Beat { state: State { ready, eligible, .. }, .. }) = table.request(is_beat) else {
        panic!("{:?}", table.asked)
    };
    assert!(!ready && !eligible);
    let mut stuck = false;
    for _ in 0..60 {
        stuck |= table.pass(600).contains(&Effect::Stuck);
        if table.request(is_beat).is_some() {
            table.beaten();
        }
    }
    assert!(stuck, "half a minute without a pulse");
    table.step(Input::Pulse);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert!(state.ready && state.eligible, "alive again");
}

/// HV-16: a process that was suspended was asleep, not stuck.
#[test]
fn hv_16_a_suspended_process_is_not_stuck() {
    let mut table = Table::with(|config| config.pulsed = true);
    table.join();
    table.pass(100);
    table.beaten_if_asked();
    let effects = table.pass(4_000);
    assert!(!table.member.pulse.is_deaf() && !effects.contains(&Effect::Stuck));
}

#[test]
fn hv_23_another_store_ends_all_terms_and_is_recorded() {
    let mut table = Table::holding();
    table.pass(2_200);
    table.head.server = "new".into();
    let effects = table.beaten();
    assert!(is_lost(&effects), "{effects:?}");
    let recorded = Request::NewLineage { was: Some("s".into()), found: "new".into() };
    table.reply(|request| *request == recorded, Ok(Reply::Done));
    assert_eq!(table.request(is_mint), None);
    (table.head.lineage, table.head.lineage_ms) = (Some("new".into()), table.head.hive_ms);
    table.beaten();
    table.looked();
    assert_eq!(table.request(is_mint), None, "what was held under the old one has not ended");
    for _ in 0..7 {
        table.pass(1_000);
        table.beaten_if_asked();
        table.looked_if_asked();
    }
    let Some(Request::HandOver { mint, .. }) = table.request(is_mint) else { panic!("{:?}", table.asked) };
    assert_eq!(&*mint.lineage, "new");
}

/// A take is under way when the store is replaced: what the one before answers holds nothing in the new one.
fn takes_from_the_store_before() -> bool {
    let mut table = Table::new();
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.looked();
    table.pass(2_200);
    table.head.server = "new".into();
    table.beaten();
    is_granted(&table.granted(is_take, 5))
}

#[test]
fn hv_23_an_answer_of_the_store_before_grants_nothing() {
    assert!(!takes_from_the_store_before());
}

/// HV-86: seeds hardly ever lead there.
#[cfg(feature = "planted")]
#[test]
fn hv_86_an_answer_of_the_store_before_that_counts_is_found() {
    crate::planted::plant(Some("answers of another store"));
    let found = takes_from_the_store_before();
    crate::planted::plant(None);
    assert!(found);
}

#[test]
fn hv_23_a_store_that_went_back_ends_all_terms_and_is_told() {
    let (table, effects) = gone_back();
    assert!(is_lost(&effects), "{effects:?}");
    let Some(Request::Behind { version, .. }) = table.request(|request| matches!(request, Request::Behind { .. }))
    else {
        panic!("{:?}", table.asked)
    };
    assert_eq!(*version, 30);
}

fn is_behind(request: &Request) -> bool {
    matches!(request, Request::Behind { .. })
}

/// Whoever holds a lease has just found that its store shows an older state; and what it does then.
fn gone_back() -> (Table, Vec<Effect>) {
    let mut table = Table::holding();
    table.head.version = 30;
    table.pass(2_200);
    table.beaten();
    table.pass(2_200);
    table.head.version = 20;
    let effects = table.beaten();
    (table, effects)
}

/// HV-23: whoever finds it must not have got its leases again by the time that the store holds everybody.
#[test]
fn hv_23_nothing_is_minted_before_the_store_has_heard_that_it_went_back() {
    let (mut table, _) = gone_back();
    assert_eq!(table.request(is_mint), None);
    table.reply(is_behind, broken());
    table.pass(600);
    assert_eq!(table.request(is_mint), None, "it has not heard it");
    table.beaten();
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
    assert!(minted, "{:?}", table.asked);
}

/// HV-23: what was said was lost, and meanwhile others have made the store newer than it was.
#[test]
fn hv_23_a_doubt_that_the_store_has_not_heard_of_is_told_again() {
    let (mut table, _) = gone_back();
    table.reply(is_behind, broken());
    table.head.version = 31;
    table.pass(600);
    table.beaten();
    assert!(table.request(is_behind).is_some(), "{:?}", table.asked);
}

/// HV-23: the same for a mint that was under way when it was found.
#[test]
fn hv_23_what_is_won_of_a_store_in_doubt_is_not_acted_under() {
    let mut table = Table::holding();
    table.head.version = 30;
    table.pass(2_200);
    table.beaten();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.pass(2_200);
    table.head.version = 20;
    assert!(is_lost(&table.beaten()));
    let effects = table.granted(is_mint, 9);
    assert!(!is_granted(&effects), "{effects:?}");
}

#[test]
fn hv_21_leaving_releases_what_is_held_and_then_deletes_the_row() {
    let mut table = Table::holding();
    table.step(Input::Leave);
    assert_eq!(table.request(|request| matches!(request, Request::Leave { .. })), None);
    let released = Ok(Reply::Released(vec![DUTY.into()]));
    table.reply(|request| matches!(request, Request::Release { held, .. } if held[0].epoch.0 == 5), released);
    let effects = table.reply(|request| matches!(request, Request::Leave { .. }), Ok(Reply::Done));
    assert_eq!(effects, [Effect::Left]);
}

/// HV-21: burial covers the rest.
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

/// HV-21: a store that stumbles over the last question is asked again; the row stays for nobody to wait for.
#[test]
fn hv_21_a_goodbye_that_was_not_heard_is_said_again() {
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

/// The same where others are: nobody is waited for whom the store would have to tell.
#[test]
fn hv_21_without_the_store_no_heir_is_waited_for() {
    let mut table = leaving_among_others();
    let mut effects = Vec::new();
    for _ in 0..6 {
        effects.extend(table.pass(1_000));
    }
    assert!(is_lost(&effects) && effects.last() == Some(&Effect::Left), "{effects:?}");
}

/// HV-45: it leads until an heir is warm, hands over to it, and only then deletes its row.
#[test]
fn hv_21_whoever_leaves_hands_over_first() {
    let mut table = leaving_among_others();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.beaten();
    table.reply(|request| matches!(request, Request::SetHeir { heir: Some(_), .. }), Ok(Reply::Done));
    table.looked();
    table.pass(1_000);
    assert!(term.lives_at(table.now) && table.request(is_release).is_none(), "{:?}", table.asked);
    (table.leases[0].heir, table.leases[0].heir_is_warm) = (Some(id(2)), true);
    let effects = table.looked();
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    table.step(Input::Left(Held { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(table.request(is_leave).is_none(), "not before it was handed over");
    let given = vec![Held { lease: DUTY.into(), epoch: Epoch(9) }];
    table.reply(is_give, Ok(Reply::Taken(given)));
    assert!(table.request(is_release).is_none());
    assert_eq!(table.reply(is_leave, Ok(Reply::Done)), [Effect::Left]);
}

#[test]
fn hv_21_an_heir_that_stays_cold_is_waited_for_five_seconds() {
    let mut table = leaving_among_others();
    table.pass(50);
    table.reply(|request| matches!(request, Request::SetHeir { heir: Some(_), .. }), Ok(Reply::Done));
    for _ in 0..49 {
        table.answer_all();
        table.pass(100);
        assert!(table.request(is_release).is_none() && table.request(is_leave).is_none(), "{:?}", table.asked);
    }
    table.answer_all();
    table.pass(60);
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    assert_eq!(table.reply(is_leave, Ok(Reply::Done)), [Effect::Left]);
}

/// It was to leave, and others have seen to that: there is nothing to come back for.
#[test]
fn hv_21_whoever_is_buried_while_it_leaves_is_gone() {
    let mut table = leaving_among_others();
    let status = Status { member: false, ..table.status() };
    let effects = table.reply(is_beat, Ok(Reply::Beat(Box::new(status))));
    assert_eq!(effects.last(), Some(&Effect::Left), "{effects:?}");
    assert!(!effects.contains(&Effect::Identify), "{effects:?}");
}

/// Told to leave, while it leads a duty that another wants too.
fn leaving_among_others() -> Table {
    let mut table = Table::holding();
    table.nodes.push(NodeRow { warm: vec![DUTY.into()], ..node(2) });
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::Leave);
    assert!(table.request(is_beat).is_some() && table.request(is_leave).is_none(), "{:?}", table.asked);
    table
}

fn is_leave(request: &Request) -> bool {
    matches!(request, Request::Leave { .. })
}

/// What rings brings a beat forward and does nothing else; without it the next beat tells the same.
#[test]
fn hv_24_a_bell_is_only_an_early_beat() {
    let [mut rung, mut unrung] = [(); 2].map(|()| {
        let mut table = Table::new();
        table.join();
        table.answer_all();
        table.pass(1_000);
        table
    });
    let at = rung.now;
    assert_eq!(rung.step(Input::Traffic(at)), []);
    assert!(matches!(&rung.asked[..], [(_, Request::Beat { state, .. })] if state.engaged_age_ms == Some(0)));
    // As if the bell had not been heard: the mark is found with the next beat.
    unrung.member.traffic = Some(at);
    assert_eq!(unrung.asked, []);
    unrung.pass(1_200);
    assert!(matches!(&unrung.asked[..], [(_, Request::Beat { state, .. })] if state.engaged_age_ms == Some(1_200)));
    let [after_the_bell, after_none] = [&mut rung, &mut unrung].map(|table| {
        let effects = table.beaten();
        let asked: Vec<Request> = table.asked.iter().map(|(_, request)| request.clone()).collect();
        (effects, asked)
    });
    assert_eq!(after_the_bell, after_none, "nothing else has changed");
    for table in [&mut rung, &mut unrung] {
        table.answer_all();
        assert_eq!((table.asked.len(), table.member.traffic_told), (0, Some(at)));
    }
}

/// The first after a pause is told at once, later ones ride along: one beat more, and no other question.
#[test]
fn write_per_request() {
    let mut table = Table::new();
    table.join();
    table.answer_all();
    table.pass(1_000);
    assert_eq!(table.asked, []);
    table.step(Input::Traffic(table.now));
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.engaged_age_ms, Some(0));
    table.answer_all();
    for _ in 0..100 {
        table.pass(10);
        table.step(Input::Traffic(table.now));
    }
    assert_eq!(table.asked, [], "a hundred requests, nothing asked");
    table.pass(1_300);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.engaged_age_ms, Some(1_300), "HV-27: the age of the last one");
    table.answer_all();
    for _ in 0..20 {
        table.pass(1_600);
        table.answer_all();
    }
    table.pass(2_200);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.engaged_age_ms, None, "half a minute after the last request");
}

/// HV-7: a shorter life of traffic is told as so much of it gone; stores count all alike.
#[test]
fn hv_27_traffic_counts_for_as_long_as_is_configured() {
    let mut table = Table::with(|config| config.engaged_ttl = Duration::from_secs(10));
    table.join();
    table.answer_all();
    table.pass(1_000);
    table.step(Input::Traffic(table.now));
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.engaged_age_ms, Some(20_000), "ten of thirty seconds are left");
    table.answer_all();
    for _ in 0..6 {
        table.pass(1_600);
        table.answer_all();
    }
    table.pass(2_200);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.engaged_age_ms, None);
}

#[test]
fn hv_29_who_hears_of_no_count_counts_for_itself_once_per_beat() {
    let mut table = Table::new();
    table.join();
    let is_tally = |request: &Request| *request == Request::Tally;
    let tallied = Reply::Counted { hive_ms: 0, counts: counts(3, 0), published: false, buried: Vec::new() };
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
    table.beaten();
    assert_eq!(table.request(is_tally), None, "the queen has counted");
}

/// HV-30: before the first answer the divisor is what was expected, not one.
#[test]
fn hv_30_the_first_word_is_that_nothing_is_known() {
    let table = Table::new();
    let Some(Effect::Engaged(engaged)) = table.effects.first() else { panic!("{:?}", table.effects) };
    assert_eq!((engaged.count, engaged.divisor), (None, 16));
}

impl Table {
    /// The first request after a pause brings a beat forward; all is answered.
    pub fn ring(&mut self) {
        self.step(Input::Traffic(self.now));
        self.pass(300);
        self.answer_all();
    }

    pub fn beaten_if_asked(&mut self) {
        if self.request(is_beat).is_some() {
            self.beaten();
        }
    }

    pub fn looked_if_asked(&mut self) {
        if self.request(is_look).is_some() {
            self.looked();
        }
    }

    /// Whatever only asks is answered, until nothing more is; what changes something is left to the test.
    pub fn answer_all(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..100 {
            let is_question = |(_, request): &(u64, Request)| is_beat(request) || is_view(request) || is_look(request);
            let found = self.asked.iter().find(|one| is_question(one) || one.1 == Request::Tally).cloned();
            let Some((_, request)) = found else { return effects };
            effects.extend(match request {
                Request::Beat { .. } => self.beaten(),
                Request::View | Request::Events { .. } => self.seen(),
                Request::Look { .. } => self.looked(),
                _ => {
                    let counted =
                        Reply::Counted { hive_ms: 0, counts: counts(1, 0), published: false, buried: Vec::new() };
                    self.reply(|other| *other == Request::Tally, Ok(counted))
                }
            });
        }
        panic!("it never stops asking: {:?}", self.asked);
    }
}
