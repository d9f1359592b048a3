//! `honeyflow source uninstall`: removes the triggers and tables of Honeyflow. It refuses while events wait, because
//! they would be lost.

use honeyflow_runtime::Failure;

use crate::{
    cli::{Context, Fault, Outcome, block_on, confirm, open},
    config::{Config, SourceConfig},
    registry::{self, Database},
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
    for line in block_on(leftovers(config, source, &database))?? {
        context.output.note(&line);
    }
    Ok(Outcome::Success)
}

/// What an uninstallation leaves, and what to remove of it before the next start.
async fn leftovers(config: &Config, source: &SourceConfig, database: &Database) -> Result<Vec<String>, Failure> {
    let feeds = |sink: &str| {
        let mut entities = config.entities_into(sink).into_iter();
        entities.any(|entity| config.source_of(&entity) == Some(&source.name))
    };
    let mut left = Vec::new();
    let mut folders = Vec::new();
    for sink in config.sinks.iter().filter(|sink| feeds(&sink.name)) {
        if let Some(table) = &sink.table {
            left.push(format!("  the rows of {}.{} in [cassandra.{}]", table.keyspace, table.table, table.cluster));
            continue;
        }
        let folder = registry::sink_options(sink, &config.node)?.folder;
        if folder.exists() {
            left.push(format!("  the index of [sink.{}], {}", sink.name, folder.display()));
            folders.push(folder.display().to_string());
        }
    }
    if config.node.data.exists() {
        left.push(format!("  the data folder, {}", config.node.data.display()));
    }
    if let Some(url) = &config.hive.url {
        left.push(format!("  the tables hive_* of [hive], in {url}"));
    }
    if database.journal_mode().await?.as_deref() == Some("wal") {
        left.push("  the journal of the database, which stays in WAL mode".to_owned());
    }
    if !left.is_empty() {
        left.insert(0, "left as they are:".to_owned());
    }
    if !folders.is_empty() {
        left.push(format!("before the next start, remove the indexes: rm -r {}", folders.join(" ")));
    }
    Ok(left)
}
