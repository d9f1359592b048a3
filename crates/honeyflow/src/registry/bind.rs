//! Binds the configured entities to the database: every name must exist in its catalogue, every key must have a type,
//! and the database must be able to prepare every statement. The intake and the load step use the result.

use std::sync::Arc;

use honeyflow_runtime::Failure;
use honeyflow_source_outbox::{self as outbox, Entity, FanOutMode};
use honeyflow_store::{Columns, KeyColumn, Statement, catalogue::Table};
use honeyflow_workflow::{Problem, problem::nearest};

use super::Database;
use crate::{
    codes,
    config::{self, EdgeConfig, EntityConfig, FanOut},
};

/// An entity that fits its database.
#[derive(Clone, Debug)]
pub struct BoundEntity {
    pub entity: Entity,
    pub document: Arc<Statement>,
    /// Columns of the document statement's result.
    pub result: Vec<String>,
}

/// Binds all entities of one source. If there are problems, the entities without problems are still returned.
pub async fn bind(database: &Database, entities: &[&EntityConfig]) -> (Vec<BoundEntity>, Vec<Problem>) {
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
) -> Option<BoundEntity> {
    let path = format!("entity.{}", config.name);
    let table = find_table(database, &config.table, &format!("{path}.table"), &path, problems)?;
    check_columns(table, &config.key, &format!("{path}.key"), problems)?;
    let key = typed_key(database, table, &config.key, &format!("{path}.key"), problems).await?;
    check_watched_columns(table, &config.columns, &format!("{path}.columns"), problems);
    check_reported_columns(table, config, problems);
    let document = Statement {
        place: format!("{path}.document"),
        text: config.document.clone(),
        key: key.clone(),
        result_key: key.clone(),
        json: config.json.clone(),
    };
    let document = Arc::new(document);
    let result = prepare_statement(database, &document, problems).await;
    if let Some(result) = &result {
        for (n, json) in config.json.iter().enumerate().filter(|(_, json)| !result.contains(json)) {
            let problem = Problem::error(
                format!("{path}.json[{n}]"),
                codes::problem::UNKNOWN_COLUMN,
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
        reported: config.reported.clone(),
        edges,
        priority: config.priority,
    };
    Some(BoundEntity { entity, document, result: result? })
}

async fn bind_edge(
    database: &Database,
    all: &[&EntityConfig],
    entity: &EntityConfig,
    edge: &EdgeConfig,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<outbox::Edge> {
    let table = find_table(database, &edge.table, &format!("{path}.table"), path, problems)?;
    check_watched_columns(table, &edge.columns, &format!("{path}.columns"), problems);
    // If the table is an entity, too, its rows are captured under that entity's key.
    let configured =
        all.iter().find(|other| other.table.eq_ignore_ascii_case(&edge.table)).map(|other| other.key.clone());
    let key = configured.unwrap_or_else(|| table.primary_key().iter().map(|column| column.name.clone()).collect());
    let table_key = typed_key(database, table, &key, &format!("{path}.table"), problems).await?;
    let by = match &edge.by {
        config::EdgeBy::Key(columns) => {
            check_columns(table, columns, &format!("{path}.key"), problems)?;
            if columns.len() != entity.key.len() {
                let message = format!(
                    "the key of `{}` has {} parts, but this names {}",
                    entity.name,
                    entity.key.len(),
                    columns.len()
                );
                problems.push(
                    Problem::error(format!("{path}.key"), codes::problem::BAD_EDGE, message)
                        .help("name one column for each part of the entity's key, in the same order"),
                );
                return None;
            }
            outbox::EdgeBy::Key(columns.clone())
        }
        config::EdgeBy::Statement(_) if table_key.is_empty() => {
            let message = format!("`{}` has no primary key, so `$keys` cannot identify its rows", edge.table);
            problems.push(
                Problem::error(format!("{path}.to"), codes::problem::NO_TABLE_KEY, message)
                    .help("use `key` with columns that contain the entity's key"),
            );
            return None;
        }
        config::EdgeBy::Statement(text) => {
            let statement = Arc::new(Statement {
                place: format!("{path}.to"),
                text: text.clone(),
                key: table_key.clone(),
                result_key: Vec::new(),
                json: Vec::new(),
            });
            let result = prepare_statement(database, &statement, problems).await?;
            if result.len() != entity.key.len() {
                let message = format!(
                    "the key of `{}` has {} parts, the statement returns {} columns",
                    entity.name,
                    entity.key.len(),
                    result.len()
                );
                problems.push(
                    Problem::error(format!("{path}.to"), codes::problem::BAD_EDGE, message)
                        .help("name one column for each part of the entity's key, in the same order"),
                );
                return None;
            }
            outbox::EdgeBy::Statement(statement)
        }
    };
    let fan_out = match edge.fan_out {
        FanOut::All => FanOutMode::All,
        FanOut::Shallow => FanOutMode::Shallow,
        FanOut::None => FanOutMode::None,
    };
    Some(outbox::Edge { table: table.name.clone(), table_key, columns: edge.columns.clone(), by, fan_out })
}

/// Finds a table, or reports that it does not exist or is a view. `above` is the path of the section.
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
                Problem::error(path, codes::problem::A_VIEW, message)
                    .help("name the table that contains the rows; the document may read the view"),
            );
            None
        }
        Some(table) => Some(table),
        None => {
            let tables =
                || database.catalogue.tables.iter().filter(|table| !table.view).map(|table| table.name.as_str());
            let problem =
                Problem::error(path, codes::problem::UNKNOWN_TABLE, format!("the database has no table `{name}`"));
            problems.push(match nearest(name, tables()) {
                Some(word) => problem.help(format!("did you mean `{word}`?")),
                None => problem.help(format!("it has {}", tables().take(12).collect::<Vec<_>>().join(", "))),
            });
            let _ = above;
            None
        }
    }
}

fn check_columns(table: &Table, columns: &[String], path: &str, problems: &mut Vec<Problem>) -> Option<()> {
    let mut known = Some(());
    for (n, name) in columns.iter().enumerate().filter(|(_, name)| table.column(name).is_none()) {
        let problem = Problem::error(
            format!("{path}[{n}]"),
            codes::problem::UNKNOWN_COLUMN,
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

fn check_watched_columns(table: &Table, columns: &Columns, path: &str, problems: &mut Vec<Problem>) {
    if let Columns::Some(names) = columns {
        check_columns(table, names, path, problems);
    }
}

/// Reports columns that a workflow names, but of which no update can be reported.
fn check_reported_columns(table: &Table, config: &EntityConfig, problems: &mut Vec<Problem>) {
    for name in &config.reported {
        let is_key = config.key.iter().any(|key| key.eq_ignore_ascii_case(name));
        let (code, message, help) = if table.column(name).is_none() {
            let message =
                format!("a workflow names the column `{name}`, which the table `{}` does not have", table.name);
            let nearest = nearest(name, table.columns.iter().map(|column| column.name.as_str()));
            let help =
                nearest.map_or_else(|| "name one of its columns".to_owned(), |word| format!("did you mean `{word}`?"));
            (codes::problem::UNKNOWN_COLUMN, message, help)
        } else if is_key {
            let message =
                format!("a workflow asks for updates of `{name}`, which is the key: another key is another row");
            (codes::problem::BAD_CHANGE, message, "use change = [\"insert\", \"delete\"]".to_owned())
        } else if !config.columns.contains(name) {
            let message = format!("a workflow asks for changes of `{name}`, which make no event");
            (codes::problem::BAD_CHANGE, message, "add it to `columns`".to_owned())
        } else {
            continue;
        };
        problems.push(Problem::error(format!("entity.{}.columns", config.name), code, message).help(help));
    }
}

async fn typed_key(
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

async fn prepare_statement(
    database: &Database,
    statement: &Arc<Statement>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<String>> {
    match database.prepare(Arc::clone(statement)).await {
        Ok(columns) => Some(columns),
        Err(failure) => {
            problems.push(problem(&statement.place, &failure));
            None
        }
    }
}

/// Turns a failure into a problem at a path. The path is removed from the message, and the part after `; ` becomes the
/// hint.
pub fn problem(path: &str, failure: &Failure) -> Problem {
    let code = match &failure.code {
        std::borrow::Cow::Borrowed(code) => code,
        std::borrow::Cow::Owned(_) => codes::problem::FAILED,
    };
    let message = failure.message.strip_prefix(&format!("{path}: ")).unwrap_or(&failure.message);
    match message.split_once("; ") {
        Some((message, help)) => Problem::error(path, code, message).help(help),
        None => Problem::error(path, code, message),
    }
}
