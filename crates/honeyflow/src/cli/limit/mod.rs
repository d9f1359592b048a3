//! `honeyflow limit …`: what stands in the hive's store, with or without a running node.

pub mod audit;
pub mod list;
pub mod set;
pub mod show;
mod stored;

use super::{Context, Done, Fault};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Every limit: what is in force, and what comes next
    List(list::Arguments),
    /// One limit, with the keys that were given most
    Show(show::Arguments),
    /// Change a limit for all nodes, without a restart
    Set(set::Arguments),
    /// Watch what is given out, and show the worst window
    Audit(audit::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Set(arguments) => set::run(arguments, context),
        Verb::Audit(arguments) => audit::run(arguments, context),
    }
}
