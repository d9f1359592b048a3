//! Concurrency limits: slots that nodes take and give back.

use futures_util::future::join_all;
use honeyflow_hive::contract::limit::{Key, Reply, Request, Rule, Slots, SlotsHeld, UndefinedLimit};

use super::{
    HEARTBEAT_MS, RACERS, TestContext, TestMember,
    limit::{set, sweep},
    test_member::fresh_id,
};

const CALLS: &str = "calls";

fn slot_requests(seq: u64, wants: u64) -> Vec<Slots> {
    vec![Slots { limit: CALLS.into(), key: Key(1), seq, wants }]
}

async fn slots(member: &TestMember, seq: u64, wants: u64) -> SlotsHeld {
    match member.limit(Request::Slots { node: member.id, asks: slot_requests(seq, wants) }).await {
        Reply::Slots(held) => held[0].expect("defined"),
        other => panic!("{other:?}"),
    }
}

pub async fn hv_68_slots_never_exceed_their_number(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], CALLS, Rule::count(10)).await;
    let has = join_all(members.iter().map(|member| async move {
        let mut has = 0;
        for seq in 1..=5 {
            has = slots(member, seq, seq).await.has;
        }
        has
    }))
    .await;
    assert_eq!(has.iter().sum::<u64>(), 10, "{has:?}");
    let held = slots(&members[0], 6, 0).await;
    assert_eq!((held.has, held.free, held.max), (0, has[0], 10));
    assert_eq!(slots(&members[1], 6, 100).await.has, has[1] + has[0], "it gets the free slots");
}

/// A request without an answer is sent again, and a late one changes nothing.
pub async fn hv_68_a_request_for_slots_may_be_repeated(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, CALLS, Rule::count(5)).await;
    for _ in 0..3 {
        let held = slots(&member, 1, 3).await;
        assert_eq!((held.has, held.free), (3, 2));
    }
    assert_eq!(slots(&member, 2, 1).await.has, 1);
    assert_eq!(slots(&member, 1, 3).await.has, 1, "late");
    assert_eq!(slots(&member, 3, 9).await.has, 5);
}

pub async fn hv_68_slots_of_removed_nodes_return(t: &TestContext<'_>) {
    let (member, dead, gone) = (t.member().await, t.member().await, t.member().await);
    set(&member, CALLS, Rule::count(6)).await;
    assert_eq!(slots(&dead, 1, 3).await.has, 3);
    assert_eq!(slots(&gone, 1, 2).await.has, 2);
    assert_eq!(slots(&member, 1, 6).await.has, 1);
    assert!(member.removes(dead.id, 1, true).await);
    assert_eq!(slots(&member, 2, 6).await.has, 4);
    gone.call(honeyflow_hive::Request::Leave { node: gone.id }).await;
    let held = slots(&member, 3, 6).await;
    assert_eq!((held.has, held.free), (6, 0));
}

/// The store remembers a node's last request as long as an earlier one may still arrive, and then forgets it.
pub async fn hv_72_a_row_without_slots_is_swept(t: &TestContext<'_>) {
    let member = t.member().await;
    let term = member.term("queen").await;
    set(&member, CALLS, Rule::count(5)).await;
    let sweep = |idle_ms| honeyflow_hive::Request::Sweep {
        fence: term.fence(),
        event_ms: u64::from(u32::MAX),
        events_max: 10_000,
        idle_ms,
        rows_max: 100,
    };
    assert_eq!(slots(&member, 7, 3).await.has, 3);
    assert_eq!(
        member.call(sweep(0)).await,
        honeyflow_hive::Reply::Swept { events: 0, buckets: 0 },
        "the node holds slots"
    );
    assert_eq!(slots(&member, 8, 0).await.has, 0);
    assert_eq!(
        member.call(sweep(600_000)).await,
        honeyflow_hive::Reply::Swept { events: 0, buckets: 1 },
        "the total is 0"
    );
    assert_eq!(slots(&member, 7, 3).await.has, 0, "the store knows that it is late");
    assert_eq!(
        member.call(sweep(0)).await,
        honeyflow_hive::Reply::Swept { events: 0, buckets: 2 },
        "the node holds none"
    );
    assert_eq!(member.call(sweep(0)).await, honeyflow_hive::Reply::Swept { events: 0, buckets: 0 });
    assert_eq!(slots(&member, 1, 3).await.has, 3, "the store has forgotten the node's requests");
}

/// No node loses slots in use; but every node learns that there are fewer.
pub async fn hv_68_a_lower_number_of_slots_reaches_every_node(t: &TestContext<'_>) {
    let (one, other) = (t.member().await, t.member().await);
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
    assert_eq!((held.has, held.free, held.over), (4, 0, 5), "no node gets more");
    assert_eq!(slots(&other, 3, 1).await.over, 2);
    let held = slots(&one, 4, 3).await;
    assert_eq!((held.has, held.free, held.over), (3, 1, 0));
    assert_eq!(slots(&other, 4, 9).await.has, 2, "it gets the free slots");
}

/// When a concurrency limit becomes a rate, nodes that have not learned it still hold slots. These count until they are
/// given back, however long that takes, and a rate does not say how many there are.
pub async fn hv_68_slots_outlive_a_change_to_a_rate(t: &TestContext<'_>) {
    let (quiet, other) = (t.member().await, t.member().await);
    let term = other.term("queen").await;
    let version = set(&quiet, CALLS, Rule::count(5)).await;
    assert_eq!((slots(&quiet, 1, 3).await.has, slots(&other, 1, 1).await.has), (3, 1));
    let rate = Request::Set { limit: CALLS.into(), was: Some(version), rule: Rule::rate(500, 1000, 100), after_ms: 0 };
    assert!(matches!(quiet.limit(rate).await, Reply::Set { .. }));
    if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
        return;
    }
    let held = slots(&other, 2, 9).await;
    assert_eq!((held.has, held.free, held.max), (2, 0, 5), "the old number of slots holds");
    t.step_clock(600_001).await;
    assert_eq!(
        other.call(sweep(&term)).await,
        honeyflow_hive::Reply::Swept { events: 0, buckets: 0 },
        "some slots are held"
    );
    assert_eq!(slots(&other, 3, 9).await.has, 2, "the slots of a silent node count");
    assert_eq!(slots(&quiet, 2, 0).await.has, 0);
    assert_eq!(slots(&other, 4, 9).await.has, 5);
}

pub async fn hv_68_a_node_that_has_not_joined_gets_no_slots(t: &TestContext<'_>) {
    let member = t.member().await;
    let undefined = member.limit(Request::Slots { node: member.id, asks: slot_requests(1, 1) }).await;
    assert_eq!(undefined, Reply::Slots(vec![Err(UndefinedLimit)]));
    set(&member, CALLS, Rule::count(5)).await;
    assert_eq!(member.limit(Request::Slots { node: fresh_id(), asks: slot_requests(1, 1) }).await, Reply::Unfit);
    assert_eq!(slots(&member, 1, 5).await.has, 5);
}
