//! The inputs that the core receives and the effects that it asks for. Effects that are store requests are sent
//! unchanged.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Epoch, EventView, Key, Name};
use honeyflow_hive::{Term, contract::HeldLease};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::Intake;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{Poll, RecoveredState, Reply, Signal, SignalQuery, Write};
use honeyflow_workflow::{Graph, StepId, expression::run_value};
use serde_json::Value;

use super::plan::{KindId, SourceId};

pub type WorkerId = u32;
pub type BatchId = u64;
pub type WriteId = u64;
pub type CheckId = u64;
pub type LookupId = u64;
pub type TakeId = u64;

#[derive(Debug)]
pub enum Input {
    Tick,
    Granted(Term),
    Lost {
        lease: Name,
    },
    /// The shard is to be transferred to another node: the core begins nothing new for it, and [`Effect::Left`] says
    /// when it is free.
    Leave(HeldLease),
    /// The source's term is trusted until then; the core begins no fenced write after it.
    Trust {
        source: SourceId,
        until: Moment,
    },
    Recovered {
        source: SourceId,
        recovery: u64,
        result: Result<RecoveredState, Failure>,
    },
    Polled {
        source: SourceId,
        poll: u64,
        result: Result<Intake, Failure>,
    },
    /// A worker offers room: the number of batches of each kind that it takes at once.
    Hello {
        worker: WorkerId,
        room: Vec<(KindId, u32)>,
    },
    WorkerLost {
        worker: WorkerId,
    },
    /// A step exceeded its time-out and was stopped.
    TimedOut {
        batch: BatchId,
    },
    /// A step panicked or was stopped: the batch has no answer, the worker lives.
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
        results: Vec<Evaluation>,
    },
    /// Whether each of the events passes its check: one result per event, in the same order.
    EventsChecked {
        check: CheckId,
        results: Vec<Result<bool, Failure>>,
    },
    /// The stored signals for runs that wait for an event.
    SignalsFound {
        source: SourceId,
        lookup: LookupId,
        result: Result<Vec<Vec<Signal>>, Failure>,
    },
    Written {
        write: WriteId,
        result: Result<Reply, Failure>,
    },
    /// The limit granted `permits` of those requested; with `wait`, it grants no more for that time.
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
    /// A person cancels a run.
    Cancel {
        workflow: Name,
        entity: Name,
        key: Key,
    },
    /// Give out no new work; batches at workers end, all other events stay in the table.
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
        permits: Option<BatchPermits>,
    },
    /// The batch is taken back: a later answer of the worker is refused.
    Cancel {
        worker: WorkerId,
        batch: BatchId,
    },
    /// The runs of these items were cancelled; `whole` if no other item of the batch is still wanted.
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
    /// Evaluate an expression for each event. The shell answers soon and item by item, even if an expression hangs, and
    /// needs no worker for it.
    CheckEvents {
        check: CheckId,
        workflow: usize,
        items: Vec<EventCheck>,
    },
    /// Read the stored signals for these waits; one request at a time per source.
    LookUpSignals {
        source: SourceId,
        lookup: LookupId,
        wanted: Vec<SignalQuery>,
    },
    /// Take up to `permits` permits. The shell answers once it has at least one, or when none came for a while; one
    /// request at a time per limit.
    Take {
        limit: Name,
        take: TakeId,
        permits: u64,
    },
    /// Give back granted permits that no step could use.
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
    /// All work under this epoch has ended; the lease may be transferred.
    Left(HeldLease),
    /// A message that a person should read, sent once.
    Alarm {
        code: &'static str,
        message: String,
    },
    Drained,
}

/// The permits that a batch is given out with. Slots of a concurrency limit belong to the batch until it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchPermits {
    pub limit: Name,
    /// The request that they were granted for.
    pub take: TakeId,
    pub permits: u64,
}

#[derive(Debug)]
pub enum Work {
    Execute { workflow: usize, step: StepId, batch: Batch },
    Evaluate { graph: Arc<Graph>, step: StepId, items: Vec<EvaluationItem> },
}

/// A step of one run before its dispatch: its `when`, `for-each` and `input` are to be evaluated.
#[derive(Debug)]
pub struct EvaluationItem {
    pub event: EventView,
    /// The outputs of earlier steps, as far as they are stored.
    pub outputs: Vec<(StepId, Document)>,
    pub input: Document,
    pub run: RunName,
}

impl honeyflow_evaluate::Subject for EvaluationItem {
    fn entity(&self) -> &Name {
        &self.run.entity
    }

    fn key(&self) -> &Key {
        &self.run.key
    }
}

/// The value that expressions see as `$run`.
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

/// One arriving event, and the question to answer about it.
#[derive(Clone, Debug)]
pub struct EventCheck {
    pub graph: Arc<Graph>,
    pub event: EventView,
    pub question: CheckQuestion,
}

impl honeyflow_evaluate::Subject for EventCheck {
    fn entity(&self) -> &Name {
        match &self.question {
            CheckQuestion::Begins { .. } => &self.event.target.entity,
            CheckQuestion::Matches { run, .. } => &run.entity,
        }
    }

    fn key(&self) -> &Key {
        match &self.question {
            CheckQuestion::Begins { .. } => &self.event.target.key,
            CheckQuestion::Matches { run, .. } => &run.key,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum CheckQuestion {
    /// Does the event begin a run, by the `when` of its `on`?
    Begins { source: Name },
    /// Is it the event that the step waits for?
    Matches { step: StepId, run: RunName, outputs: Vec<(StepId, Document)> },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Evaluation {
    Go(Document),
    /// `when` was false or null.
    Skip,
    /// The inputs of the instances, and the elements that they were made from.
    Each {
        inputs: Vec<Document>,
        items: Vec<Document>,
    },
    Failed(Failure),
    /// `sleep`: milliseconds from now.
    Sleep(u64),
    /// `event.wait`: wait at most `millis` milliseconds for an event of this key; of any key if `None`.
    Wait {
        millis: u64,
        key: Option<Key>,
    },
    Emit(Vec<Value>),
}
