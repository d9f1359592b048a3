//! The next generation of an index that is outdated, or asked for: every row is queued once more, behind everything
//! else; live events go into both generations; when the last of it is done, they are swapped. A crash at any point costs
//! a page at most, a failure the new generation alone.

mod progress;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_engine::shell;
use honeyflow_event::{Key, Name, PRIORITY_REINDEX, document};
use honeyflow_runtime::{Backoff, Class, Failure};
use honeyflow_sink_tantivy::{MISFIT, TantivySink};
use honeyflow_store::{Admin, AdminReply, NewEvent, Request, Store};

use super::{
    reindex::{self, ask},
    shape::Feed,
    source::OpenSource,
};
use progress::{Act, Position, Seen, decide};
pub use progress::{Phase, Progress};

const RESTING: Duration = Duration::from_secs(2);
const WAITING: Duration = Duration::from_millis(250);
const PAGE: u32 = 1000;
/// While so many events of this priority are waiting, nothing is added.
const WAITING_MAX: u64 = 20_000;
const RETRY: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(3600));
/// Task of a sink: how far its next generation is.
const PROGRESS: &str = "generation";
/// Task of a sink: who asked for the next one last.
const ASKED: &str = "generation-asked";

/// An index, and every way into it.
pub struct Index {
    pub sink: Name,
    pub index: Arc<TantivySink>,
    /// None: its documents cannot be made again.
    pub feeds: Option<Vec<Feed>>,
    /// What they are made by, in short.
    pub shape: String,
}

pub struct Builder {
    pub sources: Arc<Vec<OpenSource>>,
    pub indexes: Vec<Index>,
    pub engine: shell::Handle,
}

/// What is remembered between two looks.
#[derive(Default)]
struct Memory {
    progress: Option<Progress>,
    /// Since when everything of the build is done.
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
                match self.look(index, feeds, memory).await {
                    Ok(wanted) => pause = pause.min(wanted),
                    // The database may be busy or away: the next look will tell.
                    Err(failure) => {
                        memory.progress = None;
                        tracing::debug!(sink = %index.sink, %failure, "could not build");
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Says when to look again.
    async fn look(&self, index: &Index, feeds: &[Feed], memory: &mut Memory) -> Result<Duration, Failure> {
        // nothing is queued by a node that may yet be refused
        let Some(home) = self.home(feeds).filter(|home| self.has_lease(&home.name)) else { return Ok(RESTING) };
        let store = &home.database.store;
        let asked = task(store, ASKED, &index.sink).await?;
        let mut progress = match memory.progress.take() {
            Some(progress) => progress,
            None => self::progress(store, &index.sink).await?,
        };
        let seen = self.see(index, feeds, asked, &progress, memory).await?;
        let act = decide(&progress, &seen);
        match act {
            Act::Rest | Act::Wait => {}
            Act::Begin => {
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
                let why = if seen.is_outdated { "its fields or documents are made otherwise now" } else { "asked for" };
                tracing::info!(sink = %index.sink, generation = progress.generation, "the next generation is being built: {why}");
            }
            Act::Join => {
                (progress.asked, progress.is_asked) = (seen.asked.clone(), true);
                put(store, &index.sink, &progress).await?;
            }
            Act::Discard => {
                index.index.give_up(Failure::retry("index-unknown", "how far it is is not known")).await;
                progress = Progress { is_asked: progress.is_asked, ..Progress::default() };
                put(store, &index.sink, &progress).await?;
            }
            Act::ReadPage => {
                if let Some(feed) = feeds.iter().find(|feed| !is_read(&progress, feed)) {
                    let position = progress.positions.entry(way(feed)).or_default();
                    if !self.read_page(feed, position).await? {
                        memory.progress = Some(progress);
                        return Ok(WAITING);
                    }
                    put(store, &index.sink, &progress).await?;
                }
            }
            Act::Swap => {
                index.index.swap().await?;
                self.note_served(index, &mut progress, store, memory).await?;
            }
            Act::NoteServed => self.note_served(index, &mut progress, store, memory).await?,
            Act::NoteGivenUp => self.note_given_up(index, &mut progress, store, memory).await?,
        }
        memory.progress = Some(progress);
        Ok(match act {
            Act::Rest => RESTING,
            Act::Wait => WAITING,
            _ => Duration::ZERO,
        })
    }

    async fn see(
        &self,
        index: &Index,
        feeds: &[Feed],
        asked: Option<String>,
        progress: &Progress,
        memory: &mut Memory,
    ) -> Result<Seen, Failure> {
        let sink = &index.index;
        let unread = feeds.iter().filter(|feed| !is_read(progress, feed)).count();
        let mut seen = Seen {
            served: sink.generation(),
            building: sink.building(),
            is_outdated: sink.is_outdated(),
            asked,
            has_failed: sink.given_up().is_some(),
            shape: index.shape.clone(),
            may_retry: memory.retry_at.is_none_or(|at| Instant::now() >= at),
            unread,
            ..Seen::default()
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

    /// False: enough is waiting already.
    async fn read_page(&self, feed: &Feed, position: &mut Position) -> Result<bool, Failure> {
        let Some((source, bound)) =
            self.source(&feed.source).and_then(|source| Some((source, source.entity(&feed.entity)?)))
        else {
            position.done = true;
            return Ok(true);
        };
        let (store, entity) = (&source.database.store, &bound.entity);
        if reindex::waiting(store).await? > WAITING_MAX {
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
        // other workflows of the entity have nothing to do with this index
        let event =
            |key| NewEvent { workflow: Some(feed.workflow.clone()), ..reindex::event(entity, key, PRIORITY_REINDEX) };
        store.call(Request::Append { events: keys.into_iter().map(event).collect(), idempotency: None }).await?;
        Ok(true)
    }

    async fn note_served(
        &self,
        index: &Index,
        progress: &mut Progress,
        store: &dyn Store,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        *memory = Memory::default();
        (progress.phase, progress.is_asked) = (Phase::Served, false);
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
        let why = index.index.given_up().unwrap_or_else(|| Failure::retry("unknown", "unknown"));
        memory.retry_at = Some(Instant::now() + RETRY.ceiling(memory.failures));
        memory.failures += 1;
        (progress.phase, progress.is_asked) = (Phase::GivenUp, false);
        progress.positions = BTreeMap::new();
        progress.hopeless = why.code == MISFIT || why.class == Class::Reject;
        progress.failure = Some(why.message.clone());
        put(store, &index.sink, progress).await?;
        let then = if progress.hopeless { "until the configuration changes" } else { "and it is tried again" };
        tracing::error!(sink = %index.sink, "the next generation was given up, the old one goes on {then}: {}", why.message);
        Ok(())
    }

    /// Whose store has the tasks of the sink.
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

/// Asks for a new generation; the answer is in [`progress`], under the same word.
pub async fn request(store: &dyn Store, sink: &str, word: &str) -> Result<(), Failure> {
    let state = word.to_owned();
    ask(store, Admin::PutTask { noun: ASKED.to_owned(), name: sink.to_owned(), state }).await.map(|_| ())
}

pub async fn progress(store: &dyn Store, sink: &str) -> Result<Progress, Failure> {
    let state = task(store, PROGRESS, sink).await?;
    Ok(state.and_then(|state| serde_json::from_str(&state).ok()).unwrap_or_default())
}

/// The lines of a shape, and the fields, in a word.
pub fn in_short(lines: impl IntoIterator<Item = String>) -> String {
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

fn way(feed: &Feed) -> String {
    format!("{}/{}", feed.workflow, feed.entity)
}

fn is_read(progress: &Progress, feed: &Feed) -> bool {
    progress.positions.get(&way(feed)).is_some_and(|position| position.done)
}
