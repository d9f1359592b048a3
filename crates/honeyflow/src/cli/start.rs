//! `honeyflow start`: runs a node until it is stopped. The first SIGTERM or Ctrl-C drains the node, a second one ends
//! it immediately. A changed configuration is used without a restart; one with errors is reported and ignored.

use std::{net::SocketAddr, os::unix::process::CommandExt};

use honeyflow_engine::shell::Service;
use honeyflow_runtime::Failure;
use tokio::signal::unix::SignalKind;

use super::{Context, Fault, Outcome, confirm, reload};
use crate::{
    codes,
    config::Config,
    node::{
        self, Node, fill,
        preflight::{self, SourceState},
        rebuild,
        source::OpenSource,
    },
    signals::{Stop, listen},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Install tables and triggers without asking for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Outcome, Fault> {
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
                        "cannot use the changed configuration, the last valid one stays in use: {}",
                        fault.message()
                    );
                    config = before;
                    continue;
                }
            },
        };
        let own = listener.try_clone().map_err(|error| Failure::fatal(codes::CANNOT_LISTEN, error.to_string()))?;
        let mut running = node.run(&config, service, own)?;
        tracing::info!(node = %node.name, "started: http://{address}/ (any user of this machine can reach it)");
        let next = tokio::select! {
            ended = &mut running => {
                node.leave().await;
                return ended_by_itself(ended);
            }
            () = stop.requested() => None,
            next = reload::changed(&config, context, &mut hang_up) => Some(next),
        };
        match &next {
            None => tracing::info!("draining: the node takes no new work; a second signal ends it immediately"),
            Some(_) => tracing::info!(
                "the configuration has changed: the node finishes its current work, then uses the new one"
            ),
        }
        tokio::select! {
            () = node.drain(&mut running, config.node.drain) => {}
            () = stop.requested() => {
                tracing::warn!("ended immediately, on a second signal");
                return Ok(Outcome::Success);
            }
        }
        match next {
            None => return Ok(Outcome::Success),
            Some(next) => last_good = Some(std::mem::replace(&mut config, next)),
        }
    }
}

async fn open(config: &Config, address: SocketAddr, yes: bool, context: &Context) -> Result<(Node, Service), Fault> {
    make_ready(config, yes, context).await?;
    let options = node::Options { address: Some(address), ..node::Options::default() };
    Ok(Node::open(config, &options).await?)
}

fn ended_by_itself(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<Outcome, Fault> {
    match ended {
        Ok(Ok(())) => Ok(Outcome::Success),
        Ok(Err(failure)) if failure.code == codes::STUCK_EXPRESSIONS => Err(restart_process(&failure).into()),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(Failure::fatal(codes::PANICKED, format!("the node panicked: {error}")).into()),
    }
}

/// Replaces this process by a new one of the same program: stuck threads cannot be stopped otherwise. Returns only if
/// that fails.
fn restart_process(failure: &Failure) -> Failure {
    tracing::error!("{failure}: restarting the process");
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Failure::fatal(codes::STUCK_EXPRESSIONS, format!("cannot restart the process: {error}")),
    };
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    Failure::fatal(codes::STUCK_EXPRESSIONS, format!("cannot restart the process: {error}"))
}

/// Makes every source ready for the node. Nothing is changed before all looks have succeeded and the user has agreed.
async fn make_ready(config: &Config, yes: bool, context: &Context) -> Result<(), Fault> {
    let states = preflight::look(config).await?;
    preflight::refuse_conflicting_nodes(config, &states).await?;
    let missing: Vec<&OpenSource> =
        states.iter().filter(|state| state.installed.is_none()).map(|state| &state.source).collect();
    if !missing.is_empty() {
        agree(config, &missing, yes, context).await?;
        node::data::make(&config.node.data)?;
    }
    for SourceState { source, installed } in &states {
        match installed {
            Some(_) => restore(config, source).await?,
            None => {
                source.database.install(source.capture(), true).await?;
                tracing::info!(source = %source.name, "installed");
                rebuild::fill(config, source).await?;
            }
        }
    }
    Ok(())
}

/// Asks once for all sources that are to be installed, and says what the rows in them will run.
async fn agree(config: &Config, missing: &[&OpenSource], yes: bool, context: &Context) -> Result<(), Fault> {
    let mut what = Vec::new();
    for source in missing {
        what.push(installation(source));
        what.extend(fill::expected_effects(config, &source.database, &source.bound).await?);
    }
    let what = what.join("\n");
    if yes || confirm(&what, context)? {
        return Ok(());
    }
    Err(Fault::usage(what, "pass --yes, or review the statements first: honeyflow source install --print"))
}

fn installation(source: &OpenSource) -> String {
    let (name, place) = (&source.name, source.database.place());
    let tables: Vec<String> = source.capture().into_iter().map(|table| table.table).collect();
    let tables = tables.join(", ");
    let journal = source.database.file().map_or("", |_| ", and set its journal to WAL");
    format!("source {name}: will create tables honeyflow_* and triggers on {tables} in {place}{journal}")
}

/// Brings an installed source up to this version and the configuration, so that from the node's first moment every
/// change is captured. While another node works on a source in a file, the watch of that node repairs the triggers.
async fn restore(config: &Config, source: &OpenSource) -> Result<(), Fault> {
    let database = &source.database;
    if database.is_in_use() {
        // A node of an earlier version goes on beside the new columns, and this one finds them when it takes over.
        return Ok(database.migrate().await?);
    }
    // Looked at before the migration, which changes the schema: so our own change is not taken for the application's.
    let drift = database.drift(source.capture()).await?;
    database.migrate().await?;
    database.put_triggers_back(&source.name, &drift, source.capture()).await?;
    rebuild::fill(config, source).await?;
    Ok(())
}
