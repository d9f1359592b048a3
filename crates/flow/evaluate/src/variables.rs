//! What an expression of a step sees beside its input: `$event` and `$index` of the item. `$run`, `$steps` and `$item`
//! reach a step through its `input`, and are `null` here.

use std::sync::Arc;

use honeyflow_event::Event;
use honeyflow_step::Item;
use honeyflow_workflow::{Expression, Variables};
use serde_json::{Value, json};

/// For expressions that use them; others are not worth the copy.
pub fn of(item: &Item, expressions: &[Expression]) -> Variables {
    let is_read = expressions.iter().any(|expression| expression.source.contains("$event"));
    Variables { event: is_read.then(|| Arc::new(event(&item.event))), index: Some(item.index), ..Variables::default() }
}

/// `$event`: the payload as JSON where it is JSON, else as text.
pub fn event(event: &Event) -> Value {
    let payload = event
        .payload
        .as_deref()
        .map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())));
    json!({
        "id": event.id,
        "kind": event.kind,
        "tenant": &*event.tenant,
        "entity": &*event.entity,
        "key": &*event.key,
        "priority": event.priority,
        "time": event.created_ms,
        "payload": payload,
    })
}
