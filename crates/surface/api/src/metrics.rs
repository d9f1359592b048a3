//! `/metrics`: the engine's counters and the stores' lag, in the OpenMetrics text format.
//!
//! Labels are names of the configuration (source, workflow, step, sink), which bounds their number; never a key, a
//! payload, a statement or the text of an error.

use std::{fmt, sync::Arc};

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use honeyflow_engine::core::status::{Status, StepCounts};
use honeyflow_hive::{limit::counters, roster::State};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use crate::{
    answer::{self, Refusal},
    codes,
    node::Node,
    pool::{self, CLASSES, state_of},
    sample::{Sample, obstacles},
    serve::App,
};

pub(crate) async fn answer(app: &Arc<App>) -> Result<Response<Body>, Refusal> {
    let sample = app.sampler.sample().await;
    let mut registry = Registry::with_prefix("honeyflow");
    registry.register_collector(Box::new(Scrape { node: app.node.clone(), sample }));
    let mut written = String::new();
    text::encode(&mut written, &registry).map_err(|_| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, codes::refusal::INTERNAL, "the metrics cannot be written")
    })?;
    Ok(answer::with_type(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", written))
}

struct Scrape {
    node: Arc<Node>,
    sample: Sample,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

type CounterSpec = (&'static str, &'static str, fn(&Status) -> u64);
type GaugeSpec = (&'static str, &'static str, fn(&Status) -> usize);

const COUNTERS: [CounterSpec; 25] = [
    ("events", "Events taken from the sources", |s| s.events),
    ("events_merged", "Events that were merged into a waiting run of their key", |s| s.merged),
    ("events_unmatched", "Events that no workflow matched", |s| s.unmatched),
    (
        "events_change_unknown",
        "Events that a workflow with change or columns passed over, because their row does not say what changed",
        |s| s.unknown_changes,
    ),
    ("events_parked", "Events parked with their error", |s| s.parked),
    ("attempts", "Attempts of steps, one for each run in a batch", |s| s.attempts),
    ("batches", "Batches sent to workers", |s| s.batches),
    ("steps", "Steps ended", |s| s.steps),
    ("attempts_retried", "Attempts that failed because a target was unreachable or refused the request", |s| s.retries),
    ("attempts_rejected", "Attempts that failed because of the item", |s| s.rejects),
    ("attempts_fatal", "Attempts that failed because of a bug or the configuration", |s| s.fatals),
    ("polls", "Polls of the sources", |s| s.polls),
    ("poll_failures", "Polls that failed", |s| s.poll_failures),
    ("sweeps", "Sweeps for late commits", |s| s.sweeps),
    ("store_writes", "Transactions written", |s| s.writes),
    ("store_write_failures", "Transactions that failed", |s| s.write_failures),
    ("store_writes_fenced", "Transactions refused because the epoch was old", |s| s.fenced),
    ("stale_answers", "Answers of workers that came too late", |s| s.stale_answers),
    ("stale_writes", "Sink writes refused because the sink had a newer stamp", |s| s.stale_writes),
    ("batches_suspected", "Items suspected of stopping their worker", |s| s.suspected),
    ("batches_timed_out", "Batches not answered in time", |s| s.timed_out),
    ("leases_lost", "Leases lost", |s| s.leases_lost),
    ("epochs_minted", "Epochs minted because the sequence was exhausted", |s| s.minted),
    ("breaker_closings", "Times that a circuit breaker stopped work for a target", |s| s.breaker_closed),
    ("runs", "Runs ended, over all workflows", |s| s.workflows.iter().map(|workflow| workflow.ended).sum()),
];

const GAUGES: [GaugeSpec; 6] = [
    ("runs_open", "Runs in this node's memory", |s| s.open_runs),
    ("runs_settling", "Runs whose result is being written", |s| s.settling_runs),
    ("rows_in_flight", "Outbox rows in flight", |s| s.rows_in_flight),
    ("keys_in_work", "Keys with an open run", |s| s.keys_in_work),
    ("items_ready", "Items that wait for a worker", |s| s.ready),
    ("items_held", "Items that workers hold", |s| s.held_by_workers),
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        for (name, help, read) in COUNTERS {
            let counter = ConstCounter::new(read(&self.sample.status));
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        for (name, help, read) in GAUGES {
            gauge(encoder, name, help, read(&self.sample.status) as u64)?;
        }
        limits(encoder, &(self.node.limit_counters)())?;
        gauge(encoder, "up_seconds", "Time since the node started", self.sample.uptime.as_secs())?;
        gauge(
            encoder,
            "gates_closed",
            "Closed gates: reasons why a target or workflow gets no work",
            self.sample.status.closed.len() as u64,
        )?;
        let obstacles = obstacles(&self.node, &self.sample.status, &self.sample.lags, &self.sample.hives);
        gauge(encoder, "ready", "1 if the node can work", u64::from(obstacles.is_empty()))?;
        self.sources(encoder)?;
        self.workflows(encoder)?;
        self.hive(encoder)?;
        self.pools(encoder)?;
        let documents = self.node.sinks.iter().zip(&self.sample.counts);
        let documents = documents.filter_map(|(view, count)| Some(([("sink", &*view.name)], *count.as_ref().ok()?)));
        family(encoder, "sink_documents", "Documents in a sink", MetricType::Gauge, documents)
    }
}

impl Scrape {
    fn sources(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let names = || self.node.sources.iter().map(|(name, _)| [("source", &**name)]);
        let lags: Vec<_> =
            names().zip(&self.sample.lags).filter_map(|(l, lag)| Some((l, lag.as_ref().ok()?))).collect();
        let mut of = |name, help, read: fn(&honeyflow_store::admin::Lag) -> u64| {
            family(encoder, name, help, MetricType::Gauge, lags.iter().map(|(labels, lag)| (*labels, read(lag))))
        };
        of("lag_milliseconds", "Age of the oldest ready event, by the store's clock", |lag| lag.oldest_ms)?;
        of("events_waiting", "Events in the outbox that are due", |lag| lag.waiting)?;
        of("events_delayed", "Events in the outbox that are not due yet", |lag| lag.delayed)?;
        of("events_set_aside", "Parked events in the store", |lag| lag.parked)?;
        let by_priority: Vec<_> = lags
            .iter()
            .flat_map(|(labels, lag)| lag.by_priority.iter().map(|(level, waiting)| (labels[0], *level, *waiting)))
            .map(|(source, level, waiting)| (source, level.to_string(), waiting))
            .collect();
        let by_priority =
            by_priority.iter().map(|(source, level, waiting)| ([*source, ("priority", level.as_str())], *waiting));
        family(encoder, "events_waiting_by_priority", "Due events by priority", MetricType::Gauge, by_priority)?;
        let up = names().zip(&self.sample.lags).map(|(labels, lag)| (labels, u64::from(lag.is_ok())));
        family(encoder, "store_up", "1 if the store of the source answers", MetricType::Gauge, up)?;
        let sources = &self.sample.status.sources;
        let epochs = sources.iter().map(|source| ([("source", &*source.name)], source.epoch.unwrap_or(0)));
        family(
            encoder,
            "epoch",
            "Epoch of the lease that this node holds; 0 if it holds none",
            MetricType::Gauge,
            epochs,
        )?;
        let flight = sources.iter().map(|source| ([("source", &*source.name)], source.in_flight as u64));
        family(encoder, "source_rows_in_flight", "Rows of a source in flight", MetricType::Gauge, flight)
    }

    /// Writes the metrics of the first hive, whose queen counts, and the epochs of all leases of this node's databases.
    fn hive(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(own) = self.sample.hives.first() else { return Ok(()) };
        let states = State::ALL.iter().map(|state| ([("state", state.word())], own.count(*state) as u64));
        family(encoder, "hive_nodes", "Nodes of the hive, each in one state", MetricType::Gauge, states)?;
        if let Some(count) = own.engaged.count {
            gauge(encoder, "hive_engaged", "Engaged nodes: nodes with recent traffic", count)?;
        }
        let sharing = "The number by which limits are divided: nodes with traffic lately, or not ready; at least 1";
        gauge(encoder, "hive_divisor", sharing, own.engaged.divisor)?;
        gauge(encoder, "hive_queen", "1 if this node is queen", u64::from(own.is_queen))?;
        if let Ok(view) = &own.view {
            let age = view.head.hive_ms.saturating_sub(view.head.counts.counted_ms) / 1000;
            gauge(encoder, "hive_count_age_seconds", "Time since the queen last published a count", age)?;
        }
        let views = || self.sample.hives.iter().filter_map(|hive| hive.view.as_ref().ok());
        let leases = views().flat_map(|view| &view.leases);
        let epochs = leases.map(|lease| ([("lease", &*lease.name)], lease.epoch.0));
        family(encoder, "hive_epoch", "Epoch of a lease", MetricType::Gauge, epochs)?;
        let heard = own.snapshot.age.map_or(0.0, |age| age.as_secs_f64());
        let heard_gauge = ConstGauge::new(heard);
        let help = "Time since the last answer of the hive's store";
        heard_gauge.encode(encoder.encode_descriptor("hive_heard_seconds", help, None, MetricType::Gauge)?)?;
        let beats = &own.counters;
        let counter = |encoder: &mut DescriptorEncoder<'_>, name, help, value: u64| {
            ConstCounter::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
        };
        counter(encoder, "hive_beats", "Heartbeats answered", beats.beats)?;
        let took = ConstCounter::new(beats.beats_took.as_secs_f64());
        let help = "Total time that answered heartbeats took";
        took.encode(encoder.encode_descriptor("hive_beat_seconds", help, None, MetricType::Counter)?)?;
        let burials = self.sample.hives.iter().map(|hive| hive.counters.removals).sum();
        counter(encoder, "hive_burials", "Expired nodes removed, as far as this node knows", burials)?;
        let steps = self.sample.hives.iter().map(|hive| hive.counters.clock_steps).sum();
        counter(encoder, "hive_clock_steps", "Jumps of the clock of a hive's store", steps)?;
        // The engine's writes go to the store of the events, not through the hive.
        let refused_by_hives: u64 = self.sample.hives.iter().map(|hive| hive.counters.fences_refused).sum();
        let refused = refused_by_hives + self.sample.status.fenced;
        counter(encoder, "hive_fence_refused", "Writes that a store has refused because of their fence", refused)?;
        let unstopped = self.sample.hives.iter().map(|hive| hive.counters.unstopped).sum();
        counter(encoder, "hive_unstopped", "Lost leases whose work did not stop in time", unstopped)?;
        let up = self.sample.hives.iter().all(|hive| hive.snapshot.store_failure.is_none());
        gauge(encoder, "hive_store_up", "1 if the hive's stores answer this node's heartbeat", u64::from(up))?;
        let terms = self.sample.hives.iter().flat_map(|hive| &hive.counters.terms);
        let mut causes = std::collections::BTreeMap::<&str, u64>::new();
        terms.for_each(|(cause, count)| *causes.entry(cause).or_default() += count);
        let causes = causes.iter().map(|(cause, count)| ([("cause", *cause)], *count));
        family(encoder, "hive_terms", "Terms that this node has started, by cause", MetricType::Counter, causes)
    }

    fn pools(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let pools = &self.node.pools;
        let sample: Vec<_> = pools.iter().map(|pool| (&*pool.name, pool.control.status())).collect();
        let states: Vec<_> = sample.iter().map(|(name, status)| (*name, status.state.to_string())).collect();
        let states = states.iter().map(|(name, state)| ([("pool", *name), ("state", state.as_str())], 1));
        family(encoder, "pool_state", "1 for the state that a pool is in", MetricType::Gauge, states)?;
        let mut of = |name, help, read: fn(&honeyflow_pool::Status) -> u64| {
            let values = sample.iter().map(|(name, status)| ([("pool", *name)], read(status)));
            family(encoder, name, help, MetricType::Gauge, values)
        };
        of("pool_wanted", "Connections that a pool should have", |status| status.wanted.into())?;
        of("pool_open", "Connections that a pool has", |status| status.open.into())?;
        of("pool_idle", "Connections without a request", |status| status.idle.into())?;
        of("pool_lent", "Requests in flight", |status| status.lent.into())?;
        of("pool_servers", "Servers that a pool knows", |status| status.servers.len() as u64)?;
        let waiting = sample.iter().flat_map(|(name, status)| {
            let waiting = CLASSES.iter().zip(status.waiting);
            waiting.map(|(class, count)| ([("pool", *name), ("class", *class)], count as u64))
        });
        family(encoder, "pool_waiting", "Requests that wait for a connection", MetricType::Gauge, waiting)?;
        let servers: Vec<_> = sample
            .iter()
            .flat_map(|(name, status)| status.servers.iter().map(move |server| (*name, server)))
            .map(|(name, server)| (name, server.server.address.to_string(), state_of(server)))
            .collect();
        let servers = servers.iter().map(|(pool, server, state)| {
            ([("pool", *pool), ("server", server.as_str()), ("state", state.as_str())], 1)
        });
        family(encoder, "pool_server_state", "1 for the state that a server is in", MetricType::Gauge, servers)?;
        let counted: Vec<_> = pools.iter().map(|pool| (&*pool.name, pool.control.counters())).collect();
        for (name, help, read) in pool::COUNTERS {
            let values = counted.iter().map(|(pool, counters)| ([("pool", *pool)], read(counters)));
            family(encoder, &format!("pool_{name}"), help, MetricType::Counter, values)?;
        }
        let own = counted.iter().flat_map(|(pool, counters)| {
            counters.own.iter().map(move |(name, count)| ([("pool", *pool), ("what", *name)], *count))
        });
        family(encoder, "pool_connector", "Counters of a pool's connector", MetricType::Counter, own)?;
        Ok(())
    }

    fn workflows(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let workflows = &self.sample.status.workflows;
        let ended = workflows.iter().map(|workflow| ([("workflow", &*workflow.name)], workflow.ended));
        family(encoder, "workflow_runs", "Runs ended", MetricType::Counter, ended)?;
        let open = workflows.iter().map(|workflow| ([("workflow", &*workflow.name)], workflow.open as u64));
        family(encoder, "workflow_runs_open", "Open runs", MetricType::Gauge, open)?;
        let ready = workflows.iter().flat_map(|workflow| {
            let graph = self.node.workflows.iter().find(|graph| graph.name == workflow.name);
            let steps = graph.map_or(&[][..], |graph| &graph.steps[..]);
            let ready = steps.iter().zip(&workflow.ready);
            ready.map(|(step, ready)| ([("workflow", &*workflow.name), ("step", &*step.name)], *ready as u64))
        });
        family(encoder, "step_ready", "Items of a step that wait for a worker", MetricType::Gauge, ready)?;
        let mut of = |name, help, read: fn(&StepCounts) -> u64| {
            let counts = workflows.iter().flat_map(|workflow| {
                let graph = self.node.workflows.iter().find(|graph| graph.name == workflow.name);
                let steps = graph.map_or(&[][..], |graph| &graph.steps[..]).iter().zip(&workflow.steps);
                steps.map(|(step, counts)| ([("workflow", &*workflow.name), ("step", &*step.name)], read(counts)))
            });
            family(encoder, name, help, MetricType::Counter, counts)
        };
        of("step_done", "Steps that succeeded", |counts| counts.done)?;
        of("step_retried", "Attempts of a step that failed because of its target", |counts| counts.retried)?;
        of("step_failed", "Attempts of a step that failed because of the item or the configuration", |counts| {
            counts.failed
        })
    }
}

/// Writes one set of numbers per limit, independent of its number of keys.
fn limits(encoder: &mut DescriptorEncoder<'_>, all: &[counters::Snapshot]) -> fmt::Result {
    let of = |read: fn(&counters::Snapshot) -> u64| all.iter().map(move |one| ([("limit", &*one.limit)], read(one)));
    let (counter, level) = (MetricType::Counter, MetricType::Gauge);
    family(encoder, "limit_admitted", "Permits granted by this node", counter, of(|one| one.admitted))?;
    let denied = all.iter().flat_map(|one| {
        one.denied.iter().map(move |(reason, count)| ([("limit", &*one.limit), ("reason", *reason)], *count))
    });
    family(encoder, "limit_denied", "Requests refused by this node, by reason", counter, denied)?;
    let mode = all.iter().map(|one| ([("limit", &*one.limit), ("mode", one.mode)], 1));
    family(
        encoder,
        "limit_mode",
        "What decides now: pool, lease, exact, calendar, slots, or safe, closed, open",
        level,
        mode,
    )?;
    family(encoder, "limit_pool", "Permits in the store at its last answer", level, of(|one| one.pool))?;
    let slots = |read: fn((u64, u64)) -> u64| {
        all.iter().filter_map(move |one| Some(([("limit", &*one.limit)], read(one.slots?))))
    };
    family(
        encoder,
        "limit_in_use",
        "Slots of a concurrency limit in use on this node",
        level,
        slots(|(in_use, _)| in_use),
    )?;
    family(
        encoder,
        "limit_at_once",
        "Slots of a concurrency limit per key, on all nodes together",
        level,
        slots(|(_, max)| max),
    )?;
    family(encoder, "limit_keys", "Keys that this node knows", level, of(|one| one.keys as u64))?;
    family(
        encoder,
        "limit_keys_overflowed",
        "Times that there was no room for a key",
        counter,
        of(|one| one.overflowed),
    )?;
    family(encoder, "limit_store_ops", "Requests to the store", counter, of(|one| one.store_operations))?;
    family(encoder, "limit_waits", "Requests that waited for a permit", counter, of(|one| one.waits))?;
    let mut waited = encoder.encode_descriptor(
        "limit_wait_seconds",
        "Total time that requests waited for a permit",
        None,
        counter,
    )?;
    for one in all {
        let labels = [("limit", &*one.limit)];
        ConstCounter::new(one.waited.as_secs_f64()).encode(waited.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn family<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl Iterator<Item = ([(&'a str, &'a str); N], u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        let metric = family.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value).encode(metric)?,
            _ => ConstGauge::new(value).encode(metric)?,
        }
    }
    Ok(())
}
