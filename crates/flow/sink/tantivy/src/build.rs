//! The next generation beside the served one: built while live writes go into both, then swapped.
//!
//! ```text
//! begin ── every write: served, then next ──┬─> swap: `current` names it, searches see it, the old folder goes
//!                                           └─> given up: `current` stays, the new folder goes
//! ```
//!
//! Invariants: what the served generation has refused, the next one never sees, so an old write cannot be new there.
//! Whatever goes wrong with the next one ends the build and nothing else; a write is answered by the generation that is
//! served when it ends.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use hashbrown::HashSet;
use honeyflow_event::Key;
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::{Outcome, Write};

use crate::{
    config::Options,
    folder::Folder,
    generation::Generation,
    opened::{Opened, blocking},
    schema::Layout,
};

/// The code of a build that was given up because the fields do not fit the documents: only other fields can help.
pub const MISFIT: &str = "index-misfit";

/// The generations that are open, and what became of the last build.
pub(crate) struct Generations {
    pub options: Options,
    pub folder: Arc<Folder>,
    /// As configured.
    layout: Arc<Layout>,
    open: RwLock<Open>,
    /// Keys whose documents the next generation has refused.
    refused: Mutex<HashSet<Key>>,
    given_up: Mutex<Option<Failure>>,
    is_outdated: AtomicBool,
    /// Held while the open ones become others.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Open {
    served: Arc<Opened>,
    next: Option<Arc<Opened>>,
}

impl Generations {
    pub fn new(options: Options, folder: Arc<Folder>, layout: Arc<Layout>, served: Generation) -> Generations {
        let open = Open { served: Arc::new(Opened::new(&options, &folder, served)), next: None };
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

    pub fn served(&self) -> Arc<Opened> {
        self.open().served
    }

    pub fn next(&self) -> Option<Arc<Opened>> {
        self.open().next
    }

    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    pub fn given_up(&self) -> Option<Failure> {
        locked(&self.given_up).clone()
    }

    fn open(&self) -> Open {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the lock, goes on with the build that was interrupted, and removes what nobody serves or builds.
    pub fn lock(&self) -> Result<(), Failure> {
        let interrupted = self.folder.lock_to_go_on()?;
        let served = self.served().generation.number;
        self.compare_shape(served)?;
        if let Some(number) = interrupted {
            match self.go_on_with(number, served) {
                Ok(next) => self.write_open().next = Some(next),
                Err(why) => {
                    let folder = self.folder.path().display();
                    tracing::info!(%folder, generation = number, "an unfinished generation is dropped: {why}");
                    self.folder.clear_next()?;
                }
            }
        }
        let next = self.next().map(|next| next.generation.number);
        self.folder.remove_others(&[Some(served), next].into_iter().flatten().collect::<Vec<_>>());
        Ok(())
    }

    fn go_on_with(&self, number: u64, served: u64) -> Result<Arc<Opened>, String> {
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
        Ok(Arc::new(Opened::new(&self.options, &self.folder, generation)))
    }

    /// Whether the served generation's documents are still made as they were; notes what came to it since.
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

    /// From now on every write goes into the next generation too; says its number.
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
        // last: a crash before this leaves a folder that the next start removes
        self.folder.set_next(number)?;
        locked(&self.refused).clear();
        *locked(&self.given_up) = None;
        self.write_open().next = Some(Arc::new(Opened::new(&self.options, &self.folder, generation)));
        Ok(number)
    }

    /// Serves what was built. From here on searches and writes know the new generation alone.
    pub async fn swap(&self) -> Result<(), Failure> {
        let Some(next) = self.next() else {
            return Err(Failure::fatal("index-swap", "no generation is being built"));
        };
        let _changing = self.changing.lock().await;
        next.flush().await?;
        if !self.is_next(&next) {
            return Err(Failure::retry("index-swap", "the generation was given up"));
        }
        let (folder, number) = (self.folder.clone(), next.generation.number);
        blocking(move || folder.set_current(number)).await?;
        self.is_outdated.store(false, Ordering::Release);
        let before = {
            let mut open = self.write_open();
            open.next = None;
            std::mem::replace(&mut open.served, next)
        };
        // if it stays, it names the served one, which counts as nothing
        let _ = self.folder.clear_next();
        retire(before).await;
        Ok(())
    }

    /// The build ends; what is served stays as it is.
    pub async fn give_up(&self, failure: Failure) {
        if let Some(next) = self.next() {
            self.give_up_on(&next, failure).await;
        }
    }

    async fn give_up_on(&self, next: &Arc<Opened>, failure: Failure) {
        let _changing = self.changing.lock().await;
        if !self.is_next(next) {
            return;
        }
        self.write_open().next = None;
        tracing::warn!(code = %failure.code, "generation {} is given up: {failure}", next.generation.number);
        *locked(&self.given_up) = Some(failure);
        if let Err(failure) = self.folder.clear_next() {
            tracing::warn!("{failure}");
        }
        retire(next.clone()).await;
    }

    fn is_next(&self, opened: &Arc<Opened>) -> bool {
        self.next().is_some_and(|next| Arc::ptr_eq(&next, opened))
    }

    fn write_open(&self) -> std::sync::RwLockWriteGuard<'_, Open> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn write(self: Arc<Generations>, writes: Vec<Write>) -> Vec<Outcome> {
        let Open { served, next } = self.open();
        let Some(next) = next else { return served.write(writes).await };
        let copies = writes.clone();
        let outcomes = served.write(writes).await;
        if let Some(full) = outcomes.iter().find_map(disk_full) {
            // what is served needs the room more
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

    /// Why the build cannot go on after the next generation has failed to take a document.
    fn end_of_build(&self, key: &Key, failure: &Failure) -> Option<Failure> {
        if failure.class != Class::Reject {
            return Some(failure.clone());
        }
        let mut refused = locked(&self.refused);
        refused.insert(key.clone());
        let most = self.options.refused_max;
        let message =
            || format!("more than {most} documents do not fit its fields, such as {key}: {}", failure.message);
        (refused.len() > most).then(|| Failure::reject(MISFIT, message()))
    }

    /// Ends the threads of all.
    pub fn stop(&self) {
        let Open { served, next } = self.open();
        served.stop();
        if let Some(next) = next {
            next.stop();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its folder goes with whoever reads it last.
async fn retire(opened: Arc<Opened>) {
    blocking(move || {
        opened.generation.is_superseded.store(true, Ordering::Release);
        opened.stop();
    })
    .await;
}

fn disk_full(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Failed(failure) if failure.code == "index-disk-full" => Some(failure),
        _ => None,
    }
}
