//! Indexes that cannot be gone on with: damaged, gone, or made by another program. They cannot be searched meanwhile:
//! they are made anew from the rows, in place. One that is only outdated is served until its next generation is built.
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

/// Those among all sinks, as far as opening them to read tells.
pub fn outdated(config: &Config) -> Vec<Outdated<'_>> {
    hopeless(config, |sink| registry::reading_sink(sink, config).map(|_| ()))
}

/// The same, with every file compared with its checksum, as a start does. Only while no node writes.
pub fn outdated_or_damaged(config: &Config) -> Vec<Outdated<'_>> {
    hopeless(config, |sink| {
        let options = registry::sink_options(sink, &config.node)?;
        // Opening makes the first generation, which is not ours to do here.
        if options.folder.join("current").exists() { TantivySink::open(options).map(|_| ()) } else { Ok(()) }
    })
}

fn hopeless(config: &Config, open: impl Fn(&SinkConfig) -> Result<(), Failure>) -> Vec<Outdated<'_>> {
    let judged = config.indexes().filter_map(|sink| Some(Outdated { sink, why: open(sink).err()? }));
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

/// Whether an index of the entity is not there or holds nothing, as after its folder was removed. What is hopeless is
/// left to those who open it.
async fn is_empty(config: &Config, entity: &str) -> Result<bool, Failure> {
    for sink in &config.sinks {
        if !config.entities_into(&sink.name).iter().any(|name| &**name == entity) {
            continue;
        }
        let empty = match registry::reading_sink(sink, config) {
            Ok(Some(opened)) => match opened.list(None, 1).await {
                Ok((hits, next)) => hits.is_empty() && next.is_none(),
                // a cluster that is away: what it holds will be told by `verify`
                Err(failure) if sink.table.is_some() => {
                    tracing::warn!(sink = %sink.name, %failure, "whether the table is empty cannot be told");
                    false
                }
                Err(failure) => return Err(failure),
            },
            Ok(None) => true,
            Err(failure) => failure.code == "index-missing",
        };
        if empty {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rows without any event get one each, behind everything else: what was there before the triggers, and everything if
/// the index is empty.
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
        tracing::info!(entity = %entity.name, events, "rows that were there already are queued");
    }
    Ok(())
}
