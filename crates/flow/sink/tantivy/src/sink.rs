//! The handle: opens what is served, hands writes to the writer's thread, answers reads from the last commit.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
};

use futures_util::future::BoxFuture;
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_sink::{Cursor, Hit, Outcome, Page, Sink, Stat, Write};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    config::{Field, Options, check_fields},
    encode,
    folder::Folder,
    generation::Generation,
    outcome, planted,
    schema::Layout,
    search,
    snapshot::{self, Snapshot},
    writer::{Arriving, Counters, Job, Writer},
};

/// So many documents are made ready without leaving the caller's thread.
const PREPARED_INLINE_MAX: usize = 16;

pub struct TantivySink {
    options: Options,
    folder: Arc<Folder>,
    served: RwLock<Arc<Served>>,
    access: Access,
    /// Another handle serves our generation now.
    given_away: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    /// Follows the commits and generations of whoever writes.
    Read,
}

/// A generation and the thread that writes to it.
struct Served {
    generation: Arc<Generation>,
    folder: Arc<Folder>,
    options: Options,
    thread: Mutex<Thread>,
    places: Arc<Semaphore>,
    arriving: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    plant: planted::Plant,
}

enum Thread {
    NotYet,
    Running(Sender<Job>, JoinHandle<()>),
    Stopped,
}

impl TantivySink {
    /// Opens the served generation, or makes the first one. Takes no lock: that comes with the first write.
    pub fn open(options: Options) -> Result<TantivySink, Failure> {
        check_fields(&options.fields)?;
        let folder = Arc::new(Folder::new(options.folder.clone()));
        let layout = Arc::new(Layout::new(&options.fields));
        let generation = match folder.current()? {
            Some(number) => {
                let path = folder.generation(number);
                Generation::open(number, path, layout, Some(options.checksum_bytes_max))?
            }
            None => create_first(&folder, layout)?,
        };
        let payload = generation.payload().map_err(|error| outcome::reading(&generation.path, &error))?;
        if let Some(payload) = payload
            && !payload.install.is_empty()
            && !options.install_id.is_empty()
            && payload.install != options.install_id
        {
            return Err(Failure::fatal(
                "index-foreign",
                format!(
                    "the index in {} belongs to another database (installation {}, not {}); set it aside and rebuild it",
                    generation.path.display(),
                    payload.install,
                    options.install_id
                ),
            ));
        }
        Ok(TantivySink::serving(options, folder, generation, Access::Write))
    }

    /// For searching and verifying while a node writes. Every read sees the newest commit.
    pub fn read_only(folder: impl Into<PathBuf>, fields: Vec<Field>) -> Result<TantivySink, Failure> {
        check_fields(&fields)?;
        let options = Options::new(folder, fields);
        let folder = Arc::new(Folder::new(options.folder.clone()));
        let generation = open_current(&folder, Arc::new(Layout::new(&options.fields)))?;
        Ok(TantivySink::serving(options, folder, generation, Access::Read))
    }

    fn serving(options: Options, folder: Arc<Folder>, generation: Generation, access: Access) -> TantivySink {
        let served = Arc::new(Served::new(&options, &folder, generation));
        TantivySink { options, folder, served: RwLock::new(served), access, given_away: AtomicBool::new(false) }
    }

    /// Takes the writer's lock now, so that a second process is refused at its start rather than at its first write.
    pub fn lock(&self) -> Result<(), Failure> {
        self.folder.lock()
    }

    /// The number of the generation that is served.
    pub fn generation(&self) -> u64 {
        self.served().generation.number
    }

    pub fn counters(&self) -> Arc<Counters> {
        self.served().counters.clone()
    }

    /// The next generation, empty, as a sink of its own; what an abandoned rebuild has left is removed. It is served
    /// after [`TantivySink::swap`]. Until then writes go where they are sent: a change that arrives during the rebuild
    /// belongs into both.
    pub fn begin_generation(&self) -> Result<TantivySink, Failure> {
        self.folder.lock()?;
        self.folder.remove_others(&[self.generation()]);
        let number = self.folder.next()?;
        let path = self.folder.make(number)?;
        let generation = Generation::create(number, path, Arc::new(Layout::new(&self.options.fields)))?;
        Ok(TantivySink::serving(self.options.clone(), self.folder.clone(), generation, Access::Write))
    }

    /// Serves `next` from now on and removes the generation served so far. Its unanswered writes are answered `Retry`.
    pub async fn swap(&self, next: TantivySink) -> Result<(), Failure> {
        let next_served = next.served();
        if !Arc::ptr_eq(&self.folder, &next.folder) || next.generation() <= self.generation() {
            return Err(Failure::fatal("index-swap", "only a generation begun from this sink can take its place"));
        }
        next_served.flush().await?;
        self.folder.set_current(next.generation())?;
        let before =
            std::mem::replace(&mut *self.served.write().unwrap_or_else(PoisonError::into_inner), next_served.clone());
        next.given_away.store(true, Ordering::Release);
        let folder = self.folder.clone();
        blocking(move || {
            before.stop();
            folder.remove_others(&[next_served.generation.number]);
        })
        .await;
        Ok(())
    }

    /// Commits what is on its way and lets go of the writer's memory and thread.
    pub async fn close(self) {
        let served = self.served();
        blocking(move || served.stop()).await;
    }

    /// Renames the served generation of a damaged or outdated index, so that `open` starts an empty one; says where it
    /// is now. Refused while someone writes to it.
    pub fn set_aside(folder: &Path) -> Result<Option<PathBuf>, Failure> {
        Folder::new(folder.to_owned()).set_aside()
    }

    fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs a read on the newest state.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Generation) -> Result<T, Failure> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let served = self.served();
        let (access, folder) = (self.access, self.folder.clone());
        Box::pin(blocking(move || {
            if access == Access::Write {
                return work(&served.generation);
            }
            let generation = &served.generation;
            if folder.current()? == Some(generation.number) && generation.reader.reload().is_ok() {
                return work(generation);
            }
            // the generation was swapped, perhaps under our hands
            work(&open_current(&folder, generation.layout.clone())?)
        }))
    }
}

impl Drop for TantivySink {
    fn drop(&mut self) {
        if !self.given_away.load(Ordering::Acquire) {
            // waited for, so that the next one to open this folder, perhaps at once, finds the lock free
            self.served().stop();
        }
    }
}

fn create_first(folder: &Folder, layout: Arc<Layout>) -> Result<Generation, Failure> {
    folder.lock()?;
    let number = folder.next()?;
    let path = folder.make(number)?;
    let generation = Generation::create(number, path, layout)?;
    folder.set_current(number)?;
    Ok(generation)
}

fn open_current(folder: &Folder, layout: Arc<Layout>) -> Result<Generation, Failure> {
    let Some(number) = folder.current()? else {
        return Err(Failure::fatal("index-missing", format!("there is no index in {}", folder.path().display())));
    };
    Generation::open(number, folder.generation(number), layout, None)
}

impl Served {
    fn new(options: &Options, folder: &Arc<Folder>, generation: Generation) -> Served {
        Served {
            generation: Arc::new(generation),
            folder: folder.clone(),
            options: options.clone(),
            thread: Mutex::new(Thread::NotYet),
            places: Arc::new(Semaphore::new(options.queue_batches.max(1))),
            arriving: Arc::default(),
            counters: Arc::default(),
            plant: planted::current(),
        }
    }

    fn thread(&self) -> MutexGuard<'_, Thread> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job to the thread, which is started if need be.
    fn send(&self, job: Job) -> Result<(), Failure> {
        let mut thread = self.thread();
        if matches!(*thread, Thread::NotYet) {
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
            Thread::NotYet | Thread::Stopped => Err(closed()),
        }
    }

    /// Commits what was handed over and ends the thread.
    fn stop(&self) {
        let before = std::mem::replace(&mut *self.thread(), Thread::Stopped);
        if let Thread::Running(sender, handle) = before {
            let _ = sender.send(Job::Stop);
            let _ = handle.join();
        }
    }

    async fn flush(&self) -> Result<(), Failure> {
        if matches!(*self.thread(), Thread::NotYet) {
            return Ok(());
        }
        let (reply, flushed) = oneshot::channel();
        self.send(Job::Flush(reply))?;
        flushed.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn write(self: Arc<Served>, writes: Vec<Write>) -> Vec<Outcome> {
        let count = writes.len();
        let mut arriving = Arriving::new(self.arriving.clone());
        // never closed, so never refused
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
    Failure::retry("index-closed", "the index was closed or its generation swapped before the write was committed")
}

/// Off the reactor, where there is one.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
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

impl Sink for TantivySink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        if self.access == Access::Read {
            let failure = Failure::fatal("index-read-only", "this index was opened for reading only");
            return Box::pin(std::future::ready(vec![Outcome::Failed(failure); writes.len()]));
        }
        if writes.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        Box::pin(self.served().write(writes))
    }

    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>> {
        self.read(move |generation| {
            let failed = |error| outcome::reading(&generation.path, &error);
            let snapshot = Snapshot::new(generation.reader.searcher(), &generation.layout).map_err(failed)?;
            keys.iter()
                .map(|key| {
                    let held = snapshot.find(key).map_err(failed)?;
                    Ok(held.map(|held| Stat {
                        key: key.to_string(),
                        stamp: held.stamp,
                        hash: held.hash.unwrap_or_default(),
                    }))
                })
                .collect()
        })
    }

    fn list(&self, after: Option<Cursor>, limit: u32) -> BoxFuture<'static, Result<Page, Failure>> {
        self.read(move |generation| {
            let failed = |error| outcome::reading(&generation.path, &error);
            let searcher = generation.reader.searcher();
            let limit = (limit as usize).clamp(1, search::HITS_MAX);
            let snapshot = Snapshot::new(searcher.clone(), &generation.layout).map_err(failed)?;
            let (addresses, more) = snapshot.page(after.as_deref(), limit).map_err(failed)?;
            let hits: Vec<Hit> = addresses
                .into_iter()
                .map(|address| snapshot::hit(&searcher, &generation.layout, &generation.path, address, 0.0))
                .collect::<Result<_, _>>()?;
            let cursor = if more { hits.last().map(|hit| hit.key.clone()) } else { None };
            Ok((hits, cursor))
        })
    }

    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>> {
        self.read(move |generation| {
            let query = search::parse(&generation.index, &generation.layout, &query)?;
            let searcher = generation.reader.searcher();
            let found = search::run(&searcher, &*query, limit as usize)
                .map_err(|error| outcome::reading(&generation.path, &error))?;
            found
                .into_iter()
                .map(|(score, address)| snapshot::hit(&searcher, &generation.layout, &generation.path, address, score))
                .collect()
        })
    }

    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        self.read(|generation| Ok(generation.reader.searcher().num_docs()))
    }
}
