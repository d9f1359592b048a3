//! `honeyflow parked retry` and `honeyflow parked drop`: the user selects events by number, by filter, or explicitly
//! all.

use honeyflow_store::{
    Admin, AdminReply,
    admin::{ParkedFilter, RetryMode},
};

use super::Filter;
use crate::cli::{Context, Fault, Outcome, block_on, confirm, open, unexpected};

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of the event, as `parked list` shows it
    #[arg(conflicts_with_all = ["entity", "key", "workflow", "code", "all"])]
    id: Option<i64>,
    #[command(flatten)]
    filter: Filter,
    /// Select all parked events
    #[arg(long)]
    all: bool,
    /// Do not ask for confirmation before dropping
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Retry,
    Drop,
}

pub fn run(arguments: &Arguments, action: Action, context: &Context) -> Result<Outcome, Fault> {
    if arguments.id.is_none() && arguments.filter.is_empty() && !arguments.all {
        return Err(Fault::usage(
            "no events selected",
            "pass a number, a filter such as --entity book or --code bad-field, or --all",
        ));
    }
    let config = context.config()?;
    let sources = arguments.filter.sources(&config)?;
    if arguments.id.is_some() && sources.len() > 1 {
        return Err(Fault::usage("each source numbers its parked events itself", "pass --source NAME"));
    }
    let question = "Drop the events permanently? Their changes will not be processed.";
    if action == Action::Drop && !arguments.yes && !confirm(question, context)? {
        return Ok(Outcome::Negative);
    }
    let mut total = 0;
    for source in sources {
        let filter: ParkedFilter = arguments.filter.parked(arguments.id);
        let request = match action {
            Action::Retry => Admin::RetryParked { filter, mode: RetryMode::Continue },
            Action::Drop => Admin::DropParked(filter),
        };
        match block_on(async { open(&config, source).await?.admin(request).await })?? {
            AdminReply::Count(count) => total += count,
            other => return Err(unexpected(&other).into()),
        }
    }
    let done = if action == Action::Retry { "queued again" } else { "dropped" };
    context.output.note(&format!("{total} {done}"));
    Ok(if total == 0 { Outcome::Negative } else { Outcome::Success })
}
