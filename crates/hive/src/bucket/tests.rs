//! Tests of the arithmetic of buckets, rule by rule.

use super::*;

const START_MS: u64 = 200_000_000_000;

fn definition(rule: Rule) -> Definition {
    Definition { version: 1, rule, effective_ms: START_MS }
}

fn full(rule: Rule) -> Bucket {
    Bucket::fresh(&definition(rule), rule.pool_u(), 0, START_MS)
}

#[test]
fn a_rule_is_in_lowest_terms() {
    assert_eq!(Rule::rate(1000, 1000, 200), Rule { rate_u: MICRO, period_ms: 1, burst_u: 200 * MICRO });
    assert_eq!(Rule::rate(3, 3_600_000, 3), Rule { rate_u: 5, period_ms: 6, burst_u: 3 * MICRO });
    assert_eq!(Rule::rate(1000, 1000, 200).batch_life_ms(), 100);
}

#[test]
fn hv_61_a_draw_gives_at_most_half_the_pool_but_all_of_a_need() {
    let rule = Rule::rate(1000, 1000, 200);
    let definition = definition(rule);
    let mut bucket = full(rule);
    assert_eq!(bucket.draw(&definition, 80, 1, START_MS).granted, 50, "half of the pool of 100");
    assert_eq!(bucket.draw(&definition, 10, 1, START_MS).granted, 10, "all that is wanted");
    assert_eq!(bucket.draw(&definition, 10, 30, START_MS).granted, 30, "all of a need");
    let dry = bucket.draw(&definition, 10, 30, START_MS);
    assert_eq!((dry.granted, dry.retry_ms), (0, Some(20)), "or nothing: {dry:?}");
    assert_eq!(bucket.issued_u, 90 * MICRO);
    assert_eq!(bucket.draw(&definition, 10, 30, START_MS + 20).granted, 30);
}

/// HV-61: for any spacing of the draws, issued(W) ≤ B/2 + L·W.
#[test]
fn hv_61_issued_permits_stay_within_half_the_burst_and_the_rate() {
    let rule = Rule::rate(1000, 1000, 200);
    let definition = definition(rule);
    let mut bucket = full(rule);
    for ms in 0..5000_u64 {
        bucket.draw(&definition, 1 + ms % 90, ms % 7, START_MS + ms);
        assert!(bucket.issued_u <= (100 + ms) * MICRO, "{ms}");
    }
    assert!(bucket.issued_u >= 5000 * MICRO, "and no permits are lost: {}", bucket.issued_u);
}

#[test]
fn hv_66_many_draws_lose_no_part_of_a_permit() {
    for (permits, period_ms) in [(7, 3_600_000), (3, 1000), (999_983, 1000), (11, 60_000)] {
        let rule = Rule::rate(permits, period_ms, permits * 20);
        let definition = definition(rule);
        let mut bucket = full(rule);
        bucket.pool_u = 0;
        let end_ms = START_MS + 10 * period_ms;
        let step = (period_ms / 9973).max(1);
        let mut at_ms = START_MS;
        while at_ms < end_ms {
            at_ms = (at_ms + step).min(end_ms);
            bucket.draw(&definition, 1, 1, at_ms);
        }
        assert_eq!(bucket.issued_u + bucket.pool_u, 10 * permits * MICRO, "{permits} in {period_ms}");
    }
}

#[test]
fn hv_71_a_change_applies_from_its_instant() {
    let (fast, slow) = (Rule::rate(1000, 1000, 2000), Rule::rate(10, 1000, 2000));
    let mut bucket = full(fast);
    bucket.pool_u = 0;
    let changed = Definition { version: 2, rule: slow, effective_ms: START_MS + 100 };
    bucket.draw(&changed, 0, 0, START_MS + 1100);
    assert_eq!(bucket.pool_u, 110 * MICRO, "100 ms of the old rate, a second of the new");
    let small = Definition { version: 3, rule: Rule::rate(10, 1000, 20), effective_ms: START_MS + 1100 };
    bucket.draw(&small, 0, 0, START_MS + 1100);
    assert_eq!(bucket.pool_u, 10 * MICRO, "a lower burst holds at once");
}

#[test]
fn hv_15_a_clock_that_steps_back_neither_fills_nor_stops_a_bucket() {
    let rule = Rule::rate(1000, 1000, 200);
    let definition = definition(rule);
    let mut bucket = full(rule);
    bucket.draw(&definition, 0, 100, START_MS);
    assert_eq!(bucket.draw(&definition, 1, 1, START_MS - 3_600_000).granted, 0);
    assert_eq!(bucket.draw(&definition, 10, 10, START_MS - 3_600_000 + 10).granted, 10);
}

#[test]
fn hv_65_a_window_is_full_once() {
    let definition = definition(Rule::count(3));
    let mut bucket = Bucket::fresh(&definition, definition.rule.burst_u, 0, START_MS);
    let window = Some(Window { start_ms: START_MS, end_ms: START_MS + 1000 });
    for _ in 0..3 {
        assert_eq!(bucket.check_take(&definition, 1, window, START_MS + 1), Ok(()));
        bucket.take(1);
    }
    let denied = bucket.check_take(&definition, 1, window, START_MS + 400);
    assert_eq!(denied, Err(Denial::Empty { pool_u: 0, retry_ms: 600 }));
    let next = Some(Window { start_ms: START_MS + 1000, end_ms: START_MS + 2000 });
    assert_eq!(bucket.check_take(&definition, 3, next, START_MS + 1000), Ok(()));
    assert_eq!(
        bucket.check_take(&definition, 1, window, START_MS + 1000),
        Err(Denial::OtherWindow { hive_ms: START_MS + 1000 })
    );
    assert_eq!(bucket.check_take(&definition, 4, next, START_MS + 1000), Err(Denial::TooLarge));
}

#[test]
fn hv_68_slots_never_exceed_their_number_even_when_it_falls() {
    let mut bucket = Bucket::fresh(&definition(Rule::count(5)), 0, 0, START_MS);
    let five = definition(Rule::count(5));
    assert_eq!(bucket.slots(&five, 0, 4).has, 4);
    assert_eq!(bucket.slots(&five, 0, 4).has, 1, "the last free slot");
    let two = Definition { version: 2, ..definition(Rule::count(2)) };
    assert_eq!(bucket.slots(&two, 4, 3), SlotsHeld { has: 3, free: 0, over: 2, max: 2, version: 2 });
    let asked = bucket.slots(&two, 3, 4);
    assert_eq!(
        (asked.has, asked.over),
        (3, 2),
        "no slot is free, slots in use stay, and the answer says by how many they are over"
    );
    assert_eq!(bucket.slots(&two, 3, 1), SlotsHeld { has: 1, free: 0, over: 0, max: 2, version: 2 });
    assert_eq!(bucket.slots(&two, 1, 2).has, 1, "only as many as the limit has");
    assert_eq!(bucket.slots(&two, 1, 0), SlotsHeld { has: 0, free: 1, over: 0, max: 2, version: 2 });
}

/// HV-68: a rate under the same name does not change the number of slots, and a bucket with held slots is not idle.
#[test]
fn hv_68_slots_keep_their_number_under_a_rate_and_their_bucket_stays() {
    let rate = Definition { version: 2, ..definition(Rule::rate(500, 1000, 100)) };
    let long_after_ms = START_MS + 86_400_000;
    let mut bucket = Bucket::fresh(&definition(Rule::count(5)), 0, 0, START_MS);
    assert_eq!(bucket.slots(&definition(Rule::count(5)), 0, 3).has, 3);
    assert_eq!(bucket.slots(&rate, 0, 9), SlotsHeld { has: 2, free: 0, over: 0, max: 5, version: 2 });
    assert!(!bucket.is_idle(600_000, long_after_ms));
    let mut new = Bucket::fresh(&rate, 0, 0, START_MS);
    assert_eq!(new.slots(&rate, 0, 200).has, 100, "without an earlier number of slots: the burst");
    assert!(!new.is_idle(600_000, long_after_ms));
    assert_eq!(new.slots(&rate, 100, 0).free, 100);
    assert!(new.is_idle(600_000, long_after_ms));
    let three = Definition { version: 3, ..definition(Rule::count(3)) };
    assert_eq!(bucket.slots(&three, 2, 2).over, 2, "under the new number of slots two are over");
}

/// HV-65, HV-71: when a quota changes within its window, the use so far is subtracted from the new quota.
#[test]
fn hv_71_a_quota_that_changes_in_its_window_keeps_its_use() {
    let window = Some(Window { start_ms: START_MS, end_ms: START_MS + 1_000_000 });
    let set = |version, max| Definition { version, ..definition(Rule::count(max)) };
    let mut bucket = Bucket::fresh(&set(1, 10), 10 * MICRO, 0, START_MS);
    bucket.check_take(&set(1, 10), 6, window, START_MS + 1).expect("six of ten");
    bucket.take(6);
    let left = |bucket: &mut Bucket, definition: Definition| {
        let mut copy = *bucket;
        copy.check_take(&definition, 0, window, START_MS + 2).expect("a cost of 0 is always met");
        copy.pool_u / MICRO
    };
    assert_eq!(left(&mut bucket, set(2, 20)), 14, "raised");
    assert_eq!(left(&mut bucket, set(2, 8)), 2, "lowered");
    assert_eq!(left(&mut bucket, set(2, 5)), 0, "below the use so far");
    assert_eq!(left(&mut bucket, set(3, 20)), 14, "raised again: a refusal has not changed the bucket");
    let next = Some(Window { start_ms: START_MS + 1_000_000, end_ms: START_MS + 2_000_000 });
    assert_eq!(bucket.check_take(&set(3, 20), 20, next, START_MS + 1_000_000), Ok(()), "the next window is full");
}

/// HV-65: a bucket is filled again only for a window that begins after the last one has ended.
#[test]
fn hv_65_an_overlapping_window_does_not_refill() {
    let definition = definition(Rule::count(3));
    let mut bucket = Bucket::fresh(&definition, definition.rule.burst_u, 0, START_MS);
    let window = |start_ms, end_ms| Some(Window { start_ms: START_MS + start_ms, end_ms: START_MS + end_ms });
    let mut admitted = 0;
    // The clock goes over midnight and back several times.
    for at_ms in [999, 1000, 999, 1001, 998, 1002] {
        let day = if at_ms < 1000 { window(0, 1000) } else { window(1000, 2000) };
        for _ in 0..10 {
            if bucket.check_take(&definition, 1, day, START_MS + at_ms).is_ok() {
                bucket.take(1);
                admitted += 1;
            }
        }
    }
    assert_eq!(admitted, 6, "three for each of two days");
    // Some nodes use an hour, others a day.
    for wide in [window(0, 24_000), window(1000, 2000), window(0, 24_000)] {
        let denied = bucket.check_take(&definition, 1, wide, START_MS + 1_500);
        let Err(Denial::Empty { pool_u: 0, retry_ms }) = denied else { panic!("{denied:?}") };
        assert!(retry_ms >= 500, "not before the end of the window that it was filled for: {retry_ms}");
    }
    assert_eq!(bucket.check_take(&definition, 3, window(2000, 3000), START_MS + 2_000), Ok(()));
}

mod proptests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// HI-6: the permits drawn from the pool and the reserved ones are together never more than the rate gives,
        /// plus half the burst.
        #[test]
        fn hi_6_reservations_and_the_pool_share_one_rate(
            asks in prop::collection::vec((0_u64..90, 0_u64..120, 0_u64..40, 0_u64..900, 1_u64..5), 1..200)
        ) {
            let rule = Rule::rate(1000, 1000, 200);
            let definition = definition(rule);
            let (mut bucket, mut at_ms, mut drawn_u) = (full(rule), START_MS, 0);
            let mut reserved_u = std::collections::BTreeMap::new();
            for (after_ms, want, need, reserve, weight) in asks {
                at_ms += after_ms;
                let reserve = (reserve > 0).then_some(ReservationRequest { want: reserve, weight });
                let ask = Draw { limit: "api".into(), key: crate::contract::limit::Key(1), want, need, reserve };
                let drawn = bucket.draw_and_reserve(&definition, &ask, at_ms);
                // Draws all that there is, always before the pool is full, so that any excess is seen.
                let rest = bucket.draw(&definition, 0, drawn.pool_u / MICRO, at_ms).granted;
                drawn_u += (drawn.granted + rest) * MICRO;
                *reserved_u.entry(at_ms / SECOND_MS + 1).or_insert(0) += drawn.reserved * MICRO;
                prop_assert!(reserved_u.values().all(|reserved_u| *reserved_u <= rule.reservable_u()), "{reserved_u:?}");
                let flown = |(slot, reserved_u): (&u64, &u64)| {
                    reserved_u / SECOND_MS * at_ms.saturating_sub(slot * SECOND_MS).min(SECOND_MS)
                };
                let flown_u: u64 = reserved_u.iter().map(flown).sum();
                let most_u = rule.pool_u() + (at_ms - START_MS) * rule.rate_u;
                prop_assert!(drawn_u + flown_u <= most_u, "{drawn_u} and {flown_u}, {most_u} at most");
            }
        }

        /// HV-60: if the store's clock goes back, even often and far, then by any other clock the permits drawn from
        /// the pool and the reserved ones are no more than the rate gives, plus half the burst.
        #[test]
        fn hv_60_a_clock_that_goes_back_gives_nothing_twice(
            asks in prop::collection::vec((0_u64..90, 0_u64..8_000, 0_u64..4_000), 1..300)
        ) {
            let rule = Rule::rate(1000, 1000, 200);
            let definition = definition(rule);
            let (mut bucket, mut hive_ms, mut passed_ms, mut drawn_u) = (full(rule), START_MS, 0, 0);
            let mut reserved: Vec<(u64, u64)> = Vec::new();
            for (after_ms, reserve, back) in asks {
                // Always before the pool is full. Sometimes the clock goes back, mostly by less than a second.
                match back {
                    ..3_800 => (passed_ms, hive_ms) = (passed_ms + after_ms, hive_ms + after_ms),
                    3_800..3_980 => hive_ms -= (back - 3_800) * 5,
                    _ => hive_ms -= back,
                }
                let reserve = (reserve < 970).then_some(ReservationRequest { want: reserve, weight: 1 });
                let ask = Draw { limit: "api".into(), key: crate::contract::limit::Key(1), want: 0, need: 0, reserve };
                let drawn = bucket.draw_and_reserve(&definition, &ask, hive_ms);
                // Draws all that there is, so that any excess is seen.
                drawn_u += bucket.draw(&definition, 0, drawn.pool_u / MICRO, hive_ms).granted * MICRO;
                reserved.push((passed_ms + drawn.begins_ms, drawn.reserved * MICRO));
                let flown_u: u64 = reserved
                    .iter()
                    .map(|(from_ms, reserved_u)| reserved_u / SECOND_MS * passed_ms.saturating_sub(*from_ms).min(SECOND_MS))
                    .sum();
                let most_u = rule.pool_u() + passed_ms * rule.rate_u;
                prop_assert!(drawn_u + flown_u <= most_u, "{drawn_u} and {flown_u}, {most_u} at most");
            }
        }
    }

    #[test]
    fn hv_63_a_clock_that_went_back_far_is_followed() {
        let rule = Rule::rate(1000, 1000, 200);
        let definition = definition(rule);
        let ask = |want| Draw {
            limit: "api".into(),
            key: crate::contract::limit::Key(1),
            want: 0,
            need: 0,
            reserve: Some(ReservationRequest { want, weight: 1 }),
        };
        let mut bucket = full(rule);
        assert_eq!(bucket.draw_and_reserve(&definition, &ask(970), START_MS).reserved, 970);
        let back_ms = START_MS - 3_600_000;
        let seconds =
            (0..4).map(|second| bucket.draw_and_reserve(&definition, &ask(970), back_ms + second * SECOND_MS));
        let reserved: Vec<u64> = seconds.map(|drawn| drawn.reserved).collect();
        assert_eq!(reserved, [0, 0, 970, 970], "older reservations end within two seconds");
    }
}
