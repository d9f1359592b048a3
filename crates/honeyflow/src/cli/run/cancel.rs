//! `honeyflow run cancel`: stores the request as a row; the node that owns the run reads the row and cancels the run.

use honeyflow_store::Admin;

use crate::{
    cli::{Context, Fault, Outcome, block_on, confirm, no_such, open},
    node::cancel::{ASKED, ASKED_TO_DROP, CANCEL},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Workflow, as in [workflow.NAME]
    workflow: String,
    /// Entity, as in [entity.NAME]
    entity: String,
    /// Key of the run, as `run list` shows it
    key: String,
    /// Drop the event instead of parking it; its change is not processed
    #[arg(long)]
    drop: bool,
    /// Do not ask for confirmation before dropping
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let names = || config.workflows.iter().map(|workflow| &*workflow.name);
    let workflow = config.workflows.iter().find(|workflow| *workflow.name == *arguments.workflow);
    let workflow = workflow.ok_or_else(|| no_such("workflow", &arguments.workflow, names()))?;
    let on = workflow.on.iter().find(|on| *on.entity == *arguments.entity);
    let entities = || workflow.on.iter().map(|on| &*on.entity);
    let on = on.ok_or_else(|| no_such("entity", &arguments.entity, entities()))?;
    let source = config.source(&on.source).ok_or_else(|| no_such("source", &on.source, std::iter::empty()))?;
    let question = "Drop the event permanently? Its change will not be processed.";
    if arguments.drop && !arguments.yes && !confirm(question, context)? {
        return Ok(Outcome::Negative);
    }
    let name = format!("{}/{}/{}", arguments.workflow, arguments.entity, arguments.key);
    let (state, then) = if arguments.drop {
        (ASKED_TO_DROP, "and drops the event")
    } else {
        (ASKED, "then `honeyflow parked list` shows the event")
    };
    let request = Admin::PutTask { noun: CANCEL.to_owned(), name, state: state.to_owned() };
    block_on(async { open(&config, source).await?.admin(request).await })??;
    context.output.note(&format!("requested; the node cancels the run within seconds, {then}"));
    Ok(Outcome::Success)
}
