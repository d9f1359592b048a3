//! REPLACE removes a row that collides with the new one without running a DELETE trigger. If the new row's event does
//! not also cover the removed row, BEFORE triggers look up the rows that REPLACE would remove. They may report a row
//! that then stays: a superfluous event costs one load, a missing event means a wrong document.

use honeyflow_store::catalogue::{Unique, UniqueValue};

use super::{
    expression::{any_of, changed, key_present, payload_items, rowid_alias, rowid_name},
    quote::identifier,
    trigger::{Body, Changed, Trigger},
};

/// The alias of the row that would be removed.
const ROW: &str = "r";

pub(super) fn triggers(body: &Body<'_>) -> Vec<Trigger> {
    let collisions: Vec<_> = collisions(body).into_iter().filter(|collision| !collision.covered).collect();
    if collisions.is_empty() {
        return Vec::new();
    }
    let on_insert: Vec<_> = collisions.iter().map(|collision| report(body, &collision.meets)).collect();
    let on_update: Vec<_> = collisions
        .iter()
        .map(|collision| {
            let mut conditions = collision.meets.clone();
            conditions.extend(collision.moved.iter().map(|terms| format!("({})", any_of(terms))));
            conditions.extend(not_itself(body));
            report(body, &conditions)
        })
        .collect();
    let moved: Option<Vec<String>> =
        collisions.iter().map(|collision| collision.moved.clone()).collect::<Option<Vec<_>>>().map(|all| all.concat());
    // An update that does not change a unique value (nearly all updates) does not execute the body.
    let condition: Vec<_> = moved.iter().map(|terms| format!("({})", any_of(terms))).collect();
    vec![
        body.trigger("before insert", "BEFORE INSERT", &[], &on_insert),
        body.trigger("before update", "BEFORE UPDATE", &condition, &on_update),
    ]
}

struct Collision {
    /// Conditions under which the row [`ROW`] collides with NEW.
    meets: Vec<String>,
    /// An update can collide only if one of these conditions holds; none: unknown.
    moved: Option<Vec<String>>,
    /// The removed row's event would be that of the new row: same key, same carried values.
    covered: bool,
}

fn collisions(body: &Body<'_>) -> Vec<Collision> {
    let mut collisions: Vec<_> = body.table.unique.iter().map(|unique| of_index(body, unique)).collect();
    if let Some(rowid) = rowid_name(body.table) {
        let alias = rowid_alias(body.table).map(|column| column.name.as_str());
        collisions.push(Collision {
            meets: vec![format!("{ROW}.{rowid} = NEW.{rowid}")],
            moved: Some(vec![format!("OLD.{rowid} IS NOT NEW.{rowid}")]),
            covered: needed(body).all(|column| alias.is_some_and(|alias| alias.eq_ignore_ascii_case(column))),
        });
    }
    collisions
}

fn of_index(body: &Body<'_>, unique: &Unique) -> Collision {
    let mut meets = Vec::new();
    let mut moved = Some(Vec::new());
    for part in &unique.parts {
        match &part.value {
            UniqueValue::Column(column) => {
                let name = identifier(column);
                meets.push(format!("{ROW}.{name} = NEW.{name} COLLATE {}", identifier(&part.collation)));
                if let Some(terms) = &mut moved {
                    terms.push(changed(column, body.table));
                }
            }
            UniqueValue::Expression(expression) => {
                // The same text in two scopes: inside the subquery, its names refer to the new row's values.
                let new: Vec<_> = body.table.columns.iter().map(|column| identifier(&column.name)).collect();
                let new: Vec<_> = new.iter().map(|name| format!("NEW.{name} AS {name}")).collect();
                meets.push(format!("({expression}) = (SELECT {expression} FROM (SELECT {}))", new.join(", ")));
                moved = None;
            }
        }
    }
    if let Some(filter) = &unique.filter {
        // SQLite could not use the partial index without its filter. A changed column of the filter may add a row to
        // the index.
        meets.push(format!("({filter})"));
        moved = None;
    }
    let holds = |column: &str| {
        unique.parts.iter().any(|part| {
            part.collation.eq_ignore_ascii_case("binary")
                && matches!(&part.value, UniqueValue::Column(name) if name.eq_ignore_ascii_case(column))
        })
    };
    let covered = needed(body).all(holds);
    Collision { meets, moved, covered }
}

/// Returns the columns that form an event. The rowid, which a table without a key writes, does not identify an entity.
fn needed<'a>(body: &Body<'a>) -> impl Iterator<Item = &'a str> {
    let key = body.capture.key.iter().map(|part| part.name.as_str());
    key.chain(body.capture.carried.iter().map(String::as_str))
}

fn not_itself(body: &Body<'_>) -> Option<String> {
    if let Some(rowid) = rowid_name(body.table) {
        return Some(format!("{ROW}.{rowid} IS NOT OLD.{rowid}"));
    }
    let key: Vec<_> = body.table.primary_key().iter().map(|column| identifier(&column.name)).collect();
    let terms: Vec<_> = key.iter().map(|name| format!("{ROW}.{name} IS NOT OLD.{name}")).collect();
    (!terms.is_empty()).then(|| format!("({})", terms.join(" OR ")))
}

fn report(body: &Body<'_>, conditions: &[String]) -> String {
    let mut conditions = conditions.to_vec();
    conditions.extend(key_present(ROW, &body.capture.key, body.table));
    // The statement may still fail or leave the row alone, so what happened to the row is unknown.
    let unknown = Changed::default();
    let values = body.values(ROW, &unknown, &payload_items("old", ROW, &body.capture.carried));
    let table = identifier(&body.table.name);
    format!("{} SELECT {values} FROM {table} AS {ROW} WHERE {}", body.head(&unknown), conditions.join(" AND "))
}
