//! `honeyflow source …`: installs, inspects and removes the outbox and the triggers of a source.

pub mod confirm;
pub mod install;
pub mod list;
pub mod show;
pub mod uninstall;

use super::{Context, Fault, Outcome};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List sources with their state and the number of waiting events
    List(list::Arguments),
    /// Show the captured tables and triggers of a source
    Show(show::Arguments),
    /// Create the outbox and the triggers in the database of a source
    Install(install::Arguments),
    /// Update outbox and triggers to this version and the configuration
    Upgrade(install::Arguments),
    /// Confirm the deletion of held documents whose rows are gone
    Confirm(confirm::Arguments),
    /// Remove outbox and triggers from the database of a source
    Uninstall(uninstall::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Install(arguments) => install::run(arguments, false, context),
        Verb::Upgrade(arguments) => install::run(arguments, true, context),
        Verb::Confirm(arguments) => confirm::run(arguments, context),
        Verb::Uninstall(arguments) => uninstall::run(arguments, context),
    }
}
