//! The hive on a real server: directly, and through a pooler. All tests share a database; each test has its own hives.

mod conformance;
mod cost;
mod defects;
mod fence;
mod fleet;
mod lineage;
mod member;
mod opening;
mod round_trips;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_hive::HiveStore;
use honeyflow_hive_postgres::{Options, PostgresHive};
use sqlx_core::{connection::Connection, executor::Executor, query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_postgres::PgConnection;
use tokio::sync::OnceCell;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The database of this test run on the shared server, and a name that no other test has.
pub struct TestDatabase {
    /// The address of the server itself.
    pub url: String,
    /// The address that the nodes use: the server, or a pooler in front of it.
    pub way: String,
    name: String,
}

impl TestDatabase {
    pub async fn straight() -> Option<TestDatabase> {
        static URL: OnceCell<String> = OnceCell::const_new();
        let server = honeyflow_services::postgres()?.url;
        let url = URL.get_or_init(async || database(&server, "all").await).await;
        Some(TestDatabase::at(url, url))
    }

    pub async fn pooled() -> Option<TestDatabase> {
        let pooler = honeyflow_services::pgbouncer()?.url;
        let TestDatabase { url, .. } = TestDatabase::straight().await?;
        Some(TestDatabase::at(&url, &at_server(&pooler, &url)))
    }

    /// A separate, empty database.
    pub async fn bare() -> Option<TestDatabase> {
        let server = honeyflow_services::postgres()?.url;
        let url = database(&server, &COUNT.fetch_add(1, Ordering::Relaxed).to_string()).await;
        Some(TestDatabase::at(&url, &url))
    }

    pub fn at(url: &str, way: &str) -> TestDatabase {
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        TestDatabase { url: url.to_owned(), way: way.to_owned(), name }
    }

    pub fn hive(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    pub fn options(&self) -> Options {
        // On a busy machine a server may be slow.
        Options { hive: self.hive("it").into(), timeout: Duration::from_secs(60), ..Options::new(&*self.way) }
    }

    pub fn open(&self) -> Arc<dyn HiveStore> {
        Arc::new(PostgresHive::open(&self.options()).unwrap())
    }

    /// Opens a connection as an administrator does.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub async fn run(&self, statements: &str) {
        run(&mut self.connect().await, statements).await;
    }

    pub async fn number(&self, statement: &str) -> i64 {
        number(&mut self.connect().await, statement).await
    }

    pub fn database(&self) -> &str {
        self.url.rsplit_once('/').expect("the address names a database").1
    }
}

pub async fn run(connection: &mut PgConnection, statements: &str) {
    let done = connection.execute(AssertSqlSafe(statements.to_owned())).await;
    done.unwrap_or_else(|error| panic!("{error}\n{statements}"));
}

pub async fn number(connection: &mut PgConnection, statement: &str) -> i64 {
    query_scalar(AssertSqlSafe(statement.to_owned())).fetch_one(connection).await.unwrap()
}

/// The same database at the address of another server.
pub fn at_server(server: &str, url: &str) -> String {
    let (address, _) = server.rsplit_once('/').expect("the address names a database");
    let (_, database) = url.rsplit_once('/').expect("the address names a database");
    format!("{address}/{database}")
}

/// Creates a database, and drops those of finished test runs.
pub async fn database(server: &str, label: &str) -> String {
    let mut connection = PgConnection::connect(server).await.unwrap();
    let all = query_scalar("select datname::text from pg_database where datname like 'hive\\_%'");
    let all: Vec<String> = all.fetch_all(&mut connection).await.unwrap();
    for name in all {
        let process = name.split('_').nth(1).unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let _ = connection.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await;
        }
    }
    let name = format!("hive_{}_{label}", std::process::id());
    run(&mut connection, &format!("create database {name}")).await;
    at_server(server, &format!("/{name}"))
}
