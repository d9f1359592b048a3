//! Tests of answers that arrive after the limit has changed, or after the caller has gone.

use super::*;

/// Changes the quota, which may change the decider.
fn set(world: &mut World, quota: &str) {
    let terms = Terms::from_definition(&Definition::parse("api", quota).unwrap()).unwrap();
    world.setting.terms = Terms { version: world.setting.terms.version + 1, ..terms };
}

/// HV-71: a decision of the store arrives when the limit is in pool mode already.
#[test]
fn hv_71_after_a_change_to_pool_mode_the_store_is_not_asked_to_decide() {
    let mut world = World::new("3/h");
    for token in 0..65 {
        world.step(token, 1, 10 * SECOND);
    }
    set(&mut world, "1000/s");
    let effects = world.decided(1, 1, 0);
    assert_eq!((granted(&effects), draws(&effects).len()), (vec![0], 1), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Take { .. })), "{effects:?}");
}

/// HV-71: the answer to a draw is spent if the store decides by then. The next draw is made when the limit is in pool
/// mode again.
#[test]
fn hv_71_a_draw_answered_after_a_change_to_exact_mode_does_not_block_later_draws() {
    for is_spent in [false, true] {
        let mut world = World::new("1000/s");
        assert_eq!(draws(&world.ask(1, 1)), [(1, 1)]);
        let started = world.now;
        world.pass(60);
        assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
        set(&mut world, "3/h");
        if is_spent {
            world.key.discard_draw(started, world.now, &world.setting, &world.local, &mut world.effects);
        } else {
            world.drawn(started, 1, 0);
        }
        set(&mut world, "1000/s");
        assert_eq!(draws(&world.ask(2, 1)), [(1, 1)], "spent: {is_spent}");
    }
}

/// HV-68: the store may have answered a request that was in flight when the limit changed.
#[test]
fn hv_68_a_request_for_slots_in_flight_during_a_change_is_corrected() {
    let mut world = World::of(&Definition::slots("workers", 3));
    assert_eq!(world.ask(1, 3), [Effect::Hold { slots: 3 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    assert_eq!(
        world.changed(),
        [Effect::Hold { slots: 0 }],
        "other nodes cannot have slots that the store may have given"
    );
}

/// HV-65: permits that the store took for a caller who has gone go back.
#[test]
fn hv_65_permits_taken_too_late_go_back() {
    let mut world = World::new("3/h");
    assert_eq!(world.ask(1, 2), [Effect::Take { call: 1, cost: 2 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    world.pass(10);
    let effects = world.decided(1, 2, 0);
    assert_eq!(effects, [Effect::GiveBack { permits: 2, origin: Origin::Ledger { until_ns: START } }]);
    assert_eq!(world.decided(1, 0, 60_000), [], "nothing was taken");
}

/// HV-64: a cost above the share's burst is refused at once, and does not block the queue.
#[test]
fn hv_64_a_cost_above_the_shares_burst_is_refused_at_once() {
    let mut world = World::new("1000/s");
    let share = Share::new(world.setting.terms.rate, 4, 25, world.now - SECOND);
    world.setting.mode = Mode::Alone(share);
    assert_eq!(refused(&world.step(1, 26, 3600 * SECOND)), [(1, Reason::Outage)]);
    assert_eq!(granted(&world.step(2, 25, 3600 * SECOND)), [2]);
}

/// Changes the number of slots.
fn set_slots(world: &mut World, max: u64) {
    let terms = Terms::from_definition(&Definition::slots("workers", max)).unwrap();
    world.setting.terms = Terms { version: world.setting.terms.version + 1, ..terms };
}

/// HV-68, HV-71: if the limit is lowered by one while the store does not answer, the node lends one slot less, not
/// none.
#[test]
fn hv_68_a_lower_limit_without_the_store_leaves_the_other_slots_usable() {
    let mut world = World::of(&Definition::slots("workers", 10));
    world.ask(1, 8);
    assert_eq!(granted(&world.holds(START, 8)), [1]);
    world.freed(8);
    world.setting.mode = Mode::Alone(Share::new(world.setting.terms.rate, 4, 25, world.now));
    set_slots(&mut world, 9);
    world.changed();
    assert_eq!(granted(&world.ask(2, 7)), [2]);
    assert!(granted(&world.ask(3, 1)).is_empty());
}

/// HV-68, HV-71: the store uses the higher limit for a moment longer. A slot that came back meanwhile is not lent
/// because of its answer.
#[test]
fn hv_68_a_slot_returned_before_the_store_lowered_the_limit_is_not_lent() {
    let mut world = World::of(&Definition::slots("workers", 10));
    world.ask(1, 5);
    assert_eq!(granted(&world.holds(START, 5)), [1]);
    let before = world.setting.terms.version;
    set_slots(&mut world, 5);
    world.changed();
    let asked = world.now;
    assert_eq!(world.step(2, 1, SECOND), [Effect::Hold { slots: 5 }], "no more than the slots in use");
    world.freed(1);
    let effects = world.answered(asked, SlotsAnswer { has: 5, free: 5, over: 0, version: before });
    assert!(granted(&effects).is_empty(), "{effects:?}");
}
