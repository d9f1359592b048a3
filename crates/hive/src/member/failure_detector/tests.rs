use uuid::Uuid;

use super::*;
use crate::contract::Head;

const HEARTBEAT: Duration = Duration::from_secs(2);

fn id(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(1_000_000 + millis)
}

/// The heartbeat replies of one node: each lists node 9, with a ttl of 6 s. One reply without it came before the first.
struct Table {
    detector: FailureDetector,
    /// Store's clock minus ours.
    offset_ms: i64,
}

impl Default for Table {
    fn default() -> Table {
        let mut table = Table { detector: FailureDetector::default(), offset_ms: 0 };
        let head = Head { hive_ms: 497_000, ..Head::default() };
        let status = Status { head, member: true, renewed: true, ..Status::default() };
        table.detector.on_heartbeat_reply(
            &status,
            HEARTBEAT,
            Moment::from_millis(997_000),
            Moment::from_millis(997_000),
        );
        table
    }
}

impl Table {
    fn reply(&mut self, millis: u64, beat: u64, expires_ms: u64) -> Option<i64> {
        self.reply_listing(millis, beat, expires_ms, false)
    }

    fn reply_listing(&mut self, millis: u64, beat: u64, expires_ms: u64, dead: bool) -> Option<i64> {
        let head = Head { hive_ms: self.hive_ms(millis), ..Head::default() };
        let watched = WatchedNode { id: id(9), beat, heartbeat_ms: 2000, ttl_ms: 6000, expires_ms, dead };
        let status = Status { head, member: true, renewed: true, soonest: vec![watched], ..Status::default() };
        self.detector.on_heartbeat_reply(&status, HEARTBEAT, at(millis), at(millis))
    }

    fn hive_ms(&self, millis: u64) -> u64 {
        (500_000 + millis).checked_add_signed(self.offset_ms).unwrap()
    }

    fn is_due(&self) -> bool {
        self.detector.removal(id(9)).is_some()
    }
}

#[test]
fn hv_14_a_member_watched_for_long_enough_and_expired_may_be_removed() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(5_500);
    table.reply(0, 7, expires_ms);
    table.reply(2_000, 7, expires_ms);
    table.reply(4_000, 7, expires_ms);
    assert!(!table.is_due(), "watched, but not expired");
    assert_eq!(table.detector.decidable_at(id(9), at(4_000)), Some(at(5_502)));
    table.reply(5_502, 7, expires_ms);
    let removal = table.detector.removal(id(9)).unwrap();
    assert_eq!((removal.beat, removal.silent, &*removal.cause), (7, false, "expired"));
}

#[test]
fn hv_14_an_expired_row_alone_is_not_enough() {
    let mut table = Table::default();
    table.reply(0, 7, 1);
    assert!(!table.is_due());
    table.reply(2_000, 7, 1);
    assert!(!table.is_due(), "not watched for long enough");
    table.reply(3_999, 7, 1);
    assert!(!table.is_due());
    assert_eq!(table.detector.decidable_at(id(9), at(3_999)), Some(at(4_000)));
    table.reply(4_000, 7, 1);
    assert!(table.is_due());
    table.reply(5_000, 8, 1);
    assert!(!table.is_due(), "it has sent a heartbeat");
}

/// HI-10: a step of the store's clock just before a node joins expires all rows, and the new node cannot know that.
#[test]
fn hi_10_a_new_node_removes_no_member_within_a_time_to_live() {
    let mut table = Table { detector: FailureDetector::default(), offset_ms: 0 };
    for millis in [0, 2_000, 4_000, 6_000, 6_299] {
        table.reply(millis, 7, 1);
        assert!(!table.is_due(), "{millis}");
    }
    assert_eq!(table.detector.decidable_at(id(9), at(6_299)), Some(at(6_300)));
    table.reply(6_300, 7, 1);
    assert!(table.is_due());
    table.reply(8_000, 8, 1);
    table.reply(10_000, 8, 1);
    table.reply(12_000, 8, 1);
    assert!(table.is_due(), "this node saw the number change, so it knows the heartbeat's age");
}

/// HI-10: the same if the node learns of the others only from a second heartbeat right after its first.
#[test]
fn hi_10_a_member_listed_a_moment_later_gets_the_same_time() {
    let mut table = Table { detector: FailureDetector::default(), offset_ms: 0 };
    let head = Head { hive_ms: table.hive_ms(0), ..Head::default() };
    let status = Status { head, member: true, renewed: true, ..Status::default() };
    table.detector.on_heartbeat_reply(&status, HEARTBEAT, at(0), at(0));
    for millis in [10, 2_000, 4_010, 6_000, 6_299] {
        table.reply(millis, 7, 1);
        assert!(!table.is_due(), "{millis}");
    }
    table.reply(6_300, 7, 1);
    assert!(table.is_due());
}

/// The store was unreachable for all nodes: a member that comes back later than this node is not dead.
#[test]
fn store_outage_buries_everyone() {
    let mut table = Table::default();
    for millis in [0, 2_000, 4_000] {
        table.reply(millis, 7, 1);
    }
    table.reply(34_000, 7, 1);
    assert!(!table.is_due(), "watched from the start after the gap");
    for millis in [36_000, 38_000, 40_000, 42_000, 44_000] {
        table.reply(millis, 7, 1);
        assert!(!table.is_due(), "two times to live after a gap: {millis}");
    }
    // The time does not move as it approaches and passes, so that the node asks exactly then.
    for now in [45_999, 46_000, 46_050] {
        assert_eq!(table.detector.decidable_at(id(9), at(now)), Some(at(46_000)));
    }
    table.reply(46_000, 7, 1);
    assert!(table.is_due());
}

/// A forward step of the store's clock expires all rows at once.
#[test]
fn node_clock_decides_death() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(6_000);
    for millis in [0, 2_000] {
        assert_eq!(table.reply(millis, 7, expires_ms), None);
    }
    table.offset_ms = 3_600_000;
    let step = table.reply(4_000, 7, expires_ms).unwrap();
    assert!((3_590_000..=3_600_000).contains(&step), "{step}");
    assert!(!table.is_due(), "expired there and watched for 4 s, but the clock has stepped");
    table.reply(8_000, 8, table.hive_ms(14_000));
    assert!(!table.is_due());
}

#[test]
fn hv_15_silence_on_this_nodes_own_clock_needs_no_expiry() {
    let mut table = Table::default();
    for millis in (0..12_000).step_by(2_000) {
        table.reply(millis, 7, u64::MAX);
        assert!(!table.is_due());
    }
    table.reply(12_000, 7, u64::MAX);
    assert!(table.detector.removal(id(9)).unwrap().silent, "the store's clock has stepped back");
}

#[test]
fn hv_15_a_clock_step_is_reported_only_if_it_exceeds_a_second() {
    let mut table = Table::default();
    table.reply(0, 1, 1);
    table.offset_ms = -900;
    assert_eq!(table.reply(2_000, 2, 1), None);
    table.offset_ms = -4_000;
    assert!(table.reply(4_000, 3, 1).is_some_and(|by| by < -2_000));
    assert_eq!(table.reply(6_000, 4, 1), None, "once");
}

#[test]
fn hv_39_a_free_lock_needs_no_waiting() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(6_000);
    table.reply_listing(0, 7, expires_ms, true);
    assert_eq!(&*table.detector.removal(id(9)).unwrap().cause, "its lock is free");
    assert_eq!(table.detector.decidable_at(id(9), at(0)), Some(at(0)));
}

/// HV-94: a heartbeat reply lists 16 members. A member that would be among them, and is not, has sent a heartbeat.
#[test]
fn hv_94_a_member_that_has_sent_a_heartbeat_since_is_not_watched() {
    let others = |millis: u64, from: u128| {
        let one = |n: u128| WatchedNode {
            id: id(n),
            beat: 1,
            heartbeat_ms: 2000,
            ttl_ms: 6000,
            expires_ms: 500_000 + millis + n as u64,
            dead: false,
        };
        let head = Head { hive_ms: 500_000 + millis - 4_000, ..Head::default() };
        Status { head, member: true, renewed: true, soonest: (from..from + 16).map(one).collect(), ..Status::default() }
    };
    let mut detector = FailureDetector::default();
    detector.on_heartbeat_reply(&others(4_000, 100), HEARTBEAT, at(0), at(0));
    assert_eq!(detector.nodes().count(), 16);
    detector.on_heartbeat_reply(&others(6_000, 500), HEARTBEAT, at(2_000), at(2_000));
    assert_eq!(detector.nodes().min(), Some(id(500)), "the first 16 have sent heartbeats");
    // A member that expires later than the last listed one is still watched: nothing new is known of it.
    detector.on_heartbeat_reply(&others(6_000, 492), HEARTBEAT, at(4_000), at(4_000));
    assert_eq!((detector.nodes().count(), detector.nodes().max()), (24, Some(id(515))));
}
