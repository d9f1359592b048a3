//! A source's database on a PostgreSQL server. Nothing captures changes there: whoever changes rows writes the event in
//! the same transaction, which is one plain INSERT.

use honeyflow_runtime::Failure;
use honeyflow_store::{Catalogue, KeyColumn, KeyType, catalogue::Table};
use honeyflow_store_postgres::{Options, PostgresStore, grants, schema};

#[derive(Clone)]
pub struct PostgresDatabase {
    pub store: PostgresStore,
    /// Server and database; nothing secret.
    pub place: String,
    shards: u16,
}

impl PostgresDatabase {
    pub async fn at(url: &str, name: &str, shards: u16) -> Result<PostgresDatabase, Failure> {
        let said = |failure: Failure| Failure { message: format!("{name}: {}", failure.message), ..failure };
        let options = Options { shards, ..Options::new(url, name).map_err(said)? };
        let store = PostgresStore::open(options).await.map_err(said)?;
        Ok(PostgresDatabase { store, place: crate::registry::hive::without_user("postgres", 5432, url), shards })
    }

    pub async fn catalogue(&self) -> Result<Catalogue, Failure> {
        self.store.catalogue().await
    }

    /// The statements of an installation, for whoever runs them by hand, and what a role needs that did not.
    pub fn plan(&self) -> String {
        let tables = schema::ddl(self.shards);
        let note = "-- what the node's role needs, if another one makes the tables; then what an application needs that \
                    writes events itself";
        let (node, application) = (grants::for_honeyflow("honeyflow", &[]), grants::for_application("application"));
        let commented = format!("{node}{application}").lines().map(|line| format!("-- {line}\n")).collect::<String>();
        format!("{tables}\n{note}\n{commented}")
    }
}

/// By its declared type, which PostgreSQL holds every row to.
pub fn key(table: &Table, column: &str) -> Result<KeyColumn, Failure> {
    let refused = |why: String| {
        let said = format!("`{}.{column}` cannot be a key: {why}; name another key", table.name);
        Failure::fatal("key-type", said)
    };
    let Some(found) = table.column(column) else { return Err(refused("there is no such column".to_owned())) };
    let kind = match found.declared_type.as_str() {
        "smallint" | "integer" | "bigint" => KeyType::Integer,
        "bytea" => KeyType::Blob,
        text if text == "text" || text.starts_with("character") || text == "uuid" => KeyType::Text,
        other => return Err(refused(format!("its type `{other}` has no one text"))),
    };
    Ok(KeyColumn { name: found.name.clone(), kind })
}
