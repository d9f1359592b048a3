//! The reservations of a bucket's flow, for the present second and the next. A node that reserves gets permits of the
//! next second, one after the other, and while that second lasts the bucket fills by as much less. There is no row per
//! node and nothing to give back or to expire: if the answer is lost, the reservation is spent, as a batch is.
//!
//! The nodes' parts follow weighted max-min fairness, which is approached from one second to the next. `level_u` is the
//! most per unit of weight: a node that wants less gets all it wants, the others are cut to the level. The level of the
//! next second follows from the sums of this one by one step of Newton's method. From below, a step never exceeds the
//! right level, at which everything is given away, and the steps end there.
//!
//! Nodes use their reservations by their own clocks. If the store's clock goes back, the nodes are ahead of it. From
//! then on the larger of the two seconds counts until the later one is over, which is never less than what the nodes
//! use. No reservation lasts longer than two seconds, so the bucket also follows a clock that went back far. A step
//! back that is shorter than the time since the last draw is not noticed: for the length of that step the reserved
//! permits are used but not counted, once.

use crate::contract::limit::{MICRO, ReservationRequest, Rule};

/// A second of hive time.
pub const SECOND_MS: u64 = 1_000;
/// The part of the flow that may be reserved, in thousandths; the rest stays in the pool, for nodes that are new.
const RESERVED_MAX: u64 = 970;
/// With a smaller burst, drawing from the pool is as good.
const BURST_MIN: u64 = 80;
/// Bounds of the rate per millisecond and of the sum of wishes, so that all sums are exact in a Lua script's numbers.
const RATE_MAX: u64 = 4_000_000_000_000;
const ASKED_MAX: u64 = 1 << 52;

impl Rule {
    /// The part of a second that may be reserved; 0 if this limit has no reservations. It depends only on the rule, so
    /// that all nodes and stores compute the same.
    pub fn reservable_u(&self) -> u64 {
        let has_reservations = self.period_ms == 1
            && (1..=RATE_MAX).contains(&self.rate_u)
            && self.burst_u >= BURST_MIN * MICRO
            && self.batch_life_ms() <= SECOND_MS;
        if has_reservations { self.rate_u * RESERVED_MAX } else { 0 }
    }
}

/// The reservations of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reservations {
    /// The present second, counted from the beginning of hive time. After the clock went back it may be the next one.
    pub second: u64,
    pub now_u: u64,
    pub next_u: u64,
    /// The most per unit of weight in the next second; 0: no bound.
    pub level_u: u64,
    /// For the next second: the sum of the wishes after the cut to the level, the sum of all weights, and the sum of
    /// the weights of the nodes that were cut.
    pub asked_u: u64,
    pub weight: u64,
    pub cut_weight: u64,
}

impl Reservations {
    /// The reservations of a new bucket. What was reserved up to `lineage_ms` is unknown, so all of it counts as
    /// reserved.
    pub fn unknown(reservable_u: u64, lineage_ms: u64, hive_ms: u64) -> Reservations {
        // If the clock has gone back since, the two seconds begin with the next one.
        let now_second = hive_ms / SECOND_MS;
        let (second, last) = ((lineage_ms / SECOND_MS).clamp(now_second, now_second + 1), lineage_ms / SECOND_MS + 1);
        let unsure = |of: u64| if lineage_ms > 0 && of <= last { reservable_u } else { 0 };
        if crate::planted::on("bookings forgotten") {
            return Reservations { second, ..Reservations::default() };
        }
        Reservations { second, now_u: unsure(second), next_u: unsure(second + 1), ..Reservations::default() }
    }

    /// The permits that flow to reservations in this time. Before the present second the flow is the same as in it.
    pub fn flow_between_u(&self, from_ms: u64, to_ms: u64) -> u64 {
        if crate::planted::on("bookings not counted") {
            return 0;
        }
        let turns_ms = (self.second + 1).saturating_mul(SECOND_MS);
        let now_ms = to_ms.min(turns_ms).saturating_sub(from_ms);
        let next_ms = to_ms.min(turns_ms.saturating_add(SECOND_MS)).saturating_sub(from_ms.max(turns_ms));
        // Reservations are whole permits per 1000 ms, so nothing is rounded.
        let flow_u = |amount_u: u64, ms: u64| (amount_u / SECOND_MS).saturating_mul(ms);
        flow_u(self.now_u, now_ms).saturating_add(flow_u(self.next_u, next_ms))
    }

    /// Adjusts to a clock that went back to `hive_ms`, or that has not reached the present second again since.
    pub fn step_back(&mut self, hive_ms: u64) {
        let (second, most_u) = (hive_ms / SECOND_MS, self.now_u.max(self.next_u));
        if second + 1 < self.second {
            *self = Reservations { second: second + 1, next_u: most_u, ..Reservations::default() };
        }
        self.now_u = most_u;
    }

    /// Whether the clock went back, and has not reached the present second again.
    pub fn is_ahead(&self, hive_ms: u64) -> bool {
        hive_ms / SECOND_MS < self.second
    }

    /// Advances to the second of `hive_ms`, if that is a later one.
    pub fn advance(&mut self, reservable_u: u64, hive_ms: u64) {
        let second = hive_ms / SECOND_MS;
        *self = match second {
            second if second <= self.second => return,
            second if second == self.second + 1 => Reservations {
                second,
                now_u: self.next_u,
                level_u: self.next_level_u(reservable_u),
                ..Reservations::default()
            },
            second => Reservations { second, ..Reservations::default() },
        };
    }

    fn next_level_u(&self, reservable_u: u64) -> u64 {
        let Reservations { level_u, asked_u, weight, cut_weight, .. } = *self;
        if weight == 0 || (cut_weight == 0 && asked_u <= reservable_u) {
            return 0;
        }
        // The level is never below an equal part per weight.
        let equal_u = reservable_u / weight;
        if cut_weight == 0 {
            return equal_u;
        }
        let stepped_u = if asked_u <= reservable_u {
            level_u + (reservable_u - asked_u) / cut_weight
        } else {
            level_u.saturating_sub((asked_u - reservable_u).div_ceil(cut_weight))
        };
        stepped_u.max(equal_u)
    }

    /// Reserves whole permits of the next second. Returns how many.
    pub fn reserve(&mut self, reservable_u: u64, ReservationRequest { want, weight }: ReservationRequest) -> u64 {
        let (want_u, weight) = (want.saturating_mul(MICRO), weight.max(1));
        let most_u = match self.level_u {
            0 => reservable_u,
            level_u => level_u.saturating_mul(weight).min(reservable_u),
        };
        let fair_u = want_u.min(most_u);
        self.asked_u = (self.asked_u + fair_u).min(ASKED_MAX);
        self.weight += weight;
        self.cut_weight += if want_u > most_u { weight } else { 0 };
        let free_u =
            if crate::planted::on("booked twice") { u64::MAX } else { reservable_u.saturating_sub(self.next_u) };
        let reserved = fair_u.min(free_u) / MICRO;
        self.next_u += reserved * MICRO;
        reserved
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: Rule = Rule { rate_u: MICRO, period_ms: 1, burst_u: 200 * MICRO };

    /// Max-min fairness by its definition: in the order of wish per weight, each node gets at most an equal part of the
    /// rest.
    fn max_min(capacity_u: u64, asks: &[ReservationRequest]) -> Vec<u64> {
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

    /// Lets the same nodes ask in every second. Returns what they get in each.
    fn seconds(asks: &[ReservationRequest], count: u64) -> Vec<Vec<u64>> {
        let reservable_u = RULE.reservable_u();
        let mut reservations = Reservations::default();
        (1..=count)
            .map(|second| {
                reservations.advance(reservable_u, second * SECOND_MS);
                let given: Vec<u64> = asks.iter().map(|ask| reservations.reserve(reservable_u, *ask)).collect();
                assert!(
                    reservations.next_u <= reservable_u && given.iter().sum::<u64>() * MICRO == reservations.next_u
                );
                given
            })
            .collect()
    }

    fn asks() -> impl Strategy<Value = Vec<ReservationRequest>> {
        prop::collection::vec(
            (0_u64..1500, 1_u64..5).prop_map(|(want, weight)| ReservationRequest { want, weight }),
            1..30,
        )
    }

    proptest! {
        /// HV-63, HV-83: in no second more is reserved than there is, and after a few seconds the parts are max-min
        /// fair.
        #[test]
        fn hv_63_reservations_converge_to_max_min_fairness(asks in asks()) {
            let given = seconds(&asks, asks.len() as u64 + 4).pop().expect("a second");
            for ((given, ask), fair_u) in given.iter().zip(&asks).zip(max_min(RULE.reservable_u(), &asks)) {
                prop_assert!(*given <= ask.want);
                prop_assert!(given.abs_diff(fair_u / MICRO) <= 1, "{given} for {ask:?}, {} is fair", fair_u / MICRO);
            }
        }

        /// HV-83: a node with a higher weight does not get less.
        #[test]
        fn hv_83_a_higher_weight_never_gets_less(asks in asks(), more in 1_u64..5) {
            let rounds = asks.len() as u64 + 4;
            let before = seconds(&asks, rounds).pop().expect("a second");
            let mut heavier = asks;
            heavier[0].weight += more;
            let after = seconds(&heavier, rounds).pop().expect("a second");
            prop_assert!(after[0] + 1 >= before[0], "{} after {}", after[0], before[0]);
        }
    }

    #[test]
    fn hv_63_reserved_permits_do_not_flow_into_the_pool() {
        let reservations =
            Reservations { second: 5, now_u: 900 * MICRO, next_u: 100 * MICRO, ..Reservations::default() };
        assert_eq!(reservations.flow_between_u(5_000, 6_000), 900 * MICRO);
        assert_eq!(reservations.flow_between_u(5_990, 6_010), 10 * MICRO);
        assert_eq!(reservations.flow_between_u(5_000, 9_000), 1_000 * MICRO);
        assert_eq!(
            reservations.flow_between_u(4_990, 5_000),
            9 * MICRO,
            "the clock has gone back: the same flow as in the present second"
        );
        assert_eq!(reservations.flow_between_u(7_000, 9_000), 0);
    }

    #[test]
    fn hv_63_a_new_bucket_holds_back_what_may_have_been_reserved() {
        let reservable_u = RULE.reservable_u();
        let at = |hive_ms| {
            let reservations = Reservations::unknown(reservable_u, 5_300, hive_ms);
            (reservations.now_u > 0, reservations.next_u > 0)
        };
        assert_eq!(
            [at(5_300), at(5_999), at(6_000), at(7_000)],
            [(true, true), (true, true), (true, false), (false, false)]
        );
        assert_eq!(
            Reservations::unknown(reservable_u, 0, 5_300),
            Reservations { second: 5, ..Reservations::default() }
        );
    }

    #[test]
    fn hv_63_only_fast_limits_have_reservations() {
        assert_eq!(RULE.reservable_u(), 970 * MICRO);
        for pooled in
            [Rule::rate(1000, 1000, 79), Rule::rate(1000, 60_000, 1000), Rule::rate(3, 7, 100), Rule::count(500)]
        {
            assert_eq!(pooled.reservable_u(), 0, "{pooled:?}");
        }
    }
}
