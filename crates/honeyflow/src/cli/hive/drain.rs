//! `honeyflow hive drain`: a node hands over what it holds and takes nothing new. It goes on living, so that it can be
//! looked at; restarted, it takes part again.

use honeyflow_hive::{NodeId, contract::View};
use serde_json::json;

use super::{ask, open_all};
use crate::{
    cli::{Context, Done, Fault, block_on},
    node::wish::Wish,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// By name, or by the beginning of its id
    node: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    block_on(async {
        let hives = open_all(&config).await?;
        let view = hives[0].view().await?;
        let id = ask::node(&view, &arguments.node)?;
        let done = ask::for_it(&config, &Wish::Drain { node: id }, &hives[0], |view| is_drained(view, id)).await?;
        if !done {
            context.output.note("it has not handed over everything in time; `honeyflow hive list` shows what it holds");
            return Ok(Done::Negative);
        }
        if context.output.is_json() {
            context.output.object(&json!({ "node": arguments.node, "id": id, "drained": true }))?;
        } else {
            context
                .output
                .note(&format!("{} leads nothing any more; it takes part again once it is restarted", arguments.node));
        }
        Ok(Done::Well)
    })?
}

fn is_drained(view: &View, id: NodeId) -> bool {
    let eligible = view.nodes.iter().any(|node| node.id == id && node.eligible);
    !eligible && !view.leases.iter().any(|lease| lease.holder == Some(id) && !lease.free)
}
