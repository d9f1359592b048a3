//! `honeyflow reindex`: loads and indexes every row of an entity again, at a lower priority than live changes. It works
//! in place, unless the index is outdated or the user asks for a new generation: then the next generation is built
//! beside the current one, and the two are swapped. An interrupted reindex continues where it stopped. A damaged index
//! is first set aside and then built from the start.

use std::{collections::BTreeMap, num::NonZeroU32, time::Instant};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;
use honeyflow_store::{Admin, AdminReply};

use super::{Context, Fault, Outcome, no_such, pace::Pace, progress::ProgressLine};
use crate::{
    config::{Config, EntityConfig, SinkConfig, sinks_of},
    node::{
        self,
        command_node::CommandNode,
        data, fill, generation, rebuild,
        reindex::{self, QueueProgress, Rows},
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
    // Setting an index aside removes the documents of every workflow into it, so all of them are indexed again.
    let mut in_place = rebuild::feeds_of(&config, &outdated);
    for (name, workflow) in &in_place {
        let open = open(&config, find(&config, name)?).await?;
        let Some(bound) = open.entity(name) else { continue };
        Rows { database: &open.database, entity: &bound.entity, workflow }.forget().await?;
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
    for workflow in fill::reindexed(&config, &entity.name) {
        let pair = (entity.name.clone(), workflow.name.clone());
        let is_renewed = |into: &str| renewed.iter().any(|sink| *sink.name == *into);
        if sinks_of(workflow).any(|(_, into)| !is_renewed(into)) && !in_place.contains(&pair) {
            in_place.push(pair);
        }
    }
    if in_place.is_empty() && renewed.is_empty() {
        context.output.note(&format!("{}: no workflow writes its documents into a sink: nothing to do", entity.name));
        return Ok(Outcome::Success);
    }
    let word = uuid::Uuid::new_v4().to_string();
    for sink in &renewed {
        generation::request(&home(&config, sink).await?.database.store, &sink.name, &word).await?;
    }
    let worker = if arguments.no_wait { None } else { Some(CommandNode::begin(&config).await?) };
    for (name, workflows) in by_entity(in_place) {
        reindex_in_place(&config, find(&config, &name)?, &workflows, worker.as_ref(), arguments.rate, context).await?;
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

/// The workflows of each entity, in order.
fn by_entity(pairs: Vec<(Name, Name)>) -> BTreeMap<Name, Vec<Name>> {
    let mut all: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    for (entity, workflow) in pairs {
        all.entry(entity).or_default().push(workflow);
    }
    all
}

async fn reindex_in_place(
    config: &Config,
    entity: &EntityConfig,
    workflows: &[Name],
    worker: Option<&CommandNode>,
    rate: Option<NonZeroU32>,
    context: &Context,
) -> Result<(), Fault> {
    let open = open(config, entity).await?;
    let bound = open.entity(&entity.name).ok_or_else(|| no_such("entity", &entity.name, std::iter::empty()))?;
    let (mut events, mut waiting) = (0, 0);
    for workflow in workflows {
        let rows = Rows { database: &open.database, entity: &bound.entity, workflow };
        let Some(worker) = worker else {
            events += rows.queue_all(rows.position().await?).await?;
            waiting += rows.waiting().await?;
            continue;
        };
        let mut progress = ProgressLine::new(&context.output);
        let queued = tokio::select! {
            queued = process(&rows, rate, &mut progress) => queued,
            ended = worker.ended() => Err(ended),
        };
        progress.end();
        let (queued, left) = queued?;
        events += queued;
        waiting += left;
    }
    report(context, &open, &entity.name, None, Counts { events, waiting }).await
}

/// Queues the rows and waits until they are processed. Returns how many there were, and how many still wait.
async fn process(
    rows: &Rows<'_>,
    rate: Option<NonZeroU32>,
    progress: &mut ProgressLine<'_>,
) -> Result<(u64, u64), Failure> {
    let total = rows.count().await?;
    let (began, mut pace) = (Instant::now(), Pace::default());
    let mut shown = |queued: QueueProgress, total: u64| {
        pace.note(began.elapsed(), queued.events.saturating_sub(queued.waiting));
        progress.say(pace.sentence(Some(total)));
    };
    let events = rows.reindex(rate, |queued| shown(queued, total)).await?;
    let waiting = rows.until_done(|waiting| shown(QueueProgress { events, waiting }, events)).await?;
    Ok((events, waiting))
}

/// Shows the progress of the next generation until it is served.
async fn follow(
    sink: &SinkConfig,
    home: &OpenSource,
    worker: &CommandNode,
    word: &str,
    context: &Context,
) -> Result<(), Fault> {
    let mut shown = ProgressLine::new(&context.output);
    let (began, mut pace) = (Instant::now(), Pace::default());
    let built = worker.until_built(home, &sink.name, word, |progress| {
        pace.note(began.elapsed(), progress.events());
        shown.say(format!("generation of {}: queued {}", sink.name, pace.sentence(None)));
    });
    let built = built.await?;
    shown.end();
    report(context, home, &sink.name, built.generation, Counts { events: built.events(), waiting: 0 }).await
}

/// The rows that were queued, and those of them that are not processed yet.
struct Counts {
    events: u64,
    waiting: u64,
}

async fn report(
    context: &Context,
    open: &OpenSource,
    name: &str,
    generation: Option<u64>,
    Counts { events, waiting }: Counts,
) -> Result<(), Fault> {
    let AdminReply::Lag(lag) = reindex::ask(&open.database.store, Admin::Lag).await? else { return Ok(()) };
    let parked = lag.parked;
    if context.output.is_json() {
        let what = if generation.is_some() { "sink" } else { "entity" };
        return context.output.object(&serde_json::json!({
            what: name, "generation": generation, "events": events, "waiting": waiting, "parked": parked
        }));
    }
    let served = generation.map_or_else(String::new, |number| format!("generation {number} is served: "));
    context.output.print(&format!("{name}: {served}{events} rows, {waiting} still waiting, {parked} parked\n"))
}
