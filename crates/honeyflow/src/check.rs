//! The checks of `honeyflow check` beyond the file itself: whether the configuration fits the databases, whether a
//! document reads tables whose changes make no event, and whether the set-up is secure.

pub mod delivery;
pub mod reads;
pub mod setup;
mod table;

use std::path::Path;

use honeyflow_store::{Columns, catalogue::Table};
use honeyflow_workflow::{Problem, Severity, problem::nearest};

use crate::{
    codes,
    config::{Config, EdgeBy, EntityConfig, SourceConfig, sinks_of, warning},
    registry::{BoundEntity, Database, bind, problem},
};
use reads::{Reads, reads};

/// The result of the checks of one source.
pub struct SourceReport {
    pub source: String,
    /// The source's database; none if it cannot be opened.
    pub database: Option<Database>,
    pub bound: Vec<BoundEntity>,
    /// The tables and columns that each document reads, where its statement can be parsed.
    pub reads: Vec<(String, Reads)>,
    pub problems: Vec<Problem>,
}

pub async fn examine(config: &Config, source: &SourceConfig) -> SourceReport {
    let folder = config.file.parent().unwrap_or(Path::new(""));
    let mut examined = SourceReport {
        source: source.name.to_string(),
        database: None,
        bound: Vec::new(),
        reads: Vec::new(),
        problems: Vec::new(),
    };
    let database = match Database::open(source, folder).await {
        Ok(database) => database,
        Err(failure) => {
            examined.problems.push(problem(&format!("source.{}.url", source.name), &failure));
            return examined;
        }
    };
    let entities: Vec<&EntityConfig> = config.entities_of(&source.name).collect();
    let (bound, problems) = bind(&database, &entities).await;
    examined.problems.extend(problems);
    for entity in entities {
        match reads(&entity.document) {
            Ok(found) => {
                check_reads(entity, &found, &database, &mut examined.problems);
                examined.reads.push((entity.name.to_string(), found));
            }
            Err(reason) => {
                // If the database itself refuses the statement, that has already been reported.
                if bound.iter().any(|bound| bound.entity.name == entity.name) {
                    let message = format!("cannot determine which tables this statement reads: {reason}");
                    let help = "make sure that every table in it has an edge";
                    examined.problems.push(warning(
                        format!("entity.{}.document", entity.name),
                        codes::problem::NOT_UNDERSTOOD,
                        &message,
                        help,
                    ));
                }
            }
        }
    }
    for bound in &bound {
        check_query_plan(&database, bound, &examined.reads, &mut examined.problems).await;
    }
    check_fields(config, &bound, &mut examined.problems);
    table::check_tables(config, &database, &bound, &mut examined.problems).await;
    examined.bound = bound;
    examined.database = Some(database);
    examined
}

/// Reports tables and columns whose changes would not reach the document. A table without an edge is an error. A column
/// that is not watched is a warning, because the user may have left it out on purpose.
fn check_reads(entity: &EntityConfig, reads: &Reads, database: &Database, problems: &mut Vec<Problem>) {
    let path = format!("entity.{}.document", entity.name);
    for name in &reads.tables {
        let same = |other: &String| other.eq_ignore_ascii_case(name);
        let tracked = same(&entity.table)
            || entity.edges.iter().any(|edge| same(&edge.table))
            || entity.untracked.iter().any(same);
        // A table that does not exist has already been reported by the database.
        let Some(table) = database.catalogue.table(name).filter(|_| !tracked) else { continue };
        let what = if table.view { "the view" } else { "the table" };
        let message = format!("the document reads {what} `{name}`, but a change of it would not reach the document");
        let help = format!(
            "add [[entity.{}.edge]] with table = {name:?}, or declare that it never changes: untracked = [{name:?}]",
            entity.name
        );
        problems.push(Problem::error(&*path, codes::problem::NO_EDGE, message).help(help));
    }
    for table in database
        .catalogue
        .tables
        .iter()
        .filter(|table| reads.tables.iter().any(|name| name.eq_ignore_ascii_case(&table.name)))
    {
        let unwatched = unwatched(entity, table, reads);
        if !unwatched.is_empty() {
            let names = unwatched.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!("the document reads {names} of `{}`, but a change of it makes no event", table.name);
            let problem = Problem::error(&*path, codes::problem::UNWATCHED_COLUMN, message)
                .help("add it to `columns`, unless this is intended");
            problems.push(Problem { severity: Severity::Warning, ..problem });
        }
    }
}

/// Warns if a batch does not find its rows by the whole key: a row value with `in` uses only the first column of an
/// index.
async fn check_query_plan(
    database: &Database,
    bound: &BoundEntity,
    reads: &[(String, Reads)],
    problems: &mut Vec<Problem>,
) {
    let entity = &bound.entity;
    let reads = reads.iter().find(|(name, _)| **name == *entity.name);
    let Some(alias) = reads.and_then(|(_, reads)| reads.alias(&entity.table)) else { return };
    let Ok(plan) = database.query_plan(&bound.document).await else { return };
    let step = |verb: &str| {
        let of_table = |line: &&String| {
            line.strip_prefix(verb)
                .and_then(|rest| rest.strip_prefix(alias))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        plan.iter().find(of_table)
    };
    let parts = entity.key.len();
    let message = match (step("SCAN "), step("SEARCH ")) {
        (Some(_), _) => format!("every batch reads the whole table `{}`", entity.table),
        (None, Some(search)) if search.matches("=?").count() < parts => {
            format!("a batch finds its rows in `{}` by fewer columns than the key has ({parts})", entity.table)
        }
        _ => return,
    };
    let help = if parts > 1 {
        "write `join $keys k on …` with every part of the key instead of `in $keys`; an index must begin with these columns"
    } else {
        "compare the key column itself with `in $keys`, and make sure that it has an index"
    };
    problems.push(warning(format!("entity.{}.document", entity.name), codes::problem::SLOW_PLAN, &message, help));
}

/// Warns about a sink field that no document has: it is nearly always misspelt. Checked only where the document goes
/// directly from its load into the sink.
fn check_fields(config: &Config, bound: &[BoundEntity], problems: &mut Vec<Problem>) {
    for workflow in &config.workflows {
        let [on] = &workflow.on[..] else { continue };
        let Some(bound) = bound.iter().find(|bound| bound.entity.name == on.entity) else { continue };
        for (name, into) in sinks_of(workflow) {
            let step = workflow.steps.iter().find(|step| step.name == *name && step.input.is_none());
            let load = step.and_then(|step| step.needs.first()).map(|need| &need.step);
            let plain = workflow
                .steps
                .iter()
                .any(|step| Some(&step.name) == load && &*step.kind == "sql.load" && step.settings.is_empty());
            let Some(sink) = config.sink(into).filter(|_| plain) else { continue };
            for field in sink.fields.iter().filter(|field| !bound.result.contains(&field.name)) {
                let message = format!("the documents of `{}` have no field `{}`", on.entity, field.name);
                let help = match nearest(&field.name, bound.result.iter().map(String::as_str)) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("they have {}", bound.result.join(", ")),
                };
                problems.push(warning(
                    format!("sink.{into}.field.{}", field.name),
                    codes::problem::UNKNOWN_FIELD,
                    &message,
                    &help,
                ));
            }
        }
    }
}

/// The columns that the document reads but whose changes make no event.
fn unwatched<'a>(entity: &EntityConfig, table: &'a Table, reads: &Reads) -> Vec<&'a str> {
    let same = |name: &str| name.eq_ignore_ascii_case(&table.name);
    let own = same(&entity.table).then_some(&entity.columns);
    let edges: Vec<_> = entity.edges.iter().filter(|edge| same(&edge.table)).collect();
    let lists: Vec<&Columns> = own.into_iter().chain(edges.iter().map(|edge| &edge.columns)).collect();
    if lists.is_empty() {
        return Vec::new();
    }
    let is_key = |name: &str| {
        let own_key = same(&entity.table) && entity.key.iter().any(|key| key.eq_ignore_ascii_case(name));
        let carried = edges.iter().any(
            |edge| matches!(&edge.by, EdgeBy::Key(columns) if columns.iter().any(|key| key.eq_ignore_ascii_case(name))),
        );
        own_key || carried
    };
    let used =
        table.columns.iter().filter(|column| column.key_position.is_none() && reads.uses(&table.name, &column.name));
    used.map(|column| column.name.as_str())
        .filter(|name| !is_key(name) && !lists.iter().any(|list| list.contains(name)))
        .collect()
}
