//! Rows and leases that another transaction has locked.

use std::time::Duration;

use futures_util::future::join_all;
use honeyflow_conformance::store::{everything, new_event};
use honeyflow_store::{Reply, Request, Store};

use crate::{Shop, number, poll, run, settle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_45_a_locked_row_does_not_delay_other_requests() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let fence = shop.fence(0).await;
    let events = (0..10).map(|n| new_event(&n.to_string())).collect();
    store.call(Request::Append { events, idempotency: None }).await.unwrap();
    let mut other = shop.connect().await;
    run(&mut other, "begin; select 1 from honeyflow_outbox where id = 5 for update").await;
    for round in 0..2 {
        let replies = join_all((1..=10).map(|id| store.call(settle(&fence, &[id])))).await;
        for (id, reply) in (1..).zip(replies) {
            match reply {
                Ok(Reply::Committed) => assert_ne!(id, 5, "round {round}"),
                Err(failure) => assert_eq!((id, &*failure.code), (5, "row-locked"), "{failure}"),
                other => panic!("{other:?}"),
            }
        }
    }
    let left: Vec<_> = poll(&store, everything()).await.events.iter().map(|event| event.id).collect();
    assert_eq!(left, [5], "all other rows are acknowledged");
    run(&mut other, "rollback").await;
    assert!(matches!(store.call(settle(&fence, &[5])).await, Ok(Reply::Committed)), "and gone after the unlock");
    assert_eq!(poll(&store, everything()).await.events, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_36_polls_take_no_lock() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    store.call(Request::Append { events: vec![new_event("1")], idempotency: None }).await.unwrap();
    let mut other = shop.connect().await;
    run(&mut other, "begin; delete from honeyflow_outbox").await;
    assert_eq!(poll(&store, everything()).await.events.len(), 1, "a poll does not wait for a locked row");
    run(&mut other, "rollback").await;
    // A poll leaves no lock behind.
    poll(&store, everything()).await;
    let locks = "select count(*) from pg_locks l join pg_stat_activity a using (pid)
         where a.application_name = 'honeyflow shop' and a.datname = current_database() and l.mode <> 'ExclusiveLock'";
    assert_eq!(number(&mut other, locks).await, 0);
}

/// HV-37: a take-over of a lease waits for a running fenced write, and a later write under the old epoch is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_37_a_fenced_write_and_a_take_over_wait_for_each_other() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let fence = shop.fence(0).await;
    store.call(Request::Append { events: vec![new_event("1")], idempotency: None }).await.unwrap();
    let mut other = shop.connect().await;
    // A slow transaction transfers the lease.
    run(&mut other, "begin; update hive_lease set epoch = epoch + 1").await;
    let writing = tokio::spawn(store.call(settle(&fence, &[1])));
    let waits = "select count(*) from pg_stat_activity where application_name = 'honeyflow shop'
         and datname = current_database() and wait_event_type = 'Lock'";
    let mut looking = shop.connect().await;
    while number(&mut looking, waits).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run(&mut other, "commit").await;
    assert!(
        matches!(writing.await.unwrap(), Ok(Reply::Fenced)),
        "after the wait for the lock the write reads the new epoch"
    );
    assert_eq!(poll(&store, everything()).await.events.len(), 1);
}

/// OB-45: the application's writers and several stores lock rows in opposite orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_45_a_storm_of_writers_and_acknowledgements_has_no_deadlock() {
    let Some((shop, first)) = Shop::new(8).await else { return };
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    let mut looking = shop.connect().await;
    let before = number(&mut looking, deadlocks).await;
    let mut fences = Vec::new();
    for shard in 0..8 {
        fences.push(shop.fence(shard).await);
    }
    let mut stores = vec![first];
    for _ in 0..2 {
        stores.push(honeyflow_store_postgres::PostgresStore::open(shop.options()).await.unwrap());
    }
    let writers = join_all((0..4).map(|writer| {
        let shop = &shop;
        async move {
            let mut application = shop.connect().await;
            for n in 0..25 {
                let insert = format!(
                    "begin; insert into honeyflow_outbox(entity, entity_key) select 'book', ({writer} * 1000 + {n} * 20 + i) % 97
                       from generate_series(1, 20) i; commit"
                );
                run(&mut application, &insert).await;
            }
        }
    }));
    let done = std::sync::atomic::AtomicBool::new(false);
    // Each store acknowledges the rows of all shards, so that the stores compete for the same rows.
    let owners = join_all(stores.iter().enumerate().map(|(n, store)| {
        let (fences, done) = (&fences, &done);
        async move {
            loop {
                let finished = done.load(std::sync::atomic::Ordering::SeqCst);
                let mut left = 0;
                let mut writes = Vec::new();
                for shard in 0..8_u16 {
                    let asked = honeyflow_store::Poll { shard, ..everything() };
                    let mut ids: Vec<_> = poll(store, asked).await.events.iter().map(|event| event.id).collect();
                    left += ids.len();
                    if n % 2 == 1 {
                        ids.reverse();
                    }
                    writes.push(store.call(settle(&fences[usize::from(shard)], &ids)));
                }
                for reply in join_all(writes).await {
                    match reply {
                        Ok(Reply::Committed) => {}
                        // A row that another transaction locks for too long is read again in the next round.
                        Err(failure) => assert_eq!(&*failure.code, "row-locked", "{failure}"),
                        other => panic!("{other:?}"),
                    }
                }
                if finished && left == 0 {
                    return;
                }
            }
        }
    }));
    let writers = async {
        writers.await;
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(writers, owners);
    assert_eq!(number(&mut looking, "select count(*) from honeyflow_outbox").await, 0);
    // The server's processes report their statistics with a delay.
    run(&mut looking, "select pg_stat_clear_snapshot()").await;
    assert_eq!(number(&mut looking, deadlocks).await, before);
}
