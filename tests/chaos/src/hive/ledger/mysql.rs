//! A table on a server of the campaign's own, on MySQL or MariaDB. A write is a transaction that begins with the fence.

use honeyflow_hive::{Fence, fence};
use sqlx_core::{
    connection::Connection, executor::Executor, query::query, raw_sql::raw_sql, row::Row, sql_str::AssertSqlSafe,
};
use sqlx_mysql::MySqlConnection;
use tokio::runtime::Runtime;

use super::{Entry, Inside, Ledger, runtime};

const TABLE: &str = "create table chaos_write (id bigint auto_increment primary key, hive varchar(191) not null, \
                     lease varchar(191) not null, epoch bigint not null, node varchar(191) not null, \
                     at_us bigint not null, key (hive, id)) engine = innodb";

/// Once, in the server's own database: the server is the campaign's.
pub fn make(url: &str) -> Result<(), String> {
    runtime()?.block_on(run(url, TABLE))
}

async fn run(url: &str, statements: &str) -> Result<(), String> {
    let said = |error: sqlx_core::Error| error.to_string();
    let mut connection = MySqlConnection::connect(url).await.map_err(said)?;
    connection.execute(raw_sql(AssertSqlSafe(statements.to_owned()))).await.map_err(said)?;
    connection.close().await.map_err(said)
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
            // MariaDB; MySQL has only the time limit of a whole session.
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
    inside: Option<Inside<'_>>,
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
    if let Some(inside) = inside {
        inside();
    }
    connection.execute(raw_sql("commit")).await?;
    Ok(true)
}

impl Ledger for MysqlLedger {
    fn append(&mut self, entry: &Entry, fence: Option<&Fence>, inside: Option<Inside<'_>>) -> Result<bool, String> {
        let MysqlLedger { runtime, connection, hive } = self;
        runtime.block_on(transaction(connection, hive, entry, fence, inside)).map_err(|error| error.to_string())
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
