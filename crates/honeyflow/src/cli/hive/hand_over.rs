//! `honeyflow hive hand-over`: transfers a lease, by default the queen's, to another node. At every moment one node
//! holds the lease.

use honeyflow_hive::contract::{LeaseRow, QUEEN, View};
use serde_json::json;

use super::{open_all, request, why::hive_of_lease};
use crate::{
    cli::{Context, Fault, Outcome, block_on},
    node::operator_request::OperatorRequest,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Node that gets the lease, by name or by the first characters of its id [default: the next in order]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    /// Lease to transfer: queen, or shard/SOURCE/NUMBER
    #[arg(long, value_name = "NAME", default_value = QUEEN)]
    lease: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    block_on(async {
        let hives = open_all(&config).await?;
        let hive = hive_of_lease(&hives, &arguments.lease);
        let view = hive.view().await?;
        let to = arguments.to.as_deref().map(|wanted| request::find_node(&view, wanted)).transpose()?;
        let Some(held) = find_held_lease(&view, &arguments.lease) else {
            let message = format!("no node holds {}", arguments.lease);
            return Err(Fault::usage(message, "`honeyflow hive show` lists the leases"));
        };
        if to.is_some() && to == held.holder {
            context.output.note(&format!("the node already holds {}", arguments.lease));
            return Ok(Outcome::Success);
        }
        if view.nodes.iter().filter(|node| node.is_alive(view.head.hive_ms) && node.eligible).count() < 2 {
            let message = format!("no other node can hold {}", arguments.lease);
            return Err(Fault::usage(message, "start another node; `honeyflow hive list` lists the nodes"));
        }
        let (epoch, before) = (held.epoch, held.holder);
        let hand_over = OperatorRequest::HandOver { lease: arguments.lease.clone(), to };
        let done = request::send_and_wait(&config, &hand_over, hive, |view| {
            let now = find_lease(view, &arguments.lease);
            now.is_some_and(|now| now.epoch > epoch && now.holder != before && (to.is_none() || now.holder == to))
        });
        if !done.await? {
            context.output.note("the lease was not transferred in time; is its holder running?");
            return Ok(Outcome::Negative);
        }
        let view = hive.view().await?;
        let now = find_lease(&view, &arguments.lease);
        let id = now.and_then(|lease| lease.holder);
        let name = id.and_then(|id| view.nodes.iter().find(|node| node.id == id)).map(|node| node.name.clone());
        let epoch = now.map_or(0, |lease| lease.epoch.0);
        if context.output.is_json() {
            let report = json!({ "lease": arguments.lease, "node": name, "id": id, "epoch": epoch.to_string() });
            context.output.object(&report)?;
        } else {
            let name = name.as_deref().unwrap_or("another node");
            context.output.note(&format!("{}: now held by {name}, under epoch {epoch}", arguments.lease));
        }
        Ok(Outcome::Success)
    })?
}

fn find_lease<'v>(view: &'v View, lease: &str) -> Option<&'v LeaseRow> {
    view.leases.iter().find(|row| *row.name == *lease)
}

fn find_held_lease<'v>(view: &'v View, lease: &str) -> Option<&'v LeaseRow> {
    find_lease(view, lease).filter(|row| !row.free && row.holder.is_some())
}
