//! A store that was replaced or restored: another lineage, or an older state.

use futures_util::future::join_all;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{
        EventKind, HeldLease, Mint, Refusal,
        limit::{self, Draw, Key, ReservationRequest, Rule},
    },
};

use super::{RACERS, TTL_MS, TestContext, TestMember, limit::set, test_member::epoch_of};

const LEASE: &str = "shard/x/0";

fn new_lineage(was: Option<&str>, found: &str) -> Request {
    Request::NewLineage { was: was.map(Name::from), found: found.into() }
}

fn watched(member: &TestMember, lease: &str, seen: Epoch) -> Request {
    match member.claim(lease, seen) {
        Request::Take { node, claims, cause, mint } => {
            Request::Take { node, claims, cause, mint: Mint { watched: true, ..mint } }
        }
        other => other,
    }
}

/// Waits as long as the store asks for, then takes the lease.
async fn take_in_time(t: &TestContext<'_>, member: &TestMember, lease: &str) -> Option<Epoch> {
    let seen = member.look(lease).await.epoch;
    match member.call(member.claim(lease, seen)).await {
        Reply::Refused(Refusal::Early { wait_ms }) => {
            assert!((1..=TTL_MS).contains(&wait_ms), "{wait_ms}");
            if !t.step_clock(wait_ms.cast_signed() + 1).await {
                return None;
            }
            member.beat().await;
            Some(member.take(lease).await)
        }
        reply => Some(epoch_of(&reply)),
    }
}

pub async fn hv_23_another_lineage_mints_nothing(t: &TestContext<'_>) {
    let member = t.member().await;
    let held = member.take(LEASE).await;
    let seen = member.look("other").await.epoch;
    let mut elsewhere = member.claim("other", seen);
    if let Request::Take { mint, .. } = &mut elsewhere {
        mint.lineage = "elsewhere".into();
    }
    assert_eq!(member.call(elsewhere).await, Reply::Refused(Refusal::Lineage), "not the server's lineage");
    if !t.change_lineage().await {
        return;
    }
    let member = TestMember { hive: t.open().await, ..member };
    let status = member.view().await.head;
    assert_ne!(status.lineage.as_deref(), Some(&*status.server), "every heartbeat shows it");
    for lineage in [status.server.as_str(), status.lineage.as_deref().unwrap_or_default()] {
        let member = TestMember { hive: member.hive.clone(), id: member.id, lineage: lineage.into() };
        for request in [
            member.claim("other", seen),
            watched(&member, "other", seen),
            member.transfer_request(LEASE, held, member.id),
        ] {
            assert_eq!(member.call(request).await, Reply::Refused(Refusal::Lineage), "the lineage is not recorded yet");
        }
    }
}

pub async fn hv_23_a_new_lineage_is_waited_for(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    let held = member.take(LEASE).await;
    let seen = member.look("other").await.epoch;
    let version = member.version().await;
    if !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    let (was, found) = (head.lineage.expect("recorded"), head.server);
    for (was, found) in [(None, &*found), (Some("x"), &found), (Some(&*was), "not the server")] {
        assert_eq!(other.call(new_lineage(was, found)).await, Reply::Refused(Refusal::Raced));
    }
    assert_eq!(other.call(new_lineage(Some(&was), &found)).await, Reply::Done);
    let view = t.view().await;
    assert_eq!(view.head.lineage.as_deref(), Some(&*found));
    assert!(view.head.version > version && view.head.version + 60_000 > view.head.hive_ms, "{:?}", view.head);
    let Reply::History(events) = other.call(Request::History { lease: None, until_ms: None, max: 1 }).await else {
        panic!("no history")
    };
    assert_eq!((events[0].kind, events[0].version), (EventKind::Lineage, view.head.version));
    let member = TestMember { hive: member.hive, id: member.id, lineage: found.into() };
    member.beat().await;
    if !t.rig.waits_for_lineage() {
        member.take("other").await;
        return;
    }
    for request in [member.claim("other", seen), member.transfer_request(LEASE, held, member.id)] {
        let reply = member.call(request).await;
        assert!(matches!(reply, Reply::Refused(Refusal::Early { wait_ms: 1..=TTL_MS })), "{reply:?}");
    }
    epoch_of(&member.call(watched(&member, "other", seen)).await);
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    member.beat().await;
    assert!(epoch_of(&member.call(member.transfer_request(LEASE, held, member.id)).await) > held);
}

pub async fn hv_23_concurrent_finders_record_a_lineage_once(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    if !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    let found = new_lineage(head.lineage.as_deref(), &head.server);
    let replies = join_all(members.iter().map(|member| member.call(found.clone()))).await;
    assert_eq!(replies.iter().filter(|reply| **reply == Reply::Done).count(), 1, "{replies:?}");
}

/// HV-61: the store does not know the permits that were given just before, and must not give them again.
pub async fn hv_61_a_new_bucket_in_a_new_lineage_begins_empty(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, "api", Rule::rate(1, 1000, 20)).await;
    let draw = async |key| {
        let draw = Draw { limit: "api".into(), key: Key(key), want: 0, need: 10, reserve: None };
        match member.limit(limit::Request::Draw(vec![draw])).await {
            limit::Reply::Drawn { drawn, .. } => drawn[0].expect("defined").granted,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(draw(1).await, 10, "a bucket is full where no data was lost");
    if !t.rig.waits_for_lineage() || !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    assert_eq!(member.call(new_lineage(head.lineage.as_deref(), &head.server)).await, Reply::Done);
    assert_eq!(draw(2).await, 0);
    if t.step_clock(10_001).await {
        assert_eq!(draw(3).await, 10, "full again after the life of a batch");
    }
}

/// HV-63: the store does not know either what other nodes may have reserved of this second and the next.
pub async fn hv_63_a_new_bucket_in_a_new_lineage_counts_as_reserved(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, "api", Rule::rate(1000, 1000, 200)).await;
    let reserve_100 = async |key| {
        let reserve = Some(ReservationRequest { want: 100, weight: 1 });
        match member
            .limit(limit::Request::Draw(vec![Draw { limit: "api".into(), key: Key(key), want: 0, need: 0, reserve }]))
            .await
        {
            limit::Reply::Drawn { hive_ms, drawn } => (hive_ms, drawn[0].expect("defined").reserved),
            other => panic!("{other:?}"),
        }
    };
    if !t.rig.waits_for_lineage() || !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    assert_eq!(member.call(new_lineage(head.lineage.as_deref(), &head.server)).await, Reply::Done);
    let lineage_ms = t.view().await.head.lineage_ms;
    let (hive_ms, reserved) = reserve_100(1).await;
    if hive_ms % 1_000 < 900 && hive_ms / 1_000 == lineage_ms / 1_000 {
        assert_eq!(reserved, 0, "all of it may be reserved");
    }
    if t.step_clock(2_000).await {
        assert_eq!(reserve_100(2).await.1, 100, "the earlier reservations have ended");
    }
}

pub async fn hv_23_a_hive_made_by_us_needs_no_wait(t: &TestContext<'_>) {
    let member = t.member().await;
    assert_eq!(member.view().await.head.wait_ms(), 0);
    member.take(LEASE).await;
}

pub async fn hv_23_a_restored_state_waits_for_a_person(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take(LEASE).await;
    let version = member.version().await;
    let behind = |lineage: &Name, version, epoch: u64| Request::Behind {
        lineage: lineage.clone(),
        version,
        leases: vec![HeldLease { lease: LEASE.into(), epoch: Epoch(epoch) }],
    };
    let lineage = member.lineage.clone();
    for request in [behind(&lineage, version, epoch.0), behind(&"other".into(), version + 1, epoch.0)] {
        assert_eq!(member.call(request).await, Reply::Refused(Refusal::Raced), "the store is not behind");
    }
    assert_eq!(member.call(Request::AcceptRestore { cause: "x".into() }).await, Reply::Refused(Refusal::Raced));
    assert_eq!(member.call(behind(&lineage, version, epoch.0 + 1)).await, Reply::Done);
    if t.rig.holds_after_restore() {
        assert_eq!(member.beat().await.head.hold.as_deref(), Some("restore"));
        let seen = member.look("other").await.epoch;
        for request in [
            member.claim("other", seen),
            watched(&member, "other", seen),
            member.transfer_request(LEASE, epoch, member.id),
        ] {
            assert_eq!(member.call(request).await, Reply::Refused(Refusal::Hold));
        }
        assert_eq!(member.call(behind(&lineage, version + 1, epoch.0)).await, Reply::Done, "twice is no error");
        assert_eq!(member.call(Request::AcceptRestore { cause: "by hand".into() }).await, Reply::Done);
    }
    let head = member.beat().await.head;
    assert!(head.hold.is_none() && head.version > version && head.version + 60_000 > head.hive_ms, "{head:?}");
    take_in_time(t, &member, "other").await;
}

pub async fn flushall_lowers_epoch(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take(LEASE).await;
    if !t.step_clock(1000).await || !t.wipe().await {
        return;
    }
    let status = member.beat().await;
    assert!(!status.member && status.head.lineage.is_none() && status.head.origin.is_none(), "{status:?}");
    assert_eq!(status.head.version, 0);
    let server = status.head.server;
    assert!(matches!(member.call(member.claim(LEASE, Epoch(0))).await, Reply::Refused(_)));
    assert_eq!(member.call(new_lineage(None, &server)).await, Reply::Done);
    let again = t.member().await;
    assert!(
        again.view().await.head.version + 60_000 > again.view().await.head.hive_ms,
        "higher than any version a node has seen"
    );
    if let Some(minted) = take_in_time(t, &again, LEASE).await {
        assert!(minted > epoch, "{minted:?} after {epoch:?}");
    }
}
