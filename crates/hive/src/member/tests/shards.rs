//! Shards: taken together, handed over one by one.

use super::*;

fn shard(n: u32) -> Name {
    traits::shard_lease("shop", n)
}

fn shards(count: u32) -> Input {
    Input::Shards { source: "shop".into(), count, pinned_only: false }
}

/// A member that holds all shards.
fn owner(count: u32) -> Table {
    let mut table = Table::new();
    table.step(shards(count));
    table.join();
    table.answer_look();
    table.grant(is_take, 5);
    table.answer_all();
    table
}

#[test]
fn hv_55_a_first_start_takes_all_in_one_request() {
    let mut table = Table::new();
    table.step(shards(64));
    table.join();
    table.answer_look();
    let takes: Vec<&Request> = table.in_flight.iter().map(|(_, request)| request).filter(|r| is_take(r)).collect();
    assert!(matches!(&takes[..], [Request::Take { claims, .. }] if claims.len() == 64), "{takes:?}");
    assert_eq!(table.grant(is_take, 5).iter().filter(|effect| matches!(effect, Effect::Granted(_))).count(), 64);
}

#[test]
fn hv_52_a_node_configured_for_another_number_of_shards_ends() {
    let mut table = Table::new();
    table.leases = (0..4).map(|n| row(&shard(n), 3, None)).collect();
    table.step(shards(8));
    let status = table.status();
    table.reply(|request| matches!(request, Request::Join { .. }), Ok(Reply::Joined(Box::new(status))));
    table.answer_heartbeat();
    let effects = table.answer_view();
    let [Effect::Refused(failure)] = &effects[..] else { panic!("{effects:?}") };
    assert!(failure.code == "shard-count" && failure.message.contains("shards = 4"), "{failure}");
}

/// HV-52: two nodes find no shards, both create theirs, and the one with fewer learns of the others later.
#[test]
fn hv_52_if_two_nodes_create_shards_at_once_the_one_with_fewer_ends() {
    let mut table = owner(4);
    table.nodes.push(node(2));
    table.leases.extend((4..8).map(|n| row(&shard(n), 6, Some(2))));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_heartbeat();
    let effects = table.answer_view();
    let refused = effects.iter().find_map(|effect| match effect {
        Effect::Refused(failure) => Some(failure),
        _ => None,
    });
    assert!(refused.is_some_and(|f| f.code == "shard-count" && f.message.contains("shards = 8")), "{effects:?}");
    assert!(is_lost(&effects), "its shards cover only a part of the rows: {effects:?}");
}

/// A new node gets its shards one after the other, while all other shards keep working.
#[test]
fn rebalance_stops_the_world() {
    let mut table = owner(8);
    table.nodes.push(node(2));
    table.head.version += 1;
    table.pass(2_200);
    table.answer_all();
    let mut left = Vec::new();
    let mut given = 0;
    let began_at = table.now;
    while given < 4 {
        for lease in announced_leases(&mut table) {
            let row = table.leases.iter_mut().find(|row| row.name == lease).unwrap();
            (row.successor, row.successor_is_warm) = (Some(id(2)), true);
            let same =
                |request: &Request| matches!(request, Request::SetSuccessor { fence, .. } if *fence.lease() == lease);
            left.extend(table.reply(same, Ok(Reply::Done)));
        }
        if table.request(is_look).is_some() {
            left.extend(table.answer_look());
        }
        assert!(left.len() <= 1, "one at a time: {left:?}");
        if let Some(Effect::Leave { held, .. }) = left.pop() {
            let lease = held.lease.clone();
            let live = table.member.leases.values().filter(|lease| lease.term().is_some()).count();
            assert_eq!(live, 8 - given, "the others keep working, and this one too");
            table.step(Input::Left(held));
            table.leases.iter_mut().filter(|row| row.name == lease).for_each(|row| {
                (row.epoch, row.holder, row.successor, row.successor_is_warm) = (Epoch(9), Some(id(2)), None, false);
            });
            let taken = vec![HeldLease { lease: lease.clone(), epoch: Epoch(9) }];
            left.extend(table.reply(is_transfer, Ok(Reply::Taken(taken))));
            given += 1;
        }
        table.answer_all();
        left.extend(table.pass(20));
        assert!(table.now.since(began_at) < Duration::from_secs(20), "{given} given");
    }
    assert!(table.now.since(began_at) >= Duration::from_millis(600), "five a second at most");
    for _ in 0..100 {
        table.answer_all();
        assert!(table.pass(100).is_empty() && announced_leases(&mut table).is_empty(), "each has its half");
    }
}

/// HV-23: a store that has lost everything counts its versions from the start. Versions known before, higher or lower,
/// must neither hide the current rows nor prevent a shard from being moved.
#[test]
fn hv_23_versions_of_another_history_say_nothing() {
    for version in [3, 30, 60] {
        let mut table = owner(2);
        table.head.version = 30;
        table.pass(2_200);
        table.answer_all();
        table.member.leases.values_mut().for_each(|lease| lease.moved_at_version = 30);
        (table.head.origin, table.head.version) = (Some(Uuid::from_u128(8)), version);
        table.nodes.push(node(2));
        table.pass(2_200);
        table.answer_heartbeat();
        assert_eq!(table.request(is_view), Some(&Request::View), "the whole view is read again");
        table.answer_all();
        table.grant(is_mint, 9);
        let began_at = table.now;
        while announced_leases(&mut table).is_empty() {
            table.answer_all();
            table.pass(100);
            assert!(table.now.since(began_at) < Duration::from_secs(20), "nothing is moved at version {version}");
        }
        assert_eq!(announced_leases(&mut table).len(), 1, "one of two");
    }
}

fn announced_leases(table: &mut Table) -> Vec<Name> {
    let named = table.in_flight.iter().filter_map(|(_, request)| match request {
        Request::SetSuccessor { fence, .. } => Some(fence.lease().clone()),
        _ => None,
    });
    named.collect()
}

/// HV-54, HV-56
#[test]
fn hv_54_a_free_shard_placed_on_another_node_is_taken_only_if_it_stays_free() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.step(shards(8));
    table.join();
    table.answer_look();
    let Some(Request::Take { claims, .. }) = table.request(is_take).cloned() else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims.len(), 4, "our half, at once");
    table.grant(is_take, 5);
    table.answer_all();
    let began_at = table.now;
    while table.request(is_take).is_none() {
        table.answer_all();
        table.pass(50);
    }
    let waited = table.now.since(began_at);
    assert!((3_900..6_000).contains(&waited.as_millis()), "{waited:?}: two heartbeats");
    let Some(Request::Take { claims, .. }) = table.request(is_take) else { panic!("{:?}", table.in_flight) };
    assert_eq!(claims.len(), 4, "nothing stays without an owner");
}

/// HV-56: only the dead node's shards stop, and a node that would get them checks as soon as the other can have
/// expired.
#[test]
fn hv_56_a_node_that_gets_the_shards_learns_soon_that_their_holder_expired() {
    let mut table = Table::new();
    table.nodes.push(node(2));
    table.leases = (0..8).map(|n| row(&shard(n), 3, Some(if n < 4 { ME } else { 2 }))).collect();
    let expires_ms = table.head.hive_ms + 5_000;
    table.step(shards(8));
    table.soonest = vec![watched(2, 6, expires_ms - 1_000)];
    table.join();
    table.grant(is_mint, 9);
    table.soonest = vec![watched(2, 7, expires_ms)];
    table.ring();
    let is_remove = |request: &Request| matches!(request, Request::Remove { .. });
    for millis in 0..6_000 {
        table.answer_all();
        table.pass(1);
        if table.request(is_remove).is_some() {
            assert!((4_700..4_800).contains(&millis), "{millis}");
            table.reply(is_remove, Ok(Reply::Removed(vec![id(2)])));
            let Some(Request::Take { claims, .. }) = table.request(is_take) else { panic!("{:?}", table.in_flight) };
            assert_eq!(claims.len(), 4, "all of them, at once");
            return;
        }
    }
    panic!("never removed");
}

/// HV-57: with `pinned_only`, pinned shards without their node wait, and the node reports it.
#[test]
fn one_missing_static_owner_stops_all() {
    let mut table = Table::new();
    table.nodes[0].meta = r#"{"pin": {"shop": "0-3"}}"#.to_owned();
    let mut pinned = node(2);
    pinned.meta = r#"{"pin": {"shop": "4-7"}}"#.to_owned();
    table.nodes.push(pinned);
    table.step(Input::Shards { source: "shop".into(), count: 8, pinned_only: true });
    table.join();
    table.answer_look();
    let Some(Request::Take { claims, .. }) = table.request(is_take).cloned() else { panic!("{:?}", table.in_flight) };
    let taken: Vec<Name> = claims.into_iter().map(|claim| claim.lease).collect();
    assert_eq!(taken, (0..4).map(shard).collect::<Vec<_>>());
    table.grant(is_take, 5);
    table.nodes.pop();
    table.head.version += 1;
    let mut reported = Vec::new();
    for _ in 0..20 {
        reported.extend(notices(&table.answer_all(), "shards-wait"));
        reported.extend(notices(&table.pass(1_000), "shards-wait"));
        assert!(table.request(is_take).is_none(), "they wait");
    }
    let terms = table.member.leases.values().filter(|lease| lease.term().is_some()).count();
    assert_eq!(terms, 4, "the shards of this node keep working");
    assert_eq!(reported, ["4 shards of source shop wait for a node that is pinned to them"], "once");
}

/// HV-57: the lease decides, and each of the two pinned nodes reports it, whether it holds the shard or not.
#[test]
fn hv_57_two_nodes_pinned_to_one_shard_both_report_it() {
    for holder in [ME, 2] {
        let mut table = Table::new();
        table.nodes[0].meta = r#"{"pin": {"shop": "0-2"}}"#.to_owned();
        let mut other = node(2);
        other.meta = r#"{"pin": {"shop": "2-3"}}"#.to_owned();
        table.nodes.push(other);
        table.leases = (0..4).map(|n| row(&shard(n), 3, Some(if n == 2 { holder } else { 2 }))).collect();
        table.step(shards(4));
        let status = table.status();
        table.reply(|request| matches!(request, Request::Join { .. }), Ok(Reply::Joined(Box::new(status))));
        table.answer_heartbeat();
        let mut reported = notices(&table.answer_view(), "pinned-twice");
        for _ in 0..5 {
            table.head.version += 1;
            reported.extend(notices(&table.answer_all(), "pinned-twice"));
            reported.extend(notices(&table.pass(1_000), "pinned-twice"));
            let robs =
                |r: &Request| matches!(r, Request::Take { claims, .. } if claims.iter().any(|c| c.lease == shard(2)));
            assert!(table.request(robs).is_none(), "the lease decides");
        }
        let [reported] = &reported[..] else { panic!("once, not {reported:?}") };
        assert!(
            reported.contains("shard/shop/2") && reported.contains("node-2") && !reported.contains("shard/shop/3"),
            "{reported}"
        );
        // When the conflict is over, nothing more is reported.
        table.nodes[1].meta = r#"{"pin": {"shop": "3"}}"#.to_owned();
        table.head.version += 1;
        table.pass(2_200);
        assert!(notices(&table.answer_all(), "pinned-twice").is_empty());
    }
}

/// The messages of the notices with this code.
fn notices(effects: &[Effect], code: &str) -> Vec<String> {
    let reported = effects.iter().filter_map(|effect| match effect {
        Effect::Notice { code: given, message } if *given == code => Some(message.clone()),
        _ => None,
    });
    reported.collect()
}
