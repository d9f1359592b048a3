//! Builds the next generation beside the served one: live writes go into both until the two are swapped.
//!
//! ```text
//! begin ── every write: served, then next ──┬─> swap: `current` names it, searches see it, the old folder is removed
//!                                           └─> given up: `current` stays, the new folder is removed
//! ```
//!
//! Invariants: a write that the served generation has refused is never sent to the next one, so an old write cannot
//! succeed there. A failure of the next generation ends the build and nothing else. A write is answered by the
//! generation that is served when the write ends.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use hashbrown::HashSet;
use honeyflow_event::Key;
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::{Outcome, Write};

use crate::{
    codes,
    config::Options,
    folder::Folder,
    generation::Generation,
    open_generation::{OpenGeneration, blocking},
    schema::Layout,
};

/// The open generations, and how the last build ended.
pub(crate) struct Generations {
    pub options: Options,
    pub folder: Arc<Folder>,
    /// The layout of the configured fields.
    layout: Arc<Layout>,
    open: RwLock<OpenGenerations>,
    /// Keys whose documents the next generation has refused.
    refused: Mutex<HashSet<Key>>,
    given_up: Mutex<Option<Failure>>,
    is_outdated: AtomicBool,
    /// Held while `open` changes.
    changing: tokio::sync::Mutex<()>,
}

/// The served generation, and the next one during a build.
#[derive(Clone)]
struct OpenGenerations {
    served: Arc<OpenGeneration>,
    next: Option<Arc<OpenGeneration>>,
}

impl Generations {
    pub fn new(options: Options, folder: Arc<Folder>, layout: Arc<Layout>, served: Generation) -> Generations {
        let open = OpenGenerations { served: Arc::new(OpenGeneration::new(&options, &folder, served)), next: None };
        let is_outdated = AtomicBool::new(open.served.generation.layout.outdated);
        Generations {
            options,
            folder,
            layout,
            open: RwLock::new(open),
            refused: Mutex::default(),
            given_up: Mutex::default(),
            is_outdated,
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub fn served(&self) -> Arc<OpenGeneration> {
        self.open_pair().served
    }

    pub fn next(&self) -> Option<Arc<OpenGeneration>> {
        self.open_pair().next
    }

    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    pub fn given_up(&self) -> Option<Failure> {
        locked(&self.given_up).clone()
    }

    fn open_pair(&self) -> OpenGenerations {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the lock, continues an interrupted build, and removes generations that are neither served nor being built.
    pub fn lock(&self) -> Result<(), Failure> {
        let interrupted = self.folder.lock_and_resume()?;
        let served = self.served().generation.number;
        self.compare_shape(served)?;
        if let Some(number) = interrupted {
            match self.resume_build(number, served) {
                Ok(next) => self.write_open().next = Some(next),
                Err(why) => {
                    let folder = self.folder.path().display();
                    tracing::info!(%folder, generation = number, "dropped an unfinished generation: {why}");
                    self.folder.clear_next()?;
                }
            }
        }
        let next = self.next().map(|next| next.generation.number);
        self.folder.remove_others(&[Some(served), next].into_iter().flatten().collect::<Vec<_>>());
        Ok(())
    }

    fn resume_build(&self, number: u64, served: u64) -> Result<Arc<OpenGeneration>, String> {
        if number <= served {
            return Err("it is served already".to_owned());
        }
        let checksums = Some(self.options.checksum_bytes_max);
        let path = self.folder.generation(number);
        let generation = Generation::open(number, path, self.layout.clone(), checksums);
        let generation = generation.map_err(|failure| failure.message)?;
        let shape = self.folder.shape(number).map_err(|failure| failure.message)?;
        if generation.layout.outdated || shape.as_ref() != Some(&self.options.shape) {
            return Err("the configuration has changed since".to_owned());
        }
        Ok(Arc::new(OpenGeneration::new(&self.options, &self.folder, generation)))
    }

    /// Marks the served generation as outdated if its documents are made in another way now; otherwise records the
    /// lines that were added to the shape.
    fn compare_shape(&self, served: u64) -> Result<(), Failure> {
        let wanted = &self.options.shape;
        let noted = self.folder.shape(served)?;
        if noted.as_ref().is_some_and(|noted| !noted.is_subset(wanted)) {
            self.is_outdated.store(true, Ordering::Release);
        }
        if !self.is_outdated() && noted.as_ref() != Some(wanted) {
            self.folder.set_shape(served, wanted)?;
        }
        Ok(())
    }

    /// Starts a build and returns the number of its generation. From now on every write goes into it too.
    pub fn begin(&self) -> Result<u64, Failure> {
        if let Some(next) = self.next() {
            return Ok(next.generation.number);
        }
        self.folder.lock()?;
        self.folder.remove_others(&[self.served().generation.number]);
        let number = self.folder.unused_number()?;
        let path = self.folder.make(number)?;
        let generation = Generation::create(number, path, self.layout.clone())?;
        self.folder.set_shape(number, &self.options.shape)?;
        // this comes last: a crash before it leaves a folder that the next start removes
        self.folder.set_next(number)?;
        locked(&self.refused).clear();
        *locked(&self.given_up) = None;
        self.write_open().next = Some(Arc::new(OpenGeneration::new(&self.options, &self.folder, generation)));
        Ok(number)
    }

    /// Serves the new generation. From here on searches and writes use it alone.
    pub async fn swap(&self) -> Result<(), Failure> {
        let Some(next) = self.next() else {
            return Err(Failure::fatal(codes::INDEX_SWAP, "no generation is being built"));
        };
        let _changing = self.changing.lock().await;
        next.flush().await?;
        if !self.is_next(&next) {
            return Err(Failure::retry(codes::INDEX_SWAP, "the generation was given up"));
        }
        let (folder, number) = (self.folder.clone(), next.generation.number);
        blocking(move || folder.set_current(number)).await?;
        self.is_outdated.store(false, Ordering::Release);
        let before = {
            let mut open = self.write_open();
            open.next = None;
            std::mem::replace(&mut open.served, next)
        };
        // if this fails, the file names the served generation, which does not count as a build
        let _ = self.folder.clear_next();
        retire(before).await;
        Ok(())
    }

    /// Ends the build; the served generation stays as it is.
    pub async fn give_up(&self, failure: Failure) {
        if let Some(next) = self.next() {
            self.give_up_on(&next, failure).await;
        }
    }

    async fn give_up_on(&self, next: &Arc<OpenGeneration>, failure: Failure) {
        let _changing = self.changing.lock().await;
        if !self.is_next(next) {
            return;
        }
        self.write_open().next = None;
        tracing::warn!(code = %failure.code, "gave up generation {}: {failure}", next.generation.number);
        *locked(&self.given_up) = Some(failure);
        if let Err(failure) = self.folder.clear_next() {
            tracing::warn!("{failure}");
        }
        retire(next.clone()).await;
    }

    fn is_next(&self, opened: &Arc<OpenGeneration>) -> bool {
        self.next().is_some_and(|next| Arc::ptr_eq(&next, opened))
    }

    fn write_open(&self) -> std::sync::RwLockWriteGuard<'_, OpenGenerations> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn write(self: Arc<Generations>, writes: Vec<Write>) -> Vec<Outcome> {
        let OpenGenerations { served, next } = self.open_pair();
        let Some(next) = next else { return served.write(writes).await };
        let copies = writes.clone();
        let outcomes = served.write(writes).await;
        if let Some(full) = outcomes.iter().find_map(disk_full) {
            // the served generation needs the space more
            self.give_up_on(&next, full.clone()).await;
            return outcomes;
        }
        let taken: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at] == Outcome::Done).collect();
        let offered: Vec<Write> = taken.iter().map(|at| copies[*at].clone()).collect();
        let answers = if offered.is_empty() { Vec::new() } else { next.clone().write(offered).await };
        let is_served = Arc::ptr_eq(&self.served(), &next);
        if !is_served && !self.is_next(&next) {
            return outcomes;
        }
        let mut answered = outcomes.clone();
        for (at, answer) in taken.into_iter().zip(answers) {
            if let Outcome::Failed(failure) = &answer
                && !is_served
                && let Some(end) = self.end_of_build(&copies[at].key, failure)
            {
                self.give_up_on(&next, end).await;
                return outcomes;
            }
            answered[at] = answer;
        }
        answered
    }

    /// Returns why the build cannot continue after the next generation has refused a document; `None` if it can.
    fn end_of_build(&self, key: &Key, failure: &Failure) -> Option<Failure> {
        if failure.class != Class::Reject {
            return Some(failure.clone());
        }
        let mut refused = locked(&self.refused);
        refused.insert(key.clone());
        let most = self.options.refused_max;
        let message =
            || format!("more than {most} documents do not fit its fields, such as {key}: {}", failure.message);
        (refused.len() > most).then(|| Failure::reject(codes::INDEX_MISFIT, message()))
    }

    /// Ends the threads of all open generations.
    pub fn stop(&self) {
        let OpenGenerations { served, next } = self.open_pair();
        served.stop();
        if let Some(next) = next {
            next.stop();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the writer of a generation that is no longer needed. The last reader that drops it removes its folder.
async fn retire(opened: Arc<OpenGeneration>) {
    blocking(move || {
        opened.generation.is_superseded.store(true, Ordering::Release);
        opened.stop();
    })
    .await;
}

fn disk_full(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Failed(failure) if failure.code == codes::INDEX_DISK_FULL => Some(failure),
        _ => None,
    }
}
