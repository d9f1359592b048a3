//! `honeyflow workflow …`: inspects, pauses and resumes workflows.

pub mod list;
pub mod pause;
pub mod show;
pub mod stored;

use super::{Context, Fault, Outcome};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List workflows with the entities that start them
    List(list::Arguments),
    /// Show the graph of a workflow, an earlier version, or the difference between two versions
    Show(show::Arguments),
    /// Pause a workflow: no further step starts, also in open runs; its events stay in the outbox
    Pause(pause::PauseArguments),
    /// Resume a paused workflow
    Resume(pause::ResumeArguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Pause(arguments) => pause::pause(arguments, context),
        Verb::Resume(arguments) => pause::resume(arguments, context),
    }
}
