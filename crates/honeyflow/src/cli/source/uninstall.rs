//! `honeyflow source uninstall`: removes triggers and tables of ours. Refused while events wait: they would be lost.

use crate::cli::{Context, Done, Fault, block_on, confirm, open};

#[derive(clap::Args)]
pub struct Arguments {
    /// The source, as in [source.NAME]; may be left out where there is only one
    source: Option<String>,
    /// Print what would be removed and change nothing
    #[arg(long)]
    print: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Also where events or parked entries are left, which are lost then
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let loaded = context.load()?;
    let (config, source) = super::install::chosen(&loaded, arguments.source.as_deref())?;
    let database = block_on(open(config, source))??;
    if arguments.print {
        context.output.print(&block_on(database.uninstall_plan())??)?;
        return Ok(Done::Well);
    }
    if block_on(database.installed())??.is_none() {
        context.output.note(&format!("nothing is installed in `{}`", source.name));
        return Ok(Done::Well);
    }
    let question = format!("In {}: remove the tables honeyflow_* and hive_*, and our triggers.", database.place());
    if !arguments.yes && !confirm(&question, context)? {
        return Ok(Done::Negative);
    }
    block_on(database.uninstall(arguments.force))??;
    context.output.note(&format!("{}: removed", source.name));
    Ok(Done::Well)
}
