//! `honeyflow source uninstall`: removes the triggers and tables of Honeyflow. It refuses while events wait, because
//! they would be lost.

use crate::cli::{Context, Fault, Outcome, block_on, confirm, open};

#[derive(clap::Args)]
pub struct Arguments {
    /// Source, as in [source.NAME]; optional if there is only one
    source: Option<String>,
    /// Print the SQL statements without running them
    #[arg(long)]
    print: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Uninstall even if waiting or parked events are lost
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let loaded = context.load()?;
    let (config, source) = super::install::select_source(&loaded, arguments.source.as_deref())?;
    let database = block_on(open(config, source))??;
    if arguments.print {
        context.output.print(&block_on(database.uninstall_plan())??)?;
        return Ok(Outcome::Success);
    }
    if block_on(database.installed())??.is_none() {
        context.output.note(&format!("source `{}` is not installed", source.name));
        return Ok(Outcome::Success);
    }
    let question =
        format!("In {}: remove the tables honeyflow_* and hive_*, and the triggers of Honeyflow.", database.place());
    if !arguments.yes && !confirm(&question, context)? {
        return Ok(Outcome::Negative);
    }
    block_on(database.uninstall(arguments.force))??;
    context.output.note(&format!("{}: removed", source.name));
    Ok(Outcome::Success)
}
