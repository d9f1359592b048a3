//! An open generation: the queue of its writes, and the thread that executes them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::AtomicUsize,
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
};

use honeyflow_runtime::Failure;
use honeyflow_sink::{Outcome, Write};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    codes,
    config::Options,
    encode,
    folder::Folder,
    generation::Generation,
    outcome, planted,
    writer::{ArrivingBatch, Counters, Job, Writer},
};

/// Up to this number of documents is prepared on the caller's thread; a larger batch on a blocking thread.
const PREPARED_INLINE_MAX: usize = 16;

/// A generation and the thread that writes to it, which is started by the first write.
pub(crate) struct OpenGeneration {
    pub generation: Arc<Generation>,
    folder: Arc<Folder>,
    options: Options,
    thread: Mutex<Thread>,
    places: Arc<Semaphore>,
    arriving: Arc<AtomicUsize>,
    pub counters: Arc<Counters>,
    plant: planted::Plant,
}

enum Thread {
    NotStarted,
    Running(Sender<Job>, JoinHandle<()>),
    Stopped,
}

impl OpenGeneration {
    pub fn new(options: &Options, folder: &Arc<Folder>, generation: Generation) -> OpenGeneration {
        OpenGeneration {
            generation: Arc::new(generation),
            folder: folder.clone(),
            options: options.clone(),
            thread: Mutex::new(Thread::NotStarted),
            places: Arc::new(Semaphore::new(options.queue_batches.max(1))),
            arriving: Arc::default(),
            counters: Arc::default(),
            plant: planted::current(),
        }
    }

    fn thread(&self) -> MutexGuard<'_, Thread> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a job to the thread, and starts the thread if it does not run yet.
    fn send(&self, job: Job) -> Result<(), Failure> {
        let mut thread = self.thread();
        if matches!(*thread, Thread::NotStarted) {
            let (sender, jobs) = mpsc::channel();
            let writer = Writer {
                generation: self.generation.clone(),
                folder: self.folder.clone(),
                options: self.options.clone(),
                arriving: self.arriving.clone(),
                counters: self.counters.clone(),
                jobs,
            };
            let plant = self.plant;
            let handle = std::thread::Builder::new()
                .name("index-writer".to_owned())
                .spawn(move || writer.run(plant))
                .map_err(|error| outcome::io(&self.generation.path, &error))?;
            *thread = Thread::Running(sender, handle);
        }
        match &*thread {
            Thread::Running(sender, _) => sender.send(job).map_err(|_| closed()),
            Thread::NotStarted | Thread::Stopped => Err(closed()),
        }
    }

    /// Commits the jobs that were sent and ends the thread.
    pub fn stop(&self) {
        let before = std::mem::replace(&mut *self.thread(), Thread::Stopped);
        if let Thread::Running(sender, handle) = before {
            let _ = sender.send(Job::Stop);
            let _ = handle.join();
        }
    }

    pub async fn flush(&self) -> Result<(), Failure> {
        if matches!(*self.thread(), Thread::NotStarted) {
            return Ok(());
        }
        let (reply, flushed) = oneshot::channel();
        self.send(Job::Flush(reply))?;
        flushed.await.unwrap_or_else(|_| Err(closed()))
    }

    pub async fn write(self: Arc<OpenGeneration>, writes: Vec<Write>) -> Vec<Outcome> {
        let count = writes.len();
        let mut arriving = ArrivingBatch::new(self.arriving.clone());
        // the semaphore is never closed, so this never fails
        arriving.place = self.places.clone().acquire_owned().await.ok();
        let layout = self.generation.layout.clone();
        let prepare = move || writes.into_iter().map(|write| encode::prepare(&layout, write)).collect();
        let prepared = if count <= PREPARED_INLINE_MAX { prepare() } else { blocking(prepare).await };
        let (reply, outcomes) = oneshot::channel();
        let sent = self.send(Job::Write { writes: prepared, reply, arriving });
        drop(self);
        match sent {
            Ok(()) => outcomes.await.unwrap_or_else(|_| vec![Outcome::Failed(closed()); count]),
            Err(failure) => vec![Outcome::Failed(failure); count],
        }
    }
}

fn closed() -> Failure {
    Failure::retry(codes::INDEX_CLOSED, "the index was closed or its generation swapped before the write was committed")
}

/// Runs the work on a blocking thread of the async runtime; directly if there is no runtime.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        },
        Err(_) => work(),
    }
}
