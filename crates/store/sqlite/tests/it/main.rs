//! Tests of the store in SQLite: the suite that every backend passes, and what only this one has.

mod application;
mod conformance;
mod document;
mod edge;
mod grouping;
mod open;
#[cfg(feature = "planted")]
mod planted;
mod speed;

use std::{path::PathBuf, sync::Arc, time::Duration};

use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_store::{KeyColumn, KeyType, Load, LoadResult, Reply, Request, Statement, Store};
use honeyflow_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// An application's database in its own folder, with Honeyflow's tables installed.
pub struct Shop {
    pub folder: TempDir,
}

impl Shop {
    /// Creates a database without Honeyflow's tables.
    pub fn bare() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        shop.application().execute_batch("pragma journal_mode = wal").unwrap();
        shop
    }

    pub async fn new(tables: &str) -> (Shop, SqliteStore) {
        let shop = Shop::bare();
        shop.application().execute_batch(tables).unwrap();
        let store = shop.open();
        store.migrate().await.unwrap();
        (shop, store)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    pub fn options(&self) -> Options {
        // Commits of tests need not survive a power cut; pauses between acknowledgements have their own test.
        Options { relaxed: true, acknowledge_every: Duration::ZERO, ..Options::new(self.path(), "shop") }
    }

    pub fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.options()).unwrap()
    }

    /// Opens a connection as the application does.
    pub fn application(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }
}

pub fn column(name: &str, kind: KeyType) -> KeyColumn {
    KeyColumn { name: name.into(), kind }
}

/// A document statement over one integer key.
pub fn document(text: &str) -> Statement {
    let id = column("id", KeyType::Integer);
    Statement {
        place: "entity.book.document".into(),
        text: text.into(),
        key: vec![id.clone()],
        result_key: vec![id],
        json: vec![],
    }
}

pub async fn load(store: &SqliteStore, statement: &Statement, keys: &[&str]) -> Result<Vec<LoadResult>, Failure> {
    let keys = keys.iter().map(|key| Key::from(*key)).collect();
    let statement = Arc::new(statement.clone());
    let load = Load { statement, keys, expand: None, timeout: Duration::from_secs(10) };
    match store.call(Request::Load(load)).await? {
        Reply::Loaded(loaded) => Ok(loaded),
        other => panic!("{other:?}"),
    }
}

/// Returns the document, `null` if there is none, or the code of the rejection.
pub fn outcome(loaded: &LoadResult) -> Result<Value, &str> {
    match loaded {
        LoadResult::Document(document) => Ok(document.as_deref().cloned().unwrap_or_default()),
        LoadResult::Rejected(failure) => Err(&failure.code),
    }
}
