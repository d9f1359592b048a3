//! The privileges that Honeyflow's role and the application need.

use honeyflow_conformance::store::everything;
use honeyflow_runtime::Class;
use honeyflow_store::{Request, Store};
use honeyflow_store_postgres::{Options, PostgresStore, grants};
use sqlx_core::connection::Connection;
use sqlx_postgres::PgConnection;

use crate::{Shop, poll, run};

async fn role(shop: &Shop, grants: impl FnOnce(&str) -> String) -> String {
    let role = format!("role_{}", uuid::Uuid::new_v4().simple());
    let mut owner = shop.connect().await;
    run(&mut owner, &format!("create role {role} login password 'x'; {}", grants(&role))).await;
    let (_, server) = shop.url.split_once('@').unwrap();
    format!("postgres://{role}:x@{server}")
}

#[tokio::test]
async fn ob_21_an_application_needs_only_the_insert_privilege() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let url = role(&shop, grants::for_application).await;
    let mut application = PgConnection::connect(&url).await.unwrap();
    run(&mut application, "insert into honeyflow_outbox(entity, entity_key) values ('book', '42')").await;
    assert_eq!(poll(&store, everything()).await.events.len(), 1);
}

#[tokio::test]
async fn ob_21_a_missing_privilege_says_what_to_grant() {
    let Some((shop, _)) = Shop::new(1).await else { return };
    let url = role(&shop, |role| format!("grant select on honeyflow_meta to {role}")).await;
    let store = PostgresStore::open(Options::new(&url, "shop").unwrap()).await.unwrap();
    let failure = store.call(Request::Poll(everything())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-privilege"), "{failure}");
    assert!(failure.message.contains("source install --print"), "{failure}");
}

#[tokio::test]
async fn ob_21_a_role_is_refused_if_row_security_can_hide_rows() {
    let Some((shop, _)) = Shop::new(1).await else { return };
    let url = role(&shop, |role| grants::for_honeyflow(role, &[])).await;
    let options = Options::new(&url, "shop").unwrap();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    run(&mut shop.connect().await, "alter table honeyflow_outbox enable row level security").await;
    let failure = PostgresStore::open(options).await.err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "row-security"), "{failure}");
    // A store that is already open gets an error instead of an empty table.
    let failure = store.call(Request::Poll(everything())).await.unwrap_err();
    assert_eq!(failure.code, "no-privilege", "{failure}");
}
