//! The database of a source on a PostgreSQL server.

use honeyflow_runtime::Failure;
use honeyflow_store::{CaptureTable, Catalogue, KeyColumn, KeyType, catalogue::Table};
use honeyflow_store_postgres::{Options, PostgresStore, grants, schema};

use crate::codes;

#[derive(Clone)]
pub struct PostgresDatabase {
    pub store: PostgresStore,
    /// Server and database, without secrets.
    pub place: String,
    shards: u16,
}

impl PostgresDatabase {
    pub async fn at(url: &str, name: &str, shards: u16) -> Result<PostgresDatabase, Failure> {
        let named = |failure: Failure| Failure { message: format!("{name}: {}", failure.message), ..failure };
        let options = Options { shards, ..Options::new(url, name).map_err(named)? };
        let store = PostgresStore::open(options).await.map_err(named)?;
        Ok(PostgresDatabase { store, place: crate::registry::hive::without_user("postgres", 5432, url), shards })
    }

    pub async fn catalogue(&self) -> Result<Catalogue, Failure> {
        self.store.catalogue().await
    }

    /// The statements of an installation, for an operator who runs them by hand, and the grants for other roles.
    pub async fn plan(&self, wanted: &[CaptureTable]) -> Result<String, Failure> {
        let (tables, capture) = (schema::ddl(self.shards), self.store.capture_plan(wanted).await?);
        let note = "-- grants for the node's role, if another role creates the tables; then grants for an application that \
                    writes events itself";
        let (node, application) = (grants::for_honeyflow("honeyflow", &[]), grants::for_application("application"));
        let commented = format!("{node}{application}").lines().map(|line| format!("-- {line}\n")).collect::<String>();
        let gap = if capture.is_empty() { "" } else { "\n" };
        Ok(format!("{tables}{gap}{capture}\n{note}\n{commented}"))
    }
}

/// The type of a key column, from its declared type, which PostgreSQL enforces.
pub fn key(table: &Table, column: &str) -> Result<KeyColumn, Failure> {
    let refused = |why: String| {
        let message = format!("`{}.{column}` cannot be a key: {why}; use another key", table.name);
        Failure::fatal(codes::KEY_TYPE, message)
    };
    let Some(found) = table.column(column) else { return Err(refused("there is no such column".to_owned())) };
    let kind = match found.declared_type.as_str() {
        "smallint" | "integer" | "bigint" => KeyType::Integer,
        "bytea" => KeyType::Blob,
        "text" | "character varying" => KeyType::Text,
        "uuid" => KeyType::Uuid,
        // Without a length, so that no text is cut, and blanks at the end do not count.
        "character" => KeyType::Named("bpchar"),
        "citext" => KeyType::Named("citext"),
        "date" => KeyType::Named("date"),
        "timestamp without time zone" => KeyType::Named("timestamp"),
        "timestamp with time zone" => KeyType::Named("timestamptz"),
        "numeric" => KeyType::Named("numeric"),
        other => return Err(refused(format!("its type `{other}` has no unique text form"))),
    };
    Ok(KeyColumn { name: found.name.clone(), kind })
}
