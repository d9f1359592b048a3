//! What an expression of a step sees beside its input: `$event` and `$index` of the item. `$run`, `$steps` and `$item`
//! reach a step through its `input`, and are `null` here.

use std::sync::Arc;

use honeyflow_step::Item;
use honeyflow_workflow::{Expression, Variables};

/// For expressions that use them; others are not worth the copy.
pub fn of(item: &Item, expressions: &[Expression]) -> Variables {
    let is_read = expressions.iter().any(|expression| expression.source.contains("$event"));
    Variables {
        event: is_read.then(|| Arc::new(item.event.as_json())),
        index: Some(item.index),
        ..Variables::default()
    }
}
