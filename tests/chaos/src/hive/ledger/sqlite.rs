//! The log as a table in SQLite, with one file for each hive: hives are independent, and a file has one writer.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use honeyflow_hive::{Fence, fence};
use rusqlite::{Connection, TransactionBehavior, params};

use super::{BeforeCommit, Entry, Ledger};

const TABLE: &str = "create table if not exists chaos_write (id integer primary key autoincrement, lease text not null, \
                     epoch bigint not null, node text not null, at_us bigint not null)";

pub fn make_folder() -> Result<String, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("honeyflow-hive-chaos-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    folder.into_os_string().into_string().map_err(|_| "the path of the temporary folder is not valid UTF-8".to_owned())
}

pub fn file(folder: &str, hive: &str) -> PathBuf {
    Path::new(folder).join(format!("{hive}.db"))
}

pub struct SqliteLedger {
    connection: Connection,
    hive: String,
}

impl SqliteLedger {
    pub fn open(folder: &str, hive: &str) -> Result<SqliteLedger, String> {
        let open = || {
            let connection = Connection::open(file(folder, hive))?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.execute_batch(TABLE)?;
            Ok(connection)
        };
        let connection = open().map_err(|error: rusqlite::Error| format!("open the log of {hive}: {error}"))?;
        Ok(SqliteLedger { connection, hive: hive.to_owned() })
    }

    fn write(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> rusqlite::Result<bool> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(fence) = fence
            && !transaction.prepare(&fence::sqlite(&self.hive, [fence], "1"))?.exists([])?
        {
            return Ok(false);
        }
        transaction
            .prepare_cached("insert into chaos_write(lease, epoch, node, at_us) values (?1, ?2, ?3, ?4)")?
            .execute(params![entry.lease, entry.epoch.cast_signed(), entry.node, entry.at_us.cast_signed()])?;
        if let Some(before_commit) = before_commit {
            before_commit();
        }
        transaction.commit()?;
        Ok(true)
    }
}

impl Ledger for SqliteLedger {
    fn append(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> Result<bool, String> {
        self.write(entry, fence, before_commit).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Vec<Entry>, String> {
        let read = || {
            let mut select =
                self.connection.prepare("select lease, epoch, node, at_us from chaos_write order by id")?;
            let rows = select.query_map([], |row| {
                Ok(Entry {
                    lease: row.get(0)?,
                    epoch: row.get::<_, i64>(1)?.cast_unsigned(),
                    node: row.get(2)?,
                    at_us: row.get::<_, i64>(3)?.cast_unsigned(),
                })
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| format!("read the log: {error}"))
    }
}
