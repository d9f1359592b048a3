//! `honeyflow start`: runs a node until it is told to stop. The first SIGTERM or Ctrl-C drains it, a second one ends it
//! at once. A changed configuration is taken over without a restart; one with errors is reported and ignored.

use honeyflow_runtime::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Context, Done, Fault, confirm, reload};
use crate::{
    config::Config,
    node::{self, Node, source::OpenSource},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Install tables and triggers without asking
    #[arg(long, short)]
    yes: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Done, Fault> {
    let mut config = context.config()?;
    node::data::refuse_if_in_use(&config.node.data)?;
    let listener = node::surface::bind(config.node.listen)?;
    let address = listener.local_addr().unwrap_or(config.node.listen);
    let (mut stop, mut hang_up) = (Stop::new()?, listen(SignalKind::hangup())?);
    loop {
        install_if_needed(&config, arguments.yes, context).await?;
        let (node, service) = Node::open(&config, &node::Options::default()).await?;
        let own = listener.try_clone().map_err(|error| Failure::fatal("cannot-listen", error.to_string()))?;
        let mut running = node.run(&config, service, own)?;
        tracing::info!(node = %node.name, "started: http://{address}/ (any user of this machine can reach it)");
        let next = tokio::select! {
            ended = &mut running => return ended_by_itself(ended),
            () = stop.asked() => None,
            next = reload::changed(&config, context, &mut hang_up) => Some(next),
        };
        match &next {
            None => tracing::info!("draining: no new work is taken; a second signal ends the node at once"),
            Some(_) => tracing::info!("the configuration has changed: what is held ends, then the new one is used"),
        }
        tokio::select! {
            () = node.drain(&mut running, config.node.drain) => {}
            () = stop.asked() => {
                tracing::warn!("ended at once");
                return Ok(Done::Well);
            }
        }
        match next {
            None => return Ok(Done::Well),
            Some(next) => config = next,
        }
    }
}

fn ended_by_itself(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<Done, Fault> {
    match ended {
        Ok(Ok(())) => Ok(Done::Well),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(Failure::fatal("panicked", format!("the node panicked: {error}")).into()),
    }
}

/// SIGTERM and Ctrl-C.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> Result<Stop, Failure> {
        Ok(Stop { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::fatal("no-signals", format!("cannot listen for signals: {error}")))
}

async fn install_if_needed(config: &Config, yes: bool, context: &Context) -> Result<(), Fault> {
    for source in &config.sources {
        let open = OpenSource::open(config, source).await?;
        if open.database.installed().await?.is_some() {
            // Triggers that are missing or changed are the watch's business: whatever they missed must be verified.
            fill(&open).await?;
            continue;
        }
        let tables: Vec<String> = open.capture().into_iter().map(|table| table.table).collect();
        let what = format!(
            "source {}: tables honeyflow_* and triggers on {} will be made in {}, and its journal set to WAL",
            open.name,
            tables.join(", "),
            open.database.path.display()
        );
        if !yes && !confirm(&what, context)? {
            return Err(Fault::usage(what, "say --yes, or look first: honeyflow source install --print"));
        }
        open.database.install(open.capture(), true).await?;
        tracing::info!(source = %open.name, "installed");
        fill(&open).await?;
    }
    Ok(())
}

/// What was there before the triggers has no events: it gets one each, once, behind everything else.
async fn fill(open: &OpenSource) -> Result<(), Failure> {
    for bound in &open.bound {
        if node::reindex::was_done(&open.database.store, &bound.entity.name).await? {
            continue;
        }
        let events = node::reindex::queue_all(&open.database.store, &bound.entity).await?;
        tracing::info!(entity = %bound.entity.name, events, "rows that were there already are queued");
    }
    Ok(())
}
