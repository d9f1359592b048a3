//! Answers for health, readiness and the full status.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use honeyflow_event::Name;
use serde_json::{Map, Value, json};

use crate::{
    answer, codes,
    hive::{self, HiveSample},
    sample::{Obstacle, obstacles, stopped},
    serve::App,
};

/// Answers that the process runs; [`ready`] says whether it can work.
pub(crate) fn health() -> Response<Body> {
    answer::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Answers whether the node can work. It contains only names of the configuration and fixed words, because every client
/// that reaches the port can read it.
pub(crate) async fn ready(app: &Arc<App>) -> Response<Body> {
    let (lags, hives) = tokio::join!(app.sampler.lags(), app.sampler.hives());
    let status = (app.node.engine)();
    let obstacles = obstacles(&app.node, &status, &lags, &hives);
    let stopped = stopped(&status);
    let unheard: Vec<_> = hives.iter().filter(|hive| hive.snapshot.stale).filter_map(unreachable_hive).collect();
    if obstacles.is_empty() && stopped.is_empty() && unheard.is_empty() {
        return answer::json(StatusCode::OK, &json!({ "status": "ready" }));
    }
    let reasons = obstacles.iter().map(reason).chain(stopped.iter().map(has_stopped)).chain(unheard);
    let reasons: Vec<_> = reasons.collect();
    if obstacles.is_empty() {
        // The node accepts events, answers searches and works on everything else: clients may continue to use it.
        return answer::json(StatusCode::OK, &json!({ "status": "degraded", "reasons": reasons }));
    }
    answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "not-ready", "reasons": reasons }))
}

fn has_stopped(workflow: &Name) -> Value {
    json!({ "code": codes::readiness::WORKFLOW_STOPPED, "workflow": workflow, "message": "this workflow has stopped, its events wait; /v1/status says why" })
}

/// Returns the reason for a hive whose store cannot be used. Meanwhile the node uses the safe limits and counts no
/// nodes.
fn unreachable_hive(hive: &HiveSample) -> Option<Value> {
    let cause = &hive.snapshot.store_failure.as_ref()?.code;
    Some(
        json!({ "code": codes::readiness::HIVE_AWAY, "cause": cause, "message": "the hive's store cannot be used; the log says why" }),
    )
}

fn reason(obstacle: &Obstacle) -> Value {
    match obstacle {
        Obstacle::Draining => json!({ "code": codes::readiness::DRAINING, "message": "the node is stopping" }),
        Obstacle::NoLease(source) => json!({
            "code": codes::readiness::NO_LEASE, "source": source, "message": "this node does not hold the lease of the source"
        }),
        Obstacle::StoreAway(source) => json!({
            "code": codes::readiness::STORE_AWAY, "source": source, "message": "the store of the source does not answer"
        }),
    }
}

pub(crate) async fn status(app: &Arc<App>) -> Response<Body> {
    let node = &app.node;
    let sample = app.sampler.sample().await;
    let lag: Map<String, Value> = node
        .sources
        .iter()
        .zip(&sample.lags)
        .map(|((name, _), lag)| {
            let shown = match lag {
                Ok(lag) => json!(lag),
                Err(failure) => json!({ "error": { "code": failure.code, "message": "the store does not answer" } }),
            };
            (name.to_string(), shown)
        })
        .collect();
    let sinks: Vec<_> = node
        .sinks
        .iter()
        .zip(&sample.counts)
        .map(|(view, count)| json!({ "name": view.name, "entity": view.entity, "documents": count.as_ref().ok() }))
        .collect();
    let waits: Vec<_> = obstacles(node, &sample.status, &sample.lags, &sample.hives).iter().map(reason).collect();
    let hives: Vec<_> = node.hives.iter().zip(&sample.hives).map(|(of, sample)| hive::json(of, sample)).collect();
    let stopped: Vec<_> = stopped(&sample.status).iter().map(has_stopped).collect();
    let shown = json!({
        "node": {
            "name": node.name,
            "version": node.version,
            "uptime_seconds": sample.uptime.as_secs(),
            "ready": waits.is_empty(),
            "degraded": !stopped.is_empty(),
            "reasons": waits.into_iter().chain(stopped).collect::<Vec<_>>(),
        },
        "rates": { "events": sample.rates.events, "runs": sample.rates.runs, "steps": sample.rates.steps },
        "engine": sample.status,
        "lag": lag,
        "sinks": sinks,
        "pools": node.pools.iter().map(crate::pool::PoolView::json).collect::<Vec<_>>(),
        "hives": hives,
    });
    answer::json(StatusCode::OK, &shown)
}
