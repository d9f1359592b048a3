//! Finds the nodes that run on a database, and removes the hive from it. Nothing here needs an open hive.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use honeyflow_runtime::Failure;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use crate::{codes, outcome, schema};

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns one node that runs on the database, which is one that holds its kernel lock.
pub fn running_node(database: &Path) -> Option<String> {
    first_locked(&folder(database))
}

/// Drops the hive's tables and removes the folder of its locks. Call it when no node runs on the database.
///
/// # Errors
/// If the database cannot be changed, or a node still runs on it.
pub fn uninstall(database: &Path) -> Result<(), Failure> {
    let failed = |error: rusqlite::Error| outcome::failure(&error, "remove the hive");
    let mut connection = open(database).map_err(failed)?;
    // No node can join during this transaction.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let folder = folder(database);
    if let Some(node) = first_locked(&folder) {
        return Err(in_use(database, &node));
    }
    for table in schema::tables() {
        transaction.execute_batch(&format!("drop table if exists {table}")).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    // An error is ignored: lock files that remain belong to no living node and do not disturb later ones.
    let _ = fs::remove_dir_all(folder);
    Ok(())
}

fn in_use(database: &Path, node: &str) -> Failure {
    Failure::reject(codes::ANOTHER_NODE, format!("node {node} is running on {}: stop it first", database.display()))
}

/// Refuses while a node runs on the database.
///
/// # Errors
/// If a node runs on it.
pub fn refuse_if_in_use(database: &Path) -> Result<(), Failure> {
    running_node(database).map_or(Ok(()), |node| Err(in_use(database, &node)))
}

/// The names of the tables that a hive creates.
pub fn tables() -> impl Iterator<Item = &'static str> {
    schema::tables()
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// The folder of the locks. Several paths may lead to one database file; the folder is the same for all of them.
fn folder(database: &Path) -> PathBuf {
    let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut folder = database.into_os_string();
    folder.push(".honeyflow");
    folder.into()
}

/// Returns all nodes that run on the database.
pub fn running_nodes(database: &Path) -> Vec<String> {
    all_locked(&folder(database))
}

fn first_locked(folder: &Path) -> Option<String> {
    all_locked(folder).into_iter().next()
}

fn all_locked(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let held = entries.filter_map(|entry| entry.ok()).filter_map(|entry| {
        let id = entry.file_name().to_str()?.strip_suffix(".lock")?.to_owned();
        let file = File::open(entry.path()).ok()?;
        let held = flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK);
        held.then_some(id)
    });
    held.collect()
}
