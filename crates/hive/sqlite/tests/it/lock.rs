//! Kernel locks say who is alive.

use std::{fs, time::Duration};

use honeyflow_hive::{HiveStore, Reply, Request, member};
use honeyflow_runtime::Class;

use crate::{Shop, join, node, nodes};

#[tokio::test]
async fn hv_39_a_second_node_is_refused_and_told_who_is_there() {
    let shop = Shop::fresh();
    let (first, second) = (shop.hive(), shop.hive());
    let holder = node();
    first.call(join(holder)).await.unwrap();
    let refused = node();
    let failure = second.call(join(refused)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "another-node"));
    for part in ["reader", &holder.to_string(), "4711", "stop it"] {
        assert!(failure.message.contains(part), "{part} in {failure}");
    }
    assert_eq!(nodes(&first).await, [holder], "the refused one leaves nothing behind");
    assert!(!shop.locks().join(format!("{refused}.lock")).exists());
    first.call(Request::Leave { node: holder }).await.unwrap();
    assert_eq!(second.call(join(refused)).await.unwrap(), Reply::Joined, "once the first has left");
}

#[tokio::test]
async fn hv_39_a_dead_node_is_buried_at_once() {
    let shop = Shop::fresh();
    let dead = node();
    let first = shop.hive();
    let term = member::take(&*first, dead, "shard/shop/0").await.unwrap();
    // Gone without a word, as a killed process: the kernel lets go of its lock, its row and file stay.
    drop(first);
    let lock = shop.locks().join(format!("{dead}.lock"));
    assert!(lock.exists());
    let second = shop.hive();
    let heir = node();
    let mut joined = second.call(join(heir)).await;
    for _ in 0..200 {
        if joined.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        joined = second.call(join(heir)).await;
    }
    joined.unwrap();
    assert_eq!(nodes(&second).await, [heir]);
    assert!(!lock.exists(), "its file goes with its row");
    let next = member::take(&*second, heir, "shard/shop/0").await.unwrap();
    assert!(next.epoch() > term.epoch());
}

#[tokio::test]
async fn hv_39_a_node_whose_lock_file_is_gone_is_dead() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let dead = node();
    hive.call(join(dead)).await.unwrap();
    fs::remove_dir_all(shop.locks()).unwrap();
    let reply = hive.call(Request::Beat { node: dead, read_only: true }).await.unwrap();
    assert!(matches!(reply, Reply::Beat { member: false, .. }), "another may have the lock by now: {reply:?}");
    let other = shop.hive();
    let heir = node();
    other.call(join(heir)).await.unwrap();
    assert_eq!(nodes(&other).await, [heir]);
}

#[tokio::test]
async fn opening_and_listing_make_nothing() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    assert_eq!(hive.call(Request::Nodes).await.unwrap(), Reply::Nodes(vec![]));
    assert_eq!(hive.call(Request::Leases).await.unwrap(), Reply::Leases(vec![]));
    let tables: i64 = shop
        .application()
        .query_row("select count(*) from sqlite_master where name like 'hive%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 0);
    assert!(!shop.locks().exists());
    let missing = honeyflow_hive_sqlite::open(&shop.folder.path().join("mistyped.db")).err().unwrap();
    assert_eq!((missing.class, &*missing.code), (Class::Retry, "cannot-open"));
}
