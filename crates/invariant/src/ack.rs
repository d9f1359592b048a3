//! I14: a row goes only once every run it owes has succeeded, or is parked. Seen from outside: before the row is
//! removed, each target it leads to has accepted a write made from a load that saw its change, or a later one.

use std::collections::BTreeMap;

use crate::Breach;

/// A removed row and one target it owed. Times are any numbers that order all of these records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    pub event: i64,
    /// Sink or workflow, and key.
    pub owed: String,
    pub change: u64,
    pub at: u64,
}

/// Something that pays: an accepted write, or a committed park.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paid {
    pub owed: String,
    pub change: u64,
    pub at: u64,
}

/// Sorted and looked up, so that a long history takes no longer than its sorting.
pub fn acknowledged_after_success(removed: &[Removed], paid: &[Paid]) -> Vec<Breach> {
    let mut payments: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Paid { owed, change, at } in paid {
        payments.entry(owed).or_default().push((*at, *change));
    }
    for of_one in payments.values_mut() {
        of_one.sort_unstable();
        // by then so much was paid, at the most
        let mut most = 0;
        for (_, change) in of_one {
            most = most.max(*change);
            *change = most;
        }
    }
    let mut breaches = Vec::new();
    for Removed { event, owed, change, at } in removed {
        let of_one = payments.get(owed.as_str()).map_or(&[][..], Vec::as_slice);
        let by_then = of_one.partition_point(|(when, _)| when <= at);
        if by_then.checked_sub(1).is_none_or(|last| of_one[last].1 < *change) {
            let what = format!("event {event} (change {change}) was removed before {owed} had been written");
            breaches.push(Breach::new("I14", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn removed(change: u64, at: u64) -> Removed {
        Removed { event: 1, owed: "books/7".to_owned(), change, at }
    }

    fn paid(change: u64, at: u64) -> Paid {
        Paid { owed: "books/7".to_owned(), change, at }
    }

    #[test]
    fn i14_a_row_goes_after_its_writes() {
        assert_eq!(acknowledged_after_success(&[removed(3, 9)], &[paid(2, 1), paid(4, 8)]), []);
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[])), ["I14"]);
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[paid(3, 10)])), ["I14"], "too late");
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[paid(2, 8)])), ["I14"], "an older load");
        let other = Paid { owed: "books/8".to_owned(), ..paid(3, 1) };
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[other])), ["I14"]);
    }

    /// RL-41: a long history, of which one record is wrong.
    #[test]
    fn i14_a_long_history_is_swept() {
        let paid: Vec<Paid> = (0..50_000).map(|at| paid(at, at)).collect();
        let mut removed: Vec<Removed> = (0..50_000).map(|at| removed(at, at)).collect();
        assert_eq!(acknowledged_after_success(&removed, &paid), []);
        removed[25_000].change += 1;
        assert_eq!(ids(&acknowledged_after_success(&removed, &paid)), ["I14"]);
    }
}
