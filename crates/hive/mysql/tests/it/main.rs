//! The hive on a real server. Every test has its own database.

mod conformance;
mod defects;
mod failures;
mod fleet;
mod members;
mod opening;
mod privilege;
mod proxy;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_hive::{
    NodeId, Request,
    contract::{HIVE, State},
};
use honeyflow_hive_mysql::{MysqlHive, Options, schema};
use sqlx_core::{connection::Connection, executor::Executor, query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_mysql::MySqlConnection;
use uuid::Uuid;

/// A database on a server of the test run. Creating one with its tables takes longer than most tests, so the next test
/// gets it again, emptied.
pub struct TestDatabase {
    /// The address of the server's own database.
    server: String,
    pub url: String,
}

static IDLE: Mutex<Vec<TestDatabase>> = Mutex::new(Vec::new());

impl TestDatabase {
    /// Returns `None` if there is no server; the reason has been printed then.
    pub async fn fresh() -> Option<TestDatabase> {
        Some(TestDatabase::on(&server()?).await)
    }

    /// Returns a database on this server. It may already have tables, which are empty.
    pub async fn on(server: &str) -> TestDatabase {
        let idle = {
            let mut idle = IDLE.lock().unwrap();
            let known = idle.iter().position(|place| place.server == server);
            known.map(|known| idle.swap_remove(known))
        };
        match idle {
            Some(place) => place,
            None => TestDatabase::bare(server).await,
        }
    }

    /// Creates a database without tables.
    pub async fn bare(server: &str) -> TestDatabase {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut connection = MySqlConnection::connect(server).await.unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            drop_abandoned(&mut connection).await;
        }
        let name = format!("hive_{}_{count}", std::process::id());
        run(&mut connection, &format!("create database {name}")).await;
        TestDatabase { url: at(server, &name), server: server.to_owned() }
    }

    pub fn name(&self) -> &str {
        self.url.rsplit_once('/').expect("the address names a database").1
    }

    pub async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url).await.unwrap()
    }

    /// The timeout is long, so that a busy machine does not fail the tests.
    pub fn options(&self, hive: &str) -> Options {
        Options { hive: hive.into(), timeout: Duration::from_secs(60), ..Options::new(&*self.url) }
    }

    pub fn hive(&self) -> Arc<MysqlHive> {
        Arc::new(MysqlHive::open(&self.options(HIVE)).unwrap())
    }

    pub async fn change(&self, statements: &str) {
        run(&mut self.connect().await, statements).await;
    }

    pub async fn number(&self, statement: &str) -> i64 {
        query_scalar(AssertSqlSafe(statement.to_owned())).fetch_one(&mut self.connect().await).await.unwrap()
    }

    pub async fn has_tables(&self) -> bool {
        let name = self.name();
        let made = "select count(*) from information_schema.tables where table_name = 'hive_view' and table_schema";
        self.number(&format!("{made} = '{name}'")).await > 0
    }

    /// Empties the tables for the next test.
    pub async fn empty(&self) {
        if self.has_tables().await {
            for table in schema::TABLES.iter().filter(|table| **table != "hive_meta") {
                self.change(&format!("delete from {table}")).await;
            }
        }
    }
}

/// The address of a MariaDB, or of the MySQL that this variable names, as MySQL cannot be installed by the tests.
pub fn server() -> Option<String> {
    match std::env::var("HONEYFLOW_TEST_MYSQL_URL") {
        Ok(url) if !url.is_empty() => Some(url),
        _ => Some(honeyflow_services::mariadb()?.url),
    }
}

/// The address of another database on the same server.
pub fn at(server: &str, database: &str) -> String {
    let (address, _) = server.rsplit_once('/').expect("the address names a database");
    format!("{address}/{database}")
}

/// Drops the databases of finished test runs.
async fn drop_abandoned(connection: &mut MySqlConnection) {
    let all = query_scalar(
        "select cast(schema_name as char) from information_schema.schemata where schema_name like 'hive\\_%'",
    );
    let all: Vec<String> = all.fetch_all(&mut *connection).await.unwrap();
    for name in all {
        let process = name.split('_').nth(1).unwrap_or_default();
        if !std::path::Path::new("/proc").join(process).exists() {
            let _ = connection.execute(AssertSqlSafe(format!("drop database if exists {name}"))).await;
        }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let place = TestDatabase { server: std::mem::take(&mut self.server), url: std::mem::take(&mut self.url) };
        let shared = server().is_some_and(|server| server == place.server);
        // Do not reuse it if it was already taken apart, if its server belonged to one test, or if the test failed.
        if place.url.is_empty() || !shared || std::thread::panicking() {
            return std::mem::forget(place);
        }
        let emptied = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                place.empty().await;
                IDLE.lock().unwrap().push(place);
            });
        });
        let _ = emptied.join();
    }
}

/// Runs statements as an administrator would type them.
pub async fn run(connection: &mut MySqlConnection, statements: &str) {
    connection
        .execute(AssertSqlSafe(statements.to_owned()))
        .await
        .unwrap_or_else(|error| panic!("{error}\n{statements}"));
}

pub fn node() -> NodeId {
    NodeId(Uuid::new_v4())
}

pub fn join(node: NodeId) -> Request {
    Request::Join { node, name: "reader".into(), heartbeat_ms: 2000, ttl_ms: 60_000, meta: "{}".to_owned() }
}

pub fn beat(node: NodeId, read_only: bool) -> Request {
    Request::Beat { node, read_only, state: State { ready: true, eligible: true, ..State::default() } }
}
