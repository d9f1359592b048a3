//! Who leads, who buries, who hands over.

use super::*;
use crate::contract::{Counts, QUEEN};

fn standing() -> Table {
    Table::with(|config| config.stands = true)
}

fn queen(epoch: u64, holder: Option<u128>, expires_ms: u64) -> Option<Queen> {
    Some(Queen {
        epoch: Epoch(epoch),
        holder: holder.map(id),
        heir: None,
        since_ms: 0,
        node: holder.map(|n| watched(n, 7, expires_ms)),
    })
}

fn reigning() -> Table {
    let mut table = standing();
    table.join();
    table.looked();
    table.queen = queen(0, None, 0);
    table.pass(50);
    table.granted(is_take, 5);
    table.queen = queen(5, Some(ME), u64::MAX);
    table
}

fn is_count(request: &Request) -> bool {
    matches!(request, Request::Count { .. })
}

#[test]
fn hv_44_with_nobody_else_the_first_is_queen() {
    let table = reigning();
    assert!(table.request(is_count).is_some(), "{:?}", table.asked);
    assert!(table.member.leases[QUEEN].term().is_some());
}

/// Traffic has nothing to do with it: a queen that nobody asks anything stays queen.
#[test]
fn idle_queen_dethroned() {
    let mut table = reigning();
    for _ in 0..100 {
        answer_as_queen(&mut table);
        let effects = table.pass(1_000);
        assert!(!is_lost(&effects), "{effects:?}");
    }
}

/// How often she has counted.
fn answer_as_queen(table: &mut Table) -> usize {
    let mut counted = 0;
    for _ in 0..20 {
        if let Some(Request::Count { every_ms, fence, .. }) = table.request(is_count) {
            assert_eq!((*every_ms, fence.epoch()), (5_000, Epoch(5)));
            let reply = Reply::Counted { hive_ms: 0, counts: Counts::default(), published: true, buried: Vec::new() };
            table.reply(is_count, Ok(reply));
            counted += 1;
        }
        table.answer_all();
    }
    counted
}

/// She counts with each of her beats and says how often to publish.
#[test]
fn count_65s_late() {
    let mut table = reigning();
    answer_as_queen(&mut table);
    let mut counts = 0;
    for _ in 0..100 {
        table.pass(100);
        counts += answer_as_queen(&mut table);
    }
    assert!((4..=6).contains(&counts), "{counts} in ten seconds");
}

/// HV-72, HV-19: keys and events may come faster than a sweep a minute takes away.
#[test]
fn hv_72_the_queen_sweeps_until_nothing_is_left() {
    let mut table = reigning();
    let is_sweep = |request: &Request| matches!(request, Request::Sweep { rows_max: 1_000, .. });
    for (events, buckets) in [(0, 1_000), (1_000, 0), (7, 7)] {
        for _ in 0..10 {
            answer_as_queen(&mut table);
            table.pass(20);
        }
        assert_eq!(table.asked.iter().filter(|(_, request)| is_sweep(request)).count(), 1, "{:?}", table.asked);
        table.reply(is_sweep, Ok(Reply::Swept { events, buckets }));
        assert_eq!(table.request(is_sweep), None, "others want to write too");
    }
    for _ in 0..58 {
        answer_as_queen(&mut table);
        table.pass(1_000);
        assert_eq!(table.request(is_sweep), None);
    }
    for _ in 0..3 {
        answer_as_queen(&mut table);
        table.pass(1_000);
    }
    assert!(table.request(is_sweep).is_some(), "and again after a minute");
}

/// Her fence is refused: she knows that she is none any more.
#[test]
fn paused_queen_overwrites_count() {
    let mut table = reigning();
    let effects = table.reply(is_count, Ok(Reply::Stale(vec![QUEEN.into()])));
    assert!(is_lost(&effects), "{effects:?}");
    assert!(table.request(is_look).is_some());
}

fn is_bury(request: &Request) -> bool {
    matches!(request, Request::Bury { .. })
}

/// A queen has beaten for the last time, and a beat of ours says that she is dead: her burial is asked for.
fn burying() -> Table {
    let mut table = standing();
    table.nodes.push(node(2));
    let expires_ms = table.head.hive_ms + 5_000;
    table.leases.push(row(QUEEN, 3, Some(2)));
    table.soonest = vec![watched(2, 6, expires_ms - 1_000)];
    table.join();
    table.queen = queen(3, Some(2), expires_ms);
    table.soonest = vec![watched(2, 7, expires_ms)];
    table.ring();
    let mut beats = Vec::new();
    for millis in 0..6_000 {
        table.pass(1);
        if table.request(is_beat).is_some() {
            beats.push(millis);
        }
        if let Some(Request::Bury { nodes }) = table.request(is_bury) {
            assert_eq!((nodes[0].node, nodes[0].beat, nodes[0].silent), (id(2), 7, false));
            assert!((4_700..4_760).contains(&millis), "at {millis}, after beats at {beats:?}");
            return table;
        }
        table.answer_all();
    }
    panic!("never buried; beats at {beats:?}");
}

/// The others wait for her end, look once more, bury her and take over.
#[test]
fn hv_44_a_dead_queen_is_buried_and_followed() {
    let mut table = burying();
    table.reply(is_bury, Ok(Reply::Buried(vec![id(2)])));
    let Some(Request::Take { claims, .. }) = table.request(is_take) else { panic!("{:?}", table.asked) };
    assert_eq!(claims[0].epoch, Epoch(3), "at once: it was waited for already");
}

/// HV-92: both were told that she is dead, and another was the first to bury her. What she had is to be taken soon, not when
/// the next beat would be due.
#[test]
fn hv_92_who_comes_second_to_a_burial_asks_soon_what_is_left() {
    let mut table = burying();
    assert_eq!(table.request(is_beat), None);
    // Her row is still there for whoever looks: the other's burial is under way.
    for _ in 0..2 {
        table.reply(is_bury, Ok(Reply::Buried(Vec::new())));
        table.pass(99);
        assert_eq!((table.request(is_bury), table.request(is_beat)), (None, None), "not again and again");
        table.pass(101);
        table.beaten();
    }
    table.nodes.retain(|row| row.id != id(2));
    (table.queen, table.soonest) = (queen(3, None, 0), Vec::new());
    table.leases = vec![LeaseRow { free: true, ..row(QUEEN, 3, Some(2)) }];
    table.head.version += 1;
    table.reply(is_bury, Ok(Reply::Buried(Vec::new())));
    table.pass(200);
    table.beaten();
    table.seen();
    table.pass(50);
    assert!(table.request(is_take).is_some(), "{:?}", table.asked);
    assert_eq!((table.request(is_bury), table.request(is_beat)), (None, None), "she is not there any more");
}

/// A queen that beats is left alone, however long nobody else does anything.
#[test]
fn hv_44_a_living_queen_is_not_taken_from() {
    let mut table = standing();
    table.nodes.push(node(2));
    table.leases.push(row(QUEEN, 3, Some(2)));
    table.join();
    for second in 0..60 {
        let expires_ms = table.head.hive_ms + 5_000;
        table.queen = queen(3, Some(2), expires_ms);
        table.soonest = vec![watched(2, 7 + second, expires_ms)];
        table.queen.as_mut().unwrap().node = Some(watched(2, 7 + second, expires_ms));
        table.answer_all();
        table.pass(1_000);
        assert!(table.request(|request| matches!(request, Request::Bury { .. } | Request::Take { .. })).is_none());
    }
}

#[test]
fn hv_44_candidates_try_one_after_the_other() {
    use crate::member::place::candidate_wait;
    let soon = Duration::from_millis(33);
    let waits: Vec<u128> = (0..60).map(|rank| candidate_wait(rank, soon).as_millis()).collect();
    assert_eq!(waits[..5], [33, 33, 33, 150, 200]);
    assert_eq!(waits[59], 2_000);
    let in_first_second = waits.iter().filter(|wait| **wait < 500).count();
    assert!(in_first_second <= 10, "{in_first_second}");
}

/// HV-48: whoever is first in order leads at once; others only what is left lying.
#[test]
fn hv_48_a_duty_goes_to_the_first_in_order_among_those_who_want_it() {
    let both = |warm: bool| {
        let mut table = Table::new();
        let mut other = node(2);
        other.warm = if warm { vec![DUTY.into()] } else { Vec::new() };
        table.nodes.push(other);
        table.step(Input::Want(DUTY.into()));
        table.join();
        table.looked();
        table
    };
    assert!(both(false).request(is_take).is_some(), "nobody else wants it");
    let order = crate::placement::order(
        &[1, 2].map(|n| crate::placement::Candidate {
            id: id(n),
            name: format!("node-{n}").into(),
            weight: 1,
            pinned: Vec::new(),
        }),
        DUTY,
    );
    let mut table = both(true);
    if order[0] == id(ME) {
        assert!(table.request(is_take).is_some());
    } else {
        assert_eq!(table.request(is_take), None);
        for _ in 0..50 {
            table.answer_all();
            table.pass(100);
        }
        assert!(table.request(is_take).is_some(), "still free after two heartbeats");
    }
}

/// HV-45: announced, warm, left, and only then handed over.
#[test]
fn hv_45_a_hand_over_is_announced_and_never_vacant() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    let is_heir = |request: &Request| matches!(request, Request::SetHeir { heir: Some(heir), .. } if *heir == id(2));
    table.reply(is_heir, Ok(Reply::Done));
    table.looked();
    assert!(table.pass(300).is_empty() && term.lives_at(table.now), "it works on until the heir is warm");
    table.leases[0].heir = Some(id(2));
    table.leases[0].heir_is_warm = true;
    let mut effects = Vec::new();
    for _ in 0..5 {
        if table.request(is_look).is_some() {
            effects.extend(table.looked());
        }
        effects.extend(table.pass(100));
    }
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    assert!(term.lives_at(table.now) && table.request(is_give).is_none(), "not before it has been left");
    table.step(Input::Left(Held { lease: DUTY.into(), epoch: Epoch(4) }));
    assert!(term.lives_at(table.now) && table.request(is_give).is_none(), "said late, of a term before");
    table.step(Input::Left(Held { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(!term.lives_at(table.now));
    let Some(Request::HandOver { heir, claims, .. }) = table.request(is_give) else { panic!("{:?}", table.asked) };
    assert_eq!((*heir, claims[0].epoch), (id(2), Epoch(5)));
    let given = vec![Held { lease: DUTY.into(), epoch: Epoch(9) }];
    let effects = table.reply(is_give, Ok(Reply::Taken(given)));
    assert!(effects.is_empty() && table.request(is_take).is_none(), "{effects:?}");
}

/// A word that comes late, of a term that was minted anew meanwhile, does not end the new one.
#[test]
fn hv_13_what_was_left_late_is_left_of_its_own_term_alone() {
    let mut table = ending();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.granted(is_mint, 9);
    let term = table.member.leases[DUTY].term().unwrap().clone();
    let effects = table.step(Input::Left(Held { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(effects.is_empty() && term.lives_at(table.now) && term.epoch() == Epoch(9), "{effects:?}");
    assert!(table.request(is_mint).is_none() && table.request(is_give).is_none(), "{:?}", table.asked);
}

/// Whoever does not come to an end in time is told that it has lost it.
#[test]
fn slow_batch_starves_heartbeat() {
    let mut table = ending();
    let mut effects = Vec::new();
    for _ in 0..60 {
        table.answer_all();
        effects.extend(table.pass(100));
    }
    assert!(is_lost(&effects), "{effects:?}");
    assert!(table.request(is_give).is_some());
}

/// The duty is to be left.
fn ending() -> Table {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    table.leases[0].heir = Some(id(2));
    table.leases[0].heir_is_warm = true;
    let is_heir = |request: &Request| matches!(request, Request::SetHeir { .. });
    table.reply(is_heir, Ok(Reply::Done));
    let effects = table.looked();
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    table
}

/// HV-45: an heir that does not get warm is told that it is none: it would look for ever.
#[test]
fn hv_45_an_heir_that_does_not_get_warm_is_named_no_longer() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    let names = |heir: Option<NodeId>| move |request: &Request| matches!(request, Request::SetHeir { heir: named, .. } if *named == heir);
    table.reply(names(Some(id(2))), Ok(Reply::Done));
    table.leases[0].heir = Some(id(2));
    for _ in 0..48 {
        table.answer_all();
        table.pass(100);
        assert_eq!(table.request(names(None)), None, "it may take its time");
    }
    for _ in 0..4 {
        table.answer_all();
        table.pass(100);
    }
    table.reply(names(None), Ok(Reply::Done));
    assert!(table.member.leases[DUTY].term().is_some(), "and the work goes on here");
    for _ in 0..100 {
        table.answer_all();
        table.pass(100);
        assert_eq!(table.request(|request| matches!(request, Request::SetHeir { .. })), None, "asked for once");
    }
}

/// HV-45: a wish that nobody can fulfil is not carried out hours later, when it has been forgotten.
#[test]
fn hv_45_a_hand_over_to_nobody_is_not_asked_for_any_more() {
    let mut table = Table::holding();
    table.step(Input::HandOver { lease: DUTY.into(), to: None });
    let mut notices = 0;
    for _ in 0..200 {
        table.answer_all();
        let effects = table.pass(100);
        notices +=
            effects.iter().filter(|effect| matches!(effect, Effect::Notice { code: "not-handed-over", .. })).count();
    }
    assert_eq!(notices, 1);
    // Somebody who would have been asked, and to whom it does not belong by itself.
    let named = |n: u128, name: &str| crate::placement::Candidate {
        id: id(n),
        name: name.into(),
        weight: 1,
        pinned: Vec::new(),
    };
    let is_second = |name: &String| crate::placement::order(&[named(ME, "node-1"), named(2, name)], DUTY)[0] == id(ME);
    let name = (0..).map(|n| format!("later-{n}")).find(is_second).unwrap();
    table.nodes.push(NodeRow { name, warm: vec![DUTY.into()], ..node(2) });
    table.head.version += 1;
    for _ in 0..50 {
        table.answer_all();
        table.pass(100);
        assert_eq!(table.request(|request| matches!(request, Request::SetHeir { .. })), None);
    }
}

/// HV-45: an heir says that it is warm, looks often, and mints as soon as the row is its own.
#[test]
fn hv_45_an_heir_looks_until_it_holds() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_all();
    table.heir_of = vec![DUTY.into()];
    table.pass(2_200);
    table.beaten();
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert_eq!(state.warm, [Name::from(DUTY)], "said at once");
    let mut looks = 0;
    for _ in 0..50 {
        if table.request(is_look).is_some() {
            looks += 1;
        }
        table.answer_all();
        table.pass(20);
    }
    assert!(looks >= 40, "{looks} in a second");
    table.heir_of.clear();
    table.leases = vec![row(DUTY, 9, Some(ME))];
    table.pass(20);
    table.looked();
    assert!(is_granted(&table.granted(is_mint, 10)));
}

/// HV-21: whoever drains leads nothing new and gives away what it has.
#[test]
fn no_word_on_exit() {
    let mut table = Table::holding();
    let mut other = node(2);
    other.warm = vec![DUTY.into()];
    table.nodes.push(other);
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::Drain);
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.asked) };
    assert!(!state.eligible && state.ready, "HV-17: eligible first, ready only after the last request");
    let Some(Request::SetHeir { heir, .. }) = table.request(|request| matches!(request, Request::SetHeir { .. }))
    else {
        panic!("{:?}", table.asked)
    };
    assert_eq!(*heir, Some(id(2)));
}

/// HV-39: on one machine a lock says who is dead, and it is asked twice a second.
#[test]
fn hv_39_on_one_machine_the_holders_lock_is_watched() {
    let mut table = Table::with(|config| config.one_machine = true);
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    let is_bury = |request: &Request| matches!(request, Request::Bury { nodes } if nodes[0].node == id(2));
    let mut probes = 0;
    for _ in 0..20 {
        if table.request(is_bury).is_some() {
            probes += 1;
            table.reply(is_bury, Ok(Reply::Buried(Vec::new())));
        }
        table.answer_all();
        table.pass(100);
    }
    assert!((3..=5).contains(&probes), "{probes} in two seconds");
    while table.request(is_bury).is_none() {
        table.answer_all();
        table.pass(100);
    }
    table.reply(is_bury, Ok(Reply::Buried(vec![id(2)])));
    assert!(table.request(is_take).is_some(), "at once");
}

/// HV-39: a lock that is being tried is waited for, not asked about every millisecond.
#[test]
fn hv_39_an_open_question_about_a_lock_does_not_keep_the_thread_awake() {
    let mut table = Table::with(|config| config.one_machine = true);
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    assert!(table.request(|request| matches!(request, Request::Bury { .. })).is_some(), "{:?}", table.asked);
    let (until, mut wakes) = (table.now.after(Duration::from_millis(1_900)), 0);
    while table.now < until {
        table.answer_all();
        let wait = table.member.wake_at().since(table.now);
        table.pass(u64::try_from(wait.as_millis()).unwrap().max(1));
        wakes += 1;
    }
    assert!(wakes < 20, "{wakes} in two seconds");
}

/// HV-47: whoever sits out says that it is not warm, so that nobody hands it back.
#[test]
fn hv_47_a_duty_that_was_given_up_is_not_said_to_be_warm() {
    let mut table = Table::holding();
    table.step(Input::SitOut { lease: DUTY.into(), wait: Duration::from_secs(30) });
    let warm = |table: &Table| match table.request(is_beat) {
        Some(Request::Beat { state, .. }) => state.warm.clone(),
        _ => panic!("{:?}", table.asked),
    };
    assert_eq!(warm(&table), Vec::<Name>::new(), "said at once");
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    table.heir_of = vec![DUTY.into()];
    for _ in 0..25 {
        table.answer_all();
        table.pass(1_000);
    }
    table.beaten_if_asked();
    table.pass(2_200);
    assert_eq!(warm(&table), Vec::<Name>::new(), "not even as an heir");
    for _ in 0..5 {
        table.answer_all();
        table.pass(1_000);
    }
    table.beaten_if_asked();
    table.pass(2_200);
    assert_eq!(warm(&table), [Name::from(DUTY)]);
}

/// HV-47: what comes to us all the same, by another hand or by an answer under way, is given back.
#[test]
fn hv_47_what_is_handed_to_one_who_sits_out_is_released() {
    let sit_out = || Input::SitOut { lease: DUTY.into(), wait: Duration::from_secs(30) };
    let mut table = Table::holding();
    table.step(sit_out());
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    table.leases = vec![row(DUTY, 9, Some(ME))];
    for _ in 0..5 {
        table.answer_all();
        table.pass(500);
    }
    assert_eq!(table.request(is_mint), None);
    assert!(table.request(is_release).is_some(), "{:?}", table.asked);

    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.step(sit_out());
    let effects = table.granted(is_mint, 6);
    assert!(!is_granted(&effects), "{effects:?}");
    assert!(table.request(is_release).is_some(), "{:?}", table.asked);
}

#[test]
fn hv_47_a_duty_that_was_given_up_is_left_to_others_for_a_while() {
    let mut table = Table::holding();
    table.step(Input::SitOut { lease: DUTY.into(), wait: Duration::from_secs(30) });
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    table.leases = vec![row(DUTY, 5, None)];
    for _ in 0..28 {
        table.answer_all();
        table.pass(1_000);
        assert_eq!(table.request(is_take), None);
    }
    for _ in 0..4 {
        table.answer_all();
        table.pass(1_000);
    }
    assert!(table.request(is_take).is_some());
}
