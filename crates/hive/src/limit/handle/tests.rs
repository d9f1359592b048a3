//! A limit as a whole: what happens to all of its keys at once.

use super::*;
use crate::limit::definition::{Definition, SECOND};

const START: u64 = 10 * SECOND;

fn limit() -> Limit {
    let definition = Definition::parse("api", "1000/s").unwrap();
    let (counter, mock) = quanta::Clock::mock();
    mock.increment(START);
    let clock = LocalClock::new(counter);
    let terms = Terms::of(&definition).unwrap();
    let standing = Standing::new(16, 500);
    let setting = ArcSwap::from_pointee(standing.setting(&terms));
    let (signals, _) = mpsc::channel(1);
    Limit(Arc::new(State {
        name: definition.name.clone(),
        clock: clock.clone(),
        common: Arc::new(Common::new(clock, standing, signals)),
        defined: terms,
        setting,
        ends_ns: AtomicU64::new(u64::MAX),
        keys: Keys::new(definition.keys_max),
        counters: Counters::default(),
    }))
}

/// HV-71, HV-72: a key about which little is known stays small, and yet nothing in it outlives a lower limit.
#[test]
fn hv_71_a_coming_change_ends_what_is_there_and_makes_nothing() {
    let Limit(state) = limit();
    let now_ns = state.clock.now_ns();
    let [small, drawn] = ["small", "drawn"].map(|key| state.keys.place(keys::hash(key), now_ns));
    for key in [small, drawn] {
        state.keys.find(key, |entry| entry.stock.install(now_ns, Batch::new(5, now_ns + 9 * SECOND), 0));
    }
    state.keys.find(drawn, |entry| *entry.slow() = Some(Box::default()));
    state.end_at(now_ns + SECOND);
    let left = |key, at_ns| state.keys.find(key, |entry| entry.stock.left(at_ns));
    assert_eq!((left(drawn, now_ns), left(drawn, now_ns + SECOND)), (Some(5), Some(0)));
    assert_eq!(left(small, now_ns + SECOND), Some(0));
    assert_eq!(state.keys.find(small, |entry| entry.slow().is_none()), Some(true));
}
