//! Heartbeats while the application holds the write lock.

use std::time::{Duration, Instant};

use honeyflow_hive::{HiveStore, Reply, Request, contract::HeldLease, member};
use rusqlite::TransactionBehavior;

use crate::{Shop, node, send_beat};

/// An application that holds the write lock for longer than trust lasts must not end the term of a lone
/// node.
#[tokio::test]
async fn hv_39_a_busy_database_does_not_end_the_term_of_a_lone_node() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let me = node();
    let term = member::take(&*hive, me, "shard/shop/0").await.unwrap();
    let mut application = shop.application();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute("insert into book default values", []).unwrap();
    let began_at = Instant::now();
    while began_at.elapsed() < Duration::from_secs(3) {
        assert_eq!(send_beat(&hive, me, false).await, (true, false), "trusted, though nothing was written");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A request that has to write is refused as busy; the caller would retry it.
    let held = vec![HeldLease { lease: "shard/shop/0".into(), epoch: term.epoch() }];
    let release = Request::Release { node: me, held, cause: "test".into() };
    let failure = hive.call(release).await.unwrap_err();
    assert_eq!(failure.code, "database-busy");
    transaction.commit().unwrap();
    let Reply::View(view) = hive.call(Request::View).await.unwrap() else { panic!("no view") };
    let lease = &view.leases[0];
    assert_eq!((lease.epoch, lease.holder, lease.free), (term.epoch(), Some(me), false), "the same term");
    assert_eq!(view.nodes[0].beat, 1, "no later heartbeat was written");
    assert_eq!(send_beat(&hive, me, false).await, (true, true));
}

#[tokio::test]
async fn a_busy_beat_of_a_removed_node_fails() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let me = node();
    member::take(&*hive, me, "shard/shop/0").await.unwrap();
    let mut application = shop.application();
    application.execute("delete from hive_node", []).unwrap();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    assert_eq!(send_beat(&hive, me, false).await, (false, false));
    drop(transaction);
}
