//! A few threads for jobs that may never end. A thread cannot be stopped from outside, so one that overruns is
//! abandoned: it no longer counts as a thread of the pool, another one replaces it, and it ends when its job does.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use honeyflow_workflow::expression::STACK_BYTES;

/// The most jobs in the queue. A job is a batch, not an item; the engine bounds how many batches it gives out.
const QUEUE_MAX: usize = 256;

/// How a job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEnd {
    Kept,
    /// [`Pool::abandon`] was called for it meanwhile: its thread has been replaced and must end.
    Abandoned,
}

pub type Job = Box<dyn FnOnce() -> JobEnd + Send>;

/// The queue is full, or the system cannot start a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    threads_max: usize,
    /// The abandoned threads of this pool and of the pools made by [`Pool::beside`].
    abandoned: Arc<AtomicUsize>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    abandoned: usize,
    closed: bool,
}

impl Pool {
    /// Creates a pool; it starts threads when there are jobs for them.
    pub fn new(threads_max: usize) -> Pool {
        Pool::counted(threads_max, Arc::default())
    }

    /// Creates another pool with separate threads; the abandoned threads of both are counted together.
    pub fn beside(&self, threads_max: usize) -> Pool {
        Pool::counted(threads_max, Arc::clone(&self.shared.abandoned))
    }

    fn counted(threads_max: usize, abandoned: Arc<AtomicUsize>) -> Pool {
        let (state, wake) = (Mutex::default(), Condvar::new());
        Pool { shared: Arc::new(Shared { threads_max: threads_max.max(1), abandoned, state, wake }) }
    }

    /// Queues a job. It must not panic, and returns whether it was abandoned.
    pub fn submit(&self, job: Job) -> Result<(), Busy> {
        let mut state = self.shared.lock();
        if state.queue.len() >= QUEUE_MAX {
            return Err(Busy);
        }
        if state.idle <= state.queue.len() && !self.shared.add_thread(&mut state) && state.threads == 0 {
            return Err(Busy);
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Abandons a running job; it will return [`JobEnd::Abandoned`].
    pub fn abandon(&self) {
        let mut state = self.shared.lock();
        state.threads -= 1;
        state.abandoned += 1;
        self.shared.abandoned.fetch_add(1, Ordering::Relaxed);
        // queued jobs must not wait for the next submit to get a thread
        if state.queue.len() > state.idle {
            self.shared.add_thread(&mut state);
        }
    }

    /// The number of abandoned threads that still run.
    pub fn abandoned(&self) -> usize {
        self.shared.lock().abandoned
    }

    /// The same, with the pools made by [`Pool::beside`] included: each such thread may keep a CPU core busy.
    pub fn abandoned_in_all(&self) -> usize {
        self.shared.abandoned.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // no code panics while it holds the lock
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> bool {
        let shared = Arc::clone(self);
        let builder = std::thread::Builder::new().name("expression".to_owned()).stack_size(STACK_BYTES);
        let added = state.threads < self.threads_max && builder.spawn(move || shared.work()).is_ok();
        state.threads += usize::from(added);
        added
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if let Some(job) = state.queue.pop_front() {
                    break job;
                }
                if state.closed {
                    state.threads -= 1;
                    return;
                }
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            };
            drop(state);
            if job() == JobEnd::Abandoned {
                self.lock().abandoned -= 1;
                self.abandoned.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("abandoned", &self.abandoned()).finish_non_exhaustive()
    }
}
