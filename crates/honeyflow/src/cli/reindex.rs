//! `honeyflow reindex`: every row of an entity is loaded and indexed again, behind live traffic. Interrupted, it goes on
//! where it was. An index that was built with other fields, or is damaged, is set aside first and made anew.

use honeyflow_store::{Admin, AdminReply};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Context, Done, Fault, no_such};
use crate::{
    config::{Config, EntityConfig},
    node::{alone::Worker, data, rebuild, reindex, source::OpenSource},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The entity, as in [entity.NAME]
    entity: String,
    /// Only store the events; a node works on them when it runs
    #[arg(long)]
    no_wait: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let asked = find(&config, &arguments.entity)?;
    let in_use = data::is_in_use(&config.node.data);
    let outdated = if in_use { rebuild::outdated(&config) } else { rebuild::outdated_or_damaged(&config) };
    if !outdated.is_empty() && in_use {
        let why = outdated.iter().map(|outdated| outdated.why.message.clone()).collect::<Vec<_>>().join("; ");
        return Err(Fault::usage(why, "a node is writing to it: stop it first"));
    }
    // With an index go the documents of everything that is in it.
    let mut entities = rebuild::entities_of(&config, &outdated);
    if !entities.contains(&asked.name) {
        entities.push(asked.name.clone());
    }
    for name in entities.iter().filter(|_| !outdated.is_empty()) {
        let open = open(&config, find(&config, name)?).await?;
        reindex::forget(&open.database.store, name).await?;
    }
    for outdated in &outdated {
        rebuild::set_aside(&config, outdated)?;
    }
    let worker = if arguments.no_wait { None } else { Some(Worker::begin(&config).await?) };
    for name in &entities {
        one(&config, find(&config, name)?, worker.as_ref(), context).await?;
    }
    if let Some(worker) = worker {
        worker.end(&config).await;
    }
    Ok(Done::Well)
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

async fn one(config: &Config, entity: &EntityConfig, worker: Option<&Worker>, context: &Context) -> Result<(), Fault> {
    let open = open(config, entity).await?;
    let bound = open.entity(&entity.name).ok_or_else(|| no_such("entity", &entity.name, std::iter::empty()))?;
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    let store = &open.database.store;
    let events = match worker {
        None => reindex::queue_all(store, &bound.entity).await?,
        Some(worker) => {
            let queued = |events| bar.set_message(format!("{events} rows queued"));
            let events = reindex::reindex(store, &bound.entity, queued).await?;
            worker.until_idle(&open, |left| bar.set_message(format!("{events} rows queued, {left} left"))).await?;
            events
        }
    };
    bar.finish_and_clear();
    let AdminReply::Lag(lag) = reindex::ask(store, Admin::Lag).await? else { return Ok(()) };
    let (waiting, parked) = (lag.waiting, lag.parked);
    if context.output.is_json() {
        context.output.object(&serde_json::json!({
            "entity": entity.name, "events": events, "waiting": waiting, "parked": parked
        }))
    } else {
        context.output.print(&format!("{}: {events} rows, {waiting} still waiting, {parked} parked\n", entity.name))
    }
}
