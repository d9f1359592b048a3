//! `honeyflow source install` and `honeyflow source upgrade`: compare the wanted tables and triggers with the existing
//! ones and make the difference. Running it a second time changes nothing.

use honeyflow_source_outbox::capture_tables;
use honeyflow_store::CaptureTable;

use crate::{
    cli::{Context, Fault, Outcome, block_on, confirm, no_such, open},
    config::{Config, LoadedConfig, SourceConfig},
    registry::{Database, bind},
};

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
}

pub fn run(arguments: &Arguments, upgrade: bool, context: &Context) -> Result<Outcome, Fault> {
    let loaded = context.load()?;
    let (config, source) = select_source(&loaded, arguments.source.as_deref())?;
    let database = block_on(open(config, source))??;
    let wanted = wanted_tables(&loaded, config, source, &database)?;
    if arguments.print {
        context.output.print(&block_on(database.plan(&wanted))??)?;
        return Ok(Outcome::Success);
    }
    let installed = block_on(database.installed())??;
    if upgrade && installed.is_none() {
        return Err(Fault::usage(
            format!("source `{}` is not installed yet", source.name),
            "run `honeyflow source install`",
        ));
    }
    let journal = block_on(database.journal_mode())??;
    let set_wal = journal.as_deref().is_some_and(|journal| journal != "wal");
    if installed.is_none() || set_wal {
        let tables: Vec<&str> = wanted.iter().map(|table| table.table.as_str()).collect();
        let mut question =
            format!("In {}: create the tables honeyflow_*, and triggers on {}.", database.place(), tables.join(", "));
        if let Some(journal) = journal.filter(|_| set_wal) {
            question.push_str(&format!(
                "\nSwitch its journal from `{journal}` to WAL, so that readers and writers do not block each other; the setting is stored in the file."
            ));
        }
        if !arguments.yes && !confirm(&question, context)? {
            return Ok(Outcome::Negative);
        }
    }
    let changes = block_on(database.install(wanted, set_wal))??;
    context.output.note(&format!(
        "{}: {} triggers created, {} replaced, {} removed, {} unchanged",
        source.name,
        changes.created.len(),
        changes.replaced.len(),
        changes.dropped.len(),
        changes.unchanged
    ));
    Ok(Outcome::Success)
}

/// Returns the source with this name, or the only one if no name is given.
pub fn select_source<'a>(
    loaded: &'a LoadedConfig,
    name: Option<&str>,
) -> Result<(&'a Config, &'a SourceConfig), Fault> {
    let config = loaded.config.as_ref().ok_or_else(|| Fault::Config(Box::new(loaded.report(Vec::new()))))?;
    let names = || config.sources.iter().map(|source| &*source.name);
    let source = match (name, &config.sources[..]) {
        (Some(name), _) => config.source(name).ok_or_else(|| no_such("source", name, names()))?,
        (None, [only]) => only,
        (None, []) => {
            return Err(Fault::usage("the configuration has no source", "add [source.NAME] with url = \"sqlite:…\""));
        }
        (None, _) => {
            return Err(Fault::usage(
                "no source given",
                format!("name one of {}", names().collect::<Vec<_>>().join(", ")),
            ));
        }
    };
    Ok((config, source))
}

/// The tables to capture. An entity that does not fit the database ends the command, with its place in the file.
pub fn wanted_tables(
    loaded: &LoadedConfig,
    config: &Config,
    source: &SourceConfig,
    database: &Database,
) -> Result<Vec<CaptureTable>, Fault> {
    let entities: Vec<_> = config.entities_of(&source.name).collect();
    let (bound, problems) = block_on(bind(database, &entities))?;
    if !problems.is_empty() {
        return Err(Fault::Config(Box::new(loaded.report(problems))));
    }
    let entities: Vec<_> = bound.into_iter().map(|bound| bound.entity).collect();
    Ok(capture_tables(&entities))
}
