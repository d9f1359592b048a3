//! An event as the expressions of one run see it: `$event`.
//!
//! A run may serve several rows, and a row of another table may have begun it. So `entity` and `key` are those of the
//! run, `change` and `columns` are united over its rows, and `cause` names the row of the other table.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Changes, Event, EventId, Target};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventView {
    /// The newest event of the run.
    pub newest: Arc<Event>,
    /// The entity and key that the run works on.
    pub target: Target,
    /// What the newest event changed, from the view of the target.
    pub newest_change: Changes,
    /// What all events of the run changed.
    pub change: Changes,
    /// The `columns` of all events of the run.
    pub columns: Vec<Arc<str>>,
}

impl EventView {
    /// Returns the view of one event that leads to `target`; `change` is what it means for the target.
    pub fn new(event: Arc<Event>, target: Target, change: Changes) -> EventView {
        let columns = own_columns(&event, change).into_iter().collect();
        EventView { newest: event, target, newest_change: change, change, columns }
    }

    /// Adds an older event of the same run.
    pub fn add(&mut self, event: &Event, change: Changes) {
        self.change = self.change.union(change);
        self.columns.extend(own_columns(event, change));
    }

    /// Returns the value of `$event`. The payload is JSON if it can be read as JSON, else a text. An event of another
    /// table shows its cause and no payload: that payload describes a row of the other table.
    pub fn as_json(&self) -> Value {
        let Event { id, kind, tenant, priority, created_ms, .. } = &*self.newest;
        let cause = self.cause();
        json!({
            "id": id,
            "kind": kind,
            "tenant": &**tenant,
            "entity": &*self.target.entity,
            "key": &*self.target.key,
            "priority": priority,
            "time": created_ms,
            "change": self.change.words().collect::<Vec<_>>(),
            "columns": self.changed_columns(),
            "payload": if cause.is_none() { self.payload() } else { None },
            "cause": cause,
        })
    }

    fn payload(&self) -> Option<Value> {
        let text = self.newest.payload.as_deref()?;
        Some(serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())))
    }

    /// Returns the row of another table that began the run: the newest event itself, or the one that its row was made
    /// for.
    fn cause(&self) -> Option<Value> {
        if !self.newest_change.intersects(Changes::RELATED) {
            return None;
        }
        if self.newest.change.intersects(Changes::RELATED) {
            return self.payload().and_then(|mut payload| payload.get_mut("cause").map(Value::take));
        }
        let Event { entity, key, id, .. } = &*self.newest;
        Some(cause(entity, key, *id))
    }

    /// Returns the newest event as a stored copy of it has it: under the entity and key of the target.
    pub fn stored(&self) -> Event {
        let Target { entity, key } = self.target.clone();
        let (change, columns, payload) = (self.change, self.stored_columns(), self.stored_payload());
        Event { entity, key, change, columns, payload, ..(*self.newest).clone() }
    }

    /// Returns the payload that a stored copy of the newest event keeps, so that the copy shows the same `cause`.
    pub fn stored_payload(&self) -> Option<Arc<str>> {
        let by_edge =
            self.newest_change.intersects(Changes::RELATED) && !self.newest.change.intersects(Changes::RELATED);
        let Event { entity, key, id, .. } = &*self.newest;
        if by_edge { Some(related_payload(entity, key, *id)) } else { self.newest.payload.clone() }
    }

    /// Returns the names of the changed columns as a JSON list; none if no event has any.
    pub fn stored_columns(&self) -> Option<Arc<str>> {
        match &self.columns[..] {
            [] => None,
            [only] => Some(only.clone()),
            _ => Some(json!(self.changed_columns()).to_string().into()),
        }
    }

    fn changed_columns(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in self.columns.iter().flat_map(|text| column_names(text)) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }
}

/// Returns the changed columns of the target's own row; those of another table's row are none of it.
fn own_columns(event: &Event, change: Changes) -> Option<Arc<str>> {
    event.columns.clone().filter(|_| !change.intersects(Changes::RELATED))
}

/// Returns the payload of a row that is written for a target because an event of another table leads to it.
pub fn related_payload(entity: &str, key: &str, id: EventId) -> Arc<str> {
    json!({ "cause": cause(entity, key, id) }).to_string().into()
}

fn cause(entity: &str, key: &str, id: EventId) -> Value {
    json!({ "entity": entity, "key": key, "id": id })
}

/// Reads the outbox column `columns`. A text that is no list of names says nothing.
pub fn column_names(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, PRIORITY_DEFAULT};

    fn event(entity: &str, key: &str, change: Changes) -> Event {
        Event {
            id: 7,
            format: 1,
            kind: Kind::Row,
            tenant: "".into(),
            entity: entity.into(),
            key: key.into(),
            priority: PRIORITY_DEFAULT,
            workflow: None,
            created_ms: 1_000,
            dedupe: None,
            traceparent: None,
            root: None,
            change,
            columns: None,
            payload: Some(r#"{"new":{"order_id":1}}"#.into()),
        }
    }

    fn order() -> Target {
        Target { entity: "order".into(), key: "1".into() }
    }

    #[test]
    fn an_event_of_another_table_shows_the_runs_key_and_its_cause() {
        let line = Event { columns: Some(r#"["amount"]"#.into()), ..event("line", "1|2", Changes::UPDATE) };
        let view = EventView::new(Arc::new(line), order(), Changes::RELATED);
        let value = view.as_json();
        assert_eq!((&value["columns"], view.stored_columns()), (&json!([]), None), "the columns are the line's");
        assert_eq!((&value["entity"], &value["key"]), (&json!("order"), &json!("1")));
        assert_eq!(value["cause"], json!({ "entity": "line", "key": "1|2", "id": 7 }));
        assert_eq!((&value["change"], &value["payload"]), (&json!(["related"]), &Value::Null));
    }

    #[test]
    fn a_row_made_for_the_target_shows_the_same_cause() {
        let line = event("line", "1|2", Changes::INSERT);
        let view = EventView::new(Arc::new(line), order(), Changes::RELATED);
        let copy = Event { id: 8, ..view.stored() };
        assert_eq!((&*copy.entity, &*copy.key, copy.change), ("order", "1", Changes::RELATED));
        let copied = EventView::new(Arc::new(copy), order(), Changes::RELATED).as_json();
        assert_eq!(copied["cause"], view.as_json()["cause"]);
        assert_eq!(copied["payload"], Value::Null);
    }

    #[test]
    fn an_event_of_the_entity_itself_has_no_cause() {
        let view = EventView::new(Arc::new(event("orders", "1", Changes::UPDATE)), order(), Changes::UPDATE);
        let value = view.as_json();
        assert_eq!((&value["cause"], &value["payload"]["new"]["order_id"]), (&Value::Null, &json!(1)));
    }

    #[test]
    fn changes_and_columns_are_united_over_the_events_of_a_run() {
        let columns = |text: &str| Some(text.into());
        let newest = Event { columns: columns(r#"["state","note"]"#), ..event("order", "1", Changes::UPDATE) };
        let mut view = EventView::new(Arc::new(newest), order(), Changes::UPDATE);
        view.add(
            &Event { columns: columns(r#"["state","paid"]"#), ..event("order", "1", Changes::UPDATE) },
            Changes::UPDATE,
        );
        view.add(&event("order", "1", Changes::INSERT), Changes::INSERT);
        view.add(&event("order", "1", Changes::UNKNOWN), Changes::UNKNOWN);
        let value = view.as_json();
        assert_eq!(value["change"], json!(["insert", "update"]));
        assert_eq!(value["columns"], json!(["state", "note", "paid"]));
        assert_eq!(view.stored_columns().as_deref(), Some(r#"["state","note","paid"]"#));
    }

    #[test]
    fn unknown_is_an_empty_list() {
        let bad = Event { columns: Some("state".into()), ..event("order", "1", Changes::UNKNOWN) };
        let value = EventView::new(Arc::new(bad), order(), Changes::UNKNOWN).as_json();
        assert_eq!((&value["change"], &value["columns"]), (&json!([]), &json!([])));
    }
}
