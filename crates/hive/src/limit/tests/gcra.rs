//! Compares the local share with a model in rational numbers: nanoseconds and permits over a common denominator,
//! without rounding.

use proptest::prelude::*;

use crate::limit::{
    definition::SECOND,
    gcra::{FullAt, Share},
    rate::Rate,
};

/// A bucket without rounding. Amounts are in permits × period_ns × divisor, so that the flow of a nanosecond is whole.
struct Model {
    missing: u128,
    per_ns: u128,
    per_permit: u128,
    capacity: u128,
    at_ns: u64,
}

impl Model {
    fn new(rate: Rate, divisor: u64, burst: u64, since_ns: u64) -> Model {
        let per_permit = u128::from(rate.period_ms) * 1_000_000 * u128::from(divisor);
        let capacity = per_permit * u128::from(burst);
        Model { missing: capacity, per_ns: u128::from(rate.permits), per_permit, capacity, at_ns: since_ns }
    }

    fn take(&mut self, now_ns: u64, cost: u64) -> bool {
        self.missing = self.missing.saturating_sub(u128::from(now_ns - self.at_ns) * self.per_ns);
        self.at_ns = now_ns;
        let after = self.missing + u128::from(cost) * self.per_permit;
        let fits = after <= self.capacity;
        if fits {
            self.missing = after;
        }
        fits
    }
}

proptest! {
    /// HV-83: the share never admits more than the model, and stays close to it after any number of requests.
    #[test]
    fn hv_83_the_share_follows_the_rational_model(
        permits in 1_u64..2_000_000, period_ms in prop::sample::select(vec![1_000_u64, 60_000, 3_600_000]),
        divisor in 1_u64..50, burst in 1_u64..300,
        requests in prop::collection::vec((0_u64..50_000_000, 1_u64..4), 1..400),
    ) {
        let rate = Rate { permits, period_ms };
        let start = 5_000_000_000;
        let share = Share::new(rate, divisor, burst, start);
        let full_at = FullAt::default();
        let mut model = Model::new(rate, divisor, burst, start);
        let (mut now, mut ours, mut theirs) = (start, 0_u64, 0_u64);
        for (gap, cost) in requests {
            now += gap;
            ours += if full_at.take(&share, now, cost).is_ok() { cost } else { 0 };
            theirs += if model.take(now, cost) { cost } else { 0 };
            prop_assert!(ours <= theirs + 4, "{ours} against {theirs}");
        }
        // Rounding at a refusal shifts the later decisions by one request at most.
        prop_assert!(ours + 8 >= theirs, "{ours} against {theirs}");
    }

    /// HV-64, HI-7: in every window the share admits at most share × window + burst.
    #[test]
    fn hi_7_a_share_keeps_to_its_rate_in_every_window(
        permits in 1_u64..100_000, divisor in 1_u64..40, burst in 1_u64..100,
        gaps in prop::collection::vec(0_u64..3_000_000, 1..600),
    ) {
        let rate = Rate::per_second(permits);
        let share = Share::new(rate, divisor, burst, 0);
        let full_at = FullAt::default();
        let (mut now, mut admitted) = (0, Vec::new());
        for gap in gaps {
            now += gap;
            if full_at.take(&share, now, 1).is_ok() {
                admitted.push(now);
            }
        }
        for (from, begin) in admitted.iter().enumerate() {
            for (until, end) in admitted.iter().enumerate().skip(from) {
                let count = (until - from + 1) as u128;
                let allowed = u128::from(burst) * 1_000_000_000 * u128::from(divisor) + u128::from(end - begin) * u128::from(permits);
                prop_assert!(count * 1_000_000_000 * u128::from(divisor) <= allowed);
            }
        }
    }
}

#[test]
fn the_wait_of_a_refusal_is_exactly_long_enough() {
    let share = Share::new(Rate::per_second(7), 3, 5, 0);
    let full_at = FullAt::default();
    let wait = full_at.take(&share, 0, 1).unwrap_err();
    assert!(full_at.take(&share, wait - 1, 1).is_err());
    let taken = full_at.take(&share, wait, 1).unwrap();
    assert_eq!(full_at.left(&share, wait), 0);
    full_at.put_back(&share, taken, wait, 1);
    assert!(full_at.take(&share, wait, 1).is_ok(), "permits that were put back can be taken again");
}

/// HV-60, HV-64: a refund counts for nothing after the bucket may have been full, because it would add permits.
#[test]
fn hv_64_a_late_refund_to_a_share_is_spent() {
    // Ten permits a second, five at once.
    let share = Share::new(Rate::per_second(10), 1, 5, 0);
    let (full_at, tenth) = (FullAt::default(), SECOND / 10);
    let start = SECOND;
    let all = |now| (0..20).filter(|_| full_at.take(&share, now, 1).is_ok()).count();
    let [first, second] = [(); 2].map(|()| full_at.take(&share, start, 1).unwrap());
    full_at.put_back(&share, first, start + tenth / 2, 1);
    // After the refund of the first one the bucket is full one tenth of a second after the start, not two.
    let later = start + tenth + tenth / 2;
    assert_eq!(all(later), 5);
    full_at.put_back(&share, second, later, 1);
    assert_eq!(all(later), 0, "it had been full since");
    let third = full_at.take(&share, later + tenth, 1).unwrap();
    full_at.put_back(&share, third, later + tenth, 1);
    assert_eq!(all(later + tenth), 1, "an immediate refund counts in full");
}

/// HV-60: permits that flowed in since the take would have overflowed without it, so the refund does not add them
/// again.
#[test]
fn hv_64_a_refund_fills_a_share_no_more_than_full() {
    // One permit a second, two at once.
    let share = Share::new(Rate::per_second(1), 1, 2, 0);
    let full_at = FullAt::default();
    let at = |tenths: u64| tenths * (SECOND / 10);
    let unused = full_at.take(&share, at(100), 1).unwrap();
    full_at.take(&share, at(109), 1).unwrap();
    full_at.put_back(&share, unused, at(109), 1);
    // The result is the same as if only the used permit had been taken: full again one second after that.
    assert_eq!(full_at.left(&share, at(109)), 1);
    assert_eq!(full_at.left(&share, at(118)), 1);
    assert_eq!(full_at.left(&share, at(119)), 2);
}
