//! `steps-3`, `steps-40`: accepted completions per second of the real engine over a store in memory, from the first
//! poll to the last acknowledgement. The workflows are chains of steps that do nothing, without checkpoints and
//! history.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use honeyflow_engine::{
    core::plan::{EntityPlan, Limits, Plan, SourcePlan, WorkflowPlan},
    shell::{Config, Service, SourcePort, TakeShards},
};
use honeyflow_event::{Changes, Event, PRIORITY_DEFAULT};
use honeyflow_hive::Hive;
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Failure, time::BootClock};
use honeyflow_source::{Intake, Source};
use honeyflow_source_outbox::{Entity, OutboxSource};
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_store::{Columns, KeyColumn, KeyType, Poll, Reply, Request, Store};
use honeyflow_store_memory::MemoryStore;
use honeyflow_workflow::{Catalogue, Checkpoint, Graph, Kind, Role, Workflow, builder, compile};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

const RUNS_MAX: usize = 20_000;
const BATCH_MAX: u32 = 500;
/// The number of batches at once, as for kinds that do not wait for other systems.
const CONCURRENCY: u32 = 2;
const SOURCE: &str = "shop";
const ENTITY: &str = "book";
const KIND: &str = "nothing";

#[derive(clap::Args)]
pub struct Options {
    /// Approximate number of completions in each run
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..1_000_000_000))]
    completions: u64,
}

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    for (figure, steps) in [("steps-3", 3), ("steps-40", 40)] {
        if !reporter.wants(figure) {
            continue;
        }
        let mut ours = Vec::new();
        for run in 1..=reporter.runs {
            eprintln!("{figure}: run {run} of {}", reporter.runs);
            ours.push(crate::runtime()?.block_on(one(steps, options.completions / steps))?);
        }
        reporter.report(&Measurement { figure, unit: "steps/s", better: Better::Higher, ours, peer: None });
    }
    Ok(())
}

async fn one(steps: u64, events: u64) -> Result<f64> {
    let started = Instant::now();
    let hive = Arc::new(MemoryHive::new(move || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)));
    let memory = MemoryStore::new(hive.clone());
    memory.preload((0..events).map(event).collect());
    let store = Arc::new(TimedStore { memory, ended_at: OnceLock::new() });
    let source =
        Arc::new(TimedSource { source: OutboxSource::new(store.clone(), &[entity()], &[]), begun_at: OnceLock::new() });
    let plan = Arc::new(plan(Arc::new(chain(steps)?)));
    let member = honeyflow_hive::Options { stands: false, ..honeyflow_hive::Options::named("bench").source(SOURCE) };
    let hive = Hive::start(hive, member)?;
    let (service, handle) = Service::new(Config {
        steps: vec![plan.workflows[0].graph.steps.iter().map(|_| Arc::new(NoopStep) as Arc<dyn Step>).collect()],
        concurrency: vec![CONCURRENCY; plan.kinds.len()],
        pool: Arc::new(honeyflow_evaluate::Pool::new(2)),
        plan,
        sources: vec![SourcePort { source: source.clone(), store: store.clone(), hive: hive.clone() }],
        shards: Some(TakeShards::default()),
        traffic: hive.traffic(),
        limits: honeyflow_engine::shell::limit::StepLimits::default(),
        clock: Arc::new(BootClock),
        seed: 1,
    });
    let mut running = tokio::spawn(async move { service.run().await });
    while store.ended_at.get().is_none() {
        if running.is_finished() {
            (&mut running).await??;
            return Err("the engine ended by itself".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    handle.drain().await;
    running.await??;
    let status = handle.status();
    if status.steps != steps * events || status.attempts != status.steps {
        let Some(failure) = status.last_store_failure else {
            return Err(format!("{events} events made {} completions", status.steps).into());
        };
        return Err(failure.into());
    }
    let (Some(begun), Some(ended)) = (source.begun_at.get(), store.ended_at.get()) else {
        return Err("nothing was measured".into());
    };
    Ok(status.steps as f64 / ended.duration_since(*begun).as_secs_f64())
}

fn event(n: u64) -> Event {
    thread_local! {
        static NAMES: (Arc<str>, Arc<str>) = ("".into(), ENTITY.into());
    }
    let (tenant, entity) = NAMES.with(Clone::clone);
    Event {
        id: 0,
        format: 1,
        kind: honeyflow_event::Kind::Row,
        tenant,
        entity,
        key: n.to_string().into(),
        priority: PRIORITY_DEFAULT,
        workflow: None,
        created_ms: 0,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    }
}

fn entity() -> Entity {
    Entity {
        name: ENTITY.into(),
        table: ENTITY.to_owned(),
        key: vec![KeyColumn { name: "id".to_owned(), kind: KeyType::Integer }],
        columns: Columns::All,
        reported: Vec::new(),
        edges: Vec::new(),
        priority: PRIORITY_DEFAULT,
    }
}

/// `s0 → s1 → …`
fn chain(steps: u64) -> Result<Graph> {
    let kind = Kind {
        name: KIND,
        settings: &[],
        role: Role::Work,
        checkpoint: Checkpoint::Never,
        batch_max: BATCH_MAX,
        timeout: Duration::from_secs(30),
    };
    let kinds = Catalogue::new(vec![kind]);
    let mut workflow = Workflow::new("chain").on(SOURCE, ENTITY);
    for n in 0..steps {
        let step = builder::step(KIND);
        let step = if n == 0 { step } else { step.needs([format!("s{}", n - 1).as_str()]) };
        workflow = workflow.step(&format!("s{n}"), step);
    }
    let bad = |problems: Vec<honeyflow_workflow::Problem>| format!("the chain of steps is invalid: {problems:?}");
    let definition = workflow.build(&kinds).map_err(bad)?;
    Ok(compile(&definition, 1, &kinds).map_err(bad)?)
}

fn plan(graph: Arc<Graph>) -> Plan {
    let workflow = WorkflowPlan {
        name: graph.name.clone(),
        older: false,
        priority: None,
        exclusion: graph.definition.exclusion,
        order: graph.definition.order,
        kinds: vec![1; graph.steps.len()],
        targets: vec![0; graph.steps.len()],
        graph,
    };
    let entities = [(ENTITY.into(), EntityPlan { id: 0, key: Vec::new(), workflows: vec![0] })].into_iter().collect();
    let source = SourcePlan {
        name: SOURCE.into(),
        install_id: 0,
        port: 0,
        lease: format!("shard/{SOURCE}/0").into(),
        shard: 0,
        payload_bytes_max: 1 << 20,
        entities,
        leads: vec![(ENTITY.into(), vec![ENTITY.into()])],
        versions: Vec::new(),
    };
    Plan {
        sources: vec![source],
        workflows: vec![Arc::new(workflow)],
        kinds: vec!["expression".into(), KIND.into()],
        targets: vec!["nothing".into()],
        limits: Limits { runs_max: RUNS_MAX, ..Limits::default() },
    }
}

struct NoopStep;

impl Step for NoopStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        Box::pin(async move { batch.items.iter().map(|_| Outcome::Done(None)).collect() })
    }
}

/// Notes when the engine polled first.
struct TimedSource {
    source: OutboxSource,
    begun_at: OnceLock<Instant>,
}

impl Source for TimedSource {
    fn poll(&self, request: Poll) -> BoxFuture<'static, std::result::Result<Intake, Failure>> {
        self.begun_at.get_or_init(Instant::now);
        self.source.poll(request)
    }
}

/// Notes when the last row was acknowledged.
struct TimedStore {
    memory: MemoryStore,
    ended_at: OnceLock<Instant>,
}

impl Store for TimedStore {
    fn call(&self, request: Request) -> BoxFuture<'static, std::result::Result<Reply, Failure>> {
        let writes = matches!(request, Request::Write(_));
        let reply = self.memory.apply(request);
        if writes && self.memory.waiting() == 0 {
            self.ended_at.get_or_init(Instant::now);
        }
        Box::pin(std::future::ready(reply))
    }
}
