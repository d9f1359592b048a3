//! Generates function and triggers of one table, as text. Pure: the same table and configuration always give the same
//! text, so that an installed function can be compared with it byte by byte.
//!
//! - The function runs with the rights of its owner, so the application needs none. Its search path is fixed, and its
//!   expressions do not depend on the session's settings.
//! - The UPDATE trigger compares in its WHEN clause, with NULL equal to NULL: an update of unused columns never enters
//!   the function.

use honeyflow_event::{Changes, document};
use honeyflow_store::{CaptureTable, Columns};

use super::{
    fit,
    found::{FoundColumn, FoundTable},
};
use crate::{key_text, literal};

pub(super) const INSERT: &str = "honeyflow_insert";
pub(super) const UPDATE: &str = "honeyflow_update";
pub(super) const DELETE: &str = "honeyflow_delete";
pub(super) const TRUNCATE: &str = "honeyflow_truncate";
pub(super) const NAMES: [&str; 4] = [INSERT, UPDATE, DELETE, TRUNCATE];

const FUNCTION_HEAD: &str = "honeyflow_capture_";
/// The longest name of a function, in bytes; the server cuts longer ones.
const NAME_BYTES_MAX: usize = 63;

/// The task that compares the documents that read a table with its rows, and its state until that is done.
const COMPARISON: &str = "compare";
const OWED: &str = "owed";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Texts {
    pub function: Function,
    pub triggers: Vec<Trigger>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Function {
    /// The body exactly as the catalogue stores it.
    pub body: String,
    pub sql: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trigger {
    pub name: &'static str,
    pub sql: String,
}

/// Returns all texts for a table that fits. `schema` is that of Honeyflow's tables.
pub(super) fn texts(capture: &CaptureTable, table: &FoundTable, schema: &str) -> Texts {
    let name = format!("{}.{}", literal::name(schema), literal::name(&function_name(&capture.table)));
    let body = Body { capture, table, schema }.text();
    let quoted = match body.contains("$honeyflow$") {
        true => literal::text(&body),
        false => format!("$honeyflow${body}$honeyflow$"),
    };
    let sql = format!(
        "create or replace function {name}() returns trigger language plpgsql security definer \
         set search_path = pg_catalog, pg_temp as {quoted}"
    );
    let on = format!("{}.{}", literal::name(&table.schema), literal::name(&table.name));
    let trigger = |name: &'static str, when: &str, each: &str| {
        let own = literal::name(name);
        let function = literal::name(&function_name(&capture.table));
        let sql = format!(
            "create trigger {own} after {when} on {on} {each}\n  execute function {}.{function}()",
            literal::name(schema)
        );
        Trigger { name, sql }
    };
    let changed = changed(&compared(capture, table));
    let triggers = vec![
        trigger(INSERT, "insert", "for each row"),
        trigger(UPDATE, "update", &format!("for each row\n  when ({changed})")),
        trigger(DELETE, "delete", "for each row"),
        trigger(TRUNCATE, "truncate", "for each statement"),
    ];
    Texts { function: Function { body, sql }, triggers }
}

/// Returns the name of a table's function, shortened if the server would cut it.
pub(super) fn function_name(table: &str) -> String {
    let whole = format!("{FUNCTION_HEAD}{table}");
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    let hash = format!("_{:016x}", document::hash(&serde_json::Value::from(table)));
    let mut end = NAME_BYTES_MAX - hash.len();
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hash}", &whole[..end])
}

/// Returns the columns whose change makes an event. A column that is computed when it is read stands for the others.
pub(super) fn compared<'a>(capture: &CaptureTable, table: &'a FoundTable) -> Vec<&'a FoundColumn> {
    let named = fit::named(capture);
    let is_named = |column: &&FoundColumn| named.contains(&column.name.as_str());
    let all =
        capture.watched == Columns::All || table.columns.iter().any(|column| is_named(&column) && column.is_virtual);
    let stored = table.columns.iter().filter(|column| !column.is_virtual);
    stored.filter(|column| all || is_named(column)).collect()
}

/// Returns the condition that one of the columns differs. It is null-safe, and tells values apart that are equal but read
/// differently. A dump of the database writes it in a form that can be restored, which it does not for a comparison of
/// records.
fn changed(columns: &[&FoundColumn]) -> String {
    let differs = |column: &&FoundColumn| {
        let side = |row: &str| {
            let value = format!("{row}.{}", literal::name(&column.name));
            match column.kind.as_str() {
                "smallint"
                | "integer"
                | "bigint"
                | "boolean"
                | "uuid"
                | "bytea"
                | "real"
                | "double precision"
                | "date"
                | "timestamp without time zone"
                | "timestamp with time zone" => value,
                "text" | "character varying" => format!("{value} collate \"C\""),
                // Types without equality, and those for which 1.0 is 1.00, or Foo is foo.
                _ => format!("{value}::text collate \"C\""),
            }
        };
        format!("({}) is distinct from ({})", side("old"), side("new"))
    };
    columns.iter().map(differs).collect::<Vec<_>>().join(" or ")
}

struct Body<'a> {
    capture: &'a CaptureTable,
    table: &'a FoundTable,
    schema: &'a str,
}

impl Body<'_> {
    fn text(&self) -> String {
        let own = |name: &str| format!("{}.{}", literal::name(self.schema), literal::name(name));
        let (outbox, task) = (own("honeyflow_outbox"), own("honeyflow_task"));
        let entity = literal::text(&self.capture.table);
        let (old_key, new_key) = (self.key("old"), self.key("new"));
        let (old_side, new_side) = self.payload_sides();
        let insert = |key: &str, change: Changes| self.insert(&outbox, &entity, key, change);
        let (comparison, owed) = (literal::text(COMPARISON), literal::text(OWED));
        format!(
            "
declare
  old_key text;
  new_key text;{declared}
begin
  if tg_op = 'TRUNCATE' then
    insert into {task} (noun, name, state) values ({comparison}, {entity}, {owed})
      on conflict (noun, name) do update set state = excluded.state;
    return null;
  end if;
  if tg_op <> 'INSERT' then
    old_key := {old_key};{old_side}
  end if;
  if tg_op <> 'DELETE' then
    new_key := {new_key};{new_side}
  end if;
  if {is_update} then
    {update}
    return null;
  end if;
  if old_key is not null then
    {delete}
  end if;
  if new_key is not null then
    {create}
  end if;
  return null;
end ",
            declared = if self.capture.carried.is_empty() { "" } else { "\n  old_side text;\n  new_side text;" },
            is_update = if self.capture.key.is_empty() { "tg_op = 'UPDATE'" } else { "old_key = new_key" },
            update = insert("new_key", Changes::UPDATE),
            delete = insert("old_key", Changes::DELETE),
            create = insert("new_key", Changes::INSERT),
        )
    }

    /// Returns the expression for the key text; NULL if a part is. A table without a key writes its carried columns,
    /// which may be NULL: the payload tells them apart.
    fn key(&self, row: &str) -> String {
        let value = |name: &str| format!("{row}.{}", literal::name(name));
        let parts: Vec<String> = match &self.capture.key[..] {
            [] => self.carried().map(|column| format!("coalesce({}, '')", text_of(row, column))).collect(),
            key => key.iter().map(|part| key_text::of_column(&value(&part.name), part.kind)).collect(),
        };
        match &parts[..] {
            [only] => only.clone(),
            parts => {
                let escaped = |part: &String| format!("replace(replace({part}, E'\\\\', E'\\\\\\\\'), '|', E'\\\\|')");
                parts.iter().map(escaped).collect::<Vec<_>>().join(" || '|' || ")
            }
        }
    }

    fn carried(&self) -> impl Iterator<Item = &FoundColumn> {
        self.capture.carried.iter().filter_map(|name| self.table.column(name))
    }

    /// Returns the statements that fill the two sides of the payload.
    fn payload_sides(&self) -> (String, String) {
        if self.capture.carried.is_empty() {
            return (String::new(), String::new());
        }
        let side = |row: &str| {
            let items: Vec<String> = self
                .carried()
                .map(|column| {
                    let name = literal::text(&format!("{}:", serde_json::Value::from(column.name.as_str())));
                    format!("{name} || coalesce({}, 'null')", json_of(row, column))
                })
                .collect();
            format!("\n    {row}_side := '{{' || {} || '}}';", items.join(" || ',' || "))
        };
        (side("old"), side("new"))
    }

    fn insert(&self, outbox: &str, entity: &str, key: &str, change: Changes) -> String {
        let mut columns = "entity, entity_key, change".to_owned();
        let mut values = format!("{entity}, {key}, {}", literal::text(&change.text().unwrap_or_default()));
        if self.capture.priority != honeyflow_event::PRIORITY_DEFAULT {
            columns.push_str(", priority");
            values.push_str(&format!(", {}", self.capture.priority));
        }
        if change == Changes::UPDATE && !self.capture.reported.is_empty() {
            columns.push_str(", columns");
            values.push_str(&format!(", {}", self.reported()));
        }
        if !self.capture.carried.is_empty() {
            columns.push_str(", payload");
            values.push_str(", '{' || concat_ws(',', '\"old\":' || old_side, '\"new\":' || new_side) || '}'");
        }
        format!("insert into {outbox} ({columns})\n      values ({values});")
    }

    /// Returns the expression for the JSON list of the reported columns that an update changed.
    fn reported(&self) -> String {
        let item = |column: &FoundColumn| {
            let name = literal::text(&serde_json::Value::from(column.name.as_str()).to_string());
            format!("case when {} then {name} end", changed(&[column]))
        };
        let columns = self.capture.reported.iter().filter_map(|name| self.table.column(name));
        format!("'[' || concat_ws(',', {}) || ']'", columns.map(item).collect::<Vec<_>>().join(", "))
    }
}

/// The comparison bytewise, whatever the column's collation.
fn text_of(row: &str, column: &FoundColumn) -> String {
    let value = format!("{row}.{}", literal::name(&column.name));
    format!("({} collate \"C\")", key_text::of_type(&value, &column.kind))
}

fn json_of(row: &str, column: &FoundColumn) -> String {
    let value = format!("{row}.{}", literal::name(&column.name));
    match column.kind.as_str() {
        "smallint" | "integer" | "bigint" => format!("{value}::text"),
        "bytea" => format!("'{{\"blob\":\"' || encode({value}, 'hex') || '\"}}'"),
        kind => format!("to_json({})::text", key_text::of_type(&value, kind)),
    }
}
