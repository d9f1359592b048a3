//! Runs the contract's conformance suite.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use honeyflow_conformance::store::{Harness, RawRow};
use honeyflow_event::{EventId, Kind};
use honeyflow_store::KeyType;
use rusqlite::{Connection, types::Value};

use crate::{Shop, column, document};

/// Inserts a row; the statement names only the columns that are set, as an application would.
fn insert(application: &Connection, raw: RawRow) -> EventId {
    let kind = raw.kind.map(|kind| match kind {
        Kind::Row => "row",
        Kind::Message => "message",
        Kind::FanOut => "fan-out",
        Kind::Truncate => "truncate",
    });
    let now_ms: i64 = application
        .query_row(
            "select cast(strftime('%s', 'now') as integer) * 1000 + substr(strftime('%f', 'now'), 4)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let columns = [
        ("id", raw.id.map(Value::Integer)),
        ("kind", kind.map(|kind| Value::Text(kind.into()))),
        ("entity", Some(Value::Text(raw.entity.into()))),
        ("entity_key", Some(Value::Text(raw.key))),
        ("priority", raw.priority.map(|priority| Value::Integer(priority.into()))),
        ("workflow", raw.workflow.map(|workflow| Value::Text(workflow.into()))),
        ("ready_at", raw.ready_in_ms.map(|ms| Value::Integer(now_ms + ms))),
        ("dedupe", raw.dedupe.map(|dedupe| Value::Text(dedupe.into()))),
        ("payload", raw.payload.map(Value::Text)),
    ];
    let (names, values): (Vec<_>, Vec<_>) =
        columns.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).unzip();
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("insert into honeyflow_outbox({}) values ({marks})", names.join(", "));
    application.execute(&sql, rusqlite::params_from_iter(values)).unwrap();
    application.last_insert_rowid()
}

pub async fn fresh() -> Harness {
    let links = "create table book_author(author_id integer, book_id integer);
         with recursive n(i) as (select 11 union all select i + 1 from n where i < 35)
         insert into book_author select 7, i from n;
         insert into book_author select author_id, book_id from book_author";
    let (shop, store) = Shop::new(links).await;
    let mut edge = document("select book_id from book_author where author_id in $keys");
    edge.key = vec![column("author_id", KeyType::Integer)];
    edge.result_key = vec![];
    let hive = Arc::new(honeyflow_hive_sqlite::open(&shop.path(), honeyflow_hive::contract::HIVE).unwrap());
    let application = Arc::new(Mutex::new(shop.application()));
    Harness {
        store: Arc::new(store),
        hive,
        insert: Box::new(move |raw| std::future::ready(insert(&application.lock().unwrap(), raw)).boxed()),
        pass: Box::new(|time| tokio::time::sleep(time).boxed()),
        edge: Some(Arc::new(edge)),
        keep: Box::new(shop),
    }
}

honeyflow_conformance::store_suite!(fresh);
