//! `honeyflow parked list`: lists parked events. It reads page by page, so that the list can have any length.

use honeyflow_store::{Admin, AdminReply, admin::ParkedRow};
use serde::Serialize;

use super::Filter;
use crate::cli::{Context, Fault, Outcome, block_on, open, output::brief, unexpected};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// Maximum number of events to show
    #[arg(long, short = 'n', default_value = "50", conflicts_with = "all")]
    limit: u32,
    /// Show all events
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct Row {
    source: String,
    #[serde(flatten)]
    parked: ParkedRow,
}

const PAGE: u32 = 500;

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let mut left = if arguments.all { u32::MAX } else { arguments.limit };
    for source in arguments.filter.sources(&config)? {
        let database = block_on(open(&config, source))??;
        let mut after = 0;
        while left > 0 {
            let limit = left.min(PAGE);
            let request = Admin::Parked { filter: arguments.filter.parked(None), after, limit };
            let rows = match block_on(database.admin(request))?? {
                AdminReply::Parked(rows) => rows,
                other => return Err(unexpected(&other).into()),
            };
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            after = rows.last().map_or(after, |row| row.id);
            left -= count.min(left);
            let rows: Vec<Row> =
                rows.into_iter().map(|parked| Row { source: source.name.to_string(), parked }).collect();
            print(&rows, context)?;
            if count < limit {
                break;
            }
        }
    }
    if left == 0 {
        context.output.note("there may be more events; pass --all to show all");
    }
    Ok(Outcome::Success)
}

fn print(rows: &[Row], context: &Context) -> Result<(), Fault> {
    context.output.rows(
        ["source", "id", "entity", "key", "workflow", "step", "attempts", "code", "error"],
        rows,
        |row| {
            let parked = &row.parked;
            [
                row.source.clone(),
                parked.id.to_string(),
                parked.entity.clone(),
                brief(&parked.key, 40),
                parked.workflow.clone().unwrap_or_else(|| "all".to_owned()),
                parked.step.clone(),
                parked.attempts.to_string(),
                parked.code.clone(),
                brief(&parked.message, 80),
            ]
        },
    )
}
