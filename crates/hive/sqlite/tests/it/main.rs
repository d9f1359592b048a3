//! The hive in SQLite: the suites that every backend passes, and tests of the kernel locks that only this backend has.

mod beat;
mod conformance;
mod duty;
mod fleet;
mod lock;
mod schema;
mod standby;

use std::{path::PathBuf, sync::Arc, time::Duration};

use honeyflow_hive::{HiveStore, NodeId, Reply, Request, contract::State};
use honeyflow_hive_sqlite::{Options, SqliteHive};
use tempfile::TempDir;
use uuid::Uuid;

/// An application's database in a temporary folder.
pub struct Shop {
    pub folder: TempDir,
}

impl Shop {
    pub fn fresh() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        shop.application()
            .execute_batch("pragma journal_mode = wal; create table book(id integer primary key)")
            .unwrap();
        shop
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    pub fn locks(&self) -> PathBuf {
        self.folder.path().join("shop.db.honeyflow")
    }

    /// Opens a connection as the application does.
    pub fn application(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// Opens the hive for one node at a time.
    pub fn hive(&self) -> Arc<SqliteHive> {
        let options =
            Options { busy_timeout: Some(Duration::from_millis(50)), alone: true, ..Options::new(self.path()) };
        Arc::new(SqliteHive::open(&options).unwrap())
    }
}

pub fn node() -> NodeId {
    NodeId(Uuid::new_v4())
}

pub fn join(node: NodeId) -> Request {
    Request::Join { node, name: "reader".into(), heartbeat_ms: 2000, ttl_ms: 6000, meta: r#"{"pid":4711}"#.into() }
}

pub fn beat(node: NodeId, read_only: bool) -> Request {
    Request::Beat { node, read_only, state: State { ready: true, eligible: true, ..State::default() } }
}

/// Sends a heartbeat and returns `(member, renewed)`.
pub async fn send_beat(hive: &SqliteHive, node: NodeId, read_only: bool) -> (bool, bool) {
    match hive.call(beat(node, read_only)).await.unwrap() {
        Reply::Beat(status) => (status.member, status.renewed),
        other => panic!("{other:?}"),
    }
}

pub async fn nodes(hive: &SqliteHive) -> Vec<NodeId> {
    match hive.call(Request::View).await.unwrap() {
        Reply::View(view) => view.nodes.into_iter().map(|node| node.id).collect(),
        other => panic!("{other:?}"),
    }
}
