//! Which node leads, removes expired members, and hands over.

use super::*;
use crate::contract::{Counts, QUEEN};

fn standing() -> Table {
    Table::with(|config| config.stands = true)
}

fn queen(epoch: u64, holder: Option<u128>, expires_ms: u64) -> Option<Queen> {
    Some(Queen {
        epoch: Epoch(epoch),
        holder: holder.map(id),
        successor: None,
        since_ms: 0,
        node: holder.map(|n| watched(n, 7, expires_ms)),
    })
}

fn reigning() -> Table {
    let mut table = standing();
    table.join();
    table.answer_look();
    table.queen = queen(0, None, 0);
    table.pass(50);
    table.grant(is_take, 5);
    table.queen = queen(5, Some(ME), u64::MAX);
    table
}

fn is_count(request: &Request) -> bool {
    matches!(request, Request::Count { .. })
}

#[test]
fn hv_44_a_node_that_is_alone_becomes_queen() {
    let table = reigning();
    assert!(table.request(is_count).is_some(), "{:?}", table.in_flight);
    assert!(table.member.leases[QUEEN].term().is_some());
}

/// Traffic does not matter: a queen without requests stays queen.
#[test]
fn idle_queen_dethroned() {
    let mut table = reigning();
    for _ in 0..100 {
        answer_as_queen(&mut table);
        let effects = table.pass(1_000);
        assert!(!is_lost(&effects), "{effects:?}");
    }
}

/// Answers the queen's requests, and returns how often she has counted.
fn answer_as_queen(table: &mut Table) -> usize {
    let mut counted = 0;
    for _ in 0..20 {
        if let Some(Request::Count { every_ms, fence, .. }) = table.request(is_count) {
            assert_eq!((*every_ms, fence.epoch()), (5_000, Epoch(5)));
            let reply = Reply::Counted { hive_ms: 0, counts: Counts::default(), published: true, removed: Vec::new() };
            table.reply(is_count, Ok(reply));
            counted += 1;
        }
        table.answer_all();
    }
    counted
}

/// She counts with each of her heartbeats, and says how often to publish.
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

/// HV-72, HV-19: keys and events may come faster than one sweep a minute deletes them.
#[test]
fn hv_72_the_queen_sweeps_until_nothing_remains() {
    let mut table = reigning();
    let is_sweep = |request: &Request| matches!(request, Request::Sweep { rows_max: 1_000, .. });
    for (events, buckets) in [(0, 1_000), (1_000, 0), (7, 7)] {
        for _ in 0..10 {
            answer_as_queen(&mut table);
            table.pass(20);
        }
        assert_eq!(table.in_flight.iter().filter(|(_, request)| is_sweep(request)).count(), 1, "{:?}", table.in_flight);
        table.reply(is_sweep, Ok(Reply::Swept { events, buckets }));
        assert_eq!(table.request(is_sweep), None, "other writers get their turn");
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

/// Her fence is refused: she learns that she is not queen any more.
#[test]
fn paused_queen_overwrites_count() {
    let mut table = reigning();
    let effects = table.reply(is_count, Ok(Reply::Stale(vec![QUEEN.into()])));
    assert!(is_lost(&effects), "{effects:?}");
    assert!(table.request(is_look).is_some());
}

fn is_remove(request: &Request) -> bool {
    matches!(request, Request::Remove { .. })
}

/// The queen has sent her last heartbeat, and a reply shows that she has expired: this node requests her removal.
fn removing() -> Table {
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
        if let Some(Request::Remove { nodes }) = table.request(is_remove) {
            assert_eq!((nodes[0].node, nodes[0].beat, nodes[0].silent), (id(2), 7, false));
            assert!((4_700..4_760).contains(&millis), "at {millis}, after beats at {beats:?}");
            return table;
        }
        table.answer_all();
    }
    panic!("never removed; heartbeats at {beats:?}");
}

/// The other nodes wait until she expires, check once more, remove her and take over.
#[test]
fn hv_44_an_expired_queen_is_removed_and_succeeded() {
    let mut table = removing();
    table.reply(is_remove, Ok(Reply::Removed(vec![id(2)])));
    let Some(Request::Take { claims, .. }) = table.request(is_take) else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims[0].epoch, Epoch(3), "at once: the node has waited already");
}

/// HV-92: two nodes learn that she has expired, and the other is first to remove her. This node takes her lease soon,
/// not when its next heartbeat would be due.
#[test]
fn hv_92_a_node_that_is_second_to_remove_a_member_takes_its_leases_soon() {
    let mut table = removing();
    assert_eq!(table.request(is_beat), None);
    // Her row is still visible: the other node's removal is in flight.
    for _ in 0..2 {
        table.reply(is_remove, Ok(Reply::Removed(Vec::new())));
        table.pass(99);
        assert_eq!((table.request(is_remove), table.request(is_beat)), (None, None), "not again and again");
        table.pass(101);
        table.answer_heartbeat();
    }
    table.nodes.retain(|row| row.id != id(2));
    (table.queen, table.soonest) = (queen(3, None, 0), Vec::new());
    table.leases = vec![LeaseRow { free: true, ..row(QUEEN, 3, Some(2)) }];
    table.head.version += 1;
    table.reply(is_remove, Ok(Reply::Removed(Vec::new())));
    table.pass(200);
    table.answer_heartbeat();
    table.answer_view();
    table.pass(50);
    assert!(table.request(is_take).is_some(), "{:?}", table.in_flight);
    assert_eq!((table.request(is_remove), table.request(is_beat)), (None, None), "her row is gone");
}

/// A queen that sends heartbeats keeps her lease, even if no node does anything else.
#[test]
fn hv_44_the_lease_of_a_living_queen_is_not_taken() {
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
        assert!(table.request(|request| matches!(request, Request::Remove { .. } | Request::Take { .. })).is_none());
    }
}

#[test]
fn hv_44_candidates_try_one_after_the_other() {
    use crate::member::candidacy::candidate_wait;
    let soon = Duration::from_millis(33);
    let waits: Vec<u128> = (0..60).map(|rank| candidate_wait(rank, soon).as_millis()).collect();
    assert_eq!(waits[..5], [33, 33, 33, 150, 200]);
    assert_eq!(waits[59], 2_000);
    let in_first_second = waits.iter().filter(|wait| **wait < 500).count();
    assert!(in_first_second <= 10, "{in_first_second}");
}

/// HV-48: the first in order leads at once; other nodes take the duty only if it stays free.
#[test]
fn hv_48_a_duty_goes_to_the_first_candidate_in_order() {
    let both = |warm: bool| {
        let mut table = Table::new();
        let mut other = node(2);
        other.warm = if warm { vec![DUTY.into()] } else { Vec::new() };
        table.nodes.push(other);
        table.step(Input::Want(DUTY.into()));
        table.join();
        table.answer_look();
        table
    };
    assert!(both(false).request(is_take).is_some(), "there is no other candidate");
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
fn hv_45_a_hand_over_is_announced_and_the_lease_always_has_a_holder() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    let term = table.member.leases[DUTY].term().unwrap().clone();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    let names_successor =
        |request: &Request| matches!(request, Request::SetSuccessor { successor: Some(node), .. } if *node == id(2));
    table.reply(names_successor, Ok(Reply::Done));
    table.answer_look();
    assert!(table.pass(300).is_empty() && term.lives_at(table.now), "it works on until the successor is warm");
    table.leases[0].successor = Some(id(2));
    table.leases[0].successor_is_warm = true;
    let mut effects = Vec::new();
    for _ in 0..5 {
        if table.request(is_look).is_some() {
            effects.extend(table.answer_look());
        }
        effects.extend(table.pass(100));
    }
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    assert!(term.lives_at(table.now) && table.request(is_transfer).is_none(), "not before the work has ended");
    table.step(Input::Left(HeldLease { lease: DUTY.into(), epoch: Epoch(4) }));
    assert!(term.lives_at(table.now) && table.request(is_transfer).is_none(), "a late message about an earlier term");
    table.step(Input::Left(HeldLease { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(!term.lives_at(table.now));
    let Some(Request::HandOver { successor, claims, .. }) = table.request(is_transfer) else {
        panic!("{:?}", table.in_flight)
    };
    assert_eq!((*successor, claims[0].epoch), (id(2), Epoch(5)));
    let given = vec![HeldLease { lease: DUTY.into(), epoch: Epoch(9) }];
    let effects = table.reply(is_transfer, Ok(Reply::Taken(given)));
    assert!(effects.is_empty() && table.request(is_take).is_none(), "{effects:?}");
}

/// A late message about a term does not end the next term, if a new epoch was minted meanwhile.
#[test]
fn hv_13_a_late_left_message_ends_only_its_own_term() {
    let mut table = ending();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.grant(is_mint, 9);
    let term = table.member.leases[DUTY].term().unwrap().clone();
    let effects = table.step(Input::Left(HeldLease { lease: DUTY.into(), epoch: Epoch(5) }));
    assert!(effects.is_empty() && term.lives_at(table.now) && term.epoch() == Epoch(9), "{effects:?}");
    assert!(table.request(is_mint).is_none() && table.request(is_transfer).is_none(), "{:?}", table.in_flight);
}

/// Work that does not end in time loses its lease.
#[test]
fn slow_batch_starves_heartbeat() {
    let mut table = ending();
    let mut effects = Vec::new();
    for _ in 0..60 {
        table.answer_all();
        effects.extend(table.pass(100));
    }
    assert!(is_lost(&effects), "{effects:?}");
    assert!(table.request(is_transfer).is_some());
}

/// A member whose work under the duty should end.
fn ending() -> Table {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    table.leases[0].successor = Some(id(2));
    table.leases[0].successor_is_warm = true;
    let names_successor = |request: &Request| matches!(request, Request::SetSuccessor { .. });
    table.reply(names_successor, Ok(Reply::Done));
    let effects = table.answer_look();
    assert!(matches!(&effects[..], [Effect::Leave { .. }]), "{effects:?}");
    table
}

/// HV-45: a successor that does not get warm is cleared: otherwise it would read the row for ever.
#[test]
fn hv_45_a_successor_that_does_not_get_warm_is_cleared() {
    let mut table = Table::holding();
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    table.step(Input::HandOver { lease: DUTY.into(), to: Some(id(2)) });
    let names = |node: Option<NodeId>| {
        let named = move |successor: &Option<NodeId>| *successor == node;
        move |request: &Request| matches!(request, Request::SetSuccessor { successor, .. } if named(successor))
    };
    table.reply(names(Some(id(2))), Ok(Reply::Done));
    table.leases[0].successor = Some(id(2));
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
    assert!(table.member.leases[DUTY].term().is_some(), "and the work continues here");
    for _ in 0..100 {
        table.answer_all();
        table.pass(100);
        assert_eq!(
            table.request(|request| matches!(request, Request::SetSuccessor { .. })),
            None,
            "the request counts once"
        );
    }
}

/// HV-45: a hand-over request that no node can fulfil is dropped; it does not take effect hours later.
#[test]
fn hv_45_a_hand_over_request_without_a_possible_successor_is_dropped() {
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
    // A node that could take the duty, but that is not first in order.
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
        assert_eq!(table.request(|request| matches!(request, Request::SetSuccessor { .. })), None);
    }
}

/// HV-45: a successor reports that it is warm, reads the row often, and mints as soon as the row names it as holder.
#[test]
fn hv_45_a_successor_reads_the_row_until_it_holds_the_lease() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    table.answer_all();
    table.successor_of = vec![DUTY.into()];
    table.pass(2_200);
    table.answer_heartbeat();
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert_eq!(state.warm, [Name::from(DUTY)], "reported at once");
    let mut looks = 0;
    for _ in 0..50 {
        if table.request(is_look).is_some() {
            looks += 1;
        }
        table.answer_all();
        table.pass(20);
    }
    assert!(looks >= 40, "{looks} in a second");
    table.successor_of.clear();
    table.leases = vec![row(DUTY, 9, Some(ME))];
    table.pass(20);
    table.answer_look();
    assert!(is_granted(&table.grant(is_mint, 10)));
}

/// HV-21: a draining node takes no new leases and transfers the ones it holds.
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
    let Some(Request::Beat { state, .. }) = table.request(is_beat) else { panic!("{:?}", table.in_flight) };
    assert!(!state.eligible && state.ready, "HV-17: eligible first, ready only after the last request");
    let Some(Request::SetSuccessor { successor, .. }) =
        table.request(|request| matches!(request, Request::SetSuccessor { .. }))
    else {
        panic!("{:?}", table.in_flight)
    };
    assert_eq!(*successor, Some(id(2)));
}

/// HV-39: on one machine a kernel lock shows whether a node is dead, and is probed twice a second.
#[test]
fn hv_39_on_one_machine_the_holders_lock_is_watched() {
    let mut table = Table::with(|config| config.one_machine = true);
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    let is_remove = |request: &Request| matches!(request, Request::Remove { nodes } if nodes[0].node == id(2));
    let mut probes = 0;
    for _ in 0..20 {
        if table.request(is_remove).is_some() {
            probes += 1;
            table.reply(is_remove, Ok(Reply::Removed(Vec::new())));
        }
        table.answer_all();
        table.pass(100);
    }
    assert!((3..=5).contains(&probes), "{probes} in two seconds");
    while table.request(is_remove).is_none() {
        table.answer_all();
        table.pass(100);
    }
    table.reply(is_remove, Ok(Reply::Removed(vec![id(2)])));
    assert!(table.request(is_take).is_some(), "at once");
}

/// HV-39: while a probe is in flight, the node waits for it instead of waking every millisecond.
#[test]
fn hv_39_a_probe_in_flight_does_not_keep_the_thread_awake() {
    let mut table = Table::with(|config| config.one_machine = true);
    table.nodes.push(node(2));
    table.leases.push(row(DUTY, 4, Some(2)));
    table.step(Input::Want(DUTY.into()));
    table.join();
    assert!(table.request(|request| matches!(request, Request::Remove { .. })).is_some(), "{:?}", table.in_flight);
    let (until, mut wakes) = (table.now.after(Duration::from_millis(1_900)), 0);
    while table.now < until {
        table.answer_all();
        let wait = table.member.wake_at().since(table.now);
        table.pass(u64::try_from(wait.as_millis()).unwrap().max(1));
        wakes += 1;
    }
    assert!(wakes < 20, "{wakes} in two seconds");
}

/// HV-47: a node that sits out does not report the duty as warm, so that no node hands it back.
#[test]
fn hv_47_a_duty_that_was_given_up_is_not_reported_as_warm() {
    let mut table = Table::holding();
    table.step(Input::SitOut { lease: DUTY.into(), wait: Duration::from_secs(30) });
    let warm = |table: &Table| match table.request(is_beat) {
        Some(Request::Beat { state, .. }) => state.warm.clone(),
        _ => panic!("{:?}", table.in_flight),
    };
    assert_eq!(warm(&table), Vec::<Name>::new(), "reported at once");
    table.reply(is_release, Ok(Reply::Released(vec![DUTY.into()])));
    table.successor_of = vec![DUTY.into()];
    for _ in 0..25 {
        table.answer_all();
        table.pass(1_000);
    }
    table.answer_heartbeat_if_asked();
    table.pass(2_200);
    assert_eq!(warm(&table), Vec::<Name>::new(), "not even as a successor");
    for _ in 0..5 {
        table.answer_all();
        table.pass(1_000);
    }
    table.answer_heartbeat_if_asked();
    table.pass(2_200);
    assert_eq!(warm(&table), [Name::from(DUTY)]);
}

/// HV-47: a duty that the node gets all the same, by a hand-over or by an answer in flight, is released.
#[test]
fn hv_47_a_duty_handed_to_a_node_that_sits_out_is_released() {
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
    assert!(table.request(is_release).is_some(), "{:?}", table.in_flight);

    let mut table = Table::holding();
    table.step(Input::Mint { lease: DUTY.into(), floor: Epoch(0) });
    table.step(sit_out());
    let effects = table.grant(is_mint, 6);
    assert!(!is_granted(&effects), "{effects:?}");
    assert!(table.request(is_release).is_some(), "{:?}", table.in_flight);
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
