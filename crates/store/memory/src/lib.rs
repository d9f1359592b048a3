//! A store in memory that gives the same replies as a database, for tests, benchmarks of the engine, and experiments.
//! Nothing outlives the process.
//!
//! It shares the fence with [`MemoryHive`]: no lease can be transferred while a fenced write runs.

mod admin;
mod definition;
mod journal;
mod outbox;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{self, BoxFuture};
use honeyflow_event::{Event, EventId, Key};
use honeyflow_hive::contract::HIVE_TIME_START_MS;
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Failure;
use honeyflow_store::{Load, LoadResult, Reply, Request, Store, write::RecoveredState};
use serde_json::Value;

use journal::Journal;
use outbox::Outbox;

type Documents = dyn Fn(&str) -> Option<Value> + Send + Sync;
type Containers = dyn Fn(&str) -> Vec<Key> + Send + Sync;

pub struct MemoryStore {
    hive: Arc<MemoryHive>,
    documents: Box<Documents>,
    containers: Box<Containers>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    outbox: Outbox,
    journal: Journal,
}

impl MemoryStore {
    /// Creates a store that uses the hive's clock. It has no documents until [`MemoryStore::with_documents`] is called.
    pub fn new(hive: Arc<MemoryHive>) -> MemoryStore {
        MemoryStore {
            hive,
            documents: Box::new(|_| None),
            containers: Box::new(|_| Vec::new()),
            tables: Mutex::default(),
        }
    }

    /// Sets the function that returns the document of a key.
    #[must_use]
    pub fn with_documents(self, documents: impl Fn(&str) -> Option<Value> + Send + Sync + 'static) -> MemoryStore {
        MemoryStore { documents: Box::new(documents), ..self }
    }

    /// Sets the function that returns the container keys of a changed row's key (the result of an edge statement).
    #[must_use]
    pub fn with_containers(self, containers: impl Fn(&str) -> Vec<Key> + Send + Sync + 'static) -> MemoryStore {
        MemoryStore { containers: Box::new(containers), ..self }
    }

    /// Stores events as they are, ids included; an id of 0 gets the next one.
    pub fn preload(&self, events: Vec<Event>) {
        let mut tables = self.tables();
        for event in events {
            tables.outbox.insert(event, None);
        }
    }

    /// Stores one event as it is, due at `ready_ms` of the store's clock; returns its id.
    pub fn insert(&self, event: Event, ready_ms: Option<i64>) -> EventId {
        self.tables().outbox.insert(event, ready_ms)
    }

    /// Returns the number of rows in the outbox.
    pub fn waiting(&self) -> usize {
        self.tables().outbox.len()
    }

    /// Executes one request synchronously.
    pub fn apply(&self, request: Request) -> Result<Reply, Failure> {
        let now_ms = self.hive.hive_ms().cast_signed() + HIVE_TIME_START_MS;
        match request {
            Request::Poll(poll) => {
                let tables = &mut *self.tables();
                Ok(Reply::Polled(tables.outbox.poll(&poll, &tables.journal, now_ms)))
            }
            Request::Load(load) => Ok(self.load(&load)),
            Request::Write(write) => {
                let pages = write::pages(&write, &*self.containers);
                let written = self.hive.while_held(&write.fence, || {
                    write::write(&mut self.tables(), write.ops, pages, now_ms);
                });
                Ok(if written.is_some() { Reply::Committed } else { Reply::Fenced })
            }
            Request::Append { events, idempotency } => {
                Ok(write::append(&mut self.tables(), events, idempotency, now_ms))
            }
            Request::Recover { shard } => {
                let tables = self.tables();
                let mut recovered =
                    RecoveredState { paused: tables.journal.paused(), store_ms: now_ms, ..RecoveredState::default() };
                // There is only shard 0; it owns everything.
                if shard == 0 {
                    let is_there = |id: &EventId| tables.outbox.get(*id).is_some();
                    recovered.failures = tables.journal.failures(now_ms).collect();
                    recovered.checkpoints = tables.journal.checkpoints();
                    recovered.checkpoints.retain(|checkpoint| checkpoint.covers.iter().all(is_there));
                }
                Ok(Reply::Recovered(recovered))
            }
            Request::Signals(wanted) => {
                let tables = self.tables();
                Ok(Reply::Signals(wanted.iter().map(|wanted| tables.journal.signals(wanted, now_ms)).collect()))
            }
            Request::Admin(admin) => admin::answer(&mut self.tables(), admin, now_ms).map(Reply::Admin),
        }
    }

    fn load(&self, load: &Load) -> Reply {
        let Some(expand) = &load.expand else {
            let loaded = load.keys.iter().map(|key| LoadResult::Document((self.documents)(key).map(Arc::new)));
            return Reply::Loaded(loaded.collect());
        };
        Reply::Keys(write::page(&*self.containers, &load.keys, expand.after.as_ref(), expand.limit))
    }

    /// Locks the tables. The lock ignores poisoning: a panic ends only its own request, and each change of the tables
    /// is complete.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        Box::pin(future::ready(self.apply(request)))
    }
}
