//! A source's shards, as they come and go.

use std::sync::Arc;

use honeyflow_event::Name;
use honeyflow_runtime::Failure;

use super::{
    Hive,
    mailbox::{Change, Mailbox},
};
use crate::member::Input;

impl Hive {
    /// Takes this node's part of the source's shards, `shard/<source>/0` and up. `pinned_only`: those that no node is
    /// pinned to wait. How many there are is fixed by the first node that asks; one that is told otherwise ends.
    ///
    /// # Errors
    /// If they are taken here already, or [`super::Options::sources`] does not name the source: others would not leave
    /// any of them to this node.
    pub async fn shards(&self, source: &str, count: u32, pinned_only: bool) -> Result<Shards, Failure> {
        if !self.shared.sources.iter().any(|name| name == source) {
            let said = format!("this node has not said that it takes shards of {source}: name it in Options::sources");
            return Err(Failure::fatal("source-not-said", said));
        }
        let source: Name = source.into();
        let Some(mailbox) = self.shared.open_mailbox(&source) else {
            return Err(Failure::fatal(
                "taken-twice",
                format!("the shards of {source} are taken in this process already"),
            ));
        };
        let shards = Shards { hive: self.clone(), source: source.clone(), mailbox };
        self.tell(Input::Shards { source, count, pinned_only }).await;
        Ok(shards)
    }
}

/// Given up when it is dropped.
pub struct Shards {
    hive: Hive,
    source: Name,
    mailbox: Arc<Mailbox>,
}

impl Shards {
    /// None once this node is no member any more. What was asked to be left is answered by [`Hive::left`].
    pub async fn next(&mut self) -> Option<Change> {
        self.mailbox.next().await
    }

    pub fn hive(&self) -> &Hive {
        &self.hive
    }
}

/// Nobody works on them any more: others may have them.
impl Drop for Shards {
    fn drop(&mut self) {
        self.hive.shared.close_mailbox(&self.source, Input::NoShards(self.source.clone()));
    }
}
