//! Carries out the effects that the core decides. One task owns the core; all other tasks send it messages.

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
    limit::{GrantedPermits, StepLimits},
    shards::{HeldShards, ShardEvent},
};
use crate::{
    codes,
    core::{
        BatchId, Core, Effect, Input,
        input::Work,
        plan::{Plan, SourceId},
        run_view::RunView,
        status::Status,
    },
};

/// How many messages may wait for the core; further senders wait.
const INPUTS_MAX: usize = 1024;
/// Inputs that the core handles together before effects are carried out.
const INPUTS_AT_ONCE: usize = 64;
/// A call to the store that takes longer is repeated.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A thread with an expression that never ends cannot be stopped: with this many of them the process must restart.
const ABANDONED_MAX: usize = 8;
const STATUS_EVERY: Duration = Duration::from_millis(200);
/// Shards that no other node has taken over by then are released.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(5);

/// A source, the store in its database, and this node's membership in the hive of that database: epochs are stored
/// where the rows are that they protect. Sources of one database share the store and the hive.
#[derive(Clone)]
pub struct SourcePort {
    pub source: Arc<dyn Source>,
    pub store: Arc<dyn Store>,
    pub hive: Hive,
}

pub struct Config {
    pub plan: Arc<Plan>,
    /// The ports, as the plan's shards index them.
    pub sources: Vec<SourcePort>,
    /// The steps of each workflow.
    pub steps: Vec<Vec<Arc<dyn Step>>>,
    /// For each kind, how many batches run at once.
    pub concurrency: Vec<u32>,
    /// The limits of steps. A name that is missing here limits nothing.
    pub limits: StepLimits,
    /// Expressions over events are evaluated on its threads.
    pub pool: Arc<Pool>,
    /// None: this node takes no shards.
    pub shards: Option<TakeShards>,
    /// Marked when there is work: rows were found, or a batch was given out.
    pub traffic: Traffic,
    pub clock: Arc<dyn Clock>,
    pub seed: u64,
}

/// Which of the sources' shards this node takes.
#[derive(Clone, Copy, Default, Debug)]
pub struct TakeShards {
    /// Take only the shards that are pinned to this node; others wait.
    pub pinned_only: bool,
}

/// Cheap to clone; outlives a restart of the service.
#[derive(Clone)]
pub struct Handle {
    inputs: Arc<ArcSwapOption<mpsc::Sender<Input>>>,
    status: watch::Receiver<Status>,
    queries: mpsc::Sender<RunQuery>,
}

/// A question about open runs; the task that owns the core answers it.
struct RunQuery {
    key: Option<String>,
    limit: usize,
    answer: oneshot::Sender<Vec<RunView>>,
}

impl Handle {
    /// Returns the last published status, at most [`STATUS_EVERY`] old.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Takes no new work; [`Service::run`] returns once the batches in progress have ended.
    pub async fn drain(&self) {
        self.send(Input::Drain).await;
    }

    pub async fn pause(&self, workflow: Name, paused: bool) {
        self.send(Input::Pause { workflow, paused }).await;
    }

    pub async fn cancel(&self, workflow: Name, entity: Name, key: Key) {
        self.send(Input::Cancel { workflow, entity, key }).await;
    }

    /// Returns the open runs, the oldest first; only those of `key` if it is given.
    pub async fn runs(&self, key: Option<String>, limit: usize) -> Vec<RunView> {
        let (answer, answered) = oneshot::channel();
        if self.queries.send(RunQuery { key, limit, answer }).await.is_err() {
            return Vec::new();
        }
        answered.await.unwrap_or_default()
    }

    async fn send(&self, input: Input) {
        let inputs = self.inputs.load_full();
        if let Some(inputs) = inputs {
            let _ = inputs.send(input).await;
        }
    }
}

pub struct Service {
    config: Config,
    /// An evaluator per workflow name: it counts the expressions of that workflow that are too slow.
    evaluators: HashMap<Name, Arc<Evaluator>>,
    attempts: worker::Attempts,
    inputs: Arc<ArcSwapOption<mpsc::Sender<Input>>>,
    status: watch::Sender<Status>,
    received_queries: tokio::sync::Mutex<mpsc::Receiver<RunQuery>>,
}

impl Service {
    pub fn new(config: Config) -> (Service, Handle) {
        let inputs = Arc::new(ArcSwapOption::empty());
        let (status, watched) = watch::channel(Status::default());
        let (queries, received_queries) = mpsc::channel(16);
        let names = config.plan.workflows.iter().map(|workflow| workflow.name.clone());
        let evaluators = names.map(|name| (name, Arc::new(Evaluator::new(config.pool.clone())))).collect();
        let received_queries = tokio::sync::Mutex::new(received_queries);
        let attempts = worker::Attempts::default();
        let service = Service { config, evaluators, attempts, inputs: inputs.clone(), status, received_queries };
        (service, Handle { inputs, status: watched, queries })
    }

    /// Runs until drained. If it is run again after a failure, it starts from the rows in the table, with new epochs.
    ///
    /// # Errors
    /// Fails with the reason if the node cannot become a member of a hive, or is no longer one.
    pub async fn run(&self) -> Result<(), Failure> {
        let (inputs, mut received) = mpsc::channel(INPUTS_MAX);
        self.inputs.store(Some(Arc::new(inputs.clone())));
        // Each run has new epochs, so that late writes of an engine that failed are fenced.
        let (mut shards, mut changed) = self.take_shards().await?;
        let mut core = Core::new(self.config.plan.clone(), self.config.seed);
        let mut effects = Vec::new();
        let granted = GrantedPermits::default();
        let room = self.config.concurrency.iter().enumerate().map(|(kind, room)| (crate::core::id(kind), *room));
        core.advance(Input::Hello { worker: 0, room: room.collect() }, self.config.clock.now(), &mut effects);
        let mut received_queries = self.received_queries.lock().await;
        let mut status_tick = tokio::time::interval(STATUS_EVERY);
        let mut drained_at = None;
        loop {
            for effect in effects.drain(..) {
                if let Effect::Drained = effect {
                    drained_at = Some(tokio::time::Instant::now());
                }
                match effect {
                    Effect::Take { limit, take, permits } => {
                        self.config.limits.take(limit, take, permits, &inputs, &granted);
                    }
                    Effect::GiveBack { limit, take, permits } => granted.give_back(&limit, take, permits),
                    Effect::Give { batch, work, permits, .. } => {
                        let slots = permits.map_or_else(Vec::new, |permits| granted.take_slots(&permits));
                        self.give(batch, work, slots, inputs.clone());
                    }
                    effect => self.carry_out(effect, &mut shards, &inputs),
                }
            }
            // No batch or write is under way any more; the shards are transferred to nodes that can take them.
            if drained_at.is_some_and(|at| at.elapsed() >= HAND_OVER_WITHIN || !shards.can_transfer()) {
                shards.finish_requests().await;
                self.status.send_replace(core.status());
                return Ok(());
            }
            let wait = core.wake_at().since(self.config.clock.now()).min(Duration::from_secs(3600));
            tokio::select! {
                biased;
                // Changes of leases go first: work on a lost shard must stop even under load.
                Some((port, happened)) = changed.recv() => {
                    let now = self.config.clock.now();
                    shards.note(port, &happened);
                    match happened {
                        ShardEvent::Changed(Change::Gained(term)) => {
                            core.advance(Input::Granted(term), now, &mut effects);
                        }
                        ShardEvent::Changed(Change::Leave { held, .. }) => {
                            core.advance(Input::Leave(held), now, &mut effects);
                        }
                        ShardEvent::Changed(Change::Lost { lease, .. }) => {
                            core.advance(Input::Lost { lease }, now, &mut effects);
                        }
                        ShardEvent::Trusted(until) => {
                            for (source, planned) in self.config.plan.sources.iter().enumerate() {
                                if planned.port == port {
                                    let source = crate::core::id(source);
                                    core.advance(Input::Trust { source, until }, now, &mut effects);
                                }
                            }
                        }
                        ShardEvent::Ended(failure) => return Err(failure),
                    }
                }
                Some(input) = received.recv() => take_waiting(input, &mut received, |input| {
                    if let Input::Drain = input {
                        shards.drain();
                    }
                    core.advance(input, self.config.clock.now(), &mut effects);
                }),
                Some(RunQuery { key, limit, answer }) = received_queries.recv() => {
                    let _ = answer.send(core.runs(key.as_deref(), limit));
                }
                _ = status_tick.tick() => {
                    self.status.send_replace(core.status());
                    let stuck = self.config.pool.abandoned_in_all();
                    if stuck >= ABANDONED_MAX {
                        let message = format!("{stuck} expressions never ended, and each keeps a CPU core busy; search the log for `too-slow`");
                        return Err(Failure::fatal(codes::STUCK_EXPRESSIONS, message));
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

    fn carry_out(&self, effect: Effect, shards: &mut HeldShards, inputs: &mpsc::Sender<Input>) {
        let inputs = inputs.clone();
        match effect {
            Effect::Poll { source, poll, request } => {
                let polled = self.port(source).source.poll(request);
                let traffic = self.config.traffic.clone();
                tokio::spawn(async move {
                    let result = await_call(polled).await;
                    if result.as_ref().is_ok_and(|intake| !intake.taken.is_empty()) {
                        traffic.mark();
                    }
                    let _ = inputs.send(Input::Polled { source, poll, result }).await;
                });
            }
            Effect::Recover { source, shard, recovery } => {
                let recovered = self.port(source).store.call(Request::Recover { shard });
                tokio::spawn(async move {
                    let result = match await_call(recovered).await {
                        Ok(Reply::Recovered(found)) => Ok(found),
                        Ok(other) => Err(honeyflow_store::mismatched_reply(&other)),
                        Err(failure) => {
                            tracing::warn!(%failure, "cannot read the state that the previous owner left; retrying");
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
                    let result = await_call(written).await;
                    let _ = inputs.send(Input::Written { write, result }).await;
                });
            }
            Effect::LookUpSignals { source, lookup, wanted } => {
                let found = self.port(source).store.call(Request::Signals(wanted));
                tokio::spawn(async move {
                    let result = match await_call(found).await {
                        Ok(Reply::Signals(found)) => Ok(found),
                        Ok(other) => Err(honeyflow_store::mismatched_reply(&other)),
                        Err(failure) => {
                            tokio::time::sleep(Duration::from_millis(500)).await;
                            Err(failure)
                        }
                    };
                    let _ = inputs.send(Input::SignalsFound { source, lookup, result }).await;
                });
            }
            Effect::CheckEvents { check, workflow, items } => {
                let evaluator = self.evaluator(&self.config.plan.workflows[workflow].name);
                tokio::spawn(async move {
                    let results =
                        evaluator.run(Arc::new(items), worker::TIMEOUT, Arc::new(evaluate::check_event)).await;
                    let _ = inputs.send(Input::EventsChecked { check, results }).await;
                });
            }
            Effect::Withdraw { batch, whole: true, .. } => self.attempts.stop(batch),
            // Other items of the batch are still wanted: it continues, and its answers for the cancelled items are
            // refused.
            Effect::Withdraw { .. } => {}
            // In this process a batch that was taken back ends by its own time-out, and its answer is refused.
            Effect::Cancel { batch, .. } => tracing::warn!(batch, "took back a batch that was not answered in time"),
            Effect::Mint { source, lease, floor } => {
                shards.mint(self.config.plan.sources[source as usize].port, lease, floor);
            }
            Effect::Left(held) => {
                let planned = self.config.plan.sources.iter().find(|source| source.lease == held.lease);
                shards.on_left(planned.map_or(0, |source| source.port), held);
            }
            Effect::Alarm { code, message } => tracing::warn!(code, "{message}"),
            Effect::Give { .. } | Effect::Take { .. } | Effect::GiveBack { .. } | Effect::Drained => {}
        }
    }

    fn give(&self, batch: BatchId, work: Work, slots: Vec<Permit<'static>>, inputs: mpsc::Sender<Input>) {
        self.config.traffic.mark();
        let evaluator = |workflow: &str| self.evaluator(workflow);
        worker::work(&self.config.steps, evaluator, &self.attempts, batch, (work, slots), inputs);
    }
}

/// Passes on the first input and those that wait behind it, up to [`INPUTS_AT_ONCE`]. Every input that it receives is
/// passed on.
fn take_waiting<T>(first: T, received: &mut mpsc::Receiver<T>, mut each: impl FnMut(T)) {
    each(first);
    for _ in 1..INPUTS_AT_ONCE {
        let Ok(next) = received.try_recv() else { return };
        each(next);
    }
}

/// Gives the core an answer in every case: a call that panics or hangs counts as failed, and the core repeats it.
async fn await_call<T: Send + 'static>(call: BoxFuture<'static, Result<T, Failure>>) -> Result<T, Failure> {
    let call = tokio::spawn(tokio::time::timeout(CALL_TIMEOUT, call));
    match call.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            Err(Failure::retry(codes::NO_ANSWER, format!("the store has not answered within {CALL_TIMEOUT:?}")))
        }
        Err(error) => Err(Failure::retry(codes::PANICKED, format!("a call to the store panicked: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lost answer would hold its key, and with it the shard, for ever.
    #[test]
    fn no_input_is_lost_when_more_wait_than_one_turn_takes() {
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
