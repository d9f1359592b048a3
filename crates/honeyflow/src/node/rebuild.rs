//! Rebuilds indexes that cannot be used any more: damaged, lost, or written by another version of the program. They are
//! rebuilt from the rows in place and cannot be searched meanwhile. An index that is only outdated is served until its
//! next generation is built.
//!
//! Before an index is set aside, its entities are marked as not indexed: a crash in between costs work, never a
//! document.

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;

use super::{reindex, source::OpenSource};
use crate::{
    codes,
    config::{Config, SinkConfig},
    registry,
};

/// The failure codes that only a rebuild can fix.
const HOPELESS: &[&str] = &[codes::INDEX_FIELDS_CHANGED, codes::INDEX_DAMAGED];

/// An index that must be rebuilt, and why.
pub struct OutdatedIndex<'a> {
    pub sink: &'a SinkConfig,
    pub why: Failure,
}

/// The indexes that must be rebuilt, as far as opening them read-only shows.
pub fn outdated(config: &Config) -> Vec<OutdatedIndex<'_>> {
    hopeless(config, |sink| registry::reading_sink(sink, config).map(|_| ()))
}

/// Like [`outdated`], but also compares every file with its checksum, as a start does. Only while no node writes.
pub fn outdated_or_damaged(config: &Config) -> Vec<OutdatedIndex<'_>> {
    hopeless(config, |sink| {
        let options = registry::sink_options(sink, &config.node)?;
        // Opening would create the first generation, which this check must not do.
        if options.folder.join("current").exists() { TantivySink::open(options).map(|_| ()) } else { Ok(()) }
    })
}

fn hopeless(config: &Config, open: impl Fn(&SinkConfig) -> Result<(), Failure>) -> Vec<OutdatedIndex<'_>> {
    let judged = config.indexes().filter_map(|sink| Some(OutdatedIndex { sink, why: open(sink).err()? }));
    judged.filter(|outdated| HOPELESS.contains(&&*outdated.why.code)).collect()
}

/// Every entity whose documents are in one of these indexes.
pub fn entities_of(config: &Config, outdated: &[OutdatedIndex<'_>]) -> Vec<Name> {
    let mut names: Vec<Name> = outdated.iter().flat_map(|outdated| config.entities_into(&outdated.sink.name)).collect();
    names.sort();
    names.dedup();
    names
}

/// Moves the old index aside; the next start creates an empty one. Fails while a node writes to it.
pub fn set_aside(config: &Config, outdated: &OutdatedIndex<'_>) -> Result<(), Failure> {
    let folder = registry::sink_options(outdated.sink, &config.node)?.folder;
    if let Some(aside) = TantivySink::set_aside(&folder)? {
        tracing::warn!(sink = %outdated.sink.name, aside = %aside.display(), "set the old index aside: {}", outdated.why.message);
    }
    Ok(())
}

/// Whether an index of the entity is missing or empty, for example after its folder was removed. An index that must be
/// rebuilt does not count as empty: opening it reports the failure.
async fn is_empty(config: &Config, entity: &str) -> Result<bool, Failure> {
    for sink in &config.sinks {
        if !config.entities_into(&sink.name).iter().any(|name| &**name == entity) {
            continue;
        }
        let empty = match registry::reading_sink(sink, config) {
            Ok(Some(opened)) => match opened.list(None, 1).await {
                Ok((hits, next)) => hits.is_empty() && next.is_none(),
                // The cluster is unreachable: `verify` will show what it holds.
                Err(failure) if sink.table.is_some() => {
                    tracing::warn!(sink = %sink.name, %failure, "cannot check whether the table is empty");
                    false
                }
                Err(failure) => return Err(failure),
            },
            Ok(None) => true,
            Err(failure) => failure.code == codes::INDEX_MISSING,
        };
        if empty {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Queues an event with the reindex priority for rows that have had none: rows from before the triggers were installed,
/// and all rows if the index is empty.
pub async fn fill(config: &Config, open: &OpenSource) -> Result<(), Failure> {
    let store = &open.database.store;
    for bound in &open.bound {
        let entity = &bound.entity;
        if reindex::was_done(store, &entity.name).await? {
            if !is_empty(config, &entity.name).await? {
                continue;
            }
            reindex::forget(store, &entity.name).await?;
        }
        let events = reindex::queue_all(store, entity).await?;
        tracing::info!(entity = %entity.name, events, "queued the rows that already existed");
    }
    Ok(())
}
