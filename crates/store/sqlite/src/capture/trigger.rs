//! Generates the triggers of one table, as text. Pure: the same table and configuration always give the same text, so
//! that an installed trigger can be compared with it byte by byte.
//!
//! - AFTER UPDATE has no column list: `UPDATE OF id` would miss `SET rowid = …`.
//! - A body names only its own table and the outbox: another table's name breaks migrations that drop and rename.
//! - The inserted row cannot violate a constraint, because an outer `INSERT OR IGNORE` would then silently drop it.

use honeyflow_event::Changes;
use honeyflow_store::{CaptureTable, catalogue::Table};

use super::{
    expression::{any_of, changed, changed_terms, key_present, key_text, payload_items, rowid_name},
    payload::FORMAT,
    quote::{identifier, literal},
    replaced,
};

/// SQLite shows only the name of a trigger that no longer fits its table, so the name says what to do.
pub(super) const NAME_HEAD: &str = "honeyflow: run honeyflow source upgrade (";

/// The outbox's default for a row without a priority.
const PRIORITY_UNNAMED: u8 = honeyflow_event::PRIORITY_DEFAULT;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    pub name: String,
    /// The text exactly as `sqlite_master` stores it.
    pub sql: String,
}

/// Returns all triggers that capture `capture.table`. It does not check the columns: [`super::fits`] does.
pub fn triggers(capture: &CaptureTable, table: &Table) -> Vec<Trigger> {
    let body = Body::new(capture, table);
    let mut triggers = vec![insert(&body), update(&body)];
    triggers.extend(rekey(&body));
    triggers.push(delete(&body));
    triggers.extend(replaced::triggers(&body));
    triggers
}

fn insert(body: &Body<'_>) -> Trigger {
    let row = body.row("NEW", &["new"], &Changed::always(Changes::INSERT));
    body.trigger("insert", "AFTER INSERT", &key_present("NEW", &body.capture.key, body.table), &[row])
}

/// Returns the trigger for the row under its new key. A row that got another key is an insert under that key.
fn update(body: &Body<'_>) -> Trigger {
    let mut conditions = key_present("NEW", &body.capture.key, body.table);
    let mut terms = changed_terms(body.capture, body.table);
    if body.capture.key.is_empty() {
        terms.extend(body.rowid_changed());
    }
    conditions.push(format!("({})", any_of(&terms)));
    let rekeyed = body.rekeyed();
    let change = match &rekeyed[..] {
        [] => literal("update"),
        terms => format!("CASE WHEN {} THEN 'insert' ELSE 'update' END", any_of(terms)),
    };
    let changed = Changed { change: Some(change), columns: body.reported() };
    body.trigger("update", "AFTER UPDATE", &conditions, &[body.row("NEW", &["old", "new"], &changed)])
}

/// Returns the trigger for a changed key: it reports the old key as deleted, and the update trigger reports the new
/// one. None if no key can change.
fn rekey(body: &Body<'_>) -> Option<Trigger> {
    let mut conditions = key_present("OLD", &body.capture.key, body.table);
    let terms = body.rekeyed();
    if terms.is_empty() {
        return None;
    }
    conditions.push(format!("({})", any_of(&terms)));
    let row = body.row("OLD", &["old", "new"], &Changed::always(Changes::DELETE));
    Some(body.trigger("update key", "AFTER UPDATE", &conditions, &[row]))
}

fn delete(body: &Body<'_>) -> Trigger {
    let row = body.row("OLD", &["old"], &Changed::always(Changes::DELETE));
    body.trigger("delete", "AFTER DELETE", &key_present("OLD", &body.capture.key, body.table), &[row])
}

/// What an event says about the change, as expressions. Without them the change is unknown.
#[derive(Default)]
pub(super) struct Changed {
    change: Option<String>,
    columns: Option<String>,
}

impl Changed {
    fn always(change: Changes) -> Changed {
        Changed { change: change.text().as_deref().map(literal), columns: None }
    }
}

/// The parts that the triggers of one table share.
pub(super) struct Body<'a> {
    pub capture: &'a CaptureTable,
    pub table: &'a Table,
}

impl<'a> Body<'a> {
    fn new(capture: &'a CaptureTable, table: &'a Table) -> Body<'a> {
        Body { capture, table }
    }

    pub fn key_text(&self, row: &str) -> String {
        key_text(row, &self.capture.key, rowid_name(self.table).unwrap_or("rowid"))
    }

    fn rowid_changed(&self) -> Option<String> {
        rowid_name(self.table).map(|rowid| format!("OLD.{rowid} IS NOT NEW.{rowid}"))
    }

    /// Returns the conditions under which an update gives the row another key; an empty list if none can.
    fn rekeyed(&self) -> Vec<String> {
        match &self.capture.key[..] {
            [] => self.rowid_changed().into_iter().collect(),
            key => key.iter().map(|part| changed(&part.name, self.table)).collect(),
        }
    }

    /// Returns the expression for the JSON list of the reported columns that an update changed. JSON functions are
    /// missing in some builds of SQLite, so the list is put together from texts.
    fn reported(&self) -> Option<String> {
        let item = |column: &String| {
            let name = literal(&format!(",{}", serde_json::Value::from(column.as_str())));
            format!("CASE WHEN {} THEN {name} ELSE '' END", changed(column, self.table))
        };
        let items: Vec<_> = self.capture.reported.iter().map(item).collect();
        (!items.is_empty()).then(|| format!("'[' || substr({}, 2) || ']'", items.join(" || ")))
    }

    /// Returns `INSERT INTO honeyflow_outbox (entity, …)`, without the values.
    pub fn head(&self, changed: &Changed) -> String {
        let mut columns = "entity, entity_key".to_owned();
        if self.capture.priority != PRIORITY_UNNAMED {
            columns.push_str(", priority");
        }
        if changed.change.is_some() {
            columns.push_str(", change");
        }
        if changed.columns.is_some() {
            columns.push_str(", columns");
        }
        if !self.capture.carried.is_empty() {
            columns.push_str(", format, payload");
        }
        format!("INSERT INTO honeyflow_outbox ({columns})")
    }

    /// Returns the values of an event for the row called `row`; `items` form its payload.
    pub fn values(&self, row: &str, changed: &Changed, items: &[String]) -> String {
        let mut values = format!("{}, {}", literal(&self.capture.table), self.key_text(row));
        if self.capture.priority != PRIORITY_UNNAMED {
            values.push_str(&format!(", {}", self.capture.priority));
        }
        for value in [&changed.change, &changed.columns].into_iter().flatten() {
            values.push_str(&format!(", {value}"));
        }
        if !self.capture.carried.is_empty() {
            values.push_str(&format!(", {FORMAT}, {}", items.join(" || ';' || ")));
        }
        values
    }

    fn row(&self, row: &str, sides: &[&str], changed: &Changed) -> String {
        let items: Vec<_> = sides
            .iter()
            .flat_map(|side| payload_items(side, &side.to_ascii_uppercase(), &self.capture.carried))
            .collect();
        format!("{} VALUES ({})", self.head(changed), self.values(row, changed, &items))
    }

    pub fn trigger(&self, what: &str, when: &str, conditions: &[String], statements: &[String]) -> Trigger {
        let name = format!("{NAME_HEAD}{}) {what}", self.capture.table);
        let table = identifier(&self.table.name);
        let condition =
            if conditions.is_empty() { String::new() } else { format!("\nWHEN {}", conditions.join("\n  AND ")) };
        let statements: String = statements.iter().map(|statement| format!("  {statement};\n")).collect();
        let sql = format!("CREATE TRIGGER {} {when} ON {table}{condition}\nBEGIN\n{statements}END", identifier(&name));
        Trigger { name, sql }
    }
}
