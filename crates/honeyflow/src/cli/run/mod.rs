//! `honeyflow run …`: open runs are asked of the node, ended ones stand in the store.

pub mod cancel;
pub mod list;
pub mod replay;
pub mod show;

use super::{Context, Done, Fault};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Runs that are open, and the last that ended
    List(list::Arguments),
    /// The runs of one key: steps, attempts, and why it waits
    Show(show::Arguments),
    /// End an open run; its event is parked as cancelled
    Cancel(cancel::Arguments),
    /// Run a parked key again; steps that were done and kept are not repeated
    Replay(replay::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Cancel(arguments) => cancel::run(arguments, context),
        Verb::Replay(arguments) => replay::run(arguments, context),
    }
}
