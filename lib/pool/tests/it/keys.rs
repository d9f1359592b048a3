//! Each key that only the shell reads: the same experiment must give different results with and without the change. It
//! uses a cluster in memory and a paused clock, so that a long wait takes no real time.

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{
    Pool, Provider, RequestOptions, Server, Settings, SettingsError,
    clock::TokioClock,
    settings::{Filter, SpeculateAfter, Start, Translate},
    testing::memory::{self, Memory},
};
use tokio::time::{Instant, sleep};

type Observation = Pin<Box<dyn Future<Output = String>>>;
type Row = (&'static str, fn(&mut Settings), fn(Settings) -> Observation);

const SECOND: Duration = Duration::from_secs(1);

fn base() -> Settings {
    Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

fn server(at: u16) -> Server {
    Server::at(([127, 0, 0, 1], 1 + at).into())
}

thread_local! {
    /// The change to make while the pool works, instead of before it starts.
    static CHANGED_LIVE: Cell<Option<fn(&mut Settings)>> = const { Cell::new(None) };
}

/// A provider that gives `first` until it is switched to `then`.
struct SwitchedProvider {
    first: Settings,
    then: Settings,
    is_switched: AtomicBool,
}

impl Provider for SwitchedProvider {
    fn settings(&self) -> Result<Settings, SettingsError> {
        Ok(if self.is_switched.load(Ordering::SeqCst) { &self.then } else { &self.first }.clone())
    }
}

/// Starts a pool with these settings. With `CHANGED_LIVE`, the change follows when all connections are open.
async fn pool(cluster: &Memory, settings: Settings) -> Pool<Memory> {
    let Some(change) = CHANGED_LIVE.get() else { return cluster.pool(settings, 7).expect("good settings") };
    let mut then = settings.clone();
    change(&mut then);
    let switched = Arc::new(SwitchedProvider { first: settings, then, is_switched: AtomicBool::new(false) });
    let pool = Pool::start_with(cluster.clone(), switched.clone(), TokioClock::default(), 7).expect("good settings");
    sleep(SECOND / 2).await;
    switched.is_switched.store(true, Ordering::SeqCst);
    sleep(SECOND).await;
    pool
}

/// Runs a pool on two servers for this time.
async fn after(settings: Settings, time: Duration) -> (Memory, Pool<Memory>) {
    let cluster = Memory::new(2, 1);
    let pool = pool(&cluster, settings).await;
    sleep(time).await;
    (cluster, pool)
}

fn open(settings: Settings) -> Observation {
    Box::pin(async move {
        let (cluster, _pool) = after(settings, SECOND).await;
        format!("{} {}", cluster.host(0).open(), cluster.host(1).open())
    })
}

/// The connections at the second server, when both servers name `other` in discovery.
fn open_knowing(settings: Settings, other: Server) -> Observation {
    Box::pin(async move {
        let cluster = Memory::new(2, 1);
        let all = [server(0).named("a"), other.named("b")];
        cluster.host(0).knows(&all);
        cluster.host(1).knows(&all);
        let _pool = pool(&cluster, settings).await;
        sleep(30 * SECOND).await;
        format!("{}", cluster.host(1).open())
    })
}

const ROWS: &[Row] = &[
    ("name", |s| s.name = "other".to_owned(), |s| Box::pin(async move { after(s, SECOND).await.1.status().name })),
    ("enabled", |s| s.enabled = false, open),
    ("start", |s| s.start = Start::Inactive, open),
    ("servers", |s| s.servers = vec!["127.0.0.1:2".to_owned()], open),
    ("port", |s| s.port = 2, |s| open(Settings { servers: vec!["127.0.0.1".to_owned()], ..s })),
    (
        "deadline",
        |s| s.deadline = Duration::from_millis(20),
        |s| {
            Box::pin(async move {
                let (_, pool) = after(s, SECOND).await;
                let begun = Instant::now();
                let _held = [
                    pool.get(RequestOptions::within(60 * SECOND)).await,
                    pool.get(RequestOptions::within(60 * SECOND)).await,
                ];
                let kind = pool.get(RequestOptions::default()).await.map(drop).unwrap_err().kind;
                format!("{kind:?} {}", begun.elapsed() > SECOND)
            })
        },
    ),
    (
        "tcp-timeout",
        |s| s.tcp_timeout = Duration::from_millis(100),
        |s| {
            Box::pin(async move {
                let cluster = Memory::new(1, 1);
                cluster.host(0).delay_connects(Duration::from_millis(300));
                let _pool = pool(&cluster, s).await;
                sleep(10 * SECOND).await;
                cluster.host(0).open().to_string()
            })
        },
    ),
    (
        "handshake-timeout",
        |s| s.handshake_timeout = Duration::from_millis(100),
        |s| {
            Box::pin(async move {
                let cluster = Memory::new(1, 1);
                cluster.host(0).silent(true);
                let _pool = pool(&cluster, s).await;
                sleep(10 * SECOND).await;
                (cluster.host(0).accepted() > 8).to_string()
            })
        },
    ),
    (
        "write-timeout",
        |s| s.write_timeout = 77 * SECOND,
        |s| Box::pin(async move { format!("{:?}", after(s, SECOND).await.0.limits().map(|limits| limits.write)) }),
    ),
    (
        "tries",
        |s| s.tries = 1,
        |s| {
            Box::pin(async move {
                let both = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
                let (_, pool) = after(Settings { servers: both, ..s }, SECOND).await;
                let tried = Mutex::new(0);
                let using = pool.with(RequestOptions::default(), |loan| {
                    *tried.lock().unwrap() += 1;
                    memory::ask(loan, "overloaded")
                });
                assert!(using.await.is_err());
                tried.into_inner().unwrap().to_string()
            })
        },
    ),
    ("discovery", |s| s.discovery = true, |s| open_knowing(s, server(1))),
    (
        "discover-every",
        |s| s.discover_every = SECOND,
        |s| {
            Box::pin(async move {
                let cluster = Memory::new(1, 1);
                cluster.host(0).knows(&[server(0).named("a")]);
                let _pool = pool(&cluster, Settings { discovery: true, ..s }).await;
                sleep(100 * SECOND).await;
                (cluster.host(0).asked_who() > 50).to_string()
            })
        },
    ),
    (
        "translate",
        |s| s.translate = Translate { table: BTreeMap::from([(far().address, server(1).address)]), hook: None },
        |s| open_knowing(Settings { discovery: true, ..s }, far()),
    ),
    (
        "filter",
        |s| s.filter = Filter { addresses: vec![server(0).address], ..Filter::default() },
        |s| open_knowing(Settings { discovery: true, ..s }, server(1)),
    ),
    (
        "heartbeat-idle",
        |s| s.heartbeat_idle = Duration::from_millis(500),
        |s| Box::pin(async move { (after(s, 30 * SECOND).await.0.host(0).probed() > 20).to_string() }),
    ),
    (
        "heartbeat-timeout",
        |s| s.heartbeat_timeout = 60 * SECOND,
        |s| {
            Box::pin(async move {
                let (cluster, pool) = after(s, SECOND).await;
                cluster.host(0).silent(true);
                sleep(40 * SECOND).await;
                format!("{:?}", pool.status().servers[0].state)
            })
        },
    ),
    (
        "speculate-after",
        |s| s.speculate_after = SpeculateAfter::Time(Duration::from_millis(20)),
        |s| {
            Box::pin(async move {
                let cluster = Memory::new(2, 8);
                let both = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
                let pool = pool(&cluster, Settings { servers: both, speculate_budget: 100, ..s }).await;
                sleep(SECOND).await;
                cluster.host(0).delay(600 * SECOND);
                let mut good = 0;
                for _ in 0..4 {
                    let want = RequestOptions::within(SECOND).idempotent();
                    good += u32::from(pool.with(want, |loan| memory::ask(loan, "x")).await.is_ok());
                }
                (good == 4).to_string()
            })
        },
    ),
];

fn far() -> Server {
    Server::at(([10, 0, 0, 9], 9).into())
}

async fn observe_both((name, change, observe): &Row) -> (String, String) {
    let mut changed = base();
    change(&mut changed);
    changed.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    (observe(base()).await, observe(changed).await)
}

/// PL-61: a change takes effect within a second in a running pool.
#[tokio::test(start_paused = true)]
async fn pl_61_every_key_of_the_shell_is_live() {
    // These hold only at the start and for new connects.
    const OF_WHAT_COMES: [&str; 2] = ["start", "tcp-timeout"];
    for (name, change, observe) in ROWS.iter().filter(|(name, ..)| !OF_WHAT_COMES.contains(name)) {
        let before = observe(base()).await;
        CHANGED_LIVE.set(Some(*change));
        let live = observe(base()).await;
        CHANGED_LIVE.set(None);
        assert_ne!(live, before, "{name} is not live");
    }
}

/// PL-62 PL-107 PL-179
#[tokio::test(start_paused = true)]
async fn pl_62_every_key_of_the_shell_has_effect() {
    for row in ROWS {
        let (before, after) = observe_both(row).await;
        assert_ne!(before, after, "{} has no effect", row.0);
    }
    assert_eq!(ROWS.len(), 17, "the core's tests have the others");
}

/// PL-179: the row of a key detects a pool that does not read the key.
#[cfg(feature = "planted")]
#[tokio::test(start_paused = true)]
async fn pl_179_a_key_that_is_ignored_is_missed() {
    for row in ROWS {
        honeyflow_runtime::planted::plant(Some(format!("pool-ignores-{}", row.0).leak()));
        let (before, after) = observe_both(row).await;
        honeyflow_runtime::planted::plant(None);
        assert_eq!(before, after, "the row of {} would not notice", row.0);
    }
}
