//! Carries out what the core decides. One task owns the core; everything else answers to it by message.

pub mod evaluate;
pub mod limit;
mod shards;
mod worker;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use hashbrown::HashMap;
use honeyflow_evaluate::{Evaluator, Pool};
use honeyflow_event::{Key, Name};
use honeyflow_hive::{Hive, Traffic, limit::Permit, service::Change};
use honeyflow_runtime::{Clock, Failure};
use honeyflow_source::Source;
use honeyflow_step::Step;
use honeyflow_store::{Reply, Request, Store};
use tokio::sync::{mpsc, oneshot, watch};

use self::{
    limit::{Limits, Taken},
    shards::{Happened, Held},
};
use crate::core::{
    BatchId, Core, Effect, Input,
    input::Work,
    people::RunView,
    plan::{Plan, SourceId},
    status::Status,
};

/// How many messages may wait for the core; senders then wait in turn.
const INPUTS_MAX: usize = 1024;
/// Inputs that are taken together before effects are carried out.
const INPUTS_AT_ONCE: usize = 64;
/// A call to the store that takes longer is made again.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Threads that expressions have left behind cannot be stopped: with so many of them the process must begin anew.
const ABANDONED_MAX: usize = 8;
/// The code of the failure that says so.
pub const STUCK: &str = "stuck-expressions";
const STATUS_EVERY: Duration = Duration::from_millis(200);
/// Shards that nobody has taken over by then are released.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(5);

/// A source, the store in its own database, and this node's part in the hive there: epochs live where the rows are that
/// they protect. Sources of one database share it.
#[derive(Clone)]
pub struct SourcePort {
    pub source: Arc<dyn Source>,
    pub store: Arc<dyn Store>,
    pub hive: Hive,
}

pub struct Config {
    pub plan: Arc<Plan>,
    /// As the plan's shards name them.
    pub sources: Vec<SourcePort>,
    /// By workflow, by step.
    pub steps: Vec<Vec<Arc<dyn Step>>>,
    /// By kind: batches at once.
    pub concurrency: Vec<u32>,
    /// What steps are limited by. A name that is not there limits nothing.
    pub limits: Limits,
    /// Expressions over events are evaluated on its threads.
    pub pool: Arc<Pool>,
    /// None: this node works on nothing.
    pub shards: Option<TakeShards>,
    /// Marked when there is work: rows found, a batch given out.
    pub traffic: Traffic,
    pub clock: Arc<dyn Clock>,
    pub seed: u64,
}

/// Which part of the sources' shards this node takes.
#[derive(Clone, Copy, Default, Debug)]
pub struct TakeShards {
    /// Shards that nobody is pinned to wait.
    pub pinned_only: bool,
}

/// Cheap to clone; outlives a restart of the service.
#[derive(Clone)]
pub struct Handle {
    inputs: Arc<ArcSwapOption<mpsc::Sender<Input>>>,
    status: watch::Receiver<Status>,
    questions: mpsc::Sender<Question>,
}

/// About open runs; answered by the task that owns them.
struct Question {
    key: Option<String>,
    limit: usize,
    answer: oneshot::Sender<Vec<RunView>>,
}

impl Handle {
    /// At most [`STATUS_EVERY`] old.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// No new work; [`Service::run`] returns once what is held has ended.
    pub async fn drain(&self) {
        self.tell(Input::Drain).await;
    }

    pub async fn pause(&self, workflow: Name, paused: bool) {
        self.tell(Input::Pause { workflow, paused }).await;
    }

    pub async fn cancel(&self, workflow: Name, entity: Name, key: Key) {
        self.tell(Input::Cancel { workflow, entity, key }).await;
    }

    /// Open runs, the oldest first; of one key if it is named.
    pub async fn runs(&self, key: Option<String>, limit: usize) -> Vec<RunView> {
        let (answer, answered) = oneshot::channel();
        if self.questions.send(Question { key, limit, answer }).await.is_err() {
            return Vec::new();
        }
        answered.await.unwrap_or_default()
    }

    async fn tell(&self, input: Input) {
        let inputs = self.inputs.load_full();
        if let Some(inputs) = inputs {
            let _ = inputs.send(input).await;
        }
    }
}

pub struct Service {
    config: Config,
    /// By workflow's name: whose expressions are too slow is counted there.
    evaluators: HashMap<Name, Arc<Evaluator>>,
    attempts: worker::Attempts,
    inputs: Arc<ArcSwapOption<mpsc::Sender<Input>>>,
    status: watch::Sender<Status>,
    asked: tokio::sync::Mutex<mpsc::Receiver<Question>>,
}

impl Service {
    pub fn new(config: Config) -> (Service, Handle) {
        let inputs = Arc::new(ArcSwapOption::empty());
        let (status, watched) = watch::channel(Status::default());
        let (questions, asked) = mpsc::channel(16);
        let names = config.plan.workflows.iter().map(|workflow| workflow.name.clone());
        let evaluators = names.map(|name| (name, Arc::new(Evaluator::new(config.pool.clone())))).collect();
        let asked = tokio::sync::Mutex::new(asked);
        let attempts = worker::Attempts::default();
        let service = Service { config, evaluators, attempts, inputs: inputs.clone(), status, asked };
        (service, Handle { inputs, status: watched, questions })
    }

    /// Runs until drained. Run again after a failure it begins from nothing: with new epochs, from what is in the table.
    ///
    /// # Errors
    /// If the node cannot be a member, or is one no longer, with the reason.
    pub async fn run(&self) -> Result<(), Failure> {
        let (inputs, mut received) = mpsc::channel(INPUTS_MAX);
        self.inputs.store(Some(Arc::new(inputs.clone())));
        // With new epochs each time: what is left of an engine that failed changes nothing.
        let (mut shards, mut changed) = self.take_shards().await?;
        let mut core = Core::new(self.config.plan.clone(), self.config.seed);
        let mut effects = Vec::new();
        let taken = Taken::default();
        let room = self.config.concurrency.iter().enumerate().map(|(kind, room)| (crate::core::id(kind), *room));
        core.advance(Input::Hello { worker: 0, room: room.collect() }, self.config.clock.now(), &mut effects);
        let mut asked = self.asked.lock().await;
        let mut status_tick = tokio::time::interval(STATUS_EVERY);
        let mut drained_at = None;
        loop {
            for effect in effects.drain(..) {
                if let Effect::Drained = effect {
                    drained_at = Some(tokio::time::Instant::now());
                }
                match effect {
                    Effect::Take { limit, take, permits } => {
                        self.config.limits.take(limit, take, permits, &inputs, &taken);
                    }
                    Effect::GiveBack { limit, take, permits } => taken.give_back(&limit, take, permits),
                    Effect::Give { batch, work, under, .. } => {
                        let places = under.map_or_else(Vec::new, |under| taken.places(&under));
                        self.give(batch, work, places, inputs.clone());
                    }
                    effect => self.carry_out(effect, &mut shards, &inputs),
                }
            }
            // Nothing is under way any more; others are given what they can have.
            if drained_at.is_some_and(|at| at.elapsed() >= HAND_OVER_WITHIN || !shards.can_be_given()) {
                shards.said().await;
                self.status.send_replace(core.status());
                return Ok(());
            }
            let wait = core.wake_at().since(self.config.clock.now()).min(Duration::from_secs(3600));
            tokio::select! {
                biased;
                // Before anything else: what was lost must not be worked on, however much there is to do.
                Some((port, happened)) = changed.recv() => {
                    let now = self.config.clock.now();
                    shards.note(port, &happened);
                    match happened {
                        Happened::Changed(Change::Gained(term)) => {
                            core.advance(Input::Granted(term), now, &mut effects);
                        }
                        Happened::Changed(Change::Leave { held, .. }) => {
                            core.advance(Input::Leave(held), now, &mut effects);
                        }
                        Happened::Changed(Change::Lost { lease, .. }) => {
                            core.advance(Input::Lost { lease }, now, &mut effects);
                        }
                        Happened::Trusted(until) => {
                            for (source, planned) in self.config.plan.sources.iter().enumerate() {
                                if planned.port == port {
                                    let source = crate::core::id(source);
                                    core.advance(Input::Trust { source, until }, now, &mut effects);
                                }
                            }
                        }
                        Happened::Ended(failure) => return Err(failure),
                    }
                }
                Some(input) = received.recv() => take_waiting(input, &mut received, |input| {
                    if let Input::Drain = input {
                        shards.drain();
                    }
                    core.advance(input, self.config.clock.now(), &mut effects);
                }),
                Some(Question { key, limit, answer }) = asked.recv() => {
                    let _ = answer.send(core.runs(key.as_deref(), limit));
                }
                _ = status_tick.tick() => {
                    self.status.send_replace(core.status());
                    let stuck = self.config.pool.abandoned_in_all();
                    if stuck >= ABANDONED_MAX {
                        let message = format!("{stuck} expressions never came back, each holds a core; find them by `too-slow` in the log");
                        return Err(Failure::fatal(STUCK, message));
                    }
                }
                () = tokio::time::sleep(wait) => core.advance(Input::Tick, self.config.clock.now(), &mut effects),
            }
        }
    }

    fn evaluator(&self, workflow: &str) -> Arc<Evaluator> {
        let known = self.evaluators.get(workflow).cloned();
        known.unwrap_or_else(|| Arc::new(Evaluator::new(self.config.pool.clone())))
    }

    fn port(&self, source: SourceId) -> &SourcePort {
        &self.config.sources[self.config.plan.sources[source as usize].port]
    }

    fn carry_out(&self, effect: Effect, shards: &mut Held, inputs: &mpsc::Sender<Input>) {
        let inputs = inputs.clone();
        match effect {
            Effect::Poll { source, poll, request } => {
                let polled = self.port(source).source.poll(request);
                let traffic = self.config.traffic.clone();
                tokio::spawn(async move {
                    let result = answered(polled).await;
                    if result.as_ref().is_ok_and(|intake| !intake.taken.is_empty()) {
                        traffic.mark();
                    }
                    let _ = inputs.send(Input::Polled { source, poll, result }).await;
                });
            }
            Effect::Recover { source, shard, recovery } => {
                let recovered = self.port(source).store.call(Request::Recover { shard });
                tokio::spawn(async move {
                    let result = match answered(recovered).await {
                        Ok(Reply::Recovered(found)) => Ok(found),
                        Ok(other) => Err(honeyflow_store::misplaced(&other)),
                        Err(failure) => {
                            tracing::warn!(%failure, "cannot read what the last owner left");
                            tokio::time::sleep(Duration::from_millis(500)).await;
                            Err(failure)
                        }
                    };
                    let _ = inputs.send(Input::Recovered { source, recovery, result }).await;
                });
            }
            Effect::Write { source, write, request } => {
                let written = self.port(source).store.call(Request::Write(request));
                tokio::spawn(async move {
                    let result = answered(written).await;
                    let _ = inputs.send(Input::Written { write, result }).await;
                });
            }
            Effect::Look { source, look, wanted } => {
                let found = self.port(source).store.call(Request::Signals(wanted));
                tokio::spawn(async move {
                    let result = match answered(found).await {
                        Ok(Reply::Signals(found)) => Ok(found),
                        Ok(other) => Err(honeyflow_store::misplaced(&other)),
                        Err(failure) => {
                            tokio::time::sleep(Duration::from_millis(500)).await;
                            Err(failure)
                        }
                    };
                    let _ = inputs.send(Input::Found { source, look, result }).await;
                });
            }
            Effect::Judge { judge, workflow, items } => {
                let evaluator = self.evaluator(&self.config.plan.workflows[workflow].name);
                tokio::spawn(async move {
                    let results = evaluator.run(Arc::new(items), worker::TIMEOUT, Arc::new(evaluate::judge)).await;
                    let _ = inputs.send(Input::Judged { judge, results }).await;
                });
            }
            Effect::Withdraw { batch, whole: true, .. } => self.attempts.stop(batch),
            // Other items of the batch are wanted: it goes on, and what it says of these is refused.
            Effect::Withdraw { .. } => {}
            // In this process a batch that was taken back ends by its own time-out; its answer is refused.
            Effect::Cancel { batch, .. } => tracing::warn!(batch, "a batch was not answered in time"),
            Effect::Mint { source, lease, floor } => {
                shards.mint(self.config.plan.sources[source as usize].port, lease, floor);
            }
            Effect::Left(held) => {
                let planned = self.config.plan.sources.iter().find(|source| source.lease == held.lease);
                shards.left(planned.map_or(0, |source| source.port), held);
            }
            Effect::Alarm { code, message } => tracing::warn!(code, "{message}"),
            Effect::Give { .. } | Effect::Take { .. } | Effect::GiveBack { .. } | Effect::Drained => {}
        }
    }

    fn give(&self, batch: BatchId, work: Work, places: Vec<Permit<'static>>, inputs: mpsc::Sender<Input>) {
        self.config.traffic.mark();
        let evaluator = |workflow: &str| self.evaluator(workflow);
        worker::work(&self.config.steps, evaluator, &self.attempts, batch, (work, places), inputs);
    }
}

/// The first and those that wait behind it, up to [`INPUTS_AT_ONCE`]; none is taken that is not given on.
fn take_waiting<T>(first: T, received: &mut mpsc::Receiver<T>, mut each: impl FnMut(T)) {
    each(first);
    for _ in 1..INPUTS_AT_ONCE {
        let Ok(next) = received.try_recv() else { return };
        each(next);
    }
}

/// Whatever happens, the core gets an answer: a call that panics or hangs has failed, and is made again.
async fn answered<T: Send + 'static>(call: BoxFuture<'static, Result<T, Failure>>) -> Result<T, Failure> {
    let call = tokio::spawn(tokio::time::timeout(CALL_TIMEOUT, call));
    match call.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Failure::retry("no-answer", format!("the store has not answered within {CALL_TIMEOUT:?}"))),
        Err(error) => Err(Failure::retry("panicked", format!("a call to the store panicked: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that is lost holds its key, and with it the shard, for ever.
    #[test]
    fn no_input_is_lost_however_many_wait() {
        let (sender, mut received) = mpsc::channel(INPUTS_MAX);
        for number in 0..INPUTS_AT_ONCE * 3 + 1 {
            sender.try_send(number).expect("room");
        }
        let mut seen = Vec::new();
        while let Ok(first) = received.try_recv() {
            let before = seen.len();
            take_waiting(first, &mut received, |number| seen.push(number));
            assert!(seen.len() - before <= INPUTS_AT_ONCE);
        }
        assert_eq!(seen, (0..INPUTS_AT_ONCE * 3 + 1).collect::<Vec<_>>());
    }
}
