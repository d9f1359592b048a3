//! Measures the time from the application's COMMIT until a search finds the change. A wrapped sink records when each
//! revision of a book became searchable.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use futures_util::future::BoxFuture;
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_sink::{Cursor, Hit, Outcome, Sink, Stat, Write};

/// A sink that records when the write of each (book, revision) was acknowledged.
pub struct TimedSink {
    sink: Arc<dyn Sink>,
    seen: Arc<AnswerTimes>,
}

/// When the sink acknowledged each revision of each book.
#[derive(Default)]
pub struct AnswerTimes {
    revisions: Mutex<HashMap<String, Vec<(i64, Instant)>>>,
}

impl TimedSink {
    pub fn new(sink: Arc<dyn Sink>, seen: Arc<AnswerTimes>) -> TimedSink {
        TimedSink { sink, seen }
    }
}

impl AnswerTimes {
    /// The latency of each commit in milliseconds, sorted.
    pub fn latencies(&self, commits: &[(i64, i64, Instant)]) -> Vec<f64> {
        let mut millis: Vec<f64> = commits
            .iter()
            .filter_map(|(book, revision, committed)| {
                // The write may be acknowledged before COMMIT has returned to the application: count that as zero.
                let at = self.answered(*book, *revision)?;
                Some(at.saturating_duration_since(*committed).as_secs_f64() * 1000.0)
            })
            .collect();
        millis.sort_by(f64::total_cmp);
        millis
    }

    /// When the sink acknowledged this revision of the book, or a newer one.
    pub fn answered(&self, book: i64, revision: i64) -> Option<Instant> {
        let revisions = self.revisions.lock().ok()?;
        // Revisions only grow.
        revisions.get(&book.to_string())?.iter().find(|(seen, _)| *seen >= revision).map(|(_, at)| *at)
    }
}

/// The value below which `percent` of the sorted values lie.
pub fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let at = (sorted.len() * percent / 100).min(sorted.len().checked_sub(1)?);
    Some(sorted[at])
}

impl Sink for TimedSink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        let revisions: Vec<(Key, i64)> = writes
            .iter()
            .filter_map(|write| Some((write.key.clone(), write.document.as_ref()?.get("revision")?.as_i64()?)))
            .collect();
        let seen = self.seen.clone();
        let written = self.sink.write(writes);
        Box::pin(async move {
            let outcomes = written.await;
            let now = Instant::now();
            if let Ok(mut all) = seen.revisions.lock() {
                for (key, revision) in revisions {
                    all.entry(key.to_string()).or_default().push((revision, now));
                }
            }
            outcomes
        })
    }

    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>> {
        self.sink.stat(keys)
    }

    fn list(
        &self,
        after: Option<Cursor>,
        limit: u32,
    ) -> BoxFuture<'static, Result<(Vec<Hit>, Option<Cursor>), Failure>> {
        self.sink.list(after, limit)
    }

    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>> {
        self.sink.search(query, limit)
    }

    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        self.sink.count()
    }
}
