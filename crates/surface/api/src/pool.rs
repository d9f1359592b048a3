//! Shows the connection pools of clusters, and executes the two commands that a pool accepts while the node runs.
//!
//! All data comes from memory, so it is available even if no server answers.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Response, StatusCode, request::Parts},
};
use honeyflow_event::Name;
use honeyflow_pool::{Control, Counters, Drain, ServerStatus, State, Status};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    answer::{self, Refusal, quoted},
    codes,
    serve::App,
};

/// The pool of a cluster that contains some of the node's sinks.
pub struct PoolView {
    pub name: Name,
    pub control: Arc<dyn Control>,
}

type CounterSpec = (&'static str, &'static str, fn(&Counters) -> u64);

/// The counters: name, help text, and how to read the value.
pub(crate) const COUNTERS: &[CounterSpec] = &[
    ("checkouts", "Connections or streams lent to requests", |c| c.checkouts),
    ("checkins", "Connections or streams returned", |c| c.checkins),
    ("hand_offs", "Checkouts by requests that had to wait", |c| c.hand_offs),
    ("waiters_expired", "Requests that waited until their deadline", |c| c.waiters_expired),
    ("waiters_gone", "Requests that their caller gave up while they waited", |c| c.waiters_gone),
    ("waiters_displaced", "Requests that gave way to a more important one", |c| c.waiters_displaced),
    ("refused_early", "Requests refused because they would have waited too long", |c| c.refused_early),
    ("refused_full", "Requests refused because too many were waiting", |c| c.refused_full),
    ("dead_idle", "Idle connections that were found dead", |c| c.dead_idle),
    ("late_answers", "Answers whose caller had gone", |c| c.late_answers),
    ("wrong_answers", "Answers that did not match their request", |c| c.wrong_answers),
    ("decayed", "Connections replaced at random", |c| c.decayed),
    ("aged", "Connections replaced because of their age", |c| c.aged),
    ("idled_out", "Connections closed because they were idle for too long", |c| c.idled_out),
    ("use_errors", "Uses that ended in an error", |c| c.use_errors),
    ("use_timeouts", "Uses that were not answered in time", |c| c.use_timeouts),
    ("connects_ok", "Connections opened", |c| c.connects_ok),
    ("connects_failed", "Connections that could not be opened", |c| c.connects_failed),
    ("connects_timed_out", "Connections that took too long to open", |c| c.connects_timed_out),
    ("logins_refused", "Connections whose login was refused", |c| c.logins_refused),
    ("suspicions", "Times that a server was suspected because it was slow or silent", |c| c.suspicions),
    ("speculations", "Hedged requests: sent a second time to another server", |c| c.speculations),
    ("speculations_won", "Hedged requests whose second copy was answered first", |c| c.speculations_won),
    ("retries", "Retries at another server", |c| c.retries),
    ("notices", "Notices of servers about their cluster", |c| c.notices),
    ("rounds_ok", "Discovery rounds that succeeded", |c| c.rounds_ok),
    ("rounds_failed", "Discovery rounds that failed", |c| c.rounds_failed),
    ("overdue_loans", "Loans that lasted suspiciously long", |c| c.overdue_loans),
    ("one_offs", "Connections opened for one request alone", |c| c.one_offs),
];

pub(crate) const CLASSES: [&str; 3] = ["high", "normal", "low"];

impl PoolView {
    pub(crate) fn json(&self) -> Value {
        let status = self.control.status();
        let counters = self.control.counters();
        let own = counters.own.iter().map(|(name, count)| ((*name).to_owned(), (*count).into()));
        let counters: Map<String, Value> =
            COUNTERS.iter().map(|(name, _, read)| ((*name).to_owned(), read(&counters).into())).chain(own).collect();
        let waiting: Map<String, Value> =
            CLASSES.iter().zip(status.waiting).map(|(class, count)| ((*class).to_owned(), count.into())).collect();
        json!({
            "name": self.name,
            "state": status.state.to_string(),
            "broken_by": status.broken_by,
            "settings_error": status.settings_error.as_ref().map(ToString::to_string),
            "discovery_error": status.discovery_error,
            "remarks": status.remarks,
            "wanted": status.wanted,
            "open": status.open,
            "idle": status.idle,
            "lent": status.lent,
            "closing": status.closing,
            "waiting": waiting,
            "oldest_waits_ms": status.oldest_waits.map(millis),
            "servers": status.servers.iter().map(server).collect::<Vec<_>>(),
            "counters": counters,
        })
    }
}

fn server(status: &ServerStatus) -> Value {
    json!({
        "id": status.server.id.as_str(),
        "address": status.server.address.to_string(),
        "datacentre": status.server.datacentre,
        "rack": status.server.rack,
        "state": state_of(status),
        "target": status.target,
        "open": status.open,
        "opening": status.opening,
        "idle": status.idle,
        "lent": status.lent,
        "orphans": status.orphans,
        "next_try_ms": status.next_try.map(millis),
        "latency_us": u64::try_from(status.latency.as_micros()).unwrap_or(u64::MAX),
        "share": status.share,
        "last_error": status.last_error,
    })
}

pub(crate) fn state_of(server: &ServerStatus) -> String {
    format!("{:?}", server.state).to_lowercase()
}

/// Returns whether the pool is active and has all wanted connections.
pub(crate) fn is_whole(status: &Status) -> bool {
    status.state == State::Active && status.open >= status.wanted && status.wanted > 0
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    pool: String,
    command: Verb,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Drain,
    Activate,
}

/// `POST /v1/pools`: executes a command and answers when it is done.
pub(crate) async fn answer(app: &Arc<App>, parts: &Parts, body: Incoming) -> Result<Response<Body>, Refusal> {
    let read = app.events.read(&parts.headers, body, &app.node.limits).await?;
    let command: Command = serde_json::from_slice(&read.bytes).map_err(|error| {
        Refusal::bad_request(codes::refusal::BAD_COMMAND, format!("not a valid command: {error}"))
            .hint("{\"pool\": \"NAME\", \"command\": \"drain\"} or \"activate\"")
    })?;
    let found = app.node.pools.iter().find(|pool| *pool.name == *command.pool);
    let control = &found.ok_or_else(|| unknown(app, &command.pool))?.control;
    let (moved, drained) = match command.command {
        Verb::Drain => {
            let (moved, drained) = control.deactivate(Drain::as_configured()).await;
            (moved, Some(drained))
        }
        Verb::Activate => {
            let enabled = control.enable();
            let (moved, _) = control.activate();
            (honeyflow_pool::Transition { before: enabled.before, ..moved }, None)
        }
    };
    let shown = json!({
        "pool": command.pool,
        "before": moved.before.to_string(),
        "now": moved.now.to_string(),
        "drained": drained.map(|drained| json!({
            "finished": drained.finished, "aborted": drained.aborted,
            "waiters_failed": drained.waiters_failed, "closed": drained.closed,
        })),
    });
    Ok(answer::json(StatusCode::OK, &shown))
}

fn unknown(app: &App, name: &str) -> Refusal {
    let known: Vec<&str> = app.node.pools.iter().map(|pool| &*pool.name).collect();
    let hint =
        if known.is_empty() { "this node has no pools".to_owned() } else { format!("there are: {}", known.join(", ")) };
    Refusal::new(StatusCode::NOT_FOUND, codes::refusal::UNKNOWN_POOL, format!("there is no pool {}", quoted(name)))
        .hint(hint)
}
