//! `honeyflow hive hand-over`: another node becomes queen, or holds another lease, without a time in which nobody does.

use honeyflow_hive::contract::{LeaseRow, QUEEN, View};
use serde_json::json;

use super::{ask, open_all, why::home};
use crate::{
    cli::{Context, Done, Fault, block_on},
    node::wish::Wish,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// To this node, by name or by the beginning of its id; else the next in order
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    /// Which lease: queen, or shard/SOURCE/NUMBER
    #[arg(long, value_name = "NAME", default_value = QUEEN)]
    lease: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    block_on(async {
        let hives = open_all(&config).await?;
        let hive = home(&hives, &arguments.lease);
        let view = hive.view().await?;
        let to = arguments.to.as_deref().map(|wanted| ask::node(&view, wanted)).transpose()?;
        let Some(held) = held(&view, &arguments.lease) else {
            let message = format!("nobody holds {}", arguments.lease);
            return Err(Fault::usage(message, "`honeyflow hive show` says what is held"));
        };
        if to.is_some() && to == held.holder {
            context.output.note(&format!("it holds {} already", arguments.lease));
            return Ok(Done::Well);
        }
        if view.nodes.iter().filter(|node| node.is_alive(view.head.hive_ms) && node.eligible).count() < 2 {
            let message = format!("there is no other node that could hold {}", arguments.lease);
            return Err(Fault::usage(message, "start another one; `honeyflow hive list` has them all"));
        }
        let (epoch, before) = (held.epoch, held.holder);
        let wish = Wish::HandOver { lease: arguments.lease.clone(), to };
        let done = ask::for_it(&config, &wish, hive, |view| {
            let now = held_now(view, &arguments.lease);
            now.is_some_and(|now| now.epoch > epoch && now.holder != before && (to.is_none() || now.holder == to))
        });
        if !done.await? {
            context.output.note("nobody has carried it out in time; is the node that holds it running?");
            return Ok(Done::Negative);
        }
        let view = hive.view().await?;
        let now = held_now(&view, &arguments.lease);
        let id = now.and_then(|lease| lease.holder);
        let name = id.and_then(|id| view.nodes.iter().find(|node| node.id == id)).map(|node| node.name.clone());
        let epoch = now.map_or(0, |lease| lease.epoch.0);
        if context.output.is_json() {
            let said = json!({ "lease": arguments.lease, "node": name, "id": id, "epoch": epoch.to_string() });
            context.output.object(&said)?;
        } else {
            let name = name.as_deref().unwrap_or("another node");
            context.output.note(&format!("{}: {name} holds it, under epoch {epoch}", arguments.lease));
        }
        Ok(Done::Well)
    })?
}

fn held_now<'v>(view: &'v View, lease: &str) -> Option<&'v LeaseRow> {
    view.leases.iter().find(|row| *row.name == *lease)
}

fn held<'v>(view: &'v View, lease: &str) -> Option<&'v LeaseRow> {
    held_now(view, lease).filter(|row| !row.free && row.holder.is_some())
}
