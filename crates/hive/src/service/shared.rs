//! The state that the heartbeat thread publishes; other threads read it without asking that thread.

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

/// Updates of the view that can wait for a subscriber; a slower one gets a fresh snapshot.
const UPDATES_MAX: usize = 64;

#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// The node is not a member, or not yet.
    Out,
    Bee,
    Queen(Term),
}

#[derive(Clone, Debug)]
pub(super) enum Membership {
    Joining,
    In,
    /// With the reason, or `None` if the node has left.
    Ended(Option<Failure>),
}

/// The last known view of the hive.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub view: Option<Arc<View>>,
    /// Time since the store's last answer; `None` if it never answered.
    pub age: Option<Duration>,
    /// The store has not answered for a time to live. No member is removed meanwhile and nothing changes, so the view
    /// may be wrong by now.
    pub stale: bool,
    /// Why the last heartbeat failed; `None` once the store has answered again.
    pub store_failure: Option<Arc<Failure>>,
}

/// Messages from code that must not block on the bounded input queue. The last value wins, so they do not pile up.
#[derive(Default)]
struct UrgentInputs {
    /// The input to send for each closed mailbox, by the mailbox's name.
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
    answered_at: AtomicU64,
    store_failure: ArcSwapOption<Failure>,
    membership: watch::Sender<Membership>,
    trust: watch::Sender<Moment>,
    updates: broadcast::Sender<Update>,
    mailboxes: Mutex<BTreeMap<Name, Arc<Mailbox>>>,
    urgent: Mutex<UrgentInputs>,
    pub urgent_posted: Notify,
    traffic: Traffic,
    counters: Mutex<Counters>,
    pub traffic_bell: Arc<Notify>,
    /// The sources whose shards this node takes.
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
            answered_at: AtomicU64::new(0),
            store_failure: ArcSwapOption::empty(),
            membership: watch::Sender::new(Membership::Joining),
            trust: watch::Sender::new(Moment::default()),
            updates: broadcast::Sender::new(UPDATES_MAX),
            mailboxes: Mutex::default(),
            urgent: Mutex::default(),
            urgent_posted: Notify::new(),
            traffic: Traffic::new(move || rung.notify_one()),
            counters: Mutex::default(),
            traffic_bell: bell,
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
        let answered_at = self.answered_at.load(Ordering::Relaxed);
        let age = (answered_at > 0).then(|| self.clock.now().since(Moment(answered_at)));
        let stale = age.is_none_or(|age| age >= self.time_to_live);
        Snapshot { view: self.view.load_full(), age, stale, store_failure: self.store_failure.load_full() }
    }

    /// Notes the result of a heartbeat. Logs a failure once for each code, not with every heartbeat. The failure is
    /// over once a heartbeat was `written`: a store that can only be read is of no use.
    pub fn note_heartbeat_result<T>(&self, result: &Result<T, Failure>, written: bool) {
        let before = self.store_failure.load();
        match result {
            Ok(_) if before.is_none() || !written => {}
            Ok(_) => {
                self.store_failure.store(None);
                tracing::info!("the hive's store answers again");
            }
            Err(failure) => {
                if before.as_ref().is_none_or(|before| before.code != failure.code) {
                    tracing::warn!(code = &*failure.code, "the hive's store cannot be used: {}", failure.message);
                }
                self.store_failure.store(Some(Arc::new(failure.clone())));
            }
        }
    }

    pub fn membership(&self) -> watch::Receiver<Membership> {
        self.membership.subscribe()
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

    /// Opens a mailbox; `None` if it has a reader already.
    pub fn open_mailbox(&self, name: &Name) -> Option<Arc<Mailbox>> {
        let mailbox = Arc::new(Mailbox::default());
        let mut mailboxes = self.mailboxes();
        if mailboxes.contains_key(name) {
            return None;
        }
        mailboxes.insert(name.clone(), mailbox.clone());
        if matches!(*self.membership.borrow(), Membership::Ended(_)) {
            mailbox.close();
        }
        Some(mailbox)
    }

    /// Closes the mailbox of work that has ended, and sends `gone` to the heartbeat thread. The message is stored
    /// before another reader can open the mailbox, so that messages of that reader come later.
    pub fn close_mailbox(&self, name: &Name, gone: Input) {
        self.urgent().gone.insert(name.clone(), gone);
        self.mailboxes().remove(name);
        self.urgent_posted.notify_one();
    }

    pub fn has_reader(&self, name: &Name) -> bool {
        self.mailboxes().contains_key(name)
    }

    pub fn set_ready(&self, ready: bool) {
        self.urgent().ready = Some(ready);
        self.urgent_posted.notify_one();
    }

    /// Takes the messages since the last call.
    pub fn take_urgent(&self) -> impl Iterator<Item = Input> + use<> {
        let UrgentInputs { gone, ready } = std::mem::take(&mut *self.urgent());
        gone.into_values().chain(ready.map(Input::Ready))
    }

    fn urgent(&self) -> MutexGuard<'_, UrgentInputs> {
        self.urgent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailboxes(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a change to the work under that lease: a duty's mailbox has the lease's name, a shard's the source's.
    /// `read_by`: until when the work of a lost duty should have stopped. It does not apply to shards, because the
    /// reader of their mailbox only passes the message on.
    pub fn post(&self, change: Change, read_by: Moment) {
        let lease = change.lease().clone();
        if &*lease == QUEEN {
            let role = match change {
                Change::Gained(term) => Role::Queen(term),
                Change::Leave { .. } | Change::Lost { .. } => Role::Bee,
            };
            return self.role.store(Arc::new(role));
        }
        let (mailbox, read_by) = match lease.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/')) {
            Some((source, _)) => (self.mailboxes().get(source).cloned(), Moment::FAR),
            None => (self.mailboxes().get(&lease).cloned(), read_by),
        };
        if let Some(mailbox) = mailbox {
            mailbox.post(change, read_by);
        }
    }

    /// The lost duties whose work has not stopped in time; each is returned once.
    pub fn take_unstopped(&self, now: Moment) -> Vec<Name> {
        self.mailboxes().values().flat_map(|mailbox| mailbox.overdue(now)).collect()
    }

    pub fn set_node(&self, node: Option<NodeId>) {
        if self.node() != node {
            self.node.store(node.map(Arc::new));
            self.limits_learn_node();
        }
    }

    pub fn set_trust(&self, until: Moment) {
        self.answered_at.store(self.clock.now().0, Ordering::Relaxed);
        self.trust.send_replace(until);
        if matches!(*self.membership.borrow(), Membership::Joining) {
            self.membership.send_replace(Membership::In);
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
        self.lock_counters().clone()
    }

    pub fn lock_counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_view(&self, view: Arc<View>, events: Option<Vec<Event>>) {
        self.lock_counters().events(events.as_deref().unwrap_or_default(), self.node());
        self.view.store(Some(view.clone()));
        // An error means that there is no subscriber.
        let _ = self.updates.send(Update { view, events });
    }

    pub fn set_out(&self) {
        self.role.store(Arc::new(Role::Out));
    }

    pub fn end(&self, failure: Option<Failure>) {
        self.set_out();
        self.membership.send_if_modified(|membership| {
            let ends = !matches!(membership, Membership::Ended(_));
            if ends {
                *membership = Membership::Ended(failure);
            }
            ends
        });
        self.mailboxes().values().for_each(|mailbox| mailbox.close());
    }
}
