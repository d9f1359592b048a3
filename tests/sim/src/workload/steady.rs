//! The first generator: independent transactions come one by one at a drawn rate. They create, change, delete and
//! re-create rows, roll back, take seconds, write events twice, and send messages.

use honeyflow_event::{Event, Key, Kind, Name, PRIORITY_DEFAULT};
use serde_json::json;

use super::{Application, PlannedEvent, Transaction, blank, poison, store_of};
use crate::{
    model_store::ModelStore,
    options::{MILLI, Options, SECOND},
    random::Random,
    shapes::{PAYLOAD_MAX, Shapes},
};

#[derive(Debug)]
pub struct Steady {
    random: Random,
    messages: u64,
}

impl Steady {
    pub fn new(seed: u64) -> Steady {
        Steady { random: Random::new(seed ^ 0x5EED_0002), messages: 0 }
    }

    pub fn begin(
        &mut self,
        application: &mut Application,
        stores: &mut [ModelStore],
        shapes: &Shapes,
        options: &Options,
    ) -> (Vec<(u64, Transaction)>, u64) {
        let wait = self.random.between(options.change_every_us / 4, options.change_every_us * 7 / 4);
        let rolls_back = self.random.one_in(20);
        let mut transaction = Transaction { store: 0, writes: Vec::new(), events: Vec::new(), rolls_back };
        if self.random.one_in(6) {
            self.message(stores, shapes, options, &mut transaction);
        } else {
            transaction.store = usize::from(options.stores > 1 && self.random.one_in(4));
            for _ in 0..self.random.between(1, 2) {
                self.change(application, stores, shapes, options, &mut transaction);
            }
        }
        if transaction.events.is_empty() {
            return (Vec::new(), wait);
        }
        let long = self.random.per_mille(options.long_transactions);
        let takes = if long { self.random.between(SECOND / 2, 5 * SECOND) } else { self.random.below(20 * MILLI) };
        application.late_commits += u64::from(long && !transaction.rolls_back);
        (vec![(takes, transaction)], wait)
    }

    fn entity(&mut self, store: usize, options: &Options) -> Name {
        if store > 0 {
            return "item".into();
        }
        let entities: &[&str] = match options.authors {
            0 => &["book", "book", "tag", "tag", "ghost"],
            _ => &["book", "book", "book", "tag", "tag", "tag", "ghost", "author"],
        };
        (*self.random.pick(entities)).into()
    }

    fn change(
        &mut self,
        application: &mut Application,
        stores: &mut [ModelStore],
        shapes: &Shapes,
        options: &Options,
        into: &mut Transaction,
    ) {
        let entity = self.entity(into.store, options);
        let number = match &*entity {
            "author" => self.random.below(options.authors),
            _ if self.random.per_mille(options.hot) => 0,
            _ => self.random.skewed(options.keys),
        };
        let key: Key = format!("{}{number}", &entity[..1]).into();
        let place = (entity.clone(), key.clone());
        if !application.lock(&place) {
            return;
        }
        let alive = application.rows.get(&place).is_some_and(|row| row.alive);
        let lives = !alive || !self.random.one_in(5);
        let poisoned = lives && self.random.per_mille(options.poison);
        let poison = if poisoned { poison(&mut self.random, shapes, &entity) } else { None };
        into.writes.push((place, lives, poison));
        let copies = if self.random.one_in(20) { 2 } else { 1 };
        for _ in 0..copies {
            let delay_ms = self.random.per_mille(20).then(|| self.random.between(200, 2000));
            let event = self.event(&mut stores[store_of(&entity)], options, Kind::Row, &entity, &key);
            into.events.push(PlannedEvent { event, delay_ms });
        }
    }

    fn message(&mut self, stores: &mut [ModelStore], shapes: &Shapes, options: &Options, into: &mut Transaction) {
        self.messages += 1;
        let entity: Name = "msg".into();
        let key: Key = format!("m{}", self.messages).into();
        let mut payload = json!({ "c": self.messages });
        if self.random.per_mille(options.poison)
            && let Some(poison) = poison(&mut self.random, shapes, &entity)
        {
            payload["p"] = json!([poison.workflow, poison.step, poison.kills]);
        }
        if self.random.one_in(60) {
            payload["x"] = "x".repeat(usize::try_from(PAYLOAD_MAX).unwrap_or(0)).into();
        }
        let copies = if self.random.one_in(8) { 2 } else { 1 };
        // A row of a later version: it can be stored and shown, but not read.
        let format = if self.random.one_in(80) { 9 } else { 1 };
        for _ in 0..copies {
            let mut event = self.event(&mut stores[0], options, Kind::Message, &entity, &key);
            event.payload = Some(payload.to_string().into());
            event.dedupe = Some(format!("id-{}", self.messages).into());
            event.format = format;
            into.events.push(PlannedEvent { event, delay_ms: None });
        }
    }

    fn event(&mut self, store: &mut ModelStore, options: &Options, kind: Kind, entity: &Name, key: &Key) -> Event {
        let random = &mut self.random;
        let own = random.per_mille(options.mixed);
        let priority = if own { u8::try_from(random.below(10)).unwrap_or(4) } else { PRIORITY_DEFAULT };
        Event { priority, ..blank(store, kind, entity, key) }
    }
}
