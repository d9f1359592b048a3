//! Tests of a key's state machine, rule by rule. Time moves only when a test says so.

mod change;
mod fleet;

use super::*;
use crate::limit::{
    definition::{Definition, OnOutage, SECOND},
    store_health::StoreHealth,
};

const START: u64 = 10 * SECOND;

struct World {
    now: u64,
    key: Key<u32>,
    local: LocalPermits,
    full_at: FullAt,
    setting: Setting,
    effects: Vec<Effect<u32>>,
}

impl World {
    fn new(quota: &str) -> World {
        World::of(&Definition::parse("api", quota).unwrap())
    }

    fn of(definition: &Definition) -> World {
        let terms = Terms::from_definition(definition).unwrap();
        let mut health = StoreHealth::new(16, 500);
        health.headcount.record(2, 2);
        World {
            now: START,
            key: Key::default(),
            local: LocalPermits::default(),
            full_at: FullAt::default(),
            setting: health.setting(&terms),
            effects: Vec::new(),
        }
    }

    fn ask(&mut self, token: u32, cost: u64) -> Vec<Effect<u32>> {
        self.ask_as(immediate(token, cost, self.now))
    }

    fn step(&mut self, token: u32, cost: u64, wait: u64) -> Vec<Effect<u32>> {
        let deadline_ns = self.now + wait;
        self.ask_as(Waiter { patience: Patience::UntilDeadline, deadline_ns, ..immediate(token, cost, self.now) })
    }

    fn ask_as(&mut self, waiter: Waiter<u32>) -> Vec<Effect<u32>> {
        self.key.ask(waiter, self.now, &self.setting, &self.local, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn attend(&mut self) -> Vec<Effect<u32>> {
        self.key.attend(self.now, &self.setting, &self.local, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn changed(&mut self) -> Vec<Effect<u32>> {
        self.key.on_setting_changed(self.now, &self.setting, &self.local, &self.full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    /// The answer to the draw that began at `started`.
    fn drawn(&mut self, started: u64, given: u64, retry_ms: u64) -> Vec<Effect<u32>> {
        let answer = Some(StoreAnswer::now(given, retry_ms));
        self.key.on_draw_answer(started, answer, self.now, &self.setting, &self.local, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn decided(&mut self, call: u64, given: u64, retry_ms: u64) -> Vec<Effect<u32>> {
        let answer = Some(StoreAnswer::now(given, retry_ms));
        let (local, full_at) = (&self.local, &self.full_at);
        self.key.on_decision(call, START, answer, self.now, &self.setting, local, full_at, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn holds(&mut self, started: u64, has: u64) -> Vec<Effect<u32>> {
        let version = self.setting.terms.version;
        self.answered(started, SlotsAnswer { has, free: 0, over: 0, version })
    }

    fn answered(&mut self, started: u64, answer: SlotsAnswer) -> Vec<Effect<u32>> {
        self.key.on_slots_answer(started, Some(answer), self.now, &self.setting, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn freed(&mut self, slots: u64) -> Vec<Effect<u32>> {
        self.key.on_slot_freed(slots, self.now, &self.setting, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms * MILLISECOND;
    }

    fn takes(&self, cost: u64) -> bool {
        self.local.take(self.now, cost).is_some()
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

/// HV-61: even if the answer is late, the batch expires half a burst's time after the draw *began*.
#[test]
fn hv_61_the_life_of_a_batch_counts_from_the_start_of_its_draw() {
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
fn hv_61_an_answer_that_is_later_than_the_expiry_brings_nothing() {
    let mut world = World::new("1000/s");
    world.step(1, 1, SECOND);
    world.pass(120);
    assert!(granted(&world.drawn(START, 5, 0)).is_empty());
    assert_eq!(world.local.available(world.now), 0);
}

/// HV-62
#[test]
fn hv_62_cold_keys_draw_one_permit_and_hot_keys_draw_in_advance() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.ask(1, 1)), [(1, 1)], "a cold key draws exactly what is needed");
    world.pass(5);
    let effects = world.drawn(START, 1, 0);
    assert_eq!((granted(&effects), draws(&effects)), (vec![1], vec![]), "and nothing in advance");
    // A rush: a request every millisecond; every draw is answered in full 2 ms later.
    let mut in_flight: Option<(u64, u64)> = None;
    let mut ahead = 0;
    for token in 2..202 {
        world.pass(1);
        let mut effects = if world.takes(1) { world.attend() } else { world.ask(token, 1) };
        if let Some((started, want)) = in_flight.take_if(|(started, _)| world.now >= *started + 2 * MILLISECOND) {
            effects.extend(world.drawn(started, want, 0));
        }
        for (want, need) in draws(&effects) {
            assert!(in_flight.is_none(), "one draw at a time");
            in_flight = Some((world.now, want));
            ahead = ahead.max(want - need);
        }
    }
    assert!((25..=60).contains(&ahead), "about the requests of 50 ms at 1000/s: {ahead}");
}

/// HV-62: from a full pool the batches grow quickly in a burst, and the key draws only when a request waits.
#[test]
fn hv_62_batches_from_a_full_pool_grow_in_a_burst_and_follow_requests() {
    let mut world = World::new("1000/s");
    let mut wants = Vec::new();
    // One request every 10 ms; every draw is answered at once, from a full pool.
    for token in 0..100 {
        world.pass(10);
        assert!(draws(&world.attend()).is_empty(), "the queue is empty at {token}");
        if world.takes(1) {
            continue;
        }
        for (want, _) in draws(&world.ask(token, 1)) {
            wants.push(want);
            let answer = Some(StoreAnswer { pool: 95, ..StoreAnswer::now(want, 0) });
            world.key.on_draw_answer(world.now, answer, world.now, &world.setting, &world.local, &mut world.effects);
            assert_eq!(granted(&std::mem::take(&mut world.effects)), [token]);
        }
    }
    assert_eq!(wants[..3], [1, 3, 8], "{wants:?}");
    assert!(wants.len() <= 14, "about one draw in a batch's life: {wants:?}");
}

/// HV-62: from a pool with little left the key draws only what is certainly used. One expensive request does not count
/// as demand for more.
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
        "five requests in a batch's life, less their square root: {wants:?}"
    );
    for quota in ["1000/s", "1000/h"] {
        let mut world = World::new(quota);
        assert_eq!(draws(&world.ask(1, 60)), [(60, 60)], "{quota}");
    }
}

#[test]
fn hv_62_one_draw_at_a_time_serves_all_waiters() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.ask(1, 1)).len(), 1);
    for token in 2..6 {
        assert_eq!(world.ask(token, 1), [], "it waits for the draw in flight");
    }
    world.pass(5);
    assert_eq!(granted(&world.drawn(START, 5, 0)), [1, 2, 3, 4, 5]);
}

/// HV-62: requests do not each ask a dry pool again.
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

/// A remembered refusal says when to try again, and no permits are shown as available.
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
    assert_eq!((world.local.available(world.now), world.key.refused_for_ns(world.now)), (0, *retry_ns));
}

/// HV-69
#[test]
fn hv_69_a_large_request_is_not_overtaken_by_small_ones() {
    let mut world = World::new("1000/s");
    world.step(1, 1, SECOND);
    world.pass(1);
    world.drawn(START, 4, 0);
    assert_eq!(world.local.available(world.now), 3);
    let second = world.now;
    assert_eq!(draws(&world.step(2, 10, SECOND)), [(10, 7)], "the local permits count");
    assert!(!world.takes(1), "the local permits are kept for it");
    assert_eq!(world.step(3, 1, SECOND), [], "a later request waits behind it");
    world.pass(1);
    assert_eq!(granted(&world.drawn(second, 9, 0)), [2, 3]);
    assert_eq!(world.local.available(world.now), 1);
}

/// HV-69: no request waits while permits for it are available.
#[test]
fn waiters_asleep_after_refill() {
    let mut world = World::new("1000/s");
    world.step(1, 5, 10 * SECOND);
    world.pass(2);
    let dry = world.drawn(START, 0, 5);
    assert_eq!((granted(&dry), refused(&dry)), (vec![], vec![]), "a request with a deadline waits for permits");
    assert!(world.key.wake_at_ns() <= world.now + 60 * MILLISECOND, "and the key is attended again soon");
    world.now = world.key.wake_at_ns();
    let second = world.now;
    assert_eq!(draws(&world.attend()).len(), 1, "and draws then");
    world.pass(1);
    assert_eq!(granted(&world.drawn(second, 5, 0)), [1]);
    // After a raise, too: the refusal of the old limit is forgotten.
    let third = world.now;
    assert_eq!(draws(&world.step(2, 5, 10 * SECOND)).len(), 1);
    world.pass(1);
    world.drawn(third, 0, 5_000);
    world.setting.terms.version = 2;
    let fourth = world.now;
    assert_eq!(draws(&world.changed()).len(), 1);
    assert_eq!(granted(&world.drawn(fourth, 5, 0)), [2]);
    // And when the store stops to answer.
    world.step(3, 1, 10 * SECOND);
    let since_ns = world.now - SECOND;
    world.setting.mode = Mode::Alone(Share::new(world.setting.terms.rate, 2, 50, since_ns));
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

/// HV-64, HV-67: a request waits 50 ms for a store that does not answer, once.
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

/// HV-64: a share begins empty, and admits its part of the rate.
#[test]
fn hv_64_a_node_without_the_store_keeps_to_its_share() {
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
fn hv_64_closed_refuses_and_open_admits_while_the_store_is_silent() {
    let mut health = StoreHealth::new(16, 500);
    health.breaker.on_call(0);
    assert!(health.tick(None, 2 * SECOND));
    for (on_outage, expected) in [(OnOutage::Closed, false), (OnOutage::Open, true)] {
        let mut world = World::of(&Definition::parse("api", "1000/s").unwrap().on_outage(on_outage));
        world.setting = health.setting(&world.setting.terms);
        let effects = world.ask(1, 1);
        assert_eq!(granted(&effects) == [1], expected, "{effects:?}");
        assert_eq!(refused(&effects) == [(1, Reason::Outage)], !expected, "{effects:?}");
    }
}

/// HV-64: when the store answers again, the node has no permits and draws.
#[test]
fn hv_64_the_node_draws_again_when_the_store_is_back() {
    let mut world = World::new("1000/s");
    world.ask(1, 1);
    world.pass(5);
    assert_eq!(draws(&world.changed()).len(), 1);
    assert!(granted(&world.drawn(START, 50, 0)).is_empty(), "the answer to the earlier draw is ignored");
    assert_eq!(world.local.available(world.now), 0);
}

/// HV-65
#[test]
fn hv_65_the_store_decides_each_time_and_a_refusal_is_remembered() {
    let mut world = World::new("3/h");
    assert_eq!(world.ask(1, 1), [Effect::Take { call: 1, cost: 1 }]);
    assert_eq!(world.ask(2, 2), [Effect::Take { call: 2, cost: 2 }], "decisions do not wait for each other");
    assert_eq!(granted(&world.decided(1, 1, 0)), [1]);
    assert_eq!(refused(&world.decided(2, 0, 60_000)), [(2, Reason::Exhausted)]);
    assert_eq!(refused(&world.ask(3, 2)), [(3, Reason::Exhausted)], "the store is not asked again");
    assert_eq!(world.ask(4, 1), [Effect::Take { call: 3, cost: 1 }], "a lower cost may still be available");
    world.decided(3, 1, 0);
    world.pass(60_000);
    assert_eq!(world.ask(5, 2), [Effect::Take { call: 4, cost: 2 }], "after the time that the store named");
}

/// HV-71: a refusal from before a raise does not hide the raise.
#[test]
fn deny_cache_outlives_change() {
    let mut world = World::new("3/h");
    world.ask(1, 3);
    world.decided(1, 0, 3_600_000);
    assert_eq!(refused(&world.ask(2, 3)), [(2, Reason::Exhausted)]);
    world.setting.terms.version += 1;
    assert_eq!(world.ask(3, 3), [Effect::Take { call: 2, cost: 3 }]);
    // A refusal under the old version is not remembered for the new one.
    world.setting.terms.version += 1;
    world.decided(2, 0, 3_600_000);
    assert_eq!(world.ask(4, 3), [Effect::Take { call: 3, cost: 3 }]);
}

#[test]
fn hv_65_waiters_are_asked_for_in_order_at_the_time_that_the_store_named() {
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
    world.key.on_slot_freed(1, world.now, &world.setting, &mut world.effects);
    assert_eq!(granted(&std::mem::take(&mut world.effects)), [2], "the next waiter gets it at once");
    world.key.on_slot_freed(1, world.now, &world.setting, &mut world.effects);
    assert_eq!(std::mem::take(&mut world.effects), []);
    world.now = world.key.wake_at_ns();
    assert_eq!(world.attend(), [Effect::Hold { slots: 0 }], "an unused slot goes back");
}

/// HV-64: while the store does not answer, idle slots cannot be given back, and the key is not woken to try.
#[test]
fn hv_64_idle_slots_wake_no_key_while_the_store_is_silent() {
    let mut world = World::of(&Definition::slots("workers", 3));
    world.ask(1, 1);
    assert_eq!(granted(&world.holds(START, 1)), [1]);
    world.freed(1);
    world.setting.mode = Mode::Closed;
    assert_eq!(world.changed(), []);
    world.pass(2_000);
    assert_eq!(world.attend(), []);
    assert!(world.key.wake_at_ns() > world.now, "there is nothing to do");
    world.setting.mode = Mode::Store;
    world.changed();
    world.pass(1_000);
    assert_eq!(world.attend(), [Effect::Hold { slots: 0 }], "the store is back");
}

/// HV-68: a request that can use several slots asks for all of them, and gets as many as are free.
#[test]
fn hv_68_a_request_for_several_slots_gets_as_many_as_are_free() {
    let mut world = World::of(&Definition::slots("workers", 5));
    let takes_up_to_four = |token: u32, now: u64| Waiter {
        up_to: 4,
        patience: Patience::UntilDeadline,
        deadline_ns: now + SECOND,
        ..immediate(token, 1, now)
    };
    assert_eq!(world.ask_as(takes_up_to_four(1, START)), [Effect::Hold { slots: 4 }]);
    let granted = |effects: &[Effect<u32>]| match effects {
        [Effect::Grant { token, permits, .. }] => (*token, *permits),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        granted(&world.holds(START, 3)),
        (1, 3),
        "other nodes have two slots, and this request gets the other three"
    );
    assert_eq!(world.key.slots_in_use(), 3);
    assert_eq!(world.ask_as(takes_up_to_four(2, START)), [], "the node waits before it asks again");
    assert_eq!(granted(&world.freed(2)), (2, 2), "slots that come back go to the next waiter");
}

#[test]
fn hv_68_a_request_for_too_many_slots_is_refused() {
    let mut world = World::of(&Definition::slots("workers", 3));
    assert_eq!(refused(&world.ask(1, 4)), [(1, Reason::CostTooHigh)]);
    assert_eq!(world.ask(2, 3), [Effect::Hold { slots: 3 }]);
    let effects = world.holds(START, 2);
    assert_eq!((granted(&effects), refused(&effects)), (vec![], vec![(2, Reason::Exhausted)]));
}

/// HV-66: after a jump of the clock the drawn permits are void.
#[test]
fn hv_66_void_batches_cannot_be_used() {
    let mut world = World::new("1000/s");
    world.ask(1, 1);
    world.drawn(START, 10, 0);
    assert_eq!(world.local.available(world.now), 9);
    world.key.void_permits(world.now, &world.local);
    assert!(!world.takes(1));
}

/// HV-66: permits of a draw in flight are void, too, if the clock jumps or the limit is lowered.
#[test]
fn hv_66_a_draw_in_flight_is_void_too() {
    let mut world = World::new("1000/s");
    assert_eq!(draws(&world.step(1, 1, SECOND)), [(1, 1)]);
    world.pass(5);
    world.key.void_permits(world.now, &world.local);
    world.pass(5);
    let effects = world.drawn(START, 50, 0);
    assert_eq!((granted(&effects), draws(&effects)), (vec![], vec![(1, 1)]), "it draws again");
    assert_eq!(world.local.available(world.now), 0);
    let again = world.now;
    world.pass(5);
    assert_eq!(granted(&world.drawn(again, 1, 0)), [1]);
}

/// HV-71: a permit that was taken before the node knew of a lower limit does not keep its old expiry when it comes
/// back.
#[test]
fn hv_71_a_refunded_permit_expires_when_a_lower_limit_begins() {
    let mut world = World::new("1200/min burst 1200");
    world.ask(1, 2);
    let effects = world.drawn(START, 2, 0);
    let [Effect::Grant { origin: Origin::Batch(expires), .. }] = effects[..] else { panic!("{effects:?}") };
    world.setting.ends_ns = START + SECOND;
    world.key.expire_by(START + SECOND, world.now, &world.local);
    let put_back = |world: &mut World| {
        let batch = Batch { count: 1, expires };
        world.key.put_back(batch, world.now, &world.setting, &world.local, &mut world.effects);
    };
    put_back(&mut world);
    assert_eq!((world.local.available(START), world.local.available(START + SECOND)), (1, 0));
    world.pass(1000);
    put_back(&mut world);
    assert_eq!(world.local.available(world.now), 0, "too late");
}

/// HV-62, HV-71: while store and node have different versions of the limit, the draws for waiters do not empty the
/// pool.
#[test]
fn hv_62_draws_that_are_discarded_keep_to_the_pace() {
    let mut world = World::new("1000/s");
    let mut in_flight = draws(&world.step(1, 1, 10 * SECOND)).len();
    let mut drawn = in_flight;
    for _ in 0..1000 {
        let started = world.now;
        world.pass(1);
        let effects = if in_flight > 0 {
            world.key.discard_draw(started, world.now, &world.setting, &world.local, &mut world.effects);
            std::mem::take(&mut world.effects)
        } else if world.now >= world.key.wake_at_ns() {
            world.attend()
        } else {
            Vec::new()
        };
        assert!(granted(&effects).is_empty() && refused(&effects).is_empty(), "{effects:?}");
        in_flight = draws(&effects).len();
        drawn += in_flight;
    }
    assert!((15..=25).contains(&drawn), "a few draws at once, then twenty a second: {drawn}");
    assert_eq!(draws(&world.changed()).len(), 1, "a draw at once when they agree");
}

/// HV-68: slots that the store may have given in a lost answer go back, even if no request waits.
#[test]
fn hv_68_slots_of_a_lost_answer_go_back() {
    let mut world = World::of(&Definition::slots("workers", 10));
    assert_eq!(world.ask(1, 10), [Effect::Hold { slots: 10 }]);
    world.pass(50);
    assert_eq!(refused(&world.attend()), [(1, Reason::StoreSilent)]);
    world.pass(450);
    world.key.on_slots_answer(START, None, world.now, &world.setting, &mut world.effects);
    assert_eq!(std::mem::take(&mut world.effects), [Effect::Hold { slots: 0 }], "although the queue is empty");
    assert!(!world.key.is_idle(world.now + 10 * SECOND, &world.local));
    let asked = world.now;
    assert_eq!(world.holds(asked, 0), []);
    assert!(world.key.is_idle(world.now + 10 * SECOND, &world.local), "the number is certain now");
}

/// HV-68: a node that may have been removed lends no slots, because other nodes may have them by now.
#[test]
fn hv_68_a_node_without_trust_lends_no_slots() {
    let mut world = World::of(&Definition::slots("workers", 3));
    world.ask(1, 3);
    assert_eq!(granted(&world.holds(START, 3)), [1]);
    world.key.on_slot_freed(2, world.now, &world.setting, &mut world.effects);
    world.effects.clear();
    world.key.drop_slots();
    let mut health = StoreHealth::new(16, 500);
    health.open_breaker(world.now);
    world.setting = health.setting(&world.setting.terms);
    assert_eq!(refused(&world.ask(2, 1)), [(2, Reason::Outage)]);
    world.key.on_slot_freed(1, world.now, &world.setting, &mut world.effects);
    world.key.drop_slots();
    assert_eq!(refused(&world.ask(3, 1)), [(3, Reason::Outage)]);
}

#[test]
fn waiters_are_refused_when_the_drawing_task_ends() {
    for quota in ["1000/s", "3/h"] {
        let mut world = World::new(quota);
        world.step(1, 1, 3600 * SECOND);
        world.key.close(&mut world.effects);
        assert_eq!(refused(&world.effects), [(1, Reason::Outage)], "{quota}");
        assert_eq!(world.key.waiting(), 0);
    }
}

/// HV-63: a node that gets less than it wants asks once a second, and gives out reserved permits as they become
/// available.
#[test]
fn hv_63_a_key_that_gets_too_little_asks_once_a_second() {
    let mut world = World::new("1000/s");
    let (mut asked, mut reserved, mut admitted) = (Vec::new(), Vec::new(), Vec::new());
    // One request every 10 ms, a hundred a second; the pool is empty, and the store reserves forty for this node.
    for step in 0..500_u32 {
        world.pass(10);
        let mut effects = world.ask(step, 1);
        loop {
            admitted.extend(granted(&effects));
            let draw = effects.iter().find_map(|effect| match effect {
                Effect::Draw { reserve, .. } => Some(*reserve),
                _ => None,
            });
            let Some(reserve) = draw else { break };
            asked.push(world.now);
            let (started, now_ms) = (world.now, world.now / MILLISECOND);
            let mut answer = StoreAnswer::now(0, 50);
            if reserve > 0 {
                reserved.push(world.now);
                (answer.reserved, answer.begins_ms) = (40.min(reserve), 1000 - now_ms % 1000);
            }
            world.key.on_draw_answer(
                started,
                Some(answer),
                world.now,
                &world.setting,
                &world.local,
                &mut world.effects,
            );
            effects = std::mem::take(&mut world.effects);
        }
    }
    let late = START + 2 * SECOND;
    let count = |at: &[u64]| at.iter().filter(|at| **at > late).count();
    assert_eq!((count(&asked), count(&reserved)), (3, 3), "one request in each of the last three seconds: {asked:?}");
    let of_last = admitted.iter().filter(|step| **step >= 200).count();
    assert!((115..=122).contains(&of_last), "forty a second are admitted: {of_last}");
}

/// HV-63: a node reserves nothing as long as the store answers in full.
#[test]
fn hv_63_nothing_is_reserved_while_the_pool_has_enough() {
    let mut world = World::new("1000/s");
    for step in 0..200_u32 {
        world.pass(10);
        let started = world.now;
        for effect in world.ask(step, 1) {
            if let Effect::Draw { want, reserve, .. } = effect {
                assert_eq!(reserve, 0, "step {step}");
                world.drawn(started, want, 0);
            }
        }
    }
}
