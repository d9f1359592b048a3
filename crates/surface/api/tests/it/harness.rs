//! A node made of plain data, served in this process, and a client that sends exactly the given bytes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, ready};
use honeyflow_api::{Limits, Node, SinkView, serve};
use honeyflow_engine::core::status::{SourceStatus, Status, StepCounts, WorkflowStatus};
use honeyflow_event::{EventId, Stamp};
use honeyflow_runtime::Failure;
use honeyflow_sink::{MemorySink, Write};
use honeyflow_store::{Admin, AdminReply, Idempotency, NewEvent, Reply, Request, Store, admin::Lag};
use honeyflow_workflow::{Catalogue, Checkpoint, Graph, Kind, Role, Workflow, builder::step, compile};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// No answer takes longer; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Outbox {
    pub events: Mutex<Vec<NewEvent>>,
    answered: Mutex<HashMap<String, (u64, Vec<EventId>)>>,
    pub lag: Mutex<Lag>,
    pub away: Mutex<bool>,
    pub asked: Mutex<u32>,
}

impl Outbox {
    fn append(&self, events: Vec<NewEvent>, idempotency: Option<Idempotency>) -> Reply {
        let mut answered = self.answered.lock().unwrap();
        if let Some((hash, ids)) = idempotency.as_ref().and_then(|given| answered.get(&given.key)) {
            let same = idempotency.is_some_and(|given| given.body_hash == *hash);
            return if same { Reply::Appended { ids: ids.clone(), repeated: true } } else { Reply::Conflict };
        }
        let mut stored = self.events.lock().unwrap();
        let first = EventId::try_from(stored.len()).unwrap() + 1;
        let ids: Vec<_> = (first..).take(events.len()).collect();
        stored.extend(events);
        if let Some(Idempotency { key, body_hash }) = idempotency {
            answered.insert(key, (body_hash, ids.clone()));
        }
        Reply::Appended { ids, repeated: false }
    }
}

impl Store for Outbox {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if let Request::Admin(Admin::Lag) = &request {
            *self.asked.lock().unwrap() += 1;
        }
        let answer = if *self.away.lock().unwrap() {
            Err(Failure::retry("unreachable", "connection to 10.1.2.3 as secret-user refused"))
        } else {
            Ok(match request {
                Request::Append { events, idempotency } => self.append(events, idempotency),
                Request::Admin(Admin::Lag) => Reply::Admin(AdminReply::Lag(self.lag.lock().unwrap().clone())),
                other => panic!("the surface asks for nothing else: {other:?}"),
            })
        };
        Box::pin(ready(answer))
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub outbox: Arc<Outbox>,
    pub sink: MemorySink,
    pub status: Arc<Mutex<Status>>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<std::io::Result<()>>>,
}

pub async fn start() -> Server {
    start_with(|_| {}).await
}

pub async fn start_with(change: impl FnOnce(&mut Node)) -> Server {
    let (outbox, sink) = (Arc::new(Outbox::default()), MemorySink::default());
    let status = Arc::new(Mutex::new(working()));
    let engine = status.clone();
    let mut node = Node {
        name: "node-1".to_owned(),
        version: "0.0.0",
        started: Instant::now(),
        sources: vec![("shop".into(), outbox.clone() as Arc<dyn Store>)],
        sinks: vec![SinkView { name: "books".into(), entity: "book".into(), sink: Arc::new(sink.clone()) }],
        workflows: vec![Arc::new(graph())],
        engine: Arc::new(move || engine.lock().unwrap().clone()),
        runs: Arc::new(|_, _| Box::pin(async { Vec::new() })),
        entities: vec![("shop".into(), "book".into()), ("shop".into(), "author".into())],
        hives: Vec::new(),
        pools: Vec::new(),
        event_limit: None,
        limit_counters: Arc::new(Vec::new),
        limits: Limits::default(),
    };
    change(&mut node);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let served = tokio::spawn(serve(listener, Arc::new(node), shutdown));
    Server { address, outbox, sink, status, stop: Some(stop), served: Some(served) }
}

fn working() -> Status {
    Status {
        events: 12,
        sources: vec![SourceStatus {
            name: "shop".into(),
            shards_owned: 1,
            shards: 1,
            epoch: Some(7),
            sequence: 1,
            in_flight: 3,
            held: vec![],
        }],
        workflows: vec![WorkflowStatus {
            name: "book".into(),
            version: 1,
            open: 2,
            ended: 9,
            mean_run_ms: 4.5,
            ready: vec![1, 0],
            steps: vec![StepCounts { done: 9, retried: 2, failed: 0 }, StepCounts { done: 8, retried: 0, failed: 1 }],
        }],
        ..Status::default()
    }
}

fn graph() -> Graph {
    let kind = |name, role| Kind {
        name,
        settings: &[],
        role,
        checkpoint: Checkpoint::Never,
        batch_max: 1,
        timeout: Duration::from_secs(1),
    };
    let catalogue = Catalogue::new(vec![kind("sql.load", Role::Load), kind("search.index", Role::Sink)]);
    let workflow = Workflow::new("book")
        .on("shop", "book")
        .step("load", step("sql.load"))
        .step("index", step("search.index").needs(["load"]));
    compile(&workflow.build(&catalogue).unwrap(), 1, &catalogue).unwrap()
}

impl Server {
    pub fn index(&self, key: &str, stamp: u64, document: Value) {
        self.sink.apply(vec![Write { key: key.into(), stamp: Stamp(stamp), document: Some(Arc::new(document)) }]);
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes on a new connection.
    pub async fn send(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut stream = self.connect().await;
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes.as_ref()).await;
        answer_to(&mut stream, bytes.as_ref().starts_with(b"HEAD ")).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).await
    }

    pub async fn post(&self, body: impl AsRef<str>) -> Answer {
        self.post_with("", body).await
    }

    /// Posts a body with further header lines, each ended by `\r\n`.
    pub async fn post_with(&self, lines: &str, body: impl AsRef<str>) -> Answer {
        let body = body.as_ref();
        let length = body.len();
        self.send(format!(
            "POST /v1/events HTTP/1.1\r\nHost: localhost:7171\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        ))
        .await
    }

    pub fn stored(&self) -> usize {
        self.outbox.events.lock().unwrap().len()
    }

    pub async fn stop(mut self) -> std::io::Result<()> {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, self.served.take().unwrap()).await.expect("serving ends").unwrap()
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Reads one answer; status 0 if the connection ended without one.
pub async fn answer(stream: &mut TcpStream) -> Answer {
    answer_to(stream, false).await
}

pub async fn answer_to(stream: &mut TcpStream, head: bool) -> Answer {
    let read = tokio::time::timeout(PATIENCE, read_answer(stream, head));
    read.await.expect("an answer, or the end of the connection")
}

/// Reads one answer. An answer to HEAD has no body, even if it declares a length.
async fn read_answer(stream: &mut TcpStream, bodiless: bool) -> Answer {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return Answer { status: 0, headers: HashMap::new(), body: String::new() },
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    };
    let head = String::from_utf8(read[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: HashMap<_, _> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = read[end + 4..].to_vec();
    let declared = headers.get("content-length").filter(|_| !bodiless);
    let length = declared.map_or(0, |length| length.parse().unwrap());
    while body.len() < length {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the answer broke off");
        body.extend_from_slice(&piece[..count]);
    }
    Answer { status, headers, body: String::from_utf8(body).unwrap() }
}

pub fn event(key: &str) -> Value {
    json!({ "entity": "book", "key": key })
}
