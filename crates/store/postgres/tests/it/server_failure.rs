//! Servers that stop, come back, do not answer, or are read-only.

use std::{sync::Arc, time::Duration};

use honeyflow_conformance::store::{everything, new_event};
use honeyflow_runtime::Class;
use honeyflow_store::{Reply, Request, Store};
use honeyflow_store_postgres::{Options, PostgresStore};
use sqlx_core::connection::Connection;
use sqlx_postgres::PgConnection;

use crate::{Shop, code, number, poll, run, settle};

const TERMINATE: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
     where application_name = 'honeyflow shop' and datname = current_database()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_replaced() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let fence = shop.fence(0).await;
    store.call(Request::Append { events: vec![new_event("1"), new_event("2")], idempotency: None }).await.unwrap();
    assert!(matches!(store.call(settle(&fence, &[1])).await, Ok(Reply::Committed)));
    poll(&store, everything()).await;
    let mut other = shop.connect().await;
    assert!(number(&mut other, TERMINATE).await >= 3);
    for request in [Request::Poll(everything()), settle(&fence, &[2])] {
        let failure = store.call(request.clone()).await.unwrap_err();
        assert_eq!(failure.class, Class::Retry, "{failure}");
        assert!(store.call(request).await.is_ok(), "the next one finds a new connection");
    }
    assert_eq!(poll(&store, everything()).await.events, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_58_a_server_that_is_killed_and_comes_back_has_all_that_was_answered() {
    let Some(mut server) = honeyflow_services::throwaway_postgres() else { return };
    let shop = Shop::on(server.url()).await;
    let options = Options { timeout: Duration::from_secs(5), shards: 1, ..shop.options() };
    let store = PostgresStore::open(options).await.unwrap();
    store.migrate().await.unwrap();
    run(&mut shop.connect().await, crate::hive::TABLES).await;
    let fence = shop.fence(0).await;
    let events = (0..20).map(|n| new_event(&n.to_string())).collect();
    store.call(Request::Append { events, idempotency: None }).await.unwrap();
    assert!(matches!(store.call(settle(&fence, &[1, 2, 3])).await, Ok(Reply::Committed)));
    server.kill();
    let failure = store.call(settle(&fence, &[4])).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    assert_eq!(code(store.call(Request::Poll(everything())).await), "no-connection");
    server.start().unwrap();
    assert!(matches!(store.call(settle(&fence, &[4])).await, Ok(Reply::Committed)));
    let left = poll(&store, everything()).await.events.len();
    assert_eq!(left, 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_silent_server_times_out() {
    let Some(server) = honeyflow_services::throwaway_postgres() else { return };
    let shop = Shop::on(server.url()).await;
    let options = Options { timeout: Duration::from_millis(500), shards: 1, ..shop.options() };
    PostgresStore::open(Options { shards: 1, ..shop.options() }).await.unwrap().migrate().await.unwrap();
    // Half a second may be too short for the first connection.
    let store = loop {
        if let Ok(store) = PostgresStore::open(options.clone()).await {
            break store;
        }
    };
    while store.call(Request::Poll(everything())).await.is_err() {}
    server.pause();
    let failure = store.call(Request::Poll(everything())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    server.resume();
    let mut again = store.call(Request::Poll(everything())).await;
    for _ in 0..20 {
        if again.is_ok() {
            break;
        }
        again = store.call(Request::Poll(everything())).await;
    }
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn a_write_to_a_read_only_server_fails_with_its_own_code() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let fence = shop.fence(0).await;
    let name = shop.name();
    // New connections find a read-only server, as after a failover.
    run(&mut shop.connect().await, &format!("alter database {name} set default_transaction_read_only = on")).await;
    let fresh = PostgresStore::open(shop.options()).await.unwrap();
    let failure = fresh.call(settle(&fence, &[1])).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{failure}");
    assert!(failure.message.contains("primary"), "{failure}");
    assert!(fresh.call(Request::Poll(everything())).await.is_ok(), "reading goes on");
    drop(store);
}

/// HV-37: the role's default isolation level does not matter.
#[tokio::test]
async fn transactions_are_read_committed_under_any_default_of_the_role() {
    let Some((shop, _)) = Shop::new(1).await else { return };
    let name = shop.name();
    run(&mut shop.connect().await, &format!("alter database {name} set default_transaction_isolation = serializable"))
        .await;
    let store = Arc::new(PostgresStore::open(shop.options()).await.unwrap());
    let fence = shop.fence(0).await;
    store.call(Request::Append { events: vec![new_event("1")], idempotency: None }).await.unwrap();
    let mut other = PgConnection::connect(&shop.url).await.unwrap();
    run(
        &mut other,
        "create table seen(isolation text);
         create function note() returns trigger language plpgsql as $$
           begin insert into seen values (current_setting('transaction_isolation')); return null; end $$;
         create trigger note after delete on honeyflow_outbox execute function note()",
    )
    .await;
    assert!(matches!(store.call(settle(&fence, &[1])).await, Ok(Reply::Committed)));
    assert_eq!(number(&mut other, "select count(*) from seen where isolation = 'read committed'").await, 1);
}
