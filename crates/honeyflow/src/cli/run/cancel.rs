//! `honeyflow run cancel`: a row that the owner of the run looks at and carries out.

use honeyflow_store::Admin;

use crate::{
    cli::{Context, Done, Fault, block_on, no_such, open},
    node::watch::{ASKED, CANCEL},
};

#[derive(clap::Args)]
pub struct Arguments {
    workflow: String,
    entity: String,
    key: String,
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
    let name = format!("{}/{}/{}", arguments.workflow, arguments.entity, arguments.key);
    let ask = Admin::PutTask { noun: CANCEL.to_owned(), name, state: ASKED.to_owned() };
    block_on(async { open(&config, source).await?.admin(ask).await })??;
    context
        .output
        .note("asked for; the node carries it out within seconds, then `honeyflow parked list` shows the event");
    Ok(Done::Well)
}
