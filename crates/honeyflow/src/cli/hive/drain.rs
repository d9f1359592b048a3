//! `honeyflow hive drain`: a node transfers its leases and takes no new ones. The process keeps running, so that it can
//! be inspected; after a restart it takes leases again.

use honeyflow_hive::{NodeId, contract::View};
use serde_json::json;

use super::{open_all, request};
use crate::{
    cli::{Context, Fault, Outcome, block_on},
    node::operator_request::OperatorRequest,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the node, or the first characters of its id
    node: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    block_on(async {
        let hives = open_all(&config).await?;
        let view = hives[0].view().await?;
        let id = request::find_node(&view, &arguments.node)?;
        let done = request::send_and_wait(&config, &OperatorRequest::Drain { node: id }, &hives[0], |view| {
            is_drained(view, id)
        })
        .await?;
        if !done {
            context.output.note(
                "the node has not transferred all its leases in time; `honeyflow hive list` shows what it still holds",
            );
            return Ok(Outcome::Negative);
        }
        if context.output.is_json() {
            context.output.object(&json!({ "node": arguments.node, "id": id, "drained": true }))?;
        } else {
            context
                .output
                .note(&format!("drained {}: it holds no leases and takes none until it is restarted", arguments.node));
        }
        Ok(Outcome::Success)
    })?
}

fn is_drained(view: &View, id: NodeId) -> bool {
    let eligible = view.nodes.iter().any(|node| node.id == id && node.eligible);
    !eligible && !view.leases.iter().any(|lease| lease.holder == Some(id) && !lease.free)
}
