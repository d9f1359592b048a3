//! One task per connection: notices its end, and asks for a sign of life when it has been silent for long.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    connect::{Connection, Connector},
    core::{Ending, Key},
    shared::{Borrowed, Entry, Shared},
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
        // Before the heartbeat: it may have failed for no other reason.
        () = entry.connection.takes_no_more() => {
            let now = shared.now();
            shared.enter(|core, effects| core.goes(key, now, effects));
            // It gives no signs of life any more; whoever waits for an answer has a deadline.
            entry.connection.closed().await;
            closed()
        }
        why = heartbeat(&shared, key, &entry) => why,
    };
    // What is in flight on it must not keep the socket.
    let now = shared.now();
    shared.enter(|core, effects| core.died(key, &why, now, effects));
}

/// Ends when a sign of life was missing.
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
            // Settings may change meanwhile: look now and then.
            tokio::time::sleep_until(due.min(Instant::now() + Duration::from_secs(1))).await;
            continue;
        }
        let now = shared.now();
        let alive = if entry.exclusive {
            match shared.enter(|core, effects| core.borrow(key, now, effects)).flatten() {
                // On loan: its deadline watches over it.
                None => true,
                Some(lent) => {
                    let borrowed = Borrowed { shared: shared.clone(), lent, ending: Ending::Discarded };
                    borrowed.probe(within).await
                }
            }
        } else {
            let by = Instant::now() + within;
            tokio::time::timeout_at(by, entry.connection.probe(by)).await.unwrap_or(false)
        };
        if !alive && !entry.connection.takes_more() {
            // No question of life: whoever listens for that hears of it in a moment.
            return std::future::pending().await;
        }
        if !alive {
            return format!("{} gave no sign of life within {within:?}", entry.server);
        }
        silent_since = Instant::now();
    }
}
