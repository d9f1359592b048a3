//! The shards of every source: this node's part in the hive of each database, and what the core is told of it.

use std::time::Duration;

use futures_util::future::join_all;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Hive,
    service::{Change, Shards},
};
use honeyflow_runtime::{Failure, Moment};
use tokio::{sync::mpsc, task::JoinSet};

use super::Service;

/// Without the store the row stays until it is buried: leaving is best effort.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
const CHANGES_MAX: usize = 256;

pub(super) enum Happened {
    Changed(Change),
    /// The terms of this port are good until then.
    Trusted(Moment),
    /// No member any more, and not to be one again under this start.
    Ended(Failure),
}

/// By port; its tasks end with it.
pub(super) struct Hives {
    hives: Vec<Hive>,
    /// Bring what happens to the one task that owns the core.
    messengers: JoinSet<()>,
}

impl Service {
    pub(super) async fn join_hives(&self) -> Result<(Hives, mpsc::Receiver<(usize, Happened)>), Failure> {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let mut hives = Hives { hives: Vec::new(), messengers: JoinSet::new() };
        for (at, port) in self.config.sources.iter().enumerate() {
            let hive = Hive::start(port.hive.clone(), self.config.hive.clone())?;
            let planned = self.config.plan.sources.iter().filter(|source| source.port == at);
            let mut sources: Vec<(Name, u32)> = Vec::new();
            for source in planned {
                match sources.last_mut().filter(|(name, _)| *name == source.name) {
                    Some((_, count)) => *count += 1,
                    None => sources.push((source.name.clone(), 1)),
                }
            }
            for (source, count) in sources {
                let shards = hive.shards(&source, count, false).await?;
                hives.messengers.spawn(bring(at, shards, changes.clone()));
            }
            hives.hives.push(hive);
        }
        Ok((hives, changed))
    }
}

impl Hives {
    pub fn mint(&mut self, port: usize, lease: Name, floor: Epoch) {
        let hive = self.hives[port].clone();
        self.send(async move { hive.mint(lease, floor).await });
    }

    /// The task that owns the core waits for nobody.
    fn send(&mut self, message: impl Future<Output = ()> + Send + 'static) {
        while self.messengers.try_join_next().is_some() {}
        self.messengers.spawn(message);
    }

    pub fn left(&mut self, port: usize, lease: Name) {
        tracing::info!(%lease, "shard left");
        let hive = self.hives[port].clone();
        self.send(async move { hive.left(lease).await });
    }

    /// Others are to have what is here, shard by shard.
    pub fn drain(&mut self) {
        for hive in self.hives.clone() {
            self.send(async move { hive.drain().await });
        }
    }

    pub async fn leave(&mut self) {
        let left = join_all(self.hives.iter().map(Hive::leave));
        let _ = tokio::time::timeout(LEAVE_WITHIN, left).await;
    }
}

async fn bring(port: usize, mut shards: Shards, changes: mpsc::Sender<(usize, Happened)>) {
    let mut trust = shards.hive().trust();
    loop {
        let happened = tokio::select! {
            biased;
            Ok(()) = trust.changed() => Happened::Trusted(*trust.borrow_and_update()),
            change = shards.next() => match change {
                Some(change) => Happened::Changed(change),
                None => {
                    let failure = shards.hive().ended().await;
                    let left = || Failure::retry("left", "this node has left the hive");
                    Happened::Ended(failure.unwrap_or_else(left))
                }
            },
        };
        let over = matches!(happened, Happened::Ended(_));
        if changes.send((port, happened)).await.is_err() || over {
            return;
        }
    }
}
