//! `honeyflow reindex`: loads and indexes every row of an entity again, at a lower priority than live changes. It works
//! in place, unless the index is outdated or the user asks for a new generation: then the next generation is built
//! beside the current one, and the two are swapped. An interrupted reindex continues where it stopped. A damaged index
//! is first set aside and then built from the start.

use std::{num::NonZeroU32, time::Instant};

use honeyflow_sink_tantivy::TantivySink;
use honeyflow_store::{Admin, AdminReply};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Context, Fault, Outcome, no_such, pace::Pace};
use crate::{
    config::{Config, EntityConfig, SinkConfig},
    node::{
        self,
        command_node::CommandNode,
        data, generation, rebuild,
        reindex::{self, QueueProgress},
        shape,
        source::OpenSource,
    },
    registry,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Entity, as in [entity.NAME]
    entity: String,
    /// Build a new generation of the index beside the current one, and swap them when it is complete
    #[arg(long)]
    new_generation: bool,
    /// Maximum number of rows per second [default: as fast as they are processed]
    #[arg(long, value_name = "ROWS", conflicts_with = "no_wait")]
    rate: Option<NonZeroU32>,
    /// Only queue the rows; a running node processes them
    #[arg(long)]
    no_wait: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let entity = find(&config, &arguments.entity)?;
    let in_use = data::is_in_use(&config.node.data);
    let outdated = if in_use { rebuild::outdated(&config) } else { rebuild::outdated_or_damaged(&config) };
    if !outdated.is_empty() && in_use {
        let why = outdated.iter().map(|outdated| outdated.why.message.clone()).collect::<Vec<_>>().join("; ");
        return Err(Fault::usage(why, "a node is writing to the index: stop the node first"));
    }
    // Setting an index aside removes the documents of every entity in it, so all of them are indexed again.
    let mut entities = rebuild::entities_of(&config, &outdated);
    for name in &entities {
        let open = open(&config, find(&config, name)?).await?;
        reindex::forget(&open.database.store, name).await?;
    }
    for outdated in &outdated {
        rebuild::set_aside(&config, outdated)?;
    }
    let sinks = || config.sinks.iter().filter(|sink| config.entities_into(&sink.name).contains(&entity.name));
    let mut renewed = Vec::new();
    for sink in sinks() {
        if needs_new_generation(&config, sink, arguments.new_generation)? {
            renewed.push(sink);
        }
    }
    let needs_in_place = sinks().count() > renewed.len() || renewed.is_empty();
    if needs_in_place && !entities.contains(&entity.name) {
        entities.push(entity.name.clone());
    }
    let word = uuid::Uuid::new_v4().to_string();
    for sink in &renewed {
        generation::request(&home(&config, sink).await?.database.store, &sink.name, &word).await?;
    }
    let worker = if arguments.no_wait { None } else { Some(CommandNode::begin(&config).await?) };
    for name in &entities {
        in_place(&config, find(&config, name)?, worker.as_ref(), arguments.rate, context).await?;
    }
    for sink in renewed {
        match &worker {
            Some(worker) => follow(sink, &home(&config, sink).await?, worker, &word, context).await?,
            None => context.output.note(&format!("{}: a running node will build the next generation", sink.name)),
        }
    }
    if let Some(worker) = worker {
        worker.end(&config).await;
    }
    Ok(Outcome::Success)
}

fn needs_new_generation(config: &Config, sink: &SinkConfig, wanted: bool) -> Result<bool, Fault> {
    // A table has no generations: every row is written again in place.
    if sink.table.is_some() {
        return Ok(false);
    }
    let mut options = registry::sink_options(sink, &config.node)?;
    options.shape = shape::lines(config, &sink.name);
    // An index that does not exist yet starts empty and is filled in place.
    let is_there = options.folder.join("current").exists();
    let renewed = is_there && (wanted || TantivySink::looks_outdated(&options)?);
    if renewed && shape::feeds(config, &sink.name).is_none() {
        return Err(node::cannot_be_rebuilt(&sink.name).into());
    }
    Ok(renewed)
}

fn find<'a>(config: &'a Config, name: &str) -> Result<&'a EntityConfig, Fault> {
    config.entity(name).ok_or_else(|| no_such("entity", name, config.entities.iter().map(|entity| &*entity.name)))
}

async fn open(config: &Config, entity: &EntityConfig) -> Result<OpenSource, Fault> {
    let source = config.source(&entity.source).ok_or_else(|| no_such("source", &entity.source, std::iter::empty()))?;
    let open = OpenSource::open(config, source).await?;
    open.install_id().await?;
    Ok(open)
}

/// Opens the source whose store keeps the progress of the sink's next generation.
async fn home(config: &Config, sink: &SinkConfig) -> Result<OpenSource, Fault> {
    let feeds = shape::feeds(config, &sink.name).unwrap_or_default();
    let feed = feeds.first().ok_or_else(|| node::cannot_be_rebuilt(&sink.name))?;
    open(config, find(config, &feed.entity)?).await
}

async fn in_place(
    config: &Config,
    entity: &EntityConfig,
    worker: Option<&CommandNode>,
    rate: Option<NonZeroU32>,
    context: &Context,
) -> Result<(), Fault> {
    let open = open(config, entity).await?;
    let bound = open.entity(&entity.name).ok_or_else(|| no_such("entity", &entity.name, std::iter::empty()))?;
    let bar = spinner();
    let store = &open.database.store;
    let events = match worker {
        None => reindex::queue_all(store, &bound.entity).await?,
        Some(worker) => {
            let total = reindex::count(store, &bound.entity).await?;
            let (began, mut pace) = (Instant::now(), Pace::default());
            let mut shown = |queued: QueueProgress, total: u64| {
                pace.note(began.elapsed(), queued.events.saturating_sub(queued.waiting));
                bar.set_message(pace.sentence(Some(total)));
            };
            let events = reindex::reindex(store, &bound.entity, rate, |queued| shown(queued, total)).await?;
            worker.until_idle(&open, |waiting| shown(QueueProgress { events, waiting }, events)).await?;
            events
        }
    };
    bar.finish_and_clear();
    report(context, &open, &entity.name, None, events).await
}

/// Shows the progress of the next generation until it is served.
async fn follow(
    sink: &SinkConfig,
    home: &OpenSource,
    worker: &CommandNode,
    word: &str,
    context: &Context,
) -> Result<(), Fault> {
    let bar = spinner();
    let (began, mut pace) = (Instant::now(), Pace::default());
    let built = worker.until_built(home, &sink.name, word, |progress| {
        pace.note(began.elapsed(), progress.events());
        bar.set_message(format!("generation of {}: queued {}", sink.name, pace.sentence(None)));
    });
    let built = built.await?;
    bar.finish_and_clear();
    report(context, home, &sink.name, built.generation, built.events()).await
}

async fn report(
    context: &Context,
    open: &OpenSource,
    name: &str,
    generation: Option<u64>,
    events: u64,
) -> Result<(), Fault> {
    let AdminReply::Lag(lag) = reindex::ask(&open.database.store, Admin::Lag).await? else { return Ok(()) };
    let (waiting, parked) = (lag.waiting, lag.parked);
    if context.output.is_json() {
        let what = if generation.is_some() { "sink" } else { "entity" };
        return context.output.object(&serde_json::json!({
            what: name, "generation": generation, "events": events, "waiting": waiting, "parked": parked
        }));
    }
    let served = generation.map_or_else(String::new, |number| format!("generation {number} is served: "));
    context.output.print(&format!("{name}: {served}{events} rows, {waiting} still waiting, {parked} parked\n"))
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}
