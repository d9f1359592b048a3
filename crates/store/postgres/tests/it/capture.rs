//! Capture by triggers: which outbox rows ordinary statements create, and what migrations do to the triggers.

mod change;
mod drift;
mod install;
mod keys;
mod rows;

use honeyflow_store::{CaptureTable, Columns, KeyColumn, KeyType};
use honeyflow_store_postgres::PostgresStore;
use sqlx_core::{query_as::query_as, query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_postgres::PgConnection;

use crate::{Shop, column, run};

/// A database with captured tables, and a connection of the application.
pub struct Captured {
    pub shop: Shop,
    pub store: PostgresStore,
    pub application: PgConnection,
}

impl Captured {
    /// `setup` creates the application's tables. None if there is no server.
    pub async fn new(setup: &str, wanted: &[CaptureTable]) -> Option<Captured> {
        let (shop, store) = Shop::new(8).await?;
        let mut application = shop.connect().await;
        run(&mut application, setup).await;
        store.install_capture(wanted).await.unwrap();
        Some(Captured { shop, store, application })
    }

    /// Executes statements of the application.
    pub async fn run(&mut self, statements: &str) {
        run(&mut self.application, statements).await;
    }

    /// Removes and returns the events since the last call, as `table key [payload]`, ordered by id.
    pub async fn events(&mut self) -> Vec<String> {
        self.texts("concat_ws(' ', entity, entity_key, payload)").await
    }

    /// Executes statements and returns the events that they created.
    pub async fn made_by(&mut self, statements: &str) -> Vec<String> {
        assert_eq!(self.events().await, [""; 0], "events were left over");
        self.run(statements).await;
        self.events().await
    }

    /// Executes statements and returns what their events say about the change: `key change columns`.
    pub async fn changes_by(&mut self, statements: &str) -> Vec<String> {
        self.events().await;
        self.run(statements).await;
        self.texts("concat_ws(' ', entity_key, coalesce(change, '?'), columns)").await
    }

    async fn texts(&mut self, expression: &str) -> Vec<String> {
        let text = format!("delete from honeyflow_outbox returning id, {expression}");
        let mut rows: Vec<(i64, String)> =
            query_as(AssertSqlSafe(text)).fetch_all(&mut self.application).await.unwrap();
        rows.sort();
        rows.into_iter().map(|(_, text)| text).collect()
    }

    /// The tables whose documents must be compared with their rows.
    pub async fn owed(&mut self) -> Vec<String> {
        let text = "select name from honeyflow_task where noun = 'compare' and state = 'owed' order by name";
        query_scalar(text).fetch_all(&mut self.application).await.unwrap()
    }

    /// What the statement's error says.
    pub async fn refused(&mut self, statements: &str) -> String {
        use sqlx_core::executor::Executor;
        let error = self.application.execute(AssertSqlSafe(statements.to_owned())).await;
        error.expect_err(statements).to_string()
    }
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Returns a captured table with the integer key `id` and the columns `watched`.
pub fn table(name: &str, watched: &[&str]) -> CaptureTable {
    keyed(name, vec![column("id", KeyType::Integer)], watched)
}

pub fn keyed(name: &str, key: Vec<KeyColumn>, watched: &[&str]) -> CaptureTable {
    let (carried, reported) = (Vec::new(), Vec::new());
    let watched = Columns::Some(names(watched));
    CaptureTable { table: name.to_owned(), key, watched, carried, reported, priority: 4 }
}

pub fn reporting(capture: CaptureTable, reported: &[&str]) -> CaptureTable {
    CaptureTable { reported: names(reported), ..capture }
}

pub fn carrying(capture: CaptureTable, carried: &[&str]) -> CaptureTable {
    CaptureTable { carried: names(carried), ..capture }
}
