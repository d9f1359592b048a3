use honeyflow_event::Epoch;
use uuid::Uuid;

use super::*;
use crate::contract::{EventKind, Head};

fn id(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

fn node(n: u128) -> NodeRow {
    NodeRow {
        id: id(n),
        name: format!("node-{n}"),
        beat: 1,
        heartbeat_ms: 2000,
        ttl_ms: 6000,
        expires_ms: 0,
        engaged_ms: 0,
        ready: true,
        eligible: true,
        warm: Vec::new(),
        meta: format!(r#"{{"weight": {n}}}"#),
    }
}

fn lease(holder: u128) -> LeaseRow {
    LeaseRow {
        name: "queen".into(),
        epoch: Epoch(5),
        holder: Some(id(holder)),
        successor: None,
        since_ms: 0,
        cause: String::new(),
        free: false,
        successor_is_warm: false,
    }
}

fn head(version: u64) -> Head {
    let (server, lineage) = ("s".to_owned(), Some("s".to_owned()));
    Head { version, server, lineage, origin: Some(Uuid::from_u128(7)), ..Head::default() }
}

fn whole(version: u64) -> Reply {
    Reply::View(Box::new(View { head: head(version), nodes: vec![node(1), node(2)], leases: vec![lease(2)] }))
}

fn event(version: u64, kind: EventKind, n: u128) -> Event {
    Event { version, at_ms: 0, kind, node: Some(id(n)), lease: None, epoch: None, cause: "".into() }
}

fn events(events: Vec<Event>, nodes: Vec<NodeRow>) -> Reply {
    let version = events.last().unwrap().version;
    Reply::Events(Box::new(Events { head: head(version), events, nodes, leases: Vec::new() }))
}

#[test]
fn hv_20_versions_rise_and_a_gap_leads_to_a_fresh_snapshot() {
    let mut known = KnownView::default();
    assert_eq!(known.next_request(), None);
    known.on_version(10);
    assert_eq!(known.next_request(), Some(Request::View));
    known.mark_requested();
    assert_eq!(known.next_request(), None, "once per beat");
    assert_eq!(known.read(whole(10)), News::Whole);
    assert!(known.is_current());
    known.on_version(12);
    assert!(!known.is_current());
    assert_eq!(known.next_request(), Some(Request::Events { after: 10, max: EVENTS_MAX }));
    let gap = events(vec![event(12, EventKind::Joined, 3)], vec![node(3)]);
    assert_eq!(known.read(gap), News::Nothing, "11 is missing");
    let news = vec![event(11, EventKind::Joined, 3), event(12, EventKind::Buried, 2)];
    assert_eq!(known.read(events(news.clone(), vec![node(3)])), News::Events(news));
    assert_eq!(known.nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [id(1), id(3)]);
    assert!(known.leases()[0].free, "its holder has no row any more");
    assert_eq!((known.traits(id(3)).unwrap().weight, known.traits(id(2))), (3, None));
    assert_eq!(known.read(whole(12)), News::Nothing);
    assert_eq!(known.read(whole(11)), News::Nothing, "older than what is known");
    assert_eq!(known.read(whole(20)), News::Whole);
}

#[test]
fn hv_20_another_hive_is_shown_even_with_a_lower_version() {
    let mut known = KnownView::default();
    known.read(whole(10));
    let other = Head { origin: Some(Uuid::from_u128(8)), ..head(2) };
    assert_eq!(known.read(Reply::View(Box::new(View { head: other, ..View::default() }))), News::Whole);
    assert_eq!(known.version(), 2);
}

/// The version numbers of its events may continue ours.
#[test]
fn hv_20_events_of_another_hive_are_ignored() {
    let mut known = KnownView::default();
    known.read(whole(10));
    let mut elsewhere = events(vec![event(11, EventKind::Joined, 3)], vec![node(3)]);
    if let Reply::Events(events) = &mut elsewhere {
        events.head.origin = Some(Uuid::from_u128(8));
    }
    assert_eq!(known.read(elsewhere), News::Nothing);
    known.on_version(11);
    assert_eq!(known.next_request(), Some(Request::View), "otherwise the node would send the same request for ever");
    let other = Head { origin: Some(Uuid::from_u128(8)), ..head(11) };
    known.read(Reply::View(Box::new(View { head: other, ..View::default() })));
    known.on_version(12);
    assert_eq!(known.next_request(), Some(Request::Events { after: 11, max: EVENTS_MAX }));
}

#[test]
fn hv_52_shards_are_counted_by_source() {
    let mut known = KnownView::default();
    let names = ["queen", "shard/shop/0", "shard/shop/1", "shard/shopping/0"];
    let leases = names.iter().map(|name| LeaseRow { name: (*name).into(), ..lease(1) }).collect();
    known.read(Reply::View(Box::new(View { head: head(1), nodes: Vec::new(), leases })));
    let shards = ["shop", "shopping", "other"].map(|source| known.shards_of(source).len());
    assert_eq!(shards, [2, 1, 0]);
}

/// HV-18: nodes of several releases are in one hive during an upgrade.
#[test]
fn hv_18_an_event_of_a_newer_release_makes_the_node_read_the_whole_view() {
    let mut known = KnownView::default();
    known.on_version(10);
    known.read(whole(10));
    known.on_version(12);
    assert!(matches!(known.next_request(), Some(Request::Events { after: 10, .. })));
    known.mark_requested();
    let news = vec![event(11, EventKind::Unknown, 3), event(12, EventKind::Buried, 2)];
    assert_eq!(known.read(events(news, Vec::new())), News::Nothing);
    assert_eq!(known.next_request(), Some(Request::View), "at once, and not the same request again");
    known.mark_requested();
    assert_eq!(known.read(whole(12)), News::Whole);
    known.on_version(13);
    assert!(matches!(known.next_request(), Some(Request::Events { after: 12, .. })), "and events again from there");
}

/// HI-8: a server that took over continues the versions from where its copy ended, until it is recorded.
#[test]
fn hi_8_replies_of_an_unrecorded_server_do_not_change_the_view() {
    let mut known = KnownView::default();
    known.on_version(10);
    assert_eq!(known.read(whole(10)), News::Whole);
    known.on_version(11);
    let elsewhere = |version| Head { server: "t".into(), ..head(version) };
    let joined = || vec![event(11, EventKind::Joined, 3)];
    let other = Events { head: elsewhere(11), events: joined(), nodes: vec![node(3)], leases: Vec::new() };
    assert_eq!(known.read(Reply::Events(Box::new(other))), News::Nothing);
    let other = View { head: elsewhere(12), nodes: vec![node(1)], leases: Vec::new() };
    assert_eq!(known.read(Reply::View(Box::new(other))), News::Nothing);
    assert_eq!((known.version(), known.nodes().len()), (10, 2));
    let recorded = Head { lineage: Some("t".into()), ..elsewhere(11) };
    let other = Events { head: recorded, events: joined(), nodes: vec![node(3)], leases: Vec::new() };
    assert_eq!(known.read(Reply::Events(Box::new(other))), News::Nothing, "past a version of another history");
    known.on_version(11);
    assert_eq!(known.next_request(), Some(Request::View), "only the whole view can be trusted");
}
