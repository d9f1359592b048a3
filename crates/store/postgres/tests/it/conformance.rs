//! Runs the contract's conformance suite directly against the server, through a pooler that gives each transaction
//! another session, and under a role that has only the printed grants.

use std::sync::Arc;

use futures_util::FutureExt;
use honeyflow_conformance::store::{Harness, RawRow};
use honeyflow_event::{EventId, Kind};
use honeyflow_store::KeyType;
use honeyflow_store_postgres::{Options, PostgresStore, grants};
use sqlx_core::{query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_postgres::PgConnection;
use tokio::sync::Mutex;

use crate::{Shop, column, document, hive::TestHive, run};

/// Inserts a row; the statement names only the columns that are set, as an application would.
async fn insert(application: &mut PgConnection, raw: RawRow) -> EventId {
    let kind = raw.kind.map(|kind| match kind {
        Kind::Row => "row",
        Kind::Message => "message",
        Kind::FanOut => "fan-out",
        Kind::Truncate => "truncate",
    });
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let columns = [
        ("id", raw.id.map(|id| id.to_string())),
        ("kind", kind.map(text)),
        ("entity", Some(text(raw.entity))),
        ("entity_key", Some(text(&raw.key))),
        ("priority", raw.priority.map(|priority| priority.to_string())),
        ("workflow", raw.workflow.map(text)),
        ("ready_at", raw.ready_in_ms.map(|ms| format!("clock_timestamp() + {ms} * interval '1 millisecond'"))),
        ("dedupe", raw.dedupe.map(text)),
        ("payload", raw.payload.as_deref().map(text)),
    ];
    let (names, values): (Vec<_>, Vec<_>) =
        columns.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).unzip();
    // A given id simulates a transaction that took its id long ago.
    let overriding = if raw.id.is_some() { "overriding system value" } else { "" };
    let (names, values) = (names.join(", "), values.join(", "));
    let sql = format!("insert into honeyflow_outbox({names}) {overriding} values ({values}) returning id");
    let id = query_scalar(AssertSqlSafe(sql)).fetch_one(&mut *application).await.unwrap();
    if raw.id.is_some() {
        let taken = "select setval(pg_get_serial_sequence('honeyflow_outbox', 'id'), max(id)) from honeyflow_outbox";
        run(application, taken).await;
    }
    id
}

const LINKS: &str = "create table book_author(author_id integer, book_id integer);
     insert into book_author select 7, i from generate_series(11, 35) as n(i);
     insert into book_author select author_id, book_id from book_author";

async fn harness(shop: Shop, store: PostgresStore) -> Harness {
    let mut edge = document("select book_id from book_author where author_id in $keys");
    edge.key = vec![column("author_id", KeyType::Integer)];
    edge.result_key = vec![];
    let mut application = shop.connect().await;
    run(&mut application, LINKS).await;
    let application = Arc::new(Mutex::new(application));
    Harness {
        store: Arc::new(store),
        hive: Arc::new(TestHive::open(&shop.url).await),
        insert: Box::new(move |raw| {
            let application = Arc::clone(&application);
            async move { insert(&mut *application.lock().await, raw).await }.boxed()
        }),
        pass: Box::new(|time| tokio::time::sleep(time).boxed()),
        edge: Some(Arc::new(edge)),
        keep: Box::new(shop),
    }
}

/// Returns a store with one shard, so that all rows are in the shard that the suite polls.
async fn fresh() -> Option<Harness> {
    let (shop, store) = Shop::new(1).await?;
    Some(harness(shop, store).await)
}

async fn pooled() -> Option<Harness> {
    let pooler = honeyflow_services::pgbouncer()?;
    let (shop, _) = Shop::new(1).await?;
    let store = PostgresStore::open(Options::new(&shop.at(&pooler.url), "shop").unwrap()).await.unwrap();
    Some(harness(shop, store).await)
}

/// Returns a store under a role that has only the printed grants.
async fn granted() -> Option<Harness> {
    let (shop, _) = Shop::new(1).await?;
    let mut owner = shop.connect().await;
    let role = format!("honeyflow_{}", uuid::Uuid::new_v4().simple());
    run(&mut owner, &format!("create role {role} login password 'worker'")).await;
    run(&mut owner, &grants::for_honeyflow(&role, &[])).await;
    let (_, server) = shop.url.split_once('@').unwrap();
    let url = format!("postgres://{role}:worker@{server}");
    let store = PostgresStore::open(Options::new(&url, "shop").unwrap()).await.unwrap();
    let harness = harness(shop, store).await;
    run(&mut owner, &format!("grant select on book_author to {role}")).await;
    Some(harness)
}

mod straight {
    honeyflow_conformance::store_suite!(maybe super::fresh);
}

mod through_a_pooler {
    honeyflow_conformance::store_suite!(maybe super::pooled);
}

mod under_printed_grants {
    honeyflow_conformance::store_suite!(maybe super::granted);
}
