//! The variables that an expression of a step sees beside its input: the same as any other expression of the workflow.

use std::sync::Arc;

use honeyflow_step::Item;
use honeyflow_workflow::{Expression, Variables};

/// Returns the variables of an item; `$event` only if an expression reads it, to save the copy.
pub fn for_item(item: &Item, expressions: &[Expression]) -> Variables {
    let reads_event = expressions.iter().flat_map(Expression::variables).any(|name| name == "$event");
    let context = item.context.as_deref().cloned().unwrap_or_default();
    Variables {
        event: reads_event.then(|| Arc::new(item.event.as_json())),
        run: context.run,
        steps: context.steps,
        item: context.item,
        index: Some(item.index),
    }
}
