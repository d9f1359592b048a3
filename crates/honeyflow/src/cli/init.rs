//! `honeyflow init`: reads the schema of a database, writes a configuration for it and prints the SQL statements that
//! `source install` will run. It changes nothing in the database.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Context, Fault, Outcome, block_on,
    source::install::{select_source, wanted_tables},
};
use crate::{
    config::{self, LoadedConfig, Url, name_of, secret},
    init::{
        Proposal,
        write::{Frame, toml},
    },
    registry::{self, Database},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Database: sqlite:PATH, or a reference to its address: env:NAME, file:PATH
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Sink for the documents; tantivy:NAME prefixes the index names with NAME_
    #[arg(value_name = "SINK", default_value = "tantivy:")]
    sink: String,
    /// File to write [default: the file of --config]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Print the configuration instead of writing it
    #[arg(long)]
    print: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let out = arguments.out.clone().unwrap_or_else(|| context.file.clone());
    if !arguments.print && !arguments.force && out.exists() {
        return Err(Fault::usage(
            format!("{} already exists", out.display()),
            "pass --force to overwrite it, --print to show the configuration, or --out to write another file",
        ));
    }
    let prefix = index_prefix(&arguments.sink)?;
    let url = source_url(&arguments.database)?;
    let name = source_name(&arguments.database);
    let database = block_on(Database::at(&url, &name, 1, Path::new("")))??;
    let proposal = block_on(database.propose())??;
    if proposal.entities.is_empty() {
        let found =
            if proposal.skipped.is_empty() { "the database has no tables" } else { "no table can become an entity" };
        print_skipped(&proposal, context);
        return Err(Fault::usage(found, "add a primary key to a table, then run init again"));
    }
    let command = format!("honeyflow init {}", secret::redact(&arguments.database));
    let url = relative_to_file(&arguments.database, &out);
    let page = toml(&proposal, &Frame { command: &command, source: &name, url: &url, index_prefix: &prefix });
    let loaded = parse_own_page(&out, &page);
    if arguments.print {
        context.output.print(&page)?;
        print_skipped(&proposal, context);
        return Ok(Outcome::Success);
    }
    // Checked before the file is written: a proposal that does not fit the database is a bug in `init`.
    let (config, source) = select_source(&loaded, None)?;
    let statements = block_on(database.plan(&wanted_tables(&loaded, config, source, &database)?))??;
    write_file(&out, &page, arguments.force)?;
    context.output.print(&statements)?;
    context.output.note(&format!(
        "{}: {} entities, each with a sink and a workflow",
        out.display(),
        proposal.entities.len()
    ));
    print_skipped(&proposal, context);
    print_next_steps(&proposal, &out, context);
    Ok(Outcome::Success)
}

/// Reads the proposed configuration back.
///
/// # Panics
/// If the configuration reader refuses it: that is a bug in `init`.
fn parse_own_page(out: &Path, page: &str) -> LoadedConfig {
    let loaded = match config::parse(out, page.to_owned(), &registry::kinds()) {
        Ok(loaded) => loaded,
        Err(report) => panic!("init wrote a file that is not TOML:\n{}", report.text(false)),
    };
    let report = loaded.report(Vec::new());
    assert!(report.errors() == 0, "init wrote a file that cannot be read:\n{}", report.text(false));
    loaded
}

fn index_prefix(sink: &str) -> Result<String, Fault> {
    let help = "tantivy:NAME with letters, digits, `_` and `-`; each entity gets its own index";
    match sink.strip_prefix("tantivy:") {
        Some("") => Ok(String::new()),
        Some(name) if name.len() <= 30 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') => {
            Ok(format!("{name}_"))
        }
        Some(_) => Err(Fault::usage(format!("`{}` cannot be the name of an index", secret::redact(sink)), help)),
        None => Err(Fault::usage(format!("this build has no sink for `{}`", secret::redact(sink)), help)),
    }
}

/// A database server whose schema this build cannot read.
struct UnreadServer {
    name: &'static str,
    help: &'static str,
}

fn server(address: &str) -> Option<UnreadServer> {
    match address.split_once(':')?.0 {
        "postgres" | "postgresql" => Some(UnreadServer { name: "PostgreSQL", help: registry::POSTGRESQL_BY_HAND }),
        "mysql" | "mariadb" => Some(UnreadServer {
            name: "MySQL and MariaDB",
            help: "they can hold only a hive so far ([hive] url), not the rows of a source; \
                   see docs/guide/several-nodes.md",
        }),
        _ => None,
    }
}

fn source_url(written: &str) -> Result<Url, Fault> {
    if secret::has_password(written) {
        let help = "other users can see a password on the command line: export DATABASE_URL=…, then honeyflow init env:DATABASE_URL";
        return Err(Fault::usage("the address contains a password", help));
    }
    if let Some(server) = server(written) {
        let message = format!("`honeyflow init` does not read {} yet", server.name);
        return Err(Fault::usage(message, server.help));
    }
    if !["sqlite:", "env:", "file:"].iter().any(|scheme| written.starts_with(scheme)) {
        let help = match Path::new(written).exists() {
            true => format!("did you mean sqlite:{written}?"),
            false => "sqlite:shop.db, env:DATABASE_URL or file:database-url".to_owned(),
        };
        return Err(Fault::usage(format!("`{}` is not the address of a database", secret::redact(written)), help));
    }
    Ok(Url::read(written, Path::new("")))
}

/// Derives the source's name from its address: `sqlite:data/shop.db` → `shop`.
fn source_name(written: &str) -> String {
    let path = written.strip_prefix("sqlite:").unwrap_or("database");
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    name_of(&stem.unwrap_or_else(|| "database".to_owned()))
}

/// The address as written into the configuration: relative paths there are relative to the file, not to the current
/// folder.
fn relative_to_file(written: &str, out: &Path) -> String {
    let elsewhere = out.parent().is_some_and(|folder| folder != Path::new(""));
    for scheme in ["sqlite:", "file:"] {
        if let Some(path) = written.strip_prefix(scheme).filter(|_| elsewhere)
            && let Ok(absolute) = std::path::absolute(path)
        {
            return format!("{scheme}{}", absolute.display());
        }
    }
    written.to_owned()
}

fn write_file(out: &Path, page: &str, force: bool) -> Result<(), Fault> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    // Without --force, fail if another process has created the file in the meantime.
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written = options.open(out).and_then(|mut file| file.write_all(page.as_bytes()));
    written.map_err(|error| {
        Fault::usage(format!("cannot write {}: {error}", out.display()), "pass --out to write another file")
    })
}

fn print_skipped(proposal: &Proposal, context: &Context) {
    if proposal.skipped.is_empty() {
        return;
    }
    context.output.note("skipped:");
    let width = proposal.skipped.iter().map(|skipped| skipped.what.chars().count()).max().unwrap_or(0).min(40);
    for skipped in &proposal.skipped {
        context.output.note(&format!("  {:<width$}  {}", skipped.what, skipped.why));
    }
}

fn print_next_steps(proposal: &Proposal, out: &Path, context: &Context) {
    let config =
        if out == Path::new("honeyflow.toml") { String::new() } else { format!(" --config {}", out.display()) };
    let first = proposal.entities.first().map_or("", |entity| &entity.name);
    context.output.note(&format!(
        "next:\n  \
         honeyflow check{config}                     check the configuration against the database\n  \
         honeyflow source install{config}            create the tables and triggers printed above, after asking\n  \
         honeyflow start{config}                     create them too, then run the node\n  \
         honeyflow search {first}{config}"
    ));
}
