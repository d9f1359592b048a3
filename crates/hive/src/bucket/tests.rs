//! The arithmetic of buckets, rule by rule.

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
fn hv_61_a_draw_gives_at_most_half_the_pool_but_a_need_whole() {
    let rule = Rule::rate(1000, 1000, 200);
    let definition = definition(rule);
    let mut bucket = full(rule);
    assert_eq!(bucket.draw(&definition, 80, 1, START_MS).granted, 50, "half of the pool of 100");
    assert_eq!(bucket.draw(&definition, 10, 1, START_MS).granted, 10, "as much as is wanted");
    assert_eq!(bucket.draw(&definition, 10, 30, START_MS).granted, 30, "a need is met whole");
    let dry = bucket.draw(&definition, 10, 30, START_MS);
    assert_eq!((dry.granted, dry.retry_ms), (0, Some(20)), "or not at all: {dry:?}");
    assert_eq!(bucket.issued_u, 90 * MICRO);
    assert_eq!(bucket.draw(&definition, 10, 30, START_MS + 20).granted, 30);
}

/// HV-61: however draws are spaced, issued(W) ≤ B/2 + L·W.
#[test]
fn hv_61_what_is_issued_keeps_to_half_the_burst_and_the_rate() {
    let rule = Rule::rate(1000, 1000, 200);
    let definition = definition(rule);
    let mut bucket = full(rule);
    for ms in 0..5000_u64 {
        bucket.draw(&definition, 1 + ms % 90, ms % 7, START_MS + ms);
        assert!(bucket.issued_u <= (100 + ms) * MICRO, "{ms}");
    }
    assert!(bucket.issued_u >= 5000 * MICRO, "and nothing is withheld: {}", bucket.issued_u);
}

#[test]
fn hv_66_no_number_of_draws_loses_anything() {
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
fn hv_71_a_change_counts_from_its_instant() {
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
        assert_eq!(bucket.ask(&definition, 1, window, START_MS + 1), Ok(()));
        bucket.take(1);
    }
    let denied = bucket.ask(&definition, 1, window, START_MS + 400);
    assert_eq!(denied, Err(Denial::Empty { pool_u: 0, retry_ms: 600 }));
    let next = Some(Window { start_ms: START_MS + 1000, end_ms: START_MS + 2000 });
    assert_eq!(bucket.ask(&definition, 3, next, START_MS + 1000), Ok(()));
    assert_eq!(
        bucket.ask(&definition, 1, window, START_MS + 1000),
        Err(Denial::OtherWindow { hive_ms: START_MS + 1000 })
    );
    assert_eq!(bucket.ask(&definition, 4, next, START_MS + 1000), Err(Denial::TooLarge));
}

#[test]
fn hv_68_slots_never_exceed_their_number_even_when_it_falls() {
    let mut bucket = Bucket::fresh(&definition(Rule::count(5)), 0, 0, START_MS);
    let five = definition(Rule::count(5));
    assert_eq!(bucket.slots(&five, 0, 4).has, 4);
    assert_eq!(bucket.slots(&five, 0, 4).has, 1, "what is left");
    let two = Definition { version: 2, ..definition(Rule::count(2)) };
    assert_eq!(bucket.slots(&two, 4, 3), SlotsHeld { has: 3, free: 0, over: 2, max: 2, version: 2 });
    let asked = bucket.slots(&two, 3, 4);
    assert_eq!((asked.has, asked.over), (3, 2), "nothing is free, nothing is torn away, and everybody is told");
    assert_eq!(bucket.slots(&two, 3, 1), SlotsHeld { has: 1, free: 0, over: 0, max: 2, version: 2 });
    assert_eq!(bucket.slots(&two, 1, 2).has, 1, "as many as there are");
    assert_eq!(bucket.slots(&two, 1, 0), SlotsHeld { has: 0, free: 1, over: 0, max: 2, version: 2 });
}

/// HV-68: what some nodes were told of a rate says nothing of how many at once, and what is held is not idle.
#[test]
fn hv_68_slots_under_a_rate_stay_as_many_and_stay_known() {
    let rate = Definition { version: 2, ..definition(Rule::rate(500, 1000, 100)) };
    let long_after_ms = START_MS + 86_400_000;
    let mut bucket = Bucket::fresh(&definition(Rule::count(5)), 0, 0, START_MS);
    assert_eq!(bucket.slots(&definition(Rule::count(5)), 0, 3).has, 3);
    assert_eq!(bucket.slots(&rate, 0, 9), SlotsHeld { has: 2, free: 0, over: 0, max: 5, version: 2 });
    assert!(!bucket.is_idle(600_000, long_after_ms));
    let mut new = Bucket::fresh(&rate, 0, 0, START_MS);
    assert_eq!(new.slots(&rate, 0, 200).has, 100, "where nobody ever said how many: what may come at once");
    assert!(!new.is_idle(600_000, long_after_ms));
    assert_eq!(new.slots(&rate, 100, 0).free, 100);
    assert!(new.is_idle(600_000, long_after_ms));
    let three = Definition { version: 3, ..definition(Rule::count(3)) };
    assert_eq!(bucket.slots(&three, 2, 2).over, 2, "until there are so many at once again");
}

/// HV-65, HV-71: a quota that is raised within its window leaves what was added, one that is lowered what is not used.
#[test]
fn hv_71_a_quota_that_changes_in_its_window_counts_what_was_used() {
    let window = Some(Window { start_ms: START_MS, end_ms: START_MS + 1_000_000 });
    let set = |version, max| Definition { version, ..definition(Rule::count(max)) };
    let mut bucket = Bucket::fresh(&set(1, 10), 10 * MICRO, 0, START_MS);
    bucket.ask(&set(1, 10), 6, window, START_MS + 1).expect("six of ten");
    bucket.take(6);
    let left = |bucket: &mut Bucket, definition: Definition| {
        let mut copy = *bucket;
        copy.ask(&definition, 0, window, START_MS + 2).expect("nothing is always there");
        copy.pool_u / MICRO
    };
    assert_eq!(left(&mut bucket, set(2, 20)), 14, "raised");
    assert_eq!(left(&mut bucket, set(2, 8)), 2, "lowered");
    assert_eq!(left(&mut bucket, set(2, 5)), 0, "below what was used");
    assert_eq!(left(&mut bucket, set(3, 20)), 14, "and up again: a refusal has left the bucket as it was");
    let next = Some(Window { start_ms: START_MS + 1_000_000, end_ms: START_MS + 2_000_000 });
    assert_eq!(bucket.ask(&set(3, 20), 20, next, START_MS + 1_000_000), Ok(()), "the next one is whole");
}

/// HV-65: only a window that begins after the one before has ended is full again.
#[test]
fn hv_65_no_other_window_refills() {
    let definition = definition(Rule::count(3));
    let mut bucket = Bucket::fresh(&definition, definition.rule.burst_u, 0, START_MS);
    let window = |start_ms, end_ms| Some(Window { start_ms: START_MS + start_ms, end_ms: START_MS + end_ms });
    let mut admitted = 0;
    // Over midnight and back, again and again.
    for at_ms in [999, 1000, 999, 1001, 998, 1002] {
        let day = if at_ms < 1000 { window(0, 1000) } else { window(1000, 2000) };
        for _ in 0..10 {
            if bucket.ask(&definition, 1, day, START_MS + at_ms).is_ok() {
                bucket.take(1);
                admitted += 1;
            }
        }
    }
    assert_eq!(admitted, 6, "three for each of two days");
    // An hour for some, a day for others.
    for wide in [window(0, 24_000), window(1000, 2000), window(0, 24_000)] {
        let denied = bucket.ask(&definition, 1, wide, START_MS + 1_500);
        let Err(Denial::Empty { pool_u: 0, retry_ms }) = denied else { panic!("{denied:?}") };
        assert!(retry_ms >= 500, "not before the window that it was filled for has ended: {retry_ms}");
    }
    assert_eq!(bucket.ask(&definition, 3, window(2000, 3000), START_MS + 2_000), Ok(()));
}

mod proptests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// HI-6: what is given out of the pool and what flows to those who have booked is together never more than the
        /// limit lets flow, and half a burst.
        #[test]
        fn hi_6_bookings_and_the_pool_share_one_rate(
            asks in prop::collection::vec((0_u64..90, 0_u64..120, 0_u64..40, 0_u64..900, 1_u64..5), 1..200)
        ) {
            let rule = Rule::rate(1000, 1000, 200);
            let definition = definition(rule);
            let (mut bucket, mut at_ms, mut drawn_u) = (full(rule), START_MS, 0);
            let mut booked_u = std::collections::BTreeMap::new();
            for (after_ms, want, need, book, weight) in asks {
                at_ms += after_ms;
                let book = (book > 0).then_some(Book { want: book, weight });
                let ask = Draw { limit: "api".into(), key: crate::contract::limit::Key(1), want, need, book };
                let drawn = bucket.answer(&definition, &ask, at_ms);
                // All that there is, and always before the pool is full: whatever is given too much is seen.
                let rest = bucket.draw(&definition, 0, drawn.pool_u / MICRO, at_ms).granted;
                drawn_u += (drawn.granted + rest) * MICRO;
                *booked_u.entry(at_ms / SLOT_MS + 1).or_insert(0) += drawn.booked * MICRO;
                prop_assert!(booked_u.values().all(|booked_u| *booked_u <= rule.bookable_u()), "{booked_u:?}");
                let flown = |(slot, booked_u): (&u64, &u64)| {
                    booked_u / SLOT_MS * at_ms.saturating_sub(slot * SLOT_MS).min(SLOT_MS)
                };
                let flown_u: u64 = booked_u.iter().map(flown).sum();
                let most_u = rule.pool_u() + (at_ms - START_MS) * rule.rate_u;
                prop_assert!(drawn_u + flown_u <= most_u, "{drawn_u} and {flown_u}, {most_u} at most");
            }
        }

        /// HV-60: wherever the store's clock goes back to, and however often: by everybody else's clock, what is given out of
        /// the pool and what has come of the bookings is no more than the limit lets flow, and half a burst.
        #[test]
        fn hv_60_a_clock_that_goes_back_gives_nothing_twice(
            asks in prop::collection::vec((0_u64..90, 0_u64..8_000, 0_u64..4_000), 1..300)
        ) {
            let rule = Rule::rate(1000, 1000, 200);
            let definition = definition(rule);
            let (mut bucket, mut hive_ms, mut passed_ms, mut drawn_u) = (full(rule), START_MS, 0, 0);
            let mut booked: Vec<(u64, u64)> = Vec::new();
            for (after_ms, book, back) in asks {
                // Always before the pool is full; at times back instead of on, and mostly by less than a second.
                match back {
                    ..3_800 => (passed_ms, hive_ms) = (passed_ms + after_ms, hive_ms + after_ms),
                    3_800..3_980 => hive_ms -= (back - 3_800) * 5,
                    _ => hive_ms -= back,
                }
                let book = (book < 970).then_some(Book { want: book, weight: 1 });
                let ask = Draw { limit: "api".into(), key: crate::contract::limit::Key(1), want: 0, need: 0, book };
                let drawn = bucket.answer(&definition, &ask, hive_ms);
                // All that there is: whatever flows in too much is seen.
                drawn_u += bucket.draw(&definition, 0, drawn.pool_u / MICRO, hive_ms).granted * MICRO;
                booked.push((passed_ms + drawn.begins_ms, drawn.booked * MICRO));
                let flown_u: u64 = booked
                    .iter()
                    .map(|(from_ms, booked_u)| booked_u / SLOT_MS * passed_ms.saturating_sub(*from_ms).min(SLOT_MS))
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
            book: Some(Book { want, weight: 1 }),
        };
        let mut bucket = full(rule);
        assert_eq!(bucket.answer(&definition, &ask(970), START_MS).booked, 970);
        let back_ms = START_MS - 3_600_000;
        let seconds = (0..4).map(|second| bucket.answer(&definition, &ask(970), back_ms + second * SLOT_MS));
        let booked: Vec<u64> = seconds.map(|drawn| drawn.booked).collect();
        assert_eq!(booked, [0, 0, 970, 970], "what was booked before ends within two seconds");
    }
}
