//! `honeyflow config compile NAME`: the settings of a cluster's pool as a small checked file, for `compiled` in its
//! section, or for a program of one's own.

use std::path::PathBuf;

use honeyflow_pool::settings::Compiled;
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::{Context, Done, Fault, no_such};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Write the settings of a pool as a compiled dictionary
    Compile(Arguments),
}

#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster, as in [cassandra.NAME]
    name: String,
    /// The file to write; NAME.pool beside the configuration without it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Serialize)]
struct Written {
    cluster: String,
    file: String,
    bytes: usize,
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    let Verb::Compile(arguments) = verb;
    let config = context.config()?;
    let names = || config.clusters.iter().map(|cluster| &*cluster.name);
    let cluster = config.cluster(&arguments.name).ok_or_else(|| no_such("cassandra", &arguments.name, names()))?;
    if let Some(file) = &cluster.compiled {
        let message = format!("[cassandra.{}] names compiled settings already: {}", cluster.name, file.display());
        return Err(Fault::usage(message, "compile from a file in which the settings are written out"));
    }
    let compiled = Compiled::build(&cluster.pool)
        .map_err(|error| Failure::fatal("bad-settings", format!("[cassandra.{}]: {error}", cluster.name)))?;
    let beside = config.file.with_file_name(format!("{}.pool", cluster.name));
    let file = arguments.to.clone().unwrap_or(beside);
    // Whole or not at all: a node may be reading it.
    let aside = file.with_extension("pool.new");
    std::fs::write(&aside, compiled.bytes())
        .and_then(|()| std::fs::rename(&aside, &file))
        .map_err(|error| Failure::fatal("cannot-write", format!("{} cannot be written: {error}", file.display())))?;
    let written =
        Written { cluster: cluster.name.to_string(), file: file.display().to_string(), bytes: compiled.bytes().len() };
    if context.output.is_json() {
        context.output.object(&written)?;
    } else {
        context.output.print(&format!("{}: {} bytes\n", crate::escape::line(&written.file), written.bytes))?;
    }
    Ok(Done::Well)
}
