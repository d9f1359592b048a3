//! Takes a source's shards, and reports which are gained and lost.

use std::sync::Arc;

use honeyflow_event::Name;
use honeyflow_runtime::Failure;

use super::{
    Hive,
    mailbox::{Change, Mailbox},
};
use crate::{codes, member::Input};

impl Hive {
    /// Takes this node's part of the source's shards, `shard/<source>/0` and up. `pinned_only`: shards without a pinned
    /// node wait. The first node fixes the number of shards; a node with another `count` is refused and ends.
    ///
    /// # Errors
    /// If this process takes them already, or [`super::Options::sources`] does not name the source: other nodes would
    /// not leave any of its shards to this node.
    pub async fn shards(&self, source: &str, count: u32, pinned_only: bool) -> Result<Shards, Failure> {
        if !self.shared.sources.iter().any(|name| name == source) {
            let message = format!(
                "source {source} is not in Options::sources: other nodes would leave none of its shards to this node"
            );
            return Err(Failure::fatal(codes::SOURCE_NOT_SAID, message));
        }
        let source: Name = source.into();
        let Some(mailbox) = self.shared.open_mailbox(&source) else {
            return Err(Failure::fatal(
                codes::TAKEN_TWICE,
                format!("this process already takes the shards of {source}"),
            ));
        };
        let shards = Shards { hive: self.clone(), source: source.clone(), mailbox };
        self.send(Input::Shards { source, count, pinned_only }).await;
        Ok(shards)
    }
}

/// The shards of one source on this node. They are given up when it is dropped.
pub struct Shards {
    hive: Hive,
    source: Name,
    mailbox: Arc<Mailbox>,
}

impl Shards {
    /// The next change; `None` once this node is no member any more. Answer [`Change::Leave`] with [`Hive::left`].
    pub async fn next(&mut self) -> Option<Change> {
        self.mailbox.next().await
    }

    pub fn hive(&self) -> &Hive {
        &self.hive
    }
}

/// Releases the shards, so that other nodes can take them.
impl Drop for Shards {
    fn drop(&mut self) {
        self.hive.shared.close_mailbox(&self.source, Input::NoShards(self.source.clone()));
    }
}
