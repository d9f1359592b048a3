//! Checks the invariants on what has happened, and whether the seed proves anything at all.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::{Changes, Event, EventId, Key, Kind, Name, Stamp};
use honeyflow_invariant::{
    Breach, ack, charge,
    convergence::{self, SinkCopy},
    exclusion, fence, graph,
    loss::{self, CommittedEvent, EventOutcome},
    once, pin,
    rest::{self, HighestValue, Rest},
    share,
    verdict::End,
};
use honeyflow_store::RunKey;
use honeyflow_workflow::{Role, StepId};

use crate::{
    model_store::Park,
    oracle::{self, RowFacts},
    shapes::{PLACED, Shape},
    workload::{Poison, message_of},
    world::{Outcome, World},
};

const RUNS_MIN: u64 = 100;

pub fn judge(mut world: World) -> Outcome {
    let mut breaches = std::mem::take(&mut world.history.breaches);
    let at_rest = world.stats.quiet_after_ms.is_some();
    breaches.extend(coming_to_rest(&world));
    breaches.extend(loss::no_loss(&events(&world), at_rest));
    breaches.extend(graph::effects_follow_checkpoints(&world.history.effects));
    breaches.extend(exclusion::exclusion(&world.history.grants));
    breaches.extend(share::shares_hold(&world.history.served, rises_after_ms(&world)));
    breaches.extend(exclusion::one_holder_per_epoch(&world.history.held));
    for store in &world.stores {
        breaches.extend(fence::epochs_never_fall(&store.journal.accepted));
        breaches.extend(once::happens_once(store.journal.emitted.iter().map(|name| &**name)));
    }
    let journaled = world.stores.iter().flat_map(|store| &store.journal.pinned);
    breaches.extend(pin::one_version(journaled.chain(&world.history.pinned)));
    breaches.extend(once::nothing_early(&world.history.begun));
    breaches.extend(fence::stamps_increase(&applied(&world)));
    breaches.extend(bounds(&world));
    breaches.extend(acknowledged(&world));
    breaches.extend(charges(&world));
    breaches.extend(placed(&world));
    let misled = world.stores.iter().flat_map(|store| &store.journal.misled);
    breaches.extend(misled.map(|what| Breach::new("OB-97", what.clone())));
    if at_rest {
        breaches.extend(convergence::convergence(&copies(&world)));
        let undecided = undecided(&world);
        let decided = |names: BTreeSet<String>| names.difference(&undecided).cloned().collect::<BTreeSet<String>>();
        breaches.extend(charge::parked_are_the_guilty(&decided(parked(&world)), &decided(guilty(&world))));
    }
    let stale: u64 = world.sinks.iter().map(|sink| sink.refused_stale).sum();
    let trace = world.trace();
    world.stats.changes = world.application.changes;
    world.stats.runs = world.history.runs_finished;
    world.stats.stale_refused = stale;
    world.stats.fenced = world.stores.iter().map(|store| store.journal.fenced).sum();
    world.stats.late_commits = world.application.late_commits;
    world.stats.parked = world.stores.iter().map(|store| store.parked.len() as u64).sum();
    let parks = world.stores.iter().flat_map(|store| &store.journal.parks);
    world.stats.overdue = parks.filter(|park| park.overdue_after_ms.is_some()).count() as u64;
    let void = void(&world);
    let restless = world.incarnations.iter().filter(|one| !at_rest && one.is_alive());
    let mut nodes: Vec<String> = restless.map(|one| format!("node {}: {:?}", one.node, one.core.status())).collect();
    let left = world.stores.iter().flat_map(|store| store.outbox.values().take(5));
    nodes.extend(left.map(|row| format!("left: {} {} {}", row.event.id, row.event.entity, row.event.key)));
    nodes.extend(restless_runs(&world).filter(|_| !at_rest));
    Outcome { breaches, void, nodes, trace, stats: world.stats, options: world.options }
}

fn rises_after_ms(world: &World) -> u64 {
    u64::try_from(world.options.limits.rises_after.as_millis()).unwrap_or(u64::MAX)
}

fn restless_runs(world: &World) -> impl Iterator<Item = String> {
    let alive = world.incarnations.iter().filter(|one| one.is_alive());
    let runs = alive.flat_map(|one| one.core.runs(None, 3).into_iter().map(move |run| (one.node, run)));
    runs.map(|(node, run)| format!("open on node {node}: {run:?}"))
}

fn void(world: &World) -> Vec<String> {
    let stats = &world.stats;
    let mut void = Vec::new();
    if stats.runs < RUNS_MIN {
        void.push(format!("only {} runs finished, {RUNS_MIN} are needed", stats.runs));
    }
    if stats.faults * 100 < stats.planned * 95 {
        void.push(format!("{} of {} planned faults landed", stats.faults, stats.planned));
    }
    void
}

fn coming_to_rest(world: &World) -> Vec<Breach> {
    let alive = world.incarnations.iter().filter(|one| one.is_alive());
    let status: Vec<_> = alive.map(|one| one.core.status()).collect();
    let at_rest = world.stats.quiet_after_ms.is_some();
    rest::comes_to_rest(&Rest {
        quiet_after_ms: world.stats.quiet_after_ms,
        limit_ms: world.options.liveness() / 1000,
        backlog: world.stores.iter().map(|store| store.outbox.len()).sum(),
        open_runs: status.iter().map(|status| status.open_runs).sum(),
        // Queues drop entries of finished runs only when they reach them.
        ready: if at_rest { 0 } else { status.iter().map(|status| status.ready).sum() },
    })
}

fn events(world: &World) -> Vec<CommittedEvent> {
    let mut events = Vec::new();
    for store in &world.stores {
        for (event, ends) in &store.journal.ends {
            let mut fates: Vec<EventOutcome> = ends.iter().map(|(fate, _)| *fate).collect();
            if store.outbox.contains_key(event) {
                fates.push(EventOutcome::Pending);
            }
            events.push(CommittedEvent { event: *event, outcomes: fates });
        }
    }
    events
}

fn applied(world: &World) -> Vec<fence::AppliedWrite> {
    let mut applied = Vec::new();
    for shape in &world.shapes.workflows {
        for sink in shape.sinks.values() {
            let sink = &world.sinks[*sink];
            for entry in &sink.log {
                let seen = world.loads.get(&(entry.key.clone(), entry.stamp));
                let loaded = seen.filter(|_| !shape.resumes).map(|seen| seen.change);
                let (sink, key) = (sink.name.clone(), entry.key.clone());
                applied.push(fence::AppliedWrite { sink, key, stamp: entry.stamp, loaded, carried: entry.carried });
            }
        }
    }
    applied
}

fn bounds(world: &World) -> Vec<Breach> {
    let limits = &world.options.limits;
    // Runs of earlier owners get room above the limit, at most as much as those owners were allowed.
    let times = if world.shapes.workflows.iter().any(|shape| shape.resumes) { 3 } else { 1 };
    // The last row that fits may lead to several documents in two workflows.
    let led_to = usize::try_from(world.options.containers_max.min(world.options.keys) * 2).unwrap_or(usize::MAX);
    // Runs that only wait take no room. There is at most one per key, with the rows that it may have.
    let waits = |shape: &Shape| shape.graph.steps.iter().any(|step| matches!(step.role, Role::Sleep | Role::Wait));
    let waiting = if world.shapes.workflows.iter().any(waits) { world.options.keys } else { 0 };
    let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
    let (runs, rows) = (limits.runs_max * times + led_to + waiting, limits.rows_max * times);
    let rows = rows + waiting.saturating_mul(limits.rows_per_key_max);
    rest::bounds_hold(&[
        HighestValue { what: "runs in memory", most: world.history.most_runs, limit: runs },
        HighestValue { what: "rows in memory", most: world.history.most_rows, limit: rows },
    ])
}

/// The facts about a row or a message of a workflow's entity.
fn known(poison: Option<Poison>, missing: bool, n: u64, workflow: usize) -> RowFacts {
    let fails: Option<StepId> =
        poison.filter(|poison| poison.workflow == workflow && !missing).map(|poison| poison.step);
    RowFacts { missing, fails, n }
}

fn of_entity<'a>(world: &'a World, entity: &'a str) -> impl Iterator<Item = (usize, &'a Shape)> {
    world.shapes.workflows.iter().enumerate().filter(move |(_, shape)| *shape.entity == *entity)
}

/// Before an outbox row is deleted, every sink of its entity has accepted a write from a load that saw its change.
/// Sinks that the graph may skip are not checked; for a parked event the park itself counts.
fn acknowledged(world: &World) -> Vec<Breach> {
    let mut paid = Vec::new();
    for sink in &world.sinks {
        for entry in &sink.log {
            let seen = world.loads.get(&(entry.key.clone(), entry.stamp)).map(|seen| seen.change);
            let change = entry.carried.or(seen).unwrap_or(0);
            paid.push(ack::Payment { owed: format!("{}/{}", sink.name, entry.key), change, at: entry.at });
        }
    }
    for park in world.stores.iter().flat_map(|store| &store.journal.parks) {
        for (workflow, shape) in of_entity(world, &park.run.entity) {
            if world.shapes.plan.workflows[workflow].name == park.run.workflow {
                for sink in shape.sinks.values() {
                    let owed = format!("{}/{}", world.sinks[*sink].name, park.run.key);
                    paid.push(ack::Payment { owed, change: u64::MAX, at: park.at });
                }
            }
        }
    }
    let always: Vec<Vec<usize>> = world.shapes.workflows.iter().map(always_written).collect();
    let mut removed = Vec::new();
    for (number, store) in world.stores.iter().enumerate() {
        for (event, ends) in &store.journal.ends {
            let Some(stored) = store.journal.stored.get(event) else { continue };
            let Some((EventOutcome::Settled, at)) = ends.first() else { continue };
            let change = match stored.kind {
                Kind::Message => message_of(stored.payload.as_deref()).0,
                _ => world.application.told.get(&(number, *event)).copied().unwrap_or(0),
            };
            let is_owed = |name: &Name| stored.workflow.as_ref().is_none_or(|wanted| wanted == name);
            let owed = of_entity(world, &stored.entity).filter(|(_, shape)| is_owed(&shape.graph.name));
            for (workflow, _) in owed {
                for sink in &always[workflow] {
                    let owed = format!("{}/{}", world.sinks[*sink].name, stored.key);
                    removed.push(ack::RemovedRow { event: *event, owed, change, at: *at });
                }
            }
        }
    }
    ack::acknowledged_after_success(&removed, &paid)
}

/// WF-142: an inserted book is acknowledged only after the filtered workflow has worked with its event, or with a later
/// one of the key.
fn placed(world: &World) -> Vec<Breach> {
    let journal = &world.stores[0].journal;
    let is_insert = |event: &Event| {
        event.kind == Kind::Row
            && *event.entity == *"book"
            && event.change == Changes::INSERT
            && event.workflow.is_none()
    };
    let is_settled =
        |id| matches!(journal.ends.get(id).and_then(|ends| ends.first()), Some((EventOutcome::Settled, _)));
    let cancelled =
        |key: &Key| world.history.cancelled.iter().any(|(_, of, workflow)| of == key && **workflow == *PLACED);
    let worked =
        |key: &Key, id| world.history.placed.range((key.clone(), id)..).next().is_some_and(|(of, _)| of == key);
    let inserted = journal.stored.iter().filter(|(id, event)| is_insert(event) && is_settled(id));
    let forgotten = inserted.filter(|(id, event)| !cancelled(&event.key) && !worked(&event.key, **id));
    let is_planned = world.shapes.workflows.iter().any(|shape| *shape.graph.name == *PLACED);
    let breach = |(id, event): (&EventId, &Event)| {
        Breach::new("WF-142", format!("event {id} inserted {}, and no run began", event.key))
    };
    if is_planned { forgotten.map(breach).collect() } else { Vec::new() }
}

/// The sinks that every successful run of the workflow writes.
fn always_written(shape: &Shape) -> Vec<usize> {
    shape.sinks.iter().filter(|(step, _)| is_always_written(shape, **step)).map(|(_, sink)| *sink).collect()
}

fn is_always_written(shape: &Shape, sink: StepId) -> bool {
    let graph = &shape.graph;
    let all: Vec<Option<StepId>> = std::iter::once(None).chain(graph.ids().map(Some)).collect();
    (0..5).all(|n| {
        all.iter().all(|fails| {
            let ends = oracle::ends(graph, RowFacts { missing: false, fails: *fails, n });
            ends[usize::from(sink)] == End::Succeeded || !oracle::succeeds(graph, &ends)
        })
    })
}

fn name(entity: &str, key: &str, workflow: &str) -> String {
    format!("{entity}/{key}/{workflow}")
}

fn charges(world: &World) -> Vec<Breach> {
    let mut guilty: BTreeSet<String> = BTreeSet::new();
    let mut note = |entity: &str, key: &str, poison: Option<Poison>| {
        if let Some(Poison { workflow, step, .. }) = poison {
            let plan = &world.shapes.plan.workflows[workflow];
            guilty.insert(format!("{}/{}", name(entity, key, &plan.name), plan.graph[step].name));
        }
    };
    for ((key, _), seen) in &world.loads {
        let entity = match &key[..1] {
            "b" => "book",
            "i" => "item",
            _ => "tag",
        };
        note(entity, key, seen.poison);
    }
    let mut named: BTreeSet<String> = BTreeSet::new();
    for journal in world.stores.iter().map(|store| &store.journal) {
        for event in journal.stored.values().filter(|event| event.kind == Kind::Message) {
            note(&event.entity, &event.key, message_of(event.payload.as_deref()).1);
        }
        let charged = journal.charges.iter().map(|(run, step)| (run, step));
        let of_itself = |park: &&Park| !park.cancelled && park.overdue_after_ms.is_none();
        let parked = journal.parks.iter().filter(of_itself).map(|park| (&park.run, &park.step));
        let both = charged.chain(parked);
        named.extend(both.map(|(run, step)| format!("{}/{step}", name(&run.entity, &run.key, &run.workflow))));
        // A run that is parked as cancelled must have been cancelled.
        let cancelled = journal.parks.iter().filter(|park| park.cancelled);
        let asked = |run: &RunKey| {
            world.history.cancelled.contains(&(run.entity.clone(), run.key.clone(), run.workflow.clone()))
        };
        named.extend(cancelled.filter(|park| !asked(&park.run)).map(|park| format!("{:?}", park.run)));
        // A run that is parked for its deadline must have taken that long, by a clock that may run a little fast.
        let least = |run: &RunKey| world.shapes.deadline_ms(&run.workflow).map(|deadline| deadline * 9 / 10);
        let too_early =
            |park: &&Park| park.overdue_after_ms.is_some_and(|took| least(&park.run).is_none_or(|least| took < least));
        named.extend(journal.parks.iter().filter(too_early).map(|park| format!("{park:?}")));
    }
    charge::only_the_guilty(&named, |item| guilty.contains(item))
}

fn parked(world: &World) -> BTreeSet<String> {
    let entry = |entry: &crate::model_store::ParkedEntry| {
        let workflow = if entry.step.is_empty() { entry.code.as_str() } else { &*entry.run.workflow };
        name(&entry.run.entity, &entry.run.key, workflow)
    };
    world.stores.iter().flat_map(|store| &store.parked).map(entry).collect()
}

/// Keys whose last run was cancelled or took too long, and whose sinks may be behind.
fn cancelled(world: &World) -> BTreeSet<String> {
    let given_up = |code: &str| matches!(code, "cancelled" | "deadline");
    let parked = world.stores.iter().flat_map(|store| &store.parked).filter(|entry| given_up(&entry.code));
    parked.map(|entry| name(&entry.run.entity, &entry.run.key, &entry.run.workflow)).collect()
}

/// The keys that may be parked or not, depending on timing.
fn undecided(world: &World) -> BTreeSet<String> {
    let mut names = cancelled(world);
    // A cancelled message was not processed, so its outcome is open.
    let asked = world.history.cancelled.iter().filter(|(entity, ..)| matches!(&**entity, "msg" | "note"));
    names.extend(asked.map(|(entity, key, workflow)| name(entity, key, workflow)));
    for ((entity, key), row) in &world.application.rows {
        let Some(poison) = row.poison else { continue };
        if world.shapes.workflows[poison.workflow].undecided == Some(poison.step) {
            names.insert(name(entity, key, &world.shapes.plan.workflows[poison.workflow].name));
        }
    }
    names
}

/// What must be parked at the end: rows in their present state, and messages in their original one.
fn guilty(world: &World) -> BTreeSet<String> {
    let mut guilty = BTreeSet::new();
    let mut judge = |entity: &str, key: &str, poison: Option<Poison>, missing: bool, n: u64| {
        for (workflow, shape) in of_entity(world, entity) {
            let ends = oracle::ends(&shape.graph, known(poison, missing, n, workflow));
            if !oracle::succeeds(&shape.graph, &ends) {
                guilty.insert(name(entity, key, &world.shapes.plan.workflows[workflow].name));
            }
        }
    };
    for ((entity, key), row) in &world.application.rows {
        judge(entity, key, row.poison, !row.alive, row.n());
    }
    let mut unreadable = BTreeSet::new();
    let stored = world.stores.iter().flat_map(|store| store.journal.stored.values());
    for event in stored.filter(|event| event.kind == Kind::Message) {
        let bytes = event.payload.as_ref().map_or(0, |payload| payload.len() as u64);
        if bytes > crate::shapes::PAYLOAD_MAX {
            unreadable.insert(name(&event.entity, &event.key, "payload-too-large"));
        } else if event.format > 1 {
            unreadable.insert(name(&event.entity, &event.key, "unknown-format"));
        } else {
            judge(&event.entity, &event.key, message_of(event.payload.as_deref()).1, false, 0);
        }
    }
    guilty.extend(unreadable);
    guilty
}

fn copies(world: &World) -> Vec<SinkCopy> {
    let mut copies = Vec::new();
    let cancelled = cancelled(world);
    for (workflow, shape) in world.shapes.workflows.iter().enumerate() {
        if matches!(&*shape.entity, "msg" | "note") {
            continue;
        }
        for (step, sink) in &shape.sinks {
            let sink = &world.sinks[*sink];
            let mut highest: BTreeMap<&Key, Stamp> = BTreeMap::new();
            for entry in &sink.log {
                let stamp = highest.entry(&entry.key).or_default();
                *stamp = (*stamp).max(entry.stamp);
            }
            for ((entity, key), row) in &world.application.rows {
                let of = name(entity, key, &world.shapes.plan.workflows[workflow].name);
                if *entity != shape.entity || cancelled.contains(&of) {
                    continue;
                }
                let known = known(row.poison, !row.alive, row.n(), workflow);
                let ends = oracle::ends(&shape.graph, known);
                // A document that the run did not write stays as it was, and the document of a parked key may be old.
                if ends[usize::from(*step)] != End::Succeeded {
                    continue;
                }
                // A sink writes the output of its first need; if that failed, there is none, and the sink deletes.
                let first = shape.graph.needs(*step).first().map(|(need, _)| ends[usize::from(*need)]);
                let given = first.is_none_or(|end| end == End::Succeeded);
                let written = row.alive && given && oracle::passes_condition(&shape.graph, *step, &ends, known);
                let document = world.application.look(&(entity.clone(), key.clone())).2.filter(|_| written);
                let held = sink.held.get(key);
                copies.push(SinkCopy {
                    sink: sink.name.clone(),
                    key: key.clone(),
                    row: document.as_deref().map(honeyflow_event::document::hash),
                    held: held.and_then(|held| held.body),
                    stamp: held.map_or(Stamp(0), |held| held.stamp),
                    highest_accepted: highest.get(key).copied().unwrap_or_default(),
                });
            }
        }
    }
    copies
}
