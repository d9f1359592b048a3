//! The shell around [`Member`]: a thread of its own, so that renewal never waits behind work, and what others see of it.
//!
//! [`Hive::join`] starts the thread. It alone owns the member; handles send it inputs and read what it has published.
//! Nothing here decides: what is asked, granted and lost comes out of [`Member::step`].

mod awake;
mod counters;
mod lead;
mod limit;
mod mailbox;
mod options;
mod shards;
mod shared;
mod thread;
mod watch;

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};
use tokio::sync::mpsc;

use self::shared::{Life, Shared};
use crate::{
    contract::{Held, HiveStore, NodeId},
    member::{Engaged, Input},
    traffic::Traffic,
};

pub use counters::Counters;
pub use mailbox::Change;
pub use options::{OnUnstopped, Options};
pub use shards::Shards;
pub use shared::{Role, Snapshot};
pub use watch::{Update, Watch};

/// Inputs that wait for the thread; whoever has more to say waits in turn.
const INPUTS_MAX: usize = 1024;
const PULSE_EVERY: Duration = Duration::from_millis(500);

/// A node's membership. Cheap to clone; the node leaves when it is told to, or when every handle is gone.
#[derive(Clone)]
pub struct Hive {
    inputs: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

impl Hive {
    /// Starts the heartbeat and waits a moment for its first answer. A store that is not there is no error: the node
    /// joins once it is, and until then holds nothing and does not know how many others there are.
    ///
    /// # Errors
    /// If the options do not go together, or the store refuses this node for good.
    pub async fn join(store: Arc<dyn HiveStore>, options: Options) -> Result<Hive, Failure> {
        let patience = options.time_to_live / 3;
        let hive = Hive::start(store, options)?;
        let mut life = hive.shared.life();
        let answered = life.wait_for(|life| !matches!(life, Life::Joining));
        let Ok(Ok(life)) = tokio::time::timeout(patience, answered).await else { return Ok(hive) };
        let refused = match &*life {
            Life::Ended(Some(failure)) => Some(failure.clone()),
            _ => None,
        };
        drop(life);
        refused.map_or(Ok(hive), Err)
    }

    /// The same, without waiting. To be called inside a runtime: its life is what the heartbeat watches.
    ///
    /// # Errors
    /// If the options do not go together, or no thread can be had.
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
        let calls = thread::Calls { stuck: options.on_stuck, unstopped: options.on_unstopped };
        thread::start(config, shared.clone(), received, calls)?;
        let hive = Hive { inputs, shared };
        for limit in &options.limits {
            hive.declare(limit)?;
        }
        Ok(hive)
    }

    /// Of this incarnation; none before the first, and between two.
    pub fn node(&self) -> Option<NodeId> {
        self.shared.node()
    }

    /// From memory, whatever the store does; so are [`Hive::view`] and [`Hive::engaged`].
    pub fn role(&self) -> Role {
        self.shared.role()
    }

    /// What was last known, with its age.
    pub fn view(&self) -> Snapshot {
        self.shared.snapshot()
    }

    pub fn engaged(&self) -> Engaged {
        self.shared.engaged()
    }

    /// Until when every term of this node is good, if none is lost before.
    pub fn trust(&self) -> tokio::sync::watch::Receiver<Moment> {
        self.shared.trust()
    }

    /// What has happened here so far.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Snapshots and differences, in rising versions; whoever is slow gets a fresh snapshot.
    pub fn watch(&self) -> Watch {
        self.shared.subscribe()
    }

    /// A request was served. One atomic store; the first after a pause rings the heartbeat.
    #[inline]
    pub fn engage(&self) {
        self.shared.traffic().mark();
    }

    /// For whatever has requests: a layer of a web service, a poller.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic().clone()
    }

    /// Whether this node may be given traffic.
    pub fn ready(&self, ready: bool) {
        self.shared.say_ready(ready);
    }

    /// A new epoch for a lease that is held: the sequence runs short, or a sink is ahead of `floor`.
    pub async fn mint(&self, lease: Name, floor: Epoch) {
        self.tell(Input::Mint { lease, floor }).await;
    }

    /// A store has refused what was written under this epoch.
    pub async fn stale(&self, lease: Name, epoch: Epoch) {
        self.shared.counting().fences_refused += 1;
        self.tell(Input::Stale { lease, epoch }).await;
    }

    /// What was under way under this epoch has ended, as [`Change::Leave`] has asked.
    pub async fn left(&self, held: Held) {
        self.tell(Input::Left(held)).await;
    }

    /// Hands a lease that is held here to another node: the next in order, or a certain one.
    pub async fn hand_over(&self, lease: &str, to: Option<NodeId>) {
        self.tell(Input::HandOver { lease: lease.into(), to }).await;
    }

    /// Leads nothing new and hands over what it leads; goes on beating.
    pub async fn drain(&self) {
        self.tell(Input::Drain).await;
    }

    /// Hands over what it leads, releases what nobody else can have, and leaves; returns once that is done. An heir is
    /// waited for, five seconds or a time to live at most, so that nothing is without a leader meanwhile; alone it goes at
    /// once. Without the store it takes a time to live at most; burial covers the rest.
    pub async fn leave(&self) {
        let mut life = self.shared.life();
        self.tell(Input::Leave).await;
        let _ = life.wait_for(|life| matches!(life, Life::Ended(_))).await;
    }

    /// Returns when this node can be no member any more: why, unless it has left.
    pub async fn ended(&self) -> Option<Failure> {
        let mut life = self.shared.life();
        match life.wait_for(|life| matches!(life, Life::Ended(_))).await.as_deref() {
            Ok(Life::Ended(failure)) => failure.clone(),
            _ => None,
        }
    }

    pub fn store(&self) -> &Arc<dyn HiveStore> {
        self.shared.store()
    }

    async fn tell(&self, input: Input) {
        let _ = self.inputs.send(input).await;
    }
}

impl From<&Hive> for Traffic {
    fn from(hive: &Hive) -> Traffic {
        hive.traffic()
    }
}
