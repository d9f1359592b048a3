//! Beats while the application holds the write lock.

use std::time::{Duration, Instant};

use honeyflow_hive::{HiveStore, Reply, Request, member};
use rusqlite::TransactionBehavior;

use crate::{Shop, node};

/// DECISIONS 3: an application that holds the write lock for longer than trust lasts must not dethrone a lone node.
#[tokio::test]
async fn hv_39_a_busy_database_does_not_dethrone_a_lone_node() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let me = node();
    let term = member::take(&*hive, me, "shard/shop/0").await.unwrap();
    let mut application = shop.application();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute("insert into book default values", []).unwrap();
    let began_at = Instant::now();
    let mut beats = 0;
    while began_at.elapsed() < Duration::from_secs(3) {
        let reply = hive.call(Request::Beat { node: me, read_only: false }).await.unwrap();
        assert!(matches!(reply, Reply::Beat { member: true, .. }), "{reply:?}");
        beats += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(beats >= 5, "a refused beat does not wait long: {beats}");
    // What must be written is refused as busy, and tried again.
    let release = Request::Release { lease: "shard/shop/0".into(), node: me, epoch: term.epoch() };
    let failure = hive.call(release).await.unwrap_err();
    assert_eq!(failure.code, "database-busy");
    transaction.commit().unwrap();
    let Reply::Lease { epoch, holder, free } = hive.call(Request::Look { lease: "shard/shop/0".into() }).await.unwrap()
    else {
        panic!("no lease")
    };
    assert_eq!((epoch, holder, free), (term.epoch(), Some(me), false), "the same term");
    let reply = hive.call(Request::Beat { node: me, read_only: false }).await.unwrap();
    assert!(matches!(reply, Reply::Beat { member: true, .. }));
    let Reply::Nodes(nodes) = hive.call(Request::Nodes).await.unwrap() else { panic!("no nodes") };
    assert_eq!(nodes[0].beat, 1, "only the last one was written");
}

#[tokio::test]
async fn a_busy_beat_of_a_buried_node_is_not_good() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let me = node();
    member::take(&*hive, me, "shard/shop/0").await.unwrap();
    let mut application = shop.application();
    application.execute("delete from hive_node", []).unwrap();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let reply = hive.call(Request::Beat { node: me, read_only: false }).await.unwrap();
    assert!(matches!(reply, Reply::Beat { member: false, .. }), "{reply:?}");
    drop(transaction);
}
