//! The command line: `honeyflow NOUN VERB`. Each verb has its own file, which parses its arguments, calls the library
//! and prints the result.
//!
//! Exit codes: 0 success; 1 a negative result or a failure; 2 wrong usage or a wrong configuration.

pub mod check;
pub mod config_file;
pub mod demo;
pub mod explain;
pub mod hive;
pub mod init;
pub mod limit;
pub mod node_client;
pub mod output;
mod pace;
pub mod parked;
pub mod pool;
mod progress;
pub mod reindex;
mod reload;
pub mod run;
pub mod search;
pub mod source;
pub mod start;
pub mod status;
pub mod verify;
mod wait_reason;
pub mod worker;
pub mod workflow;

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
};

use clap::{Parser, Subcommand};
use honeyflow_runtime::Failure;
use honeyflow_store::AdminReply;
use honeyflow_workflow::problem::nearest;

use crate::{
    codes,
    config::{self, Config, LoadedConfig, Report, SourceConfig},
    node::{secrets, steps},
    registry::{self, Database},
};
use output::{Colour, Format, Output};

/// Turn every committed database change into finished work: search documents, HTTP calls, events
#[derive(Parser)]
#[command(name = "honeyflow", version, propagate_version = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args)]
struct Global {
    /// Configuration file
    #[arg(long, short, global = true, value_name = "FILE", default_value = "honeyflow.toml", env = "HONEYFLOW_CONFIG")]
    config: PathBuf,
    /// Output format
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    output: Format,
    /// When to use colours; `auto` honours NO_COLOR
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
}

#[derive(Subcommand)]
enum Command {
    /// Run a demo: a bookshop, live changes, and a comparison of every document with its row
    Demo(demo::Arguments),
    /// Write a configuration from the schema of a database
    Init(init::Arguments),
    /// Check the configuration against the databases and summarise it
    Check(check::Arguments),
    /// Compile parts of the configuration for other programs
    #[command(subcommand)]
    Config(config_file::Verb),
    /// Run a node until it receives SIGTERM or Ctrl-C
    Start(start::Arguments),
    /// Show the events that wait in each source
    Status(status::Arguments),
    /// Install, inspect and remove outbox and triggers in source databases
    #[command(subcommand)]
    Source(source::Verb),
    /// Inspect, pause and resume workflows
    #[command(subcommand)]
    Workflow(workflow::Verb),
    /// Inspect, cancel and replay runs
    #[command(subcommand)]
    Run(run::Verb),
    /// List workers and the step kinds they run
    #[command(subcommand)]
    Worker(worker::Verb),
    /// Inspect the cluster of nodes, transfer leases and drain nodes
    #[command(subcommand)]
    Hive(hive::Verb),
    /// Inspect and change cluster-wide rate and concurrency limits
    #[command(subcommand)]
    Limit(limit::Verb),
    /// Inspect, drain and activate connection pools to Cassandra clusters
    #[command(subcommand)]
    Pool(pool::Verb),
    /// List, retry and drop parked events
    #[command(subcommand)]
    Parked(parked::Verb),
    /// Load and index every row of an entity again, at a lower priority than live changes
    Reindex(reindex::Arguments),
    /// Compare every document with its row; --repair fixes differences
    Verify(verify::Arguments),
    /// Search an index
    Search(search::Arguments),
    /// Explain the state of one key (its events, runs, failures and documents), or a code
    Explain(explain::Arguments),
}

/// The result of a command that ran to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Success,
    /// For example: differences were found, or a check failed.
    Negative,
}

/// The reason why a command did not run to its end.
pub enum Fault {
    Usage {
        message: String,
        help: String,
    },
    Config(Box<Report>),
    Failed(Failure),
    /// The reader of stdout has closed the pipe.
    Closed,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault::Failed(failure)
    }
}

impl Fault {
    pub fn usage(message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::Usage { message: message.into(), help: help.into() }
    }

    /// The text for a log line.
    pub fn message(&self) -> String {
        match self {
            Fault::Usage { message, help } => format!("{message}; {help}"),
            Fault::Config(report) => report.text(false),
            Fault::Failed(failure) => config::secret::redact(&failure.message),
            Fault::Closed => "stdout is closed".to_owned(),
        }
    }
}

/// The global options of every command.
pub struct Context {
    pub file: PathBuf,
    pub output: Output,
}

impl Context {
    pub fn load(&self) -> Result<LoadedConfig, Fault> {
        config::load(&self.file, &registry::kinds()).map_err(|report| Fault::Config(Box::new(report)))
    }

    /// Loads the configuration; any error in it ends the command.
    pub fn config(&self) -> Result<Config, Fault> {
        let mut loaded = self.load()?;
        loaded.config.take().ok_or_else(|| Fault::Config(Box::new(loaded.report(Vec::new()))))
    }

    /// Loads the configuration for a command that runs a node. Also checks that every secret can be read and every step
    /// can be built, before anything is installed.
    pub fn config_to_run(&self) -> Result<Config, Fault> {
        let mut loaded = self.load()?;
        let mut problems = loaded.config.as_ref().map_or_else(Vec::new, steps::problems);
        problems.extend(loaded.config.iter().flat_map(secrets::unreadable).map(|secret| secret.error()));
        match loaded.config.take() {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(Fault::Config(Box::new(loaded.report(problems)))),
        }
    }
}

/// Opens the database of a source.
pub async fn open(config: &Config, source: &SourceConfig) -> Result<Database, Failure> {
    Database::open(source, config.file.parent().unwrap_or(Path::new(""))).await
}

/// The failure for a reply that does not fit the request: a bug in Honeyflow.
pub fn unexpected(reply: &AdminReply) -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, format!("the store sent a reply that does not fit the request: {reply:?}"))
}

pub fn no_such<'a>(noun: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Fault {
    let names: Vec<&str> = names.collect();
    let help = match nearest(name, names.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if names.is_empty() => format!("the configuration has no [{noun}.NAME]"),
        None => format!("available: {}", names.join(", ")),
    };
    Fault::usage(format!("there is no {noun} `{name}`"), help)
}

/// Asks the user for confirmation. Without a terminal it fails, and the user has to pass --yes.
pub fn confirm(question: &str, context: &Context) -> Result<bool, Fault> {
    context.output.note(question);
    if !io::stdin().is_terminal() {
        return Err(Fault::usage("confirmation needed: stdin is not a terminal", "pass --yes"));
    }
    let _ = write!(io::stderr(), "Continue? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Runs a future to its end, for commands that run no node. All calls of a command share one runtime, because the
/// background tasks of an open store live in it.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    static RUNTIME: OnceLock<std::io::Result<tokio::runtime::Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build());
    let runtime = runtime.as_ref();
    let runtime = runtime
        .map_err(|error| Failure::retry(codes::NO_RUNTIME, format!("cannot start the async runtime: {error}")))?;
    Ok(runtime.block_on(work))
}

/// Runs the future of a command that runs a node: sets up logging and a multi-threaded runtime.
fn serve(output: &Output, work: impl Future<Output = Result<Outcome, Fault>>) -> Result<Outcome, Fault> {
    let colours = output.colours_err();
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("HONEYFLOW_LOG").unwrap_or_else(|_| "info,tantivy=warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::retry(codes::NO_RUNTIME, format!("cannot start the async runtime: {error}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

pub fn run() -> ExitCode {
    let Arguments { global, command } = Arguments::parse();
    let context = Context { file: global.config, output: Output { format: global.output, colour: global.color } };
    if !matches!(command, Command::Init(_)) {
        // The data folder contains documents, so only this user may read new files there; `init` writes a
        // configuration, which others may read.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    }
    let done = match command {
        Command::Run(verb) => run::run(&verb, &context),
        Command::Worker(verb) => worker::run(&verb, &context),
        Command::Reindex(arguments) => serve(&context.output, reindex::run(arguments, &context)),
        Command::Verify(arguments) => serve(&context.output, verify::run(arguments, &context)),
        Command::Demo(arguments) => serve(&context.output, demo::run(arguments, &context)),
        Command::Start(arguments) => serve(&context.output, start::run(arguments, &context)),
        Command::Init(arguments) => init::run(&arguments, &context),
        Command::Config(verb) => config_file::run(&verb, &context),
        Command::Check(arguments) => check::run(&arguments, &context),
        Command::Status(arguments) => status::run(&arguments, &context),
        Command::Source(verb) => source::run(&verb, &context),
        Command::Workflow(verb) => workflow::run(&verb, &context),
        Command::Hive(verb) => hive::run(&verb, &context),
        Command::Limit(verb) => limit::run(&verb, &context),
        Command::Pool(verb) => pool::run(&verb, &context),
        Command::Parked(verb) => parked::run(&verb, &context),
        Command::Search(arguments) => search::run(&arguments, &context),
        Command::Explain(arguments) => explain::run(&arguments, &context),
    };
    match done {
        Ok(Outcome::Success) | Err(Fault::Closed) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Err(fault) => print_fault(fault, context.output),
    }
}

/// Codes of failures that the user fixes in the configuration file: they exit with 2.
const WRONG_CONFIGURATION: &[&str] = &[codes::DOES_NOT_FIT, codes::BAD_WORKFLOW, codes::BAD_STEP, codes::SHARD_COUNT];

fn print_fault(fault: Fault, output: Output) -> ExitCode {
    let (error, reset) = if output.colours_err() { ("\x1b[1;31merror", "\x1b[0m") } else { ("error", "") };
    match fault {
        Fault::Closed => ExitCode::SUCCESS,
        Fault::Usage { message, help } => {
            eprint!("{error}:{reset} ");
            output.note(&message);
            output.note(&format!("help: {help}"));
            ExitCode::from(2)
        }
        Fault::Config(report) => {
            eprint!("{}", report.text(output.colours_err()));
            ExitCode::from(2)
        }
        Fault::Failed(failure) => {
            eprint!("{error}[{}]:{reset} ", failure.code);
            output.note(&config::secret::redact(&failure.message));
            ExitCode::from(if WRONG_CONFIGURATION.contains(&&*failure.code) { 2 } else { 1 })
        }
    }
}
