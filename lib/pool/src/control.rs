//! The operator's interface to a pool, independent of its protocol: status, counters, and the commands that enable,
//! activate and drain it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::broadcast, task::JoinHandle, time::Instant};

use crate::{
    connect::Connector,
    core::{Change, Counters, DrainReport, DrainTarget, Record, State, Status, histogram::Histogram},
    server::Server,
    shared::Shared,
};

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use crate::renamed::Moved;

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a pool is drained: how long loans may finish, and whether waiters are still served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    within: Option<Duration>,
    serve_waiters: bool,
}

impl Drain {
    /// Loans may finish for this time, and waiters are served meanwhile.
    pub fn within(time: Duration) -> Drain {
        Drain { within: Some(time), serve_waiters: true }
    }

    /// Loans may finish for the configured `drain-timeout`, and waiters are served meanwhile.
    pub fn as_configured() -> Drain {
        Drain { within: None, serve_waiters: true }
    }

    #[must_use]
    pub fn failing_waiters(self) -> Drain {
        Drain { serve_waiters: false, ..self }
    }
}

/// The state before and after a command; both are the same if the command changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    pub before: State,
    pub now: State,
}

/// Status, counters and commands.
pub trait Control: Send + Sync {
    fn status(&self) -> Status;
    fn counters(&self) -> Counters;
    /// Returns the counters and resets them to zero.
    fn take_counters(&self) -> Counters;
    /// Returns the histograms of each server since the last call: connects, waits, uses.
    fn take_histograms(&self) -> Vec<(Server, [Histogram; 3])>;
    /// Returns one record per open connection.
    fn records(&self) -> Vec<(Server, Record)>;
    /// Returns one record per open connection, since the last call.
    fn take_records(&self) -> Vec<(Server, Record)>;
    fn changes(&self) -> Changes;
    fn enable(&self) -> Transition;
    /// Starts to open connections in the background; the number is how many connections the pool should have.
    fn activate(&self) -> (Transition, u32);
    fn deactivate(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)>;
    fn disable(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)>;
    fn close(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)>;
    /// Starts a discovery round now.
    fn refresh(&self);
    /// Waits until at least `count` connections are open; false if they are not by then.
    fn ready(&self, count: u32, by: Instant) -> Answer<'_, bool>;
}

/// The stream of changes. It is bounded: a slow reader misses the oldest ones and learns how many.
pub struct Changes {
    receiver: broadcast::Receiver<Change>,
    dropped: u64,
}

impl Changes {
    /// Waits for the next change; `None` after the pool has ended.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            match self.receiver.recv().await {
                Ok(change) => return Some(change),
                Err(broadcast::error::RecvError::Lagged(missed)) => self.dropped += missed,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<C: Connector> Control for Arc<Shared<C>> {
    fn status(&self) -> Status {
        let now = self.now();
        let status = self.enter(|core, _| core.status(now)).or_else(|| self.enter(|core, _| core.status(now)));
        let mut status = status.unwrap_or_else(Status::unknown);
        for server in &mut status.servers {
            // Memory is allocated outside the lock, and the lock is taken once per server, so that requests get their
            // turn in between.
            let mut times = room();
            self.enter(|core, _| core.copy_times(server.key, &mut times));
            [server.connects, server.waits, server.uses] = times;
        }
        let settings = self.settings.load();
        Status {
            name: settings.name.clone(),
            settings_error: (**self.settings_error.load()).clone(),
            discovery_error: (**self.discovery_error.load()).clone().or_else(|| (**self.name_error.load()).clone()),
            remarks: self.connector.remarks(),
            ..status
        }
    }

    fn counters(&self) -> Counters {
        let own = difference(&self.connector.counts(), &counts_taken(self));
        Counters { own, ..self.enter(|core, _| core.counters()).unwrap_or_default() }
    }

    fn take_counters(&self) -> Counters {
        let own = {
            let mut taken = counts_taken(self);
            let now = self.connector.counts();
            difference(&now, &std::mem::replace(&mut *taken, now.clone()))
        };
        Counters { own, ..self.enter(|core, _| core.take_counters()).unwrap_or_default() }
    }

    fn take_histograms(&self) -> Vec<(Server, [Histogram; 3])> {
        let servers = self.enter(|core, _| core.server_keys()).unwrap_or_default();
        let take = |server| {
            let room = room();
            self.enter(|core, _| core.take_times(server, room)).flatten()
        };
        servers.into_iter().filter_map(take).collect()
    }

    fn records(&self) -> Vec<(Server, Record)> {
        self.enter(|core, _| core.records()).unwrap_or_default()
    }

    fn take_records(&self) -> Vec<(Server, Record)> {
        self.enter(|core, _| core.take_records()).unwrap_or_default()
    }

    fn changes(&self) -> Changes {
        Changes { receiver: self.changes.subscribe(), dropped: 0 }
    }

    fn enable(&self) -> Transition {
        transition(self.enter(crate::core::Core::enable))
    }

    fn activate(&self) -> (Transition, u32) {
        let done = self.enter(|core, effects| (core.activate(effects), core.wanted()));
        let (states, wanted) = done.unzip();
        (transition(states), wanted.unwrap_or(0))
    }

    fn deactivate(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)> {
        Box::pin(run_drain(self, DrainTarget::Inactive, drain))
    }

    fn disable(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)> {
        Box::pin(run_drain(self, DrainTarget::Disabled, drain))
    }

    fn close(&self, drain: Drain) -> Answer<'_, (Transition, DrainReport)> {
        Box::pin(async move {
            let answer = run_drain(self, DrainTarget::Closed, drain).await;
            self.signals.over.notify_one();
            let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
            answer
        })
    }

    fn refresh(&self) {
        self.signals.refresh.notify_one();
    }

    fn ready(&self, count: u32, by: Instant) -> Answer<'_, bool> {
        Box::pin(async move {
            let open = || self.enter(|core, _| core.open_count() >= count).unwrap_or(false);
            wait_until(self, by, open).await
        })
    }
}

/// Allocates the histograms for one server, before the lock is taken.
fn room() -> [Histogram; 3] {
    std::array::from_fn(|_| Histogram::with_room())
}

type Counts = Vec<(&'static str, u64)>;

fn counts_taken<C: Connector>(shared: &Shared<C>) -> MutexGuard<'_, Counts> {
    shared.counts_taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts now minus the counts when they were last taken.
fn difference(now: &Counts, taken: &Counts) -> Counts {
    let before = |name| taken.iter().find(|(taken, _)| *taken == name).map_or(0, |(_, count)| *count);
    now.iter().map(|(name, count)| (*name, count.saturating_sub(before(*name)))).collect()
}

fn transition(states: Option<(State, State)>) -> Transition {
    let (before, now) = states.unwrap_or((State::Broken, State::Broken));
    Transition { before, now }
}

/// Waits until the condition holds, at most until `by`. Returns whether it holds.
async fn wait_until<C: Connector>(shared: &Arc<Shared<C>>, by: Instant, is_so: impl Fn() -> bool) -> bool {
    loop {
        let changed = shared.signals.waiting.notified();
        if is_so() {
            return true;
        }
        if tokio::time::timeout_at(by, changed).await.is_err() {
            return is_so();
        }
    }
}

/// Starts a drain. It has begun when this returns, and it runs to its end even if the caller drops the handle.
pub(crate) fn begin_drain<C: Connector>(
    shared: &Arc<Shared<C>>,
    next: DrainTarget,
    drain: Drain,
) -> (Transition, Option<JoinHandle<DrainReport>>) {
    let within = drain.within.unwrap_or(shared.settings.load().drain_timeout);
    let began = transition(shared.enter(|core, effects| core.begin_drain(next, drain.serve_waiters, effects)));
    let going_on = shared.clone();
    let finishing = matches!(began.now, State::Draining(_))
        .then(|| shared.runtime.spawn(async move { finish(&going_on, within).await }));
    (began, finishing)
}

/// Drains the pool: loans and waiters finish or are cut off, then the sockets close. If the caller goes away, the
/// drain continues.
async fn run_drain<C: Connector>(
    shared: &Arc<Shared<C>>,
    next: DrainTarget,
    drain: Drain,
) -> (Transition, DrainReport) {
    let (answer, finishing) = begin_drain(shared, next, drain);
    let Some(finishing) = finishing else { return (answer, DrainReport::default()) };
    let drained = finishing.await.unwrap_or_default();
    let now = shared.enter(|core, _| core.state()).unwrap_or(State::Broken);
    (Transition { now, ..answer }, drained)
}

async fn finish<C: Connector>(shared: &Arc<Shared<C>>, within: Duration) -> DrainReport {
    wait_until(shared, Instant::now() + within, || shared.enter(|core, _| core.is_drained()).unwrap_or(true)).await;
    let now = shared.now();
    let drained = shared.enter(|core, effects| core.finish_drain(now, effects)).unwrap_or_default();
    // Closing a connection takes at most one second, so this ends soon.
    let patience = Instant::now() + Duration::from_secs(2);
    let empty = || {
        let here = shared.enter(|core, _| (core.at_rest(), core.state().allows_discovery()));
        here.is_none_or(|(at_rest, looks)| at_rest && (looks || !shared.listening.load(Ordering::SeqCst)))
    };
    wait_until(shared, patience, empty).await;
    drained
}
