//! Health, readiness and the status in full.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use honeyflow_event::Name;
use serde_json::{Map, Value, json};

use crate::{
    answer,
    hive::{self, HiveSeen},
    sample::{Obstacle, obstacles, stopped},
    serve::App,
};

/// The process lives and answers; whether it can work is [`ready`]'s question.
pub(crate) fn health() -> Response<Body> {
    answer::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Names from the configuration and fixed words only: readiness is asked by anyone who reaches the port.
pub(crate) async fn ready(app: &Arc<App>) -> Response<Body> {
    let (lags, hives) = tokio::join!(app.sampler.lags(), app.sampler.hives());
    let status = (app.node.engine)();
    let obstacles = obstacles(&app.node, &status, &lags, &hives);
    let stopped = stopped(&status);
    let unheard: Vec<_> = hives.iter().filter(|hive| hive.snapshot.stale).filter_map(unheard).collect();
    if obstacles.is_empty() && stopped.is_empty() && unheard.is_empty() {
        return answer::json(StatusCode::OK, &json!({ "status": "ready" }));
    }
    let reasons = obstacles.iter().map(reason).chain(stopped.iter().map(has_stopped)).chain(unheard);
    let reasons: Vec<_> = reasons.collect();
    if obstacles.is_empty() {
        // it takes events, answers searches and works on all the rest: whoever sends requests here may go on
        return answer::json(StatusCode::OK, &json!({ "status": "degraded", "reasons": reasons }));
    }
    answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "not-ready", "reasons": reasons }))
}

fn has_stopped(workflow: &Name) -> Value {
    json!({ "code": "workflow-stopped", "workflow": workflow, "message": "this workflow has stopped, its events wait; /v1/status says why" })
}

/// Limits are the safe ones meanwhile, and nobody is counted.
fn unheard(hive: &HiveSeen) -> Option<Value> {
    let cause = &hive.snapshot.trouble.as_ref()?.code;
    Some(json!({ "code": "hive-away", "cause": cause, "message": "the hive's store cannot be used; the log says why" }))
}

fn reason(obstacle: &Obstacle) -> Value {
    match obstacle {
        Obstacle::Draining => json!({ "code": "draining", "message": "the node is stopping" }),
        Obstacle::NoLease(source) => json!({
            "code": "no-lease", "source": source, "message": "this node does not hold the lease of the source"
        }),
        Obstacle::StoreAway(source) => json!({
            "code": "store-away", "source": source, "message": "the store of the source does not answer"
        }),
    }
}

pub(crate) async fn status(app: &Arc<App>) -> Response<Body> {
    let node = &app.node;
    let seen = app.sampler.look().await;
    let lag: Map<String, Value> = node
        .sources
        .iter()
        .zip(&seen.lags)
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
        .zip(&seen.counts)
        .map(|(view, count)| json!({ "name": view.name, "entity": view.entity, "documents": count.as_ref().ok() }))
        .collect();
    let waits: Vec<_> = obstacles(node, &seen.status, &seen.lags, &seen.hives).iter().map(reason).collect();
    let hives: Vec<_> = node.hives.iter().zip(&seen.hives).map(|(of, seen)| hive::json(of, seen)).collect();
    let stopped: Vec<_> = stopped(&seen.status).iter().map(has_stopped).collect();
    let shown = json!({
        "node": {
            "name": node.name,
            "version": node.version,
            "uptime_seconds": seen.uptime.as_secs(),
            "ready": waits.is_empty(),
            "degraded": !stopped.is_empty(),
            "reasons": waits.into_iter().chain(stopped).collect::<Vec<_>>(),
        },
        "rates": { "events": seen.rates.events, "runs": seen.rates.runs, "steps": seen.rates.steps },
        "engine": seen.status,
        "lag": lag,
        "sinks": sinks,
        "pools": node.pools.iter().map(crate::pool::PoolView::json).collect::<Vec<_>>(),
        "hives": hives,
    });
    answer::json(StatusCode::OK, &shown)
}
