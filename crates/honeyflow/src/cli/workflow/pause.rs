//! `honeyflow workflow pause` and `resume`: rows in every source that begins the workflow, which owners look at; so it
//! holds everywhere, and over restarts.

use honeyflow_event::Name;
use honeyflow_store::{Admin, write::Pause};

use crate::{
    cli::{Context, Done, Fault, block_on, no_such, open},
    config::Config,
};

#[derive(clap::Args)]
pub struct PauseArguments {
    /// The workflow, as in [workflow.NAME]
    workflow: String,
    /// Why, for whoever wonders
    #[arg(long, default_value = "paused by hand")]
    why: String,
}

#[derive(clap::Args)]
pub struct ResumeArguments {
    /// The workflow, as in [workflow.NAME]
    workflow: String,
}

pub fn pause(arguments: &PauseArguments, context: &Context) -> Result<Done, Fault> {
    let name = &arguments.workflow;
    // `since_ms` is by the store's clock: it fills it in
    let pause = Pause { noun: "workflow".into(), name: name.clone(), why: arguments.why.clone(), since_ms: 0 };
    tell(name, &Admin::Pause(pause), "paused", context)
}

pub fn resume(arguments: &ResumeArguments, context: &Context) -> Result<Done, Fault> {
    let name = &arguments.workflow;
    tell(name, &Admin::Resume { noun: "workflow".into(), name: name.clone() }, "resumed", context)
}

fn tell(name: &str, request: &Admin, done: &str, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    for source in sources_of(&config, name)? {
        let source = config.source(&source).ok_or_else(|| no_such("source", &source, std::iter::empty()))?;
        block_on(async { open(&config, source).await?.admin(request.clone()).await })??;
    }
    context.output.note(&format!("workflow {name}: {done}"));
    Ok(Done::Well)
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
