//! Samples the data to show: the engine's counters, replies of stores and sinks, and rates from two values of a
//! counter.
//!
//! Counters are in memory and are sampled every second, even without a watching client. Stores and sinks are called
//! only for a client, and at most once a second: counting a long backlog costs the database something.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use honeyflow_engine::core::status::Status;
use honeyflow_event::Name;
use honeyflow_hive::{contract::View, roster};
use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, Reply, Request, admin::Lag, mismatched_reply};

use crate::{cached::Cached, hive::HiveSample, node::Node};

pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// The history has five minutes.
pub(crate) const BEATS_MAX: usize = 300;
/// A rate is the mean over this number of beats: that of a single beat fluctuates too much.
const RATE_BEATS: usize = 3;

pub(crate) struct Sampler {
    node: Arc<Node>,
    lags: Vec<Cached<Lag>>,
    counts: Vec<Cached<u64>>,
    hives: Vec<Cached<View>>,
    beats: Mutex<VecDeque<Beat>>,
}

struct Beat {
    at: Instant,
    events: u64,
    runs: u64,
    steps: u64,
    /// Ended runs, one entry per workflow of the node.
    ended: Vec<u64>,
    /// Done steps, one entry per workflow of the node and step.
    done: Vec<Vec<u64>>,
}

/// All data to show, at one time.
pub(crate) struct Sample {
    pub status: Status,
    /// One entry per source of the node.
    pub lags: Vec<Result<Lag, Failure>>,
    /// The number of documents, one entry per sink of the node.
    pub counts: Vec<Result<u64, Failure>>,
    /// One entry per hive of the node.
    pub hives: Vec<HiveSample>,
    pub rates: Rates,
    pub uptime: Duration,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Rates {
    pub events: f64,
    pub runs: f64,
    pub steps: f64,
    /// Ended runs per second, one entry per workflow of the node.
    pub workflows: Vec<f64>,
    /// Done steps per second, one entry per workflow of the node and step.
    pub steps_of: Vec<Vec<f64>>,
    /// One value per second, oldest first.
    pub events_history: Vec<f64>,
    pub runs_history: Vec<f64>,
}

/// Why the node is not ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    Draining,
    NoLease(Name),
    StoreAway(Name),
}

impl Sampler {
    pub fn new(node: Arc<Node>) -> Sampler {
        Sampler {
            lags: node.sources.iter().map(|_| Cached::new()).collect(),
            counts: node.sinks.iter().map(|_| Cached::new()).collect(),
            hives: node.hives.iter().map(|_| Cached::new()).collect(),
            beats: Mutex::new(VecDeque::with_capacity(BEATS_MAX + 1)),
            node,
        }
    }

    pub async fn lag(&self, source: usize) -> Result<Lag, Failure> {
        let store = &self.node.sources[source].1;
        let ask = || async {
            match store.call(Request::Admin(Admin::Lag)).await? {
                Reply::Admin(AdminReply::Lag(lag)) => Ok(lag),
                other => Err(mismatched_reply(&other)),
            }
        };
        self.lags[source].get(ask).await
    }

    pub async fn lags(&self) -> Vec<Result<Lag, Failure>> {
        join_all((0..self.lags.len()).map(|source| self.lag(source))).await
    }

    pub async fn hives(&self) -> Vec<HiveSample> {
        let views = self.hives.iter().zip(&self.node.hives).map(|(cached, hive)| cached.get(|| hive.ask()));
        join_all(views).await.into_iter().zip(&self.node.hives).map(|(view, hive)| hive.sample(view)).collect()
    }

    pub async fn sample(&self) -> Sample {
        let counts = self.counts.iter().zip(&self.node.sinks).map(|(cached, view)| cached.get(|| view.sink.count()));
        let (lags, counts, hives) = tokio::join!(self.lags(), join_all(counts), self.hives());
        let (status, rates) = ((self.node.engine)(), self.rates());
        Sample { status, lags, counts, hives, rates, uptime: self.node.started.elapsed() }
    }

    /// Returns whether `/ready` would say ready, except that a draining node still counts as ready: it serves the
    /// requests that it has accepted. The data comes from memory; a store is called only in doubt, so this may wait.
    pub async fn can_take_traffic(&self) -> bool {
        let hives: Vec<_> = self.node.hives.iter().map(|of| (&of.sources, of.hive.view())).collect();
        let is_stale = |name: &Name| hives.iter().any(|(sources, snapshot)| snapshot.stale && sources.contains(name));
        let is_away = join_all(self.node.sources.iter().enumerate().map(async |(source, (name, _))| {
            let doubtful = self.lags[source].has_failed() || is_stale(name);
            doubtful && self.lag(source).await.is_err()
        }))
        .await;
        let views: Vec<_> = hives
            .iter()
            .filter(|(_, snapshot)| !snapshot.stale)
            .filter_map(|(_, snapshot)| snapshot.view.as_ref())
            .collect();
        let is_worked_on = |source: &str| views.iter().any(|view| roster::is_worked_on(view, source));
        let obstacles = obstacles_if(&self.node, &(self.node.engine)(), |source| is_away[source], is_worked_on);
        obstacles.iter().all(|obstacle| *obstacle == Obstacle::Draining)
    }

    /// Samples the counters. The caller calls this once a second.
    pub fn beat(&self) {
        let status = (self.node.engine)();
        let of = |name: &Name| status.workflows.iter().find(|workflow| workflow.name == *name);
        let done = |name: &Name| of(name).map_or(Vec::new(), |w| w.steps.iter().map(|step| step.done).collect());
        let beat = Beat {
            at: Instant::now(),
            events: status.events,
            runs: status.workflows.iter().map(|workflow| workflow.ended).sum(),
            steps: status.steps,
            ended: self.node.workflows.iter().map(|graph| of(&graph.name).map_or(0, |w| w.ended)).collect(),
            done: self.node.workflows.iter().map(|graph| done(&graph.name)).collect(),
        };
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        beats.push_back(beat);
        if beats.len() > BEATS_MAX + 1 {
            beats.pop_front();
        }
    }

    fn rates(&self) -> Rates {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let history = |count: fn(&Beat) -> u64| -> Vec<f64> {
            beats.iter().zip(beats.iter().skip(1)).map(|(from, to)| per_second(from, to, count)).collect()
        };
        let mut rates = Rates {
            workflows: vec![0.0; self.node.workflows.len()],
            events_history: history(|beat| beat.events),
            runs_history: history(|beat| beat.runs),
            ..Rates::default()
        };
        let Some(to) = beats.back() else { return rates };
        let from = &beats[beats.len().saturating_sub(RATE_BEATS + 1)];
        rates.events = per_second(from, to, |beat| beat.events);
        rates.runs = per_second(from, to, |beat| beat.runs);
        rates.steps = per_second(from, to, |beat| beat.steps);
        for (workflow, rate) in rates.workflows.iter_mut().enumerate() {
            *rate = per_second(from, to, |beat| beat.ended[workflow]);
        }
        let of_step = |workflow: usize, step: usize| {
            per_second(from, to, |beat| beat.done[workflow].get(step).copied().unwrap_or(0))
        };
        let steps = to.done.iter().enumerate();
        let steps = steps.map(|(workflow, steps)| (0..steps.len()).map(|step| of_step(workflow, step)).collect());
        rates.steps_of = steps.collect();
        rates
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(from: &Beat, to: &Beat, count: impl Fn(&Beat) -> u64) -> f64 {
    let seconds = to.at.duration_since(from.at).as_secs_f64();
    // A restarted engine counts from zero again; that must not give a negative rate.
    if seconds > 0.0 { count(to).saturating_sub(count(from)) as f64 / seconds } else { 0.0 }
}

/// Returns the workflows that have stopped by themselves; the node continues with all others.
pub(crate) fn stopped(status: &Status) -> Vec<Name> {
    status.closed.iter().filter(|closed| closed.reason == "fatal").map(|closed| closed.name.clone()).collect()
}

/// Returns what keeps the node from working, from its memory and from whether its stores answer. A store's last failure
/// does not count: it stays in the status after the store is reachable again.
pub(crate) fn obstacles(
    node: &Node,
    status: &Status,
    lags: &[Result<Lag, Failure>],
    hives: &[HiveSample],
) -> Vec<Obstacle> {
    let is_worked_on = |source: &str| hives.iter().any(|hive| hive.is_worked_on(source));
    obstacles_if(node, status, |source| lags[source].is_err(), is_worked_on)
}

fn obstacles_if(
    node: &Node,
    status: &Status,
    is_away: impl Fn(usize) -> bool,
    is_worked_on: impl Fn(&str) -> bool,
) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if status.draining {
        found.push(Obstacle::Draining);
    }
    for (source, (name, _)) in node.sources.iter().enumerate() {
        let leased = status.sources.iter().any(|source| source.name == *name && source.epoch.is_some());
        // Other nodes may own all shards while this node is a standby.
        if !leased && !is_worked_on(name) {
            found.push(Obstacle::NoLease(name.clone()));
        }
        if is_away(source) {
            found.push(Obstacle::StoreAway(name.clone()));
        }
    }
    found
}
