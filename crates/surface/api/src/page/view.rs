//! The texts and states of the page, by element id. The page is rendered from them and the live stream sends them, so
//! each number is read, rounded and formatted in one place.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_engine::core::status::WorkflowStatus;
use honeyflow_pool::{ServerState, State};
use serde::Serialize;

use super::{
    chart::Chart,
    format::{age, count, plural, rate},
};
use crate::{
    hive::HiveSample,
    node::Node,
    pool::{is_whole, state_of},
    sample::{Obstacle, Sample, obstacles},
};

/// The maximum lengths of lists on the page; the status has them in full.
const WAITS_MAX: usize = 50;
const NODES_MAX: usize = 100;
const SERVERS_MAX: usize = 20;
/// The page warns if the oldest event is older than this.
const LAG_WARNING: Duration = Duration::from_secs(10);
const UNKNOWN: &str = "–";

#[derive(Default, Serialize)]
pub(crate) struct View {
    pub texts: BTreeMap<String, String>,
    /// `ok`, `warn` or `bad`, by element id.
    pub states: BTreeMap<String, &'static str>,
    pub waits: Vec<Wait>,
    pub nodes: Vec<Member>,
    pub chart: Chart,
    /// Grows whenever a run has ended: then a repeated search may find other hits.
    pub runs_ended: u64,
}

/// A node of the hive.
#[derive(Serialize)]
pub(crate) struct Member {
    pub name: String,
    /// `queen`, `this node`, both or neither.
    pub role: String,
    pub state: &'static str,
    pub shards: String,
}

/// Why something waits.
#[derive(Serialize)]
pub(crate) struct Wait {
    pub name: String,
    pub reason: String,
    pub detail: String,
}

impl View {
    pub fn new(node: &Node, sample: &Sample) -> View {
        let mut view = View { chart: Chart::new(&sample.rates), ..View::default() };
        view.waits = waits(node, sample);
        view.nodes = nodes(sample);
        view.header(node, sample);
        view.tiles(sample);
        view.sources(node, sample);
        view.workflows(node, sample);
        view.hive(sample);
        view.pools(node);
        for (at, documents) in sample.counts.iter().enumerate() {
            let text = documents.as_ref().map_or_else(|_| UNKNOWN.to_owned(), |number| count(*number));
            view.say(format!("sink-{at}-documents"), text);
        }
        view
    }

    pub fn text(&self, id: &str) -> &str {
        self.texts.get(id).map_or("", String::as_str)
    }

    pub fn state(&self, id: &str) -> &'static str {
        self.states.get(id).copied().unwrap_or("ok")
    }

    fn say(&mut self, id: impl Into<String>, text: impl Into<String>) {
        self.texts.insert(id.into(), text.into());
    }

    fn mark(&mut self, id: impl Into<String>, state: &'static str) {
        self.states.insert(id.into(), state);
    }

    fn header(&mut self, node: &Node, sample: &Sample) {
        let obstacles = obstacles(node, &sample.status, &sample.lags, &sample.hives);
        let away = obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::StoreAway(_)));
        let (text, state) = if away {
            ("store unreachable", "bad")
        } else if obstacles.contains(&Obstacle::Draining) {
            ("draining", "warn")
        } else if !obstacles.is_empty() {
            ("waiting for a lease", "warn")
        } else if !self.waits.is_empty() {
            ("working, some work waits", "warn")
        } else {
            ("working", "ok")
        };
        self.say("state", text);
        self.mark("state", state);
        self.say("uptime", age(Duration::from_secs(sample.uptime.as_secs())));
        self.say("waits-count", if self.waits.is_empty() { String::new() } else { count(self.waits.len() as u64) });
    }

    fn tiles(&mut self, sample: &Sample) {
        let status = &sample.status;
        let known = || sample.lags.iter().flatten();
        let all_known = sample.lags.iter().all(Result::is_ok);
        let sum = |read: fn(&honeyflow_store::admin::Lag) -> u64| known().map(read).sum::<u64>();
        self.runs_ended = status.workflows.iter().map(|workflow| workflow.ended).sum();
        self.say("events-rate", rate(sample.rates.events));
        self.say("events-note", format!("{} in all", count(status.events)));
        self.say("runs-rate", rate(sample.rates.runs));
        self.say("runs-note", format!("{} in all", count(self.runs_ended)));
        self.say("in-flight", count(status.rows_in_flight as u64));
        self.say("in-flight-note", format!("{} open, {} ready", plural(status.open_runs, "run", "runs"), status.ready));
        let oldest = Duration::from_millis(known().map(|lag| lag.oldest_ms).max().unwrap_or(0));
        let (lag, parked) = if all_known { (age(oldest), count(sum(|l| l.parked))) } else { unknown() };
        self.say("lag", lag);
        self.say("lag-note", format!("{} waiting, {} delayed", count(sum(|l| l.waiting)), count(sum(|l| l.delayed))));
        self.say("parked", parked);
        let charged = status.rejects + status.fatals;
        self.say("parked-note", format!("{} rejected, {} retried", count(charged), count(status.retries)));
        let lag_state = match (all_known, oldest >= LAG_WARNING) {
            (false, _) => "bad",
            (true, true) => "warn",
            (true, false) => "ok",
        };
        self.mark("lag", lag_state);
        self.mark("parked", if sum(|l| l.parked) > 0 { "warn" } else { "ok" });
    }

    fn sources(&mut self, node: &Node, sample: &Sample) {
        for (at, ((name, _), lag)) in node.sources.iter().zip(&sample.lags).enumerate() {
            let status = sample.status.sources.iter().find(|source| source.name == *name);
            let epoch = status.and_then(|source| source.epoch);
            let lag = lag.as_ref().ok();
            let of = |read: fn(&honeyflow_store::admin::Lag) -> u64| {
                lag.map_or_else(|| UNKNOWN.to_owned(), |lag| count(read(lag)))
            };
            let id = |what: &str| format!("source-{at}-{what}");
            let oldest = lag.map_or_else(|| UNKNOWN.to_owned(), |lag| age(Duration::from_millis(lag.oldest_ms)));
            self.say(id("lag"), oldest);
            self.say(id("waiting"), of(|lag| lag.waiting));
            self.say(id("delayed"), of(|lag| lag.delayed));
            self.say(id("parked"), of(|lag| lag.parked));
            self.say(id("in-flight"), count(status.map_or(0, |source| source.in_flight as u64)));
            self.say(id("epoch"), epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string()));
            let (owned, shards) = status.map_or((0, 0), |source| (source.shards_owned, source.shards));
            let is_standby = sample.hives.iter().any(|hive| hive.is_worked_on(name));
            let (text, state) = match (lag, epoch) {
                (None, _) => ("store unreachable".to_owned(), "bad"),
                (_, None) if is_standby => ("standby".to_owned(), "ok"),
                (_, None) => ("no lease".to_owned(), "warn"),
                _ if shards > 1 => (format!("{owned} of {shards} shards"), "ok"),
                _ => ("leased".to_owned(), "ok"),
            };
            self.say(id("state"), text);
            self.mark(id("state"), state);
        }
    }

    fn hive(&mut self, sample: &Sample) {
        let Some(own) = sample.hives.first() else { return };
        let queen = own.queen().map_or_else(|| "none".to_owned(), |queen| queen.name);
        self.say("hive-queen", queen);
        self.say("hive-epoch", own.epoch().to_string());
        let engaged = own.engaged.count.map_or_else(|| UNKNOWN.to_owned(), count);
        self.say("hive-engaged", engaged);
        self.say("hive-nodes", own.view.as_ref().map_or(UNKNOWN.to_owned(), |view| count(view.nodes.len() as u64)));
        let (text, state) = match (&own.view, own.snapshot.stale) {
            (Err(_), _) => ("store unreachable", "bad"),
            (Ok(view), _) if view.head.hold.is_some() => ("restored: waits for an operator", "bad"),
            (_, true) => ("no recent answer", "warn"),
            _ => ("connected", "ok"),
        };
        self.say("hive-state", text);
        self.mark("hive-state", state);
    }

    /// Returns the number of servers of a pool that the page shows.
    pub fn servers(&self, pool: usize) -> usize {
        (0..SERVERS_MAX).take_while(|at| self.texts.contains_key(&format!("pool-{pool}-server-{at}-address"))).count()
    }

    fn pools(&mut self, node: &Node) {
        for (at, pool) in node.pools.iter().enumerate() {
            let status = pool.control.status();
            let id = |what: &str| format!("pool-{at}-{what}");
            self.say(id("state"), status.state.to_string());
            let state = match status.state {
                State::Active if is_whole(&status) => "ok",
                State::Broken => "bad",
                State::Active if status.open == 0 => "bad",
                _ => "warn",
            };
            self.mark(id("state"), state);
            self.say(id("open"), format!("{} of {}", count(status.open.into()), count(status.wanted.into())));
            self.say(id("lent"), count(status.lent.into()));
            self.say(id("waiting"), count(status.waiting.iter().sum::<usize>() as u64));
            let failing = status.servers.iter().filter(|server| server.state != ServerState::Up);
            let error = failing.filter_map(|server| server.last_error.as_deref()).next();
            let error = status.broken_by.as_deref().or(error).or(status.discovery_error.as_deref());
            self.say(id("error"), error.unwrap_or_default());
            for (n, server) in status.servers.iter().take(SERVERS_MAX).enumerate() {
                let id = |what: &str| format!("pool-{at}-server-{n}-{what}");
                self.say(id("address"), server.server.address.to_string());
                self.say(id("state"), state_of(server));
                self.say(id("open"), format!("{} of {}", server.open, server.target));
                self.say(
                    id("latency"),
                    if server.uses.count() == 0 { UNKNOWN.to_owned() } else { age(server.latency) },
                );
                self.say(id("share"), format!("{:.0} %", server.share * 100.0));
            }
        }
    }

    fn workflows(&mut self, node: &Node, sample: &Sample) {
        let idle = |name| WorkflowStatus {
            name,
            version: 0,
            open: 0,
            ended: 0,
            mean_run_ms: 0.0,
            ready: Vec::new(),
            steps: Vec::new(),
        };
        for (at, graph) in node.workflows.iter().enumerate() {
            let found = sample.status.workflows.iter().find(|workflow| workflow.name == graph.name);
            let status = found.cloned().unwrap_or_else(|| idle(graph.name.clone()));
            let per_second = sample.rates.workflows.get(at).copied().unwrap_or(0.0);
            self.say(format!("workflow-{at}-rate"), rate(per_second));
            self.say(format!("workflow-{at}-open"), count(status.open as u64));
            self.say(format!("workflow-{at}-ended"), count(status.ended));
            let mean = Duration::try_from_secs_f64(status.mean_run_ms / 1000.0).unwrap_or_default();
            let mean = if status.ended == 0 { UNKNOWN.to_owned() } else { age(mean) };
            self.say(format!("workflow-{at}-mean"), mean);
            for step in 0..graph.steps.len().min(super::layout::STEPS_DRAWN_MAX) {
                let ready = status.ready.get(step).copied().unwrap_or(0);
                self.say(format!("step-{at}-{step}-ready"), format!("{} ready", count(ready as u64)));
                self.mark(format!("step-{at}-{step}"), if ready > 0 { "busy" } else { "idle" });
                let per_second =
                    sample.rates.steps_of.get(at).and_then(|steps| steps.get(step)).copied().unwrap_or(0.0);
                self.say(format!("step-{at}-{step}-rate"), format!("{}/s", rate(per_second)));
                let counts = status.steps.get(step).copied().unwrap_or_default();
                let some =
                    |sign: &str, number| if number == 0 { String::new() } else { format!("{sign} {}", count(number)) };
                self.say(format!("step-{at}-{step}-retried"), some("↻", counts.retried));
                self.say(format!("step-{at}-{step}-failed"), some("✕", counts.failed));
            }
        }
    }
}

fn unknown() -> (String, String) {
    (UNKNOWN.to_owned(), UNKNOWN.to_owned())
}

/// Returns the members of the first hive, whose queen counts; the shards that a process holds in other databases are
/// included.
fn nodes(sample: &Sample) -> Vec<Member> {
    let Some(own) = sample.hives.first() else { return Vec::new() };
    let elsewhere: Vec<_> = sample.hives.iter().skip(1).flat_map(HiveSample::roster).collect();
    let of_process = |process: &str| -> usize {
        elsewhere.iter().filter(|one| !process.is_empty() && one.text("process") == process).map(|one| one.shards).sum()
    };
    let shown = own.roster().into_iter().take(NODES_MAX).map(|entry| {
        let roles = [(entry.queen, "queen"), (own.me == Some(entry.id), "this node")];
        let roles: Vec<&str> = roles.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        let shards = entry.shards + of_process(entry.text("process"));
        Member {
            role: roles.join(", "),
            state: entry.state.word(),
            shards: plural(shards, "shard", "shards"),
            name: entry.name,
        }
    });
    shown.collect()
}

fn waits(node: &Node, sample: &Sample) -> Vec<Wait> {
    let status = &sample.status;
    let of_node = obstacles(node, status, &sample.lags, &sample.hives).into_iter().map(|obstacle| match obstacle {
        Obstacle::Draining => Wait {
            name: node.name.clone(),
            reason: "draining".to_owned(),
            detail: "the node is stopping: it starts no new work".to_owned(),
        },
        Obstacle::NoLease(source) => Wait {
            name: source.to_string(),
            reason: "no lease".to_owned(),
            detail: "another node owns this source, or its lease has not been granted yet".to_owned(),
        },
        Obstacle::StoreAway(source) => Wait {
            name: source.to_string(),
            reason: "store unreachable".to_owned(),
            detail: status.last_store_failure.clone().unwrap_or_else(|| "the store does not answer".to_owned()),
        },
    });
    let closed = status.closed.iter().map(|closed| Wait {
        name: closed.name.to_string(),
        reason: closed.reason.replace('-', " "),
        detail: closed.detail.clone(),
    });
    let held = status.sources.iter().flat_map(|source| {
        source.held.iter().map(|held| Wait {
            name: source.name.to_string(),
            reason: "held".to_owned(),
            detail: held.clone(),
        })
    });
    of_node.chain(closed).chain(held).take(WAITS_MAX).collect()
}
