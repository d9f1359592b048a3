//! Duties that the application defines and leads through [`Hive`], with their data in the same file.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use honeyflow_hive::{
    Fence, Hive, Options, Reply, Request,
    contract::{EventKind, HiveStore},
    fence,
};
use honeyflow_hive_sqlite::SqliteHive;
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tokio::task::JoinHandle;

use crate::Shop;

/// A timeout against hanging tests; it measures nothing.
const SOON: Duration = Duration::from_secs(60);
const DUTY: &str = "duty/report";

fn open(shop: &Shop) -> Arc<SqliteHive> {
    Arc::new(SqliteHive::open(&honeyflow_hive_sqlite::Options::new(shop.path())).unwrap())
}

async fn member(shop: &Shop, name: &str) -> Hive {
    Hive::join(open(shop), Options::named(name).fast()).await.unwrap()
}

/// Leads the duty in a task that never ends. Returns after the first granted term, with the counter of granted terms.
async fn lead(hive: &Hive) -> (Arc<AtomicU64>, JoinHandle<Result<(), Failure>>) {
    let terms = Arc::new(AtomicU64::new(0));
    let (granted, led) = (Arc::clone(&terms), hive.clone());
    let leading = tokio::spawn(async move {
        led.lead(DUTY, |_| {
            granted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<(), Failure>>()
        })
        .await
    });
    while terms.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    (terms, leading)
}

/// The application uses all its connections and its thread pool is full. The heartbeat has its own connection and
/// thread.
#[test]
fn pool_starvation_loses_lease() {
    let shop = Shop::fresh();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let times = Options::named("a");
        let calm = Options { heartbeat: Duration::from_secs(1), time_to_live: Duration::from_secs(8), ..times };
        let hive = Hive::join(open(&shop), calm).await.unwrap();
        let (terms, leading) = lead(&hive).await;
        let node = hive.node();
        let pool: Vec<Connection> = (0..32).map(|_| shop.application()).collect();
        for connection in &pool {
            connection.execute_batch("begin; select count(*) from book").unwrap();
        }
        // They block for longer than the time to live, and no other thread of the pool is free.
        let stuck = || tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_secs(10)));
        let (one, other) = (stuck(), stuck());
        tokio::time::timeout(SOON, async { (one.await, other.await) }).await.unwrap().0.unwrap();
        assert_eq!((terms.load(Ordering::Relaxed), hive.node()), (1, node), "the same term, of the same node");
        leading.abort();
    });
}

/// HV-39: also with short times, an application that holds the write lock for longer than trust lasts ends no term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_39_a_long_transaction_ends_no_term_with_short_times() {
    let shop = Shop::fresh();
    let times =
        Options { heartbeat: Duration::from_secs(1), time_to_live: Duration::from_secs(5), ..Options::named("a") };
    let hive = Hive::join(open(&shop), times).await.unwrap();
    let (terms, leading) = lead(&hive).await;
    let node = hive.node();
    let mut application = shop.application();
    application.busy_timeout(SOON).unwrap();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    transaction.commit().unwrap();
    // If the node had lost its term, it would have taken a new one within this second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((terms.load(Ordering::Relaxed), hive.node()), (1, node), "the same term, of the same node");
    leading.abort();
}

/// A leader fires what is due under its fence, and writes how far it came in the same transaction. The next term
/// continues from there and records what came too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_lost_between_terms() {
    let shop = Shop::fresh();
    shop.application().execute_batch("create table fired(due integer primary key, epoch integer not null)").unwrap();
    let first = member(&shop, "a").await;
    let path = shop.path();
    let fire = move |fence: &Fence, due: i64| -> Result<(), Failure> {
        let written = || -> rusqlite::Result<bool> {
            let mut connection = Connection::open(&path)?;
            connection.busy_timeout(SOON)?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let holds = transaction.prepare(&fence::sqlite("honeyflow", [fence], "1"))?.exists([])?;
            if holds {
                transaction.execute("insert into fired values (?1, ?2)", (due, fence.epoch().0.cast_signed()))?;
                transaction.commit()?;
            }
            Ok(holds)
        };
        match written() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::retry("stale", "another node leads")),
            Err(error) => Err(Failure::fatal("database", error.to_string())),
        }
    };
    let fire_first = fire.clone();
    let led = first.lead(DUTY, async |term| {
        fire_first(&term.fence(), 1)?;
        fire_first(&term.fence(), 2)?;
        Ok(term.fence())
    });
    let old = tokio::time::timeout(SOON, led).await.unwrap().unwrap();
    tokio::time::timeout(SOON, first.leave()).await.unwrap();
    drop(first);

    // 3 was due while no node led, 4 is due now.
    let second = member(&shop, "b").await;
    let application = shop.application();
    let store = open(&shop);
    let led = second.lead(DUTY, async |term| {
        let last: Option<i64> =
            application.query_row("select max(due) from fired", [], |row| row.get(0)).optional().unwrap().flatten();
        for due in last.unwrap_or(0) + 1..=4 {
            fire(&term.fence(), due)?;
            if due < 4 {
                let missed = Request::Missed { fence: term.fence(), cause: "report 3 came late".into() };
                assert_eq!(store.call(missed).await?, Reply::Done);
            }
        }
        Ok(())
    });
    tokio::time::timeout(SOON, led).await.unwrap().unwrap();
    let fired: Vec<i64> = shop
        .application()
        .prepare("select due from fired order by due")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(fired, [1, 2, 3, 4], "each once");
    assert_eq!(fire(&old, 5).unwrap_err().code, "stale", "the term before fires nothing any more");
    let history = Request::History { lease: Some(DUTY.into()), until_ms: None, max: 10 };
    let Reply::History(events) = store.call(history).await.unwrap() else { panic!("no history") };
    assert!(events.iter().any(|event| event.kind == EventKind::Missed && &*event.cause == "report 3 came late"));
}
