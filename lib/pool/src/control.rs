//! The pool as those see it who operate it: the same for pools of every kind.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::broadcast, task::JoinHandle, time::Instant};

use crate::{
    connect::Connector,
    core::{Change, Counters, Drained, Next, Record, State, Status, histogram::Histogram},
    server::Server,
    shared::Shared,
};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a pool is emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    within: Option<Duration>,
    serve_waiters: bool,
}

impl Drain {
    /// Loans may finish until then; whoever waits is served meanwhile.
    pub fn within(time: Duration) -> Drain {
        Drain { within: Some(time), serve_waiters: true }
    }

    /// As long as the settings say.
    pub fn as_configured() -> Drain {
        Drain { within: None, serve_waiters: true }
    }

    #[must_use]
    pub fn failing_waiters(self) -> Drain {
        Drain { serve_waiters: false, ..self }
    }
}

/// What a command changed; nothing if both are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    pub before: State,
    pub now: State,
}

/// Status, counters and commands.
pub trait Control: Send + Sync {
    fn status(&self) -> Status;
    fn counters(&self) -> Counters;
    /// The values until now; counting begins anew.
    fn take_counters(&self) -> Counters;
    /// Connects, waits and uses of each server since the last take.
    fn take_histograms(&self) -> Vec<(Server, [Histogram; 3])>;
    /// One record per open connection.
    fn records(&self) -> Vec<(Server, Record)>;
    /// The same since the last take.
    fn take_records(&self) -> Vec<(Server, Record)>;
    fn changes(&self) -> Changes;
    fn enable(&self) -> Moved;
    /// Opens in the background; the number is how many connections are wanted.
    fn activate(&self) -> (Moved, u32);
    fn deactivate(&self, drain: Drain) -> Answer<'_, (Moved, Drained)>;
    fn disable(&self, drain: Drain) -> Answer<'_, (Moved, Drained)>;
    fn close(&self, drain: Drain) -> Answer<'_, (Moved, Drained)>;
    /// Looks for servers now.
    fn refresh(&self);
    /// Whether so many connections are open by then; waits for them.
    fn ready(&self, count: u32, by: Instant) -> Answer<'_, bool>;
}

/// Changes as they happen. Bounded: who reads too slowly misses some and learns how many.
pub struct Changes {
    receiver: broadcast::Receiver<Change>,
    dropped: u64,
}

impl Changes {
    /// The next change; none when the pool has gone.
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
            // Room is made and times are copied server by server, so that requests get their turn between two of them.
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
        let own = less(&self.connector.counts(), &counts_taken(self));
        Counters { own, ..self.enter(|core, _| core.counters()).unwrap_or_default() }
    }

    fn take_counters(&self) -> Counters {
        let own = {
            let mut taken = counts_taken(self);
            let now = self.connector.counts();
            less(&now, &std::mem::replace(&mut *taken, now.clone()))
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

    fn enable(&self) -> Moved {
        moved(self.enter(crate::core::Core::enable))
    }

    fn activate(&self) -> (Moved, u32) {
        let done = self.enter(|core, effects| (core.activate(effects), core.wanted()));
        let (states, wanted) = done.unzip();
        (moved(states), wanted.unwrap_or(0))
    }

    fn deactivate(&self, drain: Drain) -> Answer<'_, (Moved, Drained)> {
        Box::pin(empty(self, Next::Inactive, drain))
    }

    fn disable(&self, drain: Drain) -> Answer<'_, (Moved, Drained)> {
        Box::pin(empty(self, Next::Disabled, drain))
    }

    fn close(&self, drain: Drain) -> Answer<'_, (Moved, Drained)> {
        Box::pin(async move {
            let answer = empty(self, Next::Closed, drain).await;
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
            until(self, by, open).await
        })
    }
}

/// For the times of a server, made before the lock is taken.
fn room() -> [Histogram; 3] {
    std::array::from_fn(|_| Histogram::with_room())
}

type Counts = Vec<(&'static str, u64)>;

fn counts_taken<C: Connector>(shared: &Shared<C>) -> MutexGuard<'_, Counts> {
    shared.counts_taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was counted since those were taken.
fn less(now: &Counts, taken: &Counts) -> Counts {
    let before = |name| taken.iter().find(|(taken, _)| *taken == name).map_or(0, |(_, count)| *count);
    now.iter().map(|(name, count)| (*name, count.saturating_sub(before(*name)))).collect()
}

fn moved(states: Option<(State, State)>) -> Moved {
    let (before, now) = states.unwrap_or((State::Broken, State::Broken));
    Moved { before, now }
}

/// Waits until it is so, at most until then.
async fn until<C: Connector>(shared: &Arc<Shared<C>>, by: Instant, is_so: impl Fn() -> bool) -> bool {
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

/// The drain has begun when this returns, and goes on whether or not anybody waits for its end.
pub(crate) fn begin<C: Connector>(
    shared: &Arc<Shared<C>>,
    next: Next,
    drain: Drain,
) -> (Moved, Option<JoinHandle<Drained>>) {
    let within = drain.within.unwrap_or(shared.settings.load().drain_timeout);
    let began = moved(shared.enter(|core, effects| core.begin_drain(next, drain.serve_waiters, effects)));
    let going_on = shared.clone();
    let finishing = matches!(began.now, State::Draining(_))
        .then(|| shared.runtime.spawn(async move { finish(&going_on, within).await }));
    (began, finishing)
}

/// Loans and waiters end or are ended; then the sockets go. A drain whose caller left goes on without it.
async fn empty<C: Connector>(shared: &Arc<Shared<C>>, next: Next, drain: Drain) -> (Moved, Drained) {
    let (answer, finishing) = begin(shared, next, drain);
    let Some(finishing) = finishing else { return (answer, Drained::default()) };
    let drained = finishing.await.unwrap_or_default();
    let now = shared.enter(|core, _| core.state()).unwrap_or(State::Broken);
    (Moved { now, ..answer }, drained)
}

async fn finish<C: Connector>(shared: &Arc<Shared<C>>, within: Duration) -> Drained {
    until(shared, Instant::now() + within, || shared.enter(|core, _| core.is_drained()).unwrap_or(true)).await;
    let now = shared.now();
    let drained = shared.enter(|core, effects| core.finish_drain(now, effects)).unwrap_or_default();
    // Goodbyes are bounded, so this is.
    let patience = Instant::now() + Duration::from_secs(2);
    let empty = || {
        let here = shared.enter(|core, _| (core.at_rest(), core.state().looks()));
        here.is_none_or(|(at_rest, looks)| at_rest && (looks || !shared.listening.load(Ordering::SeqCst)))
    };
    until(shared, patience, empty).await;
    drained
}
