//! `honeyflow hive …`: who is there and who does what, read from the store itself, so that it is answered with every node
//! stopped. What is asked of a node is a row that this node looks at.

mod accept;
mod ask;
mod drain;
mod hand_over;
mod list;
mod moment;
mod show;
mod watch;
mod why;

use std::sync::Arc;

use honeyflow_event::Name;
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{HIVE, View},
};
use honeyflow_runtime::Failure;

use super::{Context, Done, Fault};
use crate::{config::Config, node::hive, registry::HivePlace};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Every node: its state, how long ago it beat, its roles and what it holds
    List(list::Arguments),
    /// Who is queen, since when and why; how many nodes there are; who works on which source
    Show(show::Arguments),
    /// The nodes and what happens to them, as it happens
    Watch(watch::Arguments),
    /// Who held a lease when, and how it came to it
    Why(why::Arguments),
    /// Let another node be queen, or hold another lease
    HandOver(hand_over::Arguments),
    /// Let a node hand over all that it holds and take nothing new, until it is restarted
    Drain(drain::Arguments),
    /// Say that what a restore has brought back is right: nobody leads before
    AcceptRestore(accept::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Watch(arguments) => watch::run(arguments, context),
        Verb::Why(arguments) => why::run(arguments, context),
        Verb::HandOver(arguments) => hand_over::run(arguments, context),
        Verb::Drain(arguments) => drain::run(arguments, context),
        Verb::AcceptRestore(arguments) => accept::run(arguments, context),
    }
}

/// A database with leases in it.
struct Opened {
    place: HivePlace,
    name: String,
    /// Whose leases are there.
    sources: Vec<Name>,
    store: Arc<dyn HiveStore>,
}

impl Opened {
    async fn call(&self, request: Request) -> Result<Reply, Failure> {
        self.store.call(request).await
    }

    async fn view(&self) -> Result<View, Failure> {
        match self.call(Request::View).await? {
            Reply::View(view) => Ok(*view),
            other => Err(misplaced(&other)),
        }
    }
}

/// The one where the queen counts first, then those of the other sources' databases.
async fn open_all(config: &Config) -> Result<Vec<Opened>, Failure> {
    let mut opened = Vec::new();
    for planned in hive::plan(config)? {
        let store = planned.place.open(&planned.name, false).await?;
        let hive::Planned { place, name, sources, .. } = planned;
        opened.push(Opened { place, name, sources, store });
    }
    Ok(opened)
}

/// As it is shown: the place, and the name where it is not the usual one.
fn shown(opened: &Opened) -> String {
    if opened.name == HIVE {
        opened.place.shown().to_owned()
    } else {
        format!("{} {}", opened.place.shown(), opened.name)
    }
}

fn misplaced(reply: &Reply) -> Failure {
    Failure::fatal("misplaced-reply", format!("the hive answered another question: {reply:?}"))
}
