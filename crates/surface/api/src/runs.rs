//! `GET /v1/runs`: lists the open runs, oldest first, with their steps and the reasons why they wait.

use axum::{
    body::Body,
    http::{Response, StatusCode, Uri},
};
use honeyflow_engine::core::run_view::RunView;
use serde::Serialize;

use crate::{
    answer::{self, Refusal, quoted},
    codes,
    node::Node,
    query::Parameters,
};

const LIMIT_DEFAULT: usize = 20;

#[derive(Serialize)]
struct RunsReply {
    runs: Vec<RunView>,
}

pub(crate) async fn answer(node: &Node, uri: &Uri) -> Result<Response<Body>, Refusal> {
    let parameters = Parameters::read(uri, &["key", "limit"], node.limits.parameters_max)?;
    let limit_max = node.limits.hits_max as usize;
    let limit = match parameters.get("limit") {
        None => LIMIT_DEFAULT,
        Some(text) => text.parse().ok().filter(|limit| (1..=limit_max).contains(limit)).ok_or_else(|| {
            Refusal::bad_request(
                codes::refusal::BAD_LIMIT,
                format!("limit is {}, not a number from 1 to {limit_max}", quoted(text)),
            )
        })?,
    };
    let runs = (node.runs)(parameters.get("key").map(str::to_owned), limit);
    // An engine that is being restarted has no open runs.
    let runs = tokio::time::timeout(node.limits.answer_timeout, runs).await.unwrap_or_default();
    Ok(answer::json(StatusCode::OK, &RunsReply { runs }))
}
