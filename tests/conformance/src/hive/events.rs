//! The view, its versions and its events.

use futures_util::future::{join, join_all};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{Event, EventKind, View},
};

use super::{
    RACERS, TestContext,
    test_member::{eligible_state, epoch_of},
};

const LEASE: &str = "duty/report";

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

pub async fn hv_5_a_store_without_hive_shows_nothing(t: &TestContext<'_>) {
    let View { head, nodes, leases } = t.view().await;
    assert_eq!((nodes, leases), (Vec::new(), Vec::new()));
    assert_eq!((head.origin, head.lineage, head.version), (None, None, 0));
    assert!(head.hive_ms > 0 && !head.server.is_empty());
}

pub async fn hv_19_each_change_has_one_version_and_one_event(t: &TestContext<'_>) {
    use EventKind::{Buried, Draining, Eligible, HandedOver, Joined, Left, Ready, Released, Taken, Unready};
    let member = t.newcomer("bee").await;
    let start = member.version().await - 1;
    member.beat().await;
    member.beat().await;
    let epoch = member.take(LEASE).await;
    let minted = epoch_of(&member.call(member.transfer_request(LEASE, epoch, member.id)).await);
    member.release(LEASE, minted).await;
    let other = t.newcomer("other").await;
    member.removes(other.id, 0, true).await;
    member.beat_with(honeyflow_hive::contract::State { eligible: false, ..eligible_state() }).await;
    member.beat_with(honeyflow_hive::contract::State::default()).await;
    member.call(Request::Leave { node: member.id }).await;
    let found = other.events(start).await;
    let expected = [Joined, Eligible, Ready, Taken, HandedOver, Released, Joined, Buried, Draining, Unready, Left];
    assert_eq!(kinds(&found.events), expected);
    let versions: Vec<u64> = found.events.iter().map(|event| event.version).collect();
    assert_eq!(versions, (start + 1..=start + 11).collect::<Vec<_>>());
    assert_eq!(found.head.version, start + 11);
    let taken = &found.events[3];
    assert_eq!((taken.node, taken.lease.as_deref(), taken.epoch), (Some(member.id), Some(LEASE), Some(epoch)));
    assert_eq!(&*taken.cause, "free");
    assert_eq!(found.events[4].epoch, Some(minted));
    assert_eq!((found.events[7].node, found.events[7].lease.clone()), (Some(other.id), None));
    assert!(found.events.iter().all(|event| event.at_ms > 0 && event.at_ms <= found.head.hive_ms));
}

pub async fn hv_19_versions_are_gapless_while_many_change(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    let reader = t.member().await;
    let start = reader.version().await;
    let changes = join_all(members.iter().enumerate().map(|(n, member)| async move {
        let lease = format!("shard/x/{}", n / 2);
        for _ in 0..10 {
            let seen = member.look(&lease).await;
            if let Reply::Taken(taken) = member.call(member.claim(&lease, seen.epoch)).await {
                member.release(&lease, taken[0].epoch).await;
            }
            let mate = t.newcomer("mate").await;
            mate.call(Request::Leave { node: mate.id }).await;
        }
    }));
    // Readers see events in order: a version never comes after a higher one.
    let reads = async {
        let mut seen = start;
        for _ in 0..40 {
            for event in reader.events(seen).await.events {
                assert_eq!(event.version, seen + 1);
                seen = event.version;
            }
            tokio::task::yield_now().await;
        }
    };
    join(changes, reads).await;
    let found = reader.events(start).await;
    assert!(found.events.len() >= RACERS * 20);
    for (n, event) in found.events.iter().enumerate() {
        assert_eq!(event.version, start + 1 + n as u64);
    }
    assert_eq!(found.head.version, start + found.events.len() as u64);
}

pub async fn hv_20_events_come_with_the_rows_they_concern(t: &TestContext<'_>) {
    let (member, gone) = (t.member().await, t.member().await);
    member.take("duty/old").await;
    let start = member.version().await;
    assert!(member.events(start).await.events.is_empty());
    let newcomer = t.newcomer("newcomer").await;
    gone.call(Request::Leave { node: gone.id }).await;
    member.take(LEASE).await;
    let found = member.events(start).await;
    assert_eq!(kinds(&found.events), [EventKind::Joined, EventKind::Left, EventKind::Taken]);
    let mut nodes: Vec<_> = found.nodes.iter().map(|row| row.id).collect();
    nodes.sort();
    let mut expected = vec![newcomer.id, member.id];
    expected.sort();
    assert_eq!(nodes, expected, "the members that still exist");
    let leases: Vec<&Name> = found.leases.iter().map(|lease| &lease.name).collect();
    assert_eq!(leases, [&Name::from(LEASE)]);
    let view = member.view().await;
    assert!(found.nodes.iter().all(|row| view.nodes.contains(row)));
}

pub async fn hv_20_a_gap_is_answered_by_the_whole_view(t: &TestContext<'_>) {
    let member = t.member().await;
    let version = member.version().await;
    assert_eq!(version, 3);
    for (after, max, whole) in
        [(0, 3, false), (0, 2, true), (1, 2, false), (version, 1, false), (version + 1, 10, true)]
    {
        let reply = member.call(Request::Events { after, max }).await;
        assert_eq!(matches!(&reply, Reply::View(view) if view.nodes.len() == 1), whole, "{after} {max}: {reply:?}");
        assert_eq!(matches!(&reply, Reply::Events(_)), !whole, "{after} {max}: {reply:?}");
    }
}

/// During an upgrade, nodes of two versions are in one hive: an older one must not stop at an event that it does not
/// know.
pub async fn hv_18_an_event_of_a_newer_version_is_still_delivered(t: &TestContext<'_>) {
    let member = t.member().await;
    let version = member.version().await;
    member.take(LEASE).await;
    if !t.write_newer_event().await {
        return;
    }
    let found = member.events(version - 1).await;
    assert_eq!(kinds(&found.events), [EventKind::Ready, EventKind::Unknown]);
    assert_eq!(
        (found.events[1].node, found.events[1].lease.as_deref()),
        (Some(member.id), Some(LEASE)),
        "the event names its member and lease"
    );
    assert_eq!((found.nodes.len(), found.leases.len()), (1, 1), "their present rows");
    let Reply::History(all) = member.call(Request::History { lease: None, until_ms: None, max: 100 }).await else {
        panic!("no history")
    };
    assert_eq!(all[0].kind, EventKind::Unknown);
}

pub async fn hv_19_old_events_are_forgotten(t: &TestContext<'_>) {
    let member = t.member().await;
    let term = member.term("queen").await;
    let version = member.version().await;
    let sweep = |event_ms, events_max, rows_max| Request::Sweep {
        fence: term.fence(),
        event_ms,
        events_max,
        idle_ms: 600_000,
        rows_max,
    };
    let week: u64 = 7 * 86_400_000;
    assert_eq!(member.call(sweep(week, 10_000, 100)).await, Reply::Swept { events: 0, buckets: 0 });
    assert_eq!(member.call(sweep(week, 3, 100)).await, Reply::Swept { events: version - 3, buckets: 0 });
    assert_eq!(member.events(version - 3).await.events.len(), 3, "the newest events stay");
    let reply = member.call(Request::Events { after: version - 4, max: 100 }).await;
    assert!(matches!(reply, Reply::View(_)), "{reply:?}");
    assert_eq!(member.version().await, version);
    if t.step_clock(week.cast_signed() + 1000).await {
        assert_eq!(
            member.call(sweep(week, 10_000, 2)).await,
            Reply::Swept { events: 2, buckets: 0 },
            "at most `rows_max` at a time"
        );
        assert_eq!(member.call(sweep(week, 10_000, 100)).await, Reply::Swept { events: 1, buckets: 0 });
    }
    member.beat().await;
    epoch_of(&member.call(member.transfer_request("queen", term.epoch(), member.id)).await);
    assert_eq!(member.call(sweep(0, 0, 100)).await, Reply::Stale(vec!["queen".into()]));
}

pub async fn hv_32_history_is_filtered_by_lease_and_time(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take(LEASE).await;
    member.take("duty/other").await;
    member.release(LEASE, epoch).await;
    let history =
        async |lease: Option<Name>, until_ms, max| match member.call(Request::History { lease, until_ms, max }).await {
            Reply::History(events) => events,
            other => panic!("{other:?}"),
        };
    let all = history(None, None, 100).await;
    assert_eq!(all.len() as u64, member.version().await);
    assert!(all.is_sorted_by(|a, b| a.version > b.version), "newest first");
    let of_lease = history(Some(LEASE.into()), None, 100).await;
    assert_eq!(kinds(&of_lease), [EventKind::Released, EventKind::Taken]);
    assert_eq!(history(Some(LEASE.into()), None, 1).await.len(), 1);
    assert_eq!(history(None, Some(0), 100).await, []);
    assert_eq!(history(None, Some(all[0].at_ms), 100).await.len(), all.len());
}

pub async fn missed_chore_leaves_no_trace(t: &TestContext<'_>) {
    let member = t.member().await;
    let term = member.term(LEASE).await;
    let version = member.version().await;
    let missed = Request::Missed { fence: term.fence(), cause: "report of 06:00".into() };
    assert_eq!(member.call(missed.clone()).await, Reply::Done);
    let found = member.events(version).await.events;
    assert_eq!(kinds(&found), [EventKind::Missed]);
    assert_eq!((found[0].lease.as_deref(), &*found[0].cause), (Some(LEASE), "report of 06:00"));
    member.release(LEASE, term.epoch()).await;
    assert_eq!(member.call(missed).await, Reply::Stale(vec![LEASE.into()]));
}

/// A process that opens the store knows the leader, also with every node stopped.
pub async fn leader_needs_to_be_reachable_to_ask_who_leads(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take("queen").await;
    let queen = member.crash();
    let view = t.view().await;
    let lease = view.leases.iter().find(|lease| &*lease.name == "queen").expect("a queen");
    assert_eq!((lease.epoch, lease.holder), (epoch, Some(queen)));
    assert!(lease.epoch > Epoch(0) && lease.since_ms > 0);
}
