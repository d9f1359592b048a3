//! `GET /v1/search`: what a sink holds, by the sink's own query language.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Response, StatusCode, Uri},
};
use honeyflow_event::Stamp;
use honeyflow_runtime::{Class, Failure};
use honeyflow_workflow::problem::nearest;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    answer::{self, Refusal, quoted, visible},
    node::{Node, SinkView},
    query::Parameters,
};

const LIMIT_DEFAULT: u32 = 20;

pub(crate) struct Searches {
    /// Each search takes memory for its hits, and a thread of the sink's.
    places: Semaphore,
}

#[derive(Serialize)]
pub(crate) struct Found<'a> {
    pub hits: Vec<Hit<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Hit<'a> {
    pub entity: &'a str,
    pub key: String,
    pub version: Stamp,
    pub document: Arc<Value>,
}

impl Searches {
    pub fn new(places: usize) -> Searches {
        Searches { places: Semaphore::new(places) }
    }

    pub async fn answer(&self, node: &Node, uri: &Uri) -> Result<Response<Body>, Refusal> {
        let limits = &node.limits;
        let parameters = Parameters::read(uri, &["sink", "q", "limit"], limits.parameters_max)?;
        let view = sink(node, parameters.get("sink"))?;
        let limit = match parameters.get("limit") {
            None => LIMIT_DEFAULT,
            Some(text) => text.parse().ok().filter(|limit| (1..=limits.hits_max).contains(limit)).ok_or_else(|| {
                let message = format!("limit is {}, not a number from 1 to {}", quoted(text), limits.hits_max);
                Refusal::bad_request("bad-limit", message)
            })?,
        };
        let found = self.find(node, view, parameters.get("q").unwrap_or_default(), limit).await?;
        Ok(answer::json(StatusCode::OK, &found))
    }

    pub async fn find<'a>(
        &self,
        node: &Node,
        view: &'a SinkView,
        query: &str,
        limit: u32,
    ) -> Result<Found<'a>, Refusal> {
        let search = async {
            let _place = self.places.acquire().await;
            view.sink.search(query.to_owned(), limit).await
        };
        let hits = within(node.limits.answer_timeout, search).await.map_err(|failure| refusal(view, &failure))?;
        let hit = |hit: honeyflow_sink::Hit| Hit {
            entity: &view.entity,
            key: hit.key,
            version: hit.stamp,
            document: hit.document,
        };
        // The bound is ours to keep, whatever a sink answers.
        Ok(Found { hits: hits.into_iter().take(limit as usize).map(hit).collect() })
    }
}

/// The one named, or the only one there is.
pub(crate) fn sink<'a>(node: &'a Node, name: Option<&str>) -> Result<&'a SinkView, Refusal> {
    let names = || node.sinks.iter().map(|view| &*view.name);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return match &node.sinks[..] {
            [only] => Ok(only),
            [] => Err(Refusal::new(StatusCode::NOT_FOUND, "no-sink", "this node has no sink that can be searched")),
            _ => {
                let listed = names().collect::<Vec<_>>().join(", ");
                Err(Refusal::bad_request("sink-missing", "several sinks: say which").hint(format!("sink = {listed}")))
            }
        };
    };
    node.sinks.iter().find(|view| &*view.name == name).ok_or_else(|| {
        let hint = match nearest(name, names()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
        };
        Refusal::bad_request("unknown-sink", format!("there is no sink {}", quoted(name))).hint(hint)
    })
}

/// A `Reject` is about the query, which is the caller's own; everything else is about us.
fn refusal(view: &SinkView, failure: &Failure) -> Refusal {
    if failure.class == Class::Reject {
        let message = visible(&failure.message.chars().take(500).collect::<String>());
        return Refusal::bad_request("bad-query", message);
    }
    Refusal::unavailable("sink-unavailable", format!("the sink `{}` does not answer", view.name), failure)
}

pub(crate) async fn within<T>(
    patience: Duration,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(Failure::retry("slow", format!("no answer within {patience:?}"))))
}
