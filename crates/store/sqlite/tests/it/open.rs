//! Opens and installs a store, and checks which files it refuses.

use honeyflow_conformance::store::everything;
use honeyflow_runtime::Class;
use honeyflow_store::{Request, Store};
use honeyflow_store_sqlite::{Options, SqliteStore, schema};

use crate::Shop;

fn tables(shop: &Shop) -> i64 {
    shop.application().query_row("select count(*) from sqlite_master", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn ob_19_opening_creates_no_table_and_migrating_is_idempotent() {
    let shop = Shop::bare();
    let store = shop.open();
    assert!(!store.is_installed().await.unwrap());
    assert_eq!(tables(&shop), 0);
    let failure = store.call(Request::Poll(everything())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "missing-table"));
    let installed = store.migrate().await.unwrap();
    assert_eq!((installed.version, installed.shards), (schema::version(), 1));
    assert!(!installed.install_id.is_nil());
    let created = tables(&shop);
    assert_eq!(store.migrate().await.unwrap(), installed, "twice → no change");
    assert_eq!(tables(&shop), created);
    assert_eq!(shop.open().installed().await.unwrap(), Some(installed));
    assert!(store.call(Request::Poll(everything())).await.is_ok());
}

#[tokio::test]
async fn a_schema_newer_than_the_binary_is_refused() {
    let (shop, store) = Shop::new("").await;
    drop(store);
    shop.application().execute_batch("update honeyflow_meta set value = '999' where name = 'schema'").unwrap();
    let failure = SqliteStore::open(&shop.options()).err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "schema-too-new"), "{failure}");
}

#[tokio::test]
async fn a_missing_file_and_a_file_that_is_not_a_database_are_refused() {
    let shop = Shop::bare();
    let missing = Options::new(shop.folder.path().join("mistyped.db"), "shop");
    let failure = SqliteStore::open(&missing).err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "cannot-open"), "{failure}");
    assert!(!missing.path.exists(), "a mistyped path does not become a database");
    assert!(SqliteStore::open(&Options { create: true, ..missing }).is_ok());
    let text = shop.folder.path().join("notes.txt");
    std::fs::write(&text, "x".repeat(4096)).unwrap();
    let failure = SqliteStore::open(&Options::new(text, "shop")).err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "not-a-database"), "{failure}");
}

#[tokio::test]
async fn wal_is_set_only_when_configured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let mode = || -> String {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.query_row("pragma journal_mode", [], |row| row.get(0)).unwrap()
    };
    let options = Options { create: true, ..Options::new(&path, "shop") };
    let store = SqliteStore::open(&options).unwrap();
    store.migrate().await.unwrap();
    assert_eq!(mode(), "delete");
    assert!(store.call(Request::Poll(everything())).await.is_ok(), "works without it");
    drop(store);
    let _store = SqliteStore::open(&Options { set_wal: true, ..options }).unwrap();
    assert_eq!(mode(), "wal");
}
