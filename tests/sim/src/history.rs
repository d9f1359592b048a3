//! The facts that the cores report, collected per run and checked when the run is over.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_engine::core::{Core, fact::Fact};
use honeyflow_event::{EventId, Key, Name};
use honeyflow_invariant::{
    Breach,
    exclusion::{Grant, HeldTerm},
    graph::{self, Effect, Move},
    once::{self, Attempt, StartedEvent},
    pin::PinnedVersion,
    reason::{self, WaitingRun},
    share::{ServedBatch, WaitingLevel},
    slots::{self, Slots},
    verdict::{self, End},
};
use honeyflow_workflow::{Exclusion, State};

use crate::{oracle, shapes::Shapes};

#[derive(Debug)]
struct OpenRun {
    key: Key,
    workflow: usize,
    opened: u64,
    lane: Option<String>,
    moves: Vec<Move>,
    concluded: bool,
}

#[derive(Debug, Default)]
pub struct History {
    pub breaches: Vec<Breach>,
    pub held: Vec<HeldTerm>,
    pub grants: Vec<Grant>,
    pub effects: Vec<Effect>,
    pub begun: Vec<StartedEvent>,
    /// The batches that workers got.
    pub served: Vec<ServedBatch>,
    /// The definition versions with which owners continued runs.
    pub pinned: Vec<PinnedVersion>,
    /// The events with which runs of the filtered workflow have worked, by key.
    pub placed: BTreeSet<(Key, EventId)>,
    /// Runs that the operator has cancelled: entity, key and workflow.
    pub cancelled: BTreeSet<(Name, Key, Name)>,
    open: BTreeMap<(u64, u64), OpenRun>,
    facts: u64,
    pub runs_concluded: u64,
    pub runs_finished: u64,
    pub most_runs: usize,
    pub most_rows: usize,
}

impl History {
    pub fn note(&mut self, holder: u64, fact: &Fact, shapes: &Shapes) {
        self.facts += 1;
        match fact {
            Fact::Opened { run, source, entity, key, workflow, .. } => {
                let workflow = &shapes.number(*workflow);
                let plan = &shapes.plan.workflows[*workflow];
                let lane = match plan.exclusion {
                    Exclusion::Key => Some(format!("{source}/{entity}/{key}")),
                    Exclusion::Workflow => Some(format!("{source}/{entity}/{key}/{}", plan.name)),
                    Exclusion::None => None,
                };
                let (opened, moves) = (self.facts, Vec::new());
                self.open.insert(
                    (holder, *run),
                    OpenRun { key: key.clone(), workflow: *workflow, opened, lane, moves, concluded: false },
                );
            }
            Fact::Ready { run, step } => self.moved(holder, *run, Move::Ready(*step)),
            Fact::Given { run, step, event, newest, .. } => {
                self.moved(holder, *run, Move::Given(*step));
                let attempt = Attempt { run: *run, event: *event, newest: *newest };
                self.breaches.extend(once::attempts_carry_the_newest_event([&attempt]));
            }
            Fact::Served { kind, level, items, waiting } => {
                let waiting = waiting.iter().map(|waiting| WaitingLevel {
                    level: waiting.level,
                    waited_ms: u64::try_from(waiting.waited.as_millis()).unwrap_or(u64::MAX),
                    items: waiting.items as u64,
                });
                let (kind, items, waiting) = (usize::from(*kind), *items as u64, waiting.collect());
                self.served.push(ServedBatch { holder, kind, level: *level, items, waiting });
            }
            Fact::Ended { run, step } => self.moved(holder, *run, Move::Ended(*step)),
            Fact::Concluded { run, workflow, succeeded, states } => {
                self.runs_concluded += 1;
                if let Some(open) = self.open.get_mut(&(holder, *run)) {
                    open.concluded = true;
                }
                let ends: Vec<End> = states.iter().map(|state| end(*state)).collect();
                let steps = oracle::steps(&shapes.workflows[shapes.number(*workflow)].graph, &ends);
                self.breaches.extend(verdict::verdict_is_right(*run, &steps, *succeeded));
            }
            Fact::Resumed { run, began, version } => {
                let pinned = |version: &u32| PinnedVersion {
                    run: format!("run {run} of incarnation {holder}"),
                    phase: 0,
                    version: *version,
                };
                self.pinned.extend([began, version].map(pinned));
            }
            Fact::Closed { run } => self.close(holder, *run, shapes),
        }
    }

    /// The key that a fact is about, to watch one key.
    pub fn key_of(&self, holder: u64, fact: &Fact) -> Option<&str> {
        let run = match fact {
            Fact::Opened { .. } | Fact::Served { .. } => return None,
            Fact::Ready { run, .. } | Fact::Given { run, .. } | Fact::Ended { run, .. } => run,
            Fact::Concluded { run, .. } | Fact::Resumed { run, .. } | Fact::Closed { run } => run,
        };
        self.open.get(&(holder, *run)).map(|open| &*open.key)
    }

    /// Reads from a core where its runs are, and what its workers hold.
    pub fn look(&mut self, core: &Core, holder: u64) {
        let (runs, room) = core.run_locations();
        let waiting: Vec<WaitingRun> = runs
            .into_iter()
            .map(|run| WaitingRun {
                run: run.run,
                waits_for: run.waits_for,
                settling: run.settling,
                leased: run.leased,
                queued: run.queued,
                tried: run.tried,
                timed: run.timed,
                written: run.written,
                could_go: run.could_go.map(usize::from),
            })
            .collect();
        self.breaches.extend(reason::every_run_is_somewhere(holder, &waiting));
        self.breaches.extend(reason::reasons_are_true(holder, &waiting));
        self.breaches.extend(reason::nothing_starves(holder, &waiting, &room));
        let slots = core.slots().into_iter().map(|(worker, kind, offered, free, held)| Slots {
            of: format!("incarnation {holder}, worker {worker}, kind {kind}"),
            offered,
            free,
            held,
        });
        self.breaches.extend(slots::slots_add_up(&slots.collect::<Vec<_>>()));
    }

    fn moved(&mut self, holder: u64, run: u64, moved: Move) {
        if let Some(open) = self.open.get_mut(&(holder, run)) {
            open.moves.push(moved);
        }
    }

    fn close(&mut self, holder: u64, run: u64, shapes: &Shapes) {
        let Some(open) = self.open.remove(&(holder, run)) else { return };
        self.runs_finished += u64::from(open.concluded);
        let graph = &shapes.workflows[open.workflow].graph;
        let needs: Vec<Vec<u16>> =
            graph.ids().map(|step| graph.needs(step).iter().map(|(need, _)| *need).collect()).collect();
        self.breaches.extend(graph::graph_is_kept(run, &needs, &open.moves));
        if let Some(key) = open.lane {
            self.grants.push(Grant { holder, key, run, opened: open.opened, closed: self.facts });
        }
    }

    /// Closes the runs of an incarnation that is gone.
    pub fn gone(&mut self, holder: u64, shapes: &Shapes) {
        let left: Vec<u64> = self.open.range((holder, 0)..=(holder, u64::MAX)).map(|((_, run), _)| *run).collect();
        for run in left {
            if let Some(open) = self.open.get_mut(&(holder, run)) {
                open.concluded = false;
            }
            self.close(holder, run, shapes);
        }
    }
}

fn end(state: State) -> End {
    match state {
        State::Pending | State::Ready => End::Open,
        State::Succeeded => End::Succeeded,
        State::Failed => End::Failed,
        State::Skipped => End::Skipped,
        State::Blocked => End::Blocked,
        State::Cancelled => End::Cancelled,
    }
}
