//! `honeyflow workflow pause` and `honeyflow workflow resume`: store or delete a row in every source that starts the
//! workflow. The owners of the shards read these rows, so a pause applies on all nodes and survives restarts.

use honeyflow_event::Name;
use honeyflow_store::{Admin, write::Pause};

use crate::{
    cli::{Context, Fault, Outcome, block_on, no_such, open},
    config::Config,
};

#[derive(clap::Args)]
pub struct PauseArguments {
    /// Workflow, as in [workflow.NAME]
    workflow: String,
    /// Reason for the pause, shown in lists
    #[arg(long, default_value = "paused by hand")]
    why: String,
}

#[derive(clap::Args)]
pub struct ResumeArguments {
    /// Workflow, as in [workflow.NAME]
    workflow: String,
}

pub fn pause(arguments: &PauseArguments, context: &Context) -> Result<Outcome, Fault> {
    let name = &arguments.workflow;
    // The store fills in `since_ms`, by its own clock.
    let pause = Pause { noun: "workflow".into(), name: name.clone(), why: arguments.why.clone(), since_ms: 0 };
    send(name, &Admin::Pause(pause), "paused", context)
}

pub fn resume(arguments: &ResumeArguments, context: &Context) -> Result<Outcome, Fault> {
    let name = &arguments.workflow;
    send(name, &Admin::Resume { noun: "workflow".into(), name: name.clone() }, "resumed", context)
}

fn send(name: &str, request: &Admin, done: &str, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    for source in sources_of(&config, name)? {
        let source = config.source(&source).ok_or_else(|| no_such("source", &source, std::iter::empty()))?;
        block_on(async { open(&config, source).await?.admin(request.clone()).await })??;
    }
    context.output.note(&format!("workflow {name}: {done}"));
    Ok(Outcome::Success)
}

fn sources_of(config: &Config, name: &str) -> Result<Vec<Name>, Fault> {
    let workflow = config.workflows.iter().find(|workflow| &*workflow.name == name);
    let names = config.workflows.iter().map(|workflow| &*workflow.name);
    let workflow = workflow.ok_or_else(|| no_such("workflow", name, names))?;
    let mut sources: Vec<Name> = workflow.on.iter().map(|on| on.source.clone()).collect();
    sources.sort();
    sources.dedup();
    Ok(sources)
}
