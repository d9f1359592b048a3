//! The tasks of one connection: the one that drives it and those that the HTTP library starts for it. One of them owns
//! the socket, so the connection is closed when the last task has ended, and not before.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hyper::rt::Executor;
use tokio::{sync::watch, task::JoinSet};

use crate::stream::DropSignal;

/// The handle with which the connection ends its tasks.
pub struct Tasks {
    running: TaskSet,
    gone: watch::Receiver<bool>,
}

/// The handle with which the connection and the HTTP library start tasks.
#[derive(Clone)]
pub struct Starter {
    running: TaskSet,
    last: Arc<DropSignal>,
}

#[derive(Clone, Default)]
struct TaskSet(Arc<Mutex<JoinSet<()>>>);

pub fn tasks() -> (Starter, Tasks) {
    let (last, gone) = DropSignal::new();
    let running = TaskSet::default();
    (Starter { running: running.clone(), last: Arc::new(last) }, Tasks { running, gone })
}

impl TaskSet {
    fn set(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    pub fn abort(&self) {
        self.running.set().abort_all();
    }

    /// Waits until the last task has ended.
    pub async fn gone(&self) {
        // An error means the same.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }
}

impl Starter {
    pub fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let last = self.last.clone();
        let mut running = self.running.set();
        // A request body that has to wait is a task too: remove those that have ended.
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
