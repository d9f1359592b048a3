//! What the core hears and what it wants done. Effects that are store requests are sent as they are.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Epoch, Event, Key, Name, Target};
use honeyflow_hive::{Term, contract::Held};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::Intake;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{Poll, Recovered, Reply, Signal, Wanted, Write};
use honeyflow_workflow::{Graph, StepId, expression::run_value};
use serde_json::Value;

use super::plan::{KindId, SourceId};

pub type WorkerId = u32;
pub type BatchId = u64;
pub type WriteId = u64;
pub type JudgeId = u64;
pub type LookId = u64;
pub type TakeId = u64;

#[derive(Debug)]
pub enum Input {
    Tick,
    Granted(Term),
    Lost {
        lease: Name,
    },
    /// Another node should have this shard: nothing new is begun under it, and [`Effect::Left`] says when it is free.
    Leave(Held),
    /// The source's term is good until then; nothing fenced is begun after it.
    Trust {
        source: SourceId,
        until: Moment,
    },
    Recovered {
        source: SourceId,
        recovery: u64,
        result: Result<Recovered, Failure>,
    },
    Polled {
        source: SourceId,
        poll: u64,
        result: Result<Intake, Failure>,
    },
    /// A worker offers room: so many batches of a kind at once.
    Hello {
        worker: WorkerId,
        room: Vec<(KindId, u32)>,
    },
    WorkerLost {
        worker: WorkerId,
    },
    /// A step did not end in time and was stopped.
    TimedOut {
        batch: BatchId,
    },
    /// A step panicked: the batch has no answer, the worker lives.
    Unanswered {
        batch: BatchId,
    },
    /// The answer to a batch; the worker has room for another one of its kind.
    Outcomes {
        batch: BatchId,
        outcomes: Vec<Outcome>,
    },
    Evaluated {
        batch: BatchId,
        results: Vec<Evaluated>,
    },
    /// Whether each of the events passes: one answer per question, in their order.
    Judged {
        judge: JudgeId,
        results: Vec<Result<bool, Failure>>,
    },
    /// What was kept for those who wait.
    Found {
        source: SourceId,
        look: LookId,
        result: Result<Vec<Vec<Signal>>, Failure>,
    },
    Written {
        write: WriteId,
        result: Result<Reply, Failure>,
    },
    /// So many of the permits that were asked for are there; nothing more for as long as `wait` says.
    Permitted {
        limit: Name,
        take: TakeId,
        permits: u64,
        wait: Option<Duration>,
    },
    Pause {
        workflow: Name,
        paused: bool,
    },
    /// A person ends a run.
    Cancel {
        workflow: Name,
        entity: Name,
        key: Key,
    },
    /// No new work; what is held ends or stays in the table.
    Drain,
}

#[derive(Debug)]
pub enum Effect {
    Recover {
        source: SourceId,
        shard: u16,
        recovery: u64,
    },
    Poll {
        source: SourceId,
        poll: u64,
        request: Poll,
    },
    Give {
        worker: WorkerId,
        batch: BatchId,
        kind: KindId,
        work: Work,
        under: Option<Under>,
    },
    /// The batch is taken back: whatever the worker still says of it is refused.
    Cancel {
        worker: WorkerId,
        batch: BatchId,
    },
    /// Nobody wants these items of the batch any more; `whole` if no other is left in it.
    Withdraw {
        worker: WorkerId,
        batch: BatchId,
        items: Vec<usize>,
        whole: bool,
    },
    Write {
        source: SourceId,
        write: WriteId,
        request: Write,
    },
    /// Answered soon and item by item, whatever the expressions do: no worker is needed for it.
    Judge {
        judge: JudgeId,
        workflow: usize,
        items: Vec<ToJudge>,
    },
    /// One at a time and source.
    Look {
        source: SourceId,
        look: LookId,
        wanted: Vec<Wanted>,
    },
    /// Up to so many permits; answered once at least one is there, or none is for a while. One at a time and limit.
    Take {
        limit: Name,
        take: TakeId,
        permits: u64,
    },
    /// Of those that were granted, these found nobody.
    GiveBack {
        limit: Name,
        take: TakeId,
        permits: u64,
    },
    Mint {
        source: SourceId,
        lease: Name,
        floor: Epoch,
    },
    /// What was under way under this epoch has ended; the lease may be handed over.
    Left(Held),
    /// Something a person should read, once.
    Alarm {
        code: &'static str,
        message: String,
    },
    Drained,
}

/// A batch that goes out with permits. Those that come back by themselves are its own until it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Under {
    pub limit: Name,
    /// By which they were granted.
    pub take: TakeId,
    pub permits: u64,
}

#[derive(Debug)]
pub enum Work {
    Execute { workflow: usize, step: StepId, batch: Batch },
    Evaluate { graph: Arc<Graph>, step: StepId, items: Vec<ToEvaluate> },
}

/// One run's step, before its dispatch: its `when`, `for-each` and `input`.
#[derive(Debug)]
pub struct ToEvaluate {
    pub event: Arc<Event>,
    /// By step: outputs that are there.
    pub outputs: Vec<(StepId, Document)>,
    pub input: Document,
    pub run: RunName,
}

impl honeyflow_evaluate::Subject for ToEvaluate {
    fn entity(&self) -> &Name {
        &self.run.entity
    }

    fn key(&self) -> &Key {
        &self.run.key
    }
}

/// What expressions see of the run as `$run`.
#[derive(Clone, PartialEq, Debug)]
pub struct RunName {
    pub workflow: Name,
    pub version: u32,
    pub tenant: Name,
    pub entity: Name,
    pub key: Key,
}

impl RunName {
    pub fn as_json(&self) -> Value {
        run_value(&self.workflow, self.version, &self.tenant, &self.entity, &self.key)
    }
}

/// One arriving event, and what is asked of it.
#[derive(Clone, Debug)]
pub struct ToJudge {
    pub graph: Arc<Graph>,
    pub event: Arc<Event>,
    /// What it leads to.
    pub target: Target,
    pub asks: Asks,
}

impl honeyflow_evaluate::Subject for ToJudge {
    fn entity(&self) -> &Name {
        &self.target.entity
    }

    fn key(&self) -> &Key {
        &self.target.key
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Asks {
    /// Does it begin a run, by the `when` of its `on`?
    Begins { source: Name },
    /// Is it what the step waits for?
    Matches { step: StepId, run: RunName, outputs: Vec<(StepId, Document)> },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Evaluated {
    Go(Document),
    /// `when` was false or null.
    Skip,
    /// Inputs of the instances, and the elements that they stand for.
    Each {
        inputs: Vec<Document>,
        items: Vec<Document>,
    },
    Failed(Failure),
    /// `sleep`: milliseconds from now.
    Sleep(u64),
    /// `event.wait`: so many milliseconds at most, for an event of this key, or of any.
    Wait {
        millis: u64,
        key: Option<Key>,
    },
    Emit(Vec<Value>),
}
