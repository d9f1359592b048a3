//! A trace of what the core has done, for the simulator's and the tests' checks. It is off by default; when on, the
//! checker takes the facts after every input.

use std::time::Duration;

use honeyflow_event::{EventId, Key, Name};
use honeyflow_workflow::{State, StepId};

use super::{
    Core,
    plan::{KindId, SourceId},
    run::RunState,
};

#[derive(Clone, PartialEq, Debug)]
pub enum Fact {
    /// A run begins to hold its key.
    Opened {
        run: u64,
        source: SourceId,
        entity: Name,
        key: Key,
        workflow: usize,
        version: u32,
        exclusive: bool,
    },
    /// The run continues where an earlier owner stopped, by `version`; it began by version `began`.
    Resumed {
        run: u64,
        began: u32,
        version: u32,
    },
    Ready {
        run: u64,
        step: StepId,
    },
    /// An attempt was given out with `event`; `newest` is the newest of its run's rows.
    Given {
        run: u64,
        step: StepId,
        index: u32,
        event: EventId,
        newest: EventId,
    },
    /// A batch was given out; `waiting` is what could have gone out instead.
    Served {
        kind: KindId,
        /// None: suspects.
        level: Option<usize>,
        items: usize,
        waiting: Vec<WaitingLevel>,
    },
    /// The step has ended, with all its instances.
    Ended {
        run: u64,
        step: StepId,
    },
    Concluded {
        run: u64,
        workflow: usize,
        succeeded: bool,
        states: Vec<State>,
    },
    /// The key is free, or the run was dropped.
    Closed {
        run: u64,
    },
}

/// Work of one level that workers may get.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WaitingLevel {
    pub level: usize,
    /// How long its oldest entry waits.
    pub waited: Duration,
    /// The number of items in its next batch: that of the queue whose turn it is.
    pub items: usize,
}

#[derive(Default)]
pub(crate) struct Facts {
    pub on: bool,
    pub taken: Vec<Fact>,
    runs: u64,
}

impl Facts {
    pub fn next_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    pub fn note(&mut self, fact: impl FnOnce() -> Fact) {
        if self.on {
            self.taken.push(fact());
        }
    }
}

impl Core {
    /// Switches the trace on.
    pub fn note_facts(&mut self) {
        self.facts.on = true;
    }

    pub fn take_facts(&mut self, into: &mut Vec<Fact>) {
        into.append(&mut self.facts.taken);
    }

    /// Returns the number of runs and of rows in memory.
    pub fn in_memory(&self) -> (usize, usize) {
        (self.runs.len(), self.rows.len())
    }

    pub(crate) fn note_opened(&mut self, run: &RunState) {
        if self.facts.on {
            let key = self.keys.get(run.key).key.clone();
            let (number, source, entity, workflow) = (run.number, run.source, run.entity.clone(), run.workflow);
            let (version, exclusive) = (self.plan.number(run.source, run.workflow), run.is_exclusive());
            self.facts.note(|| Fact::Opened { run: number, source, entity, key, workflow, version, exclusive });
        }
    }
}
