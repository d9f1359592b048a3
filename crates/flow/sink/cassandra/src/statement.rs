//! The statements of a sink, prepared once. Names are quoted, so that the cluster takes them unchanged.

use honeyflow_cassandra::{Session, Statement, session};

use crate::{DELETED, VERSION, config::Options};

pub struct Statements {
    /// Selects the stamp of a row. Binds the key.
    pub version: Statement,
    /// Selects all columns of a row but the key's, then the stamp. Binds the key.
    pub row: Statement,
    /// Selects the key, the columns and the stamp of every row.
    pub list: Statement,
    /// Writes a row. Binds the key, the columns, the stamp and the timestamp.
    pub put: Statement,
    /// Deletes a row. Binds the timestamp and the key.
    pub delete: Statement,
    pub count: Statement,
    /// Selects the stamp of a delete. Binds the table's name and the key.
    pub deleted: Statement,
    /// Stores the stamp of a delete. Binds the table's name, the key, the stamp, the timestamp and the seconds to live.
    pub remember: Statement,
}

pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// The statement that creates the table of deletes. The first node that starts executes it.
pub fn create_delete_table(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {}.{DELETED} (table_name text, entity_key text, version bigint, \
         PRIMARY KEY ((table_name, entity_key)))",
        quoted(keyspace)
    )
}

impl Statements {
    /// Prepares the statements. `key` and `columns` are names, in the order in which their values are bound.
    pub async fn prepare(
        session: &Session,
        options: &Options,
        key: &[String],
        columns: &[String],
    ) -> Result<Statements, session::Error> {
        let table = format!("{}.{}", quoted(&options.keyspace), quoted(&options.table));
        let deleted = format!("{}.{DELETED}", quoted(&options.keyspace));
        let by_key = key.iter().map(|name| format!("{} = ?", quoted(name))).collect::<Vec<_>>().join(" AND ");
        let stamped: Vec<String> = columns.iter().cloned().chain([VERSION.to_owned()]).collect();
        let all: Vec<String> = key.iter().chain(&stamped).cloned().collect();
        let marks = vec!["?"; all.len()].join(", ");
        let (stamped, all) = (list(&stamped), list(&all));
        let prepare = async |text: String| session.prepare(&text).await;
        Ok(Statements {
            version: prepare(format!("SELECT {VERSION} FROM {table} WHERE {by_key}")).await?,
            row: prepare(format!("SELECT {stamped} FROM {table} WHERE {by_key}")).await?,
            list: prepare(format!("SELECT {all} FROM {table}")).await?,
            put: prepare(format!("INSERT INTO {table} ({all}) VALUES ({marks}) USING TIMESTAMP ?")).await?,
            delete: prepare(format!("DELETE FROM {table} USING TIMESTAMP ? WHERE {by_key}")).await?,
            count: prepare(format!("SELECT count(*) FROM {table}")).await?,
            deleted: prepare(format!("SELECT version FROM {deleted} WHERE table_name = ? AND entity_key = ?")).await?,
            remember: prepare(format!(
                "INSERT INTO {deleted} (table_name, entity_key, version) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?"
            ))
            .await?,
        })
    }
}
