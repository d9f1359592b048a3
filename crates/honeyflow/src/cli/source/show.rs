//! `honeyflow source show`: shows the captured tables of a source and whether their triggers are up to date.

use honeyflow_store::{CaptureTable, Columns};
use serde::Serialize;

use super::install::wanted_tables;
use crate::{
    cli::{Context, Fault, Outcome, block_on, open},
    escape,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Source, as in [source.NAME]; optional if there is only one
    source: Option<String>,
}

#[derive(Serialize)]
struct Row {
    table: String,
    key: Vec<String>,
    columns: Vec<String>,
    carried: Vec<String>,
    triggers: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let loaded = context.load()?;
    let (config, source) = super::install::select_source(&loaded, arguments.source.as_deref())?;
    let database = block_on(open(config, source))??;
    let wanted = wanted_tables(&loaded, config, source, &database)?;
    let installed = block_on(database.installed())??;
    let drifts = match installed {
        Some(_) => block_on(database.drift(wanted.clone()))??.drifts,
        None => Vec::new(),
    };
    let rows: Vec<Row> = wanted
        .iter()
        .map(|table| {
            let drifted = drifts.iter().filter(|drift| drift.table.eq_ignore_ascii_case(&table.table)).count();
            let triggers = match (&installed, drifted) {
                (None, _) => "not installed".to_owned(),
                (Some(_), 0) => "as they should be".to_owned(),
                (Some(_), drifted) => format!("{drifted} missing or changed: honeyflow source upgrade"),
            };
            row(table, triggers)
        })
        .collect();
    context.output.rows(["table", "key", "columns", "carried", "triggers"], &rows, |row| {
        [&row.table, &row.key.join(", "), &row.columns.join(", "), &row.carried.join(", "), &row.triggers]
            .map(|cell| escape::line(cell).into_owned())
    })?;
    Ok(Outcome::Success)
}

fn row(table: &CaptureTable, triggers: String) -> Row {
    Row {
        table: table.table.clone(),
        key: table.key.iter().map(|column| column.name.clone()).collect(),
        columns: match &table.watched {
            Columns::All => vec!["*".to_owned()],
            Columns::Some(names) => names.clone(),
        },
        carried: table.carried.clone(),
        triggers,
    }
}
