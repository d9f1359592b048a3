//! `honeyflow limit …`: reads and changes the limits in the hive's store, with or without a running node.

pub mod audit;
pub mod list;
pub mod set;
pub mod show;
mod stored;

use super::{Context, Fault, Outcome};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List limits with the rule in force and the next change
    List(list::Arguments),
    /// Show one limit and the keys that used it most
    Show(show::Arguments),
    /// Change a limit for all nodes, without a restart
    Set(set::Arguments),
    /// Watch the permits that are issued and show the worst window
    Audit(audit::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Set(arguments) => set::run(arguments, context),
        Verb::Audit(arguments) => audit::run(arguments, context),
    }
}
