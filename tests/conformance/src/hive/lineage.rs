//! A store that is not the one it was, or not as far as it was.

use futures_util::future::join_all;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{
        EventKind, Held, Mint, Refusal,
        limit::{self, Book, Draw, Key, Rule},
    },
};

use super::{Bee, RACERS, TTL_MS, Table, bee::epoch_of, limit::set};

const LEASE: &str = "shard/x/0";

fn new_lineage(was: Option<&str>, found: &str) -> Request {
    Request::NewLineage { was: was.map(Name::from), found: found.into() }
}

fn watched(bee: &Bee, lease: &str, seen: Epoch) -> Request {
    match bee.claim(lease, seen) {
        Request::Take { node, claims, cause, mint } => {
            Request::Take { node, claims, cause, mint: Mint { watched: true, ..mint } }
        }
        other => other,
    }
}

/// Waits as long as a store asks for, then takes.
async fn take_in_time(t: &Table<'_>, bee: &Bee, lease: &str) -> Option<Epoch> {
    let seen = bee.look(lease).await.epoch;
    match bee.call(bee.claim(lease, seen)).await {
        Reply::Refused(Refusal::Early { wait_ms }) => {
            assert!((1..=TTL_MS).contains(&wait_ms), "{wait_ms}");
            if !t.step_clock(wait_ms.cast_signed() + 1).await {
                return None;
            }
            bee.beat().await;
            Some(bee.take(lease).await)
        }
        reply => Some(epoch_of(&reply)),
    }
}

pub async fn hv_23_another_lineage_mints_nothing(t: &Table<'_>) {
    let bee = t.bee().await;
    let held = bee.take(LEASE).await;
    let seen = bee.look("other").await.epoch;
    let mut elsewhere = bee.claim("other", seen);
    if let Request::Take { mint, .. } = &mut elsewhere {
        mint.lineage = "elsewhere".into();
    }
    assert_eq!(bee.call(elsewhere).await, Reply::Refused(Refusal::Lineage), "not the server's own");
    if !t.change_lineage().await {
        return;
    }
    let bee = Bee { hive: t.open().await, ..bee };
    let status = bee.view().await.head;
    assert_ne!(status.lineage.as_deref(), Some(&*status.server), "told with every beat");
    for lineage in [status.server.as_str(), status.lineage.as_deref().unwrap_or_default()] {
        let bee = Bee { hive: bee.hive.clone(), id: bee.id, lineage: lineage.into() };
        for request in [bee.claim("other", seen), watched(&bee, "other", seen), bee.over(LEASE, held, bee.id)] {
            assert_eq!(bee.call(request).await, Reply::Refused(Refusal::Lineage), "not recorded");
        }
    }
}

pub async fn hv_23_a_new_lineage_is_waited_for(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    let held = bee.take(LEASE).await;
    let seen = bee.look("other").await.epoch;
    let version = bee.version().await;
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
    let bee = Bee { hive: bee.hive, id: bee.id, lineage: found.into() };
    bee.beat().await;
    if !t.rig.waits_for_lineage() {
        bee.take("other").await;
        return;
    }
    for request in [bee.claim("other", seen), bee.over(LEASE, held, bee.id)] {
        let reply = bee.call(request).await;
        assert!(matches!(reply, Reply::Refused(Refusal::Early { wait_ms: 1..=TTL_MS })), "{reply:?}");
    }
    epoch_of(&bee.call(watched(&bee, "other", seen)).await);
    if !t.step_clock(TTL_MS.cast_signed() + 1).await {
        return;
    }
    bee.beat().await;
    assert!(epoch_of(&bee.call(bee.over(LEASE, held, bee.id)).await) > held);
}

pub async fn hv_23_of_many_finders_one_records(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    if !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    let found = new_lineage(head.lineage.as_deref(), &head.server);
    let replies = join_all(bees.iter().map(|bee| bee.call(found.clone()))).await;
    assert_eq!(replies.iter().filter(|reply| **reply == Reply::Done).count(), 1, "{replies:?}");
}

/// HV-61: what was given just before is not known here, and must not be given again.
pub async fn hv_61_a_new_bucket_in_a_new_lineage_begins_empty(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, "api", Rule::rate(1, 1000, 20)).await;
    let draw = async |key| {
        let draw = Draw { limit: "api".into(), key: Key(key), want: 0, need: 10, book: None };
        match bee.limit(limit::Request::Draw(vec![draw])).await {
            limit::Reply::Drawn { drawn, .. } => drawn[0].expect("defined").granted,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(draw(1).await, 10, "full where nothing was lost");
    if !t.rig.waits_for_lineage() || !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    assert_eq!(bee.call(new_lineage(head.lineage.as_deref(), &head.server)).await, Reply::Done);
    assert_eq!(draw(2).await, 0);
    if t.step_clock(10_001).await {
        assert_eq!(draw(3).await, 10, "a batch's life later");
    }
}

/// HV-63: nor is what others may have booked of this second and the next.
pub async fn hv_63_a_new_bucket_in_a_new_lineage_is_booked(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, "api", Rule::rate(1000, 1000, 200)).await;
    let book = async |key| {
        let book = Some(Book { want: 100, weight: 1 });
        match bee
            .limit(limit::Request::Draw(vec![Draw { limit: "api".into(), key: Key(key), want: 0, need: 0, book }]))
            .await
        {
            limit::Reply::Drawn { hive_ms, drawn } => (hive_ms, drawn[0].expect("defined").booked),
            other => panic!("{other:?}"),
        }
    };
    if !t.rig.waits_for_lineage() || !t.change_lineage().await {
        return;
    }
    let head = t.view().await.head;
    assert_eq!(bee.call(new_lineage(head.lineage.as_deref(), &head.server)).await, Reply::Done);
    let lineage_ms = t.view().await.head.lineage_ms;
    let (hive_ms, booked) = book(1).await;
    if hive_ms % 1_000 < 900 && hive_ms / 1_000 == lineage_ms / 1_000 {
        assert_eq!(booked, 0, "it may all be booked");
    }
    if t.step_clock(2_000).await {
        assert_eq!(book(2).await.1, 100, "what was booked before is over");
    }
}

pub async fn hv_23_a_hive_made_by_us_needs_no_wait(t: &Table<'_>) {
    let bee = t.bee().await;
    assert_eq!(bee.view().await.head.wait_ms(), 0);
    bee.take(LEASE).await;
}

pub async fn hv_23_a_state_that_went_back_is_held(t: &Table<'_>) {
    let bee = t.bee().await;
    let epoch = bee.take(LEASE).await;
    let version = bee.version().await;
    let behind = |lineage: &Name, version, epoch: u64| Request::Behind {
        lineage: lineage.clone(),
        version,
        leases: vec![Held { lease: LEASE.into(), epoch: Epoch(epoch) }],
    };
    let lineage = bee.lineage.clone();
    for request in [behind(&lineage, version, epoch.0), behind(&"other".into(), version + 1, epoch.0)] {
        assert_eq!(bee.call(request).await, Reply::Refused(Refusal::Raced), "it is not behind");
    }
    assert_eq!(bee.call(Request::AcceptRestore { cause: "x".into() }).await, Reply::Refused(Refusal::Raced));
    assert_eq!(bee.call(behind(&lineage, version, epoch.0 + 1)).await, Reply::Done);
    if t.rig.holds_after_restore() {
        assert_eq!(bee.beat().await.head.hold.as_deref(), Some("restore"));
        let seen = bee.look("other").await.epoch;
        for request in [bee.claim("other", seen), watched(&bee, "other", seen), bee.over(LEASE, epoch, bee.id)] {
            assert_eq!(bee.call(request).await, Reply::Refused(Refusal::Hold));
        }
        assert_eq!(bee.call(behind(&lineage, version + 1, epoch.0)).await, Reply::Done, "twice is no error");
        assert_eq!(bee.call(Request::AcceptRestore { cause: "by hand".into() }).await, Reply::Done);
    }
    let head = bee.beat().await.head;
    assert!(head.hold.is_none() && head.version > version && head.version + 60_000 > head.hive_ms, "{head:?}");
    take_in_time(t, &bee, "other").await;
}

pub async fn flushall_lowers_epoch(t: &Table<'_>) {
    let bee = t.bee().await;
    let epoch = bee.take(LEASE).await;
    if !t.step_clock(1000).await || !t.wipe().await {
        return;
    }
    let status = bee.beat().await;
    assert!(!status.member && status.head.lineage.is_none() && status.head.origin.is_none(), "{status:?}");
    assert_eq!(status.head.version, 0);
    let server = status.head.server;
    assert!(matches!(bee.call(bee.claim(LEASE, Epoch(0))).await, Reply::Refused(_)));
    assert_eq!(bee.call(new_lineage(None, &server)).await, Reply::Done);
    let again = t.bee().await;
    assert!(again.view().await.head.version + 60_000 > again.view().await.head.hive_ms, "beyond what anyone has seen");
    if let Some(minted) = take_in_time(t, &again, LEASE).await {
        assert!(minted > epoch, "{minted:?} after {epoch:?}");
    }
}
