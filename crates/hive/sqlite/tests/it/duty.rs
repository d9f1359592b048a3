//! Duties of the application's own, led through the shell, with their data in the same file.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use honeyflow_hive::{
    Fence, Hive, Options as Membership, Reply, Request,
    contract::{EventKind, HiveStore},
    fence,
};
use honeyflow_hive_sqlite::{Options, SqliteHive};
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tokio::task::JoinHandle;

use crate::Shop;

/// Against hanging; nothing is measured by it.
const SOON: Duration = Duration::from_secs(60);
const DUTY: &str = "duty/report";

fn open(shop: &Shop) -> Arc<SqliteHive> {
    Arc::new(SqliteHive::open(&Options::new(shop.path())).unwrap())
}

async fn member(shop: &Shop, name: &str) -> Hive {
    Hive::join(open(shop), Membership::named(name).fast()).await.unwrap()
}

/// Leads for good, in a task of its own: how many terms it was granted; returns with the first.
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

/// The application's connections are all in use and its thread pool is full: the heartbeat has its own of both.
#[test]
fn pool_starvation_loses_lease() {
    let shop = Shop::fresh();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let times = Membership::named("a");
        let calm = Membership { heartbeat: Duration::from_secs(1), time_to_live: Duration::from_secs(8), ..times };
        let hive = Hive::join(open(&shop), calm).await.unwrap();
        let (terms, leading) = lead(&hive).await;
        let node = hive.node();
        let pool: Vec<Connection> = (0..32).map(|_| shop.application()).collect();
        for connection in &pool {
            connection.execute_batch("begin; select count(*) from book").unwrap();
        }
        // Longer than a time to live, and nothing else of the pool is free meanwhile.
        let stuck = || tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_secs(10)));
        let (one, other) = (stuck(), stuck());
        tokio::time::timeout(SOON, async { (one.await, other.await) }).await.unwrap().0.unwrap();
        assert_eq!((terms.load(Ordering::Relaxed), hive.node()), (1, node), "the same term, of the same node");
        leading.abort();
    });
}

/// HV-39: also with short times an application that holds the write lock for longer than trust lasts dethrones nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_39_a_long_transaction_does_not_dethrone_a_lone_node_with_short_times() {
    let shop = Shop::fresh();
    let times = Membership {
        heartbeat: Duration::from_secs(1),
        time_to_live: Duration::from_secs(5),
        ..Membership::named("a")
    };
    let hive = Hive::join(open(&shop), times).await.unwrap();
    let (terms, leading) = lead(&hive).await;
    let node = hive.node();
    let mut application = shop.application();
    application.busy_timeout(SOON).unwrap();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    transaction.commit().unwrap();
    // What was missed by then would be made up for at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((terms.load(Ordering::Relaxed), hive.node()), (1, node), "the same term, of the same node");
    leading.abort();
}

/// Fires what is due under its fence, and how far it came is written with it: the next term goes on from there, and says
/// what came too late.
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
            Ok(false) => Err(Failure::retry("stale", "somebody else leads")),
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

    // 3 was due while nobody led, 4 is due now.
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
