//! The databases: requests travel there and back, get lost in either direction, or are refused. Also the application
//! that commits to them, and how a source processes a poll.

use std::sync::Arc;

use honeyflow_engine::core::{Input, WriteId, plan::SourceId};
use honeyflow_event::{Changes, Event, EventId, Key, Kind, Target, view::related_payload};
use honeyflow_hive::contract;
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Lead, Leads, Page, TakenEvent};
use honeyflow_store::{NewEvent, Op, PollReply, RecoveredState, Reply, Request, Statement};
use serde_json::{Value, json};

use super::{World, queue::Happening};
use crate::{
    model_store::{ModelStore, shard_of},
    options::SECOND,
    workload::Transaction,
};

/// How a request ends, independent of its result in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallEnd {
    Well,
    /// The database does not execute it.
    Refused,
    /// The database executes it, and the caller gets a failure.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StoreCall {
    Recover(SourceId, u64),
    Poll(SourceId, u64),
    Write(SourceId, WriteId),
    Look(SourceId, u64),
}

impl StoreCall {
    fn source(self) -> SourceId {
        match self {
            StoreCall::Recover(source, _)
            | StoreCall::Poll(source, _)
            | StoreCall::Write(source, _)
            | StoreCall::Look(source, _) => source,
        }
    }
}

impl World {
    pub(super) fn begin_transactions(&mut self) {
        if self.healed || self.application.changes >= self.options.changes_max {
            return;
        }
        let (begun, wait) = self.application.begin(&mut self.stores, &self.shapes, &self.options);
        self.after(wait, Happening::Begins);
        for (takes, transaction) in begun {
            self.after(takes, Happening::Commits(transaction));
        }
    }

    pub(super) fn commit_transaction(&mut self, transaction: Transaction) {
        for planned in &transaction.events {
            self.watch(&planned.event.key, || format!("commit {transaction:?}"));
        }
        self.application.commit(&mut self.stores, self.now, transaction);
    }

    pub(super) fn store_of(&self, source: SourceId) -> usize {
        self.shapes.stores[usize::from(source)]
    }

    /// Draws the travel times there and back, and how the request ends.
    pub(super) fn travel(&mut self) -> (u64, u64, CallEnd) {
        let faults = self.options.store.clone();
        let r = &mut self.random;
        let (mut there, back) = (1 + r.below(faults.latency_us), 1 + r.below(faults.latency_us));
        if self.healed {
            return (there, back, CallEnd::Well);
        }
        if r.per_mille(faults.slow) {
            there += r.below(4 * SECOND);
        }
        let ends = match r.below(1000) {
            n if n < faults.refused => CallEnd::Refused,
            n if n < faults.refused + faults.unknown => CallEnd::Unknown,
            _ => CallEnd::Well,
        };
        (there, back, ends)
    }

    fn at_database<T>(
        &mut self,
        (who, store): (usize, usize),
        ends: CallEnd,
        execute: impl FnOnce(&mut ModelStore, u64) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let cut_off = self.incarnations[who].cut_off_until > self.now;
        if ends == CallEnd::Refused || cut_off || self.down_until[store] > self.now {
            return Err(Failure::retry("unreachable", "the database does not answer"));
        }
        let result = execute(&mut self.stores[store], self.now);
        if ends == CallEnd::Unknown { Err(Failure::retry("unknown", "the answer was lost")) } else { result }
    }

    pub(super) fn at_hive(
        &mut self,
        who: usize,
        store: usize,
        request: contract::Request,
        ends: CallEnd,
    ) -> Result<contract::Reply, Failure> {
        self.at_database((who, store), ends, |store, now| store.hive.apply(ModelStore::hive_ms(now), request))
    }

    pub(super) fn store_arrives(&mut self, who: usize, asked: StoreCall, request: Request, ends: CallEnd, back: u64) {
        // Half of the requests that a paused node was about to send go out when it wakes up.
        if let Some(wait) = self.deferred(who).filter(|_| back.is_multiple_of(2)) {
            self.after(wait, Happening::StoreArrives { who, asked, request, ends, back });
            return;
        }
        if self.watched.is_some() {
            self.watch_request(who, self.store_of(asked.source()), &request, ends);
        }
        let migrating = self.migrating;
        let mut pages = 0;
        let result = self.at_database((who, self.store_of(asked.source())), ends, |store, now| {
            if let Request::Write(write) = &request {
                let page = |op: &&Op| matches!(op, Op::FanOut(_));
                pages = write.ops.iter().filter(page).count() as u64;
                if pages > 0 && migrating {
                    return Err(Failure::reject("no-table", "a table is missing"));
                }
            }
            store.apply(now, request)
        });
        self.stats.pages += pages;
        if let (StoreCall::Recover(source, _), Ok(_)) = (asked, &result) {
            let at = self.stores[self.store_of(source)].journal.at;
            self.incarnations[who].recovered_at.insert(source, at);
        }
        let input = self.store_input(asked, result);
        let wait = match (&input, asked) {
            // The shell waits before it retries.
            (Input::Recovered { result: Err(_), .. } | Input::SignalsFound { result: Err(_), .. }, _) => SECOND / 2,
            _ => 0,
        };
        self.after(back + wait, Happening::Hears { who, input });
    }

    fn store_input(&mut self, asked: StoreCall, result: Result<Reply, Failure>) -> Input {
        match asked {
            StoreCall::Recover(source, recovery) => {
                let result = result.map(|reply| match reply {
                    Reply::Recovered(found) => self.of_shard(source, found),
                    other => unreachable!("asked to recover, got {other:?}"),
                });
                Input::Recovered { source, recovery, result }
            }
            StoreCall::Poll(source, poll) => {
                let result = result.map(|reply| match reply {
                    Reply::Polled(polled) => {
                        self.watch_polled(&polled);
                        self.intake(self.store_of(source), polled)
                    }
                    other => unreachable!("asked to poll, got {other:?}"),
                });
                Input::Polled { source, poll, result }
            }
            StoreCall::Write(_, write) => Input::Written { write, result },
            StoreCall::Look(source, lookup) => {
                let result = result.map(|reply| match reply {
                    Reply::Signals(found) => found,
                    other => unreachable!("asked for signals, got {other:?}"),
                });
                Input::SignalsFound { source, lookup, result }
            }
        }
    }

    /// Keeps only what belongs to this shard; other shards' runs are for their owners.
    fn of_shard(&self, source: SourceId, mut found: RecoveredState) -> RecoveredState {
        let (store, shard) = (self.store_of(source), self.shapes.plan.sources[usize::from(source)].shard);
        let is_here = |id: &EventId| self.stores[store].outbox.get(id).is_none_or(|row| row.shard == shard);
        found.checkpoints.retain(|checkpoint| checkpoint.covers.iter().all(is_here));
        found
    }

    /// Turns a poll reply into the intake of a source.
    fn intake(&self, store: usize, polled: PollReply) -> Intake {
        let regular = polled.events.len() - polled.newest;
        let mut intake = Intake {
            oversized: polled.oversized,
            looked_to: polled.looked_to,
            next_due_ms: polled.next_due_ms,
            store_ms: polled.store_ms,
            schema_version: polled.schema_version,
            ..Intake::default()
        };
        for (place, event) in polled.events.into_iter().enumerate() {
            let leads = self.leads(store, &event);
            intake.taken.push(TakenEvent { event: event.into(), leads, newest: place >= regular });
        }
        intake
    }

    fn leads(&self, store: usize, event: &Event) -> Leads {
        let lead = |entity: &str, key: &Key, change| Lead {
            target: Target { entity: entity.into(), key: key.clone() },
            change,
        };
        if event.format > 1 {
            return Leads::Unreadable(Failure::reject("unknown-format", "written by a later version"));
        }
        if self.migrating && matches!(&*event.entity, "tag" | "author") {
            return Leads::Held(Failure::retry("no-table", "a table is missing"));
        }
        if event.kind == Kind::FanOut {
            let position: Value = serde_json::from_str(event.payload.as_deref().unwrap_or("{}")).unwrap_or_default();
            return Leads::Page(Box::new(Page {
                root: event.root.unwrap_or(event.id),
                entity: "book".into(),
                statement: Arc::new(statement()),
                causes: vec![event.key.clone()],
                after: position["after"].as_str().map(Into::into),
            }));
        }
        if *event.entity != *"author" {
            return Leads::To(smallvec::smallvec![lead(&event.entity, &event.key, event.change)]);
        }
        let books = self.stores[store].edges.get(&event.key);
        let books: Vec<&Key> = books.map(|books| books.iter()).into_iter().flatten().collect();
        let blank = NewEvent {
            kind: Kind::FanOut,
            tenant: event.tenant.clone(),
            entity: event.entity.clone(),
            key: event.key.clone(),
            priority: honeyflow_event::PRIORITY_FAN_OUT,
            workflow: None,
            delay: None,
            dedupe: None,
            traceparent: None,
            root: Some(event.root.unwrap_or(event.id)),
            change: Changes::UNKNOWN,
            columns: None,
            payload: None,
        };
        if books.len() as u64 > self.options.containers_max {
            let position = json!({ "entity": "book", "edge": "author", "after": null });
            return Leads::Replace(vec![NewEvent { payload: Some(position.to_string().into()), ..blank }]);
        }
        // Only the owner of a document's shard writes the document. If a book is in another shard than this event, the
        // event is first replaced by one row per book.
        let shards = self.stores[store].shards;
        if books.iter().any(|book| shard_of(book, shards) != shard_of(&event.key, shards)) {
            let row = |book: &Key| NewEvent {
                kind: Kind::Row,
                entity: "book".into(),
                key: book.clone(),
                change: Changes::RELATED,
                payload: Some(related_payload(&event.entity, &event.key, event.id)),
                ..blank.clone()
            };
            return Leads::Replace(books.into_iter().map(row).collect());
        }
        Leads::To(books.into_iter().map(|book| lead("book", book, Changes::RELATED)).collect())
    }
}

/// A placeholder: the model knows its edges and needs no statement.
fn statement() -> Statement {
    Statement {
        place: "entity.book.edge".to_owned(),
        text: "select id from book where author in $keys".to_owned(),
        key: Vec::new(),
        result_key: Vec::new(),
        json: Vec::new(),
    }
}
