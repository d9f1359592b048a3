//! What people ask of a certain node, as a row in a source's store: `honeyflow hive hand-over` and `drain`. Every node
//! looks; the one concerned carries it out and says so. Carried out twice, it does no harm.

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
pub enum Wish {
    HandOver { lease: String, to: Option<NodeId> },
    Drain { node: NodeId },
}

/// As the row is named. Names of leases hold no blank.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::HandOver { lease, to: None } => write!(f, "hand-over {lease}"),
            Wish::HandOver { lease, to: Some(to) } => write!(f, "hand-over {lease} {to}"),
            Wish::Drain { node } => write!(f, "drain {node}"),
        }
    }
}

impl FromStr for Wish {
    type Err = ();

    fn from_str(text: &str) -> Result<Wish, ()> {
        let id = |text: &str| text.parse().map(NodeId).map_err(|_| ());
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["hand-over", lease] => Ok(Wish::HandOver { lease: lease.to_owned(), to: None }),
            ["hand-over", lease, to] => Ok(Wish::HandOver { lease: lease.to_owned(), to: Some(id(to)?) }),
            ["drain", node] => Ok(Wish::Drain { node: id(node)? }),
            _ => Err(()),
        }
    }
}

/// Carries out what concerns this node.
pub async fn see_to(tasks: &[Task], store: &dyn Store, hives: &Hives) -> Result<(), Failure> {
    for task in tasks.iter().filter(|task| task.noun == NOUN && task.state == ASKED) {
        let Ok(wish) = task.name.parse::<Wish>() else { continue };
        if !carry_out(&wish, hives).await {
            continue;
        }
        tracing::info!("asked for by hand: {wish}");
        let done = Admin::PutTask { noun: task.noun.clone(), name: task.name.clone(), state: DONE.to_owned() };
        let _: AdminReply = ask(store, done).await?;
    }
    Ok(())
}

/// False: it concerns another node.
async fn carry_out(wish: &Wish, hives: &Hives) -> bool {
    match wish {
        Wish::HandOver { lease, to } => {
            let home = hives.home(lease);
            let concerned = home.holds(lease);
            if concerned {
                home.hive.hand_over(lease, *to).await;
            }
            concerned
        }
        Wish::Drain { node } => {
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
    fn hv_32_a_wish_is_read_as_it_was_written() {
        let node = NodeId(uuid::Uuid::from_u128(7));
        let wishes = [
            Wish::HandOver { lease: "queen".to_owned(), to: None },
            Wish::HandOver { lease: "shard/shop/12".to_owned(), to: Some(node) },
            Wish::Drain { node },
        ];
        for wish in wishes {
            assert_eq!(wish.to_string().parse(), Ok(wish));
        }
        for odd in ["", "drain", "drain me", "hand-over", "hand-over queen you", "dance queen"] {
            assert_eq!(odd.parse::<Wish>(), Err(()), "{odd}");
        }
    }
}
