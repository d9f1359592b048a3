//! The database of a source in a SQLite file.

use std::path::{Path, PathBuf};

use honeyflow_runtime::Failure;
use honeyflow_store::{CaptureTable, Catalogue, KeyColumn, Statement, catalogue::Table};
use honeyflow_store_sqlite::{Options, SqliteStore, capture, capture::Changes, catalogue, schema};
use rusqlite::Connection;

use crate::{
    codes,
    config::FieldType,
    init::{Class, RowInspector},
};

/// The settings that decide whether commits survive a power cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durability {
    /// 0 off, 1 normal, 2 full, 3 extra.
    synchronous: u8,
    journal: String,
}

impl Durability {
    fn is_durable(&self) -> bool {
        self.synchronous >= 2 && !matches!(self.journal.as_str(), "off" | "memory")
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let synchronous = ["OFF", "NORMAL", "FULL", "EXTRA"].get(usize::from(self.synchronous)).unwrap_or(&"unknown");
        write!(f, "journal {}, our commits with synchronous = {synchronous}", self.journal)
    }
}

#[derive(Clone)]
pub struct SqliteDatabase {
    pub path: PathBuf,
    pub store: SqliteStore,
    pub catalogue: Catalogue,
}

impl SqliteDatabase {
    /// Opens the database at the address `text`. Relative paths are relative to `folder`.
    pub async fn at(text: &str, name: &str, folder: &Path) -> Result<SqliteDatabase, Failure> {
        let path = path(text, name, folder)?;
        let store = SqliteStore::open(&Options::new(&path, name))?;
        let catalogue = store.read_with(|connection| catalogue::read(connection)).await?;
        Ok(SqliteDatabase { path, store, catalogue })
    }

    /// The columns as parts of a key, with the types that their values have.
    pub async fn key(&self, table: &Table, columns: &[String]) -> Result<Vec<KeyColumn>, Failure> {
        let (table, columns) = (table.clone(), columns.to_vec());
        let read = move |connection: &mut Connection| {
            let typed = columns.iter().map(|column| {
                let kind = catalogue::key_type(connection, &table, column)?;
                // Use the table's spelling of the name: the result of a statement is compared with it.
                let name = table.column(column).map_or(column, |column| &column.name).clone();
                Ok(KeyColumn { name, kind })
            });
            typed.collect()
        };
        self.store.read_with(read).await
    }

    /// Creates or updates the tables, and switches the journal to WAL if the user has agreed.
    pub async fn migrate(&self, set_wal: bool) -> Result<(), Failure> {
        if set_wal {
            let switch = |connection: &mut Connection| {
                let switched = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
                switched.map_err(|error| Failure::retry(codes::STORE_ERROR, format!("switch to WAL: {error}")))
            };
            self.store.write_with(switch).await?;
        }
        self.store.migrate().await.map(drop)
    }

    pub async fn install(&self, wanted: Vec<CaptureTable>) -> Result<Changes, Failure> {
        self.store.write_with(move |connection| capture::install(connection, &wanted)).await
    }

    /// The number of waiting events that the build of a next generation has queued for one workflow.
    pub async fn reindex_events(&self, entity: &str, workflow: &str) -> Result<u64, Failure> {
        const LEFT: &str = "select count(*) from honeyflow_outbox
             where shard = 0 and priority = ?1 and ready_at is null and entity = ?2 and workflow = ?3";
        let (entity, workflow) = (entity.to_owned(), workflow.to_owned());
        let read = move |connection: &mut Connection| {
            let bound = rusqlite::params![honeyflow_event::PRIORITY_REINDEX, entity, workflow];
            let left = connection.query_row(LEFT, bound, |row| row.get::<_, i64>(0));
            left.map(|left| left.max(0).cast_unsigned())
                .map_err(|error| Failure::retry(codes::STORE_ERROR, format!("count events: {error}")))
        };
        self.store.read_with(read).await
    }

    /// Removes all tables and triggers of Honeyflow. Fails while a node is running or events are left.
    pub async fn uninstall(&self, force: bool) -> Result<(), Failure> {
        honeyflow_hive_sqlite::refuse_if_in_use(&self.path)?;
        self.store.write_with(move |connection| capture::uninstall(connection, force)).await?;
        let path = self.path.clone();
        let removed = tokio::task::spawn_blocking(move || honeyflow_hive_sqlite::uninstall(&path)).await;
        removed.unwrap_or_else(|_| Err(Failure::fatal(codes::PANICKED, "removing the hive panicked")))
    }

    /// Whether a node uses this database now.
    pub fn is_in_use(&self) -> bool {
        honeyflow_hive_sqlite::running_node(&self.path).is_some()
    }

    /// The durability of the connection that acknowledges events.
    pub async fn durability(&self) -> Result<Durability, Failure> {
        let read = |connection: &mut Connection| {
            let work = || -> rusqlite::Result<Durability> {
                let synchronous = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
                let journal = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
                Ok(Durability { synchronous, journal })
            };
            work().map_err(|error| Failure::retry(codes::STORE_ERROR, format!("read the durability settings: {error}")))
        };
        self.store.write_with(read).await
    }

    /// Fails if a power cut could undo commits: an acknowledgement must be durable.
    pub async fn refuse_if_not_durable(&self) -> Result<(), Failure> {
        let durability = self.durability().await?;
        if durability.is_durable() {
            return Ok(());
        }
        let message = format!(
            "a power cut could undo commits in {}: {durability}; Honeyflow needs synchronous = FULL and a journal on disk \
             (`pragma journal_mode = wal`)",
            self.path.display()
        );
        Err(Failure::fatal(codes::NOT_DURABLE, message))
    }

    pub async fn reinstall(&self, wanted: Vec<CaptureTable>) -> Result<(), Failure> {
        self.store.write_with(move |connection| capture::reinstall(connection, &wanted)).await.map(drop)
    }

    /// The statements that remove everything that is installed.
    pub async fn uninstall_plan(&self) -> Result<String, Failure> {
        const OURS: &str =
            "select 'DROP ' || upper(type) || ' \"' || replace(name, '\"', '\"\"') || '\";' from sqlite_master
             where (type = 'trigger' and name like 'honeyflow: %')
                or (type = 'table' and (name like 'honeyflow\\_%' escape '\\' or instr(?1, ' ' || name || ' ') > 0))
             order by type desc, name";
        let read = |connection: &mut Connection| {
            let mut lines = String::new();
            let work = |lines: &mut String| -> rusqlite::Result<()> {
                let mut statement = connection.prepare(OURS)?;
                let hive: String = honeyflow_hive_sqlite::tables().map(|table| format!(" {table} ")).collect();
                let mut rows = statement.query([hive])?;
                while let Some(row) = rows.next()? {
                    lines.push_str(&row.get::<_, String>(0)?);
                    lines.push('\n');
                }
                Ok(())
            };
            work(&mut lines)
                .map_err(|error| Failure::retry(codes::STORE_ERROR, format!("read the schema: {error}")))?;
            Ok(lines)
        };
        self.store.read_with(read).await
    }

    /// The statements of an installation.
    pub fn plan(&self, wanted: &[CaptureTable]) -> Result<String, Failure> {
        Ok(format!("{}\n{}", schema::ddl(), capture::plan(wanted, &self.catalogue)?))
    }

    /// Fails if the encoding of the database does not fit the triggers.
    pub async fn refuse_other_encodings(&self, wanted: Vec<CaptureTable>) -> Result<(), Failure> {
        self.store.read_with(move |connection| capture::refuse_other_encodings(connection, &wanted)).await
    }

    pub async fn drift(&self, wanted: Vec<CaptureTable>) -> Result<capture::DriftReport, Failure> {
        self.store.read_with(move |connection| capture::check_drift(connection, &wanted)).await
    }

    /// Notes that the triggers are complete at the schema version at which no drift was found.
    pub async fn note_complete(&self, wanted: Vec<CaptureTable>, checked_at: i64) -> Result<(), Failure> {
        self.store.write_with(move |connection| capture::note_complete(connection, &wanted, checked_at)).await
    }

    /// The output of `explain query plan` for the statement, line by line.
    pub async fn query_plan(&self, statement: &Statement) -> Result<Vec<String>, Failure> {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let parts = statement.key.iter().enumerate();
        let parts: Vec<String> =
            parts.map(|(n, column)| format!("json_extract(value, '$[{n}]') as {}", quoted(&column.name))).collect();
        let row_set = format!("(select {} from json_each(?1))", parts.join(", "));
        let sql = format!("explain query plan {}", honeyflow_store::keys::rewrite(statement, &row_set)?);
        let read = move |connection: &mut Connection| {
            let plan = || -> rusqlite::Result<Vec<String>> {
                connection.prepare(&sql)?.query_map(["[]"], |row| row.get(3))?.collect()
            };
            plan().map_err(|error| Failure::retry(codes::STORE_ERROR, format!("explain a statement: {error}")))
        };
        self.store.read_with(read).await
    }

    /// The journal mode: `wal`, `delete`, …
    pub async fn journal_mode(&self) -> Result<String, Failure> {
        let read = |connection: &mut Connection| {
            let mode = connection.query_row("pragma journal_mode", [], |row| row.get(0));
            mode.map_err(|error| Failure::retry(codes::STORE_ERROR, format!("read the journal mode: {error}")))
        };
        self.store.read_with(read).await
    }

    /// Proposes entities from the schema and the rows, on the store's reader thread.
    pub async fn propose(&self) -> Result<crate::init::Proposal, Failure> {
        let catalogue = self.catalogue.clone();
        let read = move |connection: &mut Connection| Ok(crate::init::propose(&catalogue, &Rows { connection }));
        self.store.read_with(read).await
    }
}

fn path(url: &str, name: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
    match path {
        None => Err(Failure::fatal(
            codes::UNKNOWN_URL,
            format!("{name}: this build has no store for this address; it has {}", super::super::known_schemes()),
        )),
        Some("" | ":memory:") => {
            Err(Failure::fatal(codes::BAD_URL, format!("{name}: the address contains no file; write sqlite:shop.db")))
        }
        Some(path) => Ok(folder.join(path)),
    }
}

/// Number of rows that are inspected for a column: enough to show its use, few enough for a table of any size.
const ROWS_MAX: u32 = 10_000;

struct Rows<'a> {
    connection: &'a Connection,
}

impl RowInspector for Rows<'_> {
    fn key(&self, table: &Table, column: &str) -> Result<(), String> {
        catalogue::key_type(self.connection, table, column).map(drop).map_err(|failure| failure.message)
    }

    fn fits(&self, table: &Table, column: &str, class: Class) -> bool {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let misfit = match class {
            Class::Field(FieldType::Integer) => "typeof(c) <> 'integer'",
            Class::Field(FieldType::Decimal) => "typeof(c) not in ('integer', 'real')",
            Class::Field(FieldType::Boolean) => "c not in (0, 1)",
            Class::Field(FieldType::Date) => {
                "typeof(c) <> 'text' or c not glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' or julianday(c) is null"
            }
            Class::Json => "typeof(c) <> 'text' or not json_valid(c)",
            Class::Field(FieldType::Text | FieldType::Keyword) | Class::Blob => return true,
        };
        let (table, column) = (quoted(&table.name), quoted(column));
        let sql = format!(
            "select not exists (select 1 from (select {column} as c from {table} limit {ROWS_MAX}) where c is not null and ({misfit}))"
        );
        self.connection.query_row(&sql, [], |row| row.get(0)).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn opened(relaxed: bool) -> (tempfile::TempDir, SqliteDatabase) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("shop.db");
        let store = SqliteStore::open(&Options { create: true, relaxed, ..Options::new(&path, "shop") }).unwrap();
        (home, SqliteDatabase { path, store, catalogue: Catalogue::default() })
    }

    #[tokio::test]
    async fn rl_20_commits_that_a_power_cut_could_undo_are_refused() {
        let (_home, database) = opened(false).await;
        assert_eq!(database.refuse_if_not_durable().await, Ok(()));
        let (_home, database) = opened(true).await;
        let failure = database.refuse_if_not_durable().await.unwrap_err();
        assert_eq!(failure.code, "not-durable");
        assert!(failure.message.contains("synchronous = NORMAL"), "{failure}");
        let kept = |synchronous, journal: &str| Durability { synchronous, journal: journal.to_owned() }.is_durable();
        assert!(kept(2, "wal") && kept(2, "delete") && kept(3, "persist"));
        assert!(!kept(1, "wal") && !kept(0, "delete") && !kept(2, "memory") && !kept(3, "off"));
    }
}
