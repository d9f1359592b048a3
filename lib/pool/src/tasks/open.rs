//! The reconciler's hands: opens what the core asks for, each connect in a task of its own, so that one that hangs
//! delays nothing.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::{
    connect::{Connection, Connector, Limits},
    core::{Failed, Open, State},
    error::Kind,
    outage::one_line,
    shared::{Entry, Shared},
};

pub async fn run<C: Connector>(shared: Arc<Shared<C>>) {
    // Aborted with this task: their promises say that they have gone.
    let mut connects = JoinSet::new();
    let mut opens = Vec::new();
    loop {
        super::fail_point("pool-openers-panic");
        let now = shared.now();
        let looked = shared.enter(|core, effects| (core.reconcile(now, &mut opens, effects), core.state()));
        let Some((next, state)) = looked else { return std::future::pending().await };
        if state != State::Active {
            // Nobody wants them any more, and a drain waits until they are gone.
            connects.abort_all();
        }
        for open in opens.drain(..) {
            let promise = Promise { shared: shared.clone(), open: Some(open) };
            connects.spawn(connect(shared.clone(), promise));
        }
        let sleep = tokio::time::sleep_until(shared.instant(next));
        tokio::select! {
            () = sleep => {}
            () = shared.signals.reconciler.notified() => {}
            Some(_) = connects.join_next(), if !connects.is_empty() => {}
        }
    }
}

/// A connect under way. Whatever becomes of it, the core hears of it.
struct Promise<C: Connector> {
    shared: Arc<Shared<C>>,
    open: Option<Open>,
}

impl<C: Connector> Drop for Promise<C> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let now = self.shared.now();
            if std::thread::panicking() {
                let failed = Failed::of(Kind::Connect, "the connector panicked");
                self.shared.enter(|core, effects| core.failed(&open, &failed, now, effects));
            } else {
                self.shared.enter(|core, effects| core.abandoned(&open, effects));
            }
        }
    }
}

async fn connect<C: Connector>(shared: Arc<Shared<C>>, mut promise: Promise<C>) {
    let Some((to, write)) = promise.open.as_ref().map(|open| (open.to.clone(), open.write_timeout)) else { return };
    let begun = shared.now();
    let limits = Limits { write, ..shared.limits() };
    let by = Instant::now() + limits.tcp + limits.ready;
    let result = timeout_at(by, shared.connector.connect(&to, limits)).await;
    let now = shared.now();
    let failed = match result {
        Ok(Ok(connection)) => {
            let streams = connection.streams();
            if let Some(open) = promise.open.take() {
                let took = now.since(begun);
                shared.enter(|core, effects| {
                    // By the rules that the core goes by, or the two could take it for different kinds.
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
            Failed { timed_out: true, ..Failed::of(Kind::Connect, message) }
        }
    };
    tracing::debug!(pool = shared.settings.load().name, server = %to, error = %failed.message, "connect failed");
    if let Some(open) = promise.open.take() {
        shared.enter(|core, effects| core.failed(&open, &failed, now, effects));
    }
}

/// What an error says about a connect.
pub fn failure<C: Connector>(connector: &C, error: &C::Error) -> Failed {
    Failed {
        message: chain(error).into(),
        kind: connector.verdict(error).kind,
        timed_out: has_kind(error, std::io::ErrorKind::TimedOut),
        refused: has_kind(error, std::io::ErrorKind::ConnectionRefused),
    }
}

/// An error with its causes, in one line whatever a server wrote into it.
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
