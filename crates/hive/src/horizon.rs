//! From where on a server database looks for others by the time of their end.
//!
//! Every beat leaves a dead entry behind in that index, and while some long transaction of the application lasts none of
//! them can be removed: a beat that began at the oldest would read more of them from beat to beat. But what was told
//! last holds on: no living row ends before the first of those, as whoever beats or joins afterwards ends later than it
//! was then. Only a clock that steps could make that wrong; after a step, and now and then, all are looked at.

use std::time::{Duration, Instant};

use crate::contract::{NodeId, Status};

const STEP: Duration = Duration::from_secs(1);
const ALL_EVERY: u32 = 256;

#[derive(Default)]
pub struct Horizon {
    told: Option<Told>,
}

struct Told {
    node: NodeId,
    hive_ms: u64,
    at: Instant,
    from_ms: u64,
    beats: u32,
}

impl Horizon {
    /// No living row of another ends before, as far as this node was told.
    pub fn begins_ms(&self, node: NodeId) -> u64 {
        self.told.as_ref().filter(|told| told.node == node).map_or(0, |told| told.from_ms)
    }

    /// A beat was answered.
    pub fn told(&mut self, node: NodeId, status: &Status, at: Instant) {
        let hive_ms = status.head.hive_ms;
        let last = self.told.take().filter(|told| told.node == node);
        let beats = last.as_ref().map_or(0, |last| last.beats + 1);
        let is_steady = last.is_none_or(|last| {
            let passed = Duration::from_millis(hive_ms.saturating_sub(last.hive_ms));
            hive_ms >= last.hive_ms && passed.abs_diff(at.saturating_duration_since(last.at)) < STEP
        });
        let first_ms = status.soonest.first().map_or(hive_ms, |first| first.expires_ms.min(hive_ms));
        let from_ms = if is_steady && !beats.is_multiple_of(ALL_EVERY) { first_ms } else { 0 };
        self.told = Some(Told { node, hive_ms, at, from_ms, beats });
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::contract::{Head, Watched};

    const ME: NodeId = NodeId(Uuid::from_u128(1));
    const OTHER: NodeId = NodeId(Uuid::from_u128(2));

    fn status(hive_ms: u64, first_ms: Option<u64>) -> Status {
        let watched = |expires_ms| Watched { id: OTHER, beat: 1, heartbeat_ms: 1, ttl_ms: 1, expires_ms, dead: false };
        Status {
            head: Head { hive_ms, ..Head::default() },
            soonest: first_ms.map(watched).into_iter().collect(),
            ..Status::default()
        }
    }

    #[test]
    fn hv_11_others_are_looked_for_from_the_first_that_was_told() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut horizon = Horizon::default();
        assert_eq!(horizon.begins_ms(ME), 0);
        horizon.told(ME, &status(10_000, Some(14_000)), start);
        assert_eq!(horizon.begins_ms(ME), 0, "at first, all");
        horizon.told(ME, &status(11_000, Some(15_000)), start + second);
        assert_eq!(horizon.begins_ms(ME), 11_000, "whoever joins ends later than now");
        horizon.told(ME, &status(12_000, Some(9_000)), start + 2 * second);
        assert_eq!(horizon.begins_ms(ME), 9_000, "one that has ended and is not buried");
        horizon.told(ME, &status(13_000, None), start + 3 * second);
        assert_eq!(horizon.begins_ms(ME), 13_000);
        assert_eq!(horizon.begins_ms(OTHER), 0, "which was left out of what the first was told");
    }

    #[test]
    fn hv_15_after_a_step_of_the_clock_all_are_looked_at() {
        for hive_ms in [9_000, 12_500, 3_612_000] {
            let (start, second) = (Instant::now(), Duration::from_secs(1));
            let mut horizon = Horizon::default();
            horizon.told(ME, &status(9_000, None), start);
            horizon.told(ME, &status(10_000, None), start + second);
            assert_eq!(horizon.begins_ms(ME), 10_000);
            horizon.told(ME, &status(hive_ms, None), start + 2 * second);
            assert_eq!(horizon.begins_ms(ME), 0, "{hive_ms}");
        }
    }

    #[test]
    fn hv_11_now_and_then_all_are_looked_at() {
        let start = Instant::now();
        let mut horizon = Horizon::default();
        let looks = (0..1_000_u64).map(|n| {
            horizon.told(ME, &status(10_000 + n * 1_000, None), start + Duration::from_secs(n));
            horizon.begins_ms(ME)
        });
        assert_eq!(looks.filter(|from_ms| *from_ms == 0).count(), 4);
    }
}
