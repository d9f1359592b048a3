//! `GET /v1/search`: searches the documents of a sink, in the sink's own query language.

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
    codes,
    node::{Node, SinkView},
    query::Parameters,
};

const LIMIT_DEFAULT: u32 = 20;

pub(crate) struct Searches {
    /// One permit per search: each search needs memory for its hits and a thread of the sink.
    places: Semaphore,
}

#[derive(Serialize)]
pub(crate) struct SearchReply<'a> {
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
                Refusal::bad_request(codes::refusal::BAD_LIMIT, message)
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
    ) -> Result<SearchReply<'a>, Refusal> {
        let search = async {
            let _place = self.places.acquire().await;
            view.sink.search(query.to_owned(), limit).await
        };
        let hits = with_timeout(node.limits.answer_timeout, search).await.map_err(|failure| refusal(view, &failure))?;
        let hit = |hit: honeyflow_sink::Hit| Hit {
            entity: &view.entity,
            key: hit.key,
            version: hit.stamp,
            document: hit.document,
        };
        // Enforce the bound here, even if a sink returns more.
        Ok(SearchReply { hits: hits.into_iter().take(limit as usize).map(hit).collect() })
    }
}

/// Returns the named sink, or the only one if none is named.
pub(crate) fn sink<'a>(node: &'a Node, name: Option<&str>) -> Result<&'a SinkView, Refusal> {
    let names = || node.sinks.iter().map(|view| &*view.name);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return match &node.sinks[..] {
            [only] => Ok(only),
            [] => Err(Refusal::new(
                StatusCode::NOT_FOUND,
                codes::refusal::NO_SINK,
                "this node has no sink that can be searched",
            )),
            _ => {
                let listed = names().collect::<Vec<_>>().join(", ");
                Err(Refusal::bad_request(codes::refusal::SINK_MISSING, "there are several sinks: name one")
                    .hint(format!("sink = {listed}")))
            }
        };
    };
    node.sinks.iter().find(|view| &*view.name == name).ok_or_else(|| {
        let hint = match nearest(name, names()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
        };
        Refusal::bad_request(codes::refusal::UNKNOWN_SINK, format!("there is no sink {}", quoted(name))).hint(hint)
    })
}

/// Returns the refusal for a failed search. A `Reject` is caused by the caller's query; every other class by this node
/// or its sink.
fn refusal(view: &SinkView, failure: &Failure) -> Refusal {
    if failure.class == Class::Reject {
        let message = visible(&failure.message.chars().take(500).collect::<String>());
        return Refusal::bad_request(codes::refusal::BAD_QUERY, message);
    }
    Refusal::unavailable(codes::refusal::SINK_UNAVAILABLE, format!("the sink `{}` does not answer", view.name), failure)
}

pub(crate) async fn with_timeout<T>(
    patience: Duration,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(Failure::retry(codes::SLOW, format!("no answer within {patience:?}"))))
}
