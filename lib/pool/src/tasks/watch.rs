//! Watches each connection in a separate task: notices its end, and sends a heartbeat when it was silent for too long.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    connect::{Connection, Connector},
    core::{Ending, Key},
    shared::{Entry, ProbeLoan, Shared},
};

pub async fn run<C: Connector>(shared: Arc<Shared<C>>) {
    let mut watchers = JoinSet::new();
    let mut watched: HashMap<Key, tokio::task::AbortHandle> = HashMap::new();
    loop {
        super::fail_point("pool-watchers-panic");
        let live: HashMap<Key, Arc<Entry<C>>> =
            shared.enter(|core, _| core.live().map(|(key, entry)| (key, entry.clone())).collect()).unwrap_or_default();
        watched.retain(|key, watcher| {
            let lives = live.contains_key(key);
            if !lives {
                watcher.abort();
            }
            lives
        });
        for (key, entry) in live {
            watched.entry(key).or_insert_with(|| watchers.spawn(watch(shared.clone(), key, entry)));
        }
        tokio::select! {
            () = shared.signals.watchers.notified() => {}
            Some(ended) = watchers.join_next(), if !watchers.is_empty() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
}

async fn watch<C: Connector>(shared: Arc<Shared<C>>, key: Key, entry: Arc<Entry<C>>) {
    let closed = || format!("{} closed the connection", entry.server);
    let why = tokio::select! {
        biased;
        () = entry.connection.closed() => closed(),
        // Checked before the heartbeat, which may have failed only because of the goodbye.
        () = entry.connection.takes_no_more() => {
            let now = shared.now();
            shared.enter(|core, effects| core.on_goodbye(key, now, effects));
            // No more heartbeats after a goodbye; each request that is still in flight has its own deadline.
            entry.connection.closed().await;
            closed()
        }
        why = heartbeat(&shared, key, &entry) => why,
    };
    // Removes the connection also if requests are in flight, so that they do not keep the socket open.
    let now = shared.now();
    shared.enter(|core, effects| core.died(key, &why, now, effects));
}

/// Sends heartbeats. Completes with the reason when one was not answered.
async fn heartbeat<C: Connector>(shared: &Arc<Shared<C>>, key: Key, entry: &Arc<Entry<C>>) -> String {
    let mut silent_since = Instant::now();
    loop {
        let (idle, within) = {
            let settings = shared.settings.load();
            (settings.heartbeat_idle, settings.heartbeat_timeout)
        };
        silent_since = entry.connection.last_read().unwrap_or(silent_since).max(silent_since);
        let due = silent_since + idle;
        if due > Instant::now() {
            // The settings may change meanwhile: check at least once a second.
            tokio::time::sleep_until(due.min(Instant::now() + Duration::from_secs(1))).await;
            continue;
        }
        let now = shared.now();
        let alive = if entry.exclusive {
            match shared.enter(|core, effects| core.borrow(key, now, effects)).flatten() {
                // The connection is on loan, and the loan's deadline applies.
                None => true,
                Some(lent) => {
                    let borrowed = ProbeLoan { shared: shared.clone(), lent, ending: Ending::Discarded };
                    borrowed.probe(within).await
                }
            }
        } else {
            let by = Instant::now() + within;
            tokio::time::timeout_at(by, entry.connection.probe(by)).await.unwrap_or(false)
        };
        if !alive && !entry.connection.takes_more() {
            // The server has said goodbye; `watch` notices that next.
            return std::future::pending().await;
        }
        if !alive {
            return format!("{} did not answer a heartbeat within {within:?}", entry.server);
        }
        silent_since = Instant::now();
    }
}
