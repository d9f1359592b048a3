//! The shards of every source that this node works on, and what the core is told of them. The hives they belong to live
//! longer than the engine: a node that is restarted in part stays a member.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Hive, contract,
    service::{Change, Shards},
};
use honeyflow_runtime::{Failure, Moment};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Service, TakeShards};

const CHANGES_MAX: usize = 256;
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

pub(super) enum Happened {
    Changed(Change),
    /// The terms of this port are good until then.
    Trusted(Moment),
    /// No member any more, and not to be one again under this start.
    Ended(Failure),
}

/// By port; its tasks end with it, and so do the terms of what was taken.
pub(super) struct Held {
    hives: Vec<Hive>,
    /// Leases under which there is a term, and their ports.
    terms: BTreeMap<Name, usize>,
    /// Bring what happens to the one task that owns the core.
    messengers: JoinSet<()>,
    /// What is being said to the hives.
    words: JoinSet<()>,
}

impl Service {
    pub(super) async fn take_shards(&self) -> Result<(Held, mpsc::Receiver<(usize, Happened)>), Failure> {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let hives = self.config.sources.iter().map(|port| port.hive.clone()).collect();
        let mut held = Held { hives, terms: BTreeMap::new(), messengers: JoinSet::new(), words: JoinSet::new() };
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
                let shards = take(&port.hive, &source, count, pinned_only).await?;
                held.messengers.spawn(bring(at, shards, changes.clone()));
            }
        }
        Ok((held, changed))
    }
}

impl Held {
    pub fn mint(&mut self, port: usize, lease: Name, floor: Epoch) {
        let hive = self.hives[port].clone();
        self.send(async move { hive.mint(lease, floor).await });
    }

    /// The task that owns the core waits for nobody.
    fn send(&mut self, message: impl Future<Output = ()> + Send + 'static) {
        while self.words.try_join_next().is_some() {}
        self.words.spawn(message);
    }

    /// Before everything here is dropped: a shard that was left is handed over then, not released.
    pub async fn said(&mut self) {
        while self.words.join_next().await.is_some() {}
    }

    pub fn left(&mut self, port: usize, left: contract::Held) {
        tracing::info!(lease = %left.lease, "shard left");
        self.terms.remove(&left.lease);
        let hive = self.hives[port].clone();
        self.send(async move { hive.left(left).await });
    }

    pub fn note(&mut self, port: usize, happened: &Happened) {
        match happened {
            Happened::Changed(Change::Gained(term)) => _ = self.terms.insert(term.lease().clone(), port),
            Happened::Changed(Change::Lost { lease, .. }) => _ = self.terms.remove(lease),
            _ => {}
        }
    }

    /// Whether something is held here that another node could have.
    pub fn can_be_given(&self) -> bool {
        self.terms.values().any(|port| {
            let hive = &self.hives[*port];
            let (me, view) = (hive.node(), hive.view().view);
            view.is_some_and(|view| view.nodes.iter().any(|node| node.eligible && Some(node.id) != me))
        })
    }

    /// Others are to have what is here, shard by shard.
    pub fn drain(&mut self) {
        for hive in self.hives.clone() {
            self.send(async move { hive.drain().await });
        }
    }
}

/// The tasks of an engine that has just ended may not have let go yet.
async fn take(hive: &Hive, source: &str, count: u32, pinned_only: bool) -> Result<Shards, Failure> {
    let patience = tokio::time::Instant::now() + LET_GO_WITHIN;
    loop {
        match hive.shards(source, count, pinned_only).await {
            Err(_) if tokio::time::Instant::now() < patience => tokio::time::sleep(LET_GO_WITHIN / 100).await,
            taken => return taken,
        }
    }
}

async fn bring(port: usize, mut shards: Shards, changes: mpsc::Sender<(usize, Happened)>) {
    let mut trust = shards.hive().trust();
    // What was said before anybody listened counts too.
    trust.mark_changed();
    loop {
        let happened = tokio::select! {
            // A loss comes before the trust that others go on with.
            biased;
            change = shards.next() => match change {
                Some(change) => Happened::Changed(change),
                None => {
                    let failure = shards.hive().ended().await;
                    let left = || Failure::retry("left", "this node has left the hive");
                    Happened::Ended(failure.unwrap_or_else(left))
                }
            },
            Ok(()) = trust.changed() => Happened::Trusted(*trust.borrow_and_update()),
        };
        let over = matches!(happened, Happened::Ended(_));
        if changes.send((port, happened)).await.is_err() || over {
            return;
        }
    }
}
