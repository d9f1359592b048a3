//! `honeyflow hive …`: the nodes and their leases, read from the store itself, so that the commands also work while
//! every node is stopped. Requests to a node are rows that the node reads.

mod accept_restore;
mod drain;
mod hand_over;
mod hive_time;
mod list;
mod request;
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

use super::{Context, Fault, Outcome};
use crate::{codes, config::Config, node::hive, registry::HivePlace};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List nodes with their state, last heartbeat, roles and shards
    List(list::Arguments),
    /// Show the queen and since when, the number of nodes, and which node works on which source
    Show(show::Arguments),
    /// Watch the nodes and their events as they happen
    Watch(watch::Arguments),
    /// Show which node held a lease when, and why
    Why(why::Arguments),
    /// Transfer the queen's lease, or another one, to another node
    HandOver(hand_over::Arguments),
    /// Make a node transfer all its leases and take none until it is restarted
    Drain(drain::Arguments),
    /// Accept the state of a restored database, so that nodes take leases again
    AcceptRestore(accept_restore::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List(arguments) => list::run(arguments, context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Watch(arguments) => watch::run(arguments, context),
        Verb::Why(arguments) => why::run(arguments, context),
        Verb::HandOver(arguments) => hand_over::run(arguments, context),
        Verb::Drain(arguments) => drain::run(arguments, context),
        Verb::AcceptRestore(arguments) => accept_restore::run(arguments, context),
    }
}

/// A hive whose store is open.
struct OpenHive {
    place: HivePlace,
    name: String,
    /// The sources whose leases this hive holds.
    sources: Vec<Name>,
    store: Arc<dyn HiveStore>,
}

impl OpenHive {
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

/// Opens every hive of the configuration: first the one where the queen counts, then those in the other sources'
/// databases.
async fn open_all(config: &Config) -> Result<Vec<OpenHive>, Failure> {
    let mut opened = Vec::new();
    for planned in hive::plan(config)? {
        let store = planned.place.open(&planned.name, false).await?;
        let hive::PlannedHive { place, name, sources, .. } = planned;
        opened.push(OpenHive { place, name, sources, store });
    }
    Ok(opened)
}

/// How the hive is shown: its address, and its name if that is not the default.
fn shown(opened: &OpenHive) -> String {
    if opened.name == HIVE {
        opened.place.shown().to_owned()
    } else {
        format!("{} {}", opened.place.shown(), opened.name)
    }
}

fn misplaced(reply: &Reply) -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, format!("the hive sent a reply that does not fit the request: {reply:?}"))
}
