//! A source's database: its store, and what it says about itself. What differs from one kind to the other lies beneath.

#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::{path::Path, sync::Arc};

use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply, CaptureTable, Catalogue, KeyColumn, Reply, Request, Statement, Store, catalogue::Table,
    misplaced,
};
use honeyflow_store_sqlite::capture::{Changes, DriftReport};
use uuid::Uuid;

#[cfg(feature = "postgres")]
use postgres::PostgresDatabase;
use sqlite::SqliteDatabase;

use crate::config::{SourceConfig, Url};

/// The task of comparing the documents that read a table, and its state until that is done.
const COMPARISON: &str = "compare";
const OWED: &str = "owed";

/// What `honeyflow_meta` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installed {
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
    /// Relative paths are looked for in `folder`.
    pub async fn open(source: &SourceConfig, folder: &Path) -> Result<Database, Failure> {
        Database::at(&source.url, &source.name, source.shards, folder).await
    }

    /// `shards`: how many an installation makes, where there may be several.
    pub async fn at(url: &Url, name: &str, shards: u16, folder: &Path) -> Result<Database, Failure> {
        let url = url.resolve().map_err(|unresolved| {
            Failure::fatal("unresolved", format!("{name}: {unresolved}; {}", unresolved.help()))
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

    /// For people: nothing secret.
    pub fn place(&self) -> String {
        match &self.kind {
            Kind::Sqlite(database) => database.path.display().to_string(),
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.place.clone(),
        }
    }

    /// None where it is a server's.
    pub fn file(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Sqlite(database) => Some(&database.path),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => None,
        }
    }

    /// Whether triggers write its events; else whoever changes rows writes them.
    pub fn captures(&self) -> bool {
        matches!(self.kind, Kind::Sqlite(_))
    }

    /// The columns as parts of a key, with the types that their rows really have.
    pub async fn key(&self, table: &Table, columns: &[String]) -> Result<Vec<KeyColumn>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.key(table, columns).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => columns.iter().map(|column| postgres::key(table, column)).collect(),
        }
    }

    /// Checks a statement without running it; the columns of its result.
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
            other => Err(misplaced(&other)),
        }
    }

    pub async fn installed(&self) -> Result<Option<Installed>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => {
                let found = database.store.installed().await?;
                Ok(found.map(|found| Installed {
                    install_id: found.install_id,
                    version: found.version,
                    shards: found.shards,
                }))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => {
                let found = database.store.installed().await?;
                Ok(found.map(|found| Installed {
                    install_id: found.install_id,
                    version: found.version,
                    shards: found.shards,
                }))
            }
        }
    }

    /// Makes our tables and, where there is capture, the triggers; a second time, nothing changes. SQLite's journal is
    /// switched to WAL where `set_wal` says that the owner agrees.
    pub async fn install(&self, wanted: Vec<CaptureTable>, set_wal: bool) -> Result<Changes, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => {
                let installed_before = self.installed().await?.is_some();
                database.migrate(set_wal).await?;
                if installed_before {
                    self.owe_comparison(self.drift(wanted.clone()).await?.tables()).await?;
                }
                database.install(wanted).await
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.migrate().await.map(|_| Changes::default()),
        }
    }

    /// Puts back the triggers that are missing or changed.
    pub async fn reinstall(&self, wanted: Vec<CaptureTable>) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.reinstall(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// These tables went without their triggers for a while: what was missed is found by comparing. To be called before
    /// the triggers are put back, so that it is owed also if that is the last thing we do.
    pub async fn owe_comparison(&self, tables: Vec<&str>) -> Result<(), Failure> {
        self.note_comparison(tables, OWED).await
    }

    /// Tables whose documents are to be compared with their rows.
    pub async fn owed_comparisons(&self) -> Result<Vec<String>, Failure> {
        match self.admin(Admin::Tasks).await? {
            AdminReply::Tasks(tasks) => Ok(tasks
                .into_iter()
                .filter(|task| task.noun == COMPARISON && task.state == OWED)
                .map(|task| task.name)
                .collect()),
            other => Err(Failure::fatal("misplaced-reply", format!("the store answered another question: {other:?}"))),
        }
    }

    pub async fn comparison_done(&self, table: &str) -> Result<(), Failure> {
        self.note_comparison(vec![table], "done").await
    }

    async fn note_comparison(&self, tables: Vec<&str>, state: &str) -> Result<(), Failure> {
        for table in tables {
            let (noun, name, state) = (COMPARISON.to_owned(), table.to_owned(), state.to_owned());
            self.admin(Admin::PutTask { noun, name, state }).await?;
        }
        Ok(())
    }

    /// Events that a build of the next generation has queued for a workflow alone, and that are still there.
    pub async fn reindex_events(&self, entity: &str, workflow: &str) -> Result<u64, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.reindex_events(entity, workflow).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => {
                let priority = honeyflow_event::PRIORITY_REINDEX;
                database.store.waiting_of(priority, entity, workflow).await
            }
        }
    }

    /// Everything of ours; refused while a node lives here, or events are left.
    pub async fn uninstall(&self, force: bool) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.uninstall(force).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Err(Failure::reject(
                "by-hand",
                "on a server the tables are removed by hand, once every node is stopped: `honeyflow source uninstall \
                 --print` shows the statements",
            )),
        }
    }

    /// The statements by which an uninstallation takes away what is there.
    pub async fn uninstall_plan(&self) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.uninstall_plan().await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => database.store.uninstall_plan().await,
        }
    }

    /// Whether a node works on this database now, as far as its file's locks tell.
    pub fn is_lived_in(&self) -> bool {
        match &self.kind {
            Kind::Sqlite(database) => database.is_lived_in(),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => false,
        }
    }

    /// How commits are kept, for people.
    pub async fn durability(&self) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.durability().await.map(|durability| durability.to_string()),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok("kept by the server, which was asked when it was opened".to_owned()),
        }
    }

    /// An acknowledgement that a power cut could undo is none.
    pub async fn refuse_if_not_durable(&self) -> Result<(), Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.refuse_if_not_durable().await,
            // Judged when it was opened.
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// The statements of an installation.
    pub fn plan(&self, wanted: &[CaptureTable]) -> Result<String, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.plan(wanted),
            #[cfg(feature = "postgres")]
            Kind::Postgres(database) => Ok(database.plan()),
        }
    }

    pub async fn drift(&self, wanted: Vec<CaptureTable>) -> Result<DriftReport, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.drift(wanted).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(DriftReport::default()),
        }
    }

    /// How the database would go about the statement, line by line, as SQLite says it; nothing from others.
    pub async fn query_plan(&self, statement: &Statement) -> Result<Vec<String>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.query_plan(statement).await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(Vec::new()),
        }
    }

    /// SQLite's: `wal`, `delete`, …
    pub async fn journal_mode(&self) -> Result<Option<String>, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.journal_mode().await.map(Some),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => Ok(None),
        }
    }

    /// With a look at the rows.
    pub async fn propose(&self) -> Result<crate::init::Proposal, Failure> {
        match &self.kind {
            Kind::Sqlite(database) => database.propose().await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => {
                Err(Failure::reject("not-yet-on-postgresql", "init reads SQLite only; write [entity.NAME] by hand"))
            }
        }
    }
}
