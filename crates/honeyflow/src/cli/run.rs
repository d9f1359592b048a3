//! `honeyflow run …`: open runs are read from the running node, ended runs from the store.

pub mod cancel;
pub mod list;
pub mod replay;
pub mod show;

use super::{Context, Fault, Outcome};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List open runs and the last ended ones
    List(list::Arguments),
    /// Show the open runs of one key: steps, attempts and what each waits for
    Show(show::Arguments),
    /// Cancel an open run and park its event
    Cancel(cancel::Arguments),
    /// Retry the parked event of a key, from its checkpoints, from a step, or with the newest version
    Replay(replay::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Cancel(arguments) => cancel::run(arguments, context),
        Verb::Replay(arguments) => replay::run(arguments, context),
    }
}
