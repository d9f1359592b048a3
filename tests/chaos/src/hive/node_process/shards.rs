//! The shards that this node holds: it writes under each of them as long as it has it.

use std::{cell::RefCell, collections::BTreeMap};

use honeyflow_event::Name;
use honeyflow_hive::{Hive, service::Change};
use honeyflow_runtime::Failure;

use super::writer::{LeadGuard, Writer};
use crate::hive::SOURCE;

#[derive(Default)]
pub struct HeldShards {
    led: RefCell<BTreeMap<Name, LeadGuard>>,
}

impl HeldShards {
    pub fn size(&self) -> usize {
        self.led.borrow().len()
    }

    /// Writes under the node's shards while the node is a member; then returns why it no longer is.
    pub async fn work(&self, hive: &Hive, count: u32, writer: &Writer) -> Failure {
        let mut shards = match hive.shards(SOURCE, count, false).await {
            Ok(shards) => shards,
            Err(failure) => return failure,
        };
        while let Some(change) = shards.next().await {
            match change {
                Change::Gained(term) => drop(self.led.borrow_mut().insert(term.lease().clone(), writer.lead(&term))),
                Change::Leave { held, .. } => {
                    self.led.borrow_mut().remove(&held.lease);
                    hive.left(held).await;
                }
                Change::Lost { lease, .. } => drop(self.led.borrow_mut().remove(&lease)),
            }
        }
        Failure::retry("not-a-member", "this node has left the hive, or was refused by it")
    }
}
