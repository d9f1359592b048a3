//! Builds the next generation of an index that is outdated, or for which an operator asked. Every row is queued again
//! behind live events (reindex priority), live events go into both generations, and when all rows are done the
//! generations are swapped. A crash at any point repeats one page at most; a failure loses only the new generation.

mod progress;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_engine::shell;
use honeyflow_event::{Key, Name, PRIORITY_REINDEX, document};
use honeyflow_runtime::{Backoff, Class, Failure};
use honeyflow_sink_tantivy::TantivySink;
use honeyflow_store::{Admin, AdminReply, Store};

use super::{
    reindex::{self, Rows, ask},
    shape::Feed,
    source::OpenSource,
};
use progress::{Action, BuildState, Position, decide};

use crate::codes;
pub use progress::{Phase, Progress};

const RESTING: Duration = Duration::from_secs(2);
const WAITING: Duration = Duration::from_millis(250);
const PAGE: u32 = 1000;
/// While more events of this priority are waiting, no further page is queued.
const WAITING_MAX: u64 = 20_000;
const RETRY: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(3600));
/// The task that stores the progress of a sink's next generation.
const PROGRESS: &str = "generation";
/// The task that stores the last request for a new generation of a sink.
const ASKED: &str = "generation-asked";

/// An index with all its feeds.
pub struct Index {
    pub sink: Name,
    pub index: Arc<TantivySink>,
    /// None if its documents cannot be built again.
    pub feeds: Option<Vec<Feed>>,
    /// A hash of what the documents are built from.
    pub shape: String,
}

pub struct Builder {
    pub sources: Arc<Vec<OpenSource>>,
    pub indexes: Vec<Index>,
    pub engine: shell::Handle,
}

/// What the builder remembers of one index between two rounds.
#[derive(Default)]
struct Memory {
    progress: Option<Progress>,
    /// When the last event of the build was done.
    done_since: Option<Instant>,
    failures: u32,
    retry_at: Option<Instant>,
}

impl Builder {
    pub async fn run(&self) -> Result<(), Failure> {
        let mut memories: HashMap<Name, Memory> = HashMap::new();
        loop {
            let mut pause = RESTING;
            for index in &self.indexes {
                let Some(feeds) = &index.feeds else { continue };
                let memory = memories.entry(index.sink.clone()).or_default();
                match self.step(index, feeds, memory).await {
                    Ok(wanted) => pause = pause.min(wanted),
                    // The database may be busy or unreachable: try again in the next round.
                    Err(failure) => {
                        memory.progress = None;
                        tracing::debug!(sink = %index.sink, %failure, "could not build the next generation");
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Does one step of the build and returns the pause before the next one.
    async fn step(&self, index: &Index, feeds: &[Feed], memory: &mut Memory) -> Result<Duration, Failure> {
        // A node without a lease may still be refused, so it queues nothing.
        let Some(home) = self.home(feeds).filter(|home| self.has_lease(&home.name)) else { return Ok(RESTING) };
        let store = &home.database.store;
        let asked = task(store, ASKED, &index.sink).await?;
        let mut progress = match memory.progress.take() {
            Some(progress) => progress,
            None => self::progress(store, &index.sink).await?,
        };
        let seen = self.observe(index, feeds, asked, &progress, memory).await?;
        let act = decide(&progress, &seen);
        match act {
            Action::Rest | Action::Wait => {}
            Action::Begin => {
                let is_asked = progress.is_asked || seen.asked != progress.asked;
                progress = Progress {
                    phase: Phase::Building,
                    asked: seen.asked.clone(),
                    is_asked,
                    shape: index.shape.clone(),
                    ..Progress::default()
                };
                put(store, &index.sink, &progress).await?;
                progress.generation = Some(index.index.begin().await?);
                put(store, &index.sink, &progress).await?;
                let why = if seen.is_outdated { "its fields or documents have changed" } else { "requested" };
                tracing::info!(sink = %index.sink, generation = progress.generation, "the next generation is being built: {why}");
            }
            Action::Join => {
                (progress.asked, progress.is_asked) = (seen.asked.clone(), true);
                put(store, &index.sink, &progress).await?;
            }
            Action::Discard => {
                index.index.give_up(Failure::retry(codes::INDEX_UNKNOWN, "the progress of the build is unknown")).await;
                progress = Progress { is_asked: progress.is_asked, ..Progress::default() };
                put(store, &index.sink, &progress).await?;
            }
            Action::ReadPage => {
                if let Some(feed) = feeds.iter().find(|feed| !is_read(&progress, feed)) {
                    let position = progress.positions.entry(feed_name(feed)).or_default();
                    if !self.read_page(feed, position).await? {
                        memory.progress = Some(progress);
                        return Ok(WAITING);
                    }
                    put(store, &index.sink, &progress).await?;
                }
            }
            Action::Swap => {
                index.index.swap().await?;
                self.note_served(index, feeds, &mut progress, store, memory).await?;
            }
            Action::NoteServed => self.note_served(index, feeds, &mut progress, store, memory).await?,
            Action::NoteGivenUp => self.note_given_up(index, &mut progress, store, memory).await?,
        }
        memory.progress = Some(progress);
        Ok(match act {
            Action::Rest => RESTING,
            Action::Wait => WAITING,
            _ => Duration::ZERO,
        })
    }

    async fn observe(
        &self,
        index: &Index,
        feeds: &[Feed],
        asked: Option<String>,
        progress: &Progress,
        memory: &mut Memory,
    ) -> Result<BuildState, Failure> {
        let sink = &index.index;
        let unread = feeds.iter().filter(|feed| !is_read(progress, feed)).count();
        let mut seen = BuildState {
            served: sink.generation(),
            building: sink.building(),
            is_outdated: sink.is_outdated(),
            asked,
            has_failed: sink.given_up().is_some(),
            shape: index.shape.clone(),
            may_retry: memory.retry_at.is_none_or(|at| Instant::now() >= at),
            unread,
            ..BuildState::default()
        };
        if seen.building.is_none() || unread > 0 {
            memory.done_since = None;
            return Ok(seen);
        }
        for feed in feeds {
            let Some(source) = self.source(&feed.source) else { continue };
            seen.left += source.database.reindex_events(&feed.entity, &feed.workflow).await?;
            if let AdminReply::Lag(lag) = ask(&source.database.store, Admin::Lag).await? {
                seen.lag = seen.lag.max(Duration::from_millis(lag.oldest_ms));
            }
        }
        if seen.left == 0 {
            seen.waited = memory.done_since.get_or_insert_with(Instant::now).elapsed();
        }
        Ok(seen)
    }

    /// Queues one page of rows. Returns false if enough events are waiting already.
    async fn read_page(&self, feed: &Feed, position: &mut Position) -> Result<bool, Failure> {
        let Some((source, bound)) =
            self.source(&feed.source).and_then(|source| Some((source, source.entity(&feed.entity)?)))
        else {
            position.done = true;
            return Ok(true);
        };
        let (store, entity) = (&source.database.store, &bound.entity);
        let rows = Rows { database: &source.database, entity, workflow: &feed.workflow };
        if rows.waiting().await? > WAITING_MAX {
            return Ok(false);
        }
        let after = position.after.clone().map(Key::from);
        let keys = Admin::TableKeys { table: entity.table.clone(), key: entity.key.clone(), after, limit: PAGE };
        let AdminReply::Keys(keys) = ask(store, keys).await? else { return Err(reindex::misplaced()) };
        let Some(last) = keys.last() else {
            position.done = true;
            return Ok(true);
        };
        position.after = Some(last.to_string());
        position.events += keys.len() as u64;
        // Other workflows of the entity do not write into this index.
        let event = |key| reindex::event(entity, key, PRIORITY_REINDEX, &feed.workflow);
        reindex::append(store, keys.into_iter().map(event).collect()).await?;
        Ok(true)
    }

    async fn note_served(
        &self,
        index: &Index,
        feeds: &[Feed],
        progress: &mut Progress,
        store: &dyn Store,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        *memory = Memory::default();
        (progress.phase, progress.is_asked) = (Phase::Served, false);
        // The workflows have had every row: no first fill is due.
        for feed in feeds {
            let Some(source) = self.source(&feed.source) else { continue };
            let Some(bound) = source.entity(&feed.entity) else { continue };
            let rows = Rows { database: &source.database, entity: &bound.entity, workflow: &feed.workflow };
            rows.note_done().await?;
        }
        put(store, &index.sink, progress).await?;
        tracing::info!(sink = %index.sink, generation = progress.generation, rows = progress.events(), "the next generation is served");
        Ok(())
    }

    async fn note_given_up(
        &self,
        index: &Index,
        progress: &mut Progress,
        store: &dyn Store,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let why = index.index.given_up().unwrap_or_else(|| Failure::retry(codes::UNKNOWN, "unknown"));
        memory.retry_at = Some(Instant::now() + RETRY.ceiling(memory.failures));
        memory.failures += 1;
        (progress.phase, progress.is_asked) = (Phase::GivenUp, false);
        progress.positions = BTreeMap::new();
        progress.hopeless = why.code == codes::INDEX_MISFIT || why.class == Class::Reject;
        progress.failure = Some(why.message.clone());
        put(store, &index.sink, progress).await?;
        let then = if progress.hopeless { "until the configuration changes" } else { "and the build will be retried" };
        tracing::error!(sink = %index.sink, "gave up the next generation, the current one stays in use {then}: {}", why.message);
        Ok(())
    }

    /// The source whose store has the tasks of the sink.
    fn home(&self, feeds: &[Feed]) -> Option<&OpenSource> {
        feeds.first().and_then(|feed| self.source(&feed.source))
    }

    fn source(&self, name: &str) -> Option<&OpenSource> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    fn has_lease(&self, source: &str) -> bool {
        self.engine.status().sources.iter().any(|status| &*status.name == source && status.epoch.is_some())
    }
}

/// Requests a new generation. [`progress`] shows the same word once the request is answered.
pub async fn request(store: &dyn Store, sink: &str, word: &str) -> Result<(), Failure> {
    let state = word.to_owned();
    ask(store, Admin::PutTask { noun: ASKED.to_owned(), name: sink.to_owned(), state }).await.map(|_| ())
}

pub async fn progress(store: &dyn Store, sink: &str) -> Result<Progress, Failure> {
    let state = task(store, PROGRESS, sink).await?;
    Ok(state.and_then(|state| serde_json::from_str(&state).ok()).unwrap_or_default())
}

/// Hashes the lines of a shape and the fields.
pub fn shape_hash(lines: impl IntoIterator<Item = String>) -> String {
    format!("{:016x}", document::hash(&lines.into_iter().collect::<Vec<_>>().into()))
}

async fn put(store: &dyn Store, sink: &str, progress: &Progress) -> Result<(), Failure> {
    let state = serde_json::to_string(progress).unwrap_or_default();
    ask(store, Admin::PutTask { noun: PROGRESS.to_owned(), name: sink.to_owned(), state }).await.map(|_| ())
}

async fn task(store: &dyn Store, noun: &str, sink: &str) -> Result<Option<String>, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(reindex::misplaced()) };
    Ok(tasks.into_iter().find(|task| task.noun == noun && task.name == sink).map(|task| task.state))
}

fn feed_name(feed: &Feed) -> String {
    format!("{}/{}", feed.workflow, feed.entity)
}

fn is_read(progress: &Progress, feed: &Feed) -> bool {
    progress.positions.get(&feed_name(feed)).is_some_and(|position| position.done)
}
