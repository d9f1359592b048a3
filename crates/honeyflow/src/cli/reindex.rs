//! `honeyflow reindex`: every row of an entity is loaded and indexed again, behind live traffic. Interrupted, it goes on
//! where it was.

use honeyflow_store::{Admin, AdminReply};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Context, Done, Fault, no_such};
use crate::node::{alone::Worker, reindex, source::OpenSource};

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
    let entity = config
        .entity(&arguments.entity)
        .ok_or_else(|| no_such("entity", &arguments.entity, config.entities.iter().map(|entity| &*entity.name)))?;
    let source = config.source(&entity.source).ok_or_else(|| no_such("source", &entity.source, std::iter::empty()))?;
    let open = OpenSource::open(&config, source).await?;
    open.install_id().await?;
    let bound = open.entity(&entity.name).ok_or_else(|| no_such("entity", &entity.name, std::iter::empty()))?;
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    let store = &open.database.store;
    let events = if arguments.no_wait {
        reindex::queue_all(store, &bound.entity).await?
    } else {
        let worker = Worker::begin(&config).await?;
        let queued = |events| bar.set_message(format!("{events} rows queued"));
        let events = reindex::reindex(store, &bound.entity, queued).await?;
        worker.finish(&config, &open, |left| bar.set_message(format!("{events} rows queued, {left} left"))).await?;
        events
    };
    bar.finish_and_clear();
    let AdminReply::Lag(lag) = reindex::ask(store, Admin::Lag).await? else { return Ok(Done::Well) };
    if context.output.is_json() {
        context.output.object(&serde_json::json!({ "entity": arguments.entity, "events": events, "waiting": lag.waiting, "parked": lag.parked }))?;
    } else {
        context.output.print(&format!(
            "{}: {events} rows, {} still waiting, {} parked\n",
            arguments.entity, lag.waiting, lag.parked
        ))?;
    }
    Ok(Done::Well)
}
