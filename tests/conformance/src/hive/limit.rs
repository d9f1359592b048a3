//! Rate limits: one bucket for the whole hive.

use futures_util::future::join_all;
use honeyflow_event::Name;
use honeyflow_hive::{
    Reply as HiveReply, Request as HiveRequest, Term,
    contract::limit::{Denial, Denied, Draw, Drawn, Exact, Key, MICRO, Reply, Request, Rule, Undefined, Window},
};

use super::{Bee, HEARTBEAT_MS, NEIGHBOUR, RACERS, TTL_MS, Table};

const API: &str = "api";

/// A second is a permit, so that the time a test takes makes no difference.
fn slow(burst: u64) -> Rule {
    Rule::rate(1, 1000, burst)
}

/// Nothing flows back while a test runs.
fn still(burst: u64) -> Rule {
    Rule::rate(1, 1_000_000_000, burst)
}

pub async fn set(bee: &Bee, limit: &str, rule: Rule) -> u64 {
    match bee.limit(Request::Set { limit: limit.into(), was: None, rule, after_ms: 0 }).await {
        Reply::Set { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

async fn draw(bee: &Bee, key: u128, want: u64, need: u64) -> Drawn {
    let draw = Draw { limit: API.into(), key: Key(key), want, need, book: None };
    match bee.limit(Request::Draw(vec![draw])).await {
        Reply::Drawn { drawn, .. } => drawn[0].expect("defined"),
        other => panic!("{other:?}"),
    }
}

fn cost(limit: &str, key: u128, cost: u64) -> Exact {
    Exact { limit: limit.into(), key: Key(key), cost, window: None }
}

async fn exact(bee: &Bee, takes: Vec<Exact>) -> Result<Vec<u64>, Denied> {
    match bee.limit(Request::Exact { takes, peek: false }).await {
        Reply::Admitted { left, .. } => Ok(left.iter().map(|left| left.pool_u / MICRO).collect()),
        Reply::Denied(denied) => Err(denied),
        other => panic!("{other:?}"),
    }
}

async fn ledger(bee: &Bee, limit: &str) -> Vec<(u128, u64)> {
    match bee.limit(Request::Ledger { limit: limit.into(), max: 100 }).await {
        Reply::Ledger(rows) => rows.iter().map(|row| (row.key.0, row.issued_u / MICRO)).collect(),
        other => panic!("{other:?}"),
    }
}

pub async fn hv_71_a_limit_is_defined_once(t: &Table<'_>) {
    let bee = t.bee().await;
    let undefined = Draw { limit: API.into(), key: Key(1), want: 1, need: 1, book: None };
    let Reply::Drawn { drawn, .. } = bee.limit(Request::Draw(vec![undefined])).await else { panic!("not drawn") };
    assert_eq!(drawn, [Err(Undefined)]);
    let denied = exact(&bee, vec![cost(API, 1, 1)]).await;
    assert_eq!(denied, Err(Denied { at: 0, version: 0, why: Denial::Undefined }));
    let bees = t.bees(RACERS).await;
    let define = Request::Set { limit: API.into(), was: None, rule: still(10), after_ms: 0 };
    let replies = join_all(bees.iter().map(|bee| bee.limit(define.clone()))).await;
    assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Set { version: 1, .. })).count(), 1, "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| **reply == Reply::Raced).count(), RACERS - 1, "{replies:?}");
    assert_eq!(bee.beat().await.head.limits, 1, "every bee is told");
    let Reply::Limits { hive_ms, version: 1, limits } = bee.limit(Request::Limits).await else { panic!("no limits") };
    assert_eq!((limits.len(), &*limits[0].name, limits[0].now.rule, limits[0].next), (1, API, still(10), None));
    assert!(limits[0].now.effective_ms <= hive_ms, "a first one holds at once");
    draw(&bee, 1, 1, 1).await;
}

pub async fn hv_71_a_change_comes_into_force_later(t: &Table<'_>) {
    let bee = t.bee().await;
    assert_eq!(set(&bee, API, still(40)).await, 1);
    let change = |was, rule| Request::Set { limit: API.into(), was, rule, after_ms: 0 };
    assert_eq!(bee.limit(change(None, still(4))).await, Reply::Raced);
    assert_eq!(bee.limit(change(Some(7), still(4))).await, Reply::Raced);
    let Reply::Set { version: 2, effective_ms } = bee.limit(change(Some(1), still(4))).await else { panic!("not set") };
    let Reply::Limits { hive_ms, limits, .. } = bee.limit(Request::Limits).await else { panic!("no limits") };
    let wait_ms = effective_ms - hive_ms;
    assert!(wait_ms <= 2 * HEARTBEAT_MS && wait_ms + 1500 > 2 * HEARTBEAT_MS, "two heartbeats: {wait_ms}");
    assert_eq!(limits[0].now.rule, still(40));
    assert_eq!(limits[0].next.map(|next| next.rule), Some(still(4)));
    let pending = bee.limit(change(Some(2), still(9))).await;
    assert!(matches!(pending, Reply::Pending { .. }), "one change at a time: {pending:?}");
    let drawn = draw(&bee, 1, 0, 15).await;
    assert_eq!((drawn.granted, drawn.version), (15, 1), "the old one is in force, for a new bucket too");
    if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
        return;
    }
    let drawn = draw(&bee, 1, 0, 3).await;
    assert_eq!((drawn.granted, drawn.version), (0, 2), "5 were left, the new pool holds 2");
    assert_eq!(draw(&bee, 1, 0, 2).await.granted, 2);
    let Reply::Limits { limits, .. } = bee.limit(Request::Limits).await else { panic!("no limits") };
    assert_eq!((limits[0].now.rule, limits[0].now.version, limits[0].next), (still(4), 2, None));
    bee.beat().await;
    assert!(matches!(bee.limit(change(Some(2), still(80))).await, Reply::Set { version: 3, .. }));
    assert_eq!(draw(&bee, 2, 0, 2).await.version, 2);
}

pub async fn hv_61_a_draw_gives_half_the_pool_or_a_need_whole(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, still(200)).await;
    assert_eq!(draw(&bee, 1, 80, 1).await.granted, 50, "half of a pool of 100");
    assert_eq!(draw(&bee, 1, 10, 1).await.granted, 10, "as much as is wanted");
    let drawn = draw(&bee, 1, 10, 30).await;
    assert_eq!((drawn.granted, drawn.pool_u / MICRO), (30, 10), "a need is met whole");
    let dry = draw(&bee, 1, 10, 30).await;
    assert_eq!(dry.granted, 0, "or not at all");
    assert!(dry.retry_ms.is_some_and(|wait_ms| wait_ms > 0), "{dry:?}");
    let never = draw(&bee, 1, 0, 101).await;
    assert_eq!((never.granted, never.retry_ms), (0, None), "more than the pool ever holds");
    assert_eq!(draw(&bee, 2, 0, 100).await.granted, 100, "each key has its own");
    let draws = [3_u128, 4].map(|key| Draw { limit: API.into(), key: Key(key), want: 5, need: 0, book: None }).to_vec();
    let Reply::Drawn { drawn, .. } = bee.limit(Request::Draw(draws)).await else { panic!("not drawn") };
    assert!(drawn.iter().all(|drawn| drawn.is_ok_and(|drawn| drawn.granted == 5)));
    assert_eq!(ledger(&bee, API).await, [(2, 100), (1, 90), (3, 5), (4, 5)], "most issued first");
}

pub async fn hv_61_the_pool_fills_at_its_rate(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, slow(200)).await;
    assert_eq!(draw(&bee, 1, 0, 100).await.granted, 100);
    let dry = draw(&bee, 1, 0, 20).await;
    assert_eq!(dry.granted, 0);
    assert!(dry.retry_ms.is_some_and(|wait_ms| (15_000..=20_000).contains(&wait_ms)), "{dry:?}");
    if !t.step_clock(20_000).await {
        return;
    }
    assert_eq!(draw(&bee, 1, 0, 20).await.granted, 20);
    assert_eq!(draw(&bee, 1, 0, 20).await.granted, 0);
    t.step_clock(86_400_000).await;
    assert_eq!(draw(&bee, 1, 0, 101).await.granted, 0, "a full pool is half the burst");
    assert_eq!(draw(&bee, 1, 0, 100).await.granted, 100);
    // Back and on again: nothing is given twice, nothing stops.
    t.step_clock(-3_600_000).await;
    assert_eq!(draw(&bee, 1, 0, 10).await.granted, 0);
    t.step_clock(10_000).await;
    assert_eq!(draw(&bee, 1, 0, 10).await.granted, 10);
}

pub async fn hv_61_many_draws_at_once_give_no_more(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], API, still(400)).await;
    let drawn = join_all(bees.iter().map(|bee| async move {
        let mut drawn = 0;
        for _ in 0..15 {
            drawn += draw(bee, 7, 0, 3).await.granted;
        }
        drawn
    }))
    .await;
    assert_eq!(drawn.iter().sum::<u64>(), 198, "of 200, in threes: {drawn:?}");
    assert_eq!(ledger(&bees[0], API).await, [(7, 198)]);
}

pub async fn hv_65_exact_admits_to_the_last_permit(t: &Table<'_>) {
    let bee = t.bee().await;
    let version = set(&bee, API, Rule::rate(3, 3_600_000, 3)).await;
    for left in [2, 1, 0] {
        assert_eq!(exact(&bee, vec![cost(API, 1, 1)]).await, Ok(vec![left]));
    }
    let denied = exact(&bee, vec![cost(API, 1, 1)]).await.expect_err("the fourth");
    assert_eq!((denied.at, denied.version), (0, version));
    let Denial::Empty { retry_ms, .. } = denied.why else { panic!("{denied:?}") };
    assert!((1_100_000..=1_200_000).contains(&retry_ms), "{retry_ms}");
    assert_eq!(exact(&bee, vec![cost(API, 2, 3)]).await, Ok(vec![0]), "each key has its own");
    let large = exact(&bee, vec![cost(API, 3, 4)]).await.expect_err("more than the burst");
    assert_eq!(large.why, Denial::TooLarge);
    if t.step_clock(retry_ms.cast_signed()).await {
        assert_eq!(exact(&bee, vec![cost(API, 1, 1)]).await, Ok(vec![0]), "when it was told to");
        assert!(exact(&bee, vec![cost(API, 1, 1)]).await.is_err());
    }
}

pub async fn hv_65_many_at_once_are_counted_exactly(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], API, still(10)).await;
    let admitted = join_all(bees.iter().map(|bee| async move {
        let mut admitted = 0;
        for _ in 0..5 {
            admitted += usize::from(exact(bee, vec![cost(API, 1, 1)]).await.is_ok());
        }
        admitted
    }))
    .await;
    assert_eq!(admitted.iter().sum::<usize>(), 10, "{admitted:?}");
}

pub async fn hv_65_a_calendar_quota_begins_anew_with_its_window(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, "quota", Rule::count(2)).await;
    let now_ms = bee.view().await.head.hive_ms;
    let at =
        |start_ms: u64, end_ms: u64| vec![Exact { window: Some(Window { start_ms, end_ms }), ..cost("quota", 1, 1) }];
    let day = 86_400_000;
    let this = at(now_ms - day, now_ms + day);
    assert_eq!(exact(&bee, this.clone()).await, Ok(vec![1]));
    assert_eq!(exact(&bee, this.clone()).await, Ok(vec![0]));
    let denied = exact(&bee, this.clone()).await.expect_err("empty");
    assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms <= day && retry_ms + 60_000 > day));
    let other = exact(&bee, at(now_ms - 2 * day, now_ms - day)).await.expect_err("over");
    assert!(matches!(other.why, Denial::OtherWindow { .. }), "{other:?}");
    let other = exact(&bee, at(now_ms + day, now_ms + 2 * day)).await.expect_err("to come");
    assert!(matches!(other.why, Denial::OtherWindow { .. }), "{other:?}");
    // Of nodes that were told another calendar: what was filled for one window is not filled again for another.
    for (before_ms, after_ms) in [(2 * day, 2 * day), (1_000, 60_000)] {
        let denied = exact(&bee, at(now_ms - before_ms, now_ms + after_ms)).await.expect_err("no window of its own");
        assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms + 60_000 > day), "{denied:?}");
    }
    if !t.step_clock(day.cast_signed() + 1_000).await {
        return;
    }
    let now_ms = bee.view().await.head.hive_ms;
    let next = at(now_ms - 500, now_ms + 2 * day);
    assert_eq!(exact(&bee, next.clone()).await, Ok(vec![1]), "a day later");
    assert_eq!(bee.limit(Request::Refund(this)).await, Reply::Done);
    let Reply::Admitted { left, .. } = bee.limit(Request::Exact { takes: next.clone(), peek: true }).await else {
        panic!("denied")
    };
    assert_eq!(left[0].pool_u, MICRO, "what is given back belongs to its window");
    assert_eq!(exact(&bee, next).await, Ok(vec![0]));
    // Back over the edge.
    t.step_clock(-2_000).await;
    let now_ms = bee.view().await.head.hive_ms;
    let denied = exact(&bee, at(now_ms - day, now_ms + 60_000)).await.expect_err("the day before is over");
    assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms > day), "{denied:?}");
}

/// Raised, the difference is there at once; lowered, what was used stays used, also what is more than there may be now.
pub async fn hv_71_a_quota_that_changes_in_its_window_counts_what_was_used(t: &Table<'_>) {
    let bee = t.bee().await;
    let mut version = set(&bee, "quota", Rule::count(10)).await;
    let day = 86_400_000;
    let now_ms = bee.view().await.head.hive_ms;
    let window = Window { start_ms: now_ms - day, end_ms: now_ms + day };
    let take = |window, permits| vec![Exact { window: Some(window), ..cost("quota", 1, permits) }];
    assert_eq!(exact(&bee, take(window, 6)).await, Ok(vec![4]));
    for (max, left) in [(20, 14), (8, 2), (5, 0), (20, 14), (5, 0)] {
        let change = Request::Set { limit: "quota".into(), was: Some(version), rule: Rule::count(max), after_ms: 0 };
        let Reply::Set { version: set, .. } = bee.limit(change).await else { panic!("not set") };
        version = set;
        if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
            return;
        }
        bee.beat().await;
        let peek = bee.limit(Request::Exact { takes: take(window, 0), peek: true }).await;
        let Reply::Admitted { left: found, .. } = peek else { panic!("{peek:?}") };
        assert_eq!(found[0].pool_u / MICRO, left, "{max}");
        let denied = exact(&bee, take(window, left + 1)).await.expect_err("one more than is left");
        assert_eq!(denied.version, version, "{max}");
    }
    assert_eq!(bee.limit(Request::Refund(vec![cost("quota", 1, 1)])).await, Reply::Done);
    exact(&bee, take(window, 1)).await.expect_err("five are used, of five");
    assert_eq!(bee.limit(Request::Refund(vec![cost("quota", 1, 2)])).await, Reply::Done);
    assert_eq!(exact(&bee, take(window, 2)).await, Ok(vec![0]));
}

pub async fn hv_69_peek_takes_nothing_and_refund_gives_back(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, still(5)).await;
    let peek = async |permits| bee.limit(Request::Exact { takes: vec![cost(API, 1, permits)], peek: true }).await;
    assert!(matches!(peek(5).await, Reply::Admitted { left, .. } if left[0].pool_u == 5 * MICRO));
    assert_eq!(exact(&bee, vec![cost(API, 1, 4)]).await, Ok(vec![1]));
    assert!(matches!(peek(2).await, Reply::Denied(_)));
    bee.limit(Request::Refund(vec![cost(API, 1, 3)])).await;
    assert!(matches!(peek(0).await, Reply::Admitted { left, .. } if left[0].pool_u / MICRO == 4));
    bee.limit(Request::Refund(vec![cost(API, 1, 100), cost(API, 9, 1)])).await;
    assert!(
        matches!(peek(0).await, Reply::Admitted { left, .. } if left[0].pool_u == 5 * MICRO),
        "never beyond the burst"
    );
    assert_eq!(exact(&bee, vec![cost(API, 1, 0)]).await, Ok(vec![5]), "a cost of nothing");
}

pub async fn hv_70_several_limits_are_all_or_nothing(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, "a", still(5)).await;
    set(&bee, "b", still(2)).await;
    let both = || vec![cost("a", 1, 2), cost("b", 1, 1)];
    assert_eq!(exact(&bee, both()).await, Ok(vec![3, 1]));
    assert_eq!(exact(&bee, both()).await, Ok(vec![1, 0]));
    let denied = exact(&bee, vec![cost("b", 1, 1), cost("a", 1, 1)]).await.expect_err("one has none");
    assert_eq!(denied.at, 0);
    assert_eq!(exact(&bee, vec![cost("a", 1, 1)]).await, Ok(vec![0]), "the other was left alone");
    let twice = exact(&bee, vec![cost("a", 2, 3), cost("a", 2, 3)]).await;
    assert!(twice.is_err_and(|denied| denied.at == 1), "the same bucket twice counts twice");
    assert_eq!(exact(&bee, vec![cost("a", 2, 5)]).await, Ok(vec![0]));
    let unknown = exact(&bee, vec![cost("b", 2, 1), cost("c", 1, 1)]).await.expect_err("not defined");
    assert_eq!((unknown.at, unknown.why), (1, Denial::Undefined));
    assert_eq!(exact(&bee, vec![cost("b", 2, 2)]).await, Ok(vec![0]));
}

pub async fn hv_70_opposite_orders_do_not_lock_each_other_out(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], "a", still(1000)).await;
    set(&bees[0], "b", still(1000)).await;
    let admitted = join_all(bees.iter().enumerate().map(|(n, bee)| async move {
        for _ in 0..10 {
            let mut takes = vec![cost("a", 1, 1), cost("b", 1, 1)];
            if n % 2 == 0 {
                takes.reverse();
            }
            exact(bee, takes).await.expect("enough for all");
        }
        10
    }))
    .await;
    assert_eq!(admitted.iter().sum::<usize>(), RACERS * 10);
    let left = exact(&bees[0], vec![cost("a", 1, 0), cost("b", 1, 0)]).await;
    assert_eq!(left, Ok(vec![1000 - RACERS as u64 * 10; 2]));
}

/// Many that are refused by one limit leave the other as it was.
pub async fn refusal_still_counts_elsewhere(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], "wide", still(100)).await;
    set(&bees[0], "narrow", still(3)).await;
    let takes = bees.iter().map(|bee| exact(bee, vec![cost("wide", 1, 1), cost("narrow", 1, 1)]));
    let admitted = join_all(takes).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(admitted, 3);
    assert_eq!(exact(&bees[0], vec![cost("wide", 1, 0)]).await, Ok(vec![97]));
}

pub async fn double_burst_at_window_edge(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, Rule::rate(10, 10_000, 10)).await;
    assert_eq!(exact(&bee, vec![cost(API, 1, 10)]).await, Ok(vec![0]));
    if !t.step_clock(5_000).await {
        return;
    }
    assert!(exact(&bee, vec![cost(API, 1, 8)]).await.is_err(), "half a window brings half of it back");
    assert!(exact(&bee, vec![cost(API, 1, 5)]).await.is_ok());
}

pub async fn long_window_lost_on_rollout(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, still(3)).await;
    assert_eq!(exact(&bee, vec![cost(API, 1, 3)]).await, Ok(vec![0]));
    bee.call(HiveRequest::Leave { node: bee.id }).await;
    drop(bee);
    let next = t.bee().await;
    assert!(exact(&next, vec![cost(API, 1, 1)]).await.is_err(), "what was admitted is still known");
}

/// A refusal says under which definition, and every beat which one is the newest.
pub async fn deny_cache_outlives_change(t: &Table<'_>) {
    let bee = t.bee().await;
    let first = set(&bee, API, still(1)).await;
    exact(&bee, vec![cost(API, 1, 1)]).await.expect("one");
    let denied = exact(&bee, vec![cost(API, 1, 1)]).await.expect_err("no more");
    assert_eq!((denied.version, bee.beat().await.head.limits), (first, first));
    let change = Request::Set { limit: API.into(), was: Some(first), rule: Rule::rate(1000, 1000, 50), after_ms: 0 };
    assert!(matches!(bee.limit(change).await, Reply::Set { version: 2, .. }));
    assert!(bee.beat().await.head.limits > denied.version);
    if t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 10_000).await {
        let left = exact(&bee, vec![cost(API, 1, 1)]).await;
        assert_eq!(left, Ok(vec![49]), "it has filled under the new one");
    }
}

/// Of what nobody has asked for in ten minutes.
pub fn sweep(term: &Term) -> HiveRequest {
    HiveRequest::Sweep {
        fence: term.fence(),
        event_ms: u64::from(u32::MAX),
        events_max: 10_000,
        idle_ms: 600_000,
        rows_max: 100,
    }
}

pub async fn hv_72_full_and_idle_buckets_are_swept(t: &Table<'_>) {
    let bee = t.bee().await;
    let term = bee.term("queen").await;
    set(&bee, API, slow(20)).await;
    set(&bee, "quiet", still(20)).await;
    draw(&bee, 1, 0, 10).await;
    exact(&bee, vec![cost("quiet", 1, 1)]).await.expect("admitted");
    let sweep = sweep(&term);
    assert_eq!(bee.call(sweep.clone()).await, HiveReply::Swept { events: 0, buckets: 0 }, "not full");
    if !t.step_clock(600_001).await {
        return;
    }
    draw(&bee, 2, 1, 1).await;
    assert_eq!(bee.call(sweep).await, HiveReply::Swept { events: 0, buckets: 1 });
    let left: Vec<u128> = ledger(&bee, API).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, [2]);
    assert_eq!(ledger(&bee, "quiet").await.len(), 1, "idle, but not full");
    let Reply::Limits { limits, .. } = bee.limit(Request::Limits).await else { panic!("no limits") };
    assert_eq!(limits.iter().map(|limit| limit.name.clone()).collect::<Vec<Name>>(), [API.into(), "quiet".into()]);
    assert_eq!(draw(&bee, 1, 0, 10).await.granted, 10, "as if it had never gone");
}

pub async fn hv_4_limits_of_hives_are_apart(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, still(4)).await;
    draw(&bee, 1, 0, 2).await;
    let neighbour = Bee::join(t.rig.open(NEIGHBOUR).await, "bee", TTL_MS).await;
    assert!(exact(&neighbour, vec![cost(API, 1, 1)]).await.is_err());
    set(&neighbour, API, still(40)).await;
    assert_eq!(draw(&neighbour, 1, 0, 20).await.granted, 20);
    assert_eq!(ledger(&bee, API).await, [(1, 2)]);
}
