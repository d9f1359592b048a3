//! What all handles, loans and tasks of a pool share: the gate, the settings, and the way effects are carried out.

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
    core::{Carried, Change, Core, Effects, Ending, Key, Lent},
    gate::Gate,
    server::Server,
    settings::{Settings, SettingsError},
};

pub struct Shared<C: Connector> {
    pub connector: C,
    pub gate: Gate<Arc<Entry<C>>>,
    pub(crate) clock: PoolClock,
    pub settings: ArcSwap<Settings>,
    /// Whether the settings have switched it on: what was done, not what they ask for.
    pub switched_on: AtomicBool,
    pub settings_error: ArcSwap<Option<SettingsError>>,
    pub discovery_error: ArcSwap<Option<Arc<str>>>,
    /// Discovery has a connection of its own, or opens one.
    pub listening: AtomicBool,
    /// Configured names that cannot be looked up now.
    pub name_error: ArcSwap<Option<Arc<str>>>,
    pub runtime: tokio::runtime::Handle,
    pub signals: Signals,
    /// The connector's own counts when they were last taken.
    pub counts_taken: Mutex<Vec<(&'static str, u64)>>,
    pub changes: broadcast::Sender<Change>,
    /// True when the last task has ended.
    pub ended: watch::Sender<bool>,
}

/// Who is to look again.
#[derive(Default)]
pub struct Signals {
    pub expiry: Notify,
    pub reconciler: Notify,
    pub watchers: Notify,
    pub discovery: Notify,
    /// The pool is in another state: for whoever is in the midst of something.
    pub state: Notify,
    /// Asked for by a person: replaces a round that hangs.
    pub refresh: Notify,
    /// Whoever waits for a drain or for connections.
    pub waiting: Notify,
    /// No handle is left or the pool is closed: every task ends.
    pub over: Notify,
}

/// A connection with what belongs to it.
pub struct Entry<C: Connector> {
    pub shared: Arc<Shared<C>>,
    pub connection: C::Connection,
    pub server: Server,
    pub exclusive: bool,
    /// The use of an exclusive connection ended before its closure did.
    pub cut: AtomicBool,
}

impl<C: Connector> Carried for Arc<Entry<C>> {
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

/// How long a goodbye may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

impl<C: Connector> Shared<C> {
    #[inline]
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The same moment for tokio's timers.
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

    /// Of a connection outside of the pool: those within are looked at when they leave it.
    pub fn let_go(self: &Arc<Self>, connection: &C::Connection) {
        if connection.answered_wrongly() {
            self.enter(|core, _| core.counters_mut().wrong_answers += 1);
        }
    }

    /// Makes one step and carries out what follows. No result if the pool broke in it.
    #[inline]
    pub fn enter<R>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Core<Arc<Entry<C>>>, &mut Effects<Arc<Entry<C>>>) -> R,
    ) -> Option<R> {
        let mut result = None;
        self.enter_to(&mut result, step);
        result
    }

    /// The same for a result that is felt when it is copied.
    #[inline]
    pub fn enter_to<R>(
        self: &Arc<Self>,
        result: &mut Option<R>,
        step: impl FnOnce(&mut Core<Arc<Entry<C>>>, &mut Effects<Arc<Entry<C>>>) -> R,
    ) {
        let mut rest = None;
        self.gate.enter(result, &mut rest, step);
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
            tracing::warn!(pool = self.settings.load().name, %site, "a loan is overdue: it was taken here");
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
            // Nobody may be listening.
            let _ = self.changes.send(change);
        }
    }
}

async fn close<C: Connector>(shared: Arc<Shared<C>>, server: Key, entry: Arc<Entry<C>>) {
    // Counted as closed whatever becomes of this task.
    let _closed = Closed { shared, server };
    let by = Instant::now() + CLOSE_WITHIN;
    let _ = tokio::time::timeout_at(by, entry.connection.close(by)).await;
    drop(entry);
}

struct Closed<C: Connector> {
    shared: Arc<Shared<C>>,
    server: Key,
}

impl<C: Connector> Drop for Closed<C> {
    fn drop(&mut self) {
        self.shared.enter(|core, effects| core.closed(self.server, effects));
    }
}

async fn probe<C: Connector>(shared: Arc<Shared<C>>, lent: Lent<Arc<Entry<C>>>) {
    let within = shared.settings.load().heartbeat_timeout;
    let borrowed = Borrowed { shared, lent, ending: Ending::Discarded };
    let _ = borrowed.probe(within).await;
}

/// A connection borrowed by the pool itself; it comes back whatever becomes of the probe.
pub struct Borrowed<C: Connector> {
    pub shared: Arc<Shared<C>>,
    pub lent: Lent<Arc<Entry<C>>>,
    pub ending: Ending,
}

impl<C: Connector> Borrowed<C> {
    /// Whether there was a sign of life.
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

impl<C: Connector> Drop for Borrowed<C> {
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
