//! A bee's part of the shards: written under as long as it has them.

use std::{cell::RefCell, collections::BTreeMap};

use honeyflow_event::Name;
use honeyflow_hive::{Hive, service::Change};
use honeyflow_runtime::Failure;

use super::writer::{Leading, Writer};
use crate::hive::SOURCE;

#[derive(Default)]
pub struct Part {
    led: RefCell<BTreeMap<Name, Leading>>,
}

impl Part {
    pub fn size(&self) -> usize {
        self.led.borrow().len()
    }

    /// As long as this node is a member; then, why it is none.
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
