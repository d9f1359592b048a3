//! What the heartbeat has published, read without asking it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, Moment};
use tokio::sync::{Notify, broadcast, watch};

use super::{
    Options, Update, Watch,
    counters::Counters,
    mailbox::{Change, Mailbox},
};
use crate::{
    contract::{Event, HiveStore, NodeId, QUEEN, View},
    limit::Limits,
    member::{Engaged, Input, traits::WEIGHT},
    term::Term,
    traffic::Traffic,
};

/// Updates of the view that wait for a subscriber; who is slower gets a fresh snapshot.
const UPDATES_MAX: usize = 64;

#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// Not a member, or not yet.
    Out,
    Bee,
    Queen(Term),
}

#[derive(Clone, Debug)]
pub(super) enum Life {
    Joining,
    In,
    /// With the reason, unless it has left.
    Ended(Option<Failure>),
}

/// The hive as this node last knew it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub view: Option<Arc<View>>,
    /// Since the store was last heard; none if it never was.
    pub age: Option<Duration>,
    /// Nobody is declared dead and nothing changes while the store is silent: what is shown may be wrong by now.
    pub stale: bool,
    /// Why the store was last asked in vain; none once it has answered again.
    pub trouble: Option<Arc<Failure>>,
}

/// By those who cannot wait for room among the inputs. Only what is true now: it does not pile up.
#[derive(Default)]
struct Said {
    /// By what they have worked on.
    gone: BTreeMap<Name, Input>,
    ready: Option<bool>,
}

pub(super) struct Shared {
    store: Arc<dyn HiveStore>,
    clock: Arc<dyn Clock>,
    time_to_live: Duration,
    node: ArcSwapOption<NodeId>,
    role: ArcSwap<Role>,
    view: ArcSwapOption<View>,
    engaged: ArcSwap<Engaged>,
    heard_at: AtomicU64,
    trouble: ArcSwapOption<Failure>,
    life: watch::Sender<Life>,
    trust: watch::Sender<Moment>,
    updates: broadcast::Sender<Update>,
    mailboxes: Mutex<BTreeMap<Name, Arc<Mailbox>>>,
    said: Mutex<Said>,
    pub spoken: Notify,
    traffic: Traffic,
    counters: Mutex<Counters>,
    pub bell: Arc<Notify>,
    /// Whose shards this node has said to take.
    pub(super) sources: Vec<String>,
    pub(super) expected_nodes: u64,
    pub(super) store_budget: Option<u64>,
    pub(super) weight: u32,
    pub(super) limits: OnceLock<Limits>,
    pub(super) limits_version: AtomicU64,
}

impl Shared {
    pub fn new(options: &Options, store: Arc<dyn HiveStore>) -> Shared {
        let bell = Arc::new(Notify::new());
        let rung = bell.clone();
        let unknown = Engaged { count: None, divisor: options.expected_nodes.max(1), stale: true };
        Shared {
            store,
            clock: options.clock.clone(),
            time_to_live: options.time_to_live,
            node: ArcSwapOption::empty(),
            role: ArcSwap::from_pointee(Role::Out),
            view: ArcSwapOption::empty(),
            engaged: ArcSwap::from_pointee(unknown),
            heard_at: AtomicU64::new(0),
            trouble: ArcSwapOption::empty(),
            life: watch::Sender::new(Life::Joining),
            trust: watch::Sender::new(Moment::default()),
            updates: broadcast::Sender::new(UPDATES_MAX),
            mailboxes: Mutex::default(),
            said: Mutex::default(),
            spoken: Notify::new(),
            traffic: Traffic::new(move || rung.notify_one()),
            counters: Mutex::default(),
            bell,
            sources: options.sources.clone(),
            expected_nodes: options.expected_nodes,
            store_budget: options.store_budget,
            weight: options.weight.unwrap_or(WEIGHT),
            limits: OnceLock::new(),
            limits_version: AtomicU64::new(0),
        }
    }

    pub fn store(&self) -> &Arc<dyn HiveStore> {
        &self.store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn node(&self) -> Option<NodeId> {
        self.node.load().as_deref().copied()
    }

    pub fn role(&self) -> Role {
        match &**self.role.load() {
            Role::Queen(term) if !term.check() => Role::Bee,
            role => role.clone(),
        }
    }

    pub fn engaged(&self) -> Engaged {
        **self.engaged.load()
    }

    pub fn snapshot(&self) -> Snapshot {
        let heard_at = self.heard_at.load(Ordering::Relaxed);
        let age = (heard_at > 0).then(|| self.clock.now().since(Moment(heard_at)));
        let stale = age.is_none_or(|age| age >= self.time_to_live);
        Snapshot { view: self.view.load_full(), age, stale, trouble: self.trouble.load_full() }
    }

    /// What came of a heartbeat. Said once for each kind of trouble, not with every beat; over once one was `written`: a
    /// store that can only be read is of no use.
    pub fn store_answered<T>(&self, result: &Result<T, Failure>, written: bool) {
        let before = self.trouble.load();
        match result {
            Ok(_) if before.is_none() || !written => {}
            Ok(_) => {
                self.trouble.store(None);
                tracing::info!("the hive's store answers again");
            }
            Err(failure) => {
                if before.as_ref().is_none_or(|before| before.code != failure.code) {
                    tracing::warn!(code = &*failure.code, "the hive's store cannot be used: {}", failure.message);
                }
                self.trouble.store(Some(Arc::new(failure.clone())));
            }
        }
    }

    pub fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    pub fn trust(&self) -> watch::Receiver<Moment> {
        self.trust.subscribe()
    }

    pub fn subscribe(self: &Arc<Self>) -> Watch {
        Watch::new(self.updates.subscribe(), self.clone())
    }

    pub fn view(&self) -> Option<Arc<View>> {
        self.view.load_full()
    }

    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// None if somebody reads them already.
    pub fn open_mailbox(&self, name: &Name) -> Option<Arc<Mailbox>> {
        let mailbox = Arc::new(Mailbox::default());
        let mut mailboxes = self.mailboxes();
        if mailboxes.contains_key(name) {
            return None;
        }
        mailboxes.insert(name.clone(), mailbox.clone());
        if matches!(*self.life.borrow(), Life::Ended(_)) {
            mailbox.close();
        }
        Some(mailbox)
    }

    /// Nobody works there any more, which the heart is to hear as `gone`. Said before the next one can open it: whatever
    /// that one says comes later.
    pub fn close_mailbox(&self, name: &Name, gone: Input) {
        self.said().gone.insert(name.clone(), gone);
        self.mailboxes().remove(name);
        self.spoken.notify_one();
    }

    pub fn is_read(&self, name: &Name) -> bool {
        self.mailboxes().contains_key(name)
    }

    pub fn say_ready(&self, ready: bool) {
        self.said().ready = Some(ready);
        self.spoken.notify_one();
    }

    /// What was said since the heart has listened last.
    pub fn take_said(&self) -> impl Iterator<Item = Input> + use<> {
        let Said { gone, ready } = std::mem::take(&mut *self.said());
        gone.into_values().chain(ready.map(Input::Ready))
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailboxes(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To whoever works under that lease: a duty by its name, a shard by its source's.
    /// `hear_by`: of a duty's loss, until when that one should have stopped. Whoever hears of shards is a messenger, and
    /// stops nothing by it.
    pub fn post(&self, change: Change, hear_by: Moment) {
        let lease = change.lease().clone();
        if &*lease == QUEEN {
            let role = match change {
                Change::Gained(term) => Role::Queen(term),
                Change::Leave { .. } | Change::Lost { .. } => Role::Bee,
            };
            return self.role.store(Arc::new(role));
        }
        let (mailbox, hear_by) = match lease.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/')) {
            Some((source, _)) => (self.mailboxes().get(source).cloned(), Moment::FAR),
            None => (self.mailboxes().get(&lease).cloned(), hear_by),
        };
        if let Some(mailbox) = mailbox {
            mailbox.post(change, hear_by);
        }
    }

    /// Duties that were lost, and whose work has not stopped in time; each is told once.
    pub fn unstopped(&self, now: Moment) -> Vec<Name> {
        self.mailboxes().values().flat_map(|mailbox| mailbox.overdue(now)).collect()
    }

    pub fn set_node(&self, node: Option<NodeId>) {
        if self.node() != node {
            self.node.store(node.map(Arc::new));
            self.limits_learn_node();
        }
    }

    pub fn set_trust(&self, until: Moment) {
        self.heard_at.store(self.clock.now().0, Ordering::Relaxed);
        self.trust.send_replace(until);
        if matches!(*self.life.borrow(), Life::Joining) {
            self.life.send_replace(Life::In);
        }
        if **self.role.load() == Role::Out {
            self.role.store(Arc::new(Role::Bee));
        }
    }

    pub fn set_engaged(&self, engaged: Engaged) {
        self.engaged.store(Arc::new(engaged));
        self.limits_learn_engaged(engaged);
    }

    pub fn counters(&self) -> Counters {
        self.counting().clone()
    }

    pub fn counting(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_view(&self, view: Arc<View>, events: Option<Vec<Event>>) {
        self.counting().events(events.as_deref().unwrap_or_default(), self.node());
        self.view.store(Some(view.clone()));
        // Nobody may be there to hear it.
        let _ = self.updates.send(Update { view, events });
    }

    pub fn set_out(&self) {
        self.role.store(Arc::new(Role::Out));
    }

    pub fn end(&self, failure: Option<Failure>) {
        self.set_out();
        self.life.send_if_modified(|life| {
            let ends = !matches!(life, Life::Ended(_));
            if ends {
                *life = Life::Ended(failure);
            }
            ends
        });
        self.mailboxes().values().for_each(|mailbox| mailbox.close());
    }
}
