//! Two words against a plain list of batches.

use proptest::prelude::*;

use crate::limit::stock::{Batch, Death, Stock, Taken};

/// Deaths are no finer than this.
const GRAIN: u64 = 1 << 16;

fn at(unit: u64) -> u64 {
    (unit + 1) * GRAIN
}

#[derive(Clone, Debug)]
enum Act {
    Take(u64),
    Install(u64, u64),
    PutBack(u64),
    Sweep,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1_u64..4).prop_map(Act::Take),
        2 => (1_u64..20, 1_u64..12).prop_map(|(count, life)| Act::Install(count, life)),
        1 => (1_u64..3).prop_map(Act::PutBack),
        1 => Just(Act::Sweep),
        3 => (0_u64..5).prop_map(Act::Pass),
    ]
}

proptest! {
    /// HV-66: whatever happens, no permit is used after the death of the batch it came with, and none twice.
    #[test]
    fn hv_66_permits_die_with_their_batch(acts in prop::collection::vec(act(), 1..300)) {
        let stock = Stock::default();
        // Of each batch: how many may still be used, and until when.
        let mut batches: Vec<(u64, u64)> = Vec::new();
        let mut last: Option<Taken> = None;
        let unit_of = |dies: Death| (0..10_000).find(|unit| Death::at(at(*unit)) == dies).unwrap_or(0);
        let mut unit = 0;
        for act in acts {
            let now = at(unit);
            match act {
                Act::Take(cost) => {
                    let alive: u64 = batches.iter().filter(|(_, dies)| *dies > unit).map(|(count, _)| count).sum();
                    last = stock.take(now, cost);
                    if last.is_some() {
                        prop_assert!(alive >= cost, "took {cost} of {alive}");
                        // The model gives from whatever dies first: it can only be kinder.
                        batches.sort_by_key(|(_, dies)| *dies);
                        let mut owed = cost;
                        for (count, dies) in &mut batches {
                            if *dies > unit {
                                let used = owed.min(*count);
                                *count -= used;
                                owed -= used;
                            }
                        }
                    }
                }
                Act::Install(count, life) => {
                    stock.install(now, Batch::new(count, at(unit + life)), count / 2);
                    batches.push((count, unit + life));
                }
                Act::PutBack(permits) => {
                    // Only what was taken, and only once.
                    if let Some(taken) = last.take() && stock.put_back(now, taken.dies, 1.min(permits)) {
                        batches.push((1, unit_of(taken.dies)));
                    }
                }
                Act::Sweep => {
                    stock.sweep(now);
                    batches.clear();
                    last = None;
                    prop_assert_eq!(stock.left(now), 0);
                }
                Act::Pass(units) => unit += units,
            }
        }
    }
}

#[test]
fn hv_62_the_older_batch_is_used_up_first_and_the_mark_is_crossed_once() {
    let stock = Stock::default();
    stock.install(at(0), Batch::new(4, at(10)), 2);
    stock.install(at(0), Batch::new(4, at(20)), 2);
    let lows: Vec<bool> = (0..8).map(|_| stock.take(at(1), 1).expect("there").low).collect();
    assert_eq!(lows, [false, false, false, false, false, true, false, false], "only when the last batch is half used");
    assert!(stock.take(at(1), 1).is_none());
}

#[test]
fn hv_62_a_refund_goes_to_its_batch_while_that_lives() {
    let stock = Stock::default();
    stock.install(at(0), Batch::new(4, at(10)), 2);
    let taken = stock.take(at(0), 4).unwrap();
    assert!(stock.put_back(at(1), taken.dies, 3));
    assert_eq!(stock.left(at(1)), 3);
    assert!(!stock.put_back(at(10), taken.dies, 1), "dead");
    stock.sweep(at(1));
    assert!(!stock.put_back(at(1), taken.dies, 1), "gone");
    stock.install(at(1), Batch::new(1, at(20)), 0);
    assert!(!stock.put_back(at(1), taken.dies, 1), "a younger batch would keep it alive for too long");
}

#[test]
fn a_third_batch_shares_the_earlier_death_of_the_second() {
    let stock = Stock::default();
    for (count, dies) in [(1, 10), (2, 20), (4, 30)] {
        stock.install(at(0), Batch::new(count, at(dies)), 0);
    }
    assert_eq!(stock.left(at(0)), 7);
    assert_eq!(stock.left(at(15)), 6);
    assert_eq!(stock.left(at(20)), 0);
}
