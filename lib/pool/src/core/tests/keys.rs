//! Each key that the core reads: the same experiment must give different results with and without the change.

use super::*;
use crate::settings::{IdleOrder, KEYS, Mode, WhenEmpty};

type Row = (&'static str, fn(&mut Settings), fn(&Settings) -> String);

/// Keys that only the shell reads; `tests/it/settings.rs` has their experiments.
const OF_THE_SHELL: &[&str] = &[
    "name",
    "enabled",
    "start",
    "servers",
    "port",
    "deadline",
    "tcp-timeout",
    "handshake-timeout",
    "write-timeout",
    "tries",
    "discovery",
    "discover-every",
    "translate",
    "filter",
    "heartbeat-idle",
    "heartbeat-timeout",
    "speculate-after",
];

fn lent_at_once(world: &mut World) -> String {
    let request = world.request();
    (0..50).filter(|_| matches!(world.ask(&request), Checkout::Lent(_))).count().to_string()
}

fn waiting_for_one(settings: &Settings) -> String {
    let mut world = World::full(settings, 1);
    let request = world.request();
    while let Checkout::Lent(_) = world.ask(&request) {}
    format!("{:?}", world.core.usage())
}

fn kind_of(checkout: &Checkout<Wire>) -> String {
    match checkout {
        Checkout::Lent(_) => "lent".to_owned(),
        Checkout::Queued(_) => "queued".to_owned(),
        Checkout::Refused(refusal) => format!("{:?}", refusal.kind),
    }
}

/// How many connections were ever opened after this time, of a pool of four.
fn replaced_after(settings: &Settings, time: Duration) -> String {
    let mut world = World::full(settings, 2);
    world.now = world.now.after(time);
    world.fill();
    world.wires.to_string()
}

fn placed(settings: &Settings) -> String {
    let mut world = World::new(settings, 0);
    world.discover(&[
        server(1).within("north", "r1"),
        server(2).within("north", "r2"),
        server(3).within("south", "r1"),
    ]);
    world.fill();
    let eligible = world.core.eligible.iter().map(|key| world.core.server(*key).unwrap().id.to_string());
    format!("{:?} of {}", eligible.collect::<Vec<_>>(), world.core.open_count())
}

fn credit(settings: &Settings, take: fn(&mut Core<Wire>, &TriedServers) -> bool) -> String {
    let mut world = World::full(settings, 2);
    let tried = TriedServers::from_slice(&[world.key(1)]);
    let mut taken = 0;
    for _ in 0..100 {
        let lent = world.lent();
        world.back(&lent);
        taken += u32::from(take(&mut world.core, &tried));
    }
    taken.to_string()
}

const ROWS: &[Row] = &[
    ("mode", |s| s.mode = Mode::Exclusive, |s| lent_at_once(&mut World::shared(s, 1, 10))),
    ("streams-per-connection", |s| s.streams_per_connection = 3, |s| lent_at_once(&mut World::shared(s, 1, 10))),
    ("connections-per-server", |s| s.connections_per_server = Some(5), |s| lent_at_once(&mut World::full(s, 1))),
    (
        "when-empty",
        |s| s.when_empty = WhenEmpty::Fail,
        |s| {
            let mut world = World::new(s, 1);
            let request = world.request();
            kind_of(&world.ask(&request))
        },
    ),
    ("queue-limit", |s| s.queue_limit = 0, waiting_for_one),
    (
        "early-refusal",
        |s| s.early_refusal = false,
        |s| {
            let mut world = World::new(s, 1);
            world.core.servers.get_mut(world.key(1)).unwrap().connecting.next_try = Moment::FAR;
            let request = world.request();
            kind_of(&world.ask(&request))
        },
    ),
    (
        "start-jitter",
        |s| s.start_jitter = Duration::from_secs(60),
        |s| {
            let mut world = World::new(s, 1);
            world.reconcile();
            world.opens.len().to_string()
        },
    ),
    (
        "max-backoff",
        |s| s.max_backoff = Duration::from_secs(600),
        |s| {
            let mut world = World::new(s, 1);
            let mut longest = Duration::ZERO;
            for _ in 0..40 {
                world.reconcile();
                for open in std::mem::take(&mut world.opens) {
                    world.fail(&open, false);
                }
                let next = world.core.servers.get(world.key(1)).unwrap().connecting.next_try;
                longest = longest.max(next.since(world.now));
                world.now = next.max(world.now);
            }
            (longest > Duration::from_secs(5)).to_string()
        },
    ),
    (
        "max-connections-per-server",
        |s| s.max_connections_per_server = Some(4),
        |s| {
            let mut world = World::full(s, 1);
            let request = world.request();
            (0..9).for_each(|_| drop(world.ask(&request)));
            world.fill();
            world.core.open_count().to_string()
        },
    ),
    (
        "max-connecting",
        |s| s.max_connecting = 1,
        |s| {
            let mut world = World::new(s, 3);
            world.reconcile();
            world.opens.len().to_string()
        },
    ),
    ("idle-order", |s| s.idle_order = IdleOrder::Lifo, |s| World::full(s, 1).lent().carried.number.to_string()),
    (
        "decay-per-billion",
        |s| s.decay_per_billion = Some(1_000_000_000),
        |s| {
            let mut world = World::full(s, 1);
            let lent = world.lent();
            world.back(&lent);
            world.fill();
            world.wires.to_string()
        },
    ),
    ("max-age", |s| s.max_age = Duration::from_secs(5), |s| replaced_after(s, Duration::from_secs(6))),
    (
        "max-idle",
        |s| s.max_idle = Duration::from_secs(5),
        |s| {
            let grown = Settings { max_connections_per_server: Some(4), ..s.clone() };
            let mut world = World::full(&grown, 1);
            let loans = [world.lent(), world.lent()];
            let waiter = world.queued();
            world.fill();
            let third = world.picked(waiter);
            loans.iter().chain([&third]).for_each(|lent| world.back(lent));
            world.now = world.now.after(Duration::from_secs(6));
            world.fill();
            world.core.open_count().to_string()
        },
    ),
    (
        "recycle-budget",
        |s| s.recycle_budget = 2,
        |s| {
            let many = Settings { connections_per_server: Some(40), max_age: Duration::from_secs(5), ..s.clone() };
            let mut world = World::full(&many, 1);
            world.now = world.now.after(Duration::from_secs(6));
            world.reconcile();
            world.opens.len().to_string()
        },
    ),
    ("local-datacentre", |s| s.local_datacentre = Some("south".to_owned()), placed),
    (
        "local-rack",
        |s| (s.local_datacentre, s.local_rack) = (Some("north".to_owned()), Some("r2".to_owned())),
        |s| {
            let north = Settings { local_datacentre: Some("north".to_owned()), ..s.clone() };
            placed(&north)
        },
    ),
    (
        "allow-remote",
        |s| s.allow_remote = true,
        |s| placed(&Settings { local_datacentre: Some("north".to_owned()), ..s.clone() }),
    ),
    (
        "max-orphans",
        |s| s.max_orphans = 1,
        |s| {
            let mut world = World::shared(s, 1, 10);
            let on = world.core.connections.iter().next().map(|(key, _)| key).unwrap();
            let loans: Vec<_> = (0..8).map(|_| world.lent()).filter(|lent| lent.connection == on).collect();
            loans.iter().for_each(|lent| world.end(lent, Ending::CutOff));
            world.fill();
            world.wires.to_string()
        },
    ),
    (
        "suspect-stay",
        |s| s.suspect_stay = Duration::from_secs(60),
        |s| {
            let mut world = World::full(s, 3);
            let one = world.key(1);
            for _ in 0..5 {
                world.core.judge(one, Judgement::Fault, world.now, &mut world.effects);
            }
            world.now = world.now.after(Duration::from_secs(2));
            for _ in 0..3 {
                world.core.probed(one, Some(ms(1)), world.now, &mut world.effects);
            }
            format!("{:?}", world.state(1))
        },
    ),
    (
        "slow-start",
        |s| s.slow_start = Duration::from_secs(600),
        |s| {
            let mut world = World::shared(s, 2, 1000);
            world.now = world.now.after(Duration::from_secs(1000));
            world.discover(&[server(1), server(2), server(3)]);
            world.fill();
            let new = world.key(3);
            let mut hits = 0;
            for _ in 0..300 {
                let lent = world.lent();
                hits += u32::from(lent.server == new);
                world.back(&lent);
            }
            (hits > 50).to_string()
        },
    ),
    ("speculate-budget", |s| s.speculate_budget = 50, |s| credit(s, |core, tried| core.may_speculate(tried, false))),
    ("retry-budget", |s| s.retry_budget = 90, |s| credit(s, Core::may_retry)),
    (
        "loan-warn",
        |s| s.loan_warn = ms(10),
        |s| {
            let mut world = World::full(s, 1);
            world.lent();
            world.pass(ms(50));
            world.core.counters().overdue_loans.to_string()
        },
    ),
    (
        "drain-timeout",
        |s| s.drain_timeout = ms(10),
        |s| {
            let mut world = World::full(s, 2);
            let on = Request { target: Some(world.key(2)), ..world.request() };
            world.lent_for(&on);
            world.discover(&[server(1)]);
            world.discover(&[server(1)]);
            world.pass(ms(50));
            world.core.ring.len().to_string()
        },
    ),
];

/// The results of the experiment with the default value and with the changed value.
fn observe_both((name, change, observe): &Row) -> (String, String) {
    let before = quiet();
    let mut after = quiet();
    change(&mut after);
    after.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    (observe(&before), observe(&after))
}

/// PL-179: the row of a key detects a core that does not read the key.
#[cfg(feature = "planted")]
#[test]
fn pl_179_a_key_that_is_ignored_is_missed() {
    for row in ROWS {
        honeyflow_runtime::planted::plant(Some(format!("pool-ignores-{}", row.0).leak()));
        let (before, after) = observe_both(row);
        honeyflow_runtime::planted::plant(None);
        assert_eq!(before, after, "the row of {} would not notice", row.0);
    }
}

/// PL-61: a change while the core works has the same effect as the same value from the start.
#[test]
fn pl_61_every_key_of_the_core_is_live() {
    // These hold only for new connections and for servers that join.
    const OF_WHAT_COMES: [&str; 2] = ["mode", "start-jitter"];
    for row @ (name, ..) in ROWS.iter().filter(|(name, ..)| !OF_WHAT_COMES.contains(name)) {
        let (_, from_the_beginning) = observe_both(row);
        CHANGED_LIVE.set(true);
        let (_, live) = observe_both(row);
        CHANGED_LIVE.set(false);
        assert_eq!(live, from_the_beginning, "{name} is not live");
    }
}

/// PL-61: a change also applies to current loans, to the age of connections, and to servers in back-off.
#[test]
fn pl_61_new_settings_apply_to_what_exists() {
    let mut world = World::full(&quiet(), 1);
    world.lent();
    world.pass(ms(100));
    world.set(&Settings { loan_warn: ms(50), ..quiet() });
    world.pass(Duration::ZERO);
    assert_eq!(world.core.counters().overdue_loans, 1, "a current loan");

    let mut world = World::full(&Settings { max_age: Duration::from_secs(5), ..quiet() }, 1);
    world.now = world.now.after(Duration::from_secs(6));
    world.reconcile();
    world.set(&quiet());
    let worn = world.core.connections.iter().filter(|(_, row)| row.replace_reason.is_some()).count();
    assert_eq!(worn, world.opens.len(), "only connections whose replacement is in progress");

    let mut world = World::new(&Settings { max_backoff: Duration::from_secs(600), ..quiet() }, 1);
    let key = world.key(1);
    world.core.servers.get_mut(key).unwrap().connecting.next_try = world.now.after(Duration::from_secs(600));
    world.set(&quiet());
    let next = world.core.servers.get(key).unwrap().connecting.next_try;
    assert_eq!(next, world.now.after(quiet().max_backoff), "a server in back-off");
}

/// PL-61: the limit of requests per connection changes while connections are in use, also down to one at a time.
#[test]
fn pl_61_streams_follow_the_settings() {
    let of = |streams_per_connection| Settings { streams_per_connection, connections_per_server: Some(1), ..quiet() };
    let mut world = World::shared(&of(10), 1, 10);
    let loans: Vec<_> = (0..8).map(|_| world.lent()).collect();
    world.set(&of(3));
    let waiter = world.queued();
    for lent in &loans[..5] {
        world.back(lent);
        assert!(!world.was_woken(waiter), "the allowed number is in flight");
    }
    world.back(&loans[5]);
    assert!(world.was_woken(waiter));
    let more = world.queued();
    world.set(&of(4));
    assert!(world.was_woken(more), "room for one more");
    world.set(&of(1));
    world.fill();
    let kinds: Vec<_> = world.core.connections.iter().map(|(_, row)| (row.exclusive, row.retiring)).collect();
    assert!(
        kinds.contains(&(true, false)) && kinds.contains(&(false, true)),
        "one at a time is another kind: {kinds:?}"
    );
}

/// PL-107 PL-62 PL-179
#[test]
fn every_key_has_effect() {
    for row in ROWS {
        let (before, after) = observe_both(row);
        assert_ne!(before, after, "{} has no effect", row.0);
    }
    for key in KEYS {
        let shown = ROWS.iter().any(|(name, ..)| *name == key.name) || OF_THE_SHELL.contains(&key.name);
        assert!(shown, "{} has no experiment", key.name);
    }
    assert_eq!(ROWS.len() + OF_THE_SHELL.len(), KEYS.len());
}
