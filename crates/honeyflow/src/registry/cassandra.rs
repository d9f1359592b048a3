//! Connects to Cassandra clusters and opens their tables, as configured.

use std::sync::Arc;

use honeyflow_cassandra::{
    Consistency, Session, Version,
    connection::{Password, Secret, Settings, Tls, Versions},
    wire::Compression,
};
use honeyflow_pool::Functions;
use honeyflow_runtime::Failure;
use honeyflow_sink_cassandra::{CassandraSink, KeyKind, KeyPart, Misfit, Options, TableError};
use honeyflow_store::{KeyColumn, KeyType};
use honeyflow_workflow::Problem;

use crate::{
    codes,
    config::{self, CassandraConfig, Config, CqlConfig, SinkConfig, TableConfig, Url},
};

/// Starts the pool of a cluster; connections are opened in the background.
pub fn connect(cluster: &CassandraConfig) -> Result<Session, Failure> {
    let session = match cluster.compiled.clone() {
        None => Session::open(connection_settings(&cluster.cql), cluster.pool.clone()),
        // The pool calls this every second: a file that was compiled again is used without a restart.
        Some(file) => {
            let name = cluster.name.clone();
            Session::open(connection_settings(&cluster.cql), Functions(move || config::cassandra::load(&file, &name)))
        }
    };
    session.map_err(|error| Failure::fatal(codes::BAD_SETTINGS, format!("[cassandra.{}]: {error}", cluster.name)))
}

fn connection_settings(cql: &CqlConfig) -> Settings {
    let secret = |reference: &Url| match reference {
        Url::Env(name) => Secret::Env(name.clone()),
        Url::File(path) => Secret::File(path.clone()),
        // The configuration accepts only references here.
        Url::Written(_) => Secret::Plain(String::new()),
    };
    let login = cql.user.clone().zip(cql.password.as_ref()).map(|(user, password)| {
        let login: Arc<dyn honeyflow_cassandra::connection::Login> =
            Arc::new(Password { user, password: secret(password) });
        login
    });
    let tls = cql.tls.then(|| Tls {
        roots: cql.tls_roots.clone(),
        certificate: cql.tls_certificate.clone(),
        name: cql.tls_name.clone(),
    });
    let compression = match cql.compression.as_str() {
        "lz4" => Compression::Lz4,
        "snappy" => Compression::Snappy,
        _ => Compression::None,
    };
    // The configuration accepts no other numbers.
    let version = |number| Version::numbered(number).unwrap_or(Version::V4);
    let versions = Versions { lowest: version(cql.versions.0), highest: version(cql.versions.1) };
    Settings { login, tls, compression, versions, frame_bytes_max: cql.frame_bytes_max, ..Settings::default() }
}

/// The options of a table. `key` is the entity's key with its types in the database; without it only the names are
/// known.
pub fn table_options(config: &Config, sink: &SinkConfig, table: &TableConfig, key: Option<&[KeyColumn]>) -> Options {
    let entity = config.entities_into(&sink.name).into_iter().next();
    let names = entity.and_then(|name| config.entity(&name)).map(|entity| entity.key.clone()).unwrap_or_default();
    let kind = |name: &String| {
        let column = key?.iter().find(|column| column.name == *name)?;
        Some(match column.kind {
            KeyType::Integer => KeyKind::Integer,
            KeyType::Text | KeyType::Uuid | KeyType::Named(_) => KeyKind::Text,
            KeyType::Blob => KeyKind::Blob,
        })
    };
    let key = names.iter().map(|name| KeyPart { name: name.clone(), kind: kind(name) }).collect();
    let deadline = config.cluster(&table.cluster).map(|cluster| cluster.pool.deadline);
    let mut options = Options::new(&table.keyspace, &table.table, key);
    options.columns.clone_from(&table.columns);
    options.document.clone_from(&table.document);
    options.consistency = consistency(&table.consistency);
    options.deadline = deadline.unwrap_or(options.deadline);
    options
}

fn consistency(word: &str) -> Consistency {
    match word {
        "one" => Consistency::One,
        "two" => Consistency::Two,
        "three" => Consistency::Three,
        "quorum" => Consistency::Quorum,
        "all" => Consistency::All,
        "each-quorum" => Consistency::EachQuorum,
        "local-one" => Consistency::LocalOne,
        _ => Consistency::LocalQuorum,
    }
}

/// Opens a table read-only, while nodes may be writing to it.
pub fn reading(config: &Config, sink: &SinkConfig, table: &TableConfig) -> Result<CassandraSink, Failure> {
    let cluster = config.cluster(&table.cluster);
    let cluster =
        cluster.ok_or_else(|| Failure::fatal(codes::UNKNOWN_CLUSTER, format!("no [cassandra.{}]", table.cluster)))?;
    Ok(CassandraSink::new(connect(cluster)?, table_options(config, sink, table, None)))
}

/// Checks that the cluster answers, that the table exists, and that these documents fit it.
pub async fn problems(
    config: &Config,
    sink: &SinkConfig,
    key: &[KeyColumn],
    documents: &[Arc<serde_json::Value>],
) -> Vec<Problem> {
    let Some(table) = &sink.table else { return Vec::new() };
    let Some(cluster) = config.cluster(&table.cluster) else { return Vec::new() };
    let session = match connect(cluster) {
        Ok(session) => session,
        Err(failure) => return vec![super::problem(&format!("cassandra.{}", cluster.name), &failure)],
    };
    let options = table_options(config, sink, table, Some(key));
    let misfits = match CassandraSink::look(&session, &options, documents).await {
        Ok(misfits) => misfits,
        Err(TableError::Misfits(misfits)) => misfits,
        Err(TableError::NotChecked(failure)) => {
            let path = format!("cassandra.{}", cluster.name);
            let path = if failure.message.contains("refused the login") { format!("{path}.cql") } else { path };
            return vec![super::problem(&path, &failure)];
        }
    };
    let problem = |misfit: &Misfit| {
        Problem::error(format!("sink.{}.{}", sink.name, misfit.at), misfit.code, misfit.message.clone())
            .help(misfit.help.clone())
    };
    misfits.iter().map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-60 CQ-2 CQ-7: the configured values reach the driver.
    #[test]
    fn cq_2_versions_and_frames_are_as_configured() {
        let cql = CqlConfig {
            user: None,
            password: None,
            compression: "lz4".into(),
            versions: (4, 4),
            frame_bytes_max: 1 << 20,
            tls: false,
            tls_roots: None,
            tls_certificate: None,
            tls_name: None,
        };
        let settings = connection_settings(&cql);
        assert_eq!(settings.versions, Versions { lowest: Version::V4, highest: Version::V4 });
        assert_eq!((settings.frame_bytes_max, settings.compression), (1 << 20, Compression::Lz4));
        let settings = connection_settings(&CqlConfig { versions: (4, 5), ..cql });
        assert_eq!(settings.versions, Versions { lowest: Version::V4, highest: Version::V5 });
    }
}
