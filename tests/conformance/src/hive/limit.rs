//! Rate limits and quotas: one bucket for the whole hive.

use futures_util::future::join_all;
use honeyflow_event::Name;
use honeyflow_hive::{
    Term,
    contract::limit::{
        Denial, DeniedTake, Draw, DrawOutcome, ExactTake, Key, MICRO, Reply, Request, Rule, UndefinedLimit, Window,
    },
};

use super::{HEARTBEAT_MS, NEIGHBOUR, RACERS, TTL_MS, TestContext, TestMember};

const API: &str = "api";

/// One permit per second: the time that a test takes makes no difference.
fn slow_rule(burst: u64) -> Rule {
    Rule::rate(1, 1000, burst)
}

/// A rule whose bucket does not refill while a test runs.
fn still_rule(burst: u64) -> Rule {
    Rule::rate(1, 1_000_000_000, burst)
}

pub async fn set(member: &TestMember, limit: &str, rule: Rule) -> u64 {
    match member.limit(Request::Set { limit: limit.into(), was: None, rule, after_ms: 0 }).await {
        Reply::Set { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

async fn draw(member: &TestMember, key: u128, want: u64, need: u64) -> DrawOutcome {
    let draw = Draw { limit: API.into(), key: Key(key), want, need, reserve: None };
    match member.limit(Request::Draw(vec![draw])).await {
        Reply::Drawn { drawn, .. } => drawn[0].expect("defined"),
        other => panic!("{other:?}"),
    }
}

fn cost(limit: &str, key: u128, cost: u64) -> ExactTake {
    ExactTake { limit: limit.into(), key: Key(key), cost, window: None }
}

async fn exact(member: &TestMember, takes: Vec<ExactTake>) -> Result<Vec<u64>, DeniedTake> {
    match member.limit(Request::Exact { takes, peek: false }).await {
        Reply::Admitted { left, .. } => Ok(left.iter().map(|left| left.pool_u / MICRO).collect()),
        Reply::Denied(denied) => Err(denied),
        other => panic!("{other:?}"),
    }
}

async fn ledger(member: &TestMember, limit: &str) -> Vec<(u128, u64)> {
    match member.limit(Request::Ledger { limit: limit.into(), max: 100 }).await {
        Reply::Ledger(rows) => rows.iter().map(|row| (row.key.0, row.issued_u / MICRO)).collect(),
        other => panic!("{other:?}"),
    }
}

pub async fn hv_71_a_limit_is_defined_once(t: &TestContext<'_>) {
    let member = t.member().await;
    let undefined = Draw { limit: API.into(), key: Key(1), want: 1, need: 1, reserve: None };
    let Reply::Drawn { drawn, .. } = member.limit(Request::Draw(vec![undefined])).await else { panic!("not drawn") };
    assert_eq!(drawn, [Err(UndefinedLimit)]);
    let denied = exact(&member, vec![cost(API, 1, 1)]).await;
    assert_eq!(denied, Err(DeniedTake { at: 0, version: 0, why: Denial::Undefined }));
    let members = t.members(RACERS).await;
    let define = Request::Set { limit: API.into(), was: None, rule: still_rule(10), after_ms: 0 };
    let replies = join_all(members.iter().map(|member| member.limit(define.clone()))).await;
    assert_eq!(replies.iter().filter(|reply| matches!(reply, Reply::Set { version: 1, .. })).count(), 1, "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| **reply == Reply::Raced).count(), RACERS - 1, "{replies:?}");
    assert_eq!(member.beat().await.head.limits, 1, "every member learns it");
    let Reply::Limits { hive_ms, version: 1, limits } = member.limit(Request::Limits).await else {
        panic!("no limits")
    };
    assert_eq!((limits.len(), &*limits[0].name, limits[0].now.rule, limits[0].next), (1, API, still_rule(10), None));
    assert!(limits[0].now.effective_ms <= hive_ms, "a first definition holds at once");
    draw(&member, 1, 1, 1).await;
}

pub async fn hv_71_a_change_takes_effect_later(t: &TestContext<'_>) {
    let member = t.member().await;
    assert_eq!(set(&member, API, still_rule(40)).await, 1);
    let change = |was, rule| Request::Set { limit: API.into(), was, rule, after_ms: 0 };
    assert_eq!(member.limit(change(None, still_rule(4))).await, Reply::Raced);
    assert_eq!(member.limit(change(Some(7), still_rule(4))).await, Reply::Raced);
    let Reply::Set { version: 2, effective_ms } = member.limit(change(Some(1), still_rule(4))).await else {
        panic!("not set")
    };
    let Reply::Limits { hive_ms, limits, .. } = member.limit(Request::Limits).await else { panic!("no limits") };
    let wait_ms = effective_ms - hive_ms;
    assert!(wait_ms <= 2 * HEARTBEAT_MS && wait_ms + 1500 > 2 * HEARTBEAT_MS, "two heartbeats: {wait_ms}");
    assert_eq!(limits[0].now.rule, still_rule(40));
    assert_eq!(limits[0].next.map(|next| next.rule), Some(still_rule(4)));
    let pending = member.limit(change(Some(2), still_rule(9))).await;
    assert!(matches!(pending, Reply::Pending { .. }), "one change at a time: {pending:?}");
    let drawn = draw(&member, 1, 0, 15).await;
    assert_eq!((drawn.granted, drawn.version), (15, 1), "the old definition is in force, for a new bucket, too");
    if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
        return;
    }
    let drawn = draw(&member, 1, 0, 3).await;
    assert_eq!((drawn.granted, drawn.version), (0, 2), "5 permits were left, the new pool holds 2");
    assert_eq!(draw(&member, 1, 0, 2).await.granted, 2);
    let Reply::Limits { limits, .. } = member.limit(Request::Limits).await else { panic!("no limits") };
    assert_eq!((limits[0].now.rule, limits[0].now.version, limits[0].next), (still_rule(4), 2, None));
    member.beat().await;
    assert!(matches!(member.limit(change(Some(2), still_rule(80))).await, Reply::Set { version: 3, .. }));
    assert_eq!(draw(&member, 2, 0, 2).await.version, 2);
}

pub async fn hv_61_a_draw_gives_half_the_pool_or_a_whole_need(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, still_rule(200)).await;
    assert_eq!(draw(&member, 1, 80, 1).await.granted, 50, "half of a pool of 100");
    assert_eq!(draw(&member, 1, 10, 1).await.granted, 10, "all that was wanted");
    let drawn = draw(&member, 1, 10, 30).await;
    assert_eq!((drawn.granted, drawn.pool_u / MICRO), (30, 10), "a need is met completely");
    let dry = draw(&member, 1, 10, 30).await;
    assert_eq!(dry.granted, 0, "a need is not met in part");
    assert!(dry.retry_ms.is_some_and(|wait_ms| wait_ms > 0), "{dry:?}");
    let never = draw(&member, 1, 0, 101).await;
    assert_eq!((never.granted, never.retry_ms), (0, None), "more than the pool ever holds");
    assert_eq!(draw(&member, 2, 0, 100).await.granted, 100, "each key has its own bucket");
    let draws =
        [3_u128, 4].map(|key| Draw { limit: API.into(), key: Key(key), want: 5, need: 0, reserve: None }).to_vec();
    let Reply::Drawn { drawn, .. } = member.limit(Request::Draw(draws)).await else { panic!("not drawn") };
    assert!(drawn.iter().all(|drawn| drawn.is_ok_and(|drawn| drawn.granted == 5)));
    assert_eq!(ledger(&member, API).await, [(2, 100), (1, 90), (3, 5), (4, 5)], "sorted by permits issued");
}

pub async fn hv_61_the_pool_fills_at_its_rate(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, slow_rule(200)).await;
    assert_eq!(draw(&member, 1, 0, 100).await.granted, 100);
    let dry = draw(&member, 1, 0, 20).await;
    assert_eq!(dry.granted, 0);
    assert!(dry.retry_ms.is_some_and(|wait_ms| (15_000..=20_000).contains(&wait_ms)), "{dry:?}");
    if !t.step_clock(20_000).await {
        return;
    }
    assert_eq!(draw(&member, 1, 0, 20).await.granted, 20);
    assert_eq!(draw(&member, 1, 0, 20).await.granted, 0);
    t.step_clock(86_400_000).await;
    assert_eq!(draw(&member, 1, 0, 101).await.granted, 0, "a full pool is half the burst");
    assert_eq!(draw(&member, 1, 0, 100).await.granted, 100);
    // The clock goes back and on again: no permit is given twice, and the flow does not stop.
    t.step_clock(-3_600_000).await;
    assert_eq!(draw(&member, 1, 0, 10).await.granted, 0);
    t.step_clock(10_000).await;
    assert_eq!(draw(&member, 1, 0, 10).await.granted, 10);
}

pub async fn hv_61_concurrent_draws_give_no_more_than_the_pool(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], API, still_rule(400)).await;
    let drawn = join_all(members.iter().map(|member| async move {
        let mut drawn = 0;
        for _ in 0..15 {
            drawn += draw(member, 7, 0, 3).await.granted;
        }
        drawn
    }))
    .await;
    assert_eq!(drawn.iter().sum::<u64>(), 198, "of 200 permits, three at a time: {drawn:?}");
    assert_eq!(ledger(&members[0], API).await, [(7, 198)]);
}

pub async fn hv_65_exact_admits_to_the_last_permit(t: &TestContext<'_>) {
    let member = t.member().await;
    let version = set(&member, API, Rule::rate(3, 3_600_000, 3)).await;
    for left in [2, 1, 0] {
        assert_eq!(exact(&member, vec![cost(API, 1, 1)]).await, Ok(vec![left]));
    }
    let denied = exact(&member, vec![cost(API, 1, 1)]).await.expect_err("the fourth");
    assert_eq!((denied.at, denied.version), (0, version));
    let Denial::Empty { retry_ms, .. } = denied.why else { panic!("{denied:?}") };
    assert!((1_100_000..=1_200_000).contains(&retry_ms), "{retry_ms}");
    assert_eq!(exact(&member, vec![cost(API, 2, 3)]).await, Ok(vec![0]), "each key has its own bucket");
    let large = exact(&member, vec![cost(API, 3, 4)]).await.expect_err("more than the burst");
    assert_eq!(large.why, Denial::TooLarge);
    if t.step_clock(retry_ms.cast_signed()).await {
        assert_eq!(exact(&member, vec![cost(API, 1, 1)]).await, Ok(vec![0]), "after the time that the denial named");
        assert!(exact(&member, vec![cost(API, 1, 1)]).await.is_err());
    }
}

pub async fn hv_65_concurrent_takes_are_counted_exactly(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], API, still_rule(10)).await;
    let admitted = join_all(members.iter().map(|member| async move {
        let mut admitted = 0;
        for _ in 0..5 {
            admitted += usize::from(exact(member, vec![cost(API, 1, 1)]).await.is_ok());
        }
        admitted
    }))
    .await;
    assert_eq!(admitted.iter().sum::<usize>(), 10, "{admitted:?}");
}

pub async fn hv_65_a_calendar_quota_restarts_with_its_window(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, "quota", Rule::count(2)).await;
    let now_ms = member.view().await.head.hive_ms;
    let at = |start_ms: u64, end_ms: u64| {
        vec![ExactTake { window: Some(Window { start_ms, end_ms }), ..cost("quota", 1, 1) }]
    };
    let day = 86_400_000;
    let this = at(now_ms - day, now_ms + day);
    assert_eq!(exact(&member, this.clone()).await, Ok(vec![1]));
    assert_eq!(exact(&member, this.clone()).await, Ok(vec![0]));
    let denied = exact(&member, this.clone()).await.expect_err("empty");
    assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms <= day && retry_ms + 60_000 > day));
    let other = exact(&member, at(now_ms - 2 * day, now_ms - day)).await.expect_err("over");
    assert!(matches!(other.why, Denial::OtherWindow { .. }), "{other:?}");
    let other = exact(&member, at(now_ms + day, now_ms + 2 * day)).await.expect_err("to come");
    assert!(matches!(other.why, Denial::OtherWindow { .. }), "{other:?}");
    // Nodes with another calendar configured: a quota that was filled for one window is not filled again for another.
    for (before_ms, after_ms) in [(2 * day, 2 * day), (1_000, 60_000)] {
        let denied = exact(&member, at(now_ms - before_ms, now_ms + after_ms)).await.expect_err("no window of its own");
        assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms + 60_000 > day), "{denied:?}");
    }
    if !t.step_clock(day.cast_signed() + 1_000).await {
        return;
    }
    let now_ms = member.view().await.head.hive_ms;
    let next = at(now_ms - 500, now_ms + 2 * day);
    assert_eq!(exact(&member, next.clone()).await, Ok(vec![1]), "a day later");
    assert_eq!(member.limit(Request::Refund(this)).await, Reply::Done);
    let Reply::Admitted { left, .. } = member.limit(Request::Exact { takes: next.clone(), peek: true }).await else {
        panic!("denied")
    };
    assert_eq!(left[0].pool_u, MICRO, "a refund belongs to its window");
    assert_eq!(exact(&member, next).await, Ok(vec![0]));
    // The clock goes back over the edge of the window.
    t.step_clock(-2_000).await;
    let now_ms = member.view().await.head.hive_ms;
    let denied = exact(&member, at(now_ms - day, now_ms + 60_000)).await.expect_err("the day before is over");
    assert!(matches!(denied.why, Denial::Empty { retry_ms, .. } if retry_ms > day), "{denied:?}");
}

/// When the quota is raised, the difference is available at once. When it is lowered, used permits stay used, even more
/// than the new quota allows.
pub async fn hv_71_a_quota_that_changes_in_its_window_counts_what_was_used(t: &TestContext<'_>) {
    let member = t.member().await;
    let mut version = set(&member, "quota", Rule::count(10)).await;
    let day = 86_400_000;
    let now_ms = member.view().await.head.hive_ms;
    let window = Window { start_ms: now_ms - day, end_ms: now_ms + day };
    let take = |window, permits| vec![ExactTake { window: Some(window), ..cost("quota", 1, permits) }];
    assert_eq!(exact(&member, take(window, 6)).await, Ok(vec![4]));
    for (max, left) in [(20, 14), (8, 2), (5, 0), (20, 14), (5, 0)] {
        let change = Request::Set { limit: "quota".into(), was: Some(version), rule: Rule::count(max), after_ms: 0 };
        let Reply::Set { version: set, .. } = member.limit(change).await else { panic!("not set") };
        version = set;
        if !t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 1).await {
            return;
        }
        member.beat().await;
        let peek = member.limit(Request::Exact { takes: take(window, 0), peek: true }).await;
        let Reply::Admitted { left: found, .. } = peek else { panic!("{peek:?}") };
        assert_eq!(found[0].pool_u / MICRO, left, "{max}");
        let denied = exact(&member, take(window, left + 1)).await.expect_err("one more than remains");
        assert_eq!(denied.version, version, "{max}");
    }
    assert_eq!(member.limit(Request::Refund(vec![cost("quota", 1, 1)])).await, Reply::Done);
    exact(&member, take(window, 1)).await.expect_err("all five are used");
    assert_eq!(member.limit(Request::Refund(vec![cost("quota", 1, 2)])).await, Reply::Done);
    assert_eq!(exact(&member, take(window, 2)).await, Ok(vec![0]));
}

pub async fn hv_69_peek_takes_nothing_and_refund_gives_back(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, still_rule(5)).await;
    let peek = async |permits| member.limit(Request::Exact { takes: vec![cost(API, 1, permits)], peek: true }).await;
    assert!(matches!(peek(5).await, Reply::Admitted { left, .. } if left[0].pool_u == 5 * MICRO));
    assert_eq!(exact(&member, vec![cost(API, 1, 4)]).await, Ok(vec![1]));
    assert!(matches!(peek(2).await, Reply::Denied(_)));
    member.limit(Request::Refund(vec![cost(API, 1, 3)])).await;
    assert!(matches!(peek(0).await, Reply::Admitted { left, .. } if left[0].pool_u / MICRO == 4));
    member.limit(Request::Refund(vec![cost(API, 1, 100), cost(API, 9, 1)])).await;
    assert!(
        matches!(peek(0).await, Reply::Admitted { left, .. } if left[0].pool_u == 5 * MICRO),
        "never beyond the burst"
    );
    assert_eq!(exact(&member, vec![cost(API, 1, 0)]).await, Ok(vec![5]), "a cost of 0");
}

pub async fn hv_70_several_limits_are_all_or_nothing(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, "a", still_rule(5)).await;
    set(&member, "b", still_rule(2)).await;
    let both = || vec![cost("a", 1, 2), cost("b", 1, 1)];
    assert_eq!(exact(&member, both()).await, Ok(vec![3, 1]));
    assert_eq!(exact(&member, both()).await, Ok(vec![1, 0]));
    let denied = exact(&member, vec![cost("b", 1, 1), cost("a", 1, 1)]).await.expect_err("one limit is exhausted");
    assert_eq!(denied.at, 0);
    assert_eq!(exact(&member, vec![cost("a", 1, 1)]).await, Ok(vec![0]), "the other limit is unchanged");
    let twice = exact(&member, vec![cost("a", 2, 3), cost("a", 2, 3)]).await;
    assert!(twice.is_err_and(|denied| denied.at == 1), "the same bucket twice counts twice");
    assert_eq!(exact(&member, vec![cost("a", 2, 5)]).await, Ok(vec![0]));
    let unknown = exact(&member, vec![cost("b", 2, 1), cost("c", 1, 1)]).await.expect_err("not defined");
    assert_eq!((unknown.at, unknown.why), (1, Denial::Undefined));
    assert_eq!(exact(&member, vec![cost("b", 2, 2)]).await, Ok(vec![0]));
}

pub async fn hv_70_opposite_orders_do_not_deadlock(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], "a", still_rule(1000)).await;
    set(&members[0], "b", still_rule(1000)).await;
    let admitted = join_all(members.iter().enumerate().map(|(n, member)| async move {
        for _ in 0..10 {
            let mut takes = vec![cost("a", 1, 1), cost("b", 1, 1)];
            if n % 2 == 0 {
                takes.reverse();
            }
            exact(member, takes).await.expect("enough for all");
        }
        10
    }))
    .await;
    assert_eq!(admitted.iter().sum::<usize>(), RACERS * 10);
    let left = exact(&members[0], vec![cost("a", 1, 0), cost("b", 1, 0)]).await;
    assert_eq!(left, Ok(vec![1000 - RACERS as u64 * 10; 2]));
}

/// Takes that one limit refuses leave the other limit as it was.
pub async fn refusal_still_counts_elsewhere(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], "wide", still_rule(100)).await;
    set(&members[0], "narrow", still_rule(3)).await;
    let takes = members.iter().map(|member| exact(member, vec![cost("wide", 1, 1), cost("narrow", 1, 1)]));
    let admitted = join_all(takes).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(admitted, 3);
    assert_eq!(exact(&members[0], vec![cost("wide", 1, 0)]).await, Ok(vec![97]));
}

pub async fn double_burst_at_window_edge(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, Rule::rate(10, 10_000, 10)).await;
    assert_eq!(exact(&member, vec![cost(API, 1, 10)]).await, Ok(vec![0]));
    if !t.step_clock(5_000).await {
        return;
    }
    assert!(exact(&member, vec![cost(API, 1, 8)]).await.is_err(), "half of the permits are back after half a window");
    assert!(exact(&member, vec![cost(API, 1, 5)]).await.is_ok());
}

pub async fn long_window_lost_on_rollout(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, still_rule(3)).await;
    assert_eq!(exact(&member, vec![cost(API, 1, 3)]).await, Ok(vec![0]));
    member.call(honeyflow_hive::Request::Leave { node: member.id }).await;
    drop(member);
    let next = t.member().await;
    assert!(exact(&next, vec![cost(API, 1, 1)]).await.is_err(), "the store still knows the admitted permits");
}

/// A denial names the definition version it was decided under, and every heartbeat the newest version.
pub async fn deny_cache_outlives_change(t: &TestContext<'_>) {
    let member = t.member().await;
    let first = set(&member, API, still_rule(1)).await;
    exact(&member, vec![cost(API, 1, 1)]).await.expect("one");
    let denied = exact(&member, vec![cost(API, 1, 1)]).await.expect_err("no more");
    assert_eq!((denied.version, member.beat().await.head.limits), (first, first));
    let change = Request::Set { limit: API.into(), was: Some(first), rule: Rule::rate(1000, 1000, 50), after_ms: 0 };
    assert!(matches!(member.limit(change).await, Reply::Set { version: 2, .. }));
    assert!(member.beat().await.head.limits > denied.version);
    if t.step_clock(2 * HEARTBEAT_MS.cast_signed() + 10_000).await {
        let left = exact(&member, vec![cost(API, 1, 1)]).await;
        assert_eq!(left, Ok(vec![49]), "the bucket has filled under the new definition");
    }
}

/// A sweep of buckets that were not used for ten minutes.
pub fn sweep(term: &Term) -> honeyflow_hive::Request {
    honeyflow_hive::Request::Sweep {
        fence: term.fence(),
        event_ms: u64::from(u32::MAX),
        events_max: 10_000,
        idle_ms: 600_000,
        rows_max: 100,
    }
}

pub async fn hv_72_full_and_idle_buckets_are_swept(t: &TestContext<'_>) {
    let member = t.member().await;
    let term = member.term("queen").await;
    set(&member, API, slow_rule(20)).await;
    set(&member, "quiet", still_rule(20)).await;
    draw(&member, 1, 0, 10).await;
    exact(&member, vec![cost("quiet", 1, 1)]).await.expect("admitted");
    let sweep = sweep(&term);
    assert_eq!(member.call(sweep.clone()).await, honeyflow_hive::Reply::Swept { events: 0, buckets: 0 }, "not full");
    if !t.step_clock(600_001).await {
        return;
    }
    draw(&member, 2, 1, 1).await;
    assert_eq!(member.call(sweep).await, honeyflow_hive::Reply::Swept { events: 0, buckets: 1 });
    let left: Vec<u128> = ledger(&member, API).await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, [2]);
    assert_eq!(ledger(&member, "quiet").await.len(), 1, "idle, but not full");
    let Reply::Limits { limits, .. } = member.limit(Request::Limits).await else { panic!("no limits") };
    assert_eq!(limits.iter().map(|limit| limit.name.clone()).collect::<Vec<Name>>(), [API.into(), "quiet".into()]);
    assert_eq!(draw(&member, 1, 0, 10).await.granted, 10, "as if it had not been swept");
}

pub async fn hv_4_limits_of_hives_are_apart(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, still_rule(4)).await;
    draw(&member, 1, 0, 2).await;
    let neighbour = TestMember::join(t.rig.open(NEIGHBOUR).await, "bee", TTL_MS).await;
    assert!(exact(&neighbour, vec![cost(API, 1, 1)]).await.is_err());
    set(&neighbour, API, still_rule(40)).await;
    assert_eq!(draw(&neighbour, 1, 0, 20).await.granted, 20);
    assert_eq!(ledger(&member, API).await, [(1, 2)]);
}
