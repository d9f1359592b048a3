//! The tasks of a pool, under rest-for-one supervision: expiry → settings → discovery → openers → watchers. No task
//! owns data: all data lives in the core, so a restarted task finds everything as it was.

mod discover;
mod expire;
mod reconcile;
mod settings;
mod watch;

use std::{sync::Arc, time::Duration};

use honeyflow_runtime::{
    Backoff, Failure, planted,
    supervise::{self, Child, Config},
};

use crate::{
    connect::Connector,
    control::{Control, Drain},
    settings::Provider,
    shared::Shared,
};

/// More than ten failures in ten seconds break the pool.
const SUPERVISION: Config = Config {
    backoff: Backoff::new(Duration::from_millis(50), Duration::from_millis(500)),
    restarts_max: 10,
    within: Duration::from_secs(10),
};

pub fn start<C: Connector>(shared: &Arc<Shared<C>>, provider: Arc<dyn Provider>, seed: u64) {
    let over = child(shared, "over", |shared| async move { shared.signals.over.notified().await });
    let children = vec![
        over,
        child(shared, "expiry", expire::run),
        child(shared, "settings", move |shared| settings::run(shared, provider.clone())),
        child(shared, "discovery", move |shared| discover::run(shared, seed)),
        child(shared, "openers", reconcile::run),
        child(shared, "watchers", watch::run),
    ];
    let shared = shared.clone();
    let runtime = shared.runtime.clone();
    runtime.spawn(async move {
        let clock = SupervisorClock(shared.clone());
        let failed = supervise::run(children, SUPERVISION, &clock).await;
        if let Err(failure) = failed {
            shared.enter(|core, effects| core.break_pool(&failure.message, effects));
        }
        shared.ended.send_replace(true);
    });
}

fn child<C, F>(
    shared: &Arc<Shared<C>>,
    name: &'static str,
    run: impl Fn(Arc<Shared<C>>) -> F + Send + Sync + 'static,
) -> Child
where
    C: Connector,
    F: Future<Output = ()> + Send + 'static,
{
    let shared = shared.clone();
    Child::new(name, move || {
        let running = run(shared.clone());
        async move {
            running.await;
            Ok::<(), Failure>(())
        }
    })
}

struct SupervisorClock<C: Connector>(Arc<Shared<C>>);

impl<C: Connector> honeyflow_runtime::Clock for SupervisorClock<C> {
    fn now(&self) -> honeyflow_runtime::Moment {
        self.0.now()
    }
}

/// Ends the pool after the last handle was dropped: drains as configured, then stops every task.
pub fn end<C: Connector>(shared: &Arc<Shared<C>>) {
    let shared = shared.clone();
    let runtime = shared.runtime.clone();
    runtime.spawn(async move {
        shared.close(Drain::as_configured()).await;
    });
}

/// A point where a test can make a task panic.
fn fail_point(name: &'static str) {
    if planted::on(name) {
        planted::plant(None);
        panic!("planted: {name}");
    }
}
