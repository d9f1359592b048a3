//! Entities as configured, held against the database: every name must be in its catalogue, every key must have a type,
//! every statement must be one that can be prepared. What comes out is what intake and load work with.

use std::sync::Arc;

use honeyflow_runtime::Failure;
use honeyflow_source_outbox::{Edge, EdgeBy as BoundBy, Entity, FanOutMode};
use honeyflow_store::{Columns, KeyColumn, Statement, catalogue::Table};
use honeyflow_workflow::{Problem, problem::nearest};

use super::Database;
use crate::config::{EdgeBy, EdgeConfig, EntityConfig, FanOut};

/// An entity that fits its database.
#[derive(Clone, Debug)]
pub struct Bound {
    pub entity: Entity,
    pub document: Arc<Statement>,
    /// Columns of the document statement's result.
    pub result: Vec<String>,
}

/// Binds all entities of one source. With problems, what could be bound is still returned.
pub async fn bind(database: &Database, entities: &[&EntityConfig]) -> (Vec<Bound>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut bound = Vec::new();
    for entity in entities {
        bound.extend(bind_entity(database, entities, entity, &mut problems).await);
    }
    (bound, problems)
}

async fn bind_entity(
    database: &Database,
    all: &[&EntityConfig],
    config: &EntityConfig,
    problems: &mut Vec<Problem>,
) -> Option<Bound> {
    let path = format!("entity.{}", config.name);
    let table = find_table(database, &config.table, &format!("{path}.table"), &path, problems)?;
    known_columns(table, &config.key, &format!("{path}.key"), problems)?;
    let key = typed(database, table, &config.key, &format!("{path}.key"), problems).await?;
    watched_columns(table, &config.columns, &format!("{path}.columns"), problems);
    let document = Statement {
        place: format!("{path}.document"),
        text: config.document.clone(),
        key: key.clone(),
        result_key: key.clone(),
        json: config.json.clone(),
    };
    let document = Arc::new(document);
    let result = prepared(database, &document, problems).await;
    if let Some(result) = &result {
        for (n, json) in config.json.iter().enumerate().filter(|(_, json)| !result.contains(json)) {
            let problem = Problem::error(
                format!("{path}.json[{n}]"),
                "unknown-column",
                format!("the document has no column `{json}`"),
            );
            problems.push(problem.nearest(json, result.iter().map(String::as_str)));
        }
    }
    let mut edges = Vec::new();
    for (n, edge) in config.edges.iter().enumerate() {
        let path = format!("{path}.edge[{n}]");
        edges.extend(bind_edge(database, all, config, edge, &path, problems).await);
    }
    let entity = Entity {
        name: config.name.clone(),
        table: table.name.clone(),
        key,
        columns: config.columns.clone(),
        edges,
        priority: config.priority,
    };
    Some(Bound { entity, document, result: result? })
}

async fn bind_edge(
    database: &Database,
    all: &[&EntityConfig],
    entity: &EntityConfig,
    edge: &EdgeConfig,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<Edge> {
    let table = find_table(database, &edge.table, &format!("{path}.table"), path, problems)?;
    watched_columns(table, &edge.columns, &format!("{path}.columns"), problems);
    // where the table is an entity too, its rows are captured under that entity's key
    let configured =
        all.iter().find(|other| other.table.eq_ignore_ascii_case(&edge.table)).map(|other| other.key.clone());
    let key = configured.unwrap_or_else(|| table.primary_key().iter().map(|column| column.name.clone()).collect());
    let table_key = typed(database, table, &key, &format!("{path}.table"), problems).await?;
    let by = match &edge.by {
        EdgeBy::Key(columns) => {
            known_columns(table, columns, &format!("{path}.key"), problems)?;
            if columns.len() != entity.key.len() {
                let message = format!(
                    "the key of `{}` has {} parts, this names {}",
                    entity.name,
                    entity.key.len(),
                    columns.len()
                );
                problems.push(
                    Problem::error(format!("{path}.key"), "bad-edge", message)
                        .help("one column for each part of the entity's key, in its order"),
                );
                return None;
            }
            BoundBy::Key(columns.clone())
        }
        EdgeBy::Statement(_) if table_key.is_empty() => {
            let message =
                format!("`{}` has no primary key, so that `$keys` would have nothing to name its rows by", edge.table);
            problems.push(
                Problem::error(format!("{path}.to"), "no-table-key", message)
                    .help("use `key` with columns that are the entity's key"),
            );
            return None;
        }
        EdgeBy::Statement(text) => {
            let statement = Arc::new(Statement {
                place: format!("{path}.to"),
                text: text.clone(),
                key: table_key.clone(),
                result_key: Vec::new(),
                json: Vec::new(),
            });
            let result = prepared(database, &statement, problems).await?;
            if result.len() != entity.key.len() {
                let message = format!(
                    "the key of `{}` has {} parts, the statement returns {} columns",
                    entity.name,
                    entity.key.len(),
                    result.len()
                );
                problems.push(
                    Problem::error(format!("{path}.to"), "bad-edge", message)
                        .help("one column for each part of the entity's key, in its order"),
                );
                return None;
            }
            BoundBy::Statement(statement)
        }
    };
    let fan_out = match edge.fan_out {
        FanOut::All => FanOutMode::All,
        FanOut::Shallow => FanOutMode::Shallow,
        FanOut::None => FanOutMode::None,
    };
    Some(Edge { table: table.name.clone(), table_key, columns: edge.columns.clone(), by, fan_out })
}

/// `above`: where to show it if the key `table` is not written.
fn find_table<'a>(
    database: &'a Database,
    name: &str,
    path: &str,
    above: &str,
    problems: &mut Vec<Problem>,
) -> Option<&'a Table> {
    match database.catalogue.table(name) {
        Some(table) if table.view => {
            let message = format!("`{name}` is a view: its changes cannot be captured");
            problems.push(
                Problem::error(path, "a-view", message)
                    .help("name the table that holds the rows; the document may read the view"),
            );
            None
        }
        Some(table) => Some(table),
        None => {
            let tables =
                || database.catalogue.tables.iter().filter(|table| !table.view).map(|table| table.name.as_str());
            let problem = Problem::error(path, "unknown-table", format!("the database has no table `{name}`"));
            problems.push(match nearest(name, tables()) {
                Some(word) => problem.help(format!("did you mean `{word}`?")),
                None => problem.help(format!("it has {}", tables().take(12).collect::<Vec<_>>().join(", "))),
            });
            let _ = above;
            None
        }
    }
}

fn known_columns(table: &Table, columns: &[String], path: &str, problems: &mut Vec<Problem>) -> Option<()> {
    let mut known = Some(());
    for (n, name) in columns.iter().enumerate().filter(|(_, name)| table.column(name).is_none()) {
        let problem = Problem::error(
            format!("{path}[{n}]"),
            "unknown-column",
            format!("the table `{}` has no column `{name}`", table.name),
        );
        let columns = || table.columns.iter().map(|column| column.name.as_str());
        problems.push(match nearest(name, columns()) {
            Some(word) => problem.help(format!("did you mean `{word}`?")),
            None => problem.help(format!("it has {}", columns().take(20).collect::<Vec<_>>().join(", "))),
        });
        known = None;
    }
    known
}

fn watched_columns(table: &Table, columns: &Columns, path: &str, problems: &mut Vec<Problem>) {
    if let Columns::Some(names) = columns {
        known_columns(table, names, path, problems);
    }
}

async fn typed(
    database: &Database,
    table: &Table,
    columns: &[String],
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<Vec<KeyColumn>> {
    match database.key(table, columns).await {
        Ok(key) => Some(key),
        Err(failure) => {
            problems.push(problem(path, &failure));
            None
        }
    }
}

async fn prepared(database: &Database, statement: &Arc<Statement>, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    match database.prepare(Arc::clone(statement)).await {
        Ok(columns) => Some(columns),
        Err(failure) => {
            problems.push(problem(&statement.place, &failure));
            None
        }
    }
}

/// A failure as a problem at its place, which the message need not name again.
pub fn problem(path: &str, failure: &Failure) -> Problem {
    let code = match &failure.code {
        std::borrow::Cow::Borrowed(code) => code,
        std::borrow::Cow::Owned(_) => "failed",
    };
    let message = failure.message.strip_prefix(&format!("{path}: ")).unwrap_or(&failure.message);
    match message.split_once("; ") {
        Some((message, help)) => Problem::error(path, code, message).help(help),
        None => Problem::error(path, code, message),
    }
}
