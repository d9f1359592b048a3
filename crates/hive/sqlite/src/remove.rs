//! Who lives on a database, and taking the hive out of it again. Nothing here needs a hive that is open.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use honeyflow_runtime::Failure;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use crate::{outcome, schema};

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that lives on the database: it holds its kernel lock.
pub fn living(database: &Path) -> Option<String> {
    locked(&folder(database))
}

/// Drops the hive's tables and removes the folder of its locks. To be called once nobody lives there.
///
/// # Errors
/// If the database cannot be changed, or someone still lives on it.
pub fn uninstall(database: &Path) -> Result<(), Failure> {
    let failed = |error: rusqlite::Error| outcome::failure(&error, "remove the hive");
    let mut connection = open(database).map_err(failed)?;
    // no node can join meanwhile
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let folder = folder(database);
    if let Some(node) = locked(&folder) {
        return Err(lived_in(database, &node));
    }
    for table in schema::tables() {
        transaction.execute_batch(&format!("drop table if exists {table}")).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    // what is left of it names nobody, and is in nobody's way
    let _ = fs::remove_dir_all(folder);
    Ok(())
}

fn lived_in(database: &Path, node: &str) -> Failure {
    Failure::reject("another-node", format!("node {node} is running on {}: stop it first", database.display()))
}

/// Refused while a node lives on the database.
///
/// # Errors
/// That one does.
pub fn refuse_if_lived_in(database: &Path) -> Result<(), Failure> {
    living(database).map_or(Ok(()), |node| Err(lived_in(database, &node)))
}

/// The tables that a hive has made.
pub fn tables() -> impl Iterator<Item = &'static str> {
    schema::tables()
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// One file may be reached by several paths; its folder is the same for all of them.
fn folder(database: &Path) -> PathBuf {
    let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut folder = database.into_os_string();
    folder.push(".honeyflow");
    folder.into()
}

/// All of them.
pub fn living_nodes(database: &Path) -> Vec<String> {
    all_locked(&folder(database))
}

fn locked(folder: &Path) -> Option<String> {
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
