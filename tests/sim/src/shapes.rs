//! The workflows of a seed: a few fixed ones, and drawn graphs. The product's own reader compiles them for the cores.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_engine::core::plan::{EntityPlan, Plan, SourcePlan, WorkflowPlan};
use honeyflow_event::Name;
use honeyflow_workflow::{
    Catalogue, Checkpoint, Graph, Kind, Role, Setting, SettingValue, StepId, compile, definition::read,
};
use serde_json::{Map, Value, json};

use crate::{options::Options, random::Random, workload::store_of};

/// The workflow that begins for inserted books alone.
pub const PLACED: &str = "book_p";
pub const PAYLOAD_MAX: u64 = 150;
const FOR: &[Setting] = &[Setting { name: "for", required: true, value: SettingValue::Duration, doc: "how long" }];
const AWAITS: &[Setting] = &[
    Setting { name: "name", required: true, value: SettingValue::Text, doc: "of the events" },
    Setting { name: "key", required: false, value: SettingValue::Expression, doc: "their key" },
    Setting { name: "match", required: false, value: SettingValue::Expression, doc: "which of them" },
    Setting { name: "on-timeout", required: false, value: SettingValue::Word(&["fail", "skip"]), doc: "if none comes" },
];
const KINDS: &[&str] = &["expression", "load", "work", "call", "index", "sleep", "emit", "await"];

/// A workflow, with what the world needs to know about it.
#[derive(Clone, Debug)]
pub struct Shape {
    pub entity: Name,
    pub graph: Arc<Graph>,
    /// The value from which it was read, for the output.
    pub value: Value,
    /// The sink that a step writes, by step.
    pub sinks: BTreeMap<StepId, usize>,
    /// Whether its documents may come from a load before the last one.
    pub resumes: bool,
    /// The step whose checkpoint must have committed before the sinks write.
    pub journals: Option<StepId>,
    /// A step whose failure has an effect that depends on timing.
    pub undecided: Option<StepId>,
    /// How long its sinks have to wait, in milliseconds.
    pub sleeps_ms: u64,
}

#[derive(Debug)]
pub struct Shapes {
    pub plan: Arc<Plan>,
    /// The same plan with the versions swapped: runs that begin under one plan can continue under the other.
    reversed: Option<Arc<Plan>>,
    /// The database that a source reads, by source.
    pub stores: Vec<usize>,
    pub workflows: Vec<Shape>,
    pub sinks: Vec<Name>,
}

impl Shapes {
    /// The plan of an incarnation.
    pub fn plan_of(&self, incarnation: u64) -> Arc<Plan> {
        let reversed = self.reversed.as_ref().filter(|_| incarnation.is_multiple_of(2));
        reversed.unwrap_or(&self.plan).clone()
    }

    /// The number of a workflow by its position in a plan, independent of its version.
    pub fn number(&self, planned: usize) -> usize {
        planned % self.workflows.len()
    }

    /// How long a run of the workflow may take.
    pub fn deadline_ms(&self, workflow: &str) -> Option<i64> {
        let shape = self.workflows.iter().find(|shape| *shape.graph.name == *workflow)?;
        shape.graph.definition.deadline.and_then(|deadline| i64::try_from(deadline.as_millis()).ok())
    }
}

fn catalogue(batch_max: u32) -> Catalogue {
    let kind = |name, role, checkpoint, settings| Kind {
        name,
        settings,
        role,
        checkpoint,
        batch_max,
        timeout: Duration::from_secs(2),
    };
    Catalogue::new(vec![
        kind("load", Role::Load, Checkpoint::Never, &[]),
        kind("work", Role::Work, Checkpoint::Never, &[]),
        kind("call", Role::Work, Checkpoint::Always, &[]),
        kind("index", Role::Sink, Checkpoint::Never, &[]),
        kind("sleep", Role::Sleep, Checkpoint::Always, FOR),
        kind("emit", Role::Emit, Checkpoint::Always, &[]),
        kind("await", Role::Wait, Checkpoint::Always, AWAITS),
    ])
}

pub fn draw(options: &Options) -> Shapes {
    let mut random = Random::new(options.seed ^ 0x5EED_0001);
    let r = &mut random;
    let catalogue = catalogue(options.batch_max);
    let tries = r.between(1, 3);
    let mut drawn: Vec<(&str, &str, Value)> = vec![("book_a", "book", plain(tries))];
    if options.second > 0 {
        let mut value = called(tries);
        if r.one_in(4) {
            value["exclusion"] = "workflow".into();
        }
        drawn.push(("book_b", "book", value));
    }
    if options.filtered > 0 {
        drawn.push((PLACED, "book", placed(options, tries)));
    }
    if options.stores > 1 {
        let value = if r.one_in(2) { plain(tries) } else { called(tries) };
        drawn.push(("item_w", "item", value));
    }
    let mut special = match options.graph {
        0 => diamond(tries),
        1 => optional(tries),
        2 => for_each(r, tries),
        3 => conditional(tries),
        4 => sleepy(options, tries),
        5 => emitter(tries),
        6 => stopper(tries),
        7 => waiter(r, tries),
        _ => loop {
            let value = random_graph(r, options.graph_steps, tries);
            let readable = read("tag_x", &value, &catalogue).ok();
            if readable.is_some_and(|definition| compile(&definition, 1, &catalogue).is_ok()) {
                break value;
            }
        },
    };
    if options.deadline_ms > 0 {
        special["deadline"] = format!("{}ms", options.deadline_ms).into();
    }
    drawn.push(("tag_x", "tag", special));
    drawn.push(("msg_w", "msg", message(tries)));
    drawn.push(("note_w", "note", message(tries)));
    if options.permits > 0 {
        limit_some(&mut Random::new(options.seed ^ 0x5EED_0073), &mut drawn);
    }
    assemble(options, &catalogue, drawn)
}

/// Puts some steps under limits; several steps may share one.
fn limit_some(r: &mut Random, drawn: &mut [(&str, &str, Value)]) {
    for (_, _, value) in drawn {
        let Some(steps) = value["step"].as_object_mut() else { continue };
        for step in steps.values_mut().filter_map(Value::as_object_mut) {
            let works = matches!(step.get("use").and_then(Value::as_str), Some("load" | "work" | "call" | "index"));
            if works && r.one_in(3) {
                step.insert("limit".to_owned(), "api".into());
            }
        }
    }
}

fn assemble(options: &Options, catalogue: &Catalogue, drawn: Vec<(&str, &str, Value)>) -> Shapes {
    let mut workflows = Vec::new();
    let (mut plans, mut others) = (Vec::new(), Vec::new());
    let mut targets: Vec<Name> = vec!["database".into(), "somewhere".into()];
    let mut sinks: Vec<Name> = Vec::new();
    for (name, entity, value) in drawn {
        let definition = read(name, &value, catalogue).unwrap_or_else(|problems| panic!("{problems:#?}\n{value:#}"));
        let compiled = |version| {
            let graph = compile(&definition, version, catalogue);
            Arc::new(graph.unwrap_or_else(|problems| panic!("{problems:#?}\n{value:#}")))
        };
        let graph = compiled(1);
        let mut of_step = BTreeMap::new();
        let (mut kinds, mut aims) = (Vec::new(), Vec::new());
        for (step, compiled) in (0_u16..).zip(&graph.steps) {
            let kind = KINDS.iter().position(|kind| **kind == *compiled.kind).unwrap_or(0);
            kinds.push(u16::try_from(kind).unwrap_or(0));
            aims.push(match compiled.role {
                Role::Load => 0,
                Role::Sink => {
                    of_step.insert(step, sinks.len());
                    let sink: Name = format!("{name}.{}", compiled.name).into();
                    sinks.push(sink.clone());
                    targets.push(sink);
                    u16::try_from(targets.len() - 1).unwrap_or(0)
                }
                _ => 1,
            });
        }
        plans.push(WorkflowPlan {
            name: name.into(),
            older: false,
            graph: graph.clone(),
            priority: None,
            exclusion: graph.definition.exclusion,
            order: graph.definition.order,
            kinds,
            targets: aims,
        });
        if options.versions > 1 {
            let planned = plans.last().expect("just pushed");
            others.push(WorkflowPlan { graph: compiled(2), ..planned.clone() });
        }
        let resumes = graph.steps.iter().any(|step| step.checkpoint == Checkpoint::Always);
        let undecided = graph.step("risky");
        let journals = graph.step("make").or(graph.step("right")).filter(|step| &*graph[*step].kind == "call");
        let sleeps_ms = graph.step("wait").map_or(0, |_| sleep_ms(options));
        let entity = entity.into();
        workflows.push(Shape { entity, graph, value, sinks: of_step, resumes, journals, undecided, sleeps_ms });
    }
    let of_first = (0..options.shards).map(|shard| (0, shard));
    let of_others = (1..options.stores).map(|store| (usize::from(store), 0));
    let places: Vec<(usize, u16)> = of_first.chain(of_others).collect();
    let sources = places.iter().map(|(store, shard)| source(*store, *shard, &workflows)).collect();
    let kinds = KINDS.iter().map(|kind| Name::from(*kind)).collect();
    let plan = Plan { sources, workflows: begun_by(&plans, &others), kinds, targets, limits: options.limits.clone() };
    let reversed = (!others.is_empty()).then(|| Plan { workflows: begun_by(&others, &plans), ..plan.clone() });
    let stores = places.iter().map(|(store, _)| *store).collect();
    Shapes { plan: Arc::new(plan), reversed: reversed.map(Arc::new), stores, workflows, sinks }
}

/// Runs begin with the first plan; with the others they only continue.
fn begun_by(newest: &[WorkflowPlan], others: &[WorkflowPlan]) -> Vec<Arc<WorkflowPlan>> {
    let others = others.iter().map(|other| WorkflowPlan { older: true, ..other.clone() });
    newest.iter().cloned().chain(others).map(Arc::new).collect()
}

fn source(store: usize, shard: u16, workflows: &[Shape]) -> SourcePlan {
    let mut entities = BTreeMap::new();
    for (number, shape) in workflows.iter().enumerate().filter(|(_, shape)| store_of(&shape.entity) == store) {
        entities.entry(shape.entity.clone()).or_insert_with(Vec::new).push(number);
    }
    let mut leads: Vec<(Name, Vec<Name>)> = entities.keys().map(|name| (name.clone(), vec![name.clone()])).collect();
    if store == 0 {
        leads.push(("author".into(), vec!["book".into()]));
    }
    let planned =
        (0_u16..).zip(entities).map(|(id, (name, workflows))| (name, EntityPlan { id, key: Vec::new(), workflows }));
    let name = ["shop", "depot"][store];
    SourcePlan {
        name: format!("{name}{shard}").into(),
        install_id: store as u128,
        port: store,
        lease: format!("shard/{name}/{shard}").into(),
        shard,
        payload_bytes_max: PAYLOAD_MAX,
        entities: planned.collect(),
        leads,
        versions: Vec::new(),
    }
}

/// Each shard is a source of its own here, so `on` names all of them. The expression closes the run for further rows.
fn placed(options: &Options, tries: u64) -> Value {
    let on = |shard| json!({ "source": format!("shop{shard}"), "entity": "book", "change": ["insert"] });
    json!({ "on": (0..options.shards).map(on).collect::<Vec<_>>(), "step": {
        "load": { "use": "load", "tries": tries },
        "tell": { "use": "work", "needs": ["load"], "when": "$event.key != null", "tries": tries },
    }})
}

fn plain(tries: u64) -> Value {
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "store": { "use": "index", "needs": ["load"], "tries": tries },
    }})
}

fn called(tries: u64) -> Value {
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "make": { "use": "call", "needs": ["load"], "tries": tries },
        "store": { "use": "index", "needs": ["make"], "tries": tries },
    }})
}

fn diamond(tries: u64) -> Value {
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "left": { "use": "work", "needs": ["load"], "tries": tries },
        "right": { "use": "call", "needs": ["load"], "tries": tries },
        "store": { "use": "index", "needs": ["load", "left", "right"], "tries": tries },
    }})
}

fn optional(tries: u64) -> Value {
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "extra": { "use": "work", "needs": ["load"], "optional": true, "tries": tries },
        "store": { "use": "index", "needs": ["load", "extra"], "tries": tries },
    }})
}

fn for_each(r: &mut Random, tries: u64) -> Value {
    let kind = *r.pick(&["work", "call"]);
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "each": { "use": kind, "needs": ["load"], "for-each": ".list", "parallel": r.between(1, 3), "tries": tries },
        "store": { "use": "index", "needs": ["load", "each"], "tries": tries },
    }})
}

fn conditional(tries: u64) -> Value {
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "maybe": { "use": "work", "needs": ["load"], "when": ".n != 2", "tries": tries },
        "store": { "use": "index", "needs": ["load"], "when": ".n != 1", "tries": tries },
        "after": { "use": "index", "needs": ["load", "maybe"], "trigger": "none-failed", "tries": tries },
    }})
}

fn sleepy(options: &Options, tries: u64) -> Value {
    let wait = format!("{}ms", sleep_ms(options));
    json!({ "exclusion": "key", "step": {
        "load": { "use": "load", "tries": tries },
        "wait": { "use": "sleep", "needs": ["load"], "for": wait },
        "store": { "use": "index", "needs": ["load", "wait"], "tries": tries },
    }})
}

/// How long a sleep lasts. It is short if rows cannot merge or few runs may be open; otherwise the seed would not end.
fn sleep_ms(options: &Options) -> u64 {
    if options.limits.rows_per_key_max > 1 && options.limits.runs_max >= 200 { 1500 } else { 200 }
}

/// Waits for a book. The sink is written whether the book comes in time or not.
fn waiter(r: &mut Random, tries: u64) -> Value {
    let which = *r.pick(&["true", "$event.key == \"b0\"", "false"]);
    json!({ "exclusion": "key", "step": {
        "load": { "use": "load", "tries": tries },
        "hold": { "use": "await", "needs": ["load"], "name": "book", "match": which, "timeout": "300ms", "on-timeout": "skip" },
        "store": { "use": "index", "needs": ["load", "hold"], "trigger": "none-failed", "tries": tries },
    }})
}

fn emitter(tries: u64) -> Value {
    let events = "[{entity: \"note\", key: \"n\\(.k)-\\(.c)\", payload: {c: .c}}]";
    json!({ "step": {
        "load": { "use": "load", "tries": tries },
        "tell": { "use": "emit", "needs": ["load"], "input": events },
        "store": { "use": "index", "needs": ["load", "tell"], "tries": tries },
    }})
}

/// A failure stops the steps that have not begun. Whether `mend` has begun, and repairs the run, depends on timing.
fn stopper(tries: u64) -> Value {
    json!({ "on-failure": "stop", "step": {
        "load": { "use": "load", "tries": tries },
        "risky": { "use": "work", "needs": ["load"], "tries": tries },
        "slow": { "use": "work", "needs": ["load"], "tries": tries },
        "mend": { "use": "work", "needs": [{ "step": "risky", "on": "failure" }, "slow"], "forgives": true },
        "store": { "use": "index", "needs": ["load"], "tries": tries },
    }})
}

fn message(tries: u64) -> Value {
    json!({ "step": {
        "make": { "use": "work", "tries": tries },
        "store": { "use": "index", "needs": ["make"], "tries": tries },
    }})
}

/// Draws at most `most` steps below one load, with every trigger and kind of edge, conditions and lists. The first need
/// of a sink is the load, so that its document is known.
fn random_graph(r: &mut Random, most: u64, tries: u64) -> Value {
    let count = r.between(3, most);
    let mut steps = Map::new();
    steps.insert("s00".to_owned(), json!({ "use": "load", "tries": tries }));
    let mut inner = vec!["s00".to_owned()];
    for number in 1..count {
        let name = format!("s{number:02}");
        let sink = number + 1 == count || r.one_in(4);
        let mut needs: Vec<Value> = Vec::new();
        if sink {
            needs.push("s00".into());
        }
        for _ in 0..r.between(1, 3) {
            let need = r.pick(&inner).clone();
            let named = |other: &Value| other.as_str().or(other["step"].as_str()) == Some(need.as_str());
            if needs.iter().any(named) {
                continue;
            }
            let on = *r.pick(&["success", "success", "success", "done", "failure"]);
            needs.push(if on == "success" { need.into() } else { json!({ "step": need, "on": on }) });
        }
        let trigger = *r.pick(TRIGGERS);
        let kind = if sink { "index" } else { *r.pick(&["work", "work", "call"]) };
        let mut step = json!({ "use": kind, "needs": needs, "trigger": trigger, "tries": tries });
        if r.one_in(5) {
            step["optional"] = true.into();
        }
        if r.one_in(5) {
            step["forgives"] = true.into();
        }
        if r.one_in(6) {
            step["when"] = (*r.pick(&["$steps.s00.n != 1", "$steps.s00.n != 2"])).into();
        }
        if !sink && r.one_in(5) {
            step["for-each"] = "$steps.s00.list".into();
            step["parallel"] = r.between(1, 3).into();
        }
        if !sink {
            inner.push(name.clone());
        }
        steps.insert(name, step);
    }
    json!({ "step": steps })
}

const TRIGGERS: &[&str] = &[
    "all-success",
    "all-success",
    "all-success",
    "none-failed",
    "one-success",
    "all-done",
    "one-failed",
    "all-failed",
];
