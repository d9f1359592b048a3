//! How long the index's commits take, as the sink itself says when it has made one.

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

/// The field that tells a commit's duration.
const FIELD: &str = "commit_micros";
const TARGET: &str = "honeyflow_sink_tantivy";

static SEEN: Mutex<Vec<Commit>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
pub struct Commit {
    pub took: Duration,
    /// When it returned; the sink answers after the reload that follows.
    pub at: Instant,
}

struct Commits;

pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let filter = Targets::new().with_target(TARGET, tracing::Level::DEBUG);
    fn filtered<S>(layer: Commits, filter: impl Filter<S> + 'static) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        layer.with_filter(filter)
    }
    filtered(Commits, filter)
}

/// Those since the last call.
pub fn take() -> Vec<Commit> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl<S: Subscriber> Layer<S> for Commits {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Look);
    }
}

struct Look;

impl Visit for Look {
    fn record_u64(&mut self, field: &Field, micros: u64) {
        if field.name() == FIELD {
            let commit = Commit { took: Duration::from_micros(micros), at: Instant::now() };
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(commit);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
