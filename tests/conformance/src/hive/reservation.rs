//! Reservations of a part of the next second: what the store promises, and that the bucket fills by so much less.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use honeyflow_hive::contract::limit::{
    Draw, DrawOutcome, ExactTake, Key, MICRO, Reply, Request, ReservationRequest, Rule,
};

use super::{RACERS, TestContext, TestMember, limit::set};

const API: &str = "api";
/// Long enough after the hive was created that no earlier reservation matters.
const LATER_MS: i64 = 5_000;

async fn draw(member: &TestMember, key: u128, need: u64, reserve: Option<u64>) -> DrawOutcome {
    draw_with_time(member, key, need, reserve).await.1
}

async fn draw_with_time(member: &TestMember, key: u128, need: u64, reserve: Option<u64>) -> (u64, DrawOutcome) {
    let reserve = reserve.map(|want| ReservationRequest { want, weight: 1 });
    let draw = Draw { limit: API.into(), key: Key(key), want: 0, need, reserve };
    match member.limit(Request::Draw(vec![draw])).await {
        Reply::Drawn { hive_ms, drawn } => (hive_ms, drawn[0].expect("defined")),
        other => panic!("{other:?}"),
    }
}

/// Reserves for all members at the same time, within one second: returns the first key for which no new second began in
/// between, and the outcomes.
async fn reserve_concurrently(members: &[TestMember], want: u64, first_key: u128) -> (u128, Vec<DrawOutcome>) {
    for key in first_key.. {
        let draw_with_time = join_all(members.iter().map(|member| draw_with_time(member, key, 0, Some(want)))).await;
        let (at_ms, reserved): (Vec<u64>, Vec<DrawOutcome>) = draw_with_time.into_iter().unzip();
        let begins = reserved.iter().map(|reserved| reserved.begins_ms);
        let (soonest, latest) = (begins.clone().min(), begins.max());
        assert!(soonest > Some(0) && latest <= Some(1_000), "{reserved:?}");
        let passed_ms = at_ms.iter().max().zip(at_ms.iter().min()).map(|(last, first)| last - first);
        if passed_ms < Some(500) && latest < soonest.map(|soonest| soonest + 500) {
            return (key, reserved);
        }
    }
    unreachable!("keys do not end")
}

pub async fn hv_63_concurrent_reservations_stay_within_the_second(t: &TestContext<'_>) {
    let members = t.members(RACERS).await;
    set(&members[0], API, Rule::rate(1000, 1000, 200)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let (_, reserved) = reserve_concurrently(&members, 300, 1).await;
    let mut permits: Vec<u64> = reserved.iter().map(|reserved| reserved.reserved).collect();
    permits.sort_unstable();
    assert_eq!(permits, [0, 0, 0, 0, 70, 300, 300, 300], "of 970 permits; the rest stays in the pool");
}

pub async fn hv_63_excess_demand_is_split_equally_in_the_second_after(t: &TestContext<'_>) {
    check_equal_parts_in_the_second_after(t, false).await;
}

/// Some nodes ask the store for every request, and are the first to do so in the new second.
pub async fn hv_63_an_exact_take_keeps_what_nodes_have_reserved(t: &TestContext<'_>) {
    check_equal_parts_in_the_second_after(t, true).await;
}

async fn check_equal_parts_in_the_second_after(t: &TestContext<'_>, decides_first: bool) {
    let members = t.members(4).await;
    set(&members[0], API, Rule::rate(1000, 1000, 200)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let (mut first_key, begun) = (1, Instant::now());
    loop {
        let (key, reserved) = reserve_concurrently(&members, 600, first_key).await;
        let (soonest, reserved_at) = (reserved.iter().map(|reserved| reserved.begins_ms).min(), Instant::now());
        // For all members a second has passed. Unless another one began meanwhile, this is the next second.
        t.step_clock(1_000).await;
        if decides_first {
            let take = ExactTake { limit: API.into(), key: Key(key), cost: 1, window: None };
            let decided = members[0].limit(Request::Exact { takes: vec![take], peek: false }).await;
            assert!(matches!(decided, Reply::Admitted { .. }), "{decided:?}");
        }
        let again = join_all(members.iter().map(|member| draw(member, key, 0, Some(600)))).await;
        let latest = again.iter().map(|reserved| reserved.begins_ms).max();
        if reserved_at.elapsed() < Duration::from_millis(500) && latest <= soonest {
            let permits: Vec<u64> = again.iter().map(|reserved| reserved.reserved).collect();
            return assert_eq!(permits, [242; 4], "each gets a quarter of 970");
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "never within a second: {again:?}");
        first_key = key + 1;
    }
}

pub async fn hv_63_reserved_permits_do_not_fill_the_pool(t: &TestContext<'_>) {
    let member = t.member().await;
    // The pool holds what flows in within a second.
    set(&member, API, Rule::rate(1000, 1000, 2000)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    for key in 1.. {
        let (drained_ms, drained) = draw_with_time(&member, key, 1000, Some(970)).await;
        assert_eq!((drained.granted, drained.reserved), (1000, 970), "{drained:?}");
        t.step_clock(1_000).await;
        let (looked_ms, looked) = draw_with_time(&member, key, 0, Some(1)).await;
        // Computed to the millisecond: from the position of each draw in its second, and roughly from the number of
        // seconds between.
        let phases_ms = drained.begins_ms.cast_signed() - looked.begins_ms.cast_signed();
        let jumped_ms = (looked_ms - drained_ms).cast_signed();
        let roughly_ms = if jumped_ms < 1_000 { jumped_ms + 1_000 } else { jumped_ms };
        let passed_ms = phases_ms + (roughly_ms - phases_ms + 500).div_euclid(1_000) * 1_000;
        let reserved_ms = (passed_ms - drained.begins_ms.cast_signed()).clamp(0, 1_000);
        let flowed_u = passed_ms.cast_unsigned() * MICRO - reserved_ms.cast_unsigned() * 970 * MICRO / 1_000;
        // The pool is full again if it was drained early in a second, or if the test was slow.
        if reserved_ms >= 200 && looked.pool_u < 1_000 * MICRO {
            assert_eq!(looked.pool_u, flowed_u, "{passed_ms} ms, {reserved_ms} of them reserved");
            break;
        }
        t.step_clock(50).await;
    }
    t.step_clock(2_000).await;
    let ledger = member.limit(Request::Ledger { limit: API.into(), max: 1 }).await;
    let Reply::Ledger(rows) = ledger else { panic!("{ledger:?}") };
    assert_eq!(rows[0].issued_u, 1971 * MICRO, "reserved permits count as issued when their second has come");
}

/// A node that has reserved permits goes by its own clock, and uses them: all or some of the next second, or all of the
/// present one.
pub async fn hv_60_a_clock_that_went_back_reserves_nothing_twice(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, Rule::rate(1000, 1000, 2000)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let mut keys = 1..;
    for (reserved, has_begun) in [(970, false), (500, false), (970, true)] {
        while !check_step_back(t, &member, keys.next().expect("keys do not end"), reserved, has_begun).await {
            t.step_clock(LATER_MS).await;
        }
    }
}

/// Returns false if a second began by itself in between, so that the case proves nothing.
async fn check_step_back(t: &TestContext<'_>, member: &TestMember, key: u128, reserved: u64, has_begun: bool) -> bool {
    let begun_at = Instant::now();
    let drained = draw(member, key, 1000, Some(reserved)).await;
    assert_eq!((drained.granted, drained.reserved), (1000, reserved), "{drained:?}");
    let mut begins_ms = drained.begins_ms;
    if has_begun {
        t.step_clock(1_000).await;
        let begun = draw(member, key, 0, Some(0)).await;
        if begun.begins_ms > begins_ms {
            return false;
        }
        draw(member, key, begun.pool_u / MICRO, None).await;
        begins_ms = begun.begins_ms;
    }
    t.step_clock(-2_000).await;
    let back = draw(member, key, 0, Some(970)).await;
    assert!(back.reserved == 0 && back.begins_ms > 0, "{reserved} reserved, begun {has_begun}: {back:?}");
    t.step_clock(1_000).await;
    let then = draw(member, key, 0, Some(970)).await;
    t.step_clock(1_000).await;
    let last = draw(member, key, 0, Some(970)).await;
    let begins = [begins_ms, back.begins_ms, then.begins_ms, last.begins_ms];
    if begun_at.elapsed() >= Duration::from_secs(1) || !begins.is_sorted_by(|before, after| before >= after) {
        return false;
    }
    assert_eq!(then.reserved, 970 - reserved, "the rest is reserved already, begun {has_begun}: {then:?}");
    // Computed to the millisecond: from the position of each draw in its second, and the clock was stepped by a second.
    let passed_ms = 1_000 + back.begins_ms - then.begins_ms;
    let (filled_u, free) = (then.pool_u - back.pool_u, 1_000 - reserved);
    assert!(filled_u <= passed_ms * free * MICRO / 1_000, "{filled_u} in {passed_ms} ms, {free} per second are free");
    assert_eq!(last.reserved, 970, "the earlier reservations have ended, begun {has_begun}");
    true
}

pub async fn hv_63_a_small_or_slow_limit_is_not_reserved(t: &TestContext<'_>) {
    let member = t.member().await;
    set(&member, API, Rule::rate(1000, 1000, 79)).await;
    let drawn = draw(&member, 1, 1, Some(100)).await;
    assert_eq!((drawn.reserved, drawn.version), (0, 1));
}
