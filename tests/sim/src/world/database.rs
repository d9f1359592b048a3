//! The databases: requests that travel there and back, get lost on either way, or are refused; the application that
//! commits to them; and what a source makes of a poll.

use std::sync::Arc;

use honeyflow_engine::core::{Input, WriteId, plan::SourceId};
use honeyflow_event::{Event, EventId, Key, Kind, Target};
use honeyflow_hive::contract;
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Leads, Page, Taken};
use honeyflow_store::{NewEvent, Op, Polled, Recovered, Reply, Request, Statement};
use serde_json::{Value, json};

use super::{World, queue::Happening};
use crate::{
    model_store::{ModelStore, shard_of},
    options::SECOND,
    workload::Transaction,
};

/// How a request ends, whatever the database makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    Well,
    /// Never executed.
    Refused,
    /// Executed, and reported as failed.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Recover(SourceId, u64),
    Poll(SourceId, u64),
    Write(SourceId, WriteId),
    Look(SourceId, u64),
}

impl Asked {
    fn source(self) -> SourceId {
        match self {
            Asked::Recover(source, _) | Asked::Poll(source, _) | Asked::Write(source, _) | Asked::Look(source, _) => {
                source
            }
        }
    }
}

impl World {
    pub(super) fn begins(&mut self) {
        if self.healed || self.application.changes >= self.options.changes_max {
            return;
        }
        let (begun, wait) = self.application.begin(&mut self.stores, &self.shapes, &self.options);
        self.after(wait, Happening::Begins);
        for (takes, transaction) in begun {
            self.after(takes, Happening::Commits(transaction));
        }
    }

    pub(super) fn commits(&mut self, transaction: Transaction) {
        for planned in &transaction.events {
            self.watch(&planned.event.key, || format!("commit {transaction:?}"));
        }
        self.application.commit(&mut self.stores, self.now, transaction);
    }

    pub(super) fn store_of(&self, source: SourceId) -> usize {
        self.shapes.stores[usize::from(source)]
    }

    /// There, back, and how it ends.
    pub(super) fn travel(&mut self) -> (u64, u64, Ends) {
        let faults = self.options.store.clone();
        let r = &mut self.random;
        let (mut there, back) = (1 + r.below(faults.latency_us), 1 + r.below(faults.latency_us));
        if self.healed {
            return (there, back, Ends::Well);
        }
        if r.per_mille(faults.slow) {
            there += r.below(4 * SECOND);
        }
        let ends = match r.below(1000) {
            n if n < faults.refused => Ends::Refused,
            n if n < faults.refused + faults.unknown => Ends::Unknown,
            _ => Ends::Well,
        };
        (there, back, ends)
    }

    fn at_database<T>(
        &mut self,
        (who, store): (usize, usize),
        ends: Ends,
        execute: impl FnOnce(&mut ModelStore, u64) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let cut_off = self.incarnations[who].cut_off_until > self.now;
        if ends == Ends::Refused || cut_off || self.down_until[store] > self.now {
            return Err(Failure::retry("unreachable", "the database does not answer"));
        }
        let result = execute(&mut self.stores[store], self.now);
        if ends == Ends::Unknown { Err(Failure::retry("unknown", "the answer was lost")) } else { result }
    }

    pub(super) fn at_hive(
        &mut self,
        who: usize,
        store: usize,
        request: contract::Request,
        ends: Ends,
    ) -> Result<contract::Reply, Failure> {
        self.at_database((who, store), ends, |store, now| store.hive.apply(ModelStore::hive_ms(now), request))
    }

    pub(super) fn store_arrives(&mut self, who: usize, asked: Asked, request: Request, ends: Ends, back: u64) {
        // half of what a paused node was about to send goes out when it wakes up
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
        if let (Asked::Recover(source, _), Ok(_)) = (asked, &result) {
            let at = self.stores[self.store_of(source)].journal.at;
            self.incarnations[who].recovered_at.insert(source, at);
        }
        let input = self.heard(asked, result);
        let wait = match (&input, asked) {
            // the shell waits before it asks again
            (Input::Recovered { result: Err(_), .. } | Input::Found { result: Err(_), .. }, _) => SECOND / 2,
            _ => 0,
        };
        self.after(back + wait, Happening::Hears { who, input });
    }

    fn heard(&mut self, asked: Asked, result: Result<Reply, Failure>) -> Input {
        match asked {
            Asked::Recover(source, recovery) => {
                let result = result.map(|reply| match reply {
                    Reply::Recovered(found) => self.of_shard(source, found),
                    other => unreachable!("asked to recover, got {other:?}"),
                });
                Input::Recovered { source, recovery, result }
            }
            Asked::Poll(source, poll) => {
                let result = result.map(|reply| match reply {
                    Reply::Polled(polled) => {
                        self.watch_polled(&polled);
                        self.intake(self.store_of(source), polled)
                    }
                    other => unreachable!("asked to poll, got {other:?}"),
                });
                Input::Polled { source, poll, result }
            }
            Asked::Write(_, write) => Input::Written { write, result },
            Asked::Look(source, look) => {
                let result = result.map(|reply| match reply {
                    Reply::Signals(found) => found,
                    other => unreachable!("asked for signals, got {other:?}"),
                });
                Input::Found { source, look, result }
            }
        }
    }

    /// What was begun in other shards is for their owners.
    fn of_shard(&self, source: SourceId, mut found: Recovered) -> Recovered {
        let (store, shard) = (self.store_of(source), self.shapes.plan.sources[usize::from(source)].shard);
        let is_here = |id: &EventId| self.stores[store].outbox.get(id).is_none_or(|row| row.shard == shard);
        found.checkpoints.retain(|checkpoint| checkpoint.covers.iter().all(is_here));
        found
    }

    /// What a source makes of a poll.
    fn intake(&self, store: usize, polled: Polled) -> Intake {
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
            intake.taken.push(Taken { event: event.into(), leads, newest: place >= regular });
        }
        intake
    }

    fn leads(&self, store: usize, event: &Event) -> Leads {
        let target = |entity: &str, key: &Key| Target { entity: entity.into(), key: key.clone() };
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
            return Leads::To(smallvec::smallvec![target(&event.entity, &event.key)]);
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
            payload: None,
        };
        if books.len() as u64 > self.options.containers_max {
            let position = json!({ "entity": "book", "edge": "author", "after": null });
            return Leads::Replace(vec![NewEvent { payload: Some(position.to_string().into()), ..blank }]);
        }
        // only the owner of a document's shard writes it: where one of them lies elsewhere, rows come first
        let shards = self.stores[store].shards;
        if books.iter().any(|book| shard_of(book, shards) != shard_of(&event.key, shards)) {
            let row =
                |book: &Key| NewEvent { kind: Kind::Row, entity: "book".into(), key: book.clone(), ..blank.clone() };
            return Leads::Replace(books.into_iter().map(row).collect());
        }
        Leads::To(books.into_iter().map(|book| target("book", book)).collect())
    }
}

/// The model knows its edges by itself.
fn statement() -> Statement {
    Statement {
        place: "entity.book.edge".to_owned(),
        text: "select id from book where author in $keys".to_owned(),
        key: Vec::new(),
        result_key: Vec::new(),
        json: Vec::new(),
    }
}
