//! What is asked of a node: a row in the first source's store, which every node looks at and the one concerned carries
//! out. So it needs no way to the node's own address, and is refused to nobody who may write there.

use std::time::Duration;

use honeyflow_hive::{NodeId, contract::View};
use honeyflow_runtime::Failure;
use honeyflow_store::Admin;

use super::Opened;
use crate::{
    cli::{Fault, open},
    config::Config,
    node::wish::{ASKED, GIVEN_UP, NOUN, Wish},
};

/// A node looks every two seconds, and hands over within five.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Asks, and waits until the hive shows that it was done; false if nobody has done it, and nobody will any more.
pub(super) async fn for_it(
    config: &Config,
    wish: &Wish,
    hive: &Opened,
    done: impl Fn(&View) -> bool,
) -> Result<bool, Failure> {
    let Some(source) = config.sources.first() else {
        return Err(Failure::fatal("no-source", "the configuration has no source; [source.NAME] with a url"));
    };
    let database = open(config, source).await?;
    let task = |state: &str| Admin::PutTask { noun: NOUN.to_owned(), name: wish.to_string(), state: state.to_owned() };
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

/// By name, or by the beginning of its id. Two nodes may share a name.
pub(super) fn node(view: &View, wanted: &str) -> Result<NodeId, Fault> {
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
            let message = format!("{} nodes are called `{wanted}`", ids.len());
            Err(Fault::usage(message, format!("name one by its id: {}", ids.join(", "))))
        }
    }
}
