//! The handle of an index: opens the served generation, sends writes to the writer threads, answers reads from the last
//! commit.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_sink::{Cursor, Hit, Outcome, Page, Sink, Stat, Write};
use serde_json::Value;

use crate::{
    build::Generations,
    codes,
    config::{Field, Options, check_fields},
    encode,
    folder::Folder,
    generation::Generation,
    open_generation::blocking,
    outcome,
    schema::Layout,
    search,
    snapshot::{self, Snapshot},
    writer::Counters,
};

/// How often a reader looks up the served generation again, if it is removed while the reader opens it.
const REOPENS_MAX: u32 = 5;

pub struct TantivySink {
    generations: Arc<Generations>,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    /// Reads only; follows the commits and generations of the process that writes.
    Read,
}

impl TantivySink {
    /// Opens the served generation, or creates the first one. Takes no lock: the first write does.
    pub fn open(options: Options) -> Result<TantivySink, Failure> {
        check_fields(&options.fields)?;
        let folder = Arc::new(Folder::new(options.folder.clone()));
        let layout = Arc::new(Layout::new(&options.fields));
        let generation = match folder.current()? {
            Some(number) => {
                let path = folder.generation(number);
                Generation::open(number, path, layout.clone(), Some(options.checksum_bytes_max))?
            }
            None => create_first(&folder, layout.clone(), &options)?,
        };
        let payload = generation.payload().map_err(|error| outcome::reading(&generation.path, &error))?;
        if let Some(payload) = payload
            && !payload.install.is_empty()
            && !options.install_id.is_empty()
            && payload.install != options.install_id
        {
            return Err(Failure::fatal(
                codes::INDEX_FOREIGN,
                format!(
                    "the index in {0} belongs to another installation ({1}, not {2}); remove the folder {0} and start again",
                    folder.path().display(),
                    payload.install,
                    options.install_id
                ),
            ));
        }
        let generations = Arc::new(Generations::new(options, folder, layout, generation));
        Ok(TantivySink { generations, access: Access::Write })
    }

    /// Opens the index for searching and verifying while a node writes. Every read sees the newest commit.
    pub fn read_only(folder: impl Into<PathBuf>, fields: Vec<Field>) -> Result<TantivySink, Failure> {
        check_fields(&fields)?;
        let options = Options::new(folder, fields);
        let folder = Arc::new(Folder::new(options.folder.clone()));
        let layout = Arc::new(Layout::new(&options.fields));
        let generation = open_current(&folder, &layout)?;
        let generations = Arc::new(Generations::new(options, folder, layout, generation));
        Ok(TantivySink { generations, access: Access::Read })
    }

    /// Takes the writer's lock now, so that a second process is refused at its start rather than at its first write.
    /// Continues a build that was interrupted: from now on, every write goes into it too.
    pub fn lock(&self) -> Result<(), Failure> {
        self.generations.lock()
    }

    /// The number of the generation that is served.
    pub fn generation(&self) -> u64 {
        self.generations.served().generation.number
    }

    /// The number of the generation that is being built.
    pub fn building(&self) -> Option<u64> {
        self.generations.next().map(|next| next.generation.number)
    }

    /// Whether the served generation has other fields than configured, or its documents were made in another way. The
    /// second is known only to the holder of the lock.
    pub fn is_outdated(&self) -> bool {
        self.generations.is_outdated()
    }

    /// Answers the same as [`TantivySink::is_outdated`], but only by reading files.
    pub fn looks_outdated(options: &Options) -> Result<bool, Failure> {
        let folder = Folder::new(options.folder.clone());
        let Some(number) = folder.current()? else { return Ok(false) };
        let generation = open_current(&folder, &Arc::new(Layout::new(&options.fields)))?;
        let noted = folder.shape(number)?;
        Ok(generation.layout.outdated || noted.is_some_and(|noted| !noted.is_subset(&options.shape)))
    }

    /// The id of the installation whose documents the served generation holds; `None` before the first commit. Only
    /// reads files.
    pub fn installation(options: &Options) -> Result<Option<String>, Failure> {
        let folder = Folder::new(options.folder.clone());
        if folder.current()?.is_none() {
            return Ok(None);
        }
        let generation = open_current(&folder, &Arc::new(Layout::new(&options.fields)))?;
        let payload = generation.payload().map_err(|error| outcome::reading(&generation.path, &error))?;
        Ok(payload.map(|payload| payload.install).filter(|install| !install.is_empty()))
    }

    /// Whether a build is in progress or was interrupted, also if another process has the lock.
    pub fn is_building_at(folder: &Path) -> bool {
        Folder::new(folder.to_owned()).is_building()
    }

    /// Creates the next generation, which is empty. From now on every write goes into both; the caller has to write the
    /// existing documents again. If a build is already in progress, returns the number of its generation.
    pub async fn begin(&self) -> Result<u64, Failure> {
        let generations = self.generations.clone();
        blocking(move || generations.begin()).await
    }

    /// Serves the new generation and releases the one served so far. Writes that only the old one has taken are
    /// answered with `Retry`.
    pub async fn swap(&self) -> Result<(), Failure> {
        self.generations.swap().await
    }

    /// Removes the generation that is being built; the served one stays.
    pub async fn give_up(&self, why: Failure) {
        self.generations.give_up(why).await;
    }

    /// Why the last build was given up, unless another one has begun.
    pub fn given_up(&self) -> Option<Failure> {
        self.generations.given_up()
    }

    /// The counters of the generation that is served.
    pub fn counters(&self) -> Arc<Counters> {
        self.generations.served().counters.clone()
    }

    /// Commits the writes in progress and releases the memory and threads of the writers.
    pub async fn close(self) {
        let generations = self.generations.clone();
        blocking(move || generations.stop()).await;
    }

    /// Renames the served generation of a damaged index, so that `open` creates an empty one, and returns its new path.
    /// Refused while another process holds the lock. A build that was in progress ends.
    pub fn set_aside(folder: &Path) -> Result<Option<PathBuf>, Failure> {
        Folder::new(folder.to_owned()).set_aside()
    }

    /// Runs a read on the newest commit.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Generation) -> Result<T, Failure> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let opened = self.generations.served();
        let (access, folder) = (self.access, self.generations.folder.clone());
        Box::pin(blocking(move || {
            if access == Access::Write {
                return work(&opened.generation);
            }
            let generation = &opened.generation;
            if folder.current()? == Some(generation.number) && generation.reader.reload().is_ok() {
                return work(generation);
            }
            // the generation was swapped, perhaps during the reload
            work(&open_current(&folder, &generation.layout)?)
        }))
    }
}

impl Drop for TantivySink {
    fn drop(&mut self) {
        // this waits for the threads, so that the next handle on this folder, perhaps opened at once, finds the lock
        // free
        self.generations.stop();
    }
}

fn create_first(folder: &Folder, layout: Arc<Layout>, options: &Options) -> Result<Generation, Failure> {
    folder.lock()?;
    let number = folder.unused_number()?;
    let path = folder.make(number)?;
    let generation = Generation::create(number, path, layout)?;
    folder.set_shape(number, &options.shape)?;
    folder.set_current(number)?;
    Ok(generation)
}

/// Opens the served generation. Tries again if another process swaps generations meanwhile and removes the one that
/// `current` named.
fn open_current(folder: &Folder, layout: &Arc<Layout>) -> Result<Generation, Failure> {
    let mut tries = 0;
    loop {
        let Some(number) = folder.current()? else {
            return Err(Failure::fatal(
                codes::INDEX_MISSING,
                format!("there is no index in {}", folder.path().display()),
            ));
        };
        let opened = Generation::open(number, folder.generation(number), layout.clone(), None);
        if opened.is_ok() || tries == REOPENS_MAX || folder.current()? == Some(number) {
            return opened;
        }
        tries += 1;
    }
}

impl Sink for TantivySink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        if self.access == Access::Read {
            let failure = Failure::fatal(codes::INDEX_READ_ONLY, "this index was opened for reading only");
            return Box::pin(std::future::ready(vec![Outcome::Failed(failure); writes.len()]));
        }
        if writes.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        Box::pin(self.generations.clone().write(writes))
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

    fn as_held(&self, document: &Arc<Value>) -> Result<Arc<Value>, Failure> {
        encode::check(&self.generations.served().generation.layout, document)?;
        Ok(document.clone())
    }
}
