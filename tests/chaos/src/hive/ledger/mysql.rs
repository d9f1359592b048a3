//! The log as a table in MySQL or MariaDB, on a server that only the campaign uses. A write is a transaction that
//! begins with the fence.

use honeyflow_hive::{Fence, fence};
use sqlx_core::{
    connection::Connection, executor::Executor, query::query, raw_sql::raw_sql, row::Row, sql_str::AssertSqlSafe,
};
use sqlx_mysql::MySqlConnection;
use tokio::runtime::Runtime;

use super::{BeforeCommit, Entry, Ledger, runtime};

const TABLE: &str = "create table chaos_write (id bigint auto_increment primary key, hive varchar(191) not null, \
                     lease varchar(191) not null, epoch bigint not null, node varchar(191) not null, \
                     at_us bigint not null, key (hive, id)) engine = innodb";

/// Creates the table in the server's default database, once: only the campaign uses the server.
pub fn make(url: &str) -> Result<(), String> {
    runtime()?.block_on(run(url, TABLE))
}

async fn run(url: &str, statements: &str) -> Result<(), String> {
    let to_text = |error: sqlx_core::Error| error.to_string();
    let mut connection = MySqlConnection::connect(url).await.map_err(to_text)?;
    connection.execute(raw_sql(AssertSqlSafe(statements.to_owned()))).await.map_err(to_text)?;
    connection.close().await.map_err(to_text)
}

pub struct MysqlLedger {
    runtime: Runtime,
    connection: MySqlConnection,
    hive: String,
}

impl MysqlLedger {
    pub fn open(url: &str, hive: &str) -> Result<MysqlLedger, String> {
        let runtime = runtime()?;
        let connection = runtime.block_on(async {
            let mut connection = MySqlConnection::connect(url).await?;
            connection.execute(raw_sql("set session transaction isolation level read committed")).await?;
            // Only MariaDB knows this setting; MySQL has only a time limit for a whole session.
            let _ = connection.execute(raw_sql("set session idle_transaction_timeout = 1")).await;
            Ok(connection)
        });
        let connection = connection.map_err(|error: sqlx_core::Error| format!("open the log: {error}"))?;
        Ok(MysqlLedger { runtime, connection, hive: hive.to_owned() })
    }
}

async fn transaction(
    connection: &mut MySqlConnection,
    hive: &str,
    entry: &Entry,
    fence: Option<&Fence>,
    before_commit: Option<BeforeCommit<'_>>,
) -> Result<bool, sqlx_core::Error> {
    connection.execute(raw_sql("begin")).await?;
    if let Some(fence) = fence {
        let fence = fence::mysql(hive, [fence], "1");
        if connection.fetch_optional(raw_sql(AssertSqlSafe(fence))).await?.is_none() {
            connection.execute(raw_sql("rollback")).await?;
            return Ok(false);
        }
    }
    let insert = query("insert into chaos_write(hive, lease, epoch, node, at_us) values (?, ?, ?, ?, ?)").bind(hive);
    let insert = insert.bind(&entry.lease).bind(entry.epoch.cast_signed()).bind(&entry.node);
    insert.bind(entry.at_us.cast_signed()).execute(&mut *connection).await?;
    if let Some(before_commit) = before_commit {
        before_commit();
    }
    connection.execute(raw_sql("commit")).await?;
    Ok(true)
}

impl Ledger for MysqlLedger {
    fn append(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> Result<bool, String> {
        let MysqlLedger { runtime, connection, hive } = self;
        runtime.block_on(transaction(connection, hive, entry, fence, before_commit)).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Vec<Entry>, String> {
        let MysqlLedger { runtime, connection, hive } = self;
        let select = query("select lease, epoch, node, at_us from chaos_write where hive = ? order by id").bind(&*hive);
        let rows = runtime.block_on(connection.fetch_all(select)).map_err(|error| format!("read the log: {error}"))?;
        let entry = |row: &sqlx_mysql::MySqlRow| {
            Ok(Entry {
                lease: row.try_get(0)?,
                epoch: row.try_get::<i64, _>(1)?.cast_unsigned(),
                node: row.try_get(2)?,
                at_us: row.try_get::<i64, _>(3)?.cast_unsigned(),
            })
        };
        rows.iter().map(entry).collect::<Result<_, sqlx_core::Error>>().map_err(|error| error.to_string())
    }
}
