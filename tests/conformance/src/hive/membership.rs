//! Who is a member, and how one stops being it.

use futures_util::future::join_all;
use honeyflow_hive::{
    Reply, Request,
    contract::{EventKind, META_BYTES_MAX, Refusal, SOONEST_MAX, State},
};
use honeyflow_runtime::Class;

use super::{
    Bee, HEARTBEAT_MS, HIVE, NEIGHBOUR, RACERS, TTL_MS, Table,
    bee::{call, fresh_id, join, view},
};

pub async fn hv_9_join_inserts_never_upserts(t: &Table<'_>) {
    let bee = t.newcomer("first").await;
    bee.beat().await;
    let before = t.view().await;
    for hive in [bee.hive.clone(), t.open().await] {
        assert_eq!(call(&*hive, join(bee.id, "second", 1)).await, Reply::Refused(Refusal::Known));
    }
    let after = t.view().await;
    assert_eq!(after.nodes, before.nodes);
    assert_eq!(after.head.version, before.head.version);
    let [row] = &after.nodes[..] else { panic!("{after:?}") };
    assert_eq!((row.id, &*row.name, row.beat), (bee.id, "first", 1));
    assert_eq!((row.heartbeat_ms, row.ttl_ms), (HEARTBEAT_MS, TTL_MS));
    assert_eq!(after.head.max_ttl_ms, TTL_MS);
}

pub async fn hv_9_of_many_joins_of_one_identity_one_is_answered(t: &Table<'_>) {
    let hives = join_all((0..RACERS).map(|_| t.open())).await;
    let id = fresh_id();
    let replies = join_all(hives.iter().map(|hive| call(&**hive, join(id, "one", TTL_MS)))).await;
    assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Joined(_))).count(), 1, "{replies:?}");
    assert_eq!(t.view().await.head.version, 1);
}

pub async fn hv_9_who_has_joined_is_neither_ready_nor_eligible(t: &Table<'_>) {
    let bee = t.newcomer("new").await;
    let row = bee.row().await.expect("a row");
    assert!(!row.ready && !row.eligible && row.warm.is_empty() && row.engaged_ms == 0, "{row:?}");
    let head = bee.view().await.head;
    assert!((1..=TTL_MS).contains(&row.expires_ms.saturating_sub(head.hive_ms)), "{row:?} at {}", head.hive_ms);
    assert!(head.origin.is_some());
    assert_eq!(head.lineage.as_deref(), Some(&*head.server));
}

pub async fn hv_8_two_nodes_of_one_name_are_two_members(t: &Table<'_>) {
    let (one, two) = (t.newcomer("same").await, t.newcomer("same").await);
    one.beat().await;
    one.beat().await;
    assert_eq!(one.row().await.map(|row| row.beat), Some(2));
    assert_eq!(two.row().await.map(|row| row.beat), Some(0), "nobody beats for another of its name");
}

pub async fn hv_11_a_beat_renews_the_node_alone(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    if !t.step_clock(TTL_MS.cast_signed() - 1000).await {
        return;
    }
    let version = bee.version().await;
    let others_row = other.row().await;
    let status = bee.beat().await;
    assert!(status.member && status.renewed && !status.ahead);
    assert_eq!(status.head.version, version, "a heartbeat is no event");
    let row = bee.row().await.expect("a row");
    assert_eq!(row.beat, 2);
    assert!(row.expires_ms + 5_000 >= status.head.hive_ms + TTL_MS, "{row:?} at {}", status.head.hive_ms);
    assert_eq!(other.row().await, others_row);
}

pub async fn hv_11_a_beat_tells_of_the_sixteen_soonest_to_expire(t: &Table<'_>) {
    let bee = Bee::join(t.open().await, "short", 1000).await;
    let mut others = Vec::new();
    for n in (0..20_u64).rev() {
        others.push((n, Bee::join(bee.hive.clone(), "other", 100_000 + n * 10_000).await));
    }
    let status = bee.beat().await;
    assert_eq!(status.soonest.len(), SOONEST_MAX);
    others.sort_by_key(|(n, _)| *n);
    for (watched, (n, other)) in status.soonest.iter().zip(&others) {
        assert_eq!((watched.id, watched.beat), (other.id, 0), "in the order of their end, without the one who asks");
        assert_eq!((watched.ttl_ms, watched.heartbeat_ms), (100_000 + n * 10_000, HEARTBEAT_MS));
        assert!(watched.expires_ms > status.head.hive_ms && !watched.dead);
    }
    assert_eq!(status.head.max_ttl_ms, 290_000, "the longest that was ever written");
}

pub async fn hv_11_a_beat_tells_of_the_queen(t: &Table<'_>) {
    let (queen, bee) = (t.bee().await, t.bee().await);
    assert_eq!(bee.beat().await.queen, None);
    let epoch = queen.take("queen").await;
    let told = bee.beat().await.queen.expect("a queen");
    assert_eq!((told.epoch, told.holder, told.heir), (epoch, Some(queen.id), None));
    let node = told.node.expect("her row");
    assert_eq!((node.id, node.beat, node.ttl_ms), (queen.id, 1, TTL_MS));
    queen.call(Request::Leave { node: queen.id }).await;
    let told = bee.read_only().await.queen.expect("what she held");
    assert_eq!((told.epoch, told.node), (epoch, None), "free: nobody has a row");
}

pub async fn hv_10_a_read_only_beat_writes_nothing(t: &Table<'_>) {
    let bee = t.bee().await;
    let before = t.view().await;
    let status = bee.read_only().await;
    assert!(status.member && !status.renewed);
    assert_eq!(t.view().await.nodes, before.nodes);
}

pub async fn hv_13_a_node_without_row_is_no_member(t: &Table<'_>) {
    let bee = t.bee().await;
    bee.call(Request::Leave { node: bee.id }).await;
    let stranger = Bee { hive: t.open().await, id: fresh_id(), lineage: bee.lineage.clone() };
    for bee in [bee, stranger] {
        for status in [bee.beat().await, bee.read_only().await] {
            assert!(!status.member && !status.renewed, "{status:?}");
        }
    }
    assert_eq!(t.view().await.nodes, [], "a beat never inserts");
}

pub async fn hv_14_a_burial_names_the_beat_that_was_watched(t: &Table<'_>) {
    let (burier, bee) = (t.bee().await, t.bee().await);
    assert!(!burier.buries(bee.id, 0, true).await, "it has beaten since");
    assert!(!burier.buries(bee.id, 2, true).await);
    assert!(bee.beat().await.member);
    let version = burier.version().await;
    assert!(burier.buries(bee.id, 2, true).await, "silent for long: it need not have expired");
    assert!(!burier.buries(bee.id, 2, true).await, "once");
    let events = burier.events(version).await.events;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind, event.node, &*event.cause), (EventKind::Buried, Some(bee.id), "silence"));
    assert!(!bee.beat().await.member, "burial is final");
    assert_eq!(bee.row().await, None);
}

pub async fn hv_14_an_expired_node_is_buried(t: &Table<'_>) {
    let (burier, bee) = (t.bee().await, t.bee().await);
    let dead = bee.dies();
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    assert!(burier.buries_in_time(dead, 1).await);
    assert!(burier.beat().await.member, "its own row had expired too, and nobody has buried it");
}

pub async fn hv_14_of_many_buriers_one_buries(t: &Table<'_>) {
    let dead = t.bee().await;
    let buriers = t.bees(RACERS).await;
    let version = dead.version().await;
    let buried = join_all(buriers.iter().map(|burier| burier.buries(dead.id, 1, true))).await;
    assert_eq!(buried.iter().filter(|buried| **buried).count(), 1, "{buried:?}");
    assert_eq!(dead.version().await, version + 1);
}

/// Whatever the burier thinks, an unexpired node is not buried without long silence.
pub async fn node_clock_decides_death(t: &Table<'_>) {
    let (burier, bee) = (t.bee().await, t.bee().await);
    assert!(!burier.buries(bee.id, 1, false).await);
    assert!(bee.beat().await.member);
}

/// Everybody has expired meanwhile. Whoever beats again before it is buried lives on, with what it holds.
pub async fn store_outage_buries_everyone(t: &Table<'_>) {
    let (burier, bee) = (t.bee().await, t.bee().await);
    let epoch = bee.take("shard/x/0").await;
    if !t.step_clock(3_600_000).await {
        return;
    }
    let lease = burier.look("shard/x/0").await;
    assert!(!lease.free, "expired is not buried: {lease:?}");
    assert!(bee.beat().await.member);
    assert!(!burier.buries(bee.id, 1, false).await, "the beat that was watched has changed");
    let lease = bee.look("shard/x/0").await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(bee.id), false));
}

/// Whoever was buried continues nothing, under no name.
pub async fn old_identity_after_restart(t: &Table<'_>) {
    let (burier, bee) = (t.bee().await, t.bee().await);
    let epoch = bee.take("shard/x/0").await;
    assert!(burier.buries(bee.id, 1, true).await);
    let again = bee.over("shard/x/0", epoch, bee.id);
    assert_eq!(bee.call(again).await, Reply::Refused(Refusal::Unfit));
    assert!(burier.look("shard/x/0").await.free);
    assert!(burier.take("shard/x/0").await > epoch);
}

pub async fn hv_15_instants_too_far_ahead_are_written_back(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    other.beat_with(State { engaged_age_ms: Some(0), ready: true, eligible: true, ..State::default() }).await;
    if !t.step_clock(-3_600_000).await {
        return;
    }
    assert!(bee.read_only().await.ahead);
    assert!(matches!(bee.call(Request::Mend).await, Reply::Mended(mended) if mended >= 2));
    let view = t.view().await;
    for row in &view.nodes {
        assert!(row.expires_ms <= view.head.hive_ms + TTL_MS, "{row:?} at {}", view.head.hive_ms);
        assert!(row.engaged_ms <= view.head.hive_ms + 30_000, "{row:?} at {}", view.head.hive_ms);
    }
    assert!(!bee.read_only().await.ahead);
    assert_eq!(bee.call(Request::Mend).await, Reply::Mended(0));
}

pub async fn hv_18_meta_is_kept_as_it_was_given(t: &Table<'_>) {
    let hive = t.open().await;
    let join = |meta: String| Request::Join {
        node: fresh_id(),
        name: "n".into(),
        heartbeat_ms: HEARTBEAT_MS,
        ttl_ms: TTL_MS,
        meta,
    };
    let meta = r#"{"name":"bücher ''\"x\"","of-a-newer-version":{"a":[1,2.5,null]}}"#;
    assert!(matches!(call(&*hive, join(meta.to_owned())).await, Reply::Joined(_)));
    let found: serde_json::Value = serde_json::from_str(&t.view().await.nodes[0].meta).expect("JSON");
    assert_eq!(found, serde_json::from_str::<serde_json::Value>(meta).expect("JSON"));
    let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(META_BYTES_MAX));
    let failure = hive.call(join(large)).await.expect_err("too large");
    assert_eq!((failure.class, &*failure.code), (Class::Reject, "meta-too-large"));
    assert_eq!(t.view().await.nodes.len(), 1);
}

pub async fn hv_21_leaving_deletes_the_row(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    let epoch = bee.take("duty/x").await;
    assert_eq!(bee.call(Request::Leave { node: bee.id }).await, Reply::Done);
    let version = other.version().await;
    assert_eq!(bee.call(Request::Leave { node: bee.id }).await, Reply::Done, "twice is no error");
    assert_eq!(other.version().await, version, "and no event");
    assert_eq!(bee.row().await, None);
    let lease = other.look("duty/x").await;
    assert_eq!((lease.epoch, lease.free), (epoch, true));
    assert!(other.take("duty/x").await > epoch);
}

pub async fn hv_4_hives_do_not_see_each_other(t: &Table<'_>) {
    let bee = t.bee().await;
    bee.take("queen").await;
    let elsewhere = t.rig.open(NEIGHBOUR).await;
    assert_eq!(view(&*elsewhere).await.nodes, []);
    let neighbour = Bee::join(elsewhere, "bee", TTL_MS).await;
    let status = neighbour.beat().await;
    assert_eq!((status.soonest, status.queen), (Vec::new(), None));
    assert_ne!(status.head.origin, bee.view().await.head.origin);
    assert!(!neighbour.buries(bee.id, 1, true).await);
    neighbour.take("queen").await;
    let seen = view(&*t.rig.open(HIVE).await).await;
    assert_eq!(seen.nodes.len(), 1);
    assert_eq!(seen.leases[0].holder, Some(bee.id));
    assert_eq!(seen.head.version, 4, "joined, eligible, ready, taken");
    let same = Request::Beat { node: bee.id, read_only: false, state: State::default() };
    let Reply::Beat(status) = neighbour.call(same).await else { panic!("no beat") };
    assert!(!status.member, "a member of another hive is none here");
}
