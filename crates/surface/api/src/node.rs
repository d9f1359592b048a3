//! What the surface shows, and within which bounds. The binary fills it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::HeaderName;
use futures_util::future::BoxFuture;
use honeyflow_engine::core::{people::RunView, status::Status};
use honeyflow_event::Name;
use honeyflow_hive::limit::Limit;
pub use honeyflow_hive::limit::counters::Snapshot as Counted;
use honeyflow_sink::Sink;
use honeyflow_store::Store;
use honeyflow_workflow::Graph;

use crate::{hive::HiveView, pool::PoolView};

/// A question to the task that owns the runs.
pub type Runs = Arc<dyn Fn(Option<String>, usize) -> BoxFuture<'static, Vec<RunView>> + Send + Sync>;

pub struct Node {
    pub name: String,
    pub version: &'static str,
    pub started: Instant,
    pub sources: Vec<(Name, Arc<dyn Store>)>,
    pub sinks: Vec<SinkView>,
    /// Through which clusters are reached.
    pub pools: Vec<PoolView>,
    pub workflows: Vec<Arc<Graph>>,
    /// Cheap: it is asked on every request that shows something, and once a second.
    pub engine: Arc<dyn Fn() -> Status + Send + Sync>,
    /// Open runs of a key, or of all; at most so many.
    pub runs: Runs,
    /// Source and entity: what the door takes.
    pub entities: Vec<(Name, Name)>,
    /// What requests to the door keep to, with those of all other nodes.
    pub door: Option<DoorLimit>,
    /// What the node's limits have counted, one by one.
    pub counted: Arc<dyn Fn() -> Vec<Counted> + Send + Sync>,
    /// The one where the queen counts comes first.
    pub hives: Vec<HiveView>,
    pub limits: Limits,
}

impl Node {
    /// Somebody was served: the node counts as engaged for a while.
    pub(crate) fn engage(&self) {
        if let Some(own) = self.hives.first() {
            own.hive.engage();
        }
    }
}

/// One permit per request.
#[derive(Clone)]
pub struct DoorLimit {
    pub limit: Limit,
    /// Whose value is counted by; requests without it share one.
    pub key: Option<HeaderName>,
    /// Counts, and refuses nobody.
    pub shadow: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, too.
    pub old_fields: bool,
}

/// A sink that can be searched, and what its documents are.
pub struct SinkView {
    pub name: Name,
    pub entity: Name,
    pub sink: Arc<dyn Sink>,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub body_bytes_max: usize,
    /// Over all requests that are being read.
    pub bodies_bytes_max: usize,
    pub payload_bytes_max: usize,
    pub events_max: usize,
    pub json_depth_max: usize,
    pub json_members_max: usize,
    pub url_bytes_max: usize,
    pub header_bytes_max: usize,
    pub parameters_max: usize,
    pub hits_max: u32,
    pub searches_max: usize,
    /// Waiting events of a source above which the door refuses more.
    pub backlog_max: u64,
    pub connections_max: usize,
    pub connections_per_peer_max: usize,
    pub live_clients_max: usize,
    /// Counted from accept.
    pub headers_timeout: Duration,
    pub body_timeout: Duration,
    /// Between two requests of a connection, and for a peer that does not take what it is sent.
    pub idle_timeout: Duration,
    /// For what stores and sinks are asked.
    pub answer_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes_max: 4 << 20,
            bodies_bytes_max: 64 << 20,
            payload_bytes_max: 1 << 20,
            events_max: 1000,
            json_depth_max: 64,
            json_members_max: 100_000,
            url_bytes_max: 8 << 10,
            header_bytes_max: 16 << 10,
            parameters_max: 64,
            hits_max: 500,
            searches_max: 16,
            backlog_max: 1_000_000,
            connections_max: 4096,
            connections_per_peer_max: 200,
            live_clients_max: 100,
            headers_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(10),
        }
    }
}
