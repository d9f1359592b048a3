//! I18: every slot of a bounded number is either free or held, and never more slots are held than exist.

use crate::Breach;

/// A bounded number of something: batches of a kind at a worker, leases of a concurrency key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    pub of: String,
    pub offered: u32,
    pub free: u32,
    pub held: u32,
}

pub fn slots_add_up(slots: &[Slots]) -> Vec<Breach> {
    let wrong = slots.iter().filter(|slots| slots.free.saturating_add(slots.held) != slots.offered);
    wrong
        .map(|Slots { of, offered, free, held }| {
            Breach::new("I18", format!("{of}: {offered} slots, {free} are free and {held} held"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn i18_slots_are_free_or_held() {
        let slots = |offered, free, held| Slots { of: "worker 1".to_owned(), offered, free, held };
        assert_eq!(slots_add_up(&[slots(4, 1, 3), slots(0, 0, 0)]), []);
        assert_eq!(ids(&slots_add_up(&[slots(4, 1, 2)])), ["I18"], "one has leaked");
        assert_eq!(ids(&slots_add_up(&[slots(4, 2, 3), slots(1, 0, 2)])), ["I18", "I18"], "more than there is");
    }
}
