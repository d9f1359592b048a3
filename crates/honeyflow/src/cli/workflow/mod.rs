//! `honeyflow workflow …`

pub mod list;
pub mod pause;
pub mod show;
pub mod stored;

use super::{Context, Done, Fault};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Every workflow, with what begins it
    List(list::Arguments),
    /// One workflow, its graph drawn as text; an earlier version; what has changed between two
    Show(show::Arguments),
    /// Begin no new runs of a workflow until it is resumed; its events stay where they are
    Pause(pause::PauseArguments),
    /// Go on with a paused workflow
    Resume(pause::ResumeArguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Pause(arguments) => pause::pause(arguments, context),
        Verb::Resume(arguments) => pause::resume(arguments, context),
    }
}
