//! `honeyflow source …`

pub mod confirm;
pub mod install;
pub mod list;
pub mod show;
pub mod uninstall;

use super::{Context, Done, Fault};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Every source, with what waits in it
    List(list::Arguments),
    /// One source: its tables, entities and triggers
    Show(show::Arguments),
    /// Make the outbox and the triggers in a source's database
    Install(install::Arguments),
    /// Bring outbox and triggers to what this version and the configuration want
    Upgrade(install::Arguments),
    /// Let documents go whose rows have gone without a word
    Confirm(confirm::Arguments),
    /// Remove outbox and triggers again
    Uninstall(uninstall::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Install(arguments) => install::run(arguments, false, context),
        Verb::Upgrade(arguments) => install::run(arguments, true, context),
        Verb::Confirm(arguments) => confirm::run(arguments, context),
        Verb::Uninstall(arguments) => uninstall::run(arguments, context),
    }
}
