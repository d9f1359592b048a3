//! `honeyflow run cancel`: a row that the owner of the run looks at and carries out.

use honeyflow_store::Admin;

use crate::{
    cli::{Context, Done, Fault, block_on, confirm, no_such, open},
    node::cancel::{ASKED, ASKED_TO_DROP, CANCEL},
};

#[derive(clap::Args)]
pub struct Arguments {
    workflow: String,
    entity: String,
    key: String,
    /// Do not park the event: its change is not worked on
    #[arg(long)]
    drop: bool,
    /// Do not ask before dropping
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let names = || config.workflows.iter().map(|workflow| &*workflow.name);
    let workflow = config.workflows.iter().find(|workflow| *workflow.name == *arguments.workflow);
    let workflow = workflow.ok_or_else(|| no_such("workflow", &arguments.workflow, names()))?;
    let on = workflow.on.iter().find(|on| *on.entity == *arguments.entity);
    let entities = || workflow.on.iter().map(|on| &*on.entity);
    let on = on.ok_or_else(|| no_such("entity", &arguments.entity, entities()))?;
    let source = config.source(&on.source).ok_or_else(|| no_such("source", &on.source, std::iter::empty()))?;
    let question = "Drop its event for good? Its change will not be worked on.";
    if arguments.drop && !arguments.yes && !confirm(question, context)? {
        return Ok(Done::Negative);
    }
    let name = format!("{}/{}/{}", arguments.workflow, arguments.entity, arguments.key);
    let (state, then) = if arguments.drop {
        (ASKED_TO_DROP, "and drops the event")
    } else {
        (ASKED, "then `honeyflow parked list` shows the event")
    };
    let ask = Admin::PutTask { noun: CANCEL.to_owned(), name, state: state.to_owned() };
    block_on(async { open(&config, source).await?.admin(ask).await })??;
    context.output.note(&format!("asked for; the node carries it out within seconds, {then}"));
    Ok(Done::Well)
}
