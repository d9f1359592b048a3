//! Kernel locks show which nodes are alive.

use std::{fs, time::Duration};

use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{HIVE, Removal},
    member,
};
use honeyflow_runtime::Class;

use crate::{Shop, beat, join, node, nodes, send_beat};

#[tokio::test]
async fn hv_39_a_second_node_is_refused_with_the_name_of_the_first() {
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
    let joined = second.call(join(refused)).await.unwrap();
    assert!(matches!(joined, Reply::Joined(_)), "once the first has left: {joined:?}");
}

#[tokio::test]
async fn hv_39_a_dead_node_is_removed_at_once() {
    let shop = Shop::fresh();
    let dead = node();
    let first = shop.hive();
    let term = member::take(&*first, dead, "shard/shop/0").await.unwrap();
    // The process ends without a leave, as if it was killed: the kernel releases its lock, but its row and file stay.
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
    assert_eq!(send_beat(&hive, dead, true).await, (false, false), "another may have the lock by now");
    let other = shop.hive();
    let heir = node();
    other.call(join(heir)).await.unwrap();
    assert_eq!(nodes(&other).await, [heir]);
}

#[tokio::test]
async fn opening_and_listing_make_nothing() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let Reply::View(view) = hive.call(Request::View).await.unwrap() else { panic!("no view") };
    assert!(view.nodes.is_empty() && view.leases.is_empty());
    let Reply::Beat(status) = hive.call(beat(node(), true)).await.unwrap() else { panic!("no beat") };
    assert!(!status.member && status.head.origin.is_none());
    let tables: i64 = shop
        .application()
        .query_row("select count(*) from sqlite_master where name like 'hive%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 0);
    assert!(!shop.locks().exists());
    let missing = honeyflow_hive_sqlite::open(&shop.folder.path().join("mistyped.db"), HIVE).err().unwrap();
    assert_eq!((missing.class, &*missing.code), (Class::Retry, "cannot-open"));
}

/// HV-39, HV-14: an expired node that holds its lock is not dead; a node whose lock is free is removed without waiting.
#[tokio::test]
async fn hv_39_a_held_lock_needs_long_silence_and_a_free_one_nothing() {
    let shop = Shop::fresh();
    let open = || honeyflow_hive_sqlite::open(&shop.path(), HIVE).unwrap();
    let (first, second) = (open(), open());
    let (slow, burier) = (node(), node());
    first.call(join(slow)).await.unwrap();
    second.call(join(burier)).await.unwrap();
    shop.application().execute("update hive_node set expires_ms = 0 where id = ?1", [slow.to_string()]).unwrap();
    let bury = |silent| Request::Remove { nodes: vec![Removal { node: slow, beat: 0, silent, cause: "test".into() }] };
    let dead = async |hive: &honeyflow_hive_sqlite::SqliteHive| match hive.call(beat(burier, false)).await.unwrap() {
        Reply::Beat(status) => status.soonest[0].dead,
        other => panic!("{other:?}"),
    };
    assert!(!dead(&second).await);
    assert_eq!(second.call(bury(false)).await.unwrap(), Reply::Removed(vec![]), "it is only slow");
    first.call(beat(slow, false)).await.unwrap();
    drop(first);
    let mut is_dead = false;
    for _ in 0..200 {
        is_dead = dead(&second).await;
        if is_dead {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_dead, "the next heartbeat reports it");
    let burial = Removal { node: slow, beat: 0, silent: false, cause: "its lock is free".into() };
    let buried = second.call(Request::Remove { nodes: vec![burial] }).await.unwrap();
    assert_eq!(buried, Reply::Removed(vec![slow]), "though it has not expired and its beat differs");
    assert!(!shop.locks().join(format!("{slow}.lock")).exists());
}

/// HV-5: tables of an older version are migrated and keep their rows.
#[tokio::test]
async fn hv_5_an_older_schema_is_migrated() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let term = member::take(&*hive, node(), "shard/shop/0").await.unwrap();
    drop(hive);
    shop.application()
        .execute_batch(
            "drop table hive_view; drop table hive_event; drop table hive_limit; drop table hive_share;
             drop index hive_node_expires; drop index hive_lease_heir;
             update hive_meta set value = '1' where name = 'schema'; delete from hive_node",
        )
        .unwrap();
    let next = member::take(&*shop.hive(), node(), "shard/shop/0").await.unwrap();
    assert!(next.epoch() > term.epoch());
}

/// A node that cannot delete its row because the application writes has still left: its process may join again.
#[tokio::test]
async fn hv_21_a_node_that_leaves_a_busy_database_gives_up_its_lock() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let (before, next) = (node(), node());
    hive.call(join(before)).await.unwrap();
    let mut application = shop.application();
    let transaction = application.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    assert_eq!(hive.call(Request::Leave { node: before }).await.unwrap_err().code, "database-busy");
    transaction.commit().unwrap();
    let joined = hive.call(join(next)).await.unwrap();
    assert!(matches!(joined, Reply::Joined(_)), "{joined:?}");
    assert_eq!(nodes(&hive).await, [next]);
}

/// An engine that restarts may join while its last incarnation is still leaving. That does not count as another node.
#[tokio::test]
async fn hv_39_a_process_is_not_refused_because_of_itself() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let (before, next) = (node(), node());
    hive.call(join(before)).await.unwrap();
    let failure = hive.call(join(next)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "not-left-yet"));
    hive.call(Request::Leave { node: before }).await.unwrap();
    assert!(matches!(hive.call(join(next)).await.unwrap(), Reply::Joined(_)));
}

/// A join whose answer reached no caller leaves a row and a lock without heartbeats.
#[tokio::test]
async fn hv_39_a_silent_node_of_this_process_gives_way() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let (before, next) = (node(), node());
    let quick = |node| match join(node) {
        Request::Join { node, name, meta, .. } => Request::Join { node, name, heartbeat_ms: 50, ttl_ms: 150, meta },
        other => other,
    };
    hive.call(quick(before)).await.unwrap();
    let mut joined = hive.call(quick(next)).await;
    let mut refused = 0;
    while let Err(failure) = joined {
        assert_eq!(failure.code, "not-left-yet");
        refused += 1;
        assert!(refused < 500, "it is refused forever");
        tokio::time::sleep(Duration::from_millis(20)).await;
        joined = hive.call(quick(next)).await;
    }
    assert_eq!(nodes(&hive).await, [next]);
}

/// A leave happens even if its caller does not wait for the answer.
#[tokio::test]
async fn hv_21_a_leave_happens_even_if_its_caller_does_not_wait() {
    let shop = Shop::fresh();
    let hive = shop.hive();
    let me = node();
    hive.call(join(me)).await.unwrap();
    // Requests are answered in order: the first is still in progress when the caller gives up the second.
    let view = hive.call(Request::View);
    drop(hive.call(Request::Leave { node: me }));
    view.await.unwrap();
    assert_eq!(nodes(&hive).await, []);
}
