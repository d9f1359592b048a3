//! Sends an operator's request to a node, as a row in the first source's store. Every node reads these rows, and the
//! node concerned carries the request out. The command therefore needs no connection to the node itself; write access
//! to the database is enough.

use std::time::Duration;

use honeyflow_hive::{NodeId, contract::View};
use honeyflow_runtime::Failure;
use honeyflow_store::Admin;

use super::OpenHive;
use crate::{
    cli::{Fault, open},
    codes,
    config::Config,
    node::operator_request::{ASKED, GIVEN_UP, NOUN, OperatorRequest},
};

/// A node reads the requests every 2 s, and hands over within 5 s.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Stores the request and waits until the hive shows that it was carried out. Returns false if that did not happen
/// within [`PATIENCE`]; the request is then marked as given up, so that no node carries it out later.
pub(super) async fn send_and_wait(
    config: &Config,
    request: &OperatorRequest,
    hive: &OpenHive,
    done: impl Fn(&View) -> bool,
) -> Result<bool, Failure> {
    let Some(source) = config.sources.first() else {
        return Err(Failure::fatal(codes::NO_SOURCE, "the configuration has no source; add [source.NAME] with a url"));
    };
    let database = open(config, source).await?;
    let task =
        |state: &str| Admin::PutTask { noun: NOUN.to_owned(), name: request.to_string(), state: state.to_owned() };
    database.admin(task(ASKED)).await?;
    let until = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < until {
        if done(&hive.view().await?) {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    database.admin(task(GIVEN_UP)).await?;
    Ok(false)
}

/// Finds a node by its name, or by the first characters of its id (at least 4). Two nodes may have the same name.
pub(super) fn find_node(view: &View, wanted: &str) -> Result<NodeId, Fault> {
    let found: Vec<_> = view
        .nodes
        .iter()
        .filter(|node| node.name == wanted || (wanted.len() >= 4 && node.id.to_string().starts_with(wanted)))
        .collect();
    match found[..] {
        [only] => Ok(only.id),
        [] => {
            let names: Vec<&str> = view.nodes.iter().map(|node| node.name.as_str()).collect();
            Err(crate::cli::no_such("node", wanted, names.into_iter()))
        }
        _ => {
            let ids: Vec<String> = found.iter().map(|node| node.id.to_string()).collect();
            let message = format!("{} nodes have the name `{wanted}`", ids.len());
            Err(Fault::usage(message, format!("use one of their ids: {}", ids.join(", "))))
        }
    }
}
