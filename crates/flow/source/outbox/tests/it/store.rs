//! A store that answers from a script and counts its loads.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_event::{Changes, Event, Kind};
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Leads, Source};
use honeyflow_source_outbox::{Edge, EdgeBy, Entity, FanOutMode, OutboxSource};
use honeyflow_store::{Columns, KeyColumn, KeyType, Poll, PollReply, Reply, Request, Statement, Store};

type Answers = dyn Fn(&str, &str) -> Result<Vec<String>, Failure> + Send + Sync;

pub struct Table {
    events: Mutex<Vec<Event>>,
    newest: usize,
    answers: Box<Answers>,
    pub loads: AtomicUsize,
}

impl Store for Table {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let reply = match request {
            Request::Poll(_) => {
                let events = self.events.lock().unwrap().clone();
                Ok(Reply::Polled(PollReply { events, newest: self.newest, schema_version: 7, ..PollReply::default() }))
            }
            Request::Load(load) => {
                self.loads.fetch_add(1, Ordering::Relaxed);
                let expand = load.expand.expect("edges are expanded");
                assert_eq!((load.keys.len(), expand.limit, expand.after), (1, 101, None), "one key at a time");
                (self.answers)(&load.statement.text, &load.keys[0]).map(|mut keys| {
                    keys.truncate(expand.limit as usize);
                    Reply::Keys(keys.into_iter().map(Into::into).collect())
                })
            }
            other => panic!("the source asked {other:?}"),
        };
        async { reply }.boxed()
    }
}

pub struct PollResult {
    pub intake: Result<Intake, Failure>,
    pub loads: usize,
}

/// Polls the source once.
pub async fn poll(
    entities: &[Entity],
    events: Vec<Event>,
    answers: impl Fn(&str, &str) -> Result<Vec<String>, Failure> + Send + Sync + 'static,
) -> PollResult {
    poll_shard(0, 1, entities, events, answers).await
}

pub async fn poll_shard(
    shard: u16,
    shards: u16,
    entities: &[Entity],
    events: Vec<Event>,
    answers: impl Fn(&str, &str) -> Result<Vec<String>, Failure> + Send + Sync + 'static,
) -> PollResult {
    let table =
        Table { newest: 1.min(events.len()), events: Mutex::new(events), answers: Box::new(answers), loads: 0.into() };
    let table = Arc::new(table);
    let source = OutboxSource::new(Arc::clone(&table) as Arc<dyn Store>, entities, &["payment".into()]).sharded(shards);
    let request = Poll {
        shard,
        levels: Default::default(),
        newest: 0,
        sweep: None,
        passed_over: Vec::new(),
        payload_bytes_max: 1 << 20,
    };
    let intake = source.poll(request).await;
    PollResult { intake, loads: table.loads.load(Ordering::Relaxed) }
}

/// Returns the leads of each row as text: `book 1, book 2`, or the kind of leads.
pub async fn leads(
    entities: &[Entity],
    events: Vec<Event>,
    answers: impl Fn(&str, &str) -> Result<Vec<String>, Failure> + Send + Sync + 'static,
) -> Vec<String> {
    let intake = poll(entities, events, answers).await.intake.unwrap();
    intake.taken.iter().map(|taken| text(&taken.leads)).collect()
}

pub fn text(leads: &Leads) -> String {
    match leads {
        Leads::To(leads) => {
            let targets = leads.iter().map(|lead| &lead.target);
            targets.map(|target| format!("{} {}", target.entity, target.key)).collect::<Vec<_>>().join(", ")
        }
        Leads::Replace(rows) => format!("replaced by {}", rows.len()),
        Leads::Page(page) => format!("page of {} after {:?}", page.entity, page.after),
        Leads::Unreadable(failure) => format!("unreadable: {}", failure.code),
        Leads::Held(failure) => format!("held: {}", failure.code),
    }
}

pub fn no_sql(text: &str, key: &str) -> Result<Vec<String>, Failure> {
    panic!("`{text}` was run for {key}")
}

pub fn key(names: &[&str]) -> Vec<KeyColumn> {
    names.iter().map(|name| KeyColumn { name: (*name).to_owned(), kind: KeyType::Integer }).collect()
}

pub fn entity(name: &str, edges: Vec<Edge>) -> Entity {
    let (table, reported) = (name.to_owned(), Vec::new());
    Entity { name: name.into(), table, key: key(&["id"]), columns: Columns::All, reported, edges, priority: 4 }
}

pub fn statement(text: &str) -> Arc<Statement> {
    Arc::new(Statement {
        place: "entity.book.edge".into(),
        text: text.into(),
        key: key(&["id"]),
        result_key: Vec::new(),
        json: Vec::new(),
    })
}

pub fn by_statement(table: &str, text: &str) -> Edge {
    Edge {
        table: table.into(),
        table_key: key(&["id"]),
        columns: Columns::All,
        by: EdgeBy::Statement(statement(text)),
        fan_out: FanOutMode::All,
    }
}

pub fn by_key(table: &str, table_key: &[&str], columns: &[&str]) -> Edge {
    Edge {
        table: table.into(),
        table_key: key(table_key),
        columns: Columns::All,
        by: EdgeBy::Key(columns.iter().map(ToString::to_string).collect()),
        fan_out: FanOutMode::All,
    }
}

pub fn row(id: i64, entity: &str, key: &str) -> Event {
    Event {
        id,
        format: 1,
        kind: Kind::Row,
        tenant: "".into(),
        entity: entity.into(),
        key: key.into(),
        priority: 3,
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

pub fn with_payload(event: Event, payload: &str) -> Event {
    Event { format: 2, payload: Some(payload.into()), ..event }
}
