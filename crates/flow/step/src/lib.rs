//! The contract of a step: it gets a batch and returns an outcome for each item, in the same order.

pub mod codes;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use honeyflow_event::{Document, Event, Key, Name, Stamp};
use honeyflow_runtime::Failure;

/// Items of one step of one workflow. If the step is a sink, their keys are distinct.
#[derive(Clone, Debug)]
pub struct Batch {
    pub workflow: Name,
    pub step: Name,
    pub items: Vec<Item>,
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Item {
    /// The installation of the source that the event comes from: each install draws another id.
    pub install_id: u128,
    pub entity: Name,
    pub key: Key,
    /// The stamp that every write of the step carries; fenced targets compare it.
    pub stamp: Stamp,
    /// The newest of the events that the run works on.
    pub event: Arc<Event>,
    pub input: Document,
    /// The other values that the step's expressions name; none if they name no others.
    pub context: Option<Arc<Context>>,
    pub phase: u32,
    pub index: u32,
    pub attempt: u32,
}

/// The values of `$event`, `$run`, `$steps` and `$item`, as far as the step's own expressions read them.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Context {
    pub event: Document,
    pub run: Document,
    pub steps: Vec<(Name, Document)>,
    pub item: Document,
}

impl Item {
    /// Returns a key that is the same for all attempts and owners (RL-23), for targets that cannot compare stamps. An
    /// outbox numbers its events from 1 after each install, and again from the backup's last number after a restore, so
    /// an event is named by its installation and the time when its row was written, too.
    pub fn idempotency_key(&self, batch: &Batch) -> String {
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        for part in [&*batch.workflow, &*batch.step, &*self.event.tenant, &*self.entity, &*self.key] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let Event { id, created_ms, .. } = &*self.event;
        for number in [u64::from(self.phase), u64::from(self.index), id.cast_unsigned(), created_ms.cast_unsigned()] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&self.install_id.to_le_bytes());
        format!("{:032x}", hasher.digest128())
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The output; `None` is `null`.
    Done(Document),
    Failed(Failure),
    /// A fenced target holds a newer stamp; the engine decides what that means.
    Stale {
        stored: Stamp,
    },
}

pub trait Step: Send + Sync {
    /// Returns one outcome per item, in the items' order.
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>>;
}

#[cfg(test)]
mod tests;
