//! The task that runs the reconciler and opens the connections that it asks for. Each connect runs in a separate task,
//! so that one that hangs delays no other.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::{
    connect::{Connection, Connector, Limits},
    core::{ConnectFailure, PendingConnect, State},
    error::Kind,
    outage::one_line,
    shared::{Entry, Shared},
};

pub async fn run<C: Connector>(shared: Arc<Shared<C>>) {
    // The connects are aborted with this task; their guards report that to the core.
    let mut connects = JoinSet::new();
    let mut opens = Vec::new();
    loop {
        super::fail_point("pool-openers-panic");
        let now = shared.now();
        let looked = shared.enter(|core, effects| (core.reconcile(now, &mut opens, effects), core.state()));
        let Some((next, state)) = looked else { return std::future::pending().await };
        if state != State::Active {
            // They are not needed any more, and a drain waits until they have ended.
            connects.abort_all();
        }
        for open in opens.drain(..) {
            let guard = ConnectGuard { shared: shared.clone(), open: Some(open) };
            connects.spawn(connect(shared.clone(), guard));
        }
        let sleep = tokio::time::sleep_until(shared.instant(next));
        tokio::select! {
            () = sleep => {}
            () = shared.signals.reconciler.notified() => {}
            Some(_) = connects.join_next(), if !connects.is_empty() => {}
        }
    }
}

/// Guards a connect in progress: if its task ends without a result, it reports that to the core.
struct ConnectGuard<C: Connector> {
    shared: Arc<Shared<C>>,
    open: Option<PendingConnect>,
}

impl<C: Connector> Drop for ConnectGuard<C> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let now = self.shared.now();
            if std::thread::panicking() {
                let failed = ConnectFailure::of(Kind::Connect, "the connector panicked");
                self.shared.enter(|core, effects| core.failed(&open, &failed, now, effects));
            } else {
                self.shared.enter(|core, effects| core.abandoned(&open, effects));
            }
        }
    }
}

async fn connect<C: Connector>(shared: Arc<Shared<C>>, mut guard: ConnectGuard<C>) {
    let Some((to, write)) = guard.open.as_ref().map(|open| (open.to.clone(), open.write_timeout)) else { return };
    let begun = shared.now();
    let limits = Limits { write, ..shared.limits() };
    let by = Instant::now() + limits.tcp + limits.ready;
    let result = timeout_at(by, shared.connector.connect(&to, limits)).await;
    let now = shared.now();
    let failed = match result {
        Ok(Ok(connection)) => {
            let streams = connection.streams();
            if let Some(open) = guard.open.take() {
                let took = now.since(begun);
                shared.enter(|core, effects| {
                    // Computed from the core's rules under the lock, so that both agree whether it is exclusive.
                    let exclusive = core.rules().streams(streams) == 1;
                    let cut = AtomicBool::new(false);
                    let entry = Arc::new(Entry { shared: shared.clone(), exclusive, connection, server: to, cut });
                    core.opened(&open, entry, streams, took, now, effects)
                });
                shared.signals.watchers.notify_one();
            }
            return;
        }
        Ok(Err(error)) => failure(&shared.connector, &error),
        Err(_) => {
            let message = format!("{to} was not ready within {:?}", limits.tcp + limits.ready);
            ConnectFailure { timed_out: true, ..ConnectFailure::of(Kind::Connect, message) }
        }
    };
    tracing::debug!(pool = shared.settings.load().name, server = %to, error = %failed.message, "connect failed");
    if let Some(open) = guard.open.take() {
        shared.enter(|core, effects| core.failed(&open, &failed, now, effects));
    }
}

/// Turns an error into the report of a failed connect.
pub fn failure<C: Connector>(connector: &C, error: &C::Error) -> ConnectFailure {
    ConnectFailure {
        message: chain(error).into(),
        kind: connector.verdict(error).kind,
        timed_out: has_kind(error, std::io::ErrorKind::TimedOut),
        refused: has_kind(error, std::io::ErrorKind::ConnectionRefused),
    }
}

/// An error with its causes in one line, also if the text of a server contains line breaks.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    one_line(&text)
}

fn has_kind(error: &(dyn std::error::Error + 'static), kind: std::io::ErrorKind) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == kind) {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-90
    #[test]
    fn pl_90_a_chain_of_causes_is_one_line() {
        let error = std::io::Error::other("the server said \"no\nway\x07\"");
        assert_eq!(chain(&error), "the server said \"no way \"");
    }
}
