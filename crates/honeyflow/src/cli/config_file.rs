//! `honeyflow config compile NAME`: writes the settings of a cluster's pool into a small checked file. The key
//! `compiled` of the section can name this file; other programs that use the pool can read it too.

use std::path::PathBuf;

use honeyflow_pool::settings::CompiledSettings;
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::{Context, Fault, Outcome, no_such};
use crate::codes;

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Compile the pool settings of a cluster into a file
    Compile(Arguments),
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Cluster, as in [cassandra.NAME]
    name: String,
    /// File to write [default: NAME.pool beside the configuration]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Serialize)]
struct CompileReport {
    cluster: String,
    file: String,
    bytes: usize,
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    let Verb::Compile(arguments) = verb;
    let config = context.config()?;
    let names = || config.clusters.iter().map(|cluster| &*cluster.name);
    let cluster = config.cluster(&arguments.name).ok_or_else(|| no_such("cassandra", &arguments.name, names()))?;
    if let Some(file) = &cluster.compiled {
        let message = format!("[cassandra.{}] already uses compiled settings: {}", cluster.name, file.display());
        return Err(Fault::usage(message, "compile from a configuration that contains the settings themselves"));
    }
    let compiled = CompiledSettings::build(&cluster.pool)
        .map_err(|error| Failure::fatal(codes::BAD_SETTINGS, format!("[cassandra.{}]: {error}", cluster.name)))?;
    let beside = config.file.with_file_name(format!("{}.pool", cluster.name));
    let file = arguments.to.clone().unwrap_or(beside);
    // Written under another name and then renamed, because a node may be reading the file.
    let aside = file.with_extension("pool.new");
    std::fs::write(&aside, compiled.bytes())
        .and_then(|()| std::fs::rename(&aside, &file))
        .map_err(|error| Failure::fatal(codes::CANNOT_WRITE, format!("cannot write {}: {error}", file.display())))?;
    let written = CompileReport {
        cluster: cluster.name.to_string(),
        file: file.display().to_string(),
        bytes: compiled.bytes().len(),
    };
    if context.output.is_json() {
        context.output.object(&written)?;
    } else {
        context.output.print(&format!("{}: {} bytes\n", crate::escape::line(&written.file), written.bytes))?;
    }
    Ok(Outcome::Success)
}
