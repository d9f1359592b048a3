//! What is promised of a bucket's flow: this second and the next. A node that books has so many permits of the next second,
//! one after the other; the bucket fills by so much less while that second lasts. There is no row per node, nothing to give
//! back and nothing that ends late: a booking nobody heard of is spent, as a batch is.
//!
//! Who gets how much is max-min by weight, found from one second to the next. `level_u` is the most per weight: what a node
//! wants below it is given whole, the others are cut. From the sums of one second the level of the next follows by one step
//! of Newton's method, which from below never comes out too high, and ends at the level where all of it is given away.
//!
//! Nodes use what they have booked by their own clocks. If the store's clock goes back they are ahead of it: from then on
//! the larger of the two seconds counts until the later one is over, which is never less than what is used. Nothing lasts
//! longer than two seconds after it was booked, so that a clock that went back far is followed. A step back that is shorter
//! than the time since the last draw goes unseen: for as long as it was, what is booked is used and not counted, once.

use crate::contract::limit::{Book, MICRO, Rule};

/// A second of hive time.
pub const SLOT_MS: u64 = 1_000;
/// So much of the flow may be booked, in thousandths; the rest stays in the pool, for those who are new.
const BOOKED_MAX: u64 = 970;
/// With a smaller burst the pool does as well.
const BURST_MIN: u64 = 80;
/// Sums stay whole in a script's numbers: so much in a millisecond, and so much wanted.
const RATE_MAX: u64 = 4_000_000_000_000;
const ASKED_MAX: u64 = 1 << 52;

impl Rule {
    /// What may be booked of a second; 0: nothing, ever. By the numbers alone, so that all come to the same.
    pub fn bookable_u(&self) -> u64 {
        let books = self.period_ms == 1
            && (1..=RATE_MAX).contains(&self.rate_u)
            && self.burst_u >= BURST_MIN * MICRO
            && self.batch_life_ms() <= SLOT_MS;
        if books { self.rate_u * BOOKED_MAX } else { 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Booked {
    /// The present second, counted from the beginning of hive time; after the clock went back perhaps the next one.
    pub slot: u64,
    pub now_u: u64,
    pub next_u: u64,
    /// For the next second; 0: no bound.
    pub level_u: u64,
    /// Of the next second: the sum of what the level leaves of all that was wanted, all weights, and those of the cut.
    pub asked_u: u64,
    pub weight: u64,
    pub cut_weight: u64,
}

impl Booked {
    /// Nobody knows what was booked up to `lineage_ms`: it may have been all.
    pub fn unknown(bookable_u: u64, lineage_ms: u64, hive_ms: u64) -> Booked {
        // Where the clock went back since, the two seconds begin with the next one.
        let now_slot = hive_ms / SLOT_MS;
        let (slot, last) = ((lineage_ms / SLOT_MS).clamp(now_slot, now_slot + 1), lineage_ms / SLOT_MS + 1);
        let unsure = |of: u64| if lineage_ms > 0 && of <= last { bookable_u } else { 0 };
        if crate::planted::on("bookings forgotten") {
            return Booked { slot, ..Booked::default() };
        }
        Booked { slot, now_u: unsure(slot), next_u: unsure(slot + 1), ..Booked::default() }
    }

    /// What flows to those who have booked. Before the present second it is as much as in it.
    pub fn between_u(&self, from_ms: u64, to_ms: u64) -> u64 {
        if crate::planted::on("bookings not counted") {
            return 0;
        }
        let turns_ms = (self.slot + 1).saturating_mul(SLOT_MS);
        let now_ms = to_ms.min(turns_ms).saturating_sub(from_ms);
        let next_ms = to_ms.min(turns_ms.saturating_add(SLOT_MS)).saturating_sub(from_ms.max(turns_ms));
        // Whole permits in a thousand milliseconds: nothing is rounded.
        let flow_u = |amount_u: u64, ms: u64| (amount_u / SLOT_MS).saturating_mul(ms);
        flow_u(self.now_u, now_ms).saturating_add(flow_u(self.next_u, next_ms))
    }

    /// The clock went back to this, or has gone on from there and not reached the present second again.
    pub fn go_back(&mut self, hive_ms: u64) {
        let (slot, most_u) = (hive_ms / SLOT_MS, self.now_u.max(self.next_u));
        if slot + 1 < self.slot {
            *self = Booked { slot: slot + 1, next_u: most_u, ..Booked::default() };
        }
        self.now_u = most_u;
    }

    /// Its second has not begun again.
    pub fn is_ahead(&self, hive_ms: u64) -> bool {
        hive_ms / SLOT_MS < self.slot
    }

    /// Another second may have begun.
    pub fn turn(&mut self, bookable_u: u64, hive_ms: u64) {
        let slot = hive_ms / SLOT_MS;
        *self = match slot {
            slot if slot <= self.slot => return,
            slot if slot == self.slot + 1 => {
                Booked { slot, now_u: self.next_u, level_u: self.next_level_u(bookable_u), ..Booked::default() }
            }
            slot => Booked { slot, ..Booked::default() },
        };
    }

    fn next_level_u(&self, bookable_u: u64) -> u64 {
        let Booked { level_u, asked_u, weight, cut_weight, .. } = *self;
        if weight == 0 || (cut_weight == 0 && asked_u <= bookable_u) {
            return 0;
        }
        // Nobody is left with less than an equal part.
        let equal_u = bookable_u / weight;
        if cut_weight == 0 {
            return equal_u;
        }
        let stepped_u = if asked_u <= bookable_u {
            level_u + (bookable_u - asked_u) / cut_weight
        } else {
            level_u.saturating_sub((asked_u - bookable_u).div_ceil(cut_weight))
        };
        stepped_u.max(equal_u)
    }

    /// Whole permits of the next second.
    pub fn book(&mut self, bookable_u: u64, Book { want, weight }: Book) -> u64 {
        let (want_u, weight) = (want.saturating_mul(MICRO), weight.max(1));
        let most_u = match self.level_u {
            0 => bookable_u,
            level_u => level_u.saturating_mul(weight).min(bookable_u),
        };
        let fair_u = want_u.min(most_u);
        self.asked_u = (self.asked_u + fair_u).min(ASKED_MAX);
        self.weight += weight;
        self.cut_weight += if want_u > most_u { weight } else { 0 };
        let free_u = if crate::planted::on("booked twice") { u64::MAX } else { bookable_u.saturating_sub(self.next_u) };
        let booked = fair_u.min(free_u) / MICRO;
        self.next_u += booked * MICRO;
        booked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: Rule = Rule { rate_u: MICRO, period_ms: 1, burst_u: 200 * MICRO };

    /// Max-min by its definition: those who want the least for their weight first, each with an equal part of what is left.
    fn max_min(capacity_u: u64, asks: &[Book]) -> Vec<u64> {
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by(|a, b| (asks[*a].want * asks[*b].weight).cmp(&(asks[*b].want * asks[*a].weight)));
        let (mut left_u, mut weight) = (capacity_u, asks.iter().map(|ask| ask.weight).sum::<u64>());
        let mut given = vec![0; asks.len()];
        for at in order {
            given[at] = (asks[at].want * MICRO).min(left_u * asks[at].weight / weight);
            (left_u, weight) = (left_u - given[at], weight - asks[at].weight);
        }
        given
    }

    /// The same nodes ask in every second; what they get in each.
    fn seconds(asks: &[Book], count: u64) -> Vec<Vec<u64>> {
        let bookable_u = RULE.bookable_u();
        let mut booked = Booked::default();
        (1..=count)
            .map(|second| {
                booked.turn(bookable_u, second * SLOT_MS);
                let given: Vec<u64> = asks.iter().map(|ask| booked.book(bookable_u, *ask)).collect();
                assert!(booked.next_u <= bookable_u && given.iter().sum::<u64>() * MICRO == booked.next_u);
                given
            })
            .collect()
    }

    fn asks() -> impl Strategy<Value = Vec<Book>> {
        prop::collection::vec((0_u64..1500, 1_u64..5).prop_map(|(want, weight)| Book { want, weight }), 1..30)
    }

    proptest! {
        /// HV-63, HV-83: never more than there is, in whatever second; and after a few of them max-min.
        #[test]
        fn hv_63_bookings_come_to_max_min(asks in asks()) {
            let given = seconds(&asks, asks.len() as u64 + 4).pop().expect("a second");
            for ((given, ask), fair_u) in given.iter().zip(&asks).zip(max_min(RULE.bookable_u(), &asks)) {
                prop_assert!(*given <= ask.want);
                prop_assert!(given.abs_diff(fair_u / MICRO) <= 1, "{given} for {ask:?}, {} is fair", fair_u / MICRO);
            }
        }

        /// HV-83: whoever weighs more gets no less.
        #[test]
        fn hv_83_weight_is_worth_something(asks in asks(), more in 1_u64..5) {
            let rounds = asks.len() as u64 + 4;
            let before = seconds(&asks, rounds).pop().expect("a second");
            let mut heavier = asks;
            heavier[0].weight += more;
            let after = seconds(&heavier, rounds).pop().expect("a second");
            prop_assert!(after[0] + 1 >= before[0], "{} after {}", after[0], before[0]);
        }
    }

    #[test]
    fn hv_63_what_is_booked_flows_to_nobody_else() {
        let booked = Booked { slot: 5, now_u: 900 * MICRO, next_u: 100 * MICRO, ..Booked::default() };
        assert_eq!(booked.between_u(5_000, 6_000), 900 * MICRO);
        assert_eq!(booked.between_u(5_990, 6_010), 10 * MICRO);
        assert_eq!(booked.between_u(5_000, 9_000), 1_000 * MICRO);
        assert_eq!(booked.between_u(4_990, 5_000), 9 * MICRO, "the clock has gone back to there: as much as in it");
        assert_eq!(booked.between_u(7_000, 9_000), 0);
    }

    #[test]
    fn hv_63_a_ledger_made_anew_holds_back_what_may_be_booked() {
        let bookable_u = RULE.bookable_u();
        let at = |hive_ms| {
            let booked = Booked::unknown(bookable_u, 5_300, hive_ms);
            (booked.now_u > 0, booked.next_u > 0)
        };
        assert_eq!(
            [at(5_300), at(5_999), at(6_000), at(7_000)],
            [(true, true), (true, true), (true, false), (false, false)]
        );
        assert_eq!(Booked::unknown(bookable_u, 0, 5_300), Booked { slot: 5, ..Booked::default() });
    }

    #[test]
    fn hv_63_only_fast_limits_are_booked() {
        assert_eq!(RULE.bookable_u(), 970 * MICRO);
        for pooled in
            [Rule::rate(1000, 1000, 79), Rule::rate(1000, 60_000, 1000), Rule::rate(3, 7, 100), Rule::count(500)]
        {
            assert_eq!(pooled.bookable_u(), 0, "{pooled:?}");
        }
    }
}
