//! What `check` finds beyond the file: whether it fits its databases, what a document reads without being told of its
//! changes, and whether the set-up is sound.

pub mod delivery;
pub mod reads;
pub mod setup;
mod table;

use std::path::Path;

use honeyflow_store::{Columns, catalogue::Table};
use honeyflow_workflow::{Problem, Severity, problem::nearest};

use crate::{
    config::{Config, EdgeBy, EntityConfig, SourceConfig, sinks_of, warning},
    registry::{Bound, Database, bind, problem},
};
use reads::{Reads, reads};

/// What was found out about one source.
pub struct Examined {
    pub source: String,
    /// None if it cannot be opened.
    pub database: Option<Database>,
    pub bound: Vec<Bound>,
    /// Tables and columns that each document reads, where its statement can be understood.
    pub reads: Vec<(String, Reads)>,
    pub problems: Vec<Problem>,
}

pub async fn examine(config: &Config, source: &SourceConfig) -> Examined {
    let folder = config.file.parent().unwrap_or(Path::new(""));
    let mut examined = Examined {
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
                look_at_reads(entity, &found, &database, &mut examined.problems);
                examined.reads.push((entity.name.to_string(), found));
            }
            Err(reason) => {
                // where the database itself refuses the statement, that has been said
                if bound.iter().any(|bound| bound.entity.name == entity.name) {
                    let message = format!("which tables this statement reads cannot be told: {reason}");
                    let help = "see to it that every table in it has an edge";
                    examined.problems.push(warning(
                        format!("entity.{}.document", entity.name),
                        "not-understood",
                        &message,
                        help,
                    ));
                }
            }
        }
    }
    for bound in &bound {
        look_at_plan(&database, bound, &examined.reads, &mut examined.problems).await;
    }
    look_at_fields(config, &bound, &mut examined.problems);
    table::look_at_tables(config, &database, &bound, &mut examined.problems).await;
    examined.bound = bound;
    examined.database = Some(database);
    examined
}

/// A table without an edge would change without its documents: refused. A column that is not watched: a warning, since
/// it may be left out on purpose.
fn look_at_reads(entity: &EntityConfig, reads: &Reads, database: &Database, problems: &mut Vec<Problem>) {
    let path = format!("entity.{}.document", entity.name);
    for name in &reads.tables {
        let same = |other: &String| other.eq_ignore_ascii_case(name);
        let tracked = same(&entity.table)
            || entity.edges.iter().any(|edge| same(&edge.table))
            || entity.untracked.iter().any(same);
        // what the database does not know has been refused by it
        let Some(table) = database.catalogue.table(name).filter(|_| !tracked) else { continue };
        let what = if table.view { "the view" } else { "the table" };
        let message = format!("the document reads {what} `{name}`, but a change of it would not reach the document");
        let help = format!(
            "add [[entity.{}.edge]] with table = {name:?}, or say that it never changes: untracked = [{name:?}]",
            entity.name
        );
        problems.push(Problem::error(&*path, "no-edge", message).help(help));
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
            let problem = Problem::error(&*path, "unwatched-column", message)
                .help("add it to `columns`, unless that is what you want");
            problems.push(Problem { severity: Severity::Warning, ..problem });
        }
    }
}

/// A batch should find its rows by the whole key: a row value `in` uses only the first column of an index.
async fn look_at_plan(database: &Database, bound: &Bound, reads: &[(String, Reads)], problems: &mut Vec<Problem>) {
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
        "compare the key column itself with `in $keys`, and see to it that it has an index"
    };
    problems.push(warning(format!("entity.{}.document", entity.name), "slow-plan", &message, help));
}

/// A field that no document has is never found by; nearly always it is misspelt. Told only where the document goes from
/// its load straight into the sink.
fn look_at_fields(config: &Config, bound: &[Bound], problems: &mut Vec<Problem>) {
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
                problems.push(warning(format!("sink.{into}.field.{}", field.name), "unknown-field", &message, &help));
            }
        }
    }
}

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
