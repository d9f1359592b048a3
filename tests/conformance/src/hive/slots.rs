//! Limits on how many at a time.

use futures_util::future::join_all;
use honeyflow_hive::{
    Reply as HiveReply, Request as HiveRequest,
    contract::limit::{Key, Reply, Request, Rule, Slots, SlotsHeld, Undefined},
};

use super::{
    Bee, HEARTBEAT_MS, RACERS, Table,
    bee::fresh_id,
    limit::{set, sweep},
};

const CALLS: &str = "calls";

fn asks(seq: u64, wants: u64) -> Vec<Slots> {
    vec![Slots { limit: CALLS.into(), key: Key(1), seq, wants }]
}

async fn slots(bee: &Bee, seq: u64, wants: u64) -> SlotsHeld {
    match bee.limit(Request::Slots { node: bee.id, asks: asks(seq, wants) }).await {
        Reply::Slots(held) => held[0].expect("defined"),
        other => panic!("{other:?}"),
    }
}

pub async fn hv_68_slots_never_exceed_their_number(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], CALLS, Rule::count(10)).await;
    let has = join_all(bees.iter().map(|bee| async move {
        let mut has = 0;
        for seq in 1..=5 {
            has = slots(bee, seq, seq).await.has;
        }
        has
    }))
    .await;
    assert_eq!(has.iter().sum::<u64>(), 10, "{has:?}");
    let held = slots(&bees[0], 6, 0).await;
    assert_eq!((held.has, held.free, held.max), (0, has[0], 10));
    assert_eq!(slots(&bees[1], 6, 100).await.has, has[1] + has[0], "as many as are free");
}

/// One that went unanswered is sent again, and one that comes late changes nothing.
pub async fn hv_68_an_ask_may_be_repeated(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, CALLS, Rule::count(5)).await;
    for _ in 0..3 {
        let held = slots(&bee, 1, 3).await;
        assert_eq!((held.has, held.free), (3, 2));
    }
    assert_eq!(slots(&bee, 2, 1).await.has, 1);
    assert_eq!(slots(&bee, 1, 3).await.has, 1, "late");
    assert_eq!(slots(&bee, 3, 9).await.has, 5);
}

pub async fn hv_68_slots_of_the_dead_return(t: &Table<'_>) {
    let (bee, dead, gone) = (t.bee().await, t.bee().await, t.bee().await);
    set(&bee, CALLS, Rule::count(6)).await;
    assert_eq!(slots(&dead, 1, 3).await.has, 3);
    assert_eq!(slots(&gone, 1, 2).await.has, 2);
    assert_eq!(slots(&bee, 1, 6).await.has, 1);
    assert!(bee.buries(dead.id, 1, true).await);
    assert_eq!(slots(&bee, 2, 6).await.has, 4);
    gone.call(HiveRequest::Leave { node: gone.id }).await;
    let held = slots(&bee, 3, 6).await;
    assert_eq!((held.has, held.free), (6, 0));
}

/// What a node has said is remembered for as long as something it said before may still come, and then forgotten.
pub async fn hv_72_that_a_node_has_no_slots_is_forgotten(t: &Table<'_>) {
    let bee = t.bee().await;
    let term = bee.term("queen").await;
    set(&bee, CALLS, Rule::count(5)).await;
    let sweep = |idle_ms| HiveRequest::Sweep {
        fence: term.fence(),
        event_ms: u64::from(u32::MAX),
        events_max: 10_000,
        idle_ms,
        rows_max: 100,
    };
    assert_eq!(slots(&bee, 7, 3).await.has, 3);
    assert_eq!(bee.call(sweep(0)).await, HiveReply::Swept { events: 0, buckets: 0 }, "it has them");
    assert_eq!(slots(&bee, 8, 0).await.has, 0);
    assert_eq!(bee.call(sweep(600_000)).await, HiveReply::Swept { events: 0, buckets: 1 }, "what all have is 0");
    assert_eq!(slots(&bee, 7, 3).await.has, 0, "late, and known to be");
    assert_eq!(bee.call(sweep(0)).await, HiveReply::Swept { events: 0, buckets: 2 }, "and what it has is 0");
    assert_eq!(bee.call(sweep(0)).await, HiveReply::Swept { events: 0, buckets: 0 });
    assert_eq!(slots(&bee, 1, 3).await.has, 3, "nothing is known of it");
}

/// What is in use is torn from nobody; but everybody hears that there are fewer.
pub async fn hv_68_fewer_slots_are_told_to_everybody(t: &Table<'_>) {
    let (one, other) = (t.bee().await, t.bee().await);
    let version = set(&one, CALLS, Rule::count(10)).await;
    assert_eq!((slots(&one, 1, 6).await.has, slots(&other, 1, 4).await.has), (6, 4));
    let lower = Request::Set { limit: CALLS.into(), was: Some(version), rule: Rule::count(5), after_ms: 0 };
    assert!(matches!(one.limit(lower).await, Reply::Set { .. }));
    assert_eq!(slots(&one, 2, 6).await.over, 0, "not yet");
    if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
        return;
    }
    let held = slots(&one, 3, 6).await;
    assert_eq!((held.has, held.free, held.over, held.max), (6, 0, 5, 5));
    let held = slots(&other, 2, 9).await;
    assert_eq!((held.has, held.free, held.over), (4, 0, 5), "nobody gets more");
    assert_eq!(slots(&other, 3, 1).await.over, 2);
    let held = slots(&one, 4, 3).await;
    assert_eq!((held.has, held.free, held.over), (3, 1, 0));
    assert_eq!(slots(&other, 4, 9).await.has, 2, "as many as there are");
}

/// Of a limit that has become a rate, nodes that were told otherwise before still hold slots: they count until they are given
/// back, however long that takes, and a rate says nothing of how many there are.
pub async fn hv_68_slots_outlive_a_change_to_a_rate(t: &Table<'_>) {
    let (quiet, other) = (t.bee().await, t.bee().await);
    let term = other.term("queen").await;
    let version = set(&quiet, CALLS, Rule::count(5)).await;
    assert_eq!((slots(&quiet, 1, 3).await.has, slots(&other, 1, 1).await.has), (3, 1));
    let rate = Request::Set { limit: CALLS.into(), was: Some(version), rule: Rule::rate(500, 1000, 100), after_ms: 0 };
    assert!(matches!(quiet.limit(rate).await, Reply::Set { .. }));
    if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
        return;
    }
    let held = slots(&other, 2, 9).await;
    assert_eq!((held.has, held.free, held.max), (2, 0, 5), "as many as there were");
    t.step_clock(600_001).await;
    assert_eq!(other.call(sweep(&term)).await, HiveReply::Swept { events: 0, buckets: 0 }, "some are held");
    assert_eq!(slots(&other, 3, 9).await.has, 2, "those of who says nothing count");
    assert_eq!(slots(&quiet, 2, 0).await.has, 0);
    assert_eq!(slots(&other, 4, 9).await.has, 5);
}

pub async fn hv_68_who_has_not_joined_has_no_slots(t: &Table<'_>) {
    let bee = t.bee().await;
    let undefined = bee.limit(Request::Slots { node: bee.id, asks: asks(1, 1) }).await;
    assert_eq!(undefined, Reply::Slots(vec![Err(Undefined)]));
    set(&bee, CALLS, Rule::count(5)).await;
    assert_eq!(bee.limit(Request::Slots { node: fresh_id(), asks: asks(1, 1) }).await, Reply::Unfit);
    assert_eq!(slots(&bee, 1, 5).await.has, 5);
}
