//! Booking a part of the next second: what is promised, and that the bucket fills by so much less.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use honeyflow_hive::contract::limit::{Book, Draw, Drawn, Exact, Key, MICRO, Reply, Request, Rule};

use super::{Bee, RACERS, Table, limit::set};

const API: &str = "api";
/// Long enough that nothing booked before the hive was made can matter.
const LATER_MS: i64 = 5_000;

async fn draw(bee: &Bee, key: u128, need: u64, book: Option<u64>) -> Drawn {
    told(bee, key, need, book).await.1
}

async fn told(bee: &Bee, key: u128, need: u64, book: Option<u64>) -> (u64, Drawn) {
    let book = book.map(|want| Book { want, weight: 1 });
    let draw = Draw { limit: API.into(), key: Key(key), want: 0, need, book };
    match bee.limit(Request::Draw(vec![draw])).await {
        Reply::Drawn { hive_ms, drawn } => (hive_ms, drawn[0].expect("defined")),
        other => panic!("{other:?}"),
    }
}

/// What each asked for and got, all of it in one second: the first key for which no second began in between.
async fn booked_at_once(bees: &[Bee], want: u64, first_key: u128) -> (u128, Vec<Drawn>) {
    for key in first_key.. {
        let told = join_all(bees.iter().map(|bee| told(bee, key, 0, Some(want)))).await;
        let (at_ms, booked): (Vec<u64>, Vec<Drawn>) = told.into_iter().unzip();
        let begins = booked.iter().map(|booked| booked.begins_ms);
        let (soonest, latest) = (begins.clone().min(), begins.max());
        assert!(soonest > Some(0) && latest <= Some(1_000), "{booked:?}");
        let passed_ms = at_ms.iter().max().zip(at_ms.iter().min()).map(|(last, first)| last - first);
        if passed_ms < Some(500) && latest < soonest.map(|soonest| soonest + 500) {
            return (key, booked);
        }
    }
    unreachable!("keys do not end")
}

pub async fn hv_63_many_at_once_book_no_more_than_there_is(t: &Table<'_>) {
    let bees = t.bees(RACERS).await;
    set(&bees[0], API, Rule::rate(1000, 1000, 200)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let (_, booked) = booked_at_once(&bees, 300, 1).await;
    let mut permits: Vec<u64> = booked.iter().map(|booked| booked.booked).collect();
    permits.sort_unstable();
    assert_eq!(permits, [0, 0, 0, 0, 70, 300, 300, 300], "of 970; the rest stays in the pool");
}

pub async fn hv_63_who_wants_too_much_gets_an_equal_part_of_the_second_after(t: &Table<'_>) {
    gets_an_equal_part_of_the_second_after(t, false).await;
}

/// Some nodes were told to ask the store each time, and are the first to do so in the new second.
pub async fn hv_63_a_decision_of_the_store_forgets_nothing_of_who_booked(t: &Table<'_>) {
    gets_an_equal_part_of_the_second_after(t, true).await;
}

async fn gets_an_equal_part_of_the_second_after(t: &Table<'_>, decides_first: bool) {
    let bees = t.bees(4).await;
    set(&bees[0], API, Rule::rate(1000, 1000, 200)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let (mut first_key, begun) = (1, Instant::now());
    loop {
        let (key, booked) = booked_at_once(&bees, 600, first_key).await;
        let (soonest, booked_at) = (booked.iter().map(|booked| booked.begins_ms).min(), Instant::now());
        // A second has passed on all of them; unless another began meanwhile, this is the next.
        t.step_clock(1_000).await;
        if decides_first {
            let take = Exact { limit: API.into(), key: Key(key), cost: 1, window: None };
            let decided = bees[0].limit(Request::Exact { takes: vec![take], peek: false }).await;
            assert!(matches!(decided, Reply::Admitted { .. }), "{decided:?}");
        }
        let again = join_all(bees.iter().map(|bee| draw(bee, key, 0, Some(600)))).await;
        let latest = again.iter().map(|booked| booked.begins_ms).max();
        if booked_at.elapsed() < Duration::from_millis(500) && latest <= soonest {
            let permits: Vec<u64> = again.iter().map(|booked| booked.booked).collect();
            return assert_eq!(permits, [242; 4], "a quarter of 970 for each");
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "never within a second: {again:?}");
        first_key = key + 1;
    }
}

pub async fn hv_63_what_is_booked_does_not_fill_the_pool(t: &Table<'_>) {
    let bee = t.bee().await;
    // Its pool holds what flows in a second.
    set(&bee, API, Rule::rate(1000, 1000, 2000)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    for key in 1.. {
        let (drained_ms, drained) = told(&bee, key, 1000, Some(970)).await;
        assert_eq!((drained.granted, drained.booked), (1000, 970), "{drained:?}");
        t.step_clock(1_000).await;
        let (looked_ms, looked) = told(&bee, key, 0, Some(1)).await;
        // To the millisecond: where in its second each of them was, and roughly how many seconds lie between.
        let phases_ms = drained.begins_ms.cast_signed() - looked.begins_ms.cast_signed();
        let jumped_ms = (looked_ms - drained_ms).cast_signed();
        let roughly_ms = if jumped_ms < 1_000 { jumped_ms + 1_000 } else { jumped_ms };
        let passed_ms = phases_ms + (roughly_ms - phases_ms + 500).div_euclid(1_000) * 1_000;
        let booked_ms = (passed_ms - drained.begins_ms.cast_signed()).clamp(0, 1_000);
        let flowed_u = passed_ms.cast_unsigned() * MICRO - booked_ms.cast_unsigned() * 970 * MICRO / 1_000;
        // It is full again where it was drained early in a second, or where this took long.
        if booked_ms >= 200 && looked.pool_u < 1_000 * MICRO {
            assert_eq!(looked.pool_u, flowed_u, "{passed_ms} ms, {booked_ms} of them booked");
            break;
        }
        t.step_clock(50).await;
    }
    t.step_clock(2_000).await;
    let ledger = bee.limit(Request::Ledger { limit: API.into(), max: 1 }).await;
    let Reply::Ledger(rows) = ledger else { panic!("{ledger:?}") };
    assert_eq!(rows[0].issued_u, 1971 * MICRO, "what was booked counts as issued, once it has come");
}

/// Whoever has booked goes by another clock, and uses it: all or some of the next second, or all of the present one.
pub async fn hv_60_a_clock_that_went_back_books_nothing_twice(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, Rule::rate(1000, 1000, 2000)).await;
    if !t.step_clock(LATER_MS).await {
        return;
    }
    let mut keys = 1..;
    for (booked, has_begun) in [(970, false), (500, false), (970, true)] {
        while !goes_back(t, &bee, keys.next().expect("keys do not end"), booked, has_begun).await {
            t.step_clock(LATER_MS).await;
        }
    }
}

/// False if a second began by itself in between, so that nothing can be said.
async fn goes_back(t: &Table<'_>, bee: &Bee, key: u128, booked: u64, has_begun: bool) -> bool {
    let begun_at = Instant::now();
    let drained = draw(bee, key, 1000, Some(booked)).await;
    assert_eq!((drained.granted, drained.booked), (1000, booked), "{drained:?}");
    let mut begins_ms = drained.begins_ms;
    if has_begun {
        t.step_clock(1_000).await;
        let begun = draw(bee, key, 0, Some(0)).await;
        if begun.begins_ms > begins_ms {
            return false;
        }
        draw(bee, key, begun.pool_u / MICRO, None).await;
        begins_ms = begun.begins_ms;
    }
    t.step_clock(-2_000).await;
    let back = draw(bee, key, 0, Some(970)).await;
    assert!(back.booked == 0 && back.begins_ms > 0, "{booked} booked, begun {has_begun}: {back:?}");
    t.step_clock(1_000).await;
    let then = draw(bee, key, 0, Some(970)).await;
    t.step_clock(1_000).await;
    let last = draw(bee, key, 0, Some(970)).await;
    let begins = [begins_ms, back.begins_ms, then.begins_ms, last.begins_ms];
    if begun_at.elapsed() >= Duration::from_secs(1) || !begins.is_sorted_by(|before, after| before >= after) {
        return false;
    }
    assert_eq!(then.booked, 970 - booked, "the rest is booked already, begun {has_begun}: {then:?}");
    // To the millisecond: where in its second each of them was, and a second was stepped.
    let passed_ms = 1_000 + back.begins_ms - then.begins_ms;
    let (filled_u, free) = (then.pool_u - back.pool_u, 1_000 - booked);
    assert!(filled_u <= passed_ms * free * MICRO / 1_000, "{filled_u} in {passed_ms} ms, {free} a second are free");
    assert_eq!(last.booked, 970, "what was booked before has ended, begun {has_begun}");
    true
}

pub async fn hv_63_a_small_or_slow_limit_is_not_booked(t: &Table<'_>) {
    let bee = t.bee().await;
    set(&bee, API, Rule::rate(1000, 1000, 79)).await;
    let drawn = draw(&bee, 1, 1, Some(100)).await;
    assert_eq!((drawn.booked, drawn.version), (0, 1));
}
