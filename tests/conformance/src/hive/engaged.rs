//! Which members count as alive, ready and engaged, and that only the queen publishes the numbers.

use honeyflow_hive::{
    Reply, Request, Term,
    contract::{Counts, State},
};

use super::{TTL_MS, TestContext, TestMember, test_member::eligible_state};

async fn tally(member: &TestMember) -> (u64, u64, u64) {
    match member.call(Request::Tally).await {
        Reply::Counted { counts, published: false, .. } => (counts.alive, counts.ready, counts.engaged),
        other => panic!("{other:?}"),
    }
}

fn count(term: &Term, every_ms: u64) -> Request {
    Request::Count { fence: term.fence(), every_ms, remove: Vec::new() }
}

async fn publish_counts(member: &TestMember, term: &Term, every_ms: u64) -> (Counts, bool) {
    match member.call(count(term, every_ms)).await {
        Reply::Counted { counts, published, .. } => (counts, published),
        other => panic!("{other:?}"),
    }
}

fn engaged(age_ms: u64) -> State {
    State { engaged_age_ms: Some(age_ms), ..eligible_state() }
}

pub async fn hv_17_alive_ready_engaged(t: &TestContext<'_>) {
    let members = [t.member().await, t.member().await, t.member().await, t.newcomer("new").await];
    assert_eq!(tally(&members[0]).await, (4, 3, 0));
    members[0].beat_with(engaged(0)).await;
    members[1].beat_with(engaged(0)).await;
    assert_eq!(tally(&members[0]).await, (4, 3, 2));
    // Engaged, but without new traffic: the node drains, or does not answer.
    members[1].beat_with(State { ready: false, ..engaged(0) }).await;
    assert_eq!(tally(&members[0]).await, (4, 2, 1));
    if t.step_clock(TTL_MS.cast_signed() + 1).await {
        assert_eq!(tally(&members[0]).await, (0, 0, 0), "expired");
        members[2].beat().await;
        assert_eq!(tally(&members[0]).await, (1, 1, 0));
    }
}

pub async fn hv_27_a_node_stays_engaged_for_30_s_at_most(t: &TestContext<'_>) {
    let member = t.member().await;
    for (age_ms, is) in [(0, 1), (25_000, 1), (30_001, 0), (u64::from(u32::MAX), 0)] {
        member.beat_with(engaged(age_ms)).await;
        assert_eq!(tally(&member).await.2, is, "{age_ms}");
    }
    member.beat_with(engaged(25_000)).await;
    member.beat_with(eligible_state()).await;
    assert_eq!(tally(&member).await.2, 0, "no traffic");
    // Far from the end of its time to live, however slow the machine.
    member.beat_with(engaged(29_000)).await;
    if t.step_clock(1_001).await {
        assert_eq!(tally(&member).await, (1, 1, 0));
    }
}

pub async fn hv_28_the_queen_publishes_on_change_and_periodically(t: &TestContext<'_>) {
    let (queen, member) = (t.member().await, t.member().await);
    let term = queen.term("queen").await;
    assert_eq!(member.beat().await.head.counts, Counts::default());
    let version = member.version().await;
    let (counts, published) = publish_counts(&queen, &term, 3_600_000).await;
    assert!(published && counts.counted_ms > 0);
    assert_eq!((counts.alive, counts.ready, counts.engaged, counts.epoch), (2, 2, 0, term.epoch()));
    assert_eq!(member.beat().await.head.counts, counts, "every member learns it");
    let (same, published) = publish_counts(&queen, &term, 3_600_000).await;
    assert!(!published, "nothing has changed");
    assert_eq!(same, counts);
    member.beat_with(engaged(0)).await;
    assert!(matches!(publish_counts(&queen, &term, 3_600_000).await, (counts, true) if counts.engaged == 1));
    assert!(publish_counts(&queen, &term, 0).await.1, "the period has passed");
    assert_eq!(member.version().await, version, "a count is not an event");
}

pub async fn hv_28_the_queen_removes_nodes_as_she_counts(t: &TestContext<'_>) {
    let (queen, dead) = (t.member().await, t.member().await);
    let term = queen.term("queen").await;
    let version = queen.version().await;
    let removals = vec![TestMember::removal(dead.id, 1, true), TestMember::removal(queen.id, 0, true)];
    let reply = queen.call(Request::Count { fence: term.fence(), every_ms: 0, remove: removals }).await;
    let Reply::Counted { counts, removed, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((removed, counts.alive), (vec![dead.id], 1), "without the member that she has just removed");
    assert_eq!(queen.version().await, version + 1);
}

pub async fn paused_queen_overwrites_count(t: &TestContext<'_>) {
    let (queen, next, third) = (t.member().await, t.member().await, t.member().await);
    let old = queen.term("queen").await;
    publish_counts(&queen, &old, 0).await;
    assert!(next.removes(queen.id, 2, true).await);
    let new = next.term("queen").await;
    let (published, _) = publish_counts(&next, &new, 0).await;
    let removals = vec![TestMember::removal(third.id, 1, true)];
    let late = Request::Count { fence: old.fence(), every_ms: 0, remove: removals };
    assert_eq!(queen.call(late).await, Reply::Stale(vec!["queen".into()]));
    assert_eq!(third.beat().await.head.counts, published);
    assert!(third.row().await.is_some(), "the stale queen has removed no member");
}

pub async fn hv_28_only_the_queen_publishes_counts(t: &TestContext<'_>) {
    let member = t.member().await;
    let term = member.term("duty/x").await;
    assert_eq!(member.call(count(&term, 0)).await, Reply::Stale(vec!["duty/x".into()]));
    assert_eq!(member.beat().await.head.counts, Counts::default());
}
