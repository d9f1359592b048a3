//! Several nodes on one file: one works, the others stand by.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt};
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options, Reply, Request,
    contract::{EventKind, HIVE},
    service::{Change, Shards},
};
use honeyflow_hive_sqlite::SqliteHive;
use honeyflow_runtime::Failure;

use crate::Shop;

/// A process that can be killed: its connection and its lock are gone, and it informs no other node.
struct Process(Mutex<Option<SqliteHive>>);

impl Process {
    fn start(shop: &Shop) -> Arc<Process> {
        let hive = honeyflow_hive_sqlite::open(&shop.path(), HIVE).unwrap();
        Arc::new(Process(Mutex::new(Some(hive))))
    }

    fn kill(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl HiveStore for Process {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(hive) => hive.call(request),
            None => std::future::pending().boxed(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: false, durable: true, doorbell: false }
    }
}

async fn change(shards: &mut Shards) -> Option<Change> {
    tokio::time::timeout(Duration::from_secs(30), shards.next()).await.expect("it takes too long")
}

/// HV-39, HV-92: the node that waits for the lease finds the free lock long before the row expires.
#[tokio::test]
async fn hv_39_a_standby_takes_over_as_soon_as_the_kernel_lets_go() {
    let shop = Shop::fresh();
    let options = |name| Options { stands: false, watch_runtime: false, ..Options::named(name).source("shop") };
    let (first, second) = (Process::start(&shop), Process::start(&shop));
    let working = Hive::join(first.clone(), options("first")).await.unwrap();
    let mut held = working.shards("shop", 1, false).await.unwrap();
    let Some(Change::Gained(term)) = change(&mut held).await else { panic!("no term") };
    let standing_by = Hive::join(second.clone(), options("second")).await.unwrap();
    let mut waiting = standing_by.shards("shop", 1, false).await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(3), waiting.next()).await;
    assert!(early.is_err(), "the first one lives: {early:?}");
    let killed_at = std::time::Instant::now();
    first.kill();
    let Some(Change::Gained(next)) = change(&mut waiting).await else { panic!("no term") };
    println!("taken over after {:?}", killed_at.elapsed());
    assert!(next.epoch() > term.epoch());
    let history = Request::History { lease: None, until_ms: None, max: 20 };
    let Ok(Reply::History(events)) = second.call(history).await else { panic!("no history") };
    let buried = events.iter().find(|event| event.kind == EventKind::Buried).expect("a node was removed");
    assert_eq!((buried.node, &*buried.cause), (Some(term.holder()), "its lock is free"));
}
