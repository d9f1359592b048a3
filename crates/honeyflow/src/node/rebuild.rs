//! Rebuilds indexes that cannot be used any more: damaged, lost, or written by another version of the program. They are
//! rebuilt from the rows in place and cannot be searched meanwhile. An index that is only outdated is served until its
//! next generation is built.
//!
//! Before an index is set aside, the workflows into it are marked as not filled: a crash in between costs work, never a
//! document.

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;
use honeyflow_workflow::Definition;

pub use super::fill::fill;
use crate::{
    codes,
    config::{Config, SinkConfig, sinks_of},
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

/// Every pair of an entity and a workflow that writes its documents into one of these indexes.
pub fn feeds_of(config: &Config, outdated: &[OutdatedIndex<'_>]) -> Vec<(Name, Name)> {
    let into = |workflow: &&Definition| {
        sinks_of(workflow).any(|(_, into)| outdated.iter().any(|outdated| *outdated.sink.name == *into))
    };
    let mut pairs: Vec<(Name, Name)> = Vec::new();
    for workflow in config.workflows.iter().filter(into) {
        let of_rows = workflow.on.iter().filter(|on| config.entity(&on.entity).is_some());
        pairs.extend(of_rows.map(|on| (on.entity.clone(), workflow.name.clone())));
    }
    pairs.sort();
    pairs.dedup();
    pairs
}

/// Moves the old index aside; the next start creates an empty one. Fails while a node writes to it.
pub fn set_aside(config: &Config, outdated: &OutdatedIndex<'_>) -> Result<(), Failure> {
    let folder = registry::sink_options(outdated.sink, &config.node)?.folder;
    if let Some(aside) = TantivySink::set_aside(&folder)? {
        tracing::warn!(sink = %outdated.sink.name, aside = %aside.display(), "set the old index aside: {}", outdated.why.message);
    }
    Ok(())
}
