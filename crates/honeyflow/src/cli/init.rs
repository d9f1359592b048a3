//! `honeyflow init`: reads a database's schema, writes a configuration for it and prints the statements that installing
//! it will run. Nothing in the database is changed.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Context, Done, Fault, block_on,
    source::install::{chosen, wanted},
};
use crate::{
    config::{self, Loaded, Url, name_of, secret},
    init::{
        Proposal,
        write::{Frame, toml},
    },
    registry::{self, Database},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The database: sqlite:PATH, or where its address is kept: env:NAME, file:PATH
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Where documents go; tantivy:NAME puts NAME_ before the names of the indexes
    #[arg(value_name = "SINK", default_value = "tantivy:")]
    sink: String,
    /// The file to write; default: that of --config
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
    /// Print the configuration instead of writing it
    #[arg(long)]
    print: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let out = arguments.out.clone().unwrap_or_else(|| context.file.clone());
    if !arguments.print && !arguments.force && out.exists() {
        return Err(Fault::usage(
            format!("{} is there already", out.display()),
            "--force overwrites it, --print shows the proposal, --out writes another file",
        ));
    }
    let prefix = index_prefix(&arguments.sink)?;
    let url = source_url(&arguments.database)?;
    let name = source_name(&arguments.database);
    let database = block_on(Database::at(&url, &name, 1, Path::new("")))??;
    let proposal = block_on(database.propose())??;
    if proposal.entities.is_empty() {
        let found =
            if proposal.skipped.is_empty() { "the database has no tables" } else { "no table can be an entity" };
        tell_skipped(&proposal, context);
        return Err(Fault::usage(found, "a table needs a primary key; create one first, then run init again"));
    }
    let command = format!("honeyflow init {}", secret::redact(&arguments.database));
    let url = seen_from(&arguments.database, &out);
    let page = toml(&proposal, &Frame { command: &command, source: &name, url: &url, index_prefix: &prefix });
    let loaded = prove(&out, &page);
    if arguments.print {
        context.output.print(&page)?;
        tell_skipped(&proposal, context);
        return Ok(Done::Well);
    }
    // before anything is written: what does not fit the database would be a mistake of ours
    let (config, source) = chosen(&loaded, None)?;
    let statements = database.plan(&wanted(&loaded, config, source, &database)?)?;
    write_file(&out, &page, arguments.force)?;
    context.output.print(&statements)?;
    context.output.note(&format!(
        "{}: {} entities, each with a sink and a workflow",
        out.display(),
        proposal.entities.len()
    ));
    tell_skipped(&proposal, context);
    tell_next(&proposal, &out, context);
    Ok(Done::Well)
}

/// # Panics
/// If our own reader would refuse what we wrote.
fn prove(out: &Path, page: &str) -> Loaded {
    let loaded = match config::parse(out, page.to_owned(), &registry::kinds()) {
        Ok(loaded) => loaded,
        Err(report) => panic!("init wrote a file that is no TOML:\n{}", report.text(false)),
    };
    let report = loaded.report(Vec::new());
    assert!(report.errors() == 0, "init wrote a file that cannot be read:\n{}", report.text(false));
    loaded
}

fn index_prefix(sink: &str) -> Result<String, Fault> {
    let help = "tantivy:NAME with letters, digits, `_` and `-`; each entity gets an index of its own";
    match sink.strip_prefix("tantivy:") {
        Some("") => Ok(String::new()),
        Some(name) if name.len() <= 30 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') => {
            Ok(format!("{name}_"))
        }
        Some(_) => Err(Fault::usage(format!("`{}` cannot be the name of an index", secret::redact(sink)), help)),
        None => Err(Fault::usage(format!("this build has no sink for `{}`", secret::redact(sink)), help)),
    }
}

fn source_url(written: &str) -> Result<Url, Fault> {
    if secret::has_password(written) {
        let help = "a password on the command line can be seen by others: export DATABASE_URL=…, then honeyflow init env:DATABASE_URL";
        return Err(Fault::usage("the address holds a password", help));
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

/// `sqlite:data/shop.db` → `shop`.
fn source_name(written: &str) -> String {
    let path = written.strip_prefix("sqlite:").unwrap_or("database");
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    name_of(&stem.unwrap_or_else(|| "database".to_owned()))
}

/// The address as it stands in the file: relative paths are relative to the file, not to where we are.
fn seen_from(written: &str, out: &Path) -> String {
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
    // without --force the file must not have come into being meanwhile
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written = options.open(out).and_then(|mut file| file.write_all(page.as_bytes()));
    written.map_err(|error| {
        Fault::usage(format!("{} cannot be written: {error}", out.display()), "--out names another file")
    })
}

fn tell_skipped(proposal: &Proposal, context: &Context) {
    if proposal.skipped.is_empty() {
        return;
    }
    context.output.note("left out:");
    let width = proposal.skipped.iter().map(|skipped| skipped.what.chars().count()).max().unwrap_or(0).min(40);
    for skipped in &proposal.skipped {
        context.output.note(&format!("  {:<width$}  {}", skipped.what, skipped.why));
    }
}

fn tell_next(proposal: &Proposal, out: &Path, context: &Context) {
    let config =
        if out == Path::new("honeyflow.toml") { String::new() } else { format!(" --config {}", out.display()) };
    let first = proposal.entities.first().map_or("", |entity| &entity.name);
    context.output.note(&format!(
        "next:\n  \
         honeyflow check{config}                     whether it fits, and what it amounts to\n  \
         honeyflow source install{config}            makes the tables and triggers printed above, after asking\n  \
         honeyflow start{config}                     does so too, then runs\n  \
         honeyflow search {first}{config}"
    ));
}
