//! `honeyflow parked retry` and `drop`: by number, by filter, or all of them, which must be said.

use honeyflow_store::{
    Admin, AdminReply,
    admin::{Again, ParkedFilter},
};

use super::Filter;
use crate::cli::{Context, Done, Fault, block_on, confirm, open, unexpected};

#[derive(clap::Args)]
pub struct Arguments {
    /// The number that `parked list` shows
    #[arg(conflicts_with_all = ["entity", "key", "workflow", "code", "all"])]
    id: Option<i64>,
    #[command(flatten)]
    filter: Filter,
    /// Every one
    #[arg(long)]
    all: bool,
    /// Do not ask before dropping
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    Retry,
    Drop,
}

pub fn run(arguments: &Arguments, how: How, context: &Context) -> Result<Done, Fault> {
    if arguments.id.is_none() && arguments.filter.is_empty() && !arguments.all {
        return Err(Fault::usage(
            "which ones?",
            "a number, a filter such as --entity book or --code bad-field, or --all",
        ));
    }
    let config = context.config()?;
    let sources = arguments.filter.sources(&config)?;
    if arguments.id.is_some() && sources.len() > 1 {
        return Err(Fault::usage("numbers are counted in each source", "--source NAME says which"));
    }
    let question = "Drop them for good? Their changes will not be worked on.";
    if how == How::Drop && !arguments.yes && !confirm(question, context)? {
        return Ok(Done::Negative);
    }
    let mut total = 0;
    for source in sources {
        let filter: ParkedFilter = arguments.filter.parked(arguments.id);
        let request = match how {
            How::Retry => Admin::RetryParked { filter, again: Again::GoOn },
            How::Drop => Admin::DropParked(filter),
        };
        match block_on(async { open(&config, source).await?.admin(request).await })?? {
            AdminReply::Count(count) => total += count,
            other => return Err(unexpected(&other).into()),
        }
    }
    let done = if how == How::Retry { "are events again" } else { "dropped" };
    context.output.note(&format!("{total} {done}"));
    Ok(if total == 0 { Done::Negative } else { Done::Well })
}
