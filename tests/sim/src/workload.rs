//! The application: its rows, and transactions that change them. Two generators draw transactions independently; they
//! share only the form of a transaction. A row's body is a function of seed, key and change number, so no part stores a
//! copy.

mod bursts;
mod fill;
mod steady;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use honeyflow_event::{Changes, Document, Event, EventId, Key, Kind, Name};
use honeyflow_workflow::{Role, StepId};
use serde_json::{Value, json};

use self::{bursts::Bursts, fill::Fills, steady::Steady};
use crate::{model_store::ModelStore, options::Options, random::Random, shapes::Shapes};

/// The step that always fails for a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poison {
    pub workflow: usize,
    pub step: StepId,
    /// Whether the failure also kills the worker.
    pub kills: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// The change number; it rises with every commit of the application.
    pub change: u64,
    pub alive: bool,
    pub poison: Option<Poison>,
}

impl Row {
    pub fn n(&self) -> u64 {
        self.change % 5
    }

    /// Makes the document. `shown` is the newest change that it shows: the row's own, or one of a row that it contains.
    fn document(&self, seed: u64, key: &str, shown: u64) -> Document {
        let list: Vec<u64> = (0..=self.change % 3).collect();
        let body = Random::new(seed ^ self.change.wrapping_mul(0x9E37_79B9)).draw() >> 12;
        let document = json!({ "k": key, "c": shown, "r": self.change, "n": self.n(), "list": list, "b": body });
        self.alive.then(|| Arc::new(document))
    }
}

pub type RowKey = (Name, Key);

/// A transaction that has not committed yet. It writes to one database.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub store: usize,
    pub writes: Vec<(RowKey, bool, Option<Poison>)>,
    pub events: Vec<PlannedEvent>,
    pub rolls_back: bool,
}

/// An event with the id that it got when it was inserted.
#[derive(Clone, Debug)]
pub struct PlannedEvent {
    pub event: Event,
    pub delay_ms: Option<u64>,
}

/// The database that holds the rows of an entity.
pub fn store_of(entity: &str) -> usize {
    usize::from(entity == "item")
}

#[derive(Debug)]
enum Generator {
    Steady(Steady),
    Bursts(Bursts),
}

#[derive(Debug)]
pub struct Application {
    generator: Option<Generator>,
    fills: Option<Fills>,
    seed: u64,
    authors: u64,
    pub rows: BTreeMap<RowKey, Row>,
    /// The rows one change earlier, as a replica would show them.
    before: BTreeMap<RowKey, Row>,
    /// The change that a row's event reports, by database and id.
    pub told: BTreeMap<(usize, EventId), u64>,
    locked: BTreeSet<RowKey>,
    pub changes: u64,
    /// What was poisoned with a change, by change.
    pub poisons: BTreeMap<u64, Poison>,
    pub late_commits: u64,
}

impl Application {
    pub fn new(options: &Options) -> Application {
        let generator = match options.generator {
            1 => Generator::Steady(Steady::new(options.seed)),
            _ => Generator::Bursts(Bursts::new(options.seed)),
        };
        Application {
            generator: Some(generator),
            fills: Some(Fills::new(options.seed)),
            seed: options.seed,
            authors: options.authors,
            rows: BTreeMap::new(),
            before: BTreeMap::new(),
            told: BTreeMap::new(),
            locked: BTreeSet::new(),
            changes: 0,
            poisons: BTreeMap::new(),
            late_commits: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.locked.is_empty()
    }

    /// Returns the transactions that begin now, each with the delay of its commit, and the time until the next ones.
    pub fn begin(
        &mut self,
        stores: &mut [ModelStore],
        shapes: &Shapes,
        options: &Options,
    ) -> (Vec<(u64, Transaction)>, u64) {
        let Some(mut generator) = self.generator.take() else { return (Vec::new(), u64::MAX) };
        let begun = match &mut generator {
            Generator::Steady(steady) => steady.begin(self, stores, shapes, options),
            Generator::Bursts(bursts) => bursts.begin(self, stores, shapes, options),
        };
        self.generator = Some(generator);
        let (mut begun, wait) = begun;
        if let Some(mut fills) = self.fills.take() {
            begun.extend(fills.begin(self, stores, shapes, options));
            self.fills = Some(fills);
        }
        (begun, wait)
    }

    /// Makes a change of this row that is to be committed at once.
    pub fn touch(&mut self, stores: &mut [ModelStore], place: &RowKey) -> Option<Transaction> {
        if !self.lock(place) {
            return None;
        }
        let store = store_of(&place.0);
        let event = blank(&mut stores[store], Kind::Row, &place.0, &place.1);
        let events = vec![PlannedEvent { event, delay_ms: None }];
        Some(Transaction { store, writes: vec![(place.clone(), true, None)], events, rolls_back: false })
    }

    /// Locks a row for a transaction until it ends. Returns false if another transaction holds the lock.
    fn lock(&mut self, place: &RowKey) -> bool {
        self.locked.insert(place.clone())
    }

    /// The author whose name is in a book's document.
    fn author_of(&self, book: &str) -> Option<RowKey> {
        let number: u64 = book.get(1..)?.parse().ok()?;
        let author = number.checked_rem(self.authors)?;
        Some(("author".into(), format!("a{author}").into()))
    }

    /// Reads a row, the change that its document shows, and the document.
    pub fn look(&self, place: &RowKey) -> (Row, u64, Document) {
        let lagging = honeyflow_engine::planted::on("PB-16").then(|| self.before.get(place)).flatten();
        let row = lagging.or_else(|| self.rows.get(place)).copied().unwrap_or_default();
        let author = if *place.0 == *"book" { self.author_of(&place.1) } else { None };
        let of_author = author.and_then(|author| self.rows.get(&author)).map_or(0, |author| author.change);
        let shown = if row.alive { row.change.max(of_author) } else { row.change };
        (row, shown, row.document(self.seed, &place.1, shown))
    }

    /// What a write that leaves the row alive, or not, does to it.
    fn change(&self, place: &RowKey, lives: bool) -> Changes {
        match (self.rows.get(place).is_some_and(|row| row.alive), lives) {
            (_, false) => Changes::DELETE,
            (false, true) => Changes::INSERT,
            (true, true) => Changes::UPDATE,
        }
    }

    pub fn commit(&mut self, stores: &mut [ModelStore], now_us: u64, transaction: Transaction) {
        let store = &mut stores[transaction.store];
        let mut changed = BTreeMap::new();
        for (place, lives, poison) in transaction.writes {
            self.locked.remove(&place);
            if transaction.rolls_back {
                continue;
            }
            self.changes += 1;
            self.poisons.extend(poison.map(|poison| (self.changes, poison)));
            if let Some((_, author)) = self.author_of(&place.1).filter(|_| *place.0 == *"book") {
                let books = store.edges.entry(author).or_default();
                if lives {
                    books.insert(place.1.clone())
                } else {
                    books.remove(&place.1)
                };
            }
            let row = Row { change: self.changes, alive: lives, poison };
            changed.insert(place.clone(), self.change(&place, lives));
            if let Some(before) = self.rows.insert(place.clone(), row) {
                self.before.insert(place, before);
            }
        }
        if transaction.rolls_back {
            return;
        }
        let store_ms = ModelStore::clock_ms(now_us);
        for PlannedEvent { mut event, delay_ms } in transaction.events {
            if event.kind == Kind::Row {
                let place = (event.entity.clone(), event.key.clone());
                let change = self.rows.get(&place).map_or(0, |row| row.change);
                // A row written by hand says nothing of the change.
                if event.id % 7 != 0 {
                    event.change = changed.get(&place).copied().unwrap_or_default();
                }
                self.told.insert((transaction.store, event.id), change);
            }
            event.created_ms = store_ms;
            store.insert(event, delay_ms.map(|delay| store_ms + i64::try_from(delay).unwrap_or(0)));
        }
    }
}

/// An event as a plain insert writes it.
fn blank(store: &mut ModelStore, kind: Kind, entity: &Name, key: &Key) -> Event {
    Event {
        id: store.take_id(),
        format: 1,
        kind,
        tenant: "".into(),
        entity: entity.clone(),
        key: key.clone(),
        priority: honeyflow_event::PRIORITY_DEFAULT,
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

/// Draws a step of one of the entity's workflows that is to fail.
fn poison(random: &mut Random, shapes: &Shapes, entity: &str) -> Option<Poison> {
    // Which rows begin a run of a filtered workflow depends on more than the row's present state.
    let is_filtered = |workflow: usize| !shapes.workflows[workflow].graph.on.is_empty();
    let of_entity = |workflow: &usize| *shapes.workflows[*workflow].entity == *entity && !is_filtered(*workflow);
    let workflows: Vec<usize> = (0..shapes.workflows.len()).filter(of_entity).collect();
    if workflows.is_empty() {
        return None;
    }
    let workflow = *random.pick(&workflows);
    let graph = &shapes.workflows[workflow].graph;
    let executed = |step: &StepId| !matches!(graph[*step].role, Role::Sleep | Role::Emit | Role::Wait);
    let steps: Vec<StepId> = graph.ids().filter(executed).collect();
    let step = *random.pick(&steps);
    let kills = graph[step].role != Role::Load && random.one_in(3);
    Some(Poison { workflow, step, kills })
}

/// Reads the change number and the poison of a message from its payload.
pub fn message_of(payload: Option<&str>) -> (u64, Option<Poison>) {
    let value: Value = payload.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let poison = value.get("p").map(|poison| Poison {
        workflow: usize::try_from(number(&poison[0])).unwrap_or(0),
        step: StepId::try_from(number(&poison[1])).unwrap_or(0),
        kills: poison[2] == true,
    });
    (number(&value["c"]), poison)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{options::SECOND, shapes};

    /// RL-39: each of the two generators writes all of this, independent of the other draws.
    #[test]
    fn rl_39_either_generator_writes_everything() {
        for generator in [1, 2] {
            let mut options = Options::draw(1);
            (options.generator, options.stores, options.authors) = (generator, 2, 3);
            (options.poison, options.long_transactions, options.mixed) = (25, 60, 900);
            let shapes = shapes::draw(&options);
            let mut stores = vec![ModelStore::new(1), ModelStore::new(1)];
            let mut application = Application::new(&options);
            let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
            for _ in 0..3000 {
                for (takes, transaction) in application.begin(&mut stores, &shapes, &options).0 {
                    let mut note = |what, happens| *seen.entry(what).or_default() += u64::from(happens);
                    note("rolled back", transaction.rolls_back);
                    note("long", takes >= SECOND / 2);
                    note("several rows", transaction.writes.len() > 1);
                    note("the other database", transaction.store == 1);
                    note("more events than rows", transaction.events.len() > transaction.writes.len());
                    for (place, lives, poison) in &transaction.writes {
                        let lived = application.rows.get(place).map(|row| row.alive);
                        note("created", *lives && lived.is_none());
                        note("changed", *lives && lived == Some(true));
                        note("deleted", !lives);
                        note("created again", *lives && lived == Some(false));
                        note("leads elsewhere", *place.0 == *"author");
                        note("poisoned", poison.is_some_and(|poison| !poison.kills));
                        note("killing", poison.is_some_and(|poison| poison.kills));
                    }
                    for PlannedEvent { event, delay_ms } in &transaction.events {
                        let bytes = event.payload.as_ref().map_or(0, |payload| payload.len() as u64);
                        note("message", event.kind == Kind::Message);
                        note("too large", bytes > shapes::PAYLOAD_MAX);
                        note("unreadable", event.format > 1);
                        note("delayed", delay_ms.is_some());
                        note("names its workflow", event.workflow.is_some());
                        note("first", event.priority == 0);
                        note("last", event.priority == 9);
                    }
                    application.commit(&mut stores, 0, transaction);
                }
            }
            let missing: Vec<_> = seen.iter().filter(|(_, count)| **count == 0).collect();
            assert!(missing.is_empty() && seen.len() > 15, "generator {generator}: {missing:?}");
        }
    }
}
