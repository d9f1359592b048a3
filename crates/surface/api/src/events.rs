//! The event endpoint, `POST /v1/events`: stores one event or an array, all or none, and answers only after the commit.
//!
//! The checks run in this order: limit, size, shape, every item, backlog, store. Nothing is stored unless all succeed.

mod body;
mod item;
mod limit;
mod shape;

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, request::Parts},
};
use honeyflow_event::{Name, document};
use honeyflow_store::{Idempotency, Reply, Request, mismatched_reply};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::Semaphore;

use crate::{
    answer::{self, Refusal},
    codes,
    node::Limits,
    search::with_timeout,
    serve::App,
};

const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How long a refused producer should wait: about the time that a busy node needs to reduce its backlog.
const BACKLOG_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct EventEndpoint {
    /// One permit per KiB of the bodies that are being read, over all requests.
    room: Arc<Semaphore>,
}

impl EventEndpoint {
    pub fn new(bodies_bytes_max: usize) -> EventEndpoint {
        EventEndpoint { room: Arc::new(Semaphore::new((bodies_bytes_max >> 10).min(Semaphore::MAX_PERMITS))) }
    }

    /// Reads a body, within the memory that all bodies share.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        limits: &Limits,
    ) -> Result<body::RequestBody, Refusal> {
        body::read(headers, body, limits, &self.room).await
    }

    pub async fn answer(&self, app: &Arc<App>, parts: &Parts, body: Incoming) -> Result<Response<Body>, Refusal> {
        let Some(limit) = &app.node.event_limit else { return self.store_events(app, parts, body).await };
        let admitted = limit::admit(limit, &parts.headers).await?;
        let answered = self.store_events(app, parts, body).await;
        let response = answered.unwrap_or_else(|refusal| refusal.answer(parts.uri.path()));
        Ok(admitted.answer(limit, response))
    }

    async fn store_events(&self, app: &Arc<App>, parts: &Parts, body: Incoming) -> Result<Response<Body>, Refusal> {
        let node = &app.node;
        let key = idempotency_key(&parts.headers)?;
        let read = self.read(&parts.headers, body, &node.limits).await?;
        let text = std::str::from_utf8(&read.bytes)
            .map_err(|_| Refusal::bad_request(codes::refusal::BAD_JSON, "the body is not valid UTF-8"))?;
        shape::check(text, node.limits.json_depth_max, node.limits.json_members_max)?;
        let (source, mut events) = item::read(text, node)?;
        if let Some(traceparent) = traceparent(&parts.headers) {
            events.iter_mut().for_each(|event| event.traceparent = Some(traceparent.clone()));
        }
        let idempotency =
            key.map(|key| Idempotency { key, body_hash: document::hash(&Value::String(text.to_owned())) });
        drop(read);
        let (name, store) = &node.sources[source];
        backlog(app, source, name).await?;
        let appended = store.call(Request::Append { events, idempotency });
        match with_timeout(node.limits.answer_timeout, appended).await {
            Ok(Reply::Appended { ids, repeated }) => {
                let mut response = answer::json(StatusCode::ACCEPTED, &json!({ "ids": ids }));
                if repeated {
                    response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
                }
                Ok(response)
            }
            Ok(Reply::Conflict) => {
                let message = "this Idempotency-Key was used with another body";
                Err(Refusal::new(StatusCode::CONFLICT, codes::refusal::IDEMPOTENCY_CONFLICT, message)
                    .hint("use a new key for a new request"))
            }
            Ok(other) => Err(away(name, &mismatched_reply(&other))),
            Err(failure) => Err(away(name, &failure)),
        }
    }
}

async fn backlog(app: &Arc<App>, source: usize, name: &Name) -> Result<(), Refusal> {
    let waiting = app.sampler.lag(source).await.map_err(|failure| away(name, &failure))?.waiting;
    let backlog_max = app.node.limits.backlog_max;
    if waiting <= backlog_max {
        return Ok(());
    }
    let message = format!("{waiting} events of source `{name}` are waiting, {backlog_max} is the most");
    Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, codes::refusal::BACKLOG_FULL, message)
        .hint("send it again later; nothing was stored")
        .retry_after(BACKLOG_WAIT))
}

fn away(source: &Name, failure: &honeyflow_runtime::Failure) -> Refusal {
    let message = format!("the store of source `{source}` did not store the events");
    Refusal::unavailable(codes::refusal::STORE_UNAVAILABLE, message, failure)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(key) = given.next() else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= IDEMPOTENCY_KEY_BYTES_MAX);
    match (key, given.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => {
            let message = format!("Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters");
            Err(Refusal::bad_request(codes::refusal::BAD_IDEMPOTENCY_KEY, message).hint("for example a UUID").closing())
        }
    }
}

/// Returns the W3C trace context. A malformed header is ignored: it is no reason to refuse an event.
fn traceparent(headers: &HeaderMap) -> Option<Arc<str>> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<_> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let sized = parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]);
    (sized && parts.iter().all(hex)).then(|| text.into())
}
