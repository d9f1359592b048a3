//! A lane: a bounded queue of jobs for one thread.
//!
//! SQLite is a synchronous library, so each connection has its own thread and the async side only waits. A caller waits
//! for a permit before it queues a job, so sending never blocks; the thread ends when the last lane is dropped.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use honeyflow_runtime::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{codes, planted};

pub(crate) struct Lane<J> {
    jobs: SyncSender<QueuedJob<J>>,
    room: Arc<Semaphore>,
}

impl<J> Clone for Lane<J> {
    fn clone(&self) -> Lane<J> {
        Lane { jobs: self.jobs.clone(), room: Arc::clone(&self.room) }
    }
}

/// A job in the queue; its permit is released when the job is taken out.
pub(crate) struct QueuedJob<J> {
    pub job: J,
    _place: OwnedSemaphorePermit,
}

impl<J: Send + 'static> Lane<J> {
    /// Starts the thread, which executes `run`.
    pub fn start(
        name: String,
        queue_max: usize,
        run: impl FnOnce(Receiver<QueuedJob<J>>) + Send + 'static,
    ) -> Result<Lane<J>, Failure> {
        let queue_max = queue_max.clamp(1, 1 << 16);
        let (jobs, queue) = sync_channel(queue_max);
        let planted = planted::current();
        thread::Builder::new()
            .name(name)
            .spawn(move || {
                planted::plant(planted);
                run(queue);
            })
            .map_err(|error| Failure::retry(codes::NO_THREAD, format!("start a thread for the database: {error}")))?;
        Ok(Lane { jobs, room: Arc::new(Semaphore::new(queue_max)) })
    }

    pub async fn send(&self, job: J) -> Result<(), Failure> {
        let place = Arc::clone(&self.room).acquire_owned().await.map_err(|_| stopped())?;
        self.jobs.send(QueuedJob { job, _place: place }).map_err(|_| stopped())
    }

    /// Queues the job if there is room now; otherwise the job is dropped.
    pub fn offer(&self, job: J) {
        if let Ok(place) = Arc::clone(&self.room).try_acquire_owned() {
            let _ = self.jobs.send(QueuedJob { job, _place: place });
        }
    }
}

/// A job of a reader; it sends its own reply.
pub(crate) type Task<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: 'static> Lane<Task<S>> {
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let task: Task<S> = Box::new(move |state| {
            // Skip a read whose caller has gone.
            if !answer.is_closed() {
                let _ = answer.send(work(state));
            }
        });
        self.send(task).await?;
        answered.await.map_err(|_| stopped())?
    }
}

pub(crate) fn stopped() -> Failure {
    Failure::retry(codes::STORE_STOPPED, "the store's thread has ended; the node is stopping, or restarts the store")
}
