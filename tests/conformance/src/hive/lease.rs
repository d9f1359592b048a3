//! Which member holds a lease, and under which epoch.

use futures_util::future::join_all;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{Claim, EventKind, Refusal, State},
};

use super::{
    RACERS, TTL_MS, TestContext,
    test_member::{epoch_of, fresh_id},
};

const LEASE: &str = "shard/conformance/0";

pub async fn hv_5_look_creates_missing_leases(t: &TestContext<'_>) {
    let member = t.member().await;
    let version = member.version().await;
    let names: Vec<Name> = ["b", "a", "b"].map(Name::from).to_vec();
    for _ in 0..2 {
        let Reply::Leases { hive_ms, leases } = member.call(Request::Look { leases: names.clone() }).await else {
            panic!("no leases")
        };
        assert!(hive_ms > 0);
        assert_eq!(
            leases.iter().map(|lease| lease.name.clone()).collect::<Vec<_>>(),
            names,
            "in the order of the request"
        );
        assert!(leases.iter().all(|lease| lease.epoch == Epoch(0) && lease.holder.is_none() && lease.free));
    }
    assert_eq!(member.view().await.leases.len(), 2);
    assert_eq!(member.version().await, version, "no event");
    let seen_leases =
        join_all(t.members(RACERS).await.iter().map(|member| member.look("raced")).collect::<Vec<_>>()).await;
    assert!(seen_leases.iter().all(|lease| lease.epoch == Epoch(0) && lease.free));
}

pub async fn hv_5_a_lease_outlives_its_holder(t: &TestContext<'_>) {
    let (member, remover) = (t.member().await, t.member().await);
    let epoch = member.take(LEASE).await;
    assert!(remover.removes(member.id, 1, true).await);
    let lease = remover.look(LEASE).await;
    assert_eq!((lease.epoch, lease.free), (epoch, true), "the lease's row stays, although its holder's row is gone");
    assert!(remover.take(LEASE).await > epoch);
}

pub async fn hv_33_epochs_only_grow(t: &TestContext<'_>) {
    let member = t.member().await;
    let mut last = Epoch(0);
    for round in 0..5 {
        let epoch = member.take(LEASE).await;
        assert!(epoch > last);
        let row = member.look(LEASE).await;
        assert_eq!((row.epoch, row.holder, row.free, &*row.cause), (epoch, Some(member.id), false, "free"));
        if round == 0 {
            let hive_ms = member.view().await.head.hive_ms;
            assert!(epoch.0 <= hive_ms && epoch.0 + 60_000 > hive_ms, "hive time: {epoch:?} at {hive_ms}");
        }
        assert!(member.release(LEASE, epoch).await);
        let row = member.look(LEASE).await;
        assert_eq!((row.epoch, row.holder, row.free), (epoch, None, true), "the epoch outlives its holder");
        last = epoch;
    }
    // Epochs grow even if the store's clock goes back.
    if t.step_clock(-3_600_000).await {
        member.beat().await;
        assert!(member.take(LEASE).await > last);
    }
}

pub async fn hv_33_an_epoch_is_above_its_floor(t: &TestContext<'_>) {
    let member = t.member().await;
    let first = member.take(LEASE).await;
    let floor = Epoch(first.0 + 1_000_000_000);
    member.release(LEASE, first).await;
    let claims = vec![Claim { floor, ..Claim::new(LEASE.into(), first) }];
    let take = Request::Take { node: member.id, claims, cause: "sink ahead".into(), mint: member.mint() };
    let taken = epoch_of(&member.call(take).await);
    assert_eq!(taken, Epoch(floor.0 + 1));
    let floor = Epoch(taken.0 + 7);
    let claims = vec![Claim { floor, ..Claim::new(LEASE.into(), taken) }];
    let mint_again =
        Request::HandOver { node: member.id, successor: member.id, claims, cause: "again".into(), mint: member.mint() };
    assert_eq!(epoch_of(&member.call(mint_again).await), Epoch(floor.0 + 1));
}

pub async fn hv_33_an_epoch_beyond_its_limit_is_refused(t: &TestContext<'_>) {
    let member = t.member().await;
    let before = member.look(LEASE).await;
    member.look("other").await;
    let version = member.version().await;
    let claims = vec![
        Claim::new("other".into(), Epoch(0)),
        Claim { floor: Epoch::MAX, ..Claim::new(LEASE.into(), before.epoch) },
    ];
    let take = Request::Take { node: member.id, claims, cause: "x".into(), mint: member.mint() };
    let failure = member.hive.call(take).await.expect_err("2^40 is the limit");
    assert_eq!(failure.code, "epoch-too-large");
    assert_eq!(member.look(LEASE).await, before);
    assert!(member.look("other").await.free, "no lease was taken");
    assert_eq!(member.version().await, version);
}

pub async fn hv_34_take_compares_the_epoch_seen(t: &TestContext<'_>) {
    let member = t.member().await;
    let first = member.take(LEASE).await;
    member.release(LEASE, first).await;
    let before = member.look(LEASE).await;
    for seen in [Epoch(0), Epoch(first.0 - 1), Epoch(first.0 + 1)] {
        assert_eq!(member.call(member.claim(LEASE, seen)).await, Reply::Refused(Refusal::Raced), "{seen:?}");
    }
    assert_eq!(member.call(member.claim("never looked at", Epoch(0))).await, Reply::Refused(Refusal::Raced));
    assert_eq!(member.look(LEASE).await, before);
}

pub async fn hv_34_a_held_lease_is_not_free(t: &TestContext<'_>) {
    let (member, taker) = (t.member().await, t.member().await);
    let epoch = member.take(LEASE).await;
    for taker in [&member, &taker] {
        assert_eq!(taker.call(taker.claim(LEASE, epoch)).await, Reply::Refused(Refusal::Raced));
    }
    let lease = member.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(member.id), false));
}

/// All members have seen the lease free before the first one takes it.
pub async fn two_queens_by_check_then_set(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    for _ in 0..5 {
        let seen_leases = join_all(members.iter().map(|member| member.look("queen"))).await;
        assert!(seen_leases.iter().all(|lease| lease.free));
        let takes =
            members.iter().zip(&seen_leases).map(|(member, lease)| member.call(member.claim("queen", lease.epoch)));
        let replies = join_all(takes).await;
        let won: Vec<usize> = (0..RACERS).filter(|n| matches!(replies[*n], Reply::Taken(_))).collect();
        let [winner] = won[..] else { panic!("{replies:?}") };
        let refused = replies.iter().filter(|reply| **reply == Reply::Refused(Refusal::Raced)).count();
        assert_eq!(refused, RACERS - 1, "{replies:?}");
        let epoch = epoch_of(&replies[winner]);
        assert_eq!(members[0].look("queen").await.holder, Some(members[winner].id));
        assert!(members[winner].release("queen", epoch).await);
    }
}

/// The winner holds the lease until it releases it, however many members try meanwhile.
pub async fn take_robs_live_holder_by_old_snapshot(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    let start = members[0].version().await;
    members[0].look(LEASE).await;
    let won: usize = join_all(members.iter().map(|member| async move {
        let mut won = 0;
        for _ in 0..30 {
            let lease = member.look(LEASE).await;
            // The holder tries, too: the others may have seen its epoch.
            let Reply::Taken(taken) = member.call(member.claim(LEASE, lease.epoch)).await else { continue };
            won += 1;
            let row = member.look(LEASE).await;
            assert_eq!((row.epoch, row.holder), (taken[0].epoch, Some(member.id)), "another member took it");
            assert!(member.release(LEASE, taken[0].epoch).await, "another member took it");
        }
        won
    }))
    .await
    .into_iter()
    .sum();
    assert!(won > 0);
    let events = members[0].events(start).await.events;
    let mut holder = None;
    for event in events {
        match (event.kind, holder) {
            (EventKind::Taken, None) => holder = event.node,
            (EventKind::Released, Some(_)) if event.node == holder => holder = None,
            _ => panic!("{event:?} while held by {holder:?}"),
        }
    }
}

pub async fn same_name_two_leaders(t: &TestContext<'_>) {
    let (one, two) = (t.newcomer("leader").await, t.newcomer("leader").await);
    one.beat().await;
    two.beat().await;
    let epoch = one.take("queen").await;
    assert_eq!(two.call(two.claim("queen", epoch)).await, Reply::Refused(Refusal::Raced));
    assert_eq!(two.look("queen").await.holder, Some(one.id));
}

/// No operation of a node on its own lease works for another node of the same name.
pub async fn renew_matches_name_only(t: &TestContext<'_>) {
    let (one, two) = (t.newcomer("leader").await, t.newcomer("leader").await);
    one.beat().await;
    two.beat().await;
    let epoch = one.take("queen").await;
    assert_eq!(two.call(two.transfer_request("queen", epoch, two.id)).await, Reply::Refused(Refusal::Raced));
    assert!(!two.release("queen", epoch).await);
    let lease = two.look("queen").await;
    assert_eq!((lease.epoch, lease.holder), (epoch, Some(one.id)));
}

/// No traffic is no reason to lose the lease.
pub async fn idle_queen_dethroned(t: &TestContext<'_>) {
    let (queen, member) = (t.member().await, t.member().await);
    let epoch = queen.take("queen").await;
    queen.beat_with(State { eligible: true, ..State::default() }).await;
    member.beat_with(State { engaged_age_ms: Some(0), ready: true, eligible: true, ..State::default() }).await;
    let lease = member.look("queen").await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(queen.id), false));
    assert_eq!(member.call(member.claim("queen", epoch)).await, Reply::Refused(Refusal::Raced));
}

pub async fn hv_9_an_ineligible_node_takes_no_lease(t: &TestContext<'_>) {
    let member = t.newcomer("new").await;
    let seen = member.look(LEASE).await.epoch;
    assert_eq!(member.call(member.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    let outsider = super::TestMember { hive: t.open().await, id: fresh_id(), lineage: member.lineage.clone() };
    assert_eq!(outsider.call(outsider.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    member.beat().await;
    member.beat_with(State { ready: true, ..State::default() }).await;
    assert_eq!(member.call(member.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit), "draining");
    assert!(member.look(LEASE).await.free);
}

pub async fn hv_34_an_expired_node_takes_no_lease(t: &TestContext<'_>) {
    let member = t.member().await;
    let seen = member.look(LEASE).await.epoch;
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    assert_eq!(member.call(member.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    member.beat().await;
    member.take(LEASE).await;
}

pub async fn hv_35_only_the_holder_releases(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    let epoch = member.take(LEASE).await;
    assert!(!other.release(LEASE, epoch).await);
    assert!(!member.release(LEASE, Epoch(epoch.0 - 1)).await);
    assert!(!member.release(LEASE, Epoch(epoch.0 + 1)).await);
    let version = member.version().await;
    assert!(member.release(LEASE, epoch).await);
    assert!(!member.release(LEASE, epoch).await, "once");
    assert_eq!(member.version().await, version + 1);
}

pub async fn hv_55_many_leases_are_taken_in_one_request(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    let names: Vec<Name> = (0..64).map(|n| format!("shard/many/{n}").into()).collect();
    let Reply::Leases { leases, .. } = member.call(Request::Look { leases: names.clone() }).await else {
        panic!("no leases")
    };
    let held = other.take("shard/many/7").await;
    let version = member.version().await;
    let claims: Vec<Claim> = leases.iter().map(|lease| Claim::new(lease.name.clone(), lease.epoch)).collect();
    let take = Request::Take { node: member.id, claims, cause: "start".into(), mint: member.mint() };
    let Reply::Taken(taken) = member.call(take.clone()).await else { panic!("none taken") };
    assert_eq!(taken.len(), 63, "each lease is taken by itself");
    assert!(taken.iter().all(|held| &*held.lease != "shard/many/7" && held.epoch > Epoch(0)));
    assert_eq!(member.events(version).await.events.len(), 63, "one version for each");
    let lease = member.look("shard/many/7").await;
    assert_eq!((lease.epoch, lease.holder), (held, Some(other.id)));
    assert_eq!(member.call(take).await, Reply::Refused(Refusal::Raced), "no lease is free");
    let held = taken.clone();
    let Reply::Released(released) = member.call(Request::Release { node: member.id, held, cause: "x".into() }).await
    else {
        panic!("not released")
    };
    assert_eq!(released.len(), 63);
}
