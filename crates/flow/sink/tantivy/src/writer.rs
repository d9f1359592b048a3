//! The one thread that writes to a generation.
//!
//! ```text
//! batch ──> judge each write ──> delete + add ──> nothing else on its way, or 8,000 writes, or 100 ms? ──> commit
//!             │ pending, tombstones, stored                                                                  │
//!             └ Stale, Repeated, Rejected                                          reload, answer all of it <┘
//! ```
//!
//! Invariant: a write is answered `Done` after the commit that contains it is on the disk and the reader shows it. If a
//! commit fails, the writer is closed and every pending write fails with it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use honeyflow_event::Stamp;
use honeyflow_runtime::{Backoff, Class, Failure};
use honeyflow_sink::Outcome;
use tantivy::{
    IndexWriter, TantivyError, Term,
    indexer::{IndexWriterOptions, LogMergePolicy},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    codes,
    config::Options,
    directory::Session,
    encode::{Change, PreparedWrite},
    folder::Folder,
    generation::{Generation, Payload},
    outcome,
    pending::{KeyState, Pending, Tombstones, Verdict, judge},
    planted,
    snapshot::Snapshot,
};

const REOPEN: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// A segment with a larger share of deleted documents is rewritten.
const DELETED_SHARE_MAX: f32 = 0.4;
/// Segments of up to this number of documents count as equally small. With Tantivy's default of 10,000 a trickle of
/// changes would rewrite thousands of documents every few commits.
const SMALL_SEGMENT_MAX: u32 = 500;

pub(crate) enum Job {
    Write {
        writes: Vec<PreparedWrite>,
        reply: oneshot::Sender<Vec<Outcome>>,
        arriving: ArrivingBatch,
    },
    /// Answered after every job before it is committed.
    Flush(oneshot::Sender<Result<(), Failure>>),
    Stop,
}

/// A batch on its way to the writer: it holds its place in the queue, and the commit waits for it.
pub(crate) struct ArrivingBatch {
    count: Arc<AtomicUsize>,
    pub place: Option<OwnedSemaphorePermit>,
}

impl ArrivingBatch {
    pub fn new(count: Arc<AtomicUsize>) -> ArrivingBatch {
        count.fetch_add(1, Ordering::Relaxed);
        ArrivingBatch { count, place: None }
    }
}

impl Drop for ArrivingBatch {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters of the writer's work since the generation was opened.
#[derive(Default, Debug)]
pub struct Counters {
    pub writes: AtomicU64,
    pub commits: AtomicU64,
    pub commits_failed: AtomicU64,
    /// Writes for which the stored version had to be looked up.
    pub lookups: AtomicU64,
    pub stale: AtomicU64,
}

pub(crate) struct Writer {
    pub generation: Arc<Generation>,
    pub folder: Arc<Folder>,
    pub options: Options,
    pub arriving: Arc<AtomicUsize>,
    pub counters: Arc<Counters>,
    pub jobs: Receiver<Job>,
}

impl Writer {
    /// The body of the thread.
    pub fn run(self, plant: planted::Plant) {
        planted::plant(plant);
        let Writer { generation, folder, options, arriving, counters, jobs } = self;
        let tombstones = Tombstones::new(options.tombstone_keep, options.tombstones_max);
        let mut state = State {
            generation,
            folder,
            options,
            counters,
            open: None,
            pending: Pending::default(),
            tombstones,
            unanswered: Vec::new(),
            first_at: None,
            last_failure: None,
        };
        loop {
            let wait = state.wait(arriving.load(Ordering::Relaxed) > 0);
            match jobs.recv_timeout(wait) {
                Ok(Job::Write { writes, reply, arriving }) => {
                    // its documents go into the index now, so the next batch may take its place in the queue
                    drop(arriving);
                    state.take(writes, reply);
                }
                Ok(Job::Flush(reply)) => {
                    let flushed = state.commit();
                    let _ = reply.send(flushed);
                }
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    let _ = state.commit();
                    state.close();
                    return;
                }
                Err(RecvTimeoutError::Timeout) if state.unanswered.is_empty() => state.close(),
                Err(RecvTimeoutError::Timeout) => {
                    let _ = state.commit();
                }
            }
        }
    }
}

struct State {
    generation: Arc<Generation>,
    folder: Arc<Folder>,
    options: Options,
    counters: Arc<Counters>,
    open: Option<OpenWriter>,
    pending: Pending,
    tombstones: Tombstones,
    unanswered: Vec<(Vec<Outcome>, oneshot::Sender<Vec<Outcome>>)>,
    /// When the first of the unanswered batches was taken.
    first_at: Option<Instant>,
    last_failure: Option<WriterFailure>,
}

/// Why the writer is closed, and until when writes are refused.
struct WriterFailure {
    /// `None` = until a restart.
    until: Option<Instant>,
    tries: u32,
    failure: Failure,
}

struct OpenWriter {
    writer: IndexWriter,
    session: Arc<Session>,
    payload: Payload,
    /// The highest stored stamp: a write with a higher one need not be compared. The epoch in the payload would say the
    /// same without the sequence.
    newest: Option<Stamp>,
    /// Created when a stored stamp is looked up for the first time after a commit.
    snapshot: Option<Snapshot>,
}

impl State {
    /// How long to wait for the next job: zero if a commit is due.
    fn wait(&self, more_arriving: bool) -> Duration {
        let Some(first_at) = self.first_at else { return self.options.idle_close };
        if !more_arriving || self.pending.writes() >= self.options.commit_writes {
            return Duration::ZERO;
        }
        self.options.commit_interval.saturating_sub(first_at.elapsed())
    }

    fn take(&mut self, writes: Vec<PreparedWrite>, reply: oneshot::Sender<Vec<Outcome>>) {
        self.counters.writes.fetch_add(writes.len() as u64, Ordering::Relaxed);
        let mut outcomes: Vec<Outcome> = writes
            .iter()
            .map(|write| match &write.change {
                Change::Rejected(failure) => Outcome::Failed(failure.clone()),
                Change::Put { .. } | Change::Delete => Outcome::Done,
            })
            .collect();
        if let Some(failure) = self.refusal() {
            refuse(&mut outcomes, &failure);
            let _ = reply.send(outcomes);
            return;
        }
        let applied = guarded(|| self.apply(writes, &mut outcomes));
        self.unanswered.push((outcomes, reply));
        match applied {
            Ok(()) => {
                self.first_at.get_or_insert_with(Instant::now);
            }
            Err(failure) => self.fail(failure),
        }
    }

    fn apply(&mut self, writes: Vec<PreparedWrite>, outcomes: &mut [Outcome]) -> Result<(), Failure> {
        for (write, outcome) in writes.into_iter().zip(outcomes) {
            if matches!(write.change, Change::Rejected(_)) {
                continue;
            }
            self.open()?;
            match self.judge(&write)? {
                (Verdict::Newer, replaces) => self.put(write, replaces)?,
                (Verdict::Repeated, _) => {}
                (Verdict::Stale { stored }, _) => {
                    self.counters.stale.fetch_add(1, Ordering::Relaxed);
                    *outcome = Outcome::Stale { stored };
                }
            }
        }
        Ok(())
    }

    /// Returns the verdict, and whether the index may hold a document of this key.
    fn judge(&mut self, write: &PreparedWrite) -> Result<(Verdict, bool), Failure> {
        let offered = KeyState { stamp: write.stamp, hash: write.change.hash() };
        if planted::on("no-version-check") {
            return Ok((Verdict::Newer, true));
        }
        if let Some(held) = self.pending.get(&write.key) {
            return Ok((judge(Some(held), offered), true));
        }
        if let Some(held) = self.tombstones.get(&write.key) {
            return Ok((judge(Some(held), offered), false));
        }
        let Some(open) = &mut self.open else { return Ok((Verdict::Newer, true)) };
        if open.newest.is_none_or(|newest| newest < offered.stamp) {
            return Ok((Verdict::Newer, open.newest.is_some()));
        }
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        let generation = &self.generation;
        let reading = |error| outcome::reading(&generation.path, &error);
        if open.snapshot.is_none() {
            let searcher = generation.reader.searcher();
            open.snapshot = Some(Snapshot::new(searcher, &generation.layout).map_err(reading)?);
        }
        let held = match &open.snapshot {
            Some(snapshot) => snapshot.find(&write.key).map_err(reading)?,
            None => None,
        };
        Ok((judge(held, offered), held.is_some()))
    }

    fn put(&mut self, write: PreparedWrite, replaces: bool) -> Result<(), Failure> {
        let PreparedWrite { key, stamp, change } = write;
        let held = KeyState { stamp, hash: change.hash() };
        let Some(open) = &self.open else { return Err(panicked()) };
        if replaces {
            open.writer.delete_term(Term::from_field_text(self.generation.layout.key, &key));
        }
        if let Change::Put { document, .. } = change {
            open.writer.add_document(document).map_err(|error| self.explain(&error))?;
        }
        self.pending.insert(key, held);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if !self.pending.is_empty() {
            if let Err(failure) = guarded(|| self.try_commit()) {
                self.fail(failure.clone());
                return Err(failure);
            }
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
            self.last_failure = None;
            let now = Instant::now();
            for (key, held) in self.pending.drain() {
                if !planted::on("no-tombstone") {
                    self.tombstones.record(now, key, held);
                }
            }
            self.tombstones.expire(now);
        }
        self.answer();
        Ok(())
    }

    /// Returns when the commit is on the disk and the reader shows it.
    fn try_commit(&mut self) -> Result<(), Failure> {
        let newest = self.pending.newest();
        let Some(open) = &mut self.open else { return Err(panicked()) };
        if let Some(stamp) = newest {
            let epoch = open.payload.epochs.entry(self.options.source.clone()).or_default();
            *epoch = stamp.epoch().max(*epoch);
        }
        let payload = serde_json::to_string(&open.payload).unwrap_or_default();
        let begun = Instant::now();
        let mut flushed = Duration::ZERO;
        let committed = open.writer.prepare_commit().and_then(|mut prepared| {
            flushed = begun.elapsed();
            prepared.set_payload(&payload);
            prepared.commit()
        });
        open.newest = open.newest.max(newest);
        let (session, snapshot) = (open.session.clone(), open.snapshot.take());
        committed.map_err(|error| self.explain(&error))?;
        let committed = begun.elapsed();
        tracing::debug!(
            writes = self.pending.writes(),
            flush_micros = micros(flushed),
            commit_micros = micros(committed),
            "committed"
        );
        let before = self.generation.reader.searcher();
        let reloaded = self.generation.reader.reload();
        session.drop_later((before, snapshot));
        tracing::debug!(reload_micros = micros(begun.elapsed() - committed), "reloaded");
        reloaded.map_err(|error| outcome::reading(&self.generation.path, &error))
    }

    fn answer(&mut self) {
        self.first_at = None;
        for (outcomes, reply) in self.unanswered.drain(..) {
            let _ = reply.send(outcomes);
        }
    }

    /// Fails all pending writes and closes the writer. The next writer reads from the disk which of them were stored.
    fn fail(&mut self, failure: Failure) {
        tracing::warn!(code = %failure.code, "index: {failure}");
        self.counters.commits_failed.fetch_add(1, Ordering::Relaxed);
        self.pending.clear();
        for (outcomes, _) in &mut self.unanswered {
            refuse(outcomes, &failure);
        }
        self.answer();
        let suspect = failure.code == codes::INDEX_SUSPECT;
        if suspect {
            self.generation.mark_suspect();
        }
        let tries = self.last_failure.as_ref().map_or(0, |last_failure| last_failure.tries + 1);
        let until = (!suspect).then(|| Instant::now() + REOPEN.ceiling(tries));
        self.close();
        self.last_failure = Some(WriterFailure { until, tries, failure });
    }

    fn refusal(&self) -> Option<Failure> {
        let last_failure = self.last_failure.as_ref()?;
        last_failure.until.is_none_or(|until| Instant::now() < until).then(|| last_failure.failure.clone())
    }

    /// Returns the disk's error where there is one: Tantivy's own error may only say that a thread has ended.
    fn explain(&self, error: &TantivyError) -> Failure {
        let path = &self.generation.path;
        match self.open.as_ref().and_then(|open| open.session.disk_error()) {
            Some(disk) if disk.suspect => outcome::suspect(path, &disk.error),
            Some(disk) => outcome::io(path, &disk.error),
            None => outcome::writing(path, error),
        }
    }

    /// Opens the writer, unless it is open.
    fn open(&mut self) -> Result<(), Failure> {
        if self.open.is_some() {
            return Ok(());
        }
        self.folder.lock()?;
        let generation = &self.generation;
        let session = Session::new();
        let opened = self.try_open(session.clone()).map_err(|error| match session.disk_error() {
            Some(disk) => outcome::io(&generation.path, &disk.error),
            None => outcome::writing(&generation.path, &error),
        });
        self.open = Some(opened?);
        Ok(())
    }

    fn try_open(&self, session: Arc<Session>) -> tantivy::Result<OpenWriter> {
        let generation = &self.generation;
        generation.remove_orphans()?;
        let index = generation.session(session.clone())?;
        let options = IndexWriterOptions::builder()
            .num_worker_threads(self.options.threads())
            .memory_budget_per_thread(self.options.heap_bytes_per_thread())
            // one at a time, in the background: merges must leave a core for the commits
            .num_merge_threads(1)
            .build();
        let writer: IndexWriter = index.writer_with_options(options)?;
        let mut merges = LogMergePolicy::default();
        merges.set_del_docs_ratio_before_merge(DELETED_SHARE_MAX);
        merges.set_min_layer_size(SMALL_SEGMENT_MAX);
        writer.set_merge_policy(Box::new(merges));
        generation.reader.reload()?;
        let snapshot = Snapshot::new(generation.reader.searcher(), &generation.layout)?;
        let mut payload = generation.payload()?.unwrap_or_default();
        payload.install.clone_from(&self.options.install_id);
        Ok(OpenWriter { writer, session, payload, newest: snapshot.newest(), snapshot: Some(snapshot) })
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.session.close();
        }
    }
}

/// Answers all writes with the failure, except documents that were already rejected: they keep their own failure.
fn refuse(outcomes: &mut [Outcome], failure: &Failure) {
    for outcome in outcomes {
        if !matches!(outcome, Outcome::Failed(Failure { class: Class::Reject, .. })) {
            *outcome = Outcome::Failed(failure.clone());
        }
    }
}

/// Turns a panic inside Tantivy into a failure, so that it fails the commit and does not end the sink.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn panicked() -> Failure {
    Failure::retry(codes::INDEX_WRITER, "the index writer stopped unexpectedly")
}
