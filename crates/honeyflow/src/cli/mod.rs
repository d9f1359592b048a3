//! The command line: noun, then verb. Each verb is a file: what was typed → what it means → call → print.
//!
//! Exit codes: 0 done; 1 a negative result, or it could not be done; 2 wrong usage or configuration.

pub mod ask;
pub mod check;
pub mod config_file;
pub mod demo;
pub mod explain;
pub mod hive;
pub mod init;
pub mod limit;
pub mod output;
mod pace;
pub mod parked;
pub mod pool;
pub mod reindex;
mod reload;
pub mod run;
pub mod search;
pub mod source;
pub mod start;
pub mod status;
pub mod verify;
mod why;
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
    config::{self, Config, Loaded, Report, SourceConfig},
    registry::{self, Database},
};
use output::{Colour, Format, Output};

/// Turns every committed change into finished work: rows into search documents, calls, events.
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
    /// The configuration file
    #[arg(long, short, global = true, value_name = "FILE", default_value = "honeyflow.toml", env = "HONEYFLOW_CONFIG")]
    config: PathBuf,
    /// How data is printed
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    output: Format,
    /// Whether it is coloured; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Colour,
}

#[derive(Subcommand)]
enum Command {
    /// See it work: a bookshop, live changes, and the proof that every document equals its row
    Demo(demo::Arguments),
    /// Read a database's schema and write a configuration for it
    Init(init::Arguments),
    /// Show everything that is wrong with the configuration, and what it amounts to
    Check(check::Arguments),
    /// The configuration as programs read it
    #[command(subcommand)]
    Config(config_file::Verb),
    /// Run a node until it is told to stop
    Start(start::Arguments),
    /// What waits in each source
    Status(status::Arguments),
    /// Where events come from
    #[command(subcommand)]
    Source(source::Verb),
    /// What is done when an entity changes
    #[command(subcommand)]
    Workflow(workflow::Verb),
    /// What is being done now, and what became of it
    #[command(subcommand)]
    Run(run::Verb),
    /// Who does it
    #[command(subcommand)]
    Worker(worker::Verb),
    /// The nodes: who is there, who is queen, who works on what
    #[command(subcommand)]
    Hive(hive::Verb),
    /// What all nodes together keep to
    #[command(subcommand)]
    Limit(limit::Verb),
    /// The clusters that sinks lie in, and the connections to them
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Events set aside with their error
    #[command(subcommand)]
    Parked(parked::Verb),
    /// Load and index every row of an entity again, behind live traffic
    Reindex(reindex::Arguments),
    /// Compare every document with its row
    Verify(verify::Arguments),
    /// Ask an index
    Search(search::Arguments),
    /// All that is known about one key
    Explain(explain::Arguments),
}

/// How a command ended, if it could be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    Well,
    /// Differences found, check failed.
    Negative,
}

/// Why a command could not be carried out.
pub enum Fault {
    Usage {
        message: String,
        help: String,
    },
    Config(Box<Report>),
    Failed(Failure),
    /// Whoever read our output has gone.
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

    /// For a log.
    pub fn message(&self) -> String {
        match self {
            Fault::Usage { message, help } => format!("{message}; {help}"),
            Fault::Config(report) => report.text(false),
            Fault::Failed(failure) => config::secret::redact(&failure.message),
            Fault::Closed => "nobody listens".to_owned(),
        }
    }
}

/// What every command knows.
pub struct Context {
    pub file: PathBuf,
    pub output: Output,
}

impl Context {
    pub fn load(&self) -> Result<Loaded, Fault> {
        config::load(&self.file, &registry::kinds()).map_err(|report| Fault::Config(Box::new(report)))
    }

    /// The configuration; anything wrong with it ends the command.
    pub fn config(&self) -> Result<Config, Fault> {
        let mut loaded = self.load()?;
        loaded.config.take().ok_or_else(|| Fault::Config(Box::new(loaded.report(Vec::new()))))
    }

    /// The same for whoever runs its steps: what cannot be built is known before anything is installed.
    pub fn config_to_run(&self) -> Result<Config, Fault> {
        let mut loaded = self.load()?;
        let problems = loaded.config.as_ref().map_or_else(Vec::new, crate::node::steps::problems);
        match loaded.config.take() {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(Fault::Config(Box::new(loaded.report(problems)))),
        }
    }
}

/// A source's database, as the configuration names it.
pub async fn open(config: &Config, source: &SourceConfig) -> Result<Database, Failure> {
    Database::open(source, config.file.parent().unwrap_or(Path::new(""))).await
}

/// A reply to another question: a bug of ours.
pub fn unexpected(reply: &AdminReply) -> Failure {
    Failure::fatal("misplaced-reply", format!("the store answered another question: {reply:?}"))
}

pub fn no_such<'a>(noun: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Fault {
    let names: Vec<&str> = names.collect();
    let help = match nearest(name, names.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if names.is_empty() => format!("the configuration has no [{noun}.NAME]"),
        None => format!("there is {}", names.join(", ")),
    };
    Fault::usage(format!("there is no {noun} `{name}`"), help)
}

/// Asks a person; without one, the answer must have been given with --yes.
pub fn confirm(question: &str, context: &Context) -> Result<bool, Fault> {
    context.output.note(question);
    if !io::stdin().is_terminal() {
        return Err(Fault::usage("nobody is here to be asked", "--yes agrees"));
    }
    let _ = write!(io::stderr(), "Go on? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// For commands that ask a store or a sink and are done. One runtime for all that a command asks: what a store has
/// started lives there.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    static RUNTIME: OnceLock<std::io::Result<tokio::runtime::Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build());
    let runtime = runtime.as_ref();
    let runtime =
        runtime.map_err(|error| Failure::retry("no-runtime", format!("no runtime can be started: {error}")))?;
    Ok(runtime.block_on(work))
}

/// For commands that run a node.
fn serve(output: &Output, work: impl Future<Output = Result<Done, Fault>>) -> Result<Done, Fault> {
    let colours = output.colours_err();
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("HONEYFLOW_LOG").unwrap_or_else(|_| "info,tantivy=warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::retry("no-runtime", format!("no runtime can be started: {error}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

pub fn run() -> ExitCode {
    let Arguments { global, command } = Arguments::parse();
    let context = Context { file: global.config, output: Output { format: global.output, colour: global.color } };
    if !matches!(command, Command::Init(_)) {
        // the data folder holds documents: what we make is nobody else's to read; a configuration is
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
        Ok(Done::Well) | Err(Fault::Closed) => ExitCode::SUCCESS,
        Ok(Done::Negative) => ExitCode::from(1),
        Err(fault) => tell(fault, context.output),
    }
}

/// Failures whose cure is to change the file.
const WRONG_CONFIGURATION: &[&str] = &["does-not-fit", "bad-workflow", "bad-step", "shard-count"];

fn tell(fault: Fault, output: Output) -> ExitCode {
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
