//! The pools that lead to clusters, as they are shown; and the two commands they take while the node runs.
//!
//! Everything here comes from memory: it is there when no server is.

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
    serve::App,
};

/// A cluster that the node's sinks lie in.
pub struct PoolView {
    pub name: Name,
    pub control: Arc<dyn Control>,
}

type Count = (&'static str, &'static str, fn(&Counters) -> u64);

/// Name, what it counts.
pub(crate) const COUNTERS: &[Count] = &[
    ("checkouts", "Connections or streams given out", |c| c.checkouts),
    ("checkins", "Connections or streams that came back", |c| c.checkins),
    ("hand_offs", "Checkouts by somebody who had to wait", |c| c.hand_offs),
    ("waiters_expired", "Requests that waited until their deadline", |c| c.waiters_expired),
    ("waiters_gone", "Requests given up while they waited", |c| c.waiters_gone),
    ("waiters_displaced", "Requests that gave way to a more important one", |c| c.waiters_displaced),
    ("refused_early", "Requests refused since they would have waited too long", |c| c.refused_early),
    ("refused_full", "Requests refused since too many waited", |c| c.refused_full),
    ("dead_idle", "Idle connections that were found dead", |c| c.dead_idle),
    ("late_answers", "Answers whose caller had gone", |c| c.late_answers),
    ("wrong_answers", "Answers that were none to what was asked", |c| c.wrong_answers),
    ("decayed", "Connections replaced by chance", |c| c.decayed),
    ("aged", "Connections replaced for their age", |c| c.aged),
    ("idled_out", "Connections closed since nobody used them", |c| c.idled_out),
    ("use_errors", "Uses that ended in an error", |c| c.use_errors),
    ("use_timeouts", "Uses that were not answered in time", |c| c.use_timeouts),
    ("connects_ok", "Connections opened", |c| c.connects_ok),
    ("connects_failed", "Connections that could not be opened", |c| c.connects_failed),
    ("connects_timed_out", "Connections that took too long to open", |c| c.connects_timed_out),
    ("logins_refused", "Connections whose login was refused", |c| c.logins_refused),
    ("suspicions", "Times that a server was found slow or silent", |c| c.suspicions),
    ("speculations", "Requests sent a second time, elsewhere", |c| c.speculations),
    ("speculations_won", "Those that were answered first", |c| c.speculations_won),
    ("retries", "Further tries at another server", |c| c.retries),
    ("notices", "Notices of servers about their cluster", |c| c.notices),
    ("rounds_ok", "Looks at who is in the cluster", |c| c.rounds_ok),
    ("rounds_failed", "Looks that failed", |c| c.rounds_failed),
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

/// How many connections of those that are wanted.
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

/// `POST /v1/pools`: answered when it is done.
pub(crate) async fn answer(app: &Arc<App>, parts: &Parts, body: Incoming) -> Result<Response<Body>, Refusal> {
    let read = app.door.read(&parts.headers, body, &app.node.limits).await?;
    let command: Command = serde_json::from_slice(&read.bytes).map_err(|error| {
        Refusal::bad_request("bad-command", format!("this is no command: {error}"))
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
            (honeyflow_pool::Moved { before: enabled.before, ..moved }, None)
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
        if known.is_empty() { "this node has none".to_owned() } else { format!("there is {}", known.join(", ")) };
    Refusal::new(StatusCode::NOT_FOUND, "unknown-pool", format!("there is no pool {}", quoted(name))).hint(hint)
}
