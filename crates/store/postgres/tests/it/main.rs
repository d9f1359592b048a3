//! Tests of the store on a real server. Every test has its own database.

mod capture;
mod conformance;
mod hive;
mod late;
mod load;
mod lock;
mod open;
mod privilege;
mod server_failure;
mod shard;
mod tidy;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use honeyflow_event::{EventId, Key};
use honeyflow_hive::{Fence, NodeId};
use honeyflow_runtime::Failure;
use honeyflow_store::{KeyColumn, KeyType, Op, Poll, PollReply, Reply, Request, Statement, Store, Write};
use honeyflow_store_postgres::{Options, PostgresStore};
use sqlx_core::{connection::Connection, executor::Executor, query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_postgres::PgConnection;

/// An application's database on the server of the test run. Creating and dropping one takes longer than most tests, so
/// a database is emptied and reused by the next test.
pub struct Shop {
    /// The address of the server's own database.
    server: String,
    /// The address of this database, directly at the server.
    pub url: String,
}

static IDLE: Mutex<Vec<Shop>> = Mutex::new(Vec::new());

impl Shop {
    /// Returns a database without Honeyflow's tables. None if there is no server; that has then been printed.
    pub async fn bare() -> Option<Shop> {
        let server = honeyflow_services::postgres()?.url;
        let idle = IDLE.lock().unwrap().pop();
        Some(match idle {
            Some(shop) => shop,
            None => Shop::on(&server).await,
        })
    }

    pub async fn on(server: &str) -> Shop {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut connection = PgConnection::connect(server).await.unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            drop_abandoned(&mut connection).await;
        }
        let name = format!("shop_{}_{count}", std::process::id());
        run(&mut connection, &format!("create database {name}")).await;
        let (address, _) = server.rsplit_once('/').expect("the address names a database");
        Shop { url: format!("{address}/{name}"), server: server.to_owned() }
    }

    pub fn name(&self) -> &str {
        self.url.rsplit_once('/').expect("the address names a database").1
    }

    /// Returns a database with Honeyflow's tables and those of the hive.
    pub async fn new(shards: u16) -> Option<(Shop, PostgresStore)> {
        let shop = Shop::bare().await?;
        let store = shop.install(shards).await;
        Some((shop, store))
    }

    pub async fn install(&self, shards: u16) -> PostgresStore {
        let store = PostgresStore::open(Options { shards, ..self.options() }).await.unwrap();
        store.migrate().await.unwrap();
        run(&mut self.connect().await, hive::TABLES).await;
        store
    }

    pub fn options(&self) -> Options {
        Options::new(&self.url, "shop").unwrap()
    }

    /// Connects as the application does.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Returns a valid fence of one shard.
    pub async fn fence(&self, shard: u16) -> Fence {
        let hive = hive::TestHive::open(&self.url).await;
        let node = NodeId(uuid::Uuid::new_v4());
        honeyflow_hive::member::take(&hive, node, &format!("shard/shop/{shard}")).await.unwrap().fence()
    }

    /// Returns the address of this database at another server address, such as that of a pooler.
    pub fn at(&self, server: &str) -> String {
        let (address, _) = server.rsplit_once('/').expect("the address names a database");
        format!("{address}/{}", self.name())
    }
}

/// Drops the databases of test runs that have ended.
async fn drop_abandoned(connection: &mut PgConnection) {
    let all = query_scalar("select datname::text from pg_database where datname like 'shop\\_%'");
    let all: Vec<String> = all.fetch_all(&mut *connection).await.unwrap();
    for name in all {
        let process = name.split('_').nth(1).unwrap_or_default();
        if !std::path::Path::new("/proc").join(process).exists() {
            let _ = connection.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await;
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let shop = Shop { server: std::mem::take(&mut self.server), url: std::mem::take(&mut self.url) };
        // Forget a database whose server belongs to one test, and one without an address.
        if shop.url.is_empty() || honeyflow_services::postgres().is_none_or(|service| service.url != shop.server) {
            return std::mem::forget(shop);
        }
        let emptied = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = shop.connect().await;
                let empty = format!(
                    "select pg_terminate_backend(pid) from pg_stat_activity
                       where datname = current_database() and pid <> pg_backend_pid();
                     drop schema public cascade; create schema public; grant all on schema public to public;
                     alter database {} reset all",
                    shop.name()
                );
                if connection.execute(AssertSqlSafe(empty)).await.is_ok() {
                    IDLE.lock().unwrap().push(shop);
                } else {
                    std::mem::forget(shop);
                }
            });
        });
        let _ = emptied.join();
    }
}

/// Executes statements as a person would type them.
pub async fn run(connection: &mut PgConnection, statements: &str) {
    connection
        .execute(AssertSqlSafe(statements.to_owned()))
        .await
        .unwrap_or_else(|error| panic!("{error}\n{statements}"));
}

pub async fn number(connection: &mut PgConnection, statement: &str) -> i64 {
    query_scalar(AssertSqlSafe(statement.to_owned())).fetch_one(connection).await.unwrap()
}

pub async fn poll(store: &PostgresStore, poll: Poll) -> PollReply {
    match store.call(Request::Poll(poll)).await.unwrap() {
        Reply::Polled(polled) => polled,
        other => panic!("{other:?}"),
    }
}

pub fn settle(fence: &Fence, ids: &[EventId]) -> Request {
    Request::Write(Write { fence: fence.clone(), ops: vec![Op::Settle { events: ids.to_vec(), runs: vec![] }] })
}

pub fn code(result: Result<Reply, Failure>) -> String {
    match result {
        Ok(reply) => format!("{reply:?}"),
        Err(failure) => failure.code.into_owned(),
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

pub fn keys(keys: &[&str]) -> Vec<Key> {
    keys.iter().map(|key| Key::from(*key)).collect()
}

pub fn shared<T>(value: T) -> Arc<T> {
    Arc::new(value)
}
