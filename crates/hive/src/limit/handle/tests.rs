//! Tests of a limit as a whole: what happens to all of its keys at once.

use super::*;
use crate::limit::definition::{Definition, SECOND};

fn limit() -> (Limit, Arc<AtomicU64>) {
    let definition = Definition::parse("api", "1000/s").unwrap();
    let (clock, hand) = LocalClock::manual();
    let terms = Terms::from_definition(&definition).unwrap();
    let health = StoreHealth::new(16, 500);
    let setting = ArcSwap::from_pointee(health.setting(&terms));
    let (signals, _) = mpsc::channel(1);
    let limit = Limit(Arc::new(State {
        name: definition.name.clone(),
        clock: clock.clone(),
        common: Arc::new(Common::new(clock, health, signals)),
        defined: terms,
        setting,
        ends_ns: AtomicU64::new(u64::MAX),
        keys: Keys::new(definition.keys_max),
        counters: Counters::default(),
    }));
    (limit, hand)
}

/// HV-60: a permit can be taken until its batch expires and not later, although most checks use the coarse time.
#[test]
fn hv_60_a_batch_can_be_used_until_it_expires_and_no_longer() {
    let (limit, hand) = limit();
    let now_ns = limit.0.clock.now_ns();
    // An expiry is kept in units of 65 µs.
    let expires_ns = (now_ns + SECOND) >> 16 << 16;
    limit.0.keys.find(WHOLE, |entry| entry.local.install(now_ns, Batch::new(40, expires_ns), 0));
    for (left_ns, taken) in [(SECOND / 2, true), (SECOND / 1_000, true), (1, true), (0, false)] {
        hand.store(expires_ns - left_ns - now_ns, Ordering::Relaxed);
        assert_eq!(limit.whole().take_local(1).is_some(), taken, "{left_ns} ns before it expires");
        assert_eq!(limit.whole().take_local_up_to(2).map(|permit| permit.cost()), taken.then_some(2));
    }
}

/// The older batch is used before the newer one until it expires; after that the newer one is used.
#[test]
fn hv_60_the_batch_that_expires_first_is_used_first() {
    let (limit, hand) = limit();
    let now_ns = limit.0.clock.now_ns();
    limit.0.keys.find(WHOLE, |entry| {
        entry.local.install(now_ns, Batch::new(2, now_ns + SECOND), 0);
        entry.local.install(now_ns, Batch::new(3, now_ns + 2 * SECOND), 0);
    });
    let take = || limit.whole().take_local(1).is_some();
    let left = |at_ns| limit.0.keys.find(WHOLE, |entry| entry.local.available(at_ns));
    hand.store(SECOND - SECOND / 1_000, Ordering::Relaxed);
    assert!(take());
    assert_eq!((left(now_ns), left(now_ns + SECOND)), (Some(4), Some(3)), "taken from the older batch");
    hand.store(SECOND, Ordering::Relaxed);
    assert_eq!([take(), take()], [true, true]);
    hand.store(2 * SECOND - SECOND / 1_000, Ordering::Relaxed);
    assert_eq!([take(), take()], [true, false]);
}

/// HV-71, HV-72: a coming lower limit does not allocate the slow path of a key, and no permits outlive the change.
#[test]
fn hv_71_a_coming_change_expires_permits_and_allocates_nothing() {
    let (Limit(state), _) = limit();
    let now_ns = state.clock.now_ns();
    let [small, drawn] = ["small", "drawn"].map(|key| state.keys.place_key(keys::hash(key), now_ns));
    for key in [small, drawn] {
        state.keys.find(key, |entry| entry.local.install(now_ns, Batch::new(5, now_ns + 9 * SECOND), 0));
    }
    state.keys.find(drawn, |entry| *entry.slow() = Some(Box::default()));
    state.expire_by(now_ns + SECOND);
    let left = |key, at_ns| state.keys.find(key, |entry| entry.local.available(at_ns));
    assert_eq!((left(drawn, now_ns), left(drawn, now_ns + SECOND)), (Some(5), Some(0)));
    assert_eq!(left(small, now_ns + SECOND), Some(0));
    assert_eq!(state.keys.find(small, |entry| entry.slow().is_none()), Some(true));
}
