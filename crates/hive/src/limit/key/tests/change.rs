//! Answers that come after the limit has changed, or after whoever asked has gone.

use super::*;

/// Of another kind from now on: few, or many.
fn set(world: &mut World, quota: &str) {
    let terms = Terms::of(&Definition::parse("api", quota).unwrap()).unwrap();
    world.setting.terms = Terms { version: world.setting.terms.version + 1, ..terms };
}

/// HV-71: the answer to a decision of the store finds that batches are drawn now.
#[test]
fn hv_71_a_decision_that_lands_under_a_pool_asks_no_store_to_decide() {
    let mut world = World::new("3/h");
    for token in 0..65 {
        world.step(token, 1, 10 * SECOND);
    }
    set(&mut world, "1000/s");
    let effects = world.decided(1, 1, 0);
    assert_eq!((granted(&effects), draws(&effects).len()), (vec![0], 1), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Take { .. })), "{effects:?}");
}

/// HV-71: an answer to a draw that lands while the store decides is spent, and the next draw is made once there is a pool
/// again.
#[test]
fn hv_71_a_draw_that_lands_while_the_store_decides_is_over() {
    for is_spent in [false, true] {
        let mut world = World::new("1000/s");
        assert_eq!(draws(&world.ask(1, 1)), [(1, 1)]);
        let started = world.now;
        world.pass(60);
        assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
        set(&mut world, "3/h");
        if is_spent {
            world.key.spent(started, world.now, &world.setting, &world.stock, &mut world.effects);
        } else {
            world.drawn(started, 1, 0);
        }
        set(&mut world, "1000/s");
        assert_eq!(draws(&world.ask(2, 1)), [(1, 1)], "spent: {is_spent}");
    }
}

/// HV-68: a question that was under way when the limit changed may have been answered.
#[test]
fn hv_68_a_question_that_is_not_waited_for_is_asked_again() {
    let mut world = World::of(&Definition::slots("workers", 3));
    assert_eq!(world.ask(1, 3), [Effect::Hold { slots: 3 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    assert_eq!(world.changed(), [Effect::Hold { slots: 0 }], "nobody else can have what the store may have given");
}

/// HV-65: what the store took for somebody who has gone goes back.
#[test]
fn hv_65_what_was_taken_too_late_goes_back() {
    let mut world = World::new("3/h");
    assert_eq!(world.ask(1, 2), [Effect::Take { call: 1, cost: 2 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    world.pass(10);
    let effects = world.decided(1, 2, 0);
    assert_eq!(effects, [Effect::GiveBack { permits: 2, origin: Origin::Ledger { until_ns: START } }]);
    assert_eq!(world.decided(1, 0, 60_000), [], "nothing was taken");
}

/// HV-64: more than the share ever holds is refused for what it is, and nobody behind it waits.
#[test]
fn hv_64_more_than_the_share_holds_is_refused_at_once() {
    let mut world = World::new("1000/s");
    let share = Share::new(world.setting.terms.rate, 4, 25, world.now - SECOND);
    world.setting.footing = Footing::Alone(share);
    assert_eq!(refused(&world.step(1, 26, 3600 * SECOND)), [(1, Reason::Outage)]);
    assert_eq!(granted(&world.step(2, 25, 3600 * SECOND)), [2]);
}

/// So many at once from now on.
fn set_slots(world: &mut World, max: u64) {
    let terms = Terms::of(&Definition::slots("workers", max)).unwrap();
    world.setting.terms = Terms { version: world.setting.terms.version + 1, ..terms };
}

/// HV-68, HV-71: one less without a store is one less, not none: what a node holds it may lend.
#[test]
fn hv_68_fewer_slots_without_a_store_leave_the_others() {
    let mut world = World::of(&Definition::slots("workers", 10));
    world.ask(1, 8);
    assert_eq!(granted(&world.holds(START, 8)), [1]);
    world.freed(8);
    world.setting.footing = Footing::Alone(Share::new(world.setting.terms.rate, 4, 25, world.now));
    set_slots(&mut world, 9);
    world.changed();
    assert_eq!(granted(&world.ask(2, 7)), [2]);
    assert!(granted(&world.ask(3, 1)).is_empty());
}

/// HV-68, HV-71: the store goes by the higher limit for a moment more; what came back meanwhile is not lent by its word.
#[test]
fn hv_68_what_came_back_before_the_store_knew_is_not_lent() {
    let mut world = World::of(&Definition::slots("workers", 10));
    world.ask(1, 5);
    assert_eq!(granted(&world.holds(START, 5)), [1]);
    let before = world.setting.terms.version;
    set_slots(&mut world, 5);
    world.changed();
    let asked = world.now;
    assert_eq!(world.step(2, 1, SECOND), [Effect::Hold { slots: 5 }], "no more than are in use");
    world.freed(1);
    let effects = world.answered(asked, Holds { has: 5, free: 5, over: 0, version: before });
    assert!(granted(&effects).is_empty(), "{effects:?}");
}
