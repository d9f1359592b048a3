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

pub fn acknowledged_after_success(removed: &[Removed], paid: &[Paid]) -> Vec<Breach> {
    let mut first: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Paid { owed, change, at } in paid {
        first.entry(owed).or_default().push((*at, *change));
    }
    let mut breaches = Vec::new();
    for Removed { event, owed, change, at } in removed {
        let payments = first.get(owed.as_str()).map_or(&[][..], Vec::as_slice);
        if !payments.iter().any(|(when, what)| when <= at && what >= change) {
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
}
