//! The application: transactions that create, change, delete and re-create rows, roll back, take seconds, write events
//! twice, and messages. A row's body is a function of seed, key and change number, so nobody needs a copy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use honeyflow_event::{Document, Event, EventId, Key, Kind, Name, PRIORITY_DEFAULT};
use honeyflow_workflow::{Role, StepId};
use serde_json::{Value, json};

use crate::{
    model_store::ModelStore,
    options::{MILLI, Options, SECOND},
    random::Random,
    shapes::{PAYLOAD_MAX, Shapes},
};

/// The step that fails for a row, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poison {
    pub workflow: usize,
    pub step: StepId,
    /// It takes its worker with it.
    pub kills: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Rises with every commit of the database.
    pub change: u64,
    pub alive: bool,
    pub poison: Option<Poison>,
}

impl Row {
    pub fn n(&self) -> u64 {
        self.change % 5
    }

    pub fn document(&self, seed: u64, key: &str) -> Document {
        let list: Vec<u64> = (0..=self.change % 3).collect();
        let body = Random::new(seed ^ self.change.wrapping_mul(0x9E37_79B9)).draw() >> 12;
        self.alive.then(|| Arc::new(json!({ "k": key, "c": self.change, "n": self.n(), "list": list, "b": body })))
    }
}

pub type Place = (Name, Key);

/// Not committed yet.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub writes: Vec<(Place, bool, Option<Poison>)>,
    pub events: Vec<Planned>,
    pub rolls_back: bool,
}

/// An event with the id it took when it was inserted.
#[derive(Clone, Debug)]
pub struct Planned {
    pub event: Event,
    pub delay_ms: Option<u64>,
}

#[derive(Debug)]
pub struct Application {
    random: Random,
    pub rows: BTreeMap<Place, Row>,
    /// Of a row's event: the change it tells of.
    pub told: BTreeMap<EventId, u64>,
    locked: BTreeSet<Place>,
    pub changes: u64,
    /// By change: what was poisoned with it.
    pub poisons: BTreeMap<u64, Poison>,
    messages: u64,
    pub late_commits: u64,
}

impl Application {
    pub fn new(seed: u64) -> Application {
        Application {
            random: Random::new(seed ^ 0x5EED_0002),
            rows: BTreeMap::new(),
            told: BTreeMap::new(),
            locked: BTreeSet::new(),
            changes: 0,
            poisons: BTreeMap::new(),
            messages: 0,
            late_commits: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.locked.is_empty()
    }

    /// A transaction begins, takes its ids, and commits after the time that is returned with it.
    pub fn begin(&mut self, store: &mut ModelStore, shapes: &Shapes, options: &Options) -> Option<(u64, Transaction)> {
        let mut transaction =
            Transaction { writes: Vec::new(), events: Vec::new(), rolls_back: self.random.one_in(20) };
        if self.random.one_in(6) {
            self.message(store, shapes, options, &mut transaction);
        } else {
            for _ in 0..self.random.between(1, 2) {
                self.change(store, shapes, options, &mut transaction);
            }
        }
        if transaction.events.is_empty() {
            return None;
        }
        let long = self.random.per_mille(options.long_transactions);
        let takes = if long { self.random.between(SECOND / 2, 5 * SECOND) } else { self.random.below(20 * MILLI) };
        self.late_commits += u64::from(long && !transaction.rolls_back);
        Some((takes, transaction))
    }

    /// A change of this row, to be committed at once.
    pub fn touch(&mut self, store: &mut ModelStore, place: &Place) -> Option<Transaction> {
        if !self.locked.insert(place.clone()) {
            return None;
        }
        let event = self.event(store, Kind::Row, &place.0, &place.1);
        let events = vec![Planned { event, delay_ms: None }];
        Some(Transaction { writes: vec![(place.clone(), true, None)], events, rolls_back: false })
    }

    fn change(&mut self, store: &mut ModelStore, shapes: &Shapes, options: &Options, into: &mut Transaction) {
        let entity: Name = (*self.random.pick(&["book", "book", "tag", "tag", "ghost"])).into();
        let key: Key = format!("{}{}", &entity[..1], self.random.skewed(options.keys)).into();
        let place = (entity.clone(), key.clone());
        // whoever changes a row holds its lock until the end
        if !self.locked.insert(place.clone()) {
            return;
        }
        let alive = self.rows.get(&place).is_some_and(|row| row.alive);
        let lives = !alive || !self.random.one_in(5);
        let poison = if lives { self.poison(shapes, options, &entity) } else { None };
        into.writes.push((place, lives, poison));
        let copies = if self.random.one_in(20) { 2 } else { 1 };
        for _ in 0..copies {
            let delay_ms = self.random.per_mille(20).then(|| self.random.between(200, 2000));
            let event = self.event(store, Kind::Row, &entity, &key);
            into.events.push(Planned { event, delay_ms });
        }
    }

    fn message(&mut self, store: &mut ModelStore, shapes: &Shapes, options: &Options, into: &mut Transaction) {
        self.messages += 1;
        let entity: Name = "msg".into();
        let key: Key = format!("m{}", self.messages).into();
        let mut payload = json!({ "c": self.messages });
        if let Some(poison) = self.poison(shapes, options, &entity) {
            payload["p"] = json!([poison.workflow, poison.step, poison.kills]);
        }
        if self.random.one_in(60) {
            payload["x"] = "x".repeat(usize::try_from(PAYLOAD_MAX).unwrap_or(0)).into();
        }
        let copies = if self.random.one_in(8) { 2 } else { 1 };
        // a row of a later version: it can be kept and shown, not read
        let format = if self.random.one_in(80) { 9 } else { 1 };
        for _ in 0..copies {
            let mut event = self.event(store, Kind::Message, &entity, &key);
            event.payload = Some(payload.to_string().into());
            event.dedupe = Some(format!("id-{}", self.messages).into());
            event.format = format;
            into.events.push(Planned { event, delay_ms: None });
        }
    }

    fn event(&mut self, store: &mut ModelStore, kind: Kind, entity: &Name, key: &Key) -> Event {
        let random = &mut self.random;
        let priority = if random.one_in(5) { u8::try_from(random.below(10)).unwrap_or(4) } else { PRIORITY_DEFAULT };
        Event {
            id: store.take_id(),
            format: 1,
            kind,
            tenant: "".into(),
            entity: entity.clone(),
            key: key.clone(),
            priority,
            workflow: None,
            created_ms: 0,
            dedupe: None,
            traceparent: None,
            root: None,
            payload: None,
        }
    }

    fn poison(&mut self, shapes: &Shapes, options: &Options, entity: &str) -> Option<Poison> {
        if !self.random.per_mille(options.poison) {
            return None;
        }
        let workflows: Vec<usize> =
            (0..shapes.workflows.len()).filter(|w| *shapes.workflows[*w].entity == *entity).collect();
        if workflows.is_empty() {
            return None;
        }
        let workflow = *self.random.pick(&workflows);
        let graph = &shapes.workflows[workflow].graph;
        let executed = |step: &StepId| !matches!(graph[*step].role, Role::Sleep | Role::Emit | Role::Wait);
        let steps: Vec<StepId> = graph.ids().filter(executed).collect();
        let step = *self.random.pick(&steps);
        let kills = graph[step].role != Role::Load && self.random.one_in(3);
        Some(Poison { workflow, step, kills })
    }

    pub fn commit(&mut self, store: &mut ModelStore, now_us: u64, transaction: Transaction) {
        for (place, lives, poison) in transaction.writes {
            self.locked.remove(&place);
            if !transaction.rolls_back {
                self.changes += 1;
                self.poisons.extend(poison.map(|poison| (self.changes, poison)));
                self.rows.insert(place, Row { change: self.changes, alive: lives, poison });
            }
        }
        if transaction.rolls_back {
            return;
        }
        let store_ms = ModelStore::clock_ms(now_us);
        for Planned { mut event, delay_ms } in transaction.events {
            if event.kind == Kind::Row {
                let place = (event.entity.clone(), event.key.clone());
                self.told.insert(event.id, self.rows.get(&place).map_or(0, |row| row.change));
            }
            event.created_ms = store_ms;
            store.insert(event, delay_ms.map(|delay| store_ms + i64::try_from(delay).unwrap_or(0)));
        }
    }
}

/// A message's change number and poison, from its payload.
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
