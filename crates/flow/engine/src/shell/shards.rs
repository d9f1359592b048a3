//! The shards of every source that this node works on: passes their changes to the core, and the core's requests to the
//! hives. The hives live longer than the engine: a node whose engine is restarted stays a member.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Hive, contract,
    service::{Change, Shards},
};
use honeyflow_runtime::{Failure, Moment};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Service, TakeShards};
use crate::codes;

const CHANGES_MAX: usize = 256;
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

pub(super) enum ShardEvent {
    Changed(Change),
    /// The terms of this port are trusted until then.
    Trusted(Moment),
    /// The node is no longer a member, and cannot become one again in this incarnation.
    Ended(Failure),
}

/// The shards that were taken, for all ports. When it is dropped, its tasks end, and with them the terms of its shards.
pub(super) struct HeldShards {
    hives: Vec<Hive>,
    /// The leases that this node holds, and their ports.
    terms: BTreeMap<Name, usize>,
    /// Tasks that pass the changes on to the task that owns the core.
    forwarders: JoinSet<()>,
    /// Requests to the hives that are under way.
    requests: JoinSet<()>,
}

impl Service {
    pub(super) async fn take_shards(&self) -> Result<(HeldShards, mpsc::Receiver<(usize, ShardEvent)>), Failure> {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let hives = self.config.sources.iter().map(|port| port.hive.clone()).collect();
        let mut held =
            HeldShards { hives, terms: BTreeMap::new(), forwarders: JoinSet::new(), requests: JoinSet::new() };
        let Some(TakeShards { pinned_only }) = self.config.shards else { return Ok((held, changed)) };
        for (at, port) in self.config.sources.iter().enumerate() {
            let planned = self.config.plan.sources.iter().filter(|source| source.port == at);
            let mut sources: Vec<(Name, u32)> = Vec::new();
            for source in planned {
                match sources.last_mut().filter(|(name, _)| *name == source.name) {
                    Some((_, count)) => *count += 1,
                    None => sources.push((source.name.clone(), 1)),
                }
            }
            for (source, count) in sources {
                let shards = take_with_retry(&port.hive, &source, count, pinned_only).await?;
                held.forwarders.spawn(forward_changes(at, shards, changes.clone()));
            }
        }
        Ok((held, changed))
    }
}

impl HeldShards {
    pub fn mint(&mut self, port: usize, lease: Name, floor: Epoch) {
        let hive = self.hives[port].clone();
        self.send(async move { hive.mint(lease, floor).await });
    }

    /// Sends a request in a separate task: the task that owns the core never waits for a hive.
    fn send(&mut self, message: impl Future<Output = ()> + Send + 'static) {
        while self.requests.try_join_next().is_some() {}
        self.requests.spawn(message);
    }

    /// Waits until all requests were sent. Called before the shards are dropped, so that a shard that was left is
    /// transferred and not merely released.
    pub async fn finish_requests(&mut self) {
        while self.requests.join_next().await.is_some() {}
    }

    pub fn on_left(&mut self, port: usize, left: contract::HeldLease) {
        tracing::info!(lease = %left.lease, "left the shard");
        self.terms.remove(&left.lease);
        let hive = self.hives[port].clone();
        self.send(async move { hive.left(left).await });
    }

    pub fn note(&mut self, port: usize, happened: &ShardEvent) {
        match happened {
            ShardEvent::Changed(Change::Gained(term)) => _ = self.terms.insert(term.lease().clone(), port),
            ShardEvent::Changed(Change::Lost { lease, .. }) => _ = self.terms.remove(lease),
            _ => {}
        }
    }

    /// Whether this node holds a shard that another node could take over.
    pub fn can_transfer(&self) -> bool {
        self.terms.values().any(|port| {
            let hive = &self.hives[*port];
            let (me, view) = (hive.node(), hive.view().view);
            view.is_some_and(|view| view.nodes.iter().any(|node| node.eligible && Some(node.id) != me))
        })
    }

    /// Asks the hives to transfer this node's shards to other nodes, shard by shard.
    pub fn drain(&mut self) {
        for hive in self.hives.clone() {
            self.send(async move { hive.drain().await });
        }
    }
}

/// Takes the shards of a source; retries for a second, because the tasks of an engine that has just ended may still
/// hold them.
async fn take_with_retry(hive: &Hive, source: &str, count: u32, pinned_only: bool) -> Result<Shards, Failure> {
    let patience = tokio::time::Instant::now() + LET_GO_WITHIN;
    loop {
        match hive.shards(source, count, pinned_only).await {
            Err(_) if tokio::time::Instant::now() < patience => tokio::time::sleep(LET_GO_WITHIN / 100).await,
            taken => return taken,
        }
    }
}

async fn forward_changes(port: usize, mut shards: Shards, changes: mpsc::Sender<(usize, ShardEvent)>) {
    let mut trust = shards.hive().trust();
    // The value that was set before this task began counts too.
    trust.mark_changed();
    loop {
        let happened = tokio::select! {
            // A lost lease goes before the trust that the other leases have gained.
            biased;
            change = shards.next() => match change {
                Some(change) => ShardEvent::Changed(change),
                None => {
                    let failure = shards.hive().ended().await;
                    let left = || Failure::retry(codes::LEFT, "this node has left the hive");
                    ShardEvent::Ended(failure.unwrap_or_else(left))
                }
            },
            Ok(()) = trust.changed() => ShardEvent::Trusted(*trust.borrow_and_update()),
        };
        let over = matches!(happened, ShardEvent::Ended(_));
        if changes.send((port, happened)).await.is_err() || over {
            return;
        }
    }
}
