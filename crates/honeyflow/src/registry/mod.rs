//! Knows every adapter: which kinds of step exist, and which address leads to which store or sink. Nothing else in the
//! binary names an adapter.

mod bind;
pub mod cassandra;
mod database;
pub(crate) mod hive;

use std::sync::Arc;

use honeyflow_runtime::Failure;
use honeyflow_sink::Sink;
use honeyflow_sink_tantivy::{self as tantivy, TantivySink};
use honeyflow_workflow::Catalogue;

use crate::config::{Config, FieldType, NodeConfig, SinkConfig};

pub use bind::{Bound, bind, problem};
pub use database::{Database, Installed};
pub use hive::{HIVE_SCHEMES, HivePlace, Trust};

/// Databases whose outbox this build reads.
#[cfg(not(feature = "postgres"))]
pub const SOURCE_SCHEMES: &[&str] = &["sqlite"];
#[cfg(feature = "postgres")]
pub const SOURCE_SCHEMES: &[&str] = &["sqlite", "postgres", "postgresql"];

fn known_schemes() -> String {
    SOURCE_SCHEMES.iter().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ")
}

/// Of a source on a server: enough for a node to hold a few and for many nodes to share them.
pub const SHARDS_DEFAULT: u16 = 64;

/// The kinds of step that this build has.
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
    // a reference is resolved when it is used; until then, what it leads to is one of ours
    matches!(scheme(sink).as_deref(), Some("tantivy" | "cassandra") | None)
}

fn scheme(sink: &SinkConfig) -> Option<String> {
    let url = sink.url.resolve().ok()?;
    url.reveal().split_once(':').map(|(scheme, _)| scheme.to_owned())
}

/// What the adapter of an index is told; the engine adds the source and the install id.
pub fn sink_options(sink: &SinkConfig, node: &NodeConfig) -> Result<tantivy::Options, Failure> {
    let url = sink.url.resolve().map_err(|unresolved| {
        Failure::fatal("unresolved", format!("[sink.{}]: {unresolved}; {}", sink.name, unresolved.help()))
    })?;
    let Some(index) = url.reveal().strip_prefix("tantivy:") else {
        return Err(Failure::fatal(
            "unknown-url",
            format!("[sink.{}]: this build has no sink for this address", sink.name),
        ));
    };
    if index.is_empty() || !index.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err(Failure::fatal(
            "bad-url",
            format!("[sink.{}]: the name of an index has letters, digits, `_` and `-`", sink.name),
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

/// For searching and looking, beside a node that may be writing. None if nothing was written yet.
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

/// Whether its next generation is being built.
pub fn is_building(sink: &SinkConfig, node: &NodeConfig) -> Result<bool, Failure> {
    Ok(sink.table.is_none() && TantivySink::is_building_at(&sink_options(sink, node)?.folder))
}
