//! PostgreSQL with its default settings, on a server that only the bench uses: commits wait for the disk.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use honeyflow_hive::{Term, contract::HIVE, fence};
use honeyflow_hive_postgres::{Options, PostgresHive};
use honeyflow_services::Throwaway;
use sqlx_core::{connection::Connection, executor::Executor, raw_sql::raw_sql, sql_str::AssertSqlSafe};
use sqlx_postgres::PgConnection;
use tokio::runtime::Runtime;

use super::{Bench, ROWS};
use crate::Result;

const TABLE: &str = "create table bench_row (id bigint primary key, payload text not null)";

struct Postgres {
    hive: PostgresHive,
    term: Term,
    connection: PgConnection,
    next: i64,
    runtime: Runtime,
    _server: Throwaway,
}

pub fn open() -> Result<Option<Box<dyn Bench>>> {
    let Some(server) = honeyflow_services::throwaway_postgres() else { return Ok(None) };
    let runtime = crate::runtime()?;
    let (hive, term, connection) = runtime.block_on(async {
        let hive = PostgresHive::open(&Options::new(server.url()))?;
        let term = super::take_lease(&hive).await?;
        let mut connection = PgConnection::connect(server.url()).await?;
        connection.execute(raw_sql(TABLE)).await?;
        Ok::<_, crate::Error>((hive, term, connection))
    })?;
    Ok(Some(Box::new(Postgres { hive, term, connection, next: 1, runtime, _server: server })))
}

impl Postgres {
    /// Inserts rows and returns their ids.
    async fn fill(&mut self) -> Result<String> {
        let first = self.next;
        self.next += ROWS;
        let last = self.next - 1;
        let fill = format!("insert into bench_row select n, repeat('x', 200) from generate_series({first}, {last}) n");
        self.connection.execute(raw_sql(AssertSqlSafe(fill))).await?;
        Ok((first..=last).fold(String::new(), |mut ids, id| {
            let _ = write!(ids, "{}{id}", if ids.is_empty() { "" } else { ", " });
            ids
        }))
    }

    fn fence(&self) -> String {
        fence::postgres(HIVE, [&self.term.fence()], "name")
    }
}

impl Bench for Postgres {
    fn delete(&mut self, fenced: bool) -> Result<Duration> {
        let runtime = self.runtime.handle().clone();
        runtime.block_on(async {
            let ids = self.fill().await?;
            let using = if fenced { format!("using ({}) fence", self.fence()) } else { String::new() };
            let delete = format!("delete from bench_row r {using} where r.id in ({ids})");
            let began = Instant::now();
            let done = self.connection.execute(raw_sql(AssertSqlSafe(delete))).await?;
            let took = began.elapsed();
            if done.rows_affected() != ROWS.cast_unsigned() {
                return Err(format!("{} rows were deleted instead of {ROWS}", done.rows_affected()).into());
            }
            Ok(took)
        })
    }

    fn beats(&mut self, fenced: bool, count: u32) -> Result<Duration> {
        let runtime = self.runtime.handle().clone();
        runtime.block_on(async {
            let ids = self.fill().await?;
            if fenced {
                let begin = format!("begin; {}; delete from bench_row where id in ({ids})", self.fence());
                self.connection.execute(raw_sql(AssertSqlSafe(begin))).await?;
            }
            let took = super::beat(&self.hive, self.term.holder(), count).await?;
            if fenced {
                self.connection.execute(raw_sql("rollback")).await?;
            }
            Ok(took)
        })
    }

    fn peer_of_beats(&self) -> &'static str {
        "a beat, no transaction open"
    }
}
