//! The tasks of one connection: the one that drives it and those that the HTTP library starts for it. The socket is in one
//! of them, so the connection is closed when the last has gone, and not before.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hyper::rt::Executor;
use tokio::{sync::watch, task::JoinSet};

use crate::stream::SaysWhenDropped;

/// For whoever ends them.
pub struct Tasks {
    running: Running,
    gone: watch::Receiver<bool>,
}

/// For whoever starts them.
#[derive(Clone)]
pub struct Starter {
    running: Running,
    last: Arc<SaysWhenDropped>,
}

#[derive(Clone, Default)]
struct Running(Arc<Mutex<JoinSet<()>>>);

pub fn tasks() -> (Starter, Tasks) {
    let (last, gone) = SaysWhenDropped::new();
    let running = Running::default();
    (Starter { running: running.clone(), last: Arc::new(last) }, Tasks { running, gone })
}

impl Running {
    fn set(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    pub fn abort(&self) {
        self.running.set().abort_all();
    }

    /// Waits until the last has gone.
    pub async fn gone(&self) {
        // An error says the same.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }
}

impl Starter {
    pub fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let last = self.last.clone();
        let mut running = self.running.set();
        // A body that has to wait is a task too: those that have ended are not kept.
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let _last = last;
            task.await;
        });
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Starter {
    fn execute(&self, task: F) {
        self.start(task);
    }
}
