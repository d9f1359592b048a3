//! The second generator, written independently of the first: nothing for a while, then much at once. A burst is a
//! typical action of an application: a key is rewritten repeatedly, a whole table is touched in one transaction, a row
//! is deleted and created again, an import runs in chunks, many messages are sent, or transactions commit in the
//! opposite order of their ids.

use honeyflow_event::{Event, Key, Kind, Name};
use serde_json::json;

use super::{Application, PlannedEvent, Poison, RowKey, Transaction, blank, poison, store_of};
use crate::{
    model_store::ModelStore,
    options::{MILLI, Options, SECOND},
    random::Random,
    shapes::{PAYLOAD_MAX, Shapes},
};

#[derive(Debug)]
pub struct Bursts {
    random: Random,
    message: u64,
}

/// The input of a generator, and the transactions that it adds.
struct Draft<'a> {
    application: &'a mut Application,
    stores: &'a mut [ModelStore],
    shapes: &'a Shapes,
    options: &'a Options,
    begun: Vec<(u64, Transaction)>,
}

impl Bursts {
    pub fn new(seed: u64) -> Bursts {
        Bursts { random: Random::new(seed ^ 0x5EED_0006), message: 0 }
    }

    pub fn begin(
        &mut self,
        application: &mut Application,
        stores: &mut [ModelStore],
        shapes: &Shapes,
        options: &Options,
    ) -> (Vec<(u64, Transaction)>, u64) {
        let mut draft = Draft { application, stores, shapes, options, begun: Vec::new() };
        match self.random.below(7) {
            0 => self.rewrite_one(&mut draft),
            1 => self.touch_many(&mut draft),
            2 => self.delete_and_create_again(&mut draft),
            3 => self.import(&mut draft),
            4 => self.heap_of_messages(&mut draft),
            5 => self.commit_backwards(&mut draft),
            _ => self.one(&mut draft),
        }
        let size = draft.begun.iter().map(|(_, transaction)| transaction.events.len() as u64).sum::<u64>().max(1);
        (draft.begun, self.random.between(options.change_every_us / 2, options.change_every_us * 3 / 2) * size)
    }

    fn entity(&mut self, draft: &Draft<'_>) -> Name {
        let mut entities = vec!["book", "tag", "book", "tag"];
        if draft.options.stores > 1 {
            entities.extend(["item", "item"]);
        }
        if draft.options.authors > 0 {
            entities.push("author");
        }
        (*self.random.pick(&entities)).into()
    }

    fn place(&mut self, draft: &Draft<'_>, entity: &Name) -> RowKey {
        let bound = if **entity == *"author" { draft.options.authors } else { draft.options.keys };
        let number = if self.random.per_mille(draft.options.hot) { 0 } else { self.random.below(bound) };
        (entity.clone(), format!("{}{number}", &entity[..1]).into())
    }

    /// Adds a change of the row. Returns false if another transaction has locked it.
    fn change(&mut self, draft: &mut Draft<'_>, into: &mut Transaction, place: &RowKey, lives: bool) -> bool {
        if !draft.application.lock(place) {
            return false;
        }
        let guilty = lives && self.random.per_mille(draft.options.poison);
        let poison: Option<Poison> = if guilty { poison(&mut self.random, draft.shapes, &place.0) } else { None };
        into.writes.push((place.clone(), lives, poison));
        let event = self.event(draft, Kind::Row, &place.0, &place.1);
        let delay_ms = self.random.one_in(40).then(|| self.random.between(100, 3000));
        into.events.push(PlannedEvent { event, delay_ms });
        true
    }

    fn event(&mut self, draft: &mut Draft<'_>, kind: Kind, entity: &Name, key: &Key) -> Event {
        let mut event = blank(&mut draft.stores[store_of(entity)], kind, entity, key);
        if self.random.per_mille(draft.options.mixed / 2) {
            event.priority = u8::try_from(self.random.below(10)).unwrap_or(0);
        }
        event
    }

    fn empty(&mut self, entity: &str) -> Transaction {
        let rolls_back = self.random.one_in(25);
        Transaction { store: store_of(entity), writes: Vec::new(), events: Vec::new(), rolls_back }
    }

    fn send(&mut self, draft: &mut Draft<'_>, after: u64, transaction: Transaction) {
        if transaction.events.is_empty() {
            return;
        }
        let late = self.random.per_mille(draft.options.long_transactions);
        let after = if late { after + self.random.between(SECOND, 4 * SECOND) } else { after };
        draft.application.late_commits += u64::from(late && !transaction.rolls_back);
        draft.begun.push((after, transaction));
    }

    fn one(&mut self, draft: &mut Draft<'_>) {
        let entity = self.entity(draft);
        let place = self.place(draft, &entity);
        let mut transaction = self.empty(&entity);
        self.change(draft, &mut transaction, &place, true);
        self.send(draft, MILLI, transaction);
    }

    /// Writes many events of one row in one transaction, as a trigger per statement does.
    fn rewrite_one(&mut self, draft: &mut Draft<'_>) {
        let entity = self.entity(draft);
        let place = self.place(draft, &entity);
        let mut transaction = self.empty(&entity);
        if self.change(draft, &mut transaction, &place, true) {
            for _ in 0..self.random.between(1, 6) {
                let event = self.event(draft, Kind::Row, &place.0, &place.1);
                transaction.events.push(PlannedEvent { event, delay_ms: None });
            }
        }
        self.send(draft, MILLI, transaction);
    }

    fn touch_many(&mut self, draft: &mut Draft<'_>) {
        let entity = self.entity(draft);
        let mut transaction = self.empty(&entity);
        for _ in 0..self.random.between(3, 8) {
            let place = self.place(draft, &entity);
            self.change(draft, &mut transaction, &place, true);
        }
        self.send(draft, 5 * MILLI, transaction);
    }

    /// Deletes a row and creates it again within a few milliseconds: the last change must win.
    fn delete_and_create_again(&mut self, draft: &mut Draft<'_>) {
        let entity = self.entity(draft);
        let place = self.place(draft, &entity);
        let mut transaction = self.empty(&entity);
        if !self.change(draft, &mut transaction, &place, false) {
            return;
        }
        if self.random.one_in(2) {
            // Both are in one transaction: only the last state is ever visible.
            let event = self.event(draft, Kind::Row, &place.0, &place.1);
            transaction.events.push(PlannedEvent { event, delay_ms: None });
            transaction.writes[0].1 = true;
        }
        self.send(draft, MILLI, transaction);
    }

    fn import(&mut self, draft: &mut Draft<'_>) {
        let entity = self.entity(draft);
        for chunk in 0..self.random.between(2, 4) {
            let mut transaction = self.empty(&entity);
            for _ in 0..3 {
                let place = self.place(draft, &entity);
                self.change(draft, &mut transaction, &place, true);
            }
            transaction.events.iter_mut().for_each(|planned| planned.event.priority = 8);
            self.send(draft, chunk * 3 * MILLI, transaction);
        }
    }

    fn heap_of_messages(&mut self, draft: &mut Draft<'_>) {
        let entity: Name = "msg".into();
        let mut transaction = self.empty(&entity);
        for _ in 0..self.random.between(2, 8) {
            self.message += 1;
            let key: Key = format!("m{}", self.message).into();
            let mut event = self.event(draft, Kind::Message, &entity, &key);
            let length = match self.random.below(30) {
                0 => PAYLOAD_MAX,
                1 => 0,
                _ => self.random.below(60),
            };
            let mut payload = json!({ "c": self.message, "x": "y".repeat(usize::try_from(length).unwrap_or(0)) });
            if self.random.per_mille(draft.options.poison)
                && let Some(poison) = poison(&mut self.random, draft.shapes, &entity)
            {
                payload["p"] = json!([poison.workflow, poison.step, poison.kills]);
            }
            event.payload = Some(payload.to_string().into());
            event.dedupe = Some(format!("heap-{}", self.message).into());
            event.format = if self.random.one_in(50) { 3 } else { 1 };
            transaction.events.push(PlannedEvent { event, delay_ms: None });
        }
        self.send(draft, 2 * MILLI, transaction);
    }

    /// Three transactions get their ids in turn and commit in the opposite order.
    fn commit_backwards(&mut self, draft: &mut Draft<'_>) {
        for turn in 0..3 {
            let entity = self.entity(draft);
            let place = self.place(draft, &entity);
            let mut transaction = self.empty(&entity);
            self.change(draft, &mut transaction, &place, true);
            self.send(draft, (4 - turn) * 300 * MILLI, transaction);
            draft.application.late_commits += 1;
        }
    }
}
