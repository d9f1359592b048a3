//! A core under test: its effects are collected in a [`Table`] until the test answers them.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use honeyflow_engine::{
    core::{
        BatchId, Core, Effect, Input, WorkerId, WriteId,
        input::{CheckId, EventCheck, Work},
        plan::{EntityPlan, Limits, Plan, SourcePlan, WorkflowPlan},
        run_view::RunView,
        status::Status,
    },
    shell::evaluate,
};
use honeyflow_event::{Changes, Event, EventId, Kind, Name};
use honeyflow_hive::{HiveStore, NodeId, member};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::{Intake, Lead, Leads, TakenEvent};
use honeyflow_step::{Batch, Item, Outcome};
use honeyflow_store::{Op, Poll, RecoveredState, Reply, Signal, SignalQuery, Write};
use honeyflow_workflow::{Catalogue, Checkpoint, Role, Setting, SettingValue, Workflow, builder::step, compile};
use smallvec::smallvec;

/// The kinds, as the plan numbers them; the first is the kind of expressions.
const KINDS: [&str; 9] = ["expression", "load", "work", "index", "call", "sleep", "wait", "emit", "shape"];
pub const LEASE: &str = "shard/shop/0";

pub struct Table {
    plan: Arc<Plan>,
    hive: Arc<MemoryHive>,
    core: Core,
    /// The number of nodes that have held the lease.
    owner: u128,
    now: Moment,
    poll: Option<(u64, Poll)>,
    pub given: VecDeque<(BatchId, Batch)>,
    pub written: VecDeque<(WriteId, Write)>,
    pub minted: usize,
    /// Pending event checks, if `keeps_questions` is set; else they are answered at once.
    pub checks: VecDeque<(CheckId, Vec<EventCheck>)>,
    pub holds_checks: bool,
    /// Pending evaluations (batch and size), if `keeps_evaluations` is set; else they are answered at once.
    pub evaluations: VecDeque<(BatchId, usize)>,
    pub holds_evaluations: bool,
    /// The stored signals. Lookups are answered at once, unless `keeps_looks` is set.
    pub signals: Vec<Arc<Event>>,
    pub lookups: VecDeque<(u64, Vec<SignalQuery>)>,
    pub holds_lookups: bool,
    /// The codes of the alarms.
    pub alarms: Vec<&'static str>,
    /// Batches that were taken back.
    pub cancelled: Vec<BatchId>,
    /// Items of batches that were cancelled, and whether they are all items of the batch.
    pub withdrawn: Vec<(BatchId, Vec<usize>, bool)>,
    /// Requests for permits: the limit, the request's number, and how many.
    pub takes: VecDeque<(Name, u64, u64)>,
    /// The number of permits that were given back.
    pub given_back: u64,
}

/// `load → index`, one workflow.
pub fn plain() -> Vec<Workflow> {
    vec![
        Workflow::new("index")
            .on("shop", "book")
            .step("load", step("load"))
            .step("index", step("index").needs(["load"]).set("tries", 2)),
    ]
}

fn kinds() -> Catalogue {
    const FOR: &[Setting] = &[Setting { name: "for", required: true, value: SettingValue::Duration, doc: "how long" }];
    const fn setting(name: &'static str, value: SettingValue) -> Setting {
        Setting { name, required: false, value, doc: "" }
    }
    const SHAPE: &[Setting] = &[setting("expression", SettingValue::Expression)];
    const WAIT: &[Setting] = &[
        setting("name", SettingValue::Text),
        setting("key", SettingValue::Expression),
        setting("match", SettingValue::Expression),
        setting("on-timeout", SettingValue::Word(&["fail", "skip"])),
    ];
    let kind = |name, role, checkpoint, settings| honeyflow_workflow::Kind {
        name,
        settings,
        role,
        checkpoint,
        batch_max: 500,
        timeout: Duration::from_secs(30),
    };
    Catalogue::new(vec![
        kind("load", Role::Load, Checkpoint::Never, &[]),
        kind("work", Role::Work, Checkpoint::Never, &[]),
        kind("index", Role::Sink, Checkpoint::Never, &[]),
        kind("call", Role::Work, Checkpoint::Always, &[]),
        kind("sleep", Role::Sleep, Checkpoint::Always, FOR),
        kind("wait", Role::Wait, Checkpoint::Always, WAIT),
        kind("emit", Role::Emit, Checkpoint::Always, &[]),
        kind("shape", Role::Work, Checkpoint::Never, SHAPE),
    ])
}

pub fn plan(workflows: &[Workflow], limits: Limits) -> Plan {
    let catalogue = kinds();
    let plans = workflows.iter().map(|workflow| {
        let definition = workflow.build(&catalogue).expect("a sound workflow");
        let graph = Arc::new(compile(&definition, 1, &catalogue).expect("a sound graph"));
        let kind = |name: &str| KINDS.iter().position(|known| *known == name).expect("a known kind") as u16;
        Arc::new(WorkflowPlan {
            name: graph.name.clone(),
            older: false,
            priority: None,
            exclusion: definition.exclusion,
            order: definition.order,
            kinds: graph.steps.iter().map(|step| kind(&step.kind)).collect(),
            targets: graph.steps.iter().map(|step| kind(&step.kind)).collect(),
            graph,
        })
    });
    let workflows: Vec<_> = plans.collect();
    let entity = EntityPlan { id: 0, key: Vec::new(), workflows: (0..workflows.len()).collect() };
    let source = SourcePlan {
        name: "shop".into(),
        install_id: 1,
        lease: LEASE.into(),
        port: 0,
        shard: 0,
        payload_bytes_max: 1 << 20,
        entities: [("book".into(), entity)].into_iter().collect(),
        leads: vec![("book".into(), vec!["book".into()])],
        versions: Vec::new(),
    };
    let named = KINDS.map(Into::into).to_vec();
    Plan { sources: vec![source], workflows, kinds: named.clone(), targets: named, limits }
}

impl Table {
    pub fn new(workflows: &[Workflow]) -> Table {
        Table::with_limits(workflows, Limits::default())
    }

    pub fn with_limits(workflows: &[Workflow], limits: Limits) -> Table {
        Table::with_plan(plan(workflows, limits))
    }

    pub fn with_plan(plan: Plan) -> Table {
        let plan = Arc::new(plan);
        let mut table = Table {
            core: Core::new(plan.clone(), 7),
            plan,
            hive: Arc::new(MemoryHive::new(|| 1)),
            owner: 0,
            now: Moment::from_millis(1_000_000),
            poll: None,
            given: VecDeque::new(),
            written: VecDeque::new(),
            minted: 0,
            checks: VecDeque::new(),
            holds_checks: false,
            evaluations: VecDeque::new(),
            holds_evaluations: false,
            signals: Vec::new(),
            lookups: VecDeque::new(),
            holds_lookups: false,
            alarms: Vec::new(),
            cancelled: Vec::new(),
            withdrawn: Vec::new(),
            takes: VecDeque::new(),
            given_back: 0,
        };
        table.begin(RecoveredState::default());
        table
    }

    /// The same as `next_owner`, with another configuration.
    pub fn next_owner_with(&mut self, plan: Plan, left: RecoveredState) {
        self.plan = Arc::new(plan);
        self.next_owner(left);
    }

    /// The node is gone with its memory; another node takes over with what it left in the store.
    pub fn next_owner(&mut self, left: RecoveredState) {
        self.core = Core::new(self.plan.clone(), 11);
        self.poll = None;
        self.given.clear();
        self.written.clear();
        self.checks.clear();
        self.lookups.clear();
        let node = NodeId(uuid::Uuid::from_u128(self.owner));
        let left_hive = self.hive.call(honeyflow_hive::Request::Leave { node });
        now(left_hive).expect("it leaves");
        self.begin(left);
    }

    /// Grants the higher epoch that the core has asked for.
    pub fn mint(&mut self) {
        let node = NodeId(uuid::Uuid::from_u128(self.owner));
        now(self.hive.call(honeyflow_hive::Request::Leave { node })).expect("it leaves");
        self.owner += 1;
        let node = NodeId(uuid::Uuid::from_u128(self.owner));
        let term = now(member::take(&*self.hive, node, LEASE)).expect("it is free");
        self.send(Input::Granted(term));
    }

    fn begin(&mut self, left: RecoveredState) {
        self.owner += 1;
        self.hello(0, 8);
        let node = NodeId(uuid::Uuid::from_u128(self.owner));
        let term = now(member::take(&*self.hive, node, LEASE)).expect("it is free");
        self.send(Input::Trust { source: 0, until: Moment::FAR });
        self.send(Input::Granted(term));
        self.send(Input::Recovered { source: 0, recovery: 1, result: Ok(left) });
        // The first poll is a sweep of the table.
        self.rows(&[]);
    }

    /// Adds a worker that offers room for `batches` batches of every kind.
    pub fn hello(&mut self, worker: WorkerId, batches: u32) {
        let kinds = u16::try_from(KINDS.len()).unwrap_or(0);
        self.send(Input::Hello { worker, room: (0..kinds).map(|kind| (kind, batches)).collect() });
    }

    pub fn send(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.advance(input, self.now, &mut effects);
        let mut evaluated = Vec::new();
        for effect in effects {
            match effect {
                Effect::Give { batch, work: Work::Evaluate { items, .. }, .. } if self.holds_evaluations => {
                    self.evaluations.push_back((batch, items.len()));
                }
                // Expressions are answered at once.
                Effect::Give { batch, work: Work::Evaluate { graph, step, items }, .. } => {
                    evaluated.push(Input::Evaluated { batch, results: evaluate::evaluate_all(&graph, step, &items) });
                }
                Effect::CheckEvents { check, items, .. } if self.holds_checks => self.checks.push_back((check, items)),
                Effect::CheckEvents { check, items, .. } => {
                    evaluated.push(Input::EventsChecked {
                        check,
                        results: items.iter().map(evaluate::check_event).collect(),
                    });
                }
                Effect::LookUpSignals { lookup, wanted, .. } if self.holds_lookups => {
                    self.lookups.push_back((lookup, wanted));
                }
                Effect::LookUpSignals { lookup, wanted, .. } => evaluated.push(self.found(lookup, &wanted)),
                Effect::Poll { poll, request, .. } => self.poll = Some((poll, request)),
                Effect::Give { batch, work: Work::Execute { batch: work, .. }, .. } => {
                    self.given.push_back((batch, work));
                }
                Effect::Write { write, request, .. } => self.written.push_back((write, request)),
                Effect::Mint { .. } => self.minted += 1,
                Effect::Take { limit, take, permits } => self.takes.push_back((limit, take, permits)),
                Effect::GiveBack { permits, .. } => self.given_back += permits,
                Effect::Alarm { code, .. } => self.alarms.push(code),
                Effect::Cancel { batch, .. } => self.cancelled.push(batch),
                Effect::Withdraw { batch, items, whole, .. } => self.withdrawn.push((batch, items, whole)),
                _ => {}
            }
        }
        evaluated.into_iter().for_each(|input| self.send(input));
    }

    /// Returns the answer of the store to a signal lookup.
    pub fn found(&self, lookup: u64, wanted: &[SignalQuery]) -> Input {
        let of = |wanted: &SignalQuery| {
            let meets =
                |event: &Event| event.entity == wanted.name && wanted.key.as_ref().is_none_or(|key| event.key == *key);
            let numbered = (1..).zip(&self.signals).filter(|(id, event)| *id > wanted.after && meets(event));
            let found = numbered.map(|(id, event)| Signal { id, event: event.clone() });
            found.take(wanted.limit as usize).collect()
        };
        Input::SignalsFound { source: 0, lookup, result: Ok(wanted.iter().map(of).collect()) }
    }

    pub fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.send(Input::Tick);
    }

    /// Waits until the core polls, and returns the request.
    pub fn polled(&mut self) -> Poll {
        for _ in 0..10 {
            if let Some((_, request)) = &self.poll {
                return request.clone();
            }
            self.pass(50);
        }
        panic!("nothing is asked for");
    }

    /// Answers the poll with rows of these ids and keys.
    pub fn rows(&mut self, rows: &[(EventId, &str)]) {
        self.rows_at(4, rows);
    }

    /// The same as `rows`, with a priority.
    pub fn rows_at(&mut self, priority: u8, rows: &[(EventId, &str)]) {
        let events = rows.iter().map(|(id, key)| row(*id, key, priority));
        let taken = events.map(|event| (leads_to(&event), event)).map(|(leads, event)| taken(event, leads)).collect();
        self.answer_poll(Intake { taken, ..Intake::default() });
    }

    /// Answers the poll with this intake.
    pub fn answer_poll(&mut self, intake: Intake) {
        self.polled();
        let (poll, request) = self.poll.take().expect("asked for");
        let mut looked_to = request.levels.map(|level| level.after);
        for taken in &intake.taken {
            let level = &mut looked_to[usize::from(taken.event.priority)];
            *level = (*level).max(taken.event.id);
        }
        self.send(Input::Polled { source: 0, poll, result: Ok(Intake { looked_to, ..intake }) });
    }

    /// Fails the poll under way.
    pub fn poll_fails(&mut self) {
        self.polled();
        let (poll, _) = self.poll.take().expect("asked for");
        let result = Err(Failure::retry("panicked", "a call to the store panicked"));
        self.send(Input::Polled { source: 0, poll, result });
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn is_polling(&self) -> bool {
        self.poll.is_some()
    }

    /// Lets time pass until a batch is given out; returns the milliseconds.
    pub fn wait_for_batch(&mut self) -> u64 {
        let mut waited = 0;
        while self.given.is_empty() {
            assert!(waited < 1_000_000, "no batch after {waited} ms");
            self.pass(10);
            waited += 10;
        }
        waited
    }

    /// Commits all pending writes, and those that follow from them.
    pub fn commit_all(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        while !self.written.is_empty() {
            ops.extend(self.commit());
        }
        ops
    }

    pub fn status(&self) -> Status {
        self.core.status()
    }

    pub fn runs(&self) -> Vec<RunView> {
        self.core.runs(None, 100)
    }

    /// Returns the reason why the run of this key waits.
    pub fn reason_of(&self, key: &str) -> &'static str {
        self.core.runs(Some(key), 1).first().map_or("", |run| run.waits_for)
    }

    /// Returns the reason why the only open run waits.
    pub fn reason(&self) -> &'static str {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].waits_for
    }

    pub fn next(&mut self) -> (BatchId, Batch) {
        self.given.pop_front().expect("a batch was given")
    }

    /// Answers a batch with one outcome for all.
    pub fn answer(&mut self, batch: BatchId, items: usize, outcome: &Outcome) {
        self.send(Input::Outcomes { batch, outcomes: vec![outcome.clone(); items] });
    }

    /// Answers the next request for permits with `permits`; returns how many were requested.
    pub fn permit(&mut self, permits: u64, wait_ms: Option<u64>) -> u64 {
        let (limit, take, asked) = self.takes.pop_front().expect("permits are asked for");
        let wait = wait_ms.map(Duration::from_millis);
        self.send(Input::Permitted { limit, take, permits, wait });
        asked
    }

    /// Answers the next batch, which must be of this step, as done.
    pub fn done(&mut self, step: &str) -> Vec<Item> {
        let (batch, work) = self.next();
        assert_eq!(&*work.step, step);
        let output = Some(Arc::new(serde_json::json!({ "of": step })));
        self.answer(batch, work.items.len(), &Outcome::Done(output));
        work.items
    }

    pub fn commit(&mut self) -> Vec<Op> {
        let (write, request) = self.written.pop_front().expect("something is written");
        for op in &request.ops {
            if let Op::Signal { event, .. } = op {
                let event = event.stored();
                self.signals.push(Arc::new(event));
            }
        }
        self.send(Input::Written { write, result: Ok(Reply::Committed) });
        request.ops
    }

    pub fn open_runs(&self) -> usize {
        self.core.status().open_runs
    }
}

pub fn now<T>(answer: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(answer).expect("memory answers at once")
}

pub fn taken(event: Arc<Event>, leads: Leads) -> TakenEvent {
    TakenEvent { event, leads, newest: false }
}

pub fn leads_to(event: &Event) -> Leads {
    let target = honeyflow_event::Target { entity: event.entity.clone(), key: event.key.clone() };
    Leads::To(smallvec![Lead { target, change: event.change }])
}

pub fn row(id: EventId, key: &str, priority: u8) -> Arc<Event> {
    Arc::new(Event {
        id,
        format: 1,
        kind: Kind::Row,
        tenant: "".into(),
        entity: "book".into(),
        key: key.into(),
        priority,
        workflow: None,
        created_ms: 0,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    })
}

pub fn failed(failure: Failure) -> Outcome {
    Outcome::Failed(failure)
}

pub fn message(id: EventId, key: &str, payload: &str) -> Arc<Event> {
    let event = Event::clone(&row(id, key, 4));
    Arc::new(Event { kind: Kind::Message, payload: Some(payload.into()), ..event })
}

pub fn keys(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| &*item.key).collect()
}

/// Rows that the operations delete because their run has succeeded.
pub fn settled(ops: &[Op]) -> Vec<EventId> {
    ops.iter().flat_map(|op| if let Op::Settle { events, .. } = op { events.clone() } else { Vec::new() }).collect()
}

/// Returns the runs that the operations park.
pub fn parked(ops: &[Op]) -> Vec<&honeyflow_store::write::ParkRequest> {
    ops.iter().filter_map(|op| if let Op::Park(parked) = op { Some(&**parked) } else { None }).collect()
}
