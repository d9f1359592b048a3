//! The data that the surface shows, and its bounds. The binary fills it in.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::HeaderName;
use futures_util::future::BoxFuture;
use honeyflow_engine::core::{run_view::RunView, status::Status};
use honeyflow_event::Name;
use honeyflow_hive::limit::{Limit, counters};
use honeyflow_sink::Sink;
use honeyflow_store::Store;
use honeyflow_workflow::Graph;

use crate::{hive::HiveView, pool::PoolView};

/// A request to the task that owns the runs: an optional key, and the maximum number of runs.
pub type Runs = Arc<dyn Fn(Option<String>, usize) -> BoxFuture<'static, Vec<RunView>> + Send + Sync>;

pub struct Node {
    pub name: String,
    pub version: &'static str,
    pub started: Instant,
    pub sources: Vec<(Name, Arc<dyn Store>)>,
    pub sinks: Vec<SinkView>,
    /// The connection pools of the clusters that this node uses.
    pub pools: Vec<PoolView>,
    pub workflows: Vec<Arc<Graph>>,
    /// Returns the engine's status. It is cheap: many requests call it, and it is called once a second.
    pub engine: Arc<dyn Fn() -> Status + Send + Sync>,
    /// Returns the open runs of a key, or of all keys, up to a maximum.
    pub runs: Runs,
    /// The (source, entity) pairs that the event endpoint accepts.
    pub entities: Vec<(Name, Name)>,
    /// The limit of requests to the event endpoint, over all nodes.
    pub event_limit: Option<EventLimit>,
    /// Returns the counters of each limit of this node.
    pub limit_counters: Arc<dyn Fn() -> Vec<counters::Snapshot> + Send + Sync>,
    /// The hives of this node; the hive whose queen counts the engaged nodes comes first.
    pub hives: Vec<HiveView>,
    pub limits: Limits,
}

impl Node {
    /// Records that the node has served a request: it counts as engaged for a while.
    pub(crate) fn engage(&self) {
        if let Some(own) = self.hives.first() {
            own.hive.engage();
        }
    }
}

/// The limit of the event endpoint: each request takes one permit.
#[derive(Clone)]
pub struct EventLimit {
    pub limit: Limit,
    /// The header whose value is the limit's key; requests without it share one key.
    pub key: Option<HeaderName>,
    /// Only count; refuse no request.
    pub shadow: bool,
    /// Also send `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy_headers: bool,
}

/// A sink that can be searched, and the entity of its documents.
pub struct SinkView {
    pub name: Name,
    pub entity: Name,
    pub sink: Arc<dyn Sink>,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub body_bytes_max: usize,
    /// The maximum over all requests that are being read.
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
    /// Above this number of waiting events of a source, the event endpoint refuses further ones.
    pub backlog_max: u64,
    pub connections_max: usize,
    pub connections_per_peer_max: usize,
    pub live_clients_max: usize,
    /// The time to receive the headers, counted from accept.
    pub headers_timeout: Duration,
    pub body_timeout: Duration,
    /// The maximum time between two requests of a connection, and during which a peer reads nothing of an answer.
    pub idle_timeout: Duration,
    /// The maximum time of a call to a store or sink.
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
