//! How long the index's commits take, as the sink logs it after each commit.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, Filter},
    registry::LookupSpan,
};

/// The log field with a commit's duration.
const FIELD: &str = "commit_micros";
const TARGET: &str = "honeyflow_sink_tantivy";

static COMMITS: Mutex<Vec<Commit>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
pub struct Commit {
    pub took: Duration,
    /// When the commit returned; the sink answers after the reload that follows.
    pub at: Instant,
}

struct CommitLayer;

pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let filter = Targets::new().with_target(TARGET, tracing::Level::DEBUG);
    fn filtered<S>(layer: CommitLayer, filter: impl Filter<S> + 'static) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        layer.with_filter(filter)
    }
    filtered(CommitLayer, filter)
}

/// Returns the commits since the last call.
pub fn take() -> Vec<Commit> {
    std::mem::take(&mut *COMMITS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl<S: Subscriber> Layer<S> for CommitLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut CommitVisitor);
    }
}

struct CommitVisitor;

impl Visit for CommitVisitor {
    fn record_u64(&mut self, field: &Field, micros: u64) {
        if field.name() == FIELD {
            let commit = Commit { took: Duration::from_micros(micros), at: Instant::now() };
            COMMITS.lock().unwrap_or_else(PoisonError::into_inner).push(commit);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
