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

/// One burier's beats: each tells of node 9, with a ttl of 6 s. Before the first of them it has beaten once.
struct Table {
    watch: Watch,
    /// Store's clock minus ours.
    offset_ms: i64,
}

impl Default for Table {
    fn default() -> Table {
        let mut table = Table { watch: Watch::default(), offset_ms: 0 };
        let head = Head { hive_ms: 497_000, ..Head::default() };
        let status = Status { head, member: true, renewed: true, ..Status::default() };
        table.watch.told(&status, HEARTBEAT, Moment::from_millis(997_000), Moment::from_millis(997_000));
        table
    }
}

impl Table {
    fn told(&mut self, millis: u64, beat: u64, expires_ms: u64) -> Option<i64> {
        self.told_of(millis, beat, expires_ms, false)
    }

    fn told_of(&mut self, millis: u64, beat: u64, expires_ms: u64, dead: bool) -> Option<i64> {
        let head = Head { hive_ms: self.hive_ms(millis), ..Head::default() };
        let watched = Watched { id: id(9), beat, heartbeat_ms: 2000, ttl_ms: 6000, expires_ms, dead };
        let status = Status { head, member: true, renewed: true, soonest: vec![watched], ..Status::default() };
        self.watch.told(&status, HEARTBEAT, at(millis), at(millis))
    }

    fn hive_ms(&self, millis: u64) -> u64 {
        (500_000 + millis).checked_add_signed(self.offset_ms).unwrap()
    }

    fn is_due(&self) -> bool {
        self.watch.burial(id(9)).is_some()
    }
}

#[test]
fn hv_14_a_beat_watched_for_long_enough_and_expired_is_a_death() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(5_500);
    table.told(0, 7, expires_ms);
    table.told(2_000, 7, expires_ms);
    table.told(4_000, 7, expires_ms);
    assert!(!table.is_due(), "watched, but not expired");
    assert_eq!(table.watch.ripe_at(id(9), at(4_000)), Some(at(5_502)));
    table.told(5_502, 7, expires_ms);
    let burial = table.watch.burial(id(9)).unwrap();
    assert_eq!((burial.beat, burial.silent, &*burial.cause), (7, false, "expired"));
}

#[test]
fn hv_14_expired_alone_is_no_death() {
    let mut table = Table::default();
    table.told(0, 7, 1);
    assert!(!table.is_due());
    table.told(2_000, 7, 1);
    assert!(!table.is_due(), "time passes, but nobody has told of it");
    table.told(3_999, 7, 1);
    assert!(!table.is_due());
    assert_eq!(table.watch.ripe_at(id(9), at(3_999)), Some(at(4_000)));
    table.told(4_000, 7, 1);
    assert!(table.is_due());
    table.told(5_000, 8, 1);
    assert!(!table.is_due(), "it beats");
}

/// HI-10: a step of the store's clock just before it came expires everybody, and it cannot know.
#[test]
fn hi_10_whoever_has_just_come_buries_nobody_within_its_time_to_live() {
    let mut table = Table { watch: Watch::default(), offset_ms: 0 };
    for millis in [0, 2_000, 4_000, 6_000, 6_299] {
        table.told(millis, 7, 1);
        assert!(!table.is_due(), "{millis}");
    }
    assert_eq!(table.watch.ripe_at(id(9), at(6_299)), Some(at(6_300)));
    table.told(6_300, 7, 1);
    assert!(table.is_due());
    table.told(8_000, 8, 1);
    table.told(10_000, 8, 1);
    table.told(12_000, 8, 1);
    assert!(table.is_due(), "of a beat that it saw come it knows when it was sent");
}

/// HI-10: nor if it hears of the others only by a second beat right after its first, as after a request has rung.
#[test]
fn hi_10_who_is_heard_of_a_moment_later_is_given_the_same_time() {
    let mut table = Table { watch: Watch::default(), offset_ms: 0 };
    let head = Head { hive_ms: table.hive_ms(0), ..Head::default() };
    let status = Status { head, member: true, renewed: true, ..Status::default() };
    table.watch.told(&status, HEARTBEAT, at(0), at(0));
    for millis in [10, 2_000, 4_010, 6_000, 6_299] {
        table.told(millis, 7, 1);
        assert!(!table.is_due(), "{millis}");
    }
    table.told(6_300, 7, 1);
    assert!(table.is_due());
}

/// The store was away for everybody: whoever comes back later than we is not dead.
#[test]
fn store_outage_buries_everyone() {
    let mut table = Table::default();
    for millis in [0, 2_000, 4_000] {
        table.told(millis, 7, 1);
    }
    table.told(34_000, 7, 1);
    assert!(!table.is_due(), "watched anew after the gap");
    for millis in [36_000, 38_000, 40_000, 42_000, 44_000] {
        table.told(millis, 7, 1);
        assert!(!table.is_due(), "two times to live after a gap: {millis}");
    }
    // Neither before nor afterwards is it another time: at that time it is asked.
    for now in [45_999, 46_000, 46_050] {
        assert_eq!(table.watch.ripe_at(id(9), at(now)), Some(at(46_000)));
    }
    table.told(46_000, 7, 1);
    assert!(table.is_due());
}

/// A forward step expires everybody at once.
#[test]
fn node_clock_decides_death() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(6_000);
    for millis in [0, 2_000] {
        assert_eq!(table.told(millis, 7, expires_ms), None);
    }
    table.offset_ms = 3_600_000;
    let step = table.told(4_000, 7, expires_ms).unwrap();
    assert!((3_590_000..=3_600_000).contains(&step), "{step}");
    assert!(!table.is_due(), "expired there and watched for 4 s, but the clock has stepped");
    table.told(8_000, 8, table.hive_ms(14_000));
    assert!(!table.is_due());
}

#[test]
fn hv_15_silence_on_ones_own_clock_needs_no_expiry() {
    let mut table = Table::default();
    for millis in (0..12_000).step_by(2_000) {
        table.told(millis, 7, u64::MAX);
        assert!(!table.is_due());
    }
    table.told(12_000, 7, u64::MAX);
    assert!(table.watch.burial(id(9)).unwrap().silent, "the store's clock has stepped back");
}

#[test]
fn hv_15_a_step_of_less_than_a_second_is_none_and_a_larger_one_is_told() {
    let mut table = Table::default();
    table.told(0, 1, 1);
    table.offset_ms = -900;
    assert_eq!(table.told(2_000, 2, 1), None);
    table.offset_ms = -4_000;
    assert!(table.told(4_000, 3, 1).is_some_and(|by| by < -2_000));
    assert_eq!(table.told(6_000, 4, 1), None, "once");
}

#[test]
fn hv_39_a_free_lock_needs_no_waiting() {
    let mut table = Table::default();
    let expires_ms = table.hive_ms(6_000);
    table.told_of(0, 7, expires_ms, true);
    assert_eq!(&*table.watch.burial(id(9)).unwrap().cause, "its lock is free");
    assert_eq!(table.watch.ripe_at(id(9), at(0)), Some(at(0)));
}

/// HV-94: a beat tells of sixteen. Whoever would be among them, and is not, has beaten.
#[test]
fn hv_94_nobody_is_waited_for_who_has_beaten_since() {
    let others = |millis: u64, from: u128| {
        let one = |n: u128| Watched {
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
    let mut watch = Watch::default();
    watch.told(&others(4_000, 100), HEARTBEAT, at(0), at(0));
    assert_eq!(watch.nodes().count(), 16);
    watch.told(&others(6_000, 500), HEARTBEAT, at(2_000), at(2_000));
    assert_eq!(watch.nodes().min(), Some(id(500)), "the first sixteen have beaten");
    // Of whoever is later than the last that was told nothing is known.
    watch.told(&others(6_000, 492), HEARTBEAT, at(4_000), at(4_000));
    assert_eq!((watch.nodes().count(), watch.nodes().max()), (24, Some(id(515))));
}
