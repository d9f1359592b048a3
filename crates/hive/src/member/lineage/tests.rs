use super::*;

const TTL: Duration = Duration::from_secs(6);

fn at(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

fn head(server: &str, recorded: &str, version: u64) -> Head {
    Head {
        hive_ms: 1_000_000,
        server: server.to_owned(),
        origin: Some(Uuid::from_u128(1)),
        lineage: Some(recorded.to_owned()),
        max_ttl_ms: 6_000,
        version,
        ..Head::default()
    }
}

fn known() -> Lineage {
    let mut lineage = Lineage::default();
    assert_eq!(lineage.learn(&head("a", "a", 5), 0, TTL, at(0)), Finding::Same);
    lineage
}

#[test]
fn hv_23_another_server_is_recorded_before_any_node_mints() {
    let mut lineage = known();
    assert!(lineage.mint(at(0)).is_some());
    let found = lineage.learn(&head("b", "a", 5), 5, TTL, at(1));
    assert_eq!(found, Finding::Unrecorded { was: Some("a".into()), found: "b".into() });
    assert_eq!(lineage.mint(at(1)), None);
    assert_eq!(lineage.mint_at(), Moment::FAR);
    let recorded = Head { lineage_ms: 999_000, ..head("b", "b", 1_000_000) };
    assert_eq!(lineage.learn(&recorded, 0, TTL, at(2)), Finding::Same);
    assert_eq!(lineage.mint(at(2)), None, "terms under the old lineage may not have ended");
    assert_eq!(lineage.mint_at(), at(7));
    assert!(lineage.mint(at(7)).is_some_and(|mint| &*mint.lineage == "b" && !mint.watched));
}

/// HV-15: the store's clock may be wrong; what a node has watched on its own clock is not.
#[test]
fn hv_23_a_node_that_has_watched_for_two_times_to_live_need_not_wait() {
    let mut lineage = Lineage::default();
    let far_ahead = |seconds| {
        let head = Head { lineage_ms: 9_000_000, ..head("a", "a", 5) };
        (head, at(seconds))
    };
    for seconds in [0, 4, 8, 11] {
        let (head, now) = far_ahead(seconds);
        lineage.learn(&head, 0, TTL, now);
        assert_eq!(lineage.mint(now), None);
    }
    assert!(lineage.mint(at(12)).is_some_and(|mint| mint.watched));
    lineage.restart_watch(at(13));
    assert_eq!(lineage.mint(at(13)), None, "not after a gap in this node's heartbeats");
}

#[test]
fn hv_23_a_server_that_was_replaced_and_answers_again_stops_the_node() {
    let mut lineage = known();
    assert_eq!(lineage.learn(&head("b", "b", 9), 5, TTL, at(1)), Finding::Changed);
    assert_eq!(lineage.learn(&head("a", "a", 9), 5, TTL, at(5)), Finding::TwoWriters("a".into()));
    let mut lineage = known();
    lineage.learn(&head("b", "b", 9), 5, TTL, at(1));
    assert_eq!(lineage.learn(&head("a", "a", 9), 5, TTL, at(13)), Finding::Changed, "long after");
}

#[test]
fn hv_23_a_store_that_went_back_waits_for_a_person() {
    let mut lineage = known();
    assert_eq!(lineage.learn(&head("a", "a", 4), 5, TTL, at(1)), Finding::WentBack("a".into()));
    lineage.on_acknowledged();
    let held = Head { hold: Some("restore".to_owned()), ..head("a", "a", 4) };
    assert_eq!(lineage.learn(&held, 0, TTL, at(2)), Finding::Same);
    assert_eq!((lineage.mint(at(2)), lineage.mint_at()), (None, Moment::FAR));
    assert_eq!(lineage.learn(&head("a", "a", 1_000_001), 4, TTL, at(3)), Finding::Accepted);
    assert!(lineage.mint(at(3)).is_some());
}

/// Replies may overtake each other: only the version known when the request was sent counts.
#[test]
fn hv_23_a_reply_that_was_overtaken_is_no_restore() {
    let mut lineage = known();
    lineage.learn(&head("a", "a", 9), 5, TTL, at(1));
    assert_eq!(lineage.learn(&head("a", "a", 7), 5, TTL, at(2)), Finding::Same);
}

#[test]
fn hv_23_another_hive_of_the_same_name_is_another() {
    let mut lineage = known();
    let other = Head { origin: Some(Uuid::from_u128(2)), ..head("a", "a", 1) };
    assert_eq!(lineage.learn(&other, 5, TTL, at(1)), Finding::Changed);
}

/// HV-23: a lineage that was accepted again is watched from the start: other nodes may hold leases from before the
/// restore.
#[test]
fn hv_23_a_lineage_that_was_recorded_again_is_watched_again() {
    let mut lineage = known();
    assert!(lineage.mint(at(20)).is_some_and(|mint| mint.watched));
    let restored = Head { lineage_ms: 999_999, ..head("a", "a", 6) };
    assert_eq!(lineage.learn(&restored, 5, TTL, at(20)), Finding::Accepted, "the hold itself was missed");
    assert_eq!(lineage.mint(at(20)), None, "it has to wait like every node");
    let later = Head { hive_ms: 1_006_000, ..restored };
    assert_eq!(lineage.learn(&later, 5, TTL, at(26)), Finding::Same);
    assert!(lineage.mint(at(26)).is_some_and(|mint| !mint.watched));
    lineage.learn(&later, 5, TTL, at(31));
    assert!(lineage.mint(at(32)).is_some_and(|mint| mint.watched), "the lineage was not recorded again since");

    let mut held = known();
    let hold = Head { hold: Some("restore".to_owned()), lineage_ms: 999_999, ..head("a", "a", 5) };
    held.learn(&hold, 5, TTL, at(1));
    held.learn(&hold, 5, TTL, at(20));
    let accepted = Head { hold: None, lineage_ms: 0, ..hold };
    assert_eq!(held.learn(&accepted, 5, TTL, at(21)), Finding::Accepted);
    assert!(held.mint(at(21)).is_some_and(|mint| !mint.watched));
}
