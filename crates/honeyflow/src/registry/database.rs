//! The database of a source: its store and its catalogue. The submodules contain the differences between the kinds.

#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::{collections::BTreeSet, path::Path, sync::Arc};

use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply, CaptureTable, Catalogue, KeyColumn, Reply, Request, Statement, Store,
    capture::{Changes, DriftReport},
    catalogue::Table,
    mismatched_reply,
};
use uuid::Uuid;

#[cfg(feature = "postgres")]
use postgres::PostgresDatabase;
use sqlite::SqliteDatabase;

use crate::{
    codes,
    config::{SourceConfig, Url},
};

/// The noun of the task to compare the documents that read a table, and its state until that is done.
const COMPARISON: &str = "compare";
/// The noun of a comparison that has begun. A TRUNCATE meanwhile writes a [`COMPARISON`] again, which is not lost with it.
const BEGUN_COMPARISON: &str = "comparing";
const OWED: &str = "owed";
const DONE: &str = "done";

/// The installation, as `honeyflow_meta` describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installation {
    pub install_id: Uuid,
    pub version: u32,
    pub shards: u16,
}

#[derive(Clone)]
pub struct Database {
    pub store: Arc<dyn Store>,
    pub catalogue: Catalogue,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Sqlite(SqliteDatabase),
    #[cfg(feature = "postgres")]
    Postgres(PostgresDatabase),
}

impl Database {
    /// Opens the database of a source. Relative paths are relative to `folder`.
    pub async fn open(source: &SourceConfig, folder: &Path) -> Result<Database, Failure> {
        Database::at(&source.url, &source.name, source.shards, folder).await
    }

    /// Opens a database. `shards` is the number of shards of a new installation, where several are possible.
    pub async fn at(url: &Url, name: &str, shards: u16, folder: &Path) -> Result<Database, Failure> {
        let url = url.resolve().map_err(|unresolved| {
            Failure::fatal(codes::UNRESOLVED, format!("{name}: {unresolved}; {}", unresolved.help()))
        })?;
        #[cfg(feature = "postgres")]
        if url.reveal().starts_with("postgres:") || url.reveal().starts_with("postgresql:") {
            let database = PostgresDatabase::at(url.reveal(), name, shards).await?;
            let (store, catalogue) = (Arc::new(database.store.clone()), database.catalogue().await?);
            return Ok(Database { store, catalogue, kind: Kind::Postgres(database) });
        }
        let _ = shards;
        let database = SqliteDatabase::at(url.reveal(), name, folder).await?;
        let (store, catalogue) = (Arc::new(database.store.clone()), database.catalogue.clone());
        Ok(Database { store, catalogue, kind: Kind::Sqlite(database) })
    }

    /// The address for people, without secrets.
    pub fn place(&self) -> String {
        match &self.kind {
            Kind::Sqlite(database) => database.path.display().to_string(),
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.place.clone(),
        }
    }

    /// The file of the database; none if it is on a server.
    pub fn file(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Sqlite(database) => Some(&database.path),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => None,
        }
    }

    /// The columns as parts of a key, with the types that their values have.
    pub async fn key(&self, table: &Table, columns: &[String]) -> Result<Vec<KeyColumn>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.key(table, columns).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => columns.iter().map(|column| postgres::key(table, column)).collect(),
        }
    }

    /// Checks a statement without running it, and returns the columns of its result.
    pub async fn prepare(&self, statement: Arc<Statement>) -> Result<Vec<String>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.store.prepare(statement).await.map(|prepared| prepared.columns),
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.prepare(statement).await.map(|prepared| prepared.columns),
        }
    }

    pub async fn admin(&self, admin: Admin) -> Result<AdminReply, Failure> {
        match self.store.call(Request::Admin(admin)).await? {
            Reply::Admin(reply) => Ok(reply),
            other => Err(mismatched_reply(&other)),
        }
    }

    pub async fn installed(&self) -> Result<Option<Installation>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => {
                let found = database.store.installed().await?;
                Ok(found.map(|found| Installation {
                    install_id: found.install_id,
                    version: found.version,
                    shards: found.shards,
                }))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => {
                let found = database.store.installed().await?;
                Ok(found.map(|found| Installation {
                    install_id: found.install_id,
                    version: found.version,
                    shards: found.shards,
                }))
            }
        }
    }

    /// Creates the tables and the triggers. A second call changes nothing. `set_wal` switches SQLite's journal to WAL; the
    /// user must have agreed.
    pub async fn install(&self, wanted: Vec<CaptureTable>, set_wal: bool) -> Result<Changes, Failure> {
        // Looked at before the migration, whose own change of the schema is no drift.
        let drift = match self.installed().await? {
            Some(_) => Some(self.drift(wanted.clone()).await?),
            None => None,
        };
        match &self.kind {
            Kind::Sqlite(database) => database.migrate(set_wal).await?,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.migrate().await.map(drop)?,
        }
        if let Some(drift) = drift {
            self.owe_comparison(drift.tables()).await?;
        }
        match &self.kind {
            Kind::Sqlite(database) => database.install(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.install_capture(&wanted).await,
        }
    }

    /// Migrates the tables of an older version to this one; changes nothing otherwise.
    pub async fn migrate(&self) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.migrate(false).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.migrate().await.map(drop),
        }
    }

    /// Puts back the triggers that `drift` reports. The comparison of what they may have missed is owed first.
    pub async fn put_triggers_back(
        &self,
        source: &str,
        drift: &DriftReport,
        wanted: Vec<CaptureTable>,
    ) -> Result<(), Failure> {
        if drift.drifts.is_empty() {
            let is_news = drift.misfits.is_empty() && !drift.schema_unchanged;
            if let (Kind::Sqlite(database), true) = (&self.kind, is_news) {
                database.note_complete(wanted, drift.schema_version).await?;
            }
            return Ok(());
        }
        let tables = drift.tables();
        match tables.is_empty() {
            true => tracing::info!(source, "installing the triggers of this version and configuration"),
            false => {
                tracing::warn!(
                    source,
                    ?tables,
                    "a migration has dropped or changed triggers of Honeyflow: installing them again"
                );
            }
        }
        self.owe_comparison(tables).await?;
        self.reinstall(wanted).await
    }

    /// Restores the triggers that are missing or changed.
    async fn reinstall(&self, wanted: Vec<CaptureTable>) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.reinstall(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.reinstall_capture(&wanted).await.map(drop),
        }
    }

    /// Records that the documents of these tables must be compared with the rows, because their triggers were missing
    /// for a while. Call it before the triggers are restored, so that a crash in between does not lose the comparison.
    pub async fn owe_comparison(&self, tables: Vec<&str>) -> Result<(), Failure> {
        self.note_comparison(COMPARISON, tables, OWED).await
    }

    /// The tables whose documents must still be compared with the rows.
    pub async fn owed_comparisons(&self) -> Result<Vec<String>, Failure> {
        match self.admin(Admin::Tasks).await? {
            AdminReply::Tasks(tasks) => Ok(tasks
                .into_iter()
                .filter(|task| [COMPARISON, BEGUN_COMPARISON].contains(&&*task.noun) && task.state == OWED)
                .map(|task| task.name)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect()),
            other => Err(Failure::fatal(
                codes::MISPLACED_REPLY,
                format!("the store sent a reply that does not fit the request: {other:?}"),
            )),
        }
    }

    /// Call it before the rows are read: what becomes owed after it is owed again.
    pub async fn begin_comparison(&self, table: &str) -> Result<(), Failure> {
        self.note_comparison(BEGUN_COMPARISON, vec![table], OWED).await?;
        self.note_comparison(COMPARISON, vec![table], DONE).await
    }

    pub async fn comparison_done(&self, table: &str) -> Result<(), Failure> {
        self.note_comparison(BEGUN_COMPARISON, vec![table], DONE).await
    }

    async fn note_comparison(&self, noun: &str, tables: Vec<&str>, state: &str) -> Result<(), Failure> {
        for table in tables {
            let (noun, name, state) = (noun.to_owned(), table.to_owned(), state.to_owned());
            self.admin(Admin::PutTask { noun, name, state }).await?;
        }
        Ok(())
    }

    /// The number of waiting events that the build of a next generation has queued for one workflow.
    pub async fn reindex_events(&self, entity: &str, workflow: &str) -> Result<u64, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.reindex_events(entity, workflow).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => {
                let priority = honeyflow_event::PRIORITY_REINDEX;
                database.store.count_waiting(priority, entity, workflow).await
            }
        }
    }

    /// Removes all tables and triggers of Honeyflow. Fails while a node is running or events are left.
    pub async fn uninstall(&self, force: bool) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.uninstall(force).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.uninstall(force).await,
        }
    }

    /// The statements that remove everything that is installed.
    pub async fn uninstall_plan(&self) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.uninstall_plan().await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.uninstall_plan().await,
        }
    }

    /// Whether a node uses this database now, as far as the locks of its file show.
    pub fn is_in_use(&self) -> bool {
        match &self.kind {
            Kind::Sqlite(database) => database.is_in_use(),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => false,
        }
    }

    /// The durability of commits, for people.
    pub async fn durability(&self) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.durability().await.map(|durability| durability.to_string()),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok("ensured by the server; its settings were checked when it was opened".to_owned()),
        }
    }

    /// Fails if a power cut could undo commits: an acknowledgement must be durable.
    pub async fn refuse_if_not_durable(&self) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.refuse_if_not_durable().await,
            // Checked when the database was opened.
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// The statements of an installation.
    pub async fn plan(&self, wanted: &[CaptureTable]) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.plan(wanted),
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.plan(wanted).await,
        }
    }

    /// Fails if the triggers cannot be installed. Changes nothing. Without `strict`, as where the source is installed,
    /// tables that do not fit are left to the drift report.
    pub async fn try_capture(&self, wanted: Vec<CaptureTable>, strict: bool) -> Result<(), Failure> {
        if strict {
            self.plan(&wanted).await?;
        }
        match &self.kind {
            Kind::Sqlite(database) => database.refuse_other_encodings(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(()),
        }
    }

    pub async fn drift(&self, wanted: Vec<CaptureTable>) -> Result<DriftReport, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.drift(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.capture_drift(&wanted).await,
        }
    }

    /// The query plan of a statement in SQLite's format; empty for other databases.
    pub async fn query_plan(&self, statement: &Statement) -> Result<Vec<String>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.query_plan(statement).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(Vec::new()),
        }
    }

    /// The journal mode of SQLite: `wal`, `delete`, …
    pub async fn journal_mode(&self) -> Result<Option<String>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.journal_mode().await.map(Some),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(None),
        }
    }

    /// Proposes entities from the schema and the rows.
    pub async fn propose(&self) -> Result<crate::init::Proposal, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.propose().await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Err(Failure::reject(
                codes::NOT_YET_ON_POSTGRESQL,
                format!("`honeyflow init` does not read PostgreSQL yet; {}", super::POSTGRESQL_BY_HAND),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_store_sqlite::{Options, SqliteStore};

    use super::*;

    /// A TRUNCATE while a comparison reads the rows is compared again; so is a comparison that a crash has ended.
    #[tokio::test]
    async fn ob_13_a_comparison_that_becomes_owed_during_another_is_not_lost() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("shop.db");
        let store = SqliteStore::open(&Options { create: true, ..Options::new(&path, "shop") }).unwrap();
        store.migrate().await.unwrap();
        let catalogue = Catalogue::default();
        let kind = Kind::Sqlite(SqliteDatabase { path, store: store.clone(), catalogue: catalogue.clone() });
        let database = Database { store: Arc::new(store), catalogue, kind };
        database.owe_comparison(vec!["book"]).await.unwrap();
        database.begin_comparison("book").await.unwrap();
        assert_eq!(database.owed_comparisons().await.unwrap(), ["book"], "it has not ended");
        database.owe_comparison(vec!["book"]).await.unwrap();
        database.comparison_done("book").await.unwrap();
        assert_eq!(database.owed_comparisons().await.unwrap(), ["book"]);
        database.begin_comparison("book").await.unwrap();
        database.comparison_done("book").await.unwrap();
        assert_eq!(database.owed_comparisons().await.unwrap(), [""; 0]);
    }
}
