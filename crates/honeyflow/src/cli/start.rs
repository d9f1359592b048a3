//! `honeyflow start`: runs a node until it is told to stop. The first SIGTERM or Ctrl-C drains it, a second one ends it
//! at once.

use std::io::IsTerminal;

use honeyflow_runtime::Failure;
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, Done, Fault};
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
    let config = context.config()?;
    install_if_needed(&config, arguments.yes).await?;
    let listener = node::surface::bind(config.node.listen)?;
    let address = listener.local_addr().unwrap_or(config.node.listen);
    let (node, service) = Node::open(&config, &node::Options::default()).await?;
    let mut running = node.run(&config, service, listener)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| cannot_listen(&error))?;
    tracing::info!(node = %node.name, incarnation = %node.incarnation, "started: http://{address}/ (any user of this machine can reach it)");
    tokio::select! {
        ended = &mut running => {
            let failure = match ended {
                Ok(Ok(())) => return Ok(Done::Well),
                Ok(Err(failure)) => failure,
                Err(error) => Failure::fatal("panicked", format!("the engine panicked: {error}")),
            };
            return Err(failure.into());
        }
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("draining: no new work is taken; a second signal ends the node at once");
    tokio::select! {
        () = node.drain(&mut running, config.node.drain) => {}
        _ = terminate.recv() => tracing::warn!("ended at once"),
        _ = tokio::signal::ctrl_c() => tracing::warn!("ended at once"),
    }
    Ok(Done::Well)
}

async fn install_if_needed(config: &Config, yes: bool) -> Result<(), Fault> {
    for source in &config.sources {
        let open = OpenSource::open(config, source).await?;
        if open.database.installed().await?.is_some() {
            // Idempotent: whatever the configuration has gained since is captured from now on.
            open.database.install(open.capture(), false).await?;
            continue;
        }
        let tables: Vec<String> = open.capture().into_iter().map(|table| table.table).collect();
        let what = format!(
            "source {}: tables honeyflow_* and triggers on {} will be made in {}, and its journal set to WAL",
            open.name,
            tables.join(", "),
            open.database.path.display()
        );
        if !yes && !agreed(&what) {
            return Err(Fault::usage(what, "say --yes, or look first: honeyflow source install --print"));
        }
        open.database.install(open.capture(), true).await?;
        tracing::info!(source = %open.name, "installed");
        fill(&open).await?;
    }
    Ok(())
}

/// What was there before the triggers has no events: it gets one each, behind everything else.
async fn fill(open: &OpenSource) -> Result<(), Failure> {
    for bound in &open.bound {
        let events = node::reindex::queue_all(&open.database.store, &bound.entity).await?;
        tracing::info!(entity = %bound.entity.name, events, "rows that were there already are queued");
    }
    Ok(())
}

fn agreed(what: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    eprint!("{what}. Go on? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn cannot_listen(error: &std::io::Error) -> Failure {
    Failure::fatal("no-signals", format!("cannot listen for signals: {error}"))
}
