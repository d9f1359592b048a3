//! Who holds a lease, and under which epoch.

use futures_util::future::join_all;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{Claim, EventKind, Refusal, State},
};

use super::{
    RACERS, TTL_MS, Table,
    bee::{epoch_of, fresh_id},
};

const LEASE: &str = "shard/conformance/0";

pub async fn hv_5_look_makes_what_is_missing(t: &Table<'_>) {
    let bee = t.bee().await;
    let version = bee.version().await;
    let names: Vec<Name> = ["b", "a", "b"].map(Name::from).to_vec();
    for _ in 0..2 {
        let Reply::Leases { hive_ms, leases } = bee.call(Request::Look { leases: names.clone() }).await else {
            panic!("no leases")
        };
        assert!(hive_ms > 0);
        assert_eq!(leases.iter().map(|lease| lease.name.clone()).collect::<Vec<_>>(), names, "in the order asked");
        assert!(leases.iter().all(|lease| lease.epoch == Epoch(0) && lease.holder.is_none() && lease.free));
    }
    assert_eq!(bee.view().await.leases.len(), 2);
    assert_eq!(bee.version().await, version, "no event");
    let looked = join_all(t.bees(RACERS).await.iter().map(|bee| bee.look("raced")).collect::<Vec<_>>()).await;
    assert!(looked.iter().all(|lease| lease.epoch == Epoch(0) && lease.free));
}

pub async fn hv_5_a_lease_outlives_its_holder(t: &Table<'_>) {
    let (bee, burier) = (t.bee().await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    assert!(burier.buries(bee.id, 1, true).await);
    let lease = burier.look(LEASE).await;
    assert_eq!((lease.epoch, lease.free), (epoch, true), "the row stays: its holder has none");
    assert!(burier.take(LEASE).await > epoch);
}

pub async fn hv_33_epochs_only_grow(t: &Table<'_>) {
    let bee = t.bee().await;
    let mut last = Epoch(0);
    for round in 0..5 {
        let epoch = bee.take(LEASE).await;
        assert!(epoch > last);
        let row = bee.look(LEASE).await;
        assert_eq!((row.epoch, row.holder, row.free, &*row.cause), (epoch, Some(bee.id), false, "free"));
        if round == 0 {
            let hive_ms = bee.view().await.head.hive_ms;
            assert!(epoch.0 <= hive_ms && epoch.0 + 60_000 > hive_ms, "hive time: {epoch:?} at {hive_ms}");
        }
        assert!(bee.release(LEASE, epoch).await);
        let row = bee.look(LEASE).await;
        assert_eq!((row.epoch, row.holder, row.free), (epoch, None, true), "the epoch outlives its holder");
        last = epoch;
    }
    // Even if the store's clock goes back.
    if t.step_clock(-3_600_000).await {
        bee.beat().await;
        assert!(bee.take(LEASE).await > last);
    }
}

pub async fn hv_33_an_epoch_is_above_its_floor(t: &Table<'_>) {
    let bee = t.bee().await;
    let first = bee.take(LEASE).await;
    let floor = Epoch(first.0 + 1_000_000_000);
    bee.release(LEASE, first).await;
    let claims = vec![Claim { floor, ..Claim::new(LEASE.into(), first) }];
    let take = Request::Take { node: bee.id, claims, cause: "sink ahead".into(), mint: bee.mint() };
    let taken = epoch_of(&bee.call(take).await);
    assert_eq!(taken, Epoch(floor.0 + 1));
    let floor = Epoch(taken.0 + 7);
    let claims = vec![Claim { floor, ..Claim::new(LEASE.into(), taken) }];
    let anew = Request::HandOver { node: bee.id, heir: bee.id, claims, cause: "again".into(), mint: bee.mint() };
    assert_eq!(epoch_of(&bee.call(anew).await), Epoch(floor.0 + 1));
}

pub async fn hv_33_an_epoch_beyond_its_limit_is_refused(t: &Table<'_>) {
    let bee = t.bee().await;
    let before = bee.look(LEASE).await;
    bee.look("other").await;
    let version = bee.version().await;
    let claims = vec![
        Claim::new("other".into(), Epoch(0)),
        Claim { floor: Epoch::MAX, ..Claim::new(LEASE.into(), before.epoch) },
    ];
    let take = Request::Take { node: bee.id, claims, cause: "x".into(), mint: bee.mint() };
    let failure = bee.hive.call(take).await.expect_err("2^40 is the end");
    assert_eq!(failure.code, "epoch-too-large");
    assert_eq!(bee.look(LEASE).await, before);
    assert!(bee.look("other").await.free, "nothing was taken");
    assert_eq!(bee.version().await, version);
}

pub async fn hv_34_take_compares_the_epoch_seen(t: &Table<'_>) {
    let bee = t.bee().await;
    let first = bee.take(LEASE).await;
    bee.release(LEASE, first).await;
    let before = bee.look(LEASE).await;
    for seen in [Epoch(0), Epoch(first.0 - 1), Epoch(first.0 + 1)] {
        assert_eq!(bee.call(bee.claim(LEASE, seen)).await, Reply::Refused(Refusal::Raced), "{seen:?}");
    }
    assert_eq!(bee.call(bee.claim("never looked at", Epoch(0))).await, Reply::Refused(Refusal::Raced));
    assert_eq!(bee.look(LEASE).await, before);
}

pub async fn hv_34_a_held_lease_is_not_free(t: &Table<'_>) {
    let (bee, taker) = (t.bee().await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    for taker in [&bee, &taker] {
        assert_eq!(taker.call(taker.claim(LEASE, epoch)).await, Reply::Refused(Refusal::Raced));
    }
    let lease = bee.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(bee.id), false));
}

/// All have looked and seen it free before the first one takes.
pub async fn two_queens_by_check_then_set(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    for _ in 0..5 {
        let looked = join_all(bees.iter().map(|bee| bee.look("queen"))).await;
        assert!(looked.iter().all(|lease| lease.free));
        let takes = bees.iter().zip(&looked).map(|(bee, lease)| bee.call(bee.claim("queen", lease.epoch)));
        let replies = join_all(takes).await;
        let won: Vec<usize> = (0..RACERS).filter(|n| matches!(replies[*n], Reply::Taken(_))).collect();
        let [winner] = won[..] else { panic!("{replies:?}") };
        let refused = replies.iter().filter(|reply| **reply == Reply::Refused(Refusal::Raced)).count();
        assert_eq!(refused, RACERS - 1, "{replies:?}");
        let epoch = epoch_of(&replies[winner]);
        assert_eq!(bees[0].look("queen").await.holder, Some(bees[winner].id));
        assert!(bees[winner].release("queen", epoch).await);
    }
}

/// Whoever has won holds until it says otherwise, however many try meanwhile.
pub async fn take_robs_live_holder_by_old_snapshot(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    let start = bees[0].version().await;
    bees[0].look(LEASE).await;
    let won: usize = join_all(bees.iter().map(|bee| async move {
        let mut won = 0;
        for _ in 0..30 {
            let lease = bee.look(LEASE).await;
            // The one who holds it, too: its epoch is what others may have seen.
            let Reply::Taken(taken) = bee.call(bee.claim(LEASE, lease.epoch)).await else { continue };
            won += 1;
            let row = bee.look(LEASE).await;
            assert_eq!((row.epoch, row.holder), (taken[0].epoch, Some(bee.id)), "robbed");
            assert!(bee.release(LEASE, taken[0].epoch).await, "robbed");
        }
        won
    }))
    .await
    .into_iter()
    .sum();
    assert!(won > 0);
    let events = bees[0].events(start).await.events;
    let mut holder = None;
    for event in events {
        match (event.kind, holder) {
            (EventKind::Taken, None) => holder = event.node,
            (EventKind::Released, Some(_)) if event.node == holder => holder = None,
            _ => panic!("{event:?} while held by {holder:?}"),
        }
    }
}

pub async fn same_name_two_leaders(t: &Table<'_>) {
    let (one, two) = (t.newcomer("leader").await, t.newcomer("leader").await);
    one.beat().await;
    two.beat().await;
    let epoch = one.take("queen").await;
    assert_eq!(two.call(two.claim("queen", epoch)).await, Reply::Refused(Refusal::Raced));
    assert_eq!(two.look("queen").await.holder, Some(one.id));
}

/// Nothing that a node does to its own lease works for another of its name.
pub async fn renew_matches_name_only(t: &Table<'_>) {
    let (one, two) = (t.newcomer("leader").await, t.newcomer("leader").await);
    one.beat().await;
    two.beat().await;
    let epoch = one.take("queen").await;
    assert_eq!(two.call(two.over("queen", epoch, two.id)).await, Reply::Refused(Refusal::Raced));
    assert!(!two.release("queen", epoch).await);
    let lease = two.look("queen").await;
    assert_eq!((lease.epoch, lease.holder), (epoch, Some(one.id)));
}

/// No traffic is no reason to lose the lease.
pub async fn idle_queen_dethroned(t: &Table<'_>) {
    let (queen, bee) = (t.bee().await, t.bee().await);
    let epoch = queen.take("queen").await;
    queen.beat_with(State { eligible: true, ..State::default() }).await;
    bee.beat_with(State { engaged_age_ms: Some(0), ready: true, eligible: true, ..State::default() }).await;
    let lease = bee.look("queen").await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(queen.id), false));
    assert_eq!(bee.call(bee.claim("queen", epoch)).await, Reply::Refused(Refusal::Raced));
}

pub async fn hv_9_who_is_not_eligible_takes_nothing(t: &Table<'_>) {
    let bee = t.newcomer("new").await;
    let seen = bee.look(LEASE).await.epoch;
    assert_eq!(bee.call(bee.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    let stranger = super::Bee { hive: t.open().await, id: fresh_id(), lineage: bee.lineage.clone() };
    assert_eq!(stranger.call(stranger.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    bee.beat().await;
    bee.beat_with(State { ready: true, ..State::default() }).await;
    assert_eq!(bee.call(bee.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit), "draining");
    assert!(bee.look(LEASE).await.free);
}

pub async fn hv_34_who_has_expired_takes_nothing(t: &Table<'_>) {
    let bee = t.bee().await;
    let seen = bee.look(LEASE).await.epoch;
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    assert_eq!(bee.call(bee.claim(LEASE, seen)).await, Reply::Refused(Refusal::Unfit));
    bee.beat().await;
    bee.take(LEASE).await;
}

pub async fn hv_35_only_the_holder_releases(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    assert!(!other.release(LEASE, epoch).await);
    assert!(!bee.release(LEASE, Epoch(epoch.0 - 1)).await);
    assert!(!bee.release(LEASE, Epoch(epoch.0 + 1)).await);
    let version = bee.version().await;
    assert!(bee.release(LEASE, epoch).await);
    assert!(!bee.release(LEASE, epoch).await, "once");
    assert_eq!(bee.version().await, version + 1);
}

pub async fn hv_55_many_leases_are_taken_at_once(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    let names: Vec<Name> = (0..64).map(|n| format!("shard/many/{n}").into()).collect();
    let Reply::Leases { leases, .. } = bee.call(Request::Look { leases: names.clone() }).await else {
        panic!("no leases")
    };
    let held = other.take("shard/many/7").await;
    let version = bee.version().await;
    let claims: Vec<Claim> = leases.iter().map(|lease| Claim::new(lease.name.clone(), lease.epoch)).collect();
    let take = Request::Take { node: bee.id, claims, cause: "start".into(), mint: bee.mint() };
    let Reply::Taken(taken) = bee.call(take.clone()).await else { panic!("none taken") };
    assert_eq!(taken.len(), 63, "each by itself");
    assert!(taken.iter().all(|held| &*held.lease != "shard/many/7" && held.epoch > Epoch(0)));
    assert_eq!(bee.events(version).await.events.len(), 63, "one version each");
    let lease = bee.look("shard/many/7").await;
    assert_eq!((lease.epoch, lease.holder), (held, Some(other.id)));
    assert_eq!(bee.call(take).await, Reply::Refused(Refusal::Raced), "nothing is left");
    let held = taken.clone();
    let Reply::Released(released) = bee.call(Request::Release { node: bee.id, held, cause: "x".into() }).await else {
        panic!("not released")
    };
    assert_eq!(released.len(), 63);
}
