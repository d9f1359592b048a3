//! Compares the two atomic words with a plain list of batches.

use proptest::prelude::*;

use crate::limit::local_permits::{Batch, Expiry, LocalPermits, LocalTake};

/// The unit of expiries, in nanoseconds.
const GRAIN: u64 = 1 << 16;

fn at(unit: u64) -> u64 {
    (unit + 1) * GRAIN
}

#[derive(Clone, Debug)]
enum Act {
    Take(u64),
    Install(u64, u64),
    PutBack(u64),
    TakeAll,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1_u64..4).prop_map(Act::Take),
        2 => (1_u64..20, 1_u64..12).prop_map(|(count, life)| Act::Install(count, life)),
        1 => (1_u64..3).prop_map(Act::PutBack),
        1 => Just(Act::TakeAll),
        3 => (0_u64..5).prop_map(Act::Pass),
    ]
}

proptest! {
    /// HV-66: in any sequence of operations, no permit is used after its batch has expired, and none is used twice.
    #[test]
    fn hv_66_permits_expire_with_their_batch(acts in prop::collection::vec(act(), 1..300)) {
        let local = LocalPermits::default();
        // For each batch: how many permits may still be used, and until when.
        let mut batches: Vec<(u64, u64)> = Vec::new();
        let mut last: Option<LocalTake> = None;
        let unit_of = |expires: Expiry| (0..10_000).find(|unit| Expiry::at(at(*unit)) == expires).unwrap_or(0);
        let mut unit = 0;
        for act in acts {
            let now = at(unit);
            match act {
                Act::Take(cost) => {
                    let valid: u64 = batches.iter().filter(|(_, expires)| *expires > unit).map(|(count, _)| count).sum();
                    last = local.take(now, cost);
                    if last.is_some() {
                        prop_assert!(valid >= cost, "took {cost} of {valid}");
                        // The model takes from the batch that expires first, which leaves it at least as many permits.
                        batches.sort_by_key(|(_, expires)| *expires);
                        let mut owed = cost;
                        for (count, expires) in &mut batches {
                            if *expires > unit {
                                let used = owed.min(*count);
                                *count -= used;
                                owed -= used;
                            }
                        }
                    }
                }
                Act::Install(count, life) => {
                    local.install(now, Batch::new(count, at(unit + life)), count / 2);
                    batches.push((count, unit + life));
                }
                Act::PutBack(permits) => {
                    // Only permits that were taken are put back, and only once.
                    if let Some(taken) = last.take() && local.put_back(now, taken.expires, 1.min(permits)) {
                        batches.push((1, unit_of(taken.expires)));
                    }
                }
                Act::TakeAll => {
                    local.take_all(now);
                    batches.clear();
                    last = None;
                    prop_assert_eq!(local.available(now), 0);
                }
                Act::Pass(units) => unit += units,
            }
        }
    }
}

#[test]
fn hv_62_the_older_batch_is_used_up_first_and_the_mark_is_crossed_once() {
    let local = LocalPermits::default();
    local.install(at(0), Batch::new(4, at(10)), 2);
    local.install(at(0), Batch::new(4, at(20)), 2);
    let lows: Vec<bool> = (0..8).map(|_| local.take(at(1), 1).expect("there").low).collect();
    assert_eq!(
        lows,
        [false, false, false, false, false, true, false, false],
        "true only when half of the last batch is used"
    );
    assert!(local.take(at(1), 1).is_none());
}

#[test]
fn hv_62_a_refund_goes_to_its_batch_until_that_expires() {
    let local = LocalPermits::default();
    local.install(at(0), Batch::new(4, at(10)), 2);
    let taken = local.take(at(0), 4).unwrap();
    assert!(local.put_back(at(1), taken.expires, 3));
    assert_eq!(local.available(at(1)), 3);
    assert!(!local.put_back(at(10), taken.expires, 1), "expired");
    local.take_all(at(1));
    assert!(!local.put_back(at(1), taken.expires, 1), "gone");
    local.install(at(1), Batch::new(1, at(20)), 0);
    assert!(!local.put_back(at(1), taken.expires, 1), "in a newer batch it would expire too late");
}

#[test]
fn a_third_batch_gets_the_earlier_expiry_of_the_second() {
    let local = LocalPermits::default();
    for (count, expires) in [(1, 10), (2, 20), (4, 30)] {
        local.install(at(0), Batch::new(count, at(expires)), 0);
    }
    assert_eq!(local.available(at(0)), 7);
    assert_eq!(local.available(at(15)), 6);
    assert_eq!(local.available(at(20)), 0);
}
