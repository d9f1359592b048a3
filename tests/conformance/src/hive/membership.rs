//! How a node becomes a member, renews its row, and stops being a member.

use futures_util::future::join_all;
use honeyflow_hive::{
    Reply, Request,
    contract::{EventKind, META_BYTES_MAX, Refusal, SOONEST_MAX, State},
};
use honeyflow_runtime::Class;

use super::{
    HEARTBEAT_MS, HIVE, NEIGHBOUR, RACERS, TTL_MS, TestContext, TestMember,
    test_member::{call, fresh_id, join, view},
};

pub async fn hv_9_join_inserts_never_upserts(t: &TestContext<'_>) {
    let member = t.newcomer("first").await;
    member.beat().await;
    let before = t.view().await;
    for hive in [member.hive.clone(), t.open().await] {
        assert_eq!(call(&*hive, join(member.id, "second", 1)).await, Reply::Refused(Refusal::Known));
    }
    let after = t.view().await;
    assert_eq!(after.nodes, before.nodes);
    assert_eq!(after.head.version, before.head.version);
    let [row] = &after.nodes[..] else { panic!("{after:?}") };
    assert_eq!((row.id, &*row.name, row.beat), (member.id, "first", 1));
    assert_eq!((row.heartbeat_ms, row.ttl_ms), (HEARTBEAT_MS, TTL_MS));
    assert_eq!(after.head.max_ttl_ms, TTL_MS);
}

pub async fn hv_9_concurrent_joins_of_one_identity_admit_one(t: &TestContext<'_>) {
    let hives = join_all((0..RACERS).map(|_| t.open())).await;
    let id = fresh_id();
    let replies = join_all(hives.iter().map(|hive| call(&**hive, join(id, "one", TTL_MS)))).await;
    assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Joined(_))).count(), 1, "{replies:?}");
    assert_eq!(t.view().await.head.version, 1);
}

pub async fn hv_9_a_new_member_is_neither_ready_nor_eligible(t: &TestContext<'_>) {
    let member = t.newcomer("new").await;
    let row = member.row().await.expect("a row");
    assert!(!row.ready && !row.eligible && row.warm.is_empty() && row.engaged_ms == 0, "{row:?}");
    let head = member.view().await.head;
    assert!((1..=TTL_MS).contains(&row.expires_ms.saturating_sub(head.hive_ms)), "{row:?} at {}", head.hive_ms);
    assert!(head.origin.is_some());
    assert_eq!(head.lineage.as_deref(), Some(&*head.server));
}

pub async fn hv_8_two_nodes_of_one_name_are_two_members(t: &TestContext<'_>) {
    let (one, two) = (t.newcomer("same").await, t.newcomer("same").await);
    one.beat().await;
    one.beat().await;
    assert_eq!(one.row().await.map(|row| row.beat), Some(2));
    assert_eq!(
        two.row().await.map(|row| row.beat),
        Some(0),
        "a heartbeat does not renew another node of the same name"
    );
}

pub async fn hv_11_a_beat_renews_the_node_alone(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    if !t.step_clock(TTL_MS.cast_signed() - 1000).await {
        return;
    }
    let version = member.version().await;
    let others_row = other.row().await;
    let status = member.beat().await;
    assert!(status.member && status.renewed && !status.ahead);
    assert_eq!(status.head.version, version, "a heartbeat is not an event");
    let row = member.row().await.expect("a row");
    assert_eq!(row.beat, 2);
    assert!(row.expires_ms + 5_000 >= status.head.hive_ms + TTL_MS, "{row:?} at {}", status.head.hive_ms);
    assert_eq!(other.row().await, others_row);
}

pub async fn hv_11_a_beat_returns_the_sixteen_soonest_to_expire(t: &TestContext<'_>) {
    let member = TestMember::join(t.open().await, "short", 1000).await;
    let mut others = Vec::new();
    for n in (0..20_u64).rev() {
        others.push((n, TestMember::join(member.hive.clone(), "other", 100_000 + n * 10_000).await));
    }
    let status = member.beat().await;
    assert_eq!(status.soonest.len(), SOONEST_MAX);
    others.sort_by_key(|(n, _)| *n);
    for (watched, (n, other)) in status.soonest.iter().zip(&others) {
        assert_eq!((watched.id, watched.beat), (other.id, 0), "in the order of expiry, without the caller");
        assert_eq!((watched.ttl_ms, watched.heartbeat_ms), (100_000 + n * 10_000, HEARTBEAT_MS));
        assert!(watched.expires_ms > status.head.hive_ms && !watched.dead);
    }
    assert_eq!(status.head.max_ttl_ms, 290_000, "the longest time to live ever written");
}

pub async fn hv_11_a_beat_returns_the_queen(t: &TestContext<'_>) {
    let (queen, member) = (t.member().await, t.member().await);
    assert_eq!(member.beat().await.queen, None);
    let epoch = queen.take("queen").await;
    let queen_status = member.beat().await.queen.expect("a queen");
    assert_eq!((queen_status.epoch, queen_status.holder, queen_status.successor), (epoch, Some(queen.id), None));
    let node = queen_status.node.expect("her row");
    assert_eq!((node.id, node.beat, node.ttl_ms), (queen.id, 1, TTL_MS));
    queen.call(Request::Leave { node: queen.id }).await;
    let queen_status = member.read_only().await.queen.expect("what she held");
    assert_eq!((queen_status.epoch, queen_status.node), (epoch, None), "free: the holder has no row");
}

pub async fn hv_10_a_read_only_beat_writes_nothing(t: &TestContext<'_>) {
    let member = t.member().await;
    let before = t.view().await;
    let status = member.read_only().await;
    assert!(status.member && !status.renewed);
    assert_eq!(t.view().await.nodes, before.nodes);
}

pub async fn hv_13_a_node_without_row_is_no_member(t: &TestContext<'_>) {
    let member = t.member().await;
    member.call(Request::Leave { node: member.id }).await;
    let outsider = TestMember { hive: t.open().await, id: fresh_id(), lineage: member.lineage.clone() };
    for member in [member, outsider] {
        for status in [member.beat().await, member.read_only().await] {
            assert!(!status.member && !status.renewed, "{status:?}");
        }
    }
    assert_eq!(t.view().await.nodes, [], "a heartbeat never inserts a row");
}

pub async fn hv_14_a_removal_names_the_beat_that_was_watched(t: &TestContext<'_>) {
    let (remover, member) = (t.member().await, t.member().await);
    assert!(!remover.removes(member.id, 0, true).await, "it has sent a heartbeat since");
    assert!(!remover.removes(member.id, 2, true).await);
    assert!(member.beat().await.member);
    let version = remover.version().await;
    assert!(remover.removes(member.id, 2, true).await, "it was silent for long, so it need not have expired");
    assert!(!remover.removes(member.id, 2, true).await, "once");
    let events = remover.events(version).await.events;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind, event.node, &*event.cause), (EventKind::Buried, Some(member.id), "silence"));
    assert!(!member.beat().await.member, "a removal is final");
    assert_eq!(member.row().await, None);
}

pub async fn hv_14_an_expired_node_is_removed(t: &TestContext<'_>) {
    let (remover, member) = (t.member().await, t.member().await);
    let dead = member.crash();
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    assert!(remover.removes_in_time(dead, 1).await);
    assert!(remover.beat().await.member, "its own row had expired, too, and no member has removed it");
}

pub async fn hv_14_concurrent_removals_remove_a_node_once(t: &TestContext<'_>) {
    let dead = t.member().await;
    let removers = t.members(RACERS).await;
    let version = dead.version().await;
    let removed = join_all(removers.iter().map(|remover| remover.removes(dead.id, 1, true))).await;
    assert_eq!(removed.iter().filter(|removed| **removed).count(), 1, "{removed:?}");
    assert_eq!(dead.version().await, version + 1);
}

/// A node that has not expired is not removed without long silence, whatever the remover believes.
pub async fn node_clock_decides_death(t: &TestContext<'_>) {
    let (remover, member) = (t.member().await, t.member().await);
    assert!(!remover.removes(member.id, 1, false).await);
    assert!(member.beat().await.member);
}

/// All members have expired meanwhile. A member that sends a heartbeat before it is removed stays a member, with its
/// leases.
pub async fn store_outage_buries_everyone(t: &TestContext<'_>) {
    let (remover, member) = (t.member().await, t.member().await);
    let epoch = member.take("shard/x/0").await;
    if !t.step_clock(3_600_000).await {
        return;
    }
    let lease = remover.look("shard/x/0").await;
    assert!(!lease.free, "an expired holder is not a removed one: {lease:?}");
    assert!(member.beat().await.member);
    assert!(!remover.removes(member.id, 1, false).await, "its heartbeat has changed since it was watched");
    let lease = member.look("shard/x/0").await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (epoch, Some(member.id), false));
}

/// A removed member continues nothing, under no name.
pub async fn old_identity_after_restart(t: &TestContext<'_>) {
    let (remover, member) = (t.member().await, t.member().await);
    let epoch = member.take("shard/x/0").await;
    assert!(remover.removes(member.id, 1, true).await);
    let again = member.transfer_request("shard/x/0", epoch, member.id);
    assert_eq!(member.call(again).await, Reply::Refused(Refusal::Unfit));
    assert!(remover.look("shard/x/0").await.free);
    assert!(remover.take("shard/x/0").await > epoch);
}

pub async fn hv_15_instants_too_far_ahead_are_written_back(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    other.beat_with(State { engaged_age_ms: Some(0), ready: true, eligible: true, ..State::default() }).await;
    if !t.step_clock(-3_600_000).await {
        return;
    }
    assert!(member.read_only().await.ahead);
    assert!(matches!(member.call(Request::Mend).await, Reply::Mended(mended) if mended >= 2));
    let view = t.view().await;
    for row in &view.nodes {
        assert!(row.expires_ms <= view.head.hive_ms + TTL_MS, "{row:?} at {}", view.head.hive_ms);
        assert!(row.engaged_ms <= view.head.hive_ms + 30_000, "{row:?} at {}", view.head.hive_ms);
    }
    assert!(!member.read_only().await.ahead);
    assert_eq!(member.call(Request::Mend).await, Reply::Mended(0));
}

pub async fn hv_18_meta_is_stored_as_it_was_given(t: &TestContext<'_>) {
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

pub async fn hv_21_leaving_deletes_the_row(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    let epoch = member.take("duty/x").await;
    assert_eq!(member.call(Request::Leave { node: member.id }).await, Reply::Done);
    let version = other.version().await;
    assert_eq!(member.call(Request::Leave { node: member.id }).await, Reply::Done, "twice is no error");
    assert_eq!(other.version().await, version, "and not an event");
    assert_eq!(member.row().await, None);
    let lease = other.look("duty/x").await;
    assert_eq!((lease.epoch, lease.free), (epoch, true));
    assert!(other.take("duty/x").await > epoch);
}

pub async fn hv_4_hives_do_not_see_each_other(t: &TestContext<'_>) {
    let member = t.member().await;
    member.take("queen").await;
    let elsewhere = t.rig.open(NEIGHBOUR).await;
    assert_eq!(view(&*elsewhere).await.nodes, []);
    let neighbour = TestMember::join(elsewhere, "bee", TTL_MS).await;
    let status = neighbour.beat().await;
    assert_eq!((status.soonest, status.queen), (Vec::new(), None));
    assert_ne!(status.head.origin, member.view().await.head.origin);
    assert!(!neighbour.removes(member.id, 1, true).await);
    neighbour.take("queen").await;
    let seen = view(&*t.rig.open(HIVE).await).await;
    assert_eq!(seen.nodes.len(), 1);
    assert_eq!(seen.leases[0].holder, Some(member.id));
    assert_eq!(seen.head.version, 4, "joined, eligible, ready, taken");
    let same = Request::Beat { node: member.id, read_only: false, state: State::default() };
    let Reply::Beat(status) = neighbour.call(same).await else { panic!("no beat") };
    assert!(!status.member, "a member of another hive is not a member here");
}
