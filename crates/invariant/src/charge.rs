//! I17: only guilty items, that is items with an injected fault, are charged a counted attempt; and exactly the items
//! whose injected faults demand it are parked.

use std::collections::BTreeSet;

use crate::Breach;

/// Checks that only guilty items were charged. A name identifies an item: entity, key, workflow, step.
pub fn only_the_guilty<'a>(
    charged: impl IntoIterator<Item = &'a String>,
    is_guilty: impl Fn(&str) -> bool,
) -> Vec<Breach> {
    let innocent = charged.into_iter().filter(|item| !is_guilty(item));
    innocent.map(|item| Breach::new("I17", format!("{item} was charged and is innocent"))).collect()
}

/// Checks that exactly the guilty items are parked.
pub fn parked_are_the_guilty(parked: &BTreeSet<String>, guilty: &BTreeSet<String>) -> Vec<Breach> {
    let innocent = parked.difference(guilty).map(|item| format!("{item} is parked and innocent"));
    let escaped = guilty.difference(parked).map(|item| format!("{item} is guilty and not parked"));
    innocent.chain(escaped).map(|what| Breach::new("I17", what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn i17_parked_are_exactly_the_guilty() {
        assert_eq!(parked_are_the_guilty(&set(&["a", "b"]), &set(&["b", "a"])), []);
        assert_eq!(ids(&parked_are_the_guilty(&set(&["a", "b"]), &set(&["a"]))), ["I17"]);
        assert_eq!(ids(&parked_are_the_guilty(&set(&["a"]), &set(&["a", "b"]))), ["I17"]);
    }

    #[test]
    fn i17_only_the_guilty_are_charged() {
        let charged = ["a".to_owned(), "b".to_owned()];
        assert_eq!(only_the_guilty(&charged, |_| true), []);
        assert_eq!(ids(&only_the_guilty(&charged, |item| item == "a")), ["I17"]);
        assert_eq!(ids(&only_the_guilty(&charged, |_| false)), ["I17", "I17"]);
    }
}
