//! `honeyflow start`: runs a node until it is told to stop. The first SIGTERM or Ctrl-C drains it, a second one ends it
//! at once. A changed configuration is taken over without a restart; one with errors is reported and ignored.

use std::{net::SocketAddr, os::unix::process::CommandExt};

use honeyflow_engine::shell::{STUCK, Service};
use honeyflow_runtime::Failure;
use tokio::signal::unix::SignalKind;

use super::{Context, Done, Fault, confirm, reload};
use crate::{
    config::Config,
    node::{self, Node, rebuild, source::OpenSource},
    signals::{Stop, listen},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Install tables and triggers without asking
    #[arg(long, short)]
    yes: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Done, Fault> {
    let mut config = context.config_to_run()?;
    node::data::refuse_if_in_use(&config.node.data)?;
    let listener = node::surface::bind(config.node.listen)?;
    let address = listener.local_addr().unwrap_or(config.node.listen);
    let (mut stop, mut hang_up) = (Stop::new()?, listen(SignalKind::hangup())?);
    let mut last_good: Option<Config> = None;
    loop {
        let (node, service) = match open(&config, address, arguments.yes, context).await {
            Ok(opened) => opened,
            Err(fault) => match last_good.take() {
                None => return Err(fault),
                Some(before) => {
                    tracing::error!(
                        "the changed configuration cannot be used, the last good one stays: {}",
                        fault.message()
                    );
                    config = before;
                    continue;
                }
            },
        };
        let own = listener.try_clone().map_err(|error| Failure::fatal("cannot-listen", error.to_string()))?;
        let mut running = node.run(&config, service, own)?;
        tracing::info!(node = %node.name, "started: http://{address}/ (any user of this machine can reach it)");
        let next = tokio::select! {
            ended = &mut running => {
                node.leave().await;
                return ended_by_itself(ended);
            }
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
            Some(next) => last_good = Some(std::mem::replace(&mut config, next)),
        }
    }
}

async fn open(config: &Config, address: SocketAddr, yes: bool, context: &Context) -> Result<(Node, Service), Fault> {
    install_if_needed(config, yes, context).await?;
    let options = node::Options { address: Some(address), ..node::Options::default() };
    Ok(Node::open(config, &options).await?)
}

fn ended_by_itself(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<Done, Fault> {
    match ended {
        Ok(Ok(())) => Ok(Done::Well),
        Ok(Err(failure)) if failure.code == STUCK => Err(begin_anew(&failure).into()),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(Failure::fatal("panicked", format!("the node panicked: {error}")).into()),
    }
}

/// The process in the place of itself: threads that nobody can stop end with the old one. Returns only if that fails.
fn begin_anew(failure: &Failure) -> Failure {
    tracing::error!("{failure}: the node begins anew");
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Failure::fatal(STUCK, format!("cannot begin anew: {error}")),
    };
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    Failure::fatal(STUCK, format!("cannot begin anew: {error}"))
}

async fn install_if_needed(config: &Config, yes: bool, context: &Context) -> Result<(), Fault> {
    for source in &config.sources {
        let open = OpenSource::open(config, source).await?;
        open.database.refuse_if_not_durable().await?;
        if open.database.installed().await?.is_some() {
            // A node that is about to be refused has nothing to queue: its empty index is nobody's.
            // Triggers that are missing or changed are the watch's business: whatever they missed must be verified.
            if !open.database.is_lived_in() {
                rebuild::fill(config, &open).await?;
            }
            continue;
        }
        let tables: Vec<String> = open.capture().into_iter().map(|table| table.table).collect();
        let what = match open.database.captures() {
            true => format!(
                "source {}: tables honeyflow_* and triggers on {} will be made in {}, and its journal set to WAL",
                open.name,
                tables.join(", "),
                open.database.place()
            ),
            false => format!("source {}: tables honeyflow_* will be made in {}", open.name, open.database.place()),
        };
        if !yes && !confirm(&what, context)? {
            return Err(Fault::usage(what, "say --yes, or look first: honeyflow source install --print"));
        }
        open.database.install(open.capture(), true).await?;
        tracing::info!(source = %open.name, "installed");
        rebuild::fill(config, &open).await?;
    }
    Ok(())
}
