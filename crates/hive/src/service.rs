//! The shell around [`Member`]: a thread of its own, so that heartbeats never wait behind work, and handles for the
//! program.
//!
//! [`Hive::join`] starts the thread. Only the thread owns the member; handles send it inputs and read what it
//! publishes. Nothing here makes decisions: [`Member::step`] decides what is requested, granted and lost.

mod counters;
mod lead;
mod limit;
mod mailbox;
mod options;
mod shards;
mod shared;
mod sleep_detector;
mod thread;
mod watch;

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};
use tokio::sync::mpsc;

use self::shared::{Membership, Shared};
use crate::{
    contract::{HeldLease, HiveStore, NodeId},
    member::{Engaged, Input},
    traffic::Traffic,
};

pub use counters::Counters;
pub use mailbox::Change;
pub use options::{OnUnstopped, Options};
pub use shards::Shards;
pub use shared::{Role, Snapshot};
pub use watch::{Update, Watch};

/// Inputs that can wait for the thread; a sender waits while the queue is full.
const INPUTS_MAX: usize = 1024;
const PULSE_EVERY: Duration = Duration::from_millis(500);

/// A handle to a node's membership. Cheap to clone. The node leaves on [`Hive::leave`], or when every handle is
/// dropped.
#[derive(Clone)]
pub struct Hive {
    inputs: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

impl Hive {
    /// Starts the heartbeat thread and waits up to a third of the time to live for the first answer. An unreachable
    /// store is no error: the node joins once the store answers. Until then it holds no lease and does not know how
    /// many nodes there are.
    ///
    /// # Errors
    /// If the options do not fit together, or the store refuses this node for good.
    pub async fn join(store: Arc<dyn HiveStore>, options: Options) -> Result<Hive, Failure> {
        let patience = options.time_to_live / 3;
        let hive = Hive::start(store, options)?;
        let mut membership = hive.shared.membership();
        let answered = membership.wait_for(|membership| !matches!(membership, Membership::Joining));
        let Ok(Ok(membership)) = tokio::time::timeout(patience, answered).await else { return Ok(hive) };
        let refused = match &*membership {
            Membership::Ended(Some(failure)) => Some(failure.clone()),
            _ => None,
        };
        drop(membership);
        refused.map_or(Ok(hive), Err)
    }

    /// The same as [`Hive::join`], without waiting. Call it inside a runtime: the heartbeat thread watches that
    /// runtime.
    ///
    /// # Errors
    /// If the options do not fit together, or no thread can be started.
    pub fn start(store: Arc<dyn HiveStore>, options: Options) -> Result<Hive, Failure> {
        let one_machine = !store.capabilities().many_hosts && store.capabilities().durable;
        let watched = options.watch_runtime && tokio::runtime::Handle::try_current().is_ok();
        let config = options.config(one_machine, watched)?;
        let (inputs, received) = mpsc::channel(INPUTS_MAX);
        let shared = Arc::new(Shared::new(&options, store));
        if watched {
            let inputs = inputs.downgrade();
            tokio::spawn(async move {
                let mut every = tokio::time::interval(PULSE_EVERY);
                loop {
                    every.tick().await;
                    let Some(inputs) = inputs.upgrade() else { return };
                    let _ = inputs.try_send(Input::Pulse);
                }
            });
        }
        let calls = thread::Callbacks { stuck: options.on_stuck, unstopped: options.on_unstopped };
        thread::start(config, shared.clone(), received, calls)?;
        let hive = Hive { inputs, shared };
        for limit in &options.limits {
            hive.declare(limit)?;
        }
        Ok(hive)
    }

    /// The id of this incarnation; `None` before the first, and between two.
    pub fn node(&self) -> Option<NodeId> {
        self.shared.node()
    }

    /// Read from memory, even while the store is unreachable; [`Hive::view`] and [`Hive::engaged`] are too.
    pub fn role(&self) -> Role {
        self.shared.role()
    }

    /// The last known view, with its age.
    pub fn view(&self) -> Snapshot {
        self.shared.snapshot()
    }

    pub fn engaged(&self) -> Engaged {
        self.shared.engaged()
    }

    /// Until when every term of this node is valid, unless it is lost before.
    pub fn trust(&self) -> tokio::sync::watch::Receiver<Moment> {
        self.shared.trust()
    }

    /// Counts of what has happened on this node so far.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Snapshots and changes of the view, in rising versions; a slow reader gets a fresh snapshot.
    pub fn watch(&self) -> Watch {
        self.shared.subscribe()
    }

    /// Records that a request was served. Costs one atomic store; the first after a pause wakes the heartbeat thread.
    #[inline]
    pub fn engage(&self) {
        self.shared.traffic().mark();
    }

    /// The traffic mark, for code that gets requests: a layer of a web service, a poller.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic().clone()
    }

    /// Sets whether this node may be given traffic.
    pub fn ready(&self, ready: bool) {
        self.shared.set_ready(ready);
    }

    /// Requests a new epoch for a held lease: the sequence runs short, or a sink already has epoch `floor`.
    pub async fn mint(&self, lease: Name, floor: Epoch) {
        self.send(Input::Mint { lease, floor }).await;
    }

    /// Reports that a store has refused a write under this epoch.
    pub async fn stale(&self, lease: Name, epoch: Epoch) {
        self.shared.lock_counters().fences_refused += 1;
        self.send(Input::Stale { lease, epoch }).await;
    }

    /// Reports that the work under this epoch has ended, as [`Change::Leave`] requested.
    pub async fn left(&self, held: HeldLease) {
        self.send(Input::Left(held)).await;
    }

    /// Hands a held lease over to another node: to `to`, or to the next in order.
    pub async fn hand_over(&self, lease: &str, to: Option<NodeId>) {
        self.send(Input::HandOver { lease: lease.into(), to }).await;
    }

    /// Takes no new leases and hands over the held ones; the node keeps sending heartbeats.
    pub async fn drain(&self) {
        self.send(Input::Drain).await;
    }

    /// Hands over the held leases, releases those that no other node can take, and leaves; returns once that is done.
    /// It waits for a successor, at most five seconds or one time to live, so that no lease is without a holder
    /// meanwhile; a node that is alone leaves at once. Without the store it takes at most one time to live; other
    /// members remove its row later.
    pub async fn leave(&self) {
        let mut membership = self.shared.membership();
        self.send(Input::Leave).await;
        let _ = membership.wait_for(|membership| matches!(membership, Membership::Ended(_))).await;
    }

    /// Returns when this node can no longer be a member, with the reason, or `None` if it has left.
    pub async fn ended(&self) -> Option<Failure> {
        let mut membership = self.shared.membership();
        match membership.wait_for(|membership| matches!(membership, Membership::Ended(_))).await.as_deref() {
            Ok(Membership::Ended(failure)) => failure.clone(),
            _ => None,
        }
    }

    pub fn store(&self) -> &Arc<dyn HiveStore> {
        self.shared.store()
    }

    async fn send(&self, input: Input) {
        let _ = self.inputs.send(input).await;
    }
}

impl From<&Hive> for Traffic {
    fn from(hive: &Hive) -> Traffic {
        hive.traffic()
    }
}
