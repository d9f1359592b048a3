//! The core of a key, rule by rule. Time moves only as a test says.

mod change;
mod fleet;

use super::*;
use crate::limit::{
    definition::{Definition, OnOutage, SECOND},
    standing::Standing,
};

const START: u64 = 10 * SECOND;

struct World {
    now: u64,
    key: Key<u32>,
    stock: Stock,
    full_at: FullAt,
    setting: Setting,
    effects: Vec<Effect<u32>>,
}

impl World {
    fn new(quota: &str) -> World {
        World::of(&Definition::parse("api", quota).unwrap())
    }

    fn of(definition: &Definition) -> World {
        let terms = Terms::of(definition).unwrap();
        let mut standing = Standing::new(16, 500);
        standing.headcount.heard(2, 2);
        World {
            now: START,
            key: Key::default(),
            stock: Stock::default(),
            full_at: FullAt::default(),
            setting: standing.setting(&terms),
            effects: Vec::new(),
        }
    }

    fn ask(&mut self, token: u32, cost: u64) -> Vec<Effect<u32>> {
        self.ask_as(door(token, cost, self.now))
    }

    fn step(&mut self, token: u32, cost: u64, wait: u64) -> Vec<Effect<u32>> {
        let deadline_ns = self.now + wait;
        self.ask_as(Waiter { patience: Patience::Step, deadline_ns, ..door(token, cost, self.now) })
    }

    fn ask_as(&mut self, waiter: Waiter<u32>) -> Vec<Effect<u32>> {
        self.key.ask(waiter, self.now, &self.setting, &self.stock, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn attend(&mut self) -> Vec<Effect<u32>> {
        self.key.attend(self.now, &self.setting, &self.stock, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn changed(&mut self) -> Vec<Effect<u32>> {
        self.key.changed(self.now, &self.setting, &self.stock, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    /// The answer to the draw that began at `started`.
    fn drawn(&mut self, started: u64, given: u64, retry_ms: u64) -> Vec<Effect<u32>> {
        let answer = Some(Drawn::now(given, retry_ms));
        self.key.drawn(started, answer, self.now, &self.setting, &self.stock, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn decided(&mut self, call: u64, given: u64, retry_ms: u64) -> Vec<Effect<u32>> {
        let answer = Some(Drawn::now(given, retry_ms));
        let (stock, full_at) = (&self.stock, &self.full_at);
        self.key.decided(call, START, answer, self.now, &self.setting, stock, full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn holds(&mut self, started: u64, has: u64) -> Vec<Effect<u32>> {
        let version = self.setting.terms.version;
        self.answered(started, Holds { has, free: 0, over: 0, version })
    }

    fn answered(&mut self, started: u64, answer: Holds) -> Vec<Effect<u32>> {
        self.key.holds(started, Some(answer), self.now, &self.setting, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn freed(&mut self, slots: u64) -> Vec<Effect<u32>> {
        self.key.slot_freed(slots, self.now, &self.setting, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms * MILLISECOND;
    }

    fn takes(&self, cost: u64) -> bool {
        self.stock.take(self.now, cost).is_some()
    }
}

fn granted(effects: &[Effect<u32>]) -> Vec<u32> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Grant { token, .. } = effect { Some(*token) } else { None })
        .collect()
}

fn refused(effects: &[Effect<u32>]) -> Vec<(u32, Reason)> {
    let refused = |effect: &Effect<u32>| match effect {
        Effect::Refuse { token, reason, .. } => Some((*token, *reason)),
        _ => None,
    };
    effects.iter().filter_map(refused).collect()
}

fn draws(effects: &[Effect<u32>]) -> Vec<(u64, u64)> {
    let draw = |effect: &Effect<u32>| match effect {
        Effect::Draw { want, need, .. } => Some((*want, *need)),
        _ => None,
    };
    effects.iter().filter_map(draw).collect()
}

/// HV-61: however late the answer comes, what it brings dies half a burst's time after the draw *began*.
#[test]
fn hv_61_a_batch_dies_counted_from_the_start_of_its_draw() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.ask(1, 1)), [(1, 1)]);
    world.pass(40);
    assert_eq!(granted(&world.drawn(START, 5, 0)), [1]);
    world.pass(58);
    assert!(world.takes(1), "98 ms after the start");
    world.pass(2);
    assert!(!world.takes(1), "100 ms after the start");
}

#[test]
fn hv_61_an_answer_that_comes_after_its_own_death_brings_nothing() {
    let mut world = World::new("1000/s");
    world.step(1, 1, SECOND);
    world.pass(120);
    assert!(granted(&world.drawn(START, 5, 0)).is_empty());
    assert_eq!(world.stock.left(world.now), 0);
}

/// HV-62
#[test]
fn hv_62_cold_keys_draw_one_and_hot_ones_ahead() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.ask(1, 1)), [(1, 1)], "cold: exactly what is needed");
    world.pass(5);
    let effects = world.drawn(START, 1, 0);
    assert_eq!((granted(&effects), draws(&effects)), (vec![1], vec![]), "and nothing ahead");
    // A rush: a request every millisecond, and every draw answered in full two milliseconds later.
    let mut flying: Option<(u64, u64)> = None;
    let mut ahead = 0;
    for token in 2..202 {
        world.pass(1);
        let mut effects = if world.takes(1) { world.attend() } else { world.ask(token, 1) };
        if let Some((started, want)) = flying.take_if(|(started, _)| world.now >= *started + 2 * MILLISECOND) {
            effects.extend(world.drawn(started, want, 0));
        }
        for (want, need) in draws(&effects) {
            assert!(flying.is_none(), "one at a time");
            flying = Some((world.now, want));
            ahead = ahead.max(want - need);
        }
    }
    assert!((25..=60).contains(&ahead), "about what comes in 50 ms at 1000/s: {ahead}");
}

/// HV-62: of a full pool a burst is soon drawn for in whole batches, and nothing is drawn before somebody asks.
#[test]
fn hv_62_of_a_full_pool_batches_grow_with_a_burst_and_follow_requests() {
    let mut world = World::new("1000/s");
    let mut wants = Vec::new();
    // Ten milliseconds apart; everything is answered at once, out of a full pool.
    for token in 0..100 {
        world.pass(10);
        assert!(draws(&world.attend()).is_empty(), "nobody waits at {token}");
        if world.takes(1) {
            continue;
        }
        for (want, _) in draws(&world.ask(token, 1)) {
            wants.push(want);
            let answer = Some(Drawn { pool: 95, ..Drawn::now(want, 0) });
            world.key.drawn(world.now, answer, world.now, &world.setting, &world.stock, &mut world.effects);
            assert_eq!(granted(&std::mem::take(&mut world.effects)), [token]);
        }
    }
    assert_eq!(wants[..3], [1, 3, 8], "{wants:?}");
    assert!(wants.len() <= 14, "about one in a batch's life: {wants:?}");
}

/// HV-62: a pool that has little left gives what is certainly used; one request that costs much says nothing of others.
#[test]
fn hv_62_a_cold_key_draws_what_surely_comes() {
    let mut world = World::new("1000/s");
    let mut wants = Vec::new();
    for token in 0..100 {
        world.pass(20);
        if world.takes(1) {
            continue;
        }
        for (want, _) in draws(&world.ask(token, 1)) {
            wants.push(want);
            world.drawn(world.now, want, 0);
        }
    }
    assert_eq!(
        (wants[0], wants.last()),
        (1, Some(&3)),
        "five come in a batch's life, but for their square root: {wants:?}"
    );
    for quota in ["1000/s", "1000/h"] {
        let mut world = World::new(quota);
        assert_eq!(draws(&world.ask(1, 60)), [(60, 60)], "{quota}");
    }
}

#[test]
fn hv_62_one_draw_at_a_time_and_the_waiting_share_it() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.ask(1, 1)).len(), 1);
    for token in 2..6 {
        assert_eq!(world.ask(token, 1), [], "it waits for the draw that is out");
    }
    world.pass(5);
    assert_eq!(granted(&world.drawn(START, 5, 0)), [1, 2, 3, 4, 5]);
}

/// HV-62: a dry pool is not asked again by every request.
#[test]
fn hv_62_a_dry_answer_paces_draws_and_refuses_at_once() {
    let mut world = World::new("1000/s");
    let mut asked = 0;
    let mut started = None;
    for token in 0..1000 {
        world.pass(1);
        let effects = world.ask(token, 1);
        if !draws(&effects).is_empty() {
            (asked, started) = (asked + 1, Some(world.now));
        }
        if let Some(begun) = started.filter(|begun| world.now >= begun + 3 * MILLISECOND) {
            started = None;
            let effects = world.drawn(begun, 0, 20);
            if !draws(&effects).is_empty() {
                (asked, started) = (asked + 1, Some(world.now));
            }
        }
    }
    assert!((10..=26).contains(&asked), "{asked} draws in a second");
}

/// A remembered refusal says when to come back, and knows of no permits.
#[test]
fn remaining_and_reset_disagree() {
    let mut world = World::new("1000/s");
    world.ask(1, 50);
    world.pass(5);
    let effects = world.drawn(START, 0, 45);
    let Some(Effect::Refuse { retry_ns, reason: Reason::Exhausted, .. }) = effects.first() else {
        panic!("{effects:?}");
    };
    assert_eq!(*retry_ns, 45 * MILLISECOND, "as the store said");
    assert_eq!((world.stock.left(world.now), world.key.refused_for_ns(world.now)), (0, *retry_ns));
}

/// HV-69
#[test]
fn hv_69_a_large_request_is_not_overtaken_by_small_ones() {
    let mut world = World::new("1000/s");
    world.step(1, 1, SECOND);
    world.pass(1);
    world.drawn(START, 4, 0);
    assert_eq!(world.stock.left(world.now), 3);
    let second = world.now;
    assert_eq!(draws(&world.step(2, 10, SECOND)), [(10, 7)], "what is here counts");
    assert!(!world.takes(1), "what is here is kept for it");
    assert_eq!(world.step(3, 1, SECOND), [], "who comes later waits behind");
    world.pass(1);
    assert_eq!(granted(&world.drawn(second, 9, 0)), [2, 3]);
    assert_eq!(world.stock.left(world.now), 1);
}

/// HV-69: nobody sleeps beside permits that are there.
#[test]
fn waiters_asleep_after_refill() {
    let mut world = World::new("1000/s");
    world.step(1, 5, 10 * SECOND);
    world.pass(2);
    let dry = world.drawn(START, 0, 5);
    assert_eq!((granted(&dry), refused(&dry)), (vec![], vec![]), "a step waits for permits");
    assert!(world.key.wake_at_ns() <= world.now + 60 * MILLISECOND, "and is looked at again soon");
    world.now = world.key.wake_at_ns();
    let second = world.now;
    assert_eq!(draws(&world.attend()).len(), 1, "which draws");
    world.pass(1);
    assert_eq!(granted(&world.drawn(second, 5, 0)), [1]);
    // On a raise, too: what was remembered of the old limit is forgotten.
    let third = world.now;
    assert_eq!(draws(&world.step(2, 5, 10 * SECOND)).len(), 1);
    world.pass(1);
    world.drawn(third, 0, 5_000);
    world.setting.terms.version = 2;
    let fourth = world.now;
    assert_eq!(draws(&world.changed()).len(), 1);
    assert_eq!(granted(&world.drawn(fourth, 5, 0)), [2]);
    // And when the store goes away.
    world.step(3, 1, 10 * SECOND);
    let since_ns = world.now - SECOND;
    world.setting.footing = Footing::Alone(Share::new(world.setting.terms.rate, 2, 50, since_ns));
    assert_eq!(granted(&world.changed()), [3]);
}

#[test]
fn hv_69_a_deadline_ends_the_wait() {
    let mut world = World::new("1000/s");
    world.step(1, 5, 100 * MILLISECOND);
    world.pass(10);
    world.drawn(START, 0, 500);
    world.now = START + 100 * MILLISECOND;
    assert_eq!(refused(&world.attend()), [(1, Reason::Deadline)]);
    assert_eq!(world.key.waiting(), 0);
}

/// HV-69
#[test]
fn hv_69_a_cost_that_can_never_be_met_is_refused_at_once() {
    let mut world = World::new("1000/s");
    assert_eq!(refused(&world.step(1, 101, SECOND)), [(1, Reason::CostTooHigh)], "half the burst is 100");
    assert_eq!(draws(&world.step(2, 100, SECOND)), [(100, 100)]);
}

/// HV-64, HV-67: a store that says nothing costs a request 50 ms, once.
#[test]
fn hv_67_a_silent_store_is_waited_for_50_ms() {
    let mut world = World::new("1000/s");
    world.ask(1, 1);
    assert_eq!(world.key.wake_at_ns(), START + 50 * MILLISECOND);
    world.pass(49);
    assert_eq!(world.attend(), [], "it may still answer");
    world.pass(1);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
}

/// HV-64: a share begins empty, and keeps to its part of the rate.
#[test]
fn hv_64_a_node_on_its_own_keeps_to_its_share() {
    let mut world = World::new("1000/s");
    let share = Share::new(world.setting.terms.rate, 4, 25, world.now);
    assert!(world.full_at.take(&share, world.now, 1).is_err(), "it begins empty");
    let mut admitted = 0;
    for _ in 0..2000 {
        world.pass(1);
        admitted += u64::from(world.full_at.take(&share, world.now, 1).is_ok());
    }
    assert!((499..=500).contains(&admitted), "a quarter of 1000/s for two seconds: {admitted}");
}

/// HV-64
#[test]
fn hv_64_closed_refuses_and_open_admits_while_the_store_is_away() {
    let mut standing = Standing::new(16, 500);
    standing.breaker.asked(0);
    assert!(standing.tick(None, 2 * SECOND));
    for (on_outage, expected) in [(OnOutage::Closed, false), (OnOutage::Open, true)] {
        let mut world = World::of(&Definition::parse("api", "1000/s").unwrap().on_outage(on_outage));
        world.setting = standing.setting(&world.setting.terms);
        let effects = world.ask(1, 1);
        assert_eq!(granted(&effects) == [1], expected, "{effects:?}");
        assert_eq!(refused(&effects) == [(1, Reason::Outage)], !expected, "{effects:?}");
    }
}

/// HV-64: the return of the store finds nothing in hand.
#[test]
fn hv_64_the_return_of_the_store_draws_anew() {
    let mut world = World::new("1000/s");
    world.ask(1, 1);
    world.pass(5);
    assert_eq!(draws(&world.changed()).len(), 1);
    assert!(granted(&world.drawn(START, 50, 0)).is_empty(), "an answer from before finds nobody");
    assert_eq!(world.stock.left(world.now), 0);
}

/// HV-65
#[test]
fn hv_65_the_store_decides_each_time_and_a_refusal_is_remembered() {
    let mut world = World::new("3/h");
    assert_eq!(world.ask(1, 1), [Effect::Take { call: 1, cost: 1 }]);
    assert_eq!(world.ask(2, 2), [Effect::Take { call: 2, cost: 2 }], "decisions do not wait for each other");
    assert_eq!(granted(&world.decided(1, 1, 0)), [1]);
    assert_eq!(refused(&world.decided(2, 0, 60_000)), [(2, Reason::Exhausted)]);
    assert_eq!(refused(&world.ask(3, 2)), [(3, Reason::Exhausted)], "nobody is asked again");
    assert_eq!(world.ask(4, 1), [Effect::Take { call: 3, cost: 1 }], "less may still be there");
    world.decided(3, 1, 0);
    world.pass(60_000);
    assert_eq!(world.ask(5, 2), [Effect::Take { call: 4, cost: 2 }], "until the store said");
}

/// HV-71: a raise is not hidden by what was refused before it.
#[test]
fn deny_cache_outlives_change() {
    let mut world = World::new("3/h");
    world.ask(1, 3);
    world.decided(1, 0, 3_600_000);
    assert_eq!(refused(&world.ask(2, 3)), [(2, Reason::Exhausted)]);
    world.setting.terms.version += 1;
    assert_eq!(world.ask(3, 3), [Effect::Take { call: 2, cost: 3 }]);
    // An answer of the old version says nothing about the new one.
    world.setting.terms.version += 1;
    world.decided(2, 0, 3_600_000);
    assert_eq!(world.ask(4, 3), [Effect::Take { call: 3, cost: 3 }]);
}

#[test]
fn hv_65_steps_wait_for_the_instant_that_the_store_named_in_order() {
    let mut world = World::new("3/h");
    assert_eq!(world.step(1, 2, 10_000 * SECOND).len(), 1);
    world.decided(1, 0, 60_000);
    assert_eq!(world.step(2, 2, 10_000 * SECOND), []);
    assert_eq!(world.key.wake_at_ns(), START + 60 * SECOND);
    world.pass(60_000);
    assert_eq!(world.attend(), [Effect::Take { call: 2, cost: 2 }, Effect::Take { call: 3, cost: 2 }]);
    assert_eq!(granted(&world.decided(2, 2, 0)), [1], "first come, first asked");
}

/// HV-68
#[test]
fn hv_68_slots_are_lent_and_come_back() {
    let mut world = World::of(&Definition::slots("workers", 3));
    assert_eq!(world.ask(1, 1), [Effect::Hold { slots: 1 }]);
    assert_eq!(granted(&world.holds(START, 1)), [1]);
    world.pass(1);
    let second = world.now;
    assert_eq!(world.step(2, 1, SECOND), [Effect::Hold { slots: 2 }]);
    assert!(granted(&world.holds(second, 1)).is_empty(), "there are no more");
    world.key.slot_freed(1, world.now, &world.setting, &mut world.effects);
    assert_eq!(granted(&std::mem::take(&mut world.effects)), [2], "the next in line has it at once");
    world.key.slot_freed(1, world.now, &world.setting, &mut world.effects);
    assert_eq!(std::mem::take(&mut world.effects), []);
    world.now = world.key.wake_at_ns();
    assert_eq!(world.attend(), [Effect::Hold { slots: 0 }], "a slot that nobody uses goes back");
}

/// HV-64: without a store nothing can be given back, and nobody is woken to do so.
#[test]
fn hv_64_idle_slots_wake_nobody_while_the_store_is_away() {
    let mut world = World::of(&Definition::slots("workers", 3));
    world.ask(1, 1);
    assert_eq!(granted(&world.holds(START, 1)), [1]);
    world.freed(1);
    world.setting.footing = Footing::Closed;
    assert_eq!(world.changed(), []);
    world.pass(2_000);
    assert_eq!(world.attend(), []);
    assert!(world.key.wake_at_ns() > world.now, "there is nothing to do");
    world.setting.footing = Footing::Store;
    world.changed();
    world.pass(1_000);
    assert_eq!(world.attend(), [Effect::Hold { slots: 0 }], "it is back");
}

/// HV-68: whoever can use several asks for them at once, and has as many as there are.
#[test]
fn hv_68_of_what_is_wished_for_as_many_are_given_as_are_free() {
    let mut world = World::of(&Definition::slots("workers", 5));
    let wishes = |token: u32, now: u64| Waiter {
        wish: 4,
        patience: Patience::Step,
        deadline_ns: now + SECOND,
        ..door(token, 1, now)
    };
    assert_eq!(world.ask_as(wishes(1, START)), [Effect::Hold { slots: 4 }]);
    let granted = |effects: &[Effect<u32>]| match effects {
        [Effect::Grant { token, permits, .. }] => (*token, *permits),
        other => panic!("{other:?}"),
    };
    assert_eq!(granted(&world.holds(START, 3)), (1, 3), "others have two, and none of these three is left over");
    assert_eq!(world.key.slots_in_use(), 3);
    assert_eq!(world.ask_as(wishes(2, START)), [], "soon enough");
    assert_eq!(granted(&world.freed(2)), (2, 2), "what comes back goes to the next");
}

#[test]
fn hv_68_no_more_slots_than_there_are() {
    let mut world = World::of(&Definition::slots("workers", 3));
    assert_eq!(refused(&world.ask(1, 4)), [(1, Reason::CostTooHigh)]);
    assert_eq!(world.ask(2, 3), [Effect::Hold { slots: 3 }]);
    let effects = world.holds(START, 2);
    assert_eq!((granted(&effects), refused(&effects)), (vec![], vec![(2, Reason::Exhausted)]));
}

/// HV-66: after a jump of the clock nothing that was drawn counts.
#[test]
fn hv_66_void_batches_are_gone() {
    let mut world = World::new("1000/s");
    world.ask(1, 1);
    world.drawn(START, 10, 0);
    assert_eq!(world.stock.left(world.now), 9);
    world.key.void(world.now, &world.stock);
    assert!(!world.takes(1));
}

/// HV-66: nor does what was being drawn when the clock jumped, or the limit was lowered.
#[test]
fn hv_66_a_draw_in_flight_is_void_too() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.step(1, 1, SECOND)), [(1, 1)]);
    world.pass(5);
    world.key.void(world.now, &world.stock);
    world.pass(5);
    let effects = world.drawn(START, 50, 0);
    assert_eq!((granted(&effects), draws(&effects)), (vec![], vec![(1, 1)]), "drawn anew");
    assert_eq!(world.stock.left(world.now), 0);
    let again = world.now;
    world.pass(5);
    assert_eq!(granted(&world.drawn(again, 1, 0)), [1]);
}

/// HV-71: a permit that was taken before anybody knew of a lower limit does not bring its old life back.
#[test]
fn hv_71_what_comes_back_dies_when_a_lower_limit_begins() {
    let mut world = World::new("1200/min burst 1200");
    world.ask(1, 2);
    let effects = world.drawn(START, 2, 0);
    let [Effect::Grant { origin: Origin::Batch(dies), .. }] = effects[..] else { panic!("{effects:?}") };
    world.setting.ends_ns = START + SECOND;
    world.key.end_at(START + SECOND, world.now, &world.stock);
    let put_back = |world: &mut World| {
        let batch = Batch { count: 1, dies };
        world.key.put_back(batch, world.now, &world.setting, &world.stock, &mut world.effects);
    };
    put_back(&mut world);
    assert_eq!((world.stock.left(START), world.stock.left(START + SECOND)), (1, 0));
    world.pass(1000);
    put_back(&mut world);
    assert_eq!(world.stock.left(world.now), 0, "too late");
}

/// HV-62, HV-71: while store and node are of two minds about the limit, whoever waits does not empty the pool.
#[test]
fn hv_62_what_is_drawn_in_vain_is_drawn_at_the_pace() {
    let mut world = World::new("1000/s");
    let mut flying = draws(&world.step(1, 1, 10 * SECOND)).len();
    let mut drawn = flying;
    for _ in 0..1000 {
        let started = world.now;
        world.pass(1);
        let effects = if flying > 0 {
            world.key.spent(started, world.now, &world.setting, &world.stock, &mut world.effects);
            std::mem::take(&mut world.effects)
        } else if world.now >= world.key.wake_at_ns() {
            world.attend()
        } else {
            Vec::new()
        };
        assert!(granted(&effects).is_empty() && refused(&effects).is_empty(), "{effects:?}");
        flying = draws(&effects).len();
        drawn += flying;
    }
    assert!((15..=25).contains(&drawn), "a few at once, then twenty a second: {drawn}");
    assert_eq!(draws(&world.changed()).len(), 1, "at once when they agree");
}

/// HV-68: what the store may have given although nobody heard of it goes back, also if nobody asks again.
#[test]
fn hv_68_slots_of_an_unheard_answer_go_back() {
    let mut world = World::of(&Definition::slots("workers", 10));
    assert_eq!(world.ask(1, 10), [Effect::Hold { slots: 10 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    world.pass(450);
    world.key.holds(START, None, world.now, &world.setting, &mut world.effects);
    assert_eq!(std::mem::take(&mut world.effects), [Effect::Hold { slots: 0 }], "though nobody waits");
    assert!(!world.key.is_idle(world.now + 10 * SECOND, &world.stock));
    let asked = world.now;
    assert_eq!(world.holds(asked, 0), []);
    assert!(world.key.is_idle(world.now + 10 * SECOND, &world.stock), "now it is known");
}

/// HV-68: whoever may have been buried lends nothing more of what others may have by now.
#[test]
fn hv_68_without_trust_nothing_more_is_lent() {
    let mut world = World::of(&Definition::slots("workers", 3));
    world.ask(1, 3);
    assert_eq!(granted(&world.holds(START, 3)), [1]);
    world.key.slot_freed(2, world.now, &world.setting, &mut world.effects);
    world.effects.clear();
    world.key.let_go();
    let mut standing = Standing::new(16, 500);
    standing.cut_off(world.now);
    world.setting = standing.setting(&world.setting.terms);
    assert_eq!(refused(&world.ask(2, 1)), [(2, Reason::Outage)]);
    world.key.slot_freed(1, world.now, &world.setting, &mut world.effects);
    world.key.let_go();
    assert_eq!(refused(&world.ask(3, 1)), [(3, Reason::Outage)]);
}

#[test]
fn whoever_waits_is_told_when_nobody_answers_any_more() {
    for quota in ["1000/s", "3/h"] {
        let mut world = World::new(quota);
        world.step(1, 1, 3600 * SECOND);
        world.key.close(&mut world.effects);
        assert_eq!(refused(&world.effects), [(1, Reason::Outage)], "{quota}");
        assert_eq!(world.key.waiting(), 0);
    }
}

/// HV-63: a node that is cut short asks once a second, and what it booked is given as it comes.
#[test]
fn hv_63_a_key_that_is_cut_short_asks_once_a_second() {
    let mut world = World::new("1000/s");
    let (mut asked, mut booked, mut admitted) = (Vec::new(), Vec::new(), Vec::new());
    // Ten milliseconds apart, a hundred a second; the store has nothing, and lets it book forty.
    for step in 0..500_u32 {
        world.pass(10);
        let mut effects = world.ask(step, 1);
        loop {
            admitted.extend(granted(&effects));
            let draw = effects.iter().find_map(|effect| match effect {
                Effect::Draw { book, .. } => Some(*book),
                _ => None,
            });
            let Some(book) = draw else { break };
            asked.push(world.now);
            let (started, now_ms) = (world.now, world.now / MILLISECOND);
            let mut answer = Drawn::now(0, 50);
            if book > 0 {
                booked.push(world.now);
                (answer.booked, answer.begins_ms) = (40.min(book), 1000 - now_ms % 1000);
            }
            world.key.drawn(started, Some(answer), world.now, &world.setting, &world.stock, &mut world.effects);
            effects = std::mem::take(&mut world.effects);
        }
    }
    let late = START + 2 * SECOND;
    let count = |at: &[u64]| at.iter().filter(|at| **at > late).count();
    assert_eq!((count(&asked), count(&booked)), (3, 3), "one question in each of the last three seconds: {asked:?}");
    let of_last = admitted.iter().filter(|step| **step >= 200).count();
    assert!((115..=122).contains(&of_last), "forty a second are admitted: {of_last}");
}

/// HV-63: a node that was told nothing of a lack asks for no second.
#[test]
fn hv_63_nothing_is_booked_while_there_is_enough() {
    let mut world = World::new("1000/s");
    for step in 0..200_u32 {
        world.pass(10);
        let started = world.now;
        for effect in world.ask(step, 1) {
            if let Effect::Draw { want, book, .. } = effect {
                assert_eq!(book, 0, "step {step}");
                world.drawn(started, want, 0);
            }
        }
    }
}
