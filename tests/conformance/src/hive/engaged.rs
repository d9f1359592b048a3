//! Who counts, and who says so.

use honeyflow_hive::{
    Reply, Request, Term,
    contract::{Counts, State},
};

use super::{Bee, TTL_MS, Table, bee::leading};

async fn tally(bee: &Bee) -> (u64, u64, u64) {
    match bee.call(Request::Tally).await {
        Reply::Counted { counts, published: false, .. } => (counts.alive, counts.ready, counts.engaged),
        other => panic!("{other:?}"),
    }
}

fn count(term: &Term, every_ms: u64) -> Request {
    Request::Count { fence: term.fence(), every_ms, bury: Vec::new() }
}

async fn counted(bee: &Bee, term: &Term, every_ms: u64) -> (Counts, bool) {
    match bee.call(count(term, every_ms)).await {
        Reply::Counted { counts, published, .. } => (counts, published),
        other => panic!("{other:?}"),
    }
}

fn engaged(age_ms: u64) -> State {
    State { engaged_age_ms: Some(age_ms), ..leading() }
}

pub async fn hv_17_alive_ready_engaged(t: &Table<'_>) {
    let bees = [t.bee().await, t.bee().await, t.bee().await, t.newcomer("new").await];
    assert_eq!(tally(&bees[0]).await, (4, 3, 0));
    bees[0].beat_with(engaged(0)).await;
    bees[1].beat_with(engaged(0)).await;
    assert_eq!(tally(&bees[0]).await, (4, 3, 2));
    // Engaged, but not to be given traffic: drained, or deaf.
    bees[1].beat_with(State { ready: false, ..engaged(0) }).await;
    assert_eq!(tally(&bees[0]).await, (4, 2, 1));
    if t.step_clock(TTL_MS.cast_signed() + 1).await {
        assert_eq!(tally(&bees[0]).await, (0, 0, 0), "expired");
        bees[2].beat().await;
        assert_eq!(tally(&bees[0]).await, (1, 1, 0));
    }
}

pub async fn hv_27_nobody_stays_engaged_longer_than_its_time(t: &Table<'_>) {
    let bee = t.bee().await;
    for (age_ms, is) in [(0, 1), (25_000, 1), (30_001, 0), (u64::from(u32::MAX), 0)] {
        bee.beat_with(engaged(age_ms)).await;
        assert_eq!(tally(&bee).await.2, is, "{age_ms}");
    }
    bee.beat_with(engaged(25_000)).await;
    bee.beat_with(leading()).await;
    assert_eq!(tally(&bee).await.2, 0, "no traffic");
    // Far from the end of its life, however slow the machine.
    bee.beat_with(engaged(29_000)).await;
    if t.step_clock(1_001).await {
        assert_eq!(tally(&bee).await, (1, 1, 0));
    }
}

pub async fn hv_28_the_queen_publishes_on_change_and_now_and_then(t: &Table<'_>) {
    let (queen, bee) = (t.bee().await, t.bee().await);
    let term = queen.term("queen").await;
    assert_eq!(bee.beat().await.head.counts, Counts::default());
    let version = bee.version().await;
    let (counts, published) = counted(&queen, &term, 3_600_000).await;
    assert!(published && counts.counted_ms > 0);
    assert_eq!((counts.alive, counts.ready, counts.engaged, counts.epoch), (2, 2, 0, term.epoch()));
    assert_eq!(bee.beat().await.head.counts, counts, "every bee is told");
    let (same, published) = counted(&queen, &term, 3_600_000).await;
    assert!(!published, "nothing has changed");
    assert_eq!(same, counts);
    bee.beat_with(engaged(0)).await;
    assert!(matches!(counted(&queen, &term, 3_600_000).await, (counts, true) if counts.engaged == 1));
    assert!(counted(&queen, &term, 0).await.1, "it is time");
    assert_eq!(bee.version().await, version, "a count is no event");
}

pub async fn hv_28_the_queen_buries_as_she_counts(t: &Table<'_>) {
    let (queen, dead) = (t.bee().await, t.bee().await);
    let term = queen.term("queen").await;
    let version = queen.version().await;
    let bury = vec![Bee::burial(dead.id, 1, true), Bee::burial(queen.id, 0, true)];
    let reply = queen.call(Request::Count { fence: term.fence(), every_ms: 0, bury }).await;
    let Reply::Counted { counts, buried, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((buried, counts.alive), (vec![dead.id], 1), "without whom she has just buried");
    assert_eq!(queen.version().await, version + 1);
}

pub async fn paused_queen_overwrites_count(t: &Table<'_>) {
    let (queen, next, third) = (t.bee().await, t.bee().await, t.bee().await);
    let old = queen.term("queen").await;
    counted(&queen, &old, 0).await;
    assert!(next.buries(queen.id, 2, true).await);
    let new = next.term("queen").await;
    let (published, _) = counted(&next, &new, 0).await;
    let bury = vec![Bee::burial(third.id, 1, true)];
    let late = Request::Count { fence: old.fence(), every_ms: 0, bury };
    assert_eq!(queen.call(late).await, Reply::Stale(vec!["queen".into()]));
    assert_eq!(third.beat().await.head.counts, published);
    assert!(third.row().await.is_some(), "nobody was buried by her");
}

pub async fn hv_28_only_the_queen_counts_for_all(t: &Table<'_>) {
    let bee = t.bee().await;
    let term = bee.term("duty/x").await;
    assert_eq!(bee.call(count(&term, 0)).await, Reply::Stale(vec!["duty/x".into()]));
    assert_eq!(bee.beat().await.head.counts, Counts::default());
}
