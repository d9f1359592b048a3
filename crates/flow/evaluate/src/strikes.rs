//! The items that were too slow in the last ten minutes. One slow item is parked; several distinct ones mean that the
//! expression is bad.

use std::{collections::VecDeque, time::Duration};

use honeyflow_event::{Key, Name};
use honeyflow_runtime::Moment;

pub const WINDOW: Duration = Duration::from_secs(10 * 60);
/// With this many distinct slow items within the window, the workflow must stop.
pub const ITEMS_MAX: usize = 3;

#[derive(Debug, Default)]
pub struct Strikes(VecDeque<(Moment, Name, Key)>);

impl Strikes {
    /// Adds a slow item. Returns true if the workflow must stop.
    pub fn add(&mut self, now: Moment, entity: &Name, key: &Key) -> bool {
        self.0.retain(|(at, struck_entity, struck_key)| {
            now.since(*at) < WINDOW && (struck_entity, struck_key) != (entity, key)
        });
        self.0.push_back((now, entity.clone(), key.clone()));
        // the newest are enough for the decision
        if self.0.len() > ITEMS_MAX {
            self.0.pop_front();
        }
        self.0.len() >= ITEMS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wf_16_three_distinct_slow_items_within_ten_minutes_stop_the_workflow() {
        let mut strikes = Strikes::default();
        let book: Name = "book".into();
        let mut add = |seconds: u64, key: &str| strikes.add(Moment::from_millis(seconds * 1000), &book, &key.into());
        assert!(!add(0, "a"));
        assert!(!add(1, "b"));
        for again in 2..50 {
            assert!(!add(again, "b"), "one item that is slow again and again counts once");
        }
        assert!(!add(600, "c"), "a was ten minutes ago");
        assert!(add(601, "d"));
        assert!(add(602, "e"));
        assert!(!add(2000, "f"));
    }
}
