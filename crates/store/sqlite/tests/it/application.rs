//! The store from the application's side: its own tools, its own SQLite, its own clock.

use std::process::Command;

use honeyflow_conformance::store::everything;
use honeyflow_store::{Reply, Request, Store};

use crate::Shop;

/// Debian's `sqlite3` program, if there is one.
fn sqlite3(shop: &Shop, sql: &str) -> Option<String> {
    let output =
        Command::new("sqlite3").args(["-batch", "-cmd", ".timeout 5000"]).arg(shop.path()).arg(sql).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn ob_4_a_row_of_the_sqlite3_program_is_a_complete_event() {
    let (shop, store) = Shop::new("create table book(id integer primary key)").await;
    let insert = "INSERT INTO honeyflow_outbox(entity, entity_key) VALUES ('book','42'), ('book', 43)";
    if sqlite3(&shop, insert).is_none() {
        assert!(std::env::var_os("CI").is_none(), "the sqlite3 program is missing");
        eprintln!("skipped: the sqlite3 program is missing");
        return;
    }
    let Reply::Polled(polled) = store.call(Request::Poll(everything())).await.unwrap() else { panic!("not polled") };
    let keys: Vec<_> = polled.events.iter().map(|event| (&*event.entity, &*event.key, event.priority)).collect();
    assert_eq!(keys, [("book", "42", 4), ("book", "43", 4)]);
    assert!(polled.events.iter().all(|event| (polled.store_ms - event.created_ms).abs() < 60_000));
    assert_eq!(sqlite3(&shop, "pragma integrity_check").unwrap().trim(), "ok");
}

/// The columns and defaults are those of the specification's table.
#[tokio::test]
async fn ob_1_the_outbox_has_the_columns_of_the_specification() {
    let (shop, _store) = Shop::new("").await;
    let application = shop.application();
    let columns: Vec<(String, String, bool, Option<String>)> = application
        .prepare("select name, type, \"notnull\", dflt_value from pragma_table_info('honeyflow_outbox')")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns: Vec<_> = columns
        .iter()
        .map(|(name, kind, required, default)| {
            let default = default.as_deref().map(|text| if text.contains("julianday") { "now" } else { text });
            (&**name, &**kind, *required, default)
        })
        .collect();
    let expected = [
        ("id", "INTEGER", false, None),
        ("format", "smallint", true, Some("1")),
        ("kind", "TEXT", true, Some("'row'")),
        ("tenant", "TEXT", true, Some("''")),
        ("entity", "TEXT", true, None),
        ("entity_key", "TEXT", true, None),
        ("shard", "smallint", true, Some("0")),
        ("priority", "smallint", true, Some("4")),
        ("workflow", "TEXT", false, None),
        ("created_at", "INTEGER", true, Some("now")),
        ("ready_at", "INTEGER", false, None),
        ("dedupe", "TEXT", false, None),
        ("traceparent", "TEXT", false, None),
        ("root", "bigint", false, None),
        ("payload", "TEXT", false, None),
        ("change", "TEXT", false, None),
        ("columns", "TEXT", false, None),
    ];
    assert_eq!(columns, expected);
    let autoincrement: bool = application
        .query_row("select sql like '%autoincrement%' from sqlite_master where name = 'honeyflow_outbox'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(autoincrement);
    let indexes: Vec<String> = application
        .prepare("select sql from sqlite_master where type = 'index' and tbl_name = 'honeyflow_outbox' order by name")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(indexes.len(), 2, "{indexes:?}");
    assert!(indexes[0].ends_with("(shard, ready_at) where ready_at is not null"), "{indexes:?}");
    assert!(indexes[1].ends_with("(shard, priority, id) where ready_at is null and priority <> 4"), "{indexes:?}");
}

#[tokio::test]
async fn odd_rows_written_by_hand_do_not_stop_a_poll() {
    let (shop, store) = Shop::new("").await;
    shop.application()
        .execute_batch(
            "insert into honeyflow_outbox(entity, entity_key, priority) values ('book', '1', 77), ('book', '2', -3);
             insert into honeyflow_outbox(entity, entity_key, priority) values ('book', '3', 'high');
             insert into honeyflow_outbox(entity, entity_key, kind, payload) values ('book', '4', 'telegram', 'abc');
             insert into honeyflow_outbox(entity, entity_key, format) values ('book', '5', 9);
             insert into honeyflow_outbox(entity, entity_key) values ('book', x'36');
             insert into honeyflow_outbox(entity, entity_key, format, payload) values ('book', '7', 2, 'garbled');",
        )
        .unwrap();
    let sweep = honeyflow_store::poll::Sweep { from: 0, to: i64::MAX, room: 100, known: Default::default() };
    let poll = honeyflow_store::Poll { sweep: Some(sweep), ..everything() };
    let Reply::Polled(polled) = store.call(Request::Poll(poll)).await.unwrap() else { panic!("not polled") };
    let events: Vec<_> = polled.events.iter().map(|event| (&*event.key, event.priority, event.format)).collect();
    assert_eq!(events, [("2", 0, 1), ("5", 4, 9), ("6", 4, 1), ("1", 9, 1), ("3", 9, 1)], "found by the sweep");
    assert_eq!(polled.oversized.iter().map(|row| row.id).collect::<Vec<_>>(), [4, 7], "these rows will be parked");
}

#[tokio::test]
async fn every_poll_returns_the_schema_version() {
    let (shop, store) = Shop::new("create table book(id integer primary key)").await;
    let version = async || match store.call(Request::Poll(everything())).await.unwrap() {
        Reply::Polled(polled) => polled.schema_version,
        other => panic!("{other:?}"),
    };
    let before = version().await;
    assert_eq!(before, version().await);
    shop.application().execute_batch("alter table book add column title text").unwrap();
    assert_ne!(before, version().await);
}

/// A poll of the default level that has read rows of other levels does not read them again.
#[tokio::test]
async fn ob_36_a_poll_that_reads_to_the_end_of_the_table_reports_it() {
    let (shop, store) = Shop::new("").await;
    let application = shop.application();
    application
        .execute_batch(
            "insert into honeyflow_outbox(entity, entity_key) values ('book', '1');
             insert into honeyflow_outbox(entity, entity_key, priority) values ('book', '2', 7), ('book', '3', 7);
             insert into honeyflow_outbox(entity, entity_key, ready_at) values ('book', '4', 99999999999999);",
        )
        .unwrap();
    let mut poll = everything();
    poll.levels[7].room = 0;
    let polled = async |poll: &honeyflow_store::Poll| match store.call(Request::Poll(poll.clone())).await.unwrap() {
        Reply::Polled(polled) => polled,
        other => panic!("not polled: {other:?}"),
    };
    let first = polled(&poll).await;
    assert_eq!(first.events.iter().map(|event| &*event.key).collect::<Vec<_>>(), ["1"]);
    assert_eq!(first.looked_to[4], 4, "it has read the whole table");
    assert_eq!(first.looked_to[7], 0, "this level was not read");

    application.execute_batch("insert into honeyflow_outbox(entity, entity_key) values ('book', '5')").unwrap();
    poll.levels[4].after = first.looked_to[4];
    poll.levels[7].room = 10;
    let second = polled(&poll).await;
    assert_eq!(second.events.iter().map(|event| &*event.key).collect::<Vec<_>>(), ["5", "2", "3"]);

    poll.levels[4] = honeyflow_store::poll::Level { after: 0, room: 1 };
    assert_eq!(polled(&poll).await.looked_to[4], 1, "it reads no further than its room");
}
