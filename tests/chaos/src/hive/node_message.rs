//! The lines that a node process prints. The table in `node_process.rs` explains them.

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeMessage {
    Joined,
    Wrote {
        lease: String,
        epoch: u64,
        at_us: u64,
    },
    Holding {
        epoch: u64,
    },
    Tried {
        lease: String,
        epoch: u64,
        accepted: u32,
        refused: u32,
        /// When the term was last good.
        good_us: u64,
        /// When a write under it was last accepted.
        accepted_us: u64,
    },
    Counted {
        lease: String,
        epoch: u64,
        writes: u64,
    },
    Rests {
        queen: bool,
        engaged: Option<u64>,
        shards: u32,
    },
    Left,
    /// The process has closed its output.
    Ended,
}

impl NodeMessage {
    pub fn read(line: &str) -> Option<NodeMessage> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words[..] {
            ["joined"] => NodeMessage::Joined,
            ["left"] => NodeMessage::Left,
            ["wrote", lease, epoch, at_us] => {
                NodeMessage::Wrote { lease: lease.to_owned(), epoch: epoch.parse().ok()?, at_us: at_us.parse().ok()? }
            }
            ["holding", _, epoch] => NodeMessage::Holding { epoch: epoch.parse().ok()? },
            ["tried", lease, epoch, accepted, refused, good_us, accepted_us] => NodeMessage::Tried {
                lease: lease.to_owned(),
                epoch: epoch.parse().ok()?,
                accepted: accepted.parse().ok()?,
                refused: refused.parse().ok()?,
                good_us: good_us.parse().ok()?,
                accepted_us: accepted_us.parse().ok()?,
            },
            ["counted", lease, epoch, writes] => NodeMessage::Counted {
                lease: lease.to_owned(),
                epoch: epoch.parse().ok()?,
                writes: writes.parse().ok()?,
            },
            ["rests", role, engaged, shards] => NodeMessage::Rests {
                queen: role == "queen",
                engaged: engaged.parse().ok(),
                shards: shards.parse().ok()?,
            },
            _ => return None,
        })
    }
}
