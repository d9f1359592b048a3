//! Requests of an operator to one node, stored as rows in a source's store: `honeyflow hive hand-over` and
//! `honeyflow hive drain`. Every node reads them; the node concerned carries a request out and marks it as done.
//! Carrying out a request twice does no harm.

use std::{fmt, str::FromStr};

use honeyflow_hive::NodeId;
use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, Store, admin::Task};

use super::{hive::Hives, reindex::ask};

pub const NOUN: &str = "hive";
pub const ASKED: &str = "asked";
pub const GIVEN_UP: &str = "given-up";
const DONE: &str = "done";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperatorRequest {
    HandOver { lease: String, to: Option<NodeId> },
    Drain { node: NodeId },
}

/// The name of the row. Lease names contain no space.
impl fmt::Display for OperatorRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorRequest::HandOver { lease, to: None } => write!(f, "hand-over {lease}"),
            OperatorRequest::HandOver { lease, to: Some(to) } => write!(f, "hand-over {lease} {to}"),
            OperatorRequest::Drain { node } => write!(f, "drain {node}"),
        }
    }
}

impl FromStr for OperatorRequest {
    type Err = ();

    fn from_str(text: &str) -> Result<OperatorRequest, ()> {
        let id = |text: &str| text.parse().map(NodeId).map_err(|_| ());
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["hand-over", lease] => Ok(OperatorRequest::HandOver { lease: lease.to_owned(), to: None }),
            ["hand-over", lease, to] => Ok(OperatorRequest::HandOver { lease: lease.to_owned(), to: Some(id(to)?) }),
            ["drain", node] => Ok(OperatorRequest::Drain { node: id(node)? }),
            _ => Err(()),
        }
    }
}

/// Carries out the requests that concern this node.
pub async fn carry_out_requests(tasks: &[Task], store: &dyn Store, hives: &Hives) -> Result<(), Failure> {
    for task in tasks.iter().filter(|task| task.noun == NOUN && task.state == ASKED) {
        let Ok(request) = task.name.parse::<OperatorRequest>() else { continue };
        if !carry_out(&request, hives).await {
            continue;
        }
        tracing::info!("carried out an operator's request: {request}");
        let done = Admin::PutTask { noun: task.noun.clone(), name: task.name.clone(), state: DONE.to_owned() };
        let _: AdminReply = ask(store, done).await?;
    }
    Ok(())
}

/// Carries out the request. Returns false if it concerns another node.
async fn carry_out(request: &OperatorRequest, hives: &Hives) -> bool {
    match request {
        OperatorRequest::HandOver { lease, to } => {
            let home = hives.home(lease);
            let concerned = home.holds(lease);
            if concerned {
                home.hive.hand_over(lease, *to).await;
            }
            concerned
        }
        OperatorRequest::Drain { node } => {
            let concerned = hives.all().iter().any(|joined| joined.hive.node() == Some(*node));
            if concerned {
                hives.drain().await;
            }
            concerned
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_32_a_request_survives_format_and_parse() {
        let node = NodeId(uuid::Uuid::from_u128(7));
        let requests = [
            OperatorRequest::HandOver { lease: "queen".to_owned(), to: None },
            OperatorRequest::HandOver { lease: "shard/shop/12".to_owned(), to: Some(node) },
            OperatorRequest::Drain { node },
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for odd in ["", "drain", "drain me", "hand-over", "hand-over queen you", "dance queen"] {
            assert_eq!(odd.parse::<OperatorRequest>(), Err(()), "{odd}");
        }
    }
}
