//! The instant from which a heartbeat scans the index of expiry times, so that its cost stays constant.
//!
//! Every heartbeat leaves a dead entry in that index, and while a long transaction of the application lasts the
//! database cannot remove dead entries: a scan from the oldest entry would read more of them with every heartbeat. But
//! the last reply limits the scan: no living row expires before the first member it listed, because a member that beats
//! or joins afterwards expires later than the time of that reply. Only a step of the clock could break this. Therefore
//! the scan covers everything after a step, and once in every 256 heartbeats.

use std::time::{Duration, Instant};

use crate::contract::{NodeId, Status};

const STEP: Duration = Duration::from_secs(1);
const ALL_EVERY: u32 = 256;

#[derive(Default)]
pub struct Horizon {
    last_reply: Option<LastReply>,
}

struct LastReply {
    node: NodeId,
    hive_ms: u64,
    at: Instant,
    from_ms: u64,
    heartbeats: u32,
}

impl Horizon {
    /// The earliest time at which a living row of another member can expire, by the last reply; 0 = scan everything.
    pub fn scan_from_ms(&self, node: NodeId) -> u64 {
        self.last_reply.as_ref().filter(|last| last.node == node).map_or(0, |last| last.from_ms)
    }

    /// Call it with each heartbeat reply.
    pub fn on_heartbeat_reply(&mut self, node: NodeId, status: &Status, at: Instant) {
        let hive_ms = status.head.hive_ms;
        let last = self.last_reply.take().filter(|last| last.node == node);
        let heartbeats = last.as_ref().map_or(0, |last| last.heartbeats + 1);
        let is_steady = last.is_none_or(|last| {
            let passed = Duration::from_millis(hive_ms.saturating_sub(last.hive_ms));
            hive_ms >= last.hive_ms && passed.abs_diff(at.saturating_duration_since(last.at)) < STEP
        });
        let first_ms = status.soonest.first().map_or(hive_ms, |first| first.expires_ms.min(hive_ms));
        let from_ms = if is_steady && !heartbeats.is_multiple_of(ALL_EVERY) { first_ms } else { 0 };
        self.last_reply = Some(LastReply { node, hive_ms, at, from_ms, heartbeats });
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::contract::{Head, WatchedNode};

    const ME: NodeId = NodeId(Uuid::from_u128(1));
    const OTHER: NodeId = NodeId(Uuid::from_u128(2));

    fn status(hive_ms: u64, first_ms: Option<u64>) -> Status {
        let watched =
            |expires_ms| WatchedNode { id: OTHER, beat: 1, heartbeat_ms: 1, ttl_ms: 1, expires_ms, dead: false };
        Status {
            head: Head { hive_ms, ..Head::default() },
            soonest: first_ms.map(watched).into_iter().collect(),
            ..Status::default()
        }
    }

    #[test]
    fn hv_11_the_scan_begins_at_the_first_member_of_the_last_reply() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut horizon = Horizon::default();
        assert_eq!(horizon.scan_from_ms(ME), 0);
        horizon.on_heartbeat_reply(ME, &status(10_000, Some(14_000)), start);
        assert_eq!(horizon.scan_from_ms(ME), 0, "the first scan covers everything");
        horizon.on_heartbeat_reply(ME, &status(11_000, Some(15_000)), start + second);
        assert_eq!(horizon.scan_from_ms(ME), 11_000, "a member that joins expires later than now");
        horizon.on_heartbeat_reply(ME, &status(12_000, Some(9_000)), start + 2 * second);
        assert_eq!(horizon.scan_from_ms(ME), 9_000, "one has expired and is not removed yet");
        horizon.on_heartbeat_reply(ME, &status(13_000, None), start + 3 * second);
        assert_eq!(horizon.scan_from_ms(ME), 13_000);
        assert_eq!(horizon.scan_from_ms(OTHER), 0, "a reply does not list the node that asked");
    }

    #[test]
    fn hv_15_after_a_clock_step_the_scan_covers_everything() {
        for hive_ms in [9_000, 12_500, 3_612_000] {
            let (start, second) = (Instant::now(), Duration::from_secs(1));
            let mut horizon = Horizon::default();
            horizon.on_heartbeat_reply(ME, &status(9_000, None), start);
            horizon.on_heartbeat_reply(ME, &status(10_000, None), start + second);
            assert_eq!(horizon.scan_from_ms(ME), 10_000);
            horizon.on_heartbeat_reply(ME, &status(hive_ms, None), start + 2 * second);
            assert_eq!(horizon.scan_from_ms(ME), 0, "{hive_ms}");
        }
    }

    #[test]
    fn hv_11_one_scan_in_256_covers_everything() {
        let start = Instant::now();
        let mut horizon = Horizon::default();
        let looks = (0..1_000_u64).map(|n| {
            horizon.on_heartbeat_reply(ME, &status(10_000 + n * 1_000, None), start + Duration::from_secs(n));
            horizon.scan_from_ms(ME)
        });
        assert_eq!(looks.filter(|from_ms| *from_ms == 0).count(), 4);
    }
}
