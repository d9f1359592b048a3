//! Indexes that cannot be gone on with: built with other fields, damaged, or gone. They are made
//! anew from the rows.
//!
//! Before an index is set aside, it is noted that its entities are not indexed: a crash in between costs work, never a
//! document.

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;

use super::{reindex, source::OpenSource};
use crate::{
    config::{Config, SinkConfig},
    registry,
};

/// What only a rebuild can help against.
const HOPELESS: &[&str] = &["index-fields-changed", "index-damaged"];

/// An index that must be made anew, and why.
pub struct Outdated<'a> {
    pub sink: &'a SinkConfig,
    pub why: Failure,
}

/// Those among all sinks.
pub fn outdated(config: &Config) -> Vec<Outdated<'_>> {
    let judged = config.sinks.iter().filter_map(|sink| {
        let why = registry::reading_sink(sink, &config.node).err()?;
        Some(Outdated { sink, why })
    });
    judged.filter(|outdated| HOPELESS.contains(&&*outdated.why.code)).collect()
}

/// Every entity whose documents are in one of them.
pub fn entities_of(config: &Config, outdated: &[Outdated<'_>]) -> Vec<Name> {
    let mut names: Vec<Name> = outdated.iter().flat_map(|outdated| config.entities_into(&outdated.sink.name)).collect();
    names.sort();
    names.dedup();
    names
}

/// Puts the old index out of the way; the next start begins an empty one. Refused while a node writes to it.
pub fn set_aside(config: &Config, outdated: &Outdated<'_>) -> Result<(), Failure> {
    let folder = registry::sink_options(outdated.sink, &config.node)?.folder;
    if let Some(aside) = TantivySink::set_aside(&folder)? {
        tracing::warn!(sink = %outdated.sink.name, aside = %aside.display(), "the old index is set aside: {}", outdated.why.message);
    }
    Ok(())
}

/// Whether a sink of the entity has no index at all, as after its folder was removed.
pub fn is_gone(config: &Config, entity: &str) -> Result<bool, Failure> {
    for sink in config.sinks.iter().filter(|sink| config.entities_into(&sink.name).iter().any(|name| &**name == entity))
    {
        if !registry::sink_options(sink, &config.node)?.folder.join("current").exists() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rows without any event get one each, behind everything else: what was there before the triggers, and everything if
/// the index is gone.
pub async fn fill(config: &Config, open: &OpenSource) -> Result<(), Failure> {
    let store = &open.database.store;
    for bound in &open.bound {
        let entity = &bound.entity;
        if is_gone(config, &entity.name)? && reindex::was_done(store, &entity.name).await? {
            reindex::forget(store, &entity.name).await?;
        }
        if reindex::was_done(store, &entity.name).await? {
            continue;
        }
        let events = reindex::queue_all(store, entity).await?;
        tracing::info!(entity = %entity.name, events, "rows that were there already are queued");
    }
    Ok(())
}
