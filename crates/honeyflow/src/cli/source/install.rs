//! `honeyflow source install` and `upgrade`: the same comparison of what is wanted with what is there; a second time,
//! nothing changes.

use honeyflow_source_outbox::capture_tables;
use honeyflow_store::CaptureTable;

use crate::{
    cli::{Context, Done, Fault, block_on, confirm, no_such, open},
    config::{Config, Loaded, SourceConfig},
    registry::{Database, bind},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The source, as in [source.NAME]; may be left out where there is only one
    source: Option<String>,
    /// Print the statements and change nothing
    #[arg(long)]
    print: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: &Arguments, upgrade: bool, context: &Context) -> Result<Done, Fault> {
    let loaded = context.load()?;
    let (config, source) = chosen(&loaded, arguments.source.as_deref())?;
    let database = block_on(open(config, source))??;
    let wanted = wanted(&loaded, config, source, &database)?;
    if arguments.print {
        context.output.print(&database.plan(&wanted)?)?;
        return Ok(Done::Well);
    }
    let installed = block_on(database.installed())??;
    if upgrade && installed.is_none() {
        return Err(Fault::usage(format!("nothing is installed in `{}` yet", source.name), "honeyflow source install"));
    }
    let journal = block_on(database.journal_mode())??;
    let set_wal = journal.as_deref().is_some_and(|journal| journal != "wal");
    if installed.is_none() || set_wal {
        let tables: Vec<&str> = wanted.iter().map(|table| table.table.as_str()).collect();
        let mut question = format!("In {}: make the tables honeyflow_*", database.place());
        if database.captures() {
            question.push_str(&format!(", and triggers on {}", tables.join(", ")));
        }
        question.push('.');
        if let Some(journal) = journal.filter(|_| set_wal) {
            question.push_str(&format!(
                "\nSwitch its journal from `{journal}` to WAL, so that readers and writers do not wait for each other; the file remembers it."
            ));
        }
        if !arguments.yes && !confirm(&question, context)? {
            return Ok(Done::Negative);
        }
    }
    let changes = block_on(database.install(wanted, set_wal))??;
    if !database.captures() {
        let made = if installed.is_some() { "the tables are there" } else { "tables made" };
        let Some(now) = block_on(database.installed())?? else { return Ok(Done::Negative) };
        let note = "nothing captures changes here: write events with them, \
                    insert into honeyflow_outbox(entity, entity_key) values ('book', '42')";
        context
            .output
            .note(&format!("{}: {made}, version {}, {} shards; {note}", source.name, now.version, now.shards));
        return Ok(Done::Well);
    }
    context.output.note(&format!(
        "{}: {} triggers made, {} replaced, {} removed, {} as they were",
        source.name,
        changes.created.len(),
        changes.replaced.len(),
        changes.dropped.len(),
        changes.unchanged
    ));
    Ok(Done::Well)
}

/// The source that was named, or the only one.
pub fn chosen<'a>(loaded: &'a Loaded, name: Option<&str>) -> Result<(&'a Config, &'a SourceConfig), Fault> {
    let config = loaded.config.as_ref().ok_or_else(|| Fault::Config(Box::new(loaded.report(Vec::new()))))?;
    let names = || config.sources.iter().map(|source| &*source.name);
    let source = match (name, &config.sources[..]) {
        (Some(name), _) => config.source(name).ok_or_else(|| no_such("source", name, names()))?,
        (None, [only]) => only,
        (None, []) => {
            return Err(Fault::usage("the configuration has no source", "[source.NAME] with url = \"sqlite:…\""));
        }
        (None, _) => return Err(Fault::usage("which source?", names().collect::<Vec<_>>().join(", "))),
    };
    Ok((config, source))
}

/// What must be captured; whatever does not fit the database ends the command with its place in the file.
pub fn wanted(
    loaded: &Loaded,
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
