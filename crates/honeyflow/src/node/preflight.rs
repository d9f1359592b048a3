//! What a start looks at before it changes any database: the sources and their entities, the steps, the indexes, and
//! nodes that exclude this one. A start that fails here has left no table and no trigger, in no source.

use std::path::Path;

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::{Options, TantivySink};

use super::{exclusivity, plan, pool::Pools, shape, source::OpenSource, steps};
use crate::{
    codes,
    config::{Config, SinkConfig},
    registry::{self, Installation},
};

/// A source as the start found it.
pub struct SourceState {
    pub source: OpenSource,
    /// None if it is not installed.
    pub installed: Option<Installation>,
}

/// Opens all sources and looks at everything that could fail later. Changes nothing.
pub async fn look(config: &Config) -> Result<Vec<SourceState>, Failure> {
    let graphs = plan::graphs(config)?;
    let mut states = Vec::new();
    for source in &config.sources {
        let source = OpenSource::open(config, source).await?;
        source.database.refuse_if_not_durable().await?;
        let installed = source.database.installed().await?;
        source.database.try_capture(source.capture(), installed.is_none()).await?;
        states.push(SourceState { source, installed });
    }
    let sources: Vec<&OpenSource> = states.iter().map(|state| &state.source).collect();
    steps::try_build(config.file.parent().unwrap_or(Path::new("")), &graphs, &sources)?;
    refuse_foreign_indexes(config, &states)?;
    if states.iter().any(|state| state.installed.is_none()) {
        look_at_tables(config, &states).await?;
    }
    Ok(states)
}

/// Refuses a start beside a node that excludes this one, on any source that is installed. Only then can a node run.
pub async fn refuse_conflicting_nodes(config: &Config, states: &[SourceState]) -> Result<(), Failure> {
    let installed = states.iter().filter(|state| state.installed.is_some());
    let installed: Vec<Name> = installed.map(|state| state.source.name.clone()).collect();
    exclusivity::refuse_conflicting_nodes_of(config, &installed).await
}

/// Refuses indexes whose documents belong to another installation than their source has now: the versions of such
/// documents cannot be compared with those of new ones.
fn refuse_foreign_indexes(config: &Config, states: &[SourceState]) -> Result<(), Failure> {
    let (mut lines, mut folders) = (Vec::new(), Vec::new());
    for sink in config.indexes() {
        let options = registry::sink_options(sink, &config.node)?;
        let Some(why) = why_foreign(config, sink, &options, states)? else { continue };
        let folder = options.folder.display().to_string();
        lines.push(format!("[sink.{}]: the index in {folder} is of an earlier installation: {why}", sink.name));
        folders.push(folder);
    }
    if lines.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{}\nremove what you do not need any more, and start again; the node builds the indexes from the rows: rm -r {}",
        lines.join("\n"),
        folders.join(" ")
    );
    Err(Failure::fatal(codes::INDEX_FOREIGN, message))
}

fn why_foreign(
    config: &Config,
    sink: &SinkConfig,
    options: &Options,
    states: &[SourceState],
) -> Result<Option<String>, Failure> {
    let entities = config.entities_into(&sink.name);
    let source = entities.first().and_then(|entity| config.source_of(entity));
    let Some(state) = source.and_then(|name| states.iter().find(|state| state.source.name == *name)) else {
        return Ok(None);
    };
    let Some(install) = TantivySink::installation(options)? else { return Ok(None) };
    let name = &state.source.name;
    let why = match &state.installed {
        Some(installed) if installed.install_id.to_string() == install => return Ok(None),
        Some(_) => format!("source {name} has been installed again since, or is another database"),
        None => format!("source {name} is not installed"),
    };
    Ok(Some(match shape::feeds(config, &sink.name) {
        Some(_) => why,
        None => format!("{why}; its documents came from messages and cannot be built again, so keep a copy"),
    }))
}

/// Fails if a table of a cluster does not fit. A cluster that cannot be reached stops no start.
async fn look_at_tables(config: &Config, states: &[SourceState]) -> Result<(), Failure> {
    let pools = Pools::open(config)?;
    let mut looked = Ok(());
    for sink in &config.sinks {
        let Some(table) = &sink.table else { continue };
        looked = pools.open_table(config, sink, table, states.iter().map(|state| &state.source)).await.map(drop);
        if looked.is_err() {
            break;
        }
    }
    pools.close().await;
    looked
}
