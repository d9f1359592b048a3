//! Builds a node from its configuration: opens the sources, prepares the statements, creates sinks and steps, and plans
//! the engine. Commands that need only a part of it (`check`, `search`, `verify`) open only that part.

pub mod cancel;
pub mod command_node;
pub mod data;
pub mod delete_guard;
mod exclusivity;
pub mod fill;
pub mod generation;
pub mod hive;
pub mod limit;
pub mod operator_request;
mod patience;
pub mod plan;
pub mod pool;
pub mod preflight;
pub mod rebuild;
pub mod reindex;
pub mod secrets;
pub mod shape;
pub mod source;
pub mod steps;
pub mod surface;
pub mod verify;
pub mod versions;
pub mod watch;

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::Duration,
};

use honeyflow_engine::shell::{self, SourcePort, TakeShards};
use honeyflow_evaluate::Pool;
use honeyflow_event::Name;
use honeyflow_hive::{Hive, NodeId};
use honeyflow_runtime::{
    Failure,
    supervise::{self, Child},
    time::BootClock,
};
use honeyflow_sink::Sink;
use honeyflow_store::Store;
use honeyflow_workflow::Graph;
use tokio::task::JoinHandle;

use honeyflow_sink_tantivy::TantivySink;

use crate::{codes, config::Config, registry};
use generation::Builder;
use hive::Hives;
use pool::Pools;
use source::OpenSource;

/// Threads for the engine's own expressions; steps that evaluate expressions have their own threads.
const EXPRESSION_THREADS: usize = 2;

pub type Running = JoinHandle<Result<(), Failure>>;

/// Everything a running node consists of.
pub struct Node {
    pub name: String,
    pub incarnation: NodeId,
    pub sources: Arc<Vec<OpenSource>>,
    pub sinks: Vec<(Name, Arc<dyn Sink>)>,
    pub pools: Pools,
    pub graphs: Vec<Arc<Graph>>,
    pub engine: shell::Handle,
    /// The hive where the queen counts and which holds the limits.
    pub hive: Hive,
    hives: Arc<Hives>,
    limits: limit::DeclaredLimits,
    builder: Arc<Builder>,
    data: data::DataFolder,
}

pub type WrapSink = Box<dyn Fn(Arc<dyn Sink>) -> Arc<dyn Sink> + Send + Sync>;

#[derive(Default)]
pub struct Options {
    /// Wraps every sink, to observe the writes.
    pub wrap_sink: Option<WrapSink>,
    /// The address on which the node will listen; it is published to other nodes.
    pub address: Option<SocketAddr>,
}

impl Node {
    /// Opens everything; the caller then runs the engine. The sources must have been installed.
    pub async fn open(config: &Config, options: &Options) -> Result<(Node, shell::Service), Failure> {
        let incarnation = NodeId(uuid::Uuid::new_v4());
        let data = data::DataFolder::lock(&config.node.data, incarnation)?;
        exclusivity::refuse_conflicting_nodes(config).await?;
        let mut sources = Vec::new();
        for source in &config.sources {
            sources.push(OpenSource::open(config, source).await?);
        }
        let pools = Pools::open(config)?;
        let (sinks, indexes) = open_sinks(config, &sources, &pools, options).await?;
        // One pool, because the memory that expressions leave behind is counted for the whole process.
        let pool = Arc::new(Pool::new(EXPRESSION_THREADS));
        let folder = config.file.parent().unwrap_or(Path::new(""));
        let build = |graph: &Graph| steps::build(folder, graph, &sources, &sinks, &pool);
        let mut steps = plan::graphs(config)?.iter().map(|graph| build(graph)).collect::<Result<Vec<_>, Failure>>()?;
        // Versions are stored only after all checks: a definition that never ran needs no number.
        let numbered = versions::put(&config.workflows, &sources).await?;
        let graphs = plan::graphs_numbered(config, |name| versions::number(&numbered, name).unwrap_or(1))?;
        let older = versions::older(&numbered, &graphs, &registry::kinds(), build);
        steps.extend(older.steps);
        let installed = source::installations(config, &sources).await?;
        let plan = Arc::new(plan::plan(config, &graphs, &older.graphs, older.versions, &sources, &installed));
        let name = config.node.name.clone().unwrap_or_else(host_name);
        // Join last: from here on other nodes rely on this one.
        let identity = hive::Identity { name: &name, incarnation, address: options.address.map(|at| at.to_string()) };
        let hives = Arc::new(Hives::join(config, &identity).await?);
        let limits = limit::DeclaredLimits::new(config, hives.own())?;
        let mut ports = Vec::new();
        for (source, installed) in sources.iter().zip(&installed) {
            let store: Arc<dyn Store> = source.database.store.clone();
            ports.push(SourcePort {
                source: Arc::new(source.outbox(installed.shards)),
                store,
                hive: hives.hive_of(&source.name).clone(),
            });
        }
        let (service, engine) = shell::Service::new(shell::Config {
            concurrency: plan.kinds.iter().map(|kind| steps::concurrency(kind)).collect(),
            pool,
            plan,
            sources: ports,
            steps,
            shards: config.node.role.source.then_some(TakeShards { pinned_only: config.node.role.static_only }),
            traffic: hives.own().traffic(),
            limits: limits.for_steps(),
            clock: Arc::new(BootClock),
            seed: incarnation.0.as_u64_pair().0,
        });
        let sources = Arc::new(sources);
        let builder = Arc::new(Builder { sources: sources.clone(), indexes, engine: engine.clone() });
        let hive = hives.own().clone();
        Ok((
            Node { name, incarnation, sources, sinks, pools, graphs, engine, hive, hives, limits, builder, data },
            service,
        ))
    }

    /// Runs the node's parts under supervision, until the node is drained or a failure stops it. The HTTP surface comes
    /// first, so that it keeps running while the other parts are restarted.
    pub fn run(&self, config: &Config, service: shell::Service, listener: TcpListener) -> Result<Running, Failure> {
        let address = listener.local_addr().map_err(|error| Failure::fatal(codes::CANNOT_LISTEN, error.to_string()))?;
        self.data
            .write(Some(address.to_string()))
            .map_err(|error| Failure::fatal(codes::DATA_FOLDER, format!("cannot write node.json: {error}")))?;
        let view = Arc::new(surface::view(self, config));
        let surface = Child::new("surface", move || {
            let (listener, view) = (listener.try_clone(), view.clone());
            async move {
                let listener = listener.map_err(|error| Failure::retry(codes::SURFACE, error.to_string()))?;
                surface::serve(listener, view).await
            }
        });
        let hives = self.hives.clone();
        let hive = Child::new("hive", move || {
            let hives = hives.clone();
            async move { Err(hives.ended().await) }
        });
        let service = Arc::new(service);
        let engine = Child::new("engine", move || {
            let service = service.clone();
            async move { service.run().await }
        });
        let watch = Arc::new(watch::Watch {
            sources: self.sources.clone(),
            graphs: self.graphs.clone(),
            sinks: self.sinks.clone(),
            engine: self.engine.clone(),
            hives: self.hives.clone(),
        });
        let watch = Child::new("watch", move || {
            let watch = watch.clone();
            async move { watch.run().await }
        });
        let builder = self.builder.clone();
        let builder = Child::new("builder", move || {
            let builder = builder.clone();
            async move { builder.run().await }
        });
        let children = vec![surface, hive, engine, watch, builder];
        Ok(tokio::spawn(async move { supervise::run(children, supervise::Config::default(), &BootClock).await }))
    }

    /// Stops taking work, transfers the leases to other nodes, and waits at most `grace` for the work in progress.
    pub async fn drain(&self, running: &mut Running, grace: Duration) {
        self.engine.drain().await;
        self.hives.drain().await;
        if tokio::time::timeout(grace, running).await.is_err() {
            tracing::warn!(
                ?grace,
                "some work did not finish in time; it stays in the outbox and is processed after the next start"
            );
        }
        // Not earlier: requests that were accepted are served to the end.
        self.hives.not_ready();
        self.hives.leave().await;
        self.pools.close().await;
    }

    /// Leaves the hives, so that other nodes need not wait until this one expires.
    pub async fn leave(&self) {
        self.hives.leave().await;
    }

    /// The hives that this node has joined, one per database.
    pub fn hives(&self) -> &[hive::JoinedHive] {
        self.hives.all()
    }
}

type Sinks = Vec<(Name, Arc<dyn Sink>)>;

async fn open_sinks(
    config: &Config,
    sources: &[OpenSource],
    pools: &Pools,
    options: &Options,
) -> Result<(Sinks, Vec<generation::Index>), Failure> {
    let (mut sinks, mut indexes): (Sinks, Vec<generation::Index>) = Default::default();
    let wrapped = |sink: Arc<dyn Sink>| options.wrap_sink.as_ref().map_or(sink.clone(), |wrap| wrap(sink));
    for sink in &config.sinks {
        if let Some(table) = &sink.table {
            let opened = pools.open_table(config, sink, table, sources.iter()).await?;
            sinks.push((sink.name.clone(), wrapped(Arc::new(opened))));
            continue;
        }
        let feeds = shape::feeds(config, &sink.name);
        let mut index_options = registry::sink_options(sink, &config.node)?;
        index_options.shape = shape::lines(config, &sink.name);
        let entities = config.entities_into(&sink.name);
        let source = entities.first().and_then(|entity| config.source_of(entity));
        if let Some(feeder) = source.and_then(|name| sources.iter().find(|source| source.name == *name)) {
            index_options.source = feeder.name.clone();
            index_options.install_id = feeder.install_id().await?;
        }
        let fields = index_options.fields.iter().map(|field| format!("{field:?}"));
        let shape = generation::shape_hash(index_options.shape.iter().cloned().chain(fields));
        let opened = tokio::task::spawn_blocking(move || {
            let opened = TantivySink::open(index_options)?;
            // Lock now, not at the first write: a second node must be refused before it takes events.
            opened.lock().map(|()| opened)
        });
        let opened = opened.await;
        let opened =
            opened.map_err(|_| Failure::fatal(codes::SINK, format!("opening sink {} panicked", sink.name)))??;
        if opened.is_outdated() && feeds.is_none() {
            return Err(cannot_be_rebuilt(&sink.name));
        }
        let index = Arc::new(opened);
        indexes.push(generation::Index { sink: sink.name.clone(), index: index.clone(), feeds, shape });
        sinks.push((sink.name.clone(), wrapped(index)));
    }
    Ok((sinks, indexes))
}

pub fn cannot_be_rebuilt(sink: &str) -> Failure {
    Failure::fatal(
        codes::INDEX_FIELDS_CHANGED,
        format!(
            "[sink.{sink}] has other fields than its index, and the documents cannot be rebuilt because they were built from messages; \
             use another index in its url, or restore the fields"
        ),
    )
}

pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "node".to_owned(), |name| name.trim().to_owned())
}
