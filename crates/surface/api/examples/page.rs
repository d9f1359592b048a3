//! Serves the first page with plausible data in memory, to look at it without a database:
//! `cargo run -p honeyflow-api --example page [port]`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, ready};
use honeyflow_api::{Limits, Node, SinkView, serve};
use honeyflow_engine::core::{
    gate::ClosedGate,
    status::{SourceStatus, Status, StepCounts, WorkflowStatus},
};
use honeyflow_event::{Epoch, Stamp};
use honeyflow_runtime::Failure;
use honeyflow_sink::{MemorySink, Write};
use honeyflow_store::{Admin, AdminReply, Reply, Request, Store, admin::Lag};
use honeyflow_workflow::{
    Catalogue, Checkpoint, Graph, Kind, Role, Workflow,
    builder::{Step, step},
    compile,
};
use serde_json::json;

const TITLES: [(&str, &str); 8] = [
    ("The Left Hand of Darkness", "Ursula K. Le Guin"),
    ("Invisible Cities", "Italo Calvino"),
    ("The Master and Margarita", "Mikhail Bulgakov"),
    ("Dune", "Frank Herbert"),
    ("Solaris", "Stanisław Lem"),
    ("Kindred", "Octavia E. Butler"),
    ("The Periodic Table", "Primo Levi"),
    ("Austerlitz", "W. G. Sebald"),
];

/// A shop whose counters grow in waves, as in a shop's day.
struct Shop {
    started: Instant,
    ids: AtomicI64,
    written: AtomicU64,
}

impl Shop {
    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64() + 400.0
    }

    fn events(&self) -> u64 {
        let t = self.seconds();
        let waves = 240.0 * (t - 3.4 * (t / 9.0).cos() - 11.0 * (t / 31.0).cos() + 0.3 * (t / 2.3).sin());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an example")]
        let events = waves.max(0.0) as u64;
        events
    }

    fn status(&self) -> Status {
        let events = self.events();
        let workflow = |name: &str, share: u64, mean_run_ms, ready: Vec<usize>| WorkflowStatus {
            name: name.into(),
            version: 3,
            open: ready.iter().sum::<usize>() + 14,
            ended: events * share / 100,
            mean_run_ms,
            steps: (0..ready.len() as u64)
                .map(|step| StepCounts {
                    done: events * share / 100,
                    retried: if step == 2 { 212 + events / 90 } else { 0 },
                    failed: u64::from(step == 2),
                })
                .collect(),
            ready,
        };
        let source = |name: &str, in_flight| SourceStatus {
            name: name.into(),
            shards_owned: 1,
            shards: 1,
            epoch: Some(216_431_905_112),
            sequence: 4711,
            in_flight,
            held: Vec::new(),
        };
        let moving = (events % 23) as usize;
        Status {
            open_runs: 41 + moving,
            rows_in_flight: 57 + moving,
            ready: 6 + moving,
            events,
            retries: 212,
            rejects: 3,
            steps: events * 3,
            sources: vec![source("shop", 45 + moving), source("orders", 12)],
            workflows: vec![
                workflow("book", 61, 8.4, vec![0, moving / 4, moving / 2]),
                workflow("order", 17, 143.0, vec![0, 3, 0, moving / 3, 0, 0, 2]),
            ],
            closed: vec![ClosedGate {
                name: "https://mail.example".into(),
                reason: "breaker",
                detail: "12 of 20 calls failed: connection refused; retry in 4 s".to_owned(),
            }],
            ..Status::default()
        }
    }

    fn lag(&self) -> Lag {
        let waiting = self.events() % 97;
        Lag { waiting, by_priority: vec![(4, waiting)], delayed: 18, parked: 2, oldest_ms: 12 + waiting * 3 }
    }
}

impl Store for Shop {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        Box::pin(ready(match request {
            Request::Append { events, .. } => {
                let count = i64::try_from(events.len()).unwrap_or(0);
                let first = self.ids.fetch_add(count, Ordering::Relaxed);
                Ok(Reply::Appended { ids: (first..first + count).collect(), repeated: false })
            }
            Request::Admin(Admin::Lag) => Ok(Reply::Admin(AdminReply::Lag(self.lag()))),
            _ => Err(Failure::reject("example", "the example knows only lag and append")),
        }))
    }
}

fn catalogue() -> Catalogue {
    let kind = |name, role| Kind {
        name,
        settings: &[],
        role,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(60),
    };
    Catalogue::new(vec![
        kind("sql.load", Role::Load),
        kind("transform", Role::Work),
        kind("http.call", Role::Work),
        kind("search.index", Role::Sink),
        kind("event.emit", Role::Emit),
    ])
}

fn graph(name: &str, entity: (&str, &str), steps: Vec<(&str, Step)>, failure: &[(&str, &str)]) -> Arc<Graph> {
    let workflow = Workflow::new(name).on(entity.0, entity.1);
    let workflow = steps.into_iter().fold(workflow, |workflow, (name, step)| workflow.step(name, step));
    let workflow = failure.iter().fold(workflow, |workflow, (first, then)| workflow.on_failure(first, then));
    let definition = workflow.build(&catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    Arc::new(compile(&definition, 3, &catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}")))
}

fn workflows() -> Vec<Arc<Graph>> {
    let book = vec![
        ("load", step("sql.load")),
        ("enrich", step("transform").needs(["load"])),
        ("index", step("search.index").needs(["enrich"])),
    ];
    let order = vec![
        ("load", step("sql.load")),
        ("price", step("transform").needs(["load"])),
        ("stock", step("http.call").needs(["load"])),
        ("invoice", step("http.call").needs(["price", "stock"])),
        ("index", step("search.index").needs(["load", "invoice"])),
        ("notify", step("event.emit").needs(["invoice"])),
        ("alert", step("http.call")),
    ];
    vec![
        graph("book", ("shop", "book"), book, &[]),
        graph("order", ("orders", "order"), order, &[("invoice", "alert")]),
    ]
}

fn write(sink: &MemorySink, shop: &Shop) {
    let number = shop.written.fetch_add(1, Ordering::Relaxed);
    let (title, author) = TITLES[number as usize % TITLES.len()];
    let key = (1000 + number % 400).to_string();
    let document = json!({
        "id": 1000 + number % 400, "title": title, "authors": [author], "price": 9 + number % 20, "edition": number / 8 + 1,
    });
    let stamp = Stamp::new(Epoch(216_431_905_112), u32::try_from(number).unwrap_or(0));
    sink.apply(vec![Write { key: key.into(), stamp, document: Some(Arc::new(document)) }]);
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(7171);
    let shop = Arc::new(Shop { started: Instant::now(), ids: AtomicI64::new(1), written: AtomicU64::new(0) });
    let books = MemorySink::default();
    (0..320).for_each(|_| write(&books, &shop));
    let (filled, filler) = (books.clone(), shop.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await;
            write(&filled, &filler);
        }
    });
    let engine = shop.clone();
    let node = Node {
        name: "bookshop-1".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        started: Instant::now().checked_sub(Duration::from_secs(18_400)).unwrap_or_else(Instant::now),
        sources: vec![("shop".into(), shop.clone() as Arc<dyn Store>), ("orders".into(), shop)],
        sinks: vec![
            SinkView { name: "books".into(), entity: "book".into(), sink: Arc::new(books) },
            SinkView { name: "orders".into(), entity: "order".into(), sink: Arc::new(MemorySink::default()) },
        ],
        workflows: workflows(),
        engine: Arc::new(move || engine.status()),
        runs: Arc::new(|_, _| Box::pin(async { Vec::new() })),
        entities: vec![("shop".into(), "book".into()), ("orders".into(), "order".into())],
        hives: Vec::new(),
        pools: Vec::new(),
        event_limit: None,
        limit_counters: Arc::new(Vec::new),
        limits: Limits::default(),
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, Arc::new(node), stop).await
}
