//! I14: a row is deleted only after each of its obligations has succeeded or is parked. An observer sees that before
//! the row is deleted, each of its targets has accepted a write from a load that read this change or a later one.

use std::collections::BTreeMap;

use crate::Breach;

/// A deleted row and one of its obligations. Times are any numbers that order all of these records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedRow {
    pub event: i64,
    /// The obligation: sink or workflow, and key.
    pub owed: String,
    pub change: u64,
    pub at: u64,
}

/// The fulfilment of an obligation: an accepted write, or a committed park.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payment {
    pub owed: String,
    pub change: u64,
    pub at: u64,
}

/// Checks that each row was deleted after its obligations were fulfilled. It sorts and uses binary search, so that a
/// long history takes only the time of its sorting.
pub fn acknowledged_after_success(removed: &[RemovedRow], paid: &[Payment]) -> Vec<Breach> {
    let mut payments: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Payment { owed, change, at } in paid {
        payments.entry(owed).or_default().push((*at, *change));
    }
    for of_one in payments.values_mut() {
        of_one.sort_unstable();
        // the newest change that was written up to this time
        let mut most = 0;
        for (_, change) in of_one {
            most = most.max(*change);
            *change = most;
        }
    }
    let mut breaches = Vec::new();
    for RemovedRow { event, owed, change, at } in removed {
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

    fn removed(change: u64, at: u64) -> RemovedRow {
        RemovedRow { event: 1, owed: "books/7".to_owned(), change, at }
    }

    fn paid(change: u64, at: u64) -> Payment {
        Payment { owed: "books/7".to_owned(), change, at }
    }

    #[test]
    fn i14_a_row_is_deleted_after_its_writes() {
        assert_eq!(acknowledged_after_success(&[removed(3, 9)], &[paid(2, 1), paid(4, 8)]), []);
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[])), ["I14"]);
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[paid(3, 10)])), ["I14"], "too late");
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[paid(2, 8)])), ["I14"], "an older load");
        let other = Payment { owed: "books/8".to_owned(), ..paid(3, 1) };
        assert_eq!(ids(&acknowledged_after_success(&[removed(3, 9)], &[other])), ["I14"]);
    }

    /// RL-41: one wrong record in a long history is found.
    #[test]
    fn i14_one_wrong_record_in_a_long_history_is_found() {
        let paid: Vec<Payment> = (0..50_000).map(|at| paid(at, at)).collect();
        let mut removed: Vec<RemovedRow> = (0..50_000).map(|at| removed(at, at)).collect();
        assert_eq!(acknowledged_after_success(&removed, &paid), []);
        removed[25_000].change += 1;
        assert_eq!(ids(&acknowledged_after_success(&removed, &paid)), ["I14"]);
    }
}
