//! The log as a table in PostgreSQL, on a server that only the campaign uses. Normally a write is one statement that
//! carries its fence; a write that is to be stopped in its middle is a transaction that begins with the fence. No write
//! depends on the state of a session, because a pooler may stand in between.

use std::str::FromStr;

use honeyflow_hive::{Fence, fence};
use sqlx_core::{
    connection::{ConnectOptions, Connection},
    executor::Executor,
    raw_sql::raw_sql,
    row::Row,
    sql_str::AssertSqlSafe,
};
use sqlx_postgres::{PgConnectOptions, PgConnection};
use tokio::runtime::Runtime;

use super::{BeforeCommit, Entry, Ledger, runtime};

const TABLE: &str = "create table chaos_write (id bigserial primary key, hive text not null, lease text not null, \
                     epoch bigint not null, node text not null, at_us bigint not null); \
                     create index on chaos_write(hive, id)";
/// A stopped transaction must not block the other nodes for ever.
const BEGIN: &str = "begin isolation level read committed; set local idle_in_transaction_session_timeout = '1s'";
const COLUMNS: &str = "insert into chaos_write(hive, lease, epoch, node, at_us)";

/// Creates the table in the server's default database, once: only the campaign uses the server.
pub fn make(url: &str) -> Result<(), String> {
    runtime()?.block_on(run(url, TABLE))
}

async fn run(url: &str, statements: &str) -> Result<(), String> {
    let to_text = |error: sqlx_core::Error| error.to_string();
    let mut connection = connect(url).await.map_err(to_text)?;
    connection.execute(raw_sql(AssertSqlSafe(statements.to_owned()))).await.map_err(to_text)?;
    connection.close().await.map_err(to_text)
}

async fn connect(url: &str) -> Result<PgConnection, sqlx_core::Error> {
    PgConnectOptions::from_str(url)?.extra_float_digits(None).statement_cache_capacity(0).connect().await
}

pub struct PostgresLedger {
    runtime: Runtime,
    connection: PgConnection,
    hive: String,
}

impl PostgresLedger {
    pub fn open(url: &str, hive: &str) -> Result<PostgresLedger, String> {
        let runtime = runtime()?;
        let connection = runtime.block_on(connect(url)).map_err(|error| format!("open the log: {error}"))?;
        Ok(PostgresLedger { runtime, connection, hive: hive.to_owned() })
    }
}

fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Inserts the entry with one message and one round trip.
async fn insert(
    connection: &mut PgConnection,
    hive: &str,
    entry: &Entry,
    from: &str,
) -> Result<bool, sqlx_core::Error> {
    let Entry { lease, epoch, node, at_us } = entry;
    let (hive, lease, node) = (text(hive), text(lease), text(node));
    let insert = format!("{COLUMNS} select {hive}, {lease}, {epoch}, {node}, {at_us}{from}");
    Ok(connection.execute(raw_sql(AssertSqlSafe(insert))).await?.rows_affected() == 1)
}

async fn transaction(
    connection: &mut PgConnection,
    hive: &str,
    entry: &Entry,
    fence: Option<&Fence>,
    before_commit: BeforeCommit<'_>,
) -> Result<bool, sqlx_core::Error> {
    connection.execute(raw_sql(BEGIN)).await?;
    if let Some(fence) = fence {
        let fence = fence::postgres(hive, [fence], "name");
        if connection.fetch_optional(raw_sql(AssertSqlSafe(fence))).await?.is_none() {
            connection.execute(raw_sql("rollback")).await?;
            return Ok(false);
        }
    }
    insert(connection, hive, entry, "").await?;
    before_commit();
    connection.execute(raw_sql("commit")).await?;
    Ok(true)
}

impl Ledger for PostgresLedger {
    fn append(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> Result<bool, String> {
        let PostgresLedger { runtime, connection, hive } = self;
        let accepted = runtime.block_on(async {
            match (before_commit, fence) {
                (Some(before_commit), fence) => transaction(connection, hive, entry, fence, before_commit).await,
                (None, Some(fence)) => {
                    let from = format!(" from ({}) fence", fence::postgres(hive, [fence], "name"));
                    insert(connection, hive, entry, &from).await
                }
                (None, None) => insert(connection, hive, entry, "").await,
            }
        });
        accepted.map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Vec<Entry>, String> {
        let PostgresLedger { runtime, connection, hive } = self;
        let select =
            format!("select lease, epoch, node, at_us from chaos_write where hive = {} order by id", text(hive));
        let select = raw_sql(AssertSqlSafe(select));
        let rows = runtime.block_on(connection.fetch_all(select)).map_err(|error| format!("read the log: {error}"))?;
        let entry = |row: &sqlx_postgres::PgRow| {
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
