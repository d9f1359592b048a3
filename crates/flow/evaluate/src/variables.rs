//! The variables that an expression of a step sees beside its input: the same as any other expression of the workflow.

use std::sync::Arc;

use honeyflow_event::{EventView, Target};
use honeyflow_step::Item;
use honeyflow_workflow::{Expression, Variables};

/// Returns the variables of an item. An item without a context shows its own event as `$event`, if an expression reads it.
pub fn for_item(item: &Item, expressions: &[Expression]) -> Variables {
    let reads_event = expressions.iter().flat_map(Expression::variables).any(|name| name == "$event");
    let context = item.context.as_deref().cloned().unwrap_or_default();
    Variables {
        event: context.event.or_else(|| reads_event.then(|| Arc::new(event(item).as_json()))),
        run: context.run,
        steps: context.steps,
        item: context.item,
        index: Some(item.index),
    }
}

fn event(item: &Item) -> EventView {
    let target = Target { entity: item.entity.clone(), key: item.key.clone() };
    EventView::new(item.event.clone(), target, item.event.change)
}
