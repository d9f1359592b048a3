//! `honeyflow explain`: shows everything stored about one key: its events, failures and parked entries, the document as
//! its statement reads it now, and the document that each sink holds. `--code` shows the description of a code.

use std::sync::Arc;

use honeyflow_event::{Event, Key, Kind, Name, document, view::column_names};
use honeyflow_runtime::Failure;
use honeyflow_sink::Stat;
use honeyflow_store::{
    Admin, AdminReply, Load, LoadResult, Reply, Request, Store,
    admin::{ParkedFilter, ParkedRow},
    mismatched_reply,
    write::StoredFailure,
};
use serde_json::{Value, json};

use super::{Context, Fault, Outcome, block_on, no_such, node_client, open, output::age, unexpected, wait_reason};
use crate::{
    codes,
    config::{Config, EntityConfig, SinkConfig},
    escape,
    failures::{self, Entry},
    registry::{self, Database, bind},
};

#[derive(clap::Args)]
#[command(
    override_usage = "honeyflow explain [OPTIONS] <ENTITY> <KEY>\n       honeyflow explain [OPTIONS] --code <CODE>"
)]
pub struct Arguments {
    /// Entity, as in [entity.NAME]
    #[arg(required_unless_present = "code")]
    entity: Option<String>,
    /// Key of the row; the parts of a composite key are joined by `|`
    #[arg(required_unless_present = "code")]
    key: Option<String>,
    /// Describe a code of a failure, problem or refusal: what it means and what to do about it
    #[arg(long, conflicts_with_all = ["entity", "key"])]
    code: Option<String>,
}

const ROWS_MAX: u32 = 20;
const LOAD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The entity to explain.
struct Subject<'a> {
    name: &'a str,
    source: &'a str,
    /// None: it has messages only.
    rows: Option<&'a EntityConfig>,
}

fn subject<'a>(config: &'a Config, name: &str) -> Option<Subject<'a>> {
    let rows =
        config.entity(name).map(|entity| Subject { name: &entity.name, source: &entity.source, rows: Some(entity) });
    let messages = || config.messages.iter().find(|message| *message.name == *name);
    rows.or_else(|| messages().map(|message| Subject { name: &message.name, source: &message.source, rows: None }))
}

struct Story {
    /// None: the entity has messages only.
    row: Option<Result<Option<Arc<Value>>, Failure>>,
    events: Vec<Event>,
    failures: Vec<StoredFailure>,
    parked: Vec<ParkedRow>,
    paused: Vec<honeyflow_store::write::Pause>,
    held: Vec<(String, Option<Stat>)>,
    /// Open runs, as the running node reports them; empty if no node runs here.
    open: Vec<Value>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    match arguments {
        Arguments { code: Some(code), .. } => explain_code(code, context),
        Arguments { entity: Some(entity), key: Some(key), .. } => explain_key(entity, key, context),
        // The parser of the command line demands one of the two.
        _ => Err(Fault::usage("there is nothing to explain", "name an entity and a key, or a code with --code")),
    }
}

fn explain_code(code: &str, context: &Context) -> Result<Outcome, Fault> {
    let entries: Vec<Entry> = failures::all().into_iter().filter(|entry| entry.code == code).collect();
    if entries.is_empty() {
        let help = match failures::nearest_code(code) {
            Some(word) => format!("did you mean `{word}`?"),
            None => "docs/reference/failures.md lists all codes".to_owned(),
        };
        return Err(Fault::usage(format!("there is no code `{code}`"), help));
    }
    if context.output.is_json() {
        entries.iter().try_for_each(|entry| context.output.object(&entry.json()))?;
    } else {
        context.output.print(&entries.iter().map(Entry::text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Outcome::Success)
}

fn explain_key(entity: &str, key: &str, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let entity = &subject(&config, entity).ok_or_else(|| no_such("entity", entity, config.entity_names()))?;
    let key: Key = key.into();
    let mut story = block_on(collect(&config, entity, &key))??;
    story.open = open_runs(&config, entity, &key);
    if context.output.is_json() {
        context.output.object(&as_json(entity, &key, &story))?;
    } else {
        context.output.print(&escape::lines(&as_text(entity, &key, &story)))?;
    }
    Ok(Outcome::Success)
}

async fn collect(config: &Config, entity: &Subject<'_>, key: &Key) -> Result<Story, Failure> {
    let Some(source) = config.source(entity.source) else {
        return Err(Failure::fatal(codes::UNKNOWN_SOURCE, format!("there is no [source.{}]", entity.source)));
    };
    let database = open(config, source).await?;
    // Triggers store the table's name in an event; an application may store the entity's name.
    let mut events = Vec::new();
    let mut names = vec![entity.name];
    names.extend(entity.rows.map(|rows| rows.table.as_str()));
    names.dedup();
    for name in names.into_iter().map(Name::from) {
        match database.admin(Admin::Events { entity: name, key: key.clone(), limit: ROWS_MAX }).await? {
            AdminReply::Events(found) => events.extend(found),
            other => return Err(unexpected(&other)),
        }
    }
    let filter = ParkedFilter { entity: Some(entity.name.into()), key: Some(key.clone()), ..ParkedFilter::default() };
    let parked = match database.admin(Admin::Parked { filter, after: 0, limit: ROWS_MAX }).await? {
        AdminReply::Parked(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let failures = match database.admin(Admin::Failures { limit: 10_000 }).await? {
        AdminReply::Failures(all) => {
            all.into_iter().filter(|charged| *charged.run.entity == *entity.name && charged.run.key == *key).collect()
        }
        other => return Err(unexpected(&other)),
    };
    let paused = match database.admin(Admin::Paused).await? {
        AdminReply::Paused(paused) => paused,
        other => return Err(unexpected(&other)),
    };
    let row = match entity.rows {
        Some(rows) => Some(load(&database, rows, key).await),
        None => None,
    };
    let mut held = Vec::new();
    let holds = |sink: &&SinkConfig| config.entities_into(&sink.name).iter().any(|name| **name == *entity.name);
    for sink in config.sinks.iter().filter(holds) {
        let stat = match registry::reading_sink(sink, config)? {
            Some(index) => index.stat(vec![key.clone()]).await?.into_iter().next().flatten(),
            None => None,
        };
        held.push((sink.name.to_string(), stat));
    }
    Ok(Story { row, events, failures, parked, paused, held, open: Vec::new() })
}

/// Asks the running node for the open runs of the key. Returns an empty list if it does not answer: the stored part
/// is shown anyway.
fn open_runs(config: &Config, entity: &Subject<'_>, key: &Key) -> Vec<Value> {
    let path = format!("/v1/runs?limit=100&key={}", node_client::encode(key));
    let answer = node_client::get(config, &path).ok().flatten();
    let runs = answer.and_then(|mut answer| answer["runs"].as_array_mut().map(std::mem::take));
    runs.unwrap_or_default().into_iter().filter(|run| run["entity"] == *entity.name).collect()
}

async fn load(database: &Database, entity: &EntityConfig, key: &Key) -> Result<Option<Arc<Value>>, Failure> {
    let (bound, problems) = bind(database, &[entity]).await;
    let Some(bound) = bound.into_iter().next() else {
        let why = problems.first().map_or_else(String::new, |problem| problem.message.clone());
        return Err(Failure::fatal(codes::BAD_STATEMENT, why));
    };
    let load = Load { statement: bound.document, keys: vec![key.clone()], expand: None, timeout: LOAD_TIMEOUT };
    match database.store.call(Request::Load(load)).await? {
        Reply::Loaded(loaded) => match loaded.into_iter().next() {
            Some(LoadResult::Document(document)) => Ok(document),
            Some(LoadResult::Rejected(failure)) => Err(failure),
            None => Ok(None),
        },
        other => Err(mismatched_reply(&other)),
    }
}

/// Returns what the event says about the change.
fn change_text(event: &Event) -> String {
    // An event that names its workflow is not judged by its change.
    if event.kind != Kind::Row || event.workflow.is_some() {
        return String::new();
    }
    if event.change.is_unknown() {
        return ", its change is unknown: a workflow whose `on` names `change` passes over it".to_owned();
    }
    let words = event.change.words().collect::<Vec<_>>().join(", ");
    match event.columns.as_deref().map(column_names) {
        Some(columns) if !columns.is_empty() => format!(", {words} of {}", columns.join(", ")),
        _ => format!(", {words}"),
    }
}

/// Compares the document as it is loaded now with the document that a sink holds.
fn verdict(row: Option<&Result<Option<Arc<Value>>, Failure>>, stat: Option<&Stat>) -> &'static str {
    match (row, stat) {
        (None, Some(_)) => "made from messages, which leave no row to compare with",
        (None, None) => "absent",
        (Some(Err(_)), _) => "cannot be compared",
        (Some(Ok(None)), None) => "absent, as is the row",
        (Some(Ok(None)), Some(_)) => "still there, though the row is gone",
        (Some(Ok(Some(_))), None) => "absent",
        // A transform step between load and sink may change the document: then the hashes differ, and nothing is wrong.
        (Some(Ok(Some(row))), Some(stat)) if document::hash(row) == stat.hash => "equal to the row",
        (Some(Ok(Some(_))), Some(_)) => "other than the row as loaded",
    }
}

fn as_json(entity: &Subject<'_>, key: &Key, story: &Story) -> Value {
    let events = story.events.iter().map(|event| {
        json!({ "id": event.id, "kind": event.kind, "priority": event.priority, "workflow": event.workflow.as_deref(), "created_ms": event.created_ms,
                "change": event.change.words().collect::<Vec<_>>(), "columns": event.columns.as_deref().map(column_names) })
    });
    let failures = story.failures.iter().map(|charged| {
        json!({ "workflow": &*charged.run.workflow, "step": &*charged.step, "attempts": charged.attempts,
                "due_in_ms": u64::try_from(charged.due_in.as_millis()).unwrap_or(u64::MAX), "failure": charged.failure })
    });
    let held = story.held.iter().map(|(sink, stat)| {
        json!({ "sink": sink, "version": stat.as_ref().map(|stat| stat.stamp), "verdict": verdict(story.row.as_ref(), stat.as_ref()) })
    });
    json!({
        "entity": entity.name,
        "key": &**key,
        "document": story.row.as_ref().and_then(|row| row.as_ref().ok()?.as_deref().cloned()),
        "error": story.row.as_ref().and_then(|row| row.as_ref().err()),
        "events": events.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
        "parked": story.parked,
        "paused": story.paused,
        "open": story.open,
        "sinks": held.collect::<Vec<_>>(),
    })
}

fn as_text(entity: &Subject<'_>, key: &Key, story: &Story) -> String {
    let mut lines = vec![format!("{} {key}", entity.name)];
    match &story.row {
        None => lines.push("document  none: the entity has messages only".into()),
        Some(Ok(Some(row))) => lines.push(format!("document  {row}")),
        Some(Ok(None)) => lines.push("document  none: there is no such row, or the statement filters it out".into()),
        Some(Err(failure)) => lines.push(format!("document  {} ({})", failure.message, failure.code)),
    }
    if story.events.is_empty() {
        lines.push("events    none waiting".into());
    }
    for event in &story.events {
        let workflow =
            event.workflow.as_deref().map_or_else(String::new, |workflow| format!(", only for workflow {workflow}"));
        let change = change_text(event);
        lines.push(format!("event     {} of priority {}{change}{workflow}", event.id, event.priority));
    }
    for run in &story.open {
        let text = |name: &str| run[name].as_str().unwrap_or_default();
        let (open_for, steps) = (age(run["open_ms"].as_u64().unwrap_or(0)), wait_reason::active_steps(run));
        let at = if steps.is_empty() { String::new() } else { format!(", at {steps}") };
        let sentence = wait_reason::sentence(run);
        lines.push(format!(
            "open      {} for {open_for}{at}, waits for: {}: {sentence}",
            text("workflow"),
            text("waits_for")
        ));
    }
    for charged in &story.failures {
        lines.push(format!(
            "failing   {}.{}: {} ({}), {} attempts so far, next in {}",
            charged.run.workflow,
            charged.step,
            charged.failure.message,
            charged.failure.code,
            charged.attempts,
            age(u64::try_from(charged.due_in.as_millis()).unwrap_or(u64::MAX))
        ));
    }
    for parked in &story.parked {
        lines.push(format!(
            "parked    {}: {} ({}), step {}; honeyflow parked retry {}",
            parked.id, parked.message, parked.code, parked.step, parked.id
        ));
    }
    for pause in &story.paused {
        lines.push(format!("paused    {} {}: {}", pause.noun, pause.name, pause.why));
    }
    for (sink, stat) in &story.held {
        let version = stat.as_ref().map_or_else(String::new, |stat| format!("version {}, ", stat.stamp));
        lines.push(format!("sink      {sink}: {version}{}", verdict(story.row.as_ref(), stat.as_ref())));
    }
    lines.join("\n") + "\n"
}
