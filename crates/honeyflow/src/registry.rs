//! The registry of adapters: which step kinds exist, and which address belongs to which store or sink. No other module
//! of the binary names an adapter.

mod bind;
pub mod cassandra;
mod database;
pub(crate) mod hive;

use std::sync::Arc;

use honeyflow_runtime::Failure;
use honeyflow_sink::Sink;
use honeyflow_sink_tantivy::{self as tantivy, TantivySink};
use honeyflow_workflow::Catalogue;

use crate::{
    codes,
    config::{Config, FieldType, NodeConfig, SinkConfig},
};

pub use bind::{BoundEntity, bind, problem};
pub use database::{Database, Installation};
pub use hive::{HIVE_SCHEMES, HivePlace, Trust};

/// The URL schemes of databases whose outbox this build can read.
#[cfg(not(feature = "postgres"))]
pub const SOURCE_SCHEMES: &[&str] = &["sqlite"];
#[cfg(feature = "postgres")]
pub const SOURCE_SCHEMES: &[&str] = &["sqlite", "postgres", "postgresql"];

/// What to do on PostgreSQL instead of `honeyflow init`.
pub const POSTGRESQL_BY_HAND: &str = "write honeyflow.toml by hand: [source.NAME] with url = \"env:DATABASE_URL\", \
     [entity.NAME] with key and document, [workflow.NAME]; docs/guide/index-a-table.md shows them";

fn known_schemes() -> String {
    SOURCE_SCHEMES.iter().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ")
}

/// The default number of shards of a source on a server: enough for many nodes to share, with a few for each node.
pub const SHARDS_DEFAULT: u16 = 64;

/// The step kinds of this build.
pub fn kinds() -> Catalogue {
    let mut kinds = vec![
        honeyflow_step_sql::kind(),
        honeyflow_step_transform::kind(),
        honeyflow_step_http::kind(),
        honeyflow_sink::index::kind(),
        honeyflow_sink_cassandra::kind(),
    ];
    kinds.extend(honeyflow_step_control::kinds());
    Catalogue::new(kinds)
}

/// Whether the sink compares versions, so that an older write cannot overwrite a newer one.
pub fn is_fenced(sink: &SinkConfig) -> bool {
    // A reference may not be resolvable here; every sink that it can lead to compares versions.
    matches!(scheme(sink).as_deref(), Some("tantivy" | "cassandra") | None)
}

fn scheme(sink: &SinkConfig) -> Option<String> {
    let url = sink.url.resolve().ok()?;
    url.reveal().split_once(':').map(|(scheme, _)| scheme.to_owned())
}

/// The options of an index; the node adds the source and the install id.
pub fn sink_options(sink: &SinkConfig, node: &NodeConfig) -> Result<tantivy::Options, Failure> {
    let url = sink.url.resolve().map_err(|unresolved| {
        Failure::fatal(codes::UNRESOLVED, format!("[sink.{}]: {unresolved}; {}", sink.name, unresolved.help()))
    })?;
    let Some(index) = url.reveal().strip_prefix("tantivy:") else {
        return Err(Failure::fatal(
            codes::UNKNOWN_URL,
            format!("[sink.{}]: this build has no sink for this address", sink.name),
        ));
    };
    if index.is_empty() || !index.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err(Failure::fatal(
            codes::BAD_URL,
            format!("[sink.{}]: the name of an index may contain letters, digits, `_` and `-`", sink.name),
        ));
    }
    let fields = sink.fields.iter().map(|field| {
        let kind = match field.kind {
            FieldType::Text => tantivy::FieldKind::Text { language: field.language.clone() },
            FieldType::Keyword => tantivy::FieldKind::Keyword,
            FieldType::Integer => tantivy::FieldKind::Integer,
            FieldType::Decimal => tantivy::FieldKind::Decimal,
            FieldType::Boolean => tantivy::FieldKind::Boolean,
            FieldType::Date => tantivy::FieldKind::Date,
        };
        tantivy::Field::new(&field.name, kind)
    });
    let mut options = tantivy::Options::new(node.data.join("index").join(index), fields.collect());
    options.commit_interval = sink.commit_interval;
    Ok(options)
}

/// Opens a sink read-only, while a node may be writing to it. None if nothing was written yet.
pub fn reading_sink(sink: &SinkConfig, config: &Config) -> Result<Option<Arc<dyn Sink>>, Failure> {
    if let Some(table) = &sink.table {
        return Ok(Some(Arc::new(cassandra::reading(config, sink, table)?)));
    }
    let options = sink_options(sink, &config.node)?;
    if !options.folder.exists() {
        return Ok(None);
    }
    let sink = TantivySink::read_only(options.folder, options.fields)?;
    Ok(Some(Arc::new(sink)))
}

/// Whether the next generation of the sink is being built.
pub fn is_building(sink: &SinkConfig, node: &NodeConfig) -> Result<bool, Failure> {
    Ok(sink.table.is_none() && TantivySink::is_building_at(&sink_options(sink, node)?.folder))
}
