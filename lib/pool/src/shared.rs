//! What all handles, loans and tasks of a pool share: the locked core and the settings. It also carries out the effects
//! of each step.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use honeyflow_runtime::Moment;
use tokio::{
    sync::{Notify, broadcast, watch},
    time::Instant,
};

use crate::{
    clock::PoolClock,
    connect::{Connection, Connector, Limits},
    core::{Change, Core, Effects, Ending, Key, LentConnection, PooledConnection},
    core_lock::CoreLock,
    server::Server,
    settings::{Settings, SettingsError},
};

pub struct Shared<C: Connector> {
    pub connector: C,
    pub core_lock: CoreLock<Arc<Entry<C>>>,
    pub(crate) clock: PoolClock,
    pub settings: ArcSwap<Settings>,
    /// Whether the pool was last enabled by its settings. This is what was done, not what the settings say now.
    pub switched_on: AtomicBool,
    pub settings_error: ArcSwap<Option<SettingsError>>,
    pub discovery_error: ArcSwap<Option<Arc<str>>>,
    /// Whether discovery has a connection or opens one.
    pub listening: AtomicBool,
    /// The configured names that cannot be looked up now.
    pub name_error: ArcSwap<Option<Arc<str>>>,
    pub runtime: tokio::runtime::Handle,
    pub signals: Signals,
    /// The connector's counters when they were last taken.
    pub counts_taken: Mutex<Vec<(&'static str, u64)>>,
    pub changes: broadcast::Sender<Change>,
    /// True after the last task has ended.
    pub ended: watch::Sender<bool>,
}

/// Signals that make a task look again.
#[derive(Default)]
pub struct Signals {
    pub expiry: Notify,
    pub reconciler: Notify,
    pub watchers: Notify,
    pub discovery: Notify,
    /// The state has changed: a task that waits for something else must check it.
    pub state: Notify,
    /// An operator asks for a discovery round; it replaces one that hangs.
    pub refresh: Notify,
    /// Something has changed for callers that wait for the end of a drain or for open connections.
    pub waiting: Notify,
    /// The last handle was dropped or the pool is closed: every task ends.
    pub over: Notify,
}

/// A connection of the pool with its server and its state.
pub struct Entry<C: Connector> {
    pub shared: Arc<Shared<C>>,
    pub connection: C::Connection,
    pub server: Server,
    pub exclusive: bool,
    /// The request on an exclusive connection was cut off, so its protocol state is unknown.
    pub cut: AtomicBool,
}

impl<C: Connector> PooledConnection for Arc<Entry<C>> {
    #[inline]
    fn broken(&self) -> bool {
        self.connection.broken()
    }

    #[inline]
    fn takes_more(&self) -> bool {
        self.connection.takes_more()
    }

    fn answered_wrongly(&self) -> bool {
        self.connection.answered_wrongly()
    }
}

/// How long closing a connection may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

impl<C: Connector> Shared<C> {
    #[inline]
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Converts a moment for tokio's timers.
    pub fn instant(&self, at: Moment) -> Instant {
        let far = Duration::from_secs(86_400 * 30);
        Instant::now() + at.since(self.now()).min(far)
    }

    pub fn limits(&self) -> Limits {
        let settings = self.settings.load();
        Limits {
            tcp: settings.tcp_timeout,
            ready: settings.handshake_timeout,
            write: settings.write_timeout,
            silence: settings.heartbeat_timeout,
        }
    }

    /// Counts wrong answers of a connection that never belonged to the pool. The core counts those of its own
    /// connections when it removes them.
    pub fn count_wrong_answers(self: &Arc<Self>, connection: &C::Connection) {
        if connection.answered_wrongly() {
            self.enter(|core, _| core.counters_mut().wrong_answers += 1);
        }
    }

    /// Makes one step of the core and carries out its effects. Returns `None` if the step panicked.
    #[inline]
    pub fn enter<R>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Core<Arc<Entry<C>>>, &mut Effects<Arc<Entry<C>>>) -> R,
    ) -> Option<R> {
        let mut result = None;
        self.enter_to(&mut result, step);
        result
    }

    /// The same as [`Shared::enter`], for a result that is too large to copy cheaply.
    #[inline]
    pub fn enter_to<R>(
        self: &Arc<Self>,
        result: &mut Option<R>,
        step: impl FnOnce(&mut Core<Arc<Entry<C>>>, &mut Effects<Arc<Entry<C>>>) -> R,
    ) {
        let mut rest = None;
        self.core_lock.enter(result, &mut rest, step);
        if let Some(effects) = rest {
            self.carry_out(effects);
        }
    }

    #[cold]
    fn carry_out(self: &Arc<Self>, effects: Effects<Arc<Entry<C>>>) {
        if effects.rearm {
            self.signals.expiry.notify_one();
        }
        if effects.reconcile {
            self.signals.reconciler.notify_one();
            self.signals.waiting.notify_waiters();
        }
        for (server, entry) in effects.close {
            self.runtime.spawn(close(self.clone(), server, entry));
        }
        for lent in effects.probe {
            self.runtime.spawn(probe(self.clone(), lent));
        }
        for site in effects.overdue {
            tracing::warn!(pool = self.settings.load().name, %site, "a loan is overdue; site is where it was taken");
        }
        for change in effects.changes {
            if matches!(change, Change::State { .. }) {
                self.signals.discovery.notify_one();
                self.signals.state.notify_waiters();
            }
            if let Change::LoginRefused { id, why } = &change {
                let pool = &self.settings.load().name;
                tracing::warn!(pool, server = %id, error = %why, "the login is refused: check user and password");
            }
            tracing::debug!(pool = self.settings.load().name, ?change);
            // An error means that no listener is subscribed.
            let _ = self.changes.send(change);
        }
    }
}

async fn close<C: Connector>(shared: Arc<Shared<C>>, server: Key, entry: Arc<Entry<C>>) {
    // The guard counts the connection as closed however this task ends.
    let _closed = CloseReport { shared, server };
    let by = Instant::now() + CLOSE_WITHIN;
    let _ = tokio::time::timeout_at(by, entry.connection.close(by)).await;
    drop(entry);
}

struct CloseReport<C: Connector> {
    shared: Arc<Shared<C>>,
    server: Key,
}

impl<C: Connector> Drop for CloseReport<C> {
    fn drop(&mut self) {
        self.shared.enter(|core, effects| core.closed(self.server, effects));
    }
}

async fn probe<C: Connector>(shared: Arc<Shared<C>>, lent: LentConnection<Arc<Entry<C>>>) {
    let within = shared.settings.load().heartbeat_timeout;
    let borrowed = ProbeLoan { shared, lent, ending: Ending::Discarded };
    let _ = borrowed.probe(within).await;
}

/// A connection that the pool borrowed for a probe; it comes back however the probe ends.
pub struct ProbeLoan<C: Connector> {
    pub shared: Arc<Shared<C>>,
    pub lent: LentConnection<Arc<Entry<C>>>,
    pub ending: Ending,
}

impl<C: Connector> ProbeLoan<C> {
    /// Sends a heartbeat. Returns whether it was answered in time.
    pub async fn probe(mut self, within: Duration) -> bool {
        let begun = self.shared.now();
        let by = Instant::now() + within;
        let alive = tokio::time::timeout_at(by, self.lent.carried.connection.probe(by)).await.unwrap_or(false);
        let now = self.shared.now();
        let took = alive.then(|| now.since(begun));
        if alive {
            self.ending = Ending::Unused;
        }
        let server = self.lent.server;
        self.shared.enter(|core, effects| core.probed(server, took, now, effects));
        alive
    }
}

impl<C: Connector> Drop for ProbeLoan<C> {
    fn drop(&mut self) {
        let now = self.shared.now();
        let (connection, ending) = (self.lent.connection, self.ending);
        self.shared.enter(|core, effects| core.checkin(connection, ending, 0, now, effects));
    }
}

impl<C: Connector> Entry<C> {
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }
}
