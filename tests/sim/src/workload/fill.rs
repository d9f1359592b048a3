//! The first fill, a reindex and repairs: now and then the rows of an entity are queued again although nothing has
//! changed them, one event per row and workflow. Such an event names its workflow and leads to nothing else.

use honeyflow_event::{Event, Kind, Name, PRIORITY_REINDEX};

use super::{Application, PlannedEvent, RowKey, Transaction, blank, store_of};
use crate::{
    model_store::ModelStore,
    options::{MILLI, Options},
    random::Random,
    shapes::{Shape, Shapes},
};

const ROWS_MAX: usize = 5;

#[derive(Debug)]
pub struct Fills {
    random: Random,
}

impl Fills {
    pub fn new(seed: u64) -> Fills {
        Fills { random: Random::new(seed ^ 0x5EED_0207) }
    }

    /// Returns the transaction of one page, or none, which is the usual case.
    pub fn begin(
        &mut self,
        application: &Application,
        stores: &mut [ModelStore],
        shapes: &Shapes,
        options: &Options,
    ) -> Option<(u64, Transaction)> {
        if !self.random.one_in(50) {
            return None;
        }
        let entities: &[&str] = if options.stores > 1 { &["book", "tag", "item"] } else { &["book", "tag"] };
        let entity: Name = (*self.random.pick(entities)).into();
        // Workflows without a sink are not reached.
        let is_reached = |shape: &&Shape| shape.entity == entity && !shape.sinks.is_empty();
        let workflows: Vec<&Name> = shapes.workflows.iter().filter(is_reached).map(|shape| &shape.graph.name).collect();
        let workflow = if workflows.is_empty() { return None } else { (*self.random.pick(&workflows)).clone() };
        let alive = application.rows.iter().filter(|((of, _), row)| *of == entity && row.alive);
        let places: Vec<RowKey> = alive.map(|(place, _)| place.clone()).take(ROWS_MAX).collect();
        let store = store_of(&entity);
        // A repair is as urgent as a change.
        let is_repair = self.random.one_in(4);
        let mut event = |(entity, key): RowKey| {
            let event = blank(&mut stores[store], Kind::Row, &entity, &key);
            let priority = if is_repair { event.priority } else { PRIORITY_REINDEX };
            PlannedEvent { event: Event { workflow: Some(workflow.clone()), priority, ..event }, delay_ms: None }
        };
        let events: Vec<PlannedEvent> = places.into_iter().map(&mut event).collect();
        let transaction = Transaction { store, writes: Vec::new(), events, rolls_back: false };
        (!transaction.events.is_empty()).then_some((MILLI, transaction))
    }
}
