//! The HTTP surface of the node: dashboard and API.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Instant,
};

use honeyflow_api::{HiveView, Limits, PoolView, SinkView};
use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_store::Store;

use super::Node;
use crate::{
    codes,
    config::{Config, awaited_names},
};

/// Binds the address before anything else starts: a port that is in use is a configuration error.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| {
        let hint = "another node may be running; set another address in [node] listen";
        Failure::fatal(codes::CANNOT_LISTEN, format!("cannot listen on {address}: {error}; {hint}"))
    })
}

/// The parts of the node that the API shows.
pub fn view(node: &Node, config: &Config) -> honeyflow_api::Node {
    let engine = node.engine.clone();
    let run_engine = node.engine.clone();
    let sources = node.sources.iter().map(|source| {
        let store: Arc<dyn Store> = source.database.store.clone();
        (source.name.clone(), store)
    });
    let sinks = node.sinks.iter().map(|(name, sink)| {
        let entity = config.entities_into(name).into_iter().next().unwrap_or_else(|| name.clone());
        SinkView { name: name.clone(), entity, sink: sink.clone() }
    });
    let rows = config.entities.iter().map(|entity| (entity.source.clone(), entity.name.clone()));
    let messages = config.messages.iter().map(|message| (message.source.clone(), message.name.clone()));
    let mut entities: Vec<_> = rows.chain(messages).collect();
    let begins = config.workflows.iter().flat_map(|workflow| &workflow.on).map(|on| (&on.source, on.entity.clone()));
    let awaited = config.workflows.iter().flat_map(|workflow| {
        let names = awaited_names(workflow).map(Name::from);
        names.flat_map(|name| workflow.on.iter().map(move |on| (&on.source, name.clone())))
    });
    for (source, name) in begins.chain(awaited) {
        let named = (source.clone(), name);
        if !entities.contains(&named) {
            entities.push(named);
        }
    }
    let payload_bytes_max = config.sources.iter().map(|source| source.payload_bytes_max).min().unwrap_or(1 << 20);
    honeyflow_api::Node {
        name: node.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started: Instant::now(),
        sources: sources.collect(),
        sinks: sinks.collect(),
        pools: node.pools.controls().map(|(name, control)| PoolView { name, control }).collect(),
        workflows: node.graphs.clone(),
        engine: Arc::new(move || engine.status()),
        runs: Arc::new(move |key, limit| {
            let engine = run_engine.clone();
            Box::pin(async move { engine.runs(key, limit).await })
        }),
        entities,
        hives: node
            .hives()
            .iter()
            .map(|joined| HiveView {
                place: joined.place.shown().to_owned(),
                sources: joined.sources.clone(),
                hive: joined.hive.clone(),
            })
            .collect(),
        event_limit: node.limits.for_event_endpoint(config),
        limit_counters: {
            let hive = node.hive.clone();
            Arc::new(move || hive.limits().map(|limits| limits.snapshots()).unwrap_or_default())
        },
        limits: Limits {
            payload_bytes_max: usize::try_from(payload_bytes_max).unwrap_or(1 << 20),
            ..Limits::default()
        },
    }
}

pub async fn serve(listener: TcpListener, view: Arc<honeyflow_api::Node>) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| Failure::fatal(codes::CANNOT_LISTEN, format!("cannot listen: {error}")))?;
    honeyflow_api::serve(listener, view, std::future::pending())
        .await
        .map_err(|error| Failure::retry(codes::SURFACE, format!("the HTTP surface failed: {error}")))
}
