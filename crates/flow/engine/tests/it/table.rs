//! A core on a table: what it asks for lies there until the test answers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use honeyflow_engine::core::{
    BatchId, Core, Effect, Input, WriteId,
    input::Work,
    plan::{EntityPlan, Limits, Plan, SourcePlan, WorkflowPlan},
};
use honeyflow_event::{Event, EventId, Kind};
use honeyflow_hive::{NodeId, member};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::{Intake, Leads, Taken};
use honeyflow_step::{Batch, Item, Outcome};
use honeyflow_store::{Op, Poll, Recovered, Reply, Write};
use honeyflow_workflow::{Catalogue, Checkpoint, Kind as StepKind, Role, Workflow, builder::step, compile};
use smallvec::smallvec;

pub struct Table {
    core: Core,
    now: Moment,
    poll: Option<(u64, Poll)>,
    pub given: VecDeque<(BatchId, Batch)>,
    pub written: VecDeque<(WriteId, Write)>,
    pub minted: usize,
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
    let kind = |name, role| StepKind {
        name,
        settings: &[],
        role,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(30),
    };
    Catalogue::new(vec![kind("load", Role::Load), kind("work", Role::Work), kind("index", Role::Sink)])
}

impl Table {
    pub fn new(workflows: &[Workflow]) -> Table {
        Table::with_limits(workflows, Limits::default())
    }

    pub fn with_limits(workflows: &[Workflow], limits: Limits) -> Table {
        let catalogue = kinds();
        let names = ["expression", "load", "work", "index"];
        let plans = workflows.iter().map(|workflow| {
            let definition = workflow.build(&catalogue).expect("a sound workflow");
            let graph = Arc::new(compile(&definition, 1, &catalogue).expect("a sound graph"));
            let kind = |name: &str| names.iter().position(|known| *known == name).expect("a known kind") as u16;
            Arc::new(WorkflowPlan {
                name: graph.name.clone(),
                priority: None,
                exclusion: definition.exclusion,
                order: definition.order,
                kinds: graph.steps.iter().map(|step| kind(&step.kind)).collect(),
                targets: graph.steps.iter().map(|step| kind(&step.kind)).collect(),
                graph,
            })
        });
        let workflows: Vec<_> = plans.collect();
        let entity = EntityPlan { id: 0, workflows: (0..workflows.len()).collect() };
        let source = SourcePlan {
            name: "shop".into(),
            lease: "shard/shop/0".into(),
            shard: 0,
            payload_bytes_max: 1 << 20,
            entities: [("book".into(), entity)].into_iter().collect(),
            leads: vec![("book".into(), vec!["book".into()])],
        };
        let named = names.map(Into::into).to_vec();
        let plan = Plan { sources: vec![source], workflows, kinds: named.clone(), targets: named, limits };
        let mut table = Table {
            core: Core::new(Arc::new(plan), 7),
            now: Moment::from_millis(1_000_000),
            poll: None,
            given: VecDeque::new(),
            written: VecDeque::new(),
            minted: 0,
        };
        table.tell(Input::Hello { worker: 0, room: (0..4).map(|kind| (kind, 8)).collect() });
        let hive = MemoryHive::new(|| 1);
        let taken = member::take(&hive, NodeId(uuid::Uuid::from_u128(1)), "shard/shop/0");
        let term = futures_util::FutureExt::now_or_never(taken).expect("memory answers at once").expect("it is free");
        table.tell(Input::Trust { source: 0, until: Moment::FAR });
        table.tell(Input::Granted(term));
        table.tell(Input::Recovered { source: 0, recovery: 1, result: Ok(Recovered::default()) });
        // The first one is a sweep of what is there.
        table.rows(&[]);
        table
    }

    pub fn tell(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.advance(input, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Poll { poll, request, .. } => self.poll = Some((poll, request)),
                Effect::Give { batch, work: Work::Execute { batch: work, .. }, .. } => {
                    self.given.push_back((batch, work));
                }
                Effect::Write { write, request, .. } => self.written.push_back((write, request)),
                Effect::Mint { .. } => self.minted += 1,
                _ => {}
            }
        }
    }

    pub fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.tell(Input::Tick);
    }

    /// What the core has asked the source for, once it does.
    pub fn asked(&mut self) -> Poll {
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

    /// The same with a priority.
    pub fn rows_at(&mut self, priority: u8, rows: &[(EventId, &str)]) {
        self.asked();
        let (poll, request) = self.poll.take().expect("asked for");
        let mut looked_to = request.levels.map(|level| level.after);
        let mut taken = Vec::new();
        for (id, key) in rows {
            let level = &mut looked_to[usize::from(priority)];
            *level = (*level).max(*id);
            let target = honeyflow_event::Target { entity: "book".into(), key: (*key).into() };
            taken.push(Taken { event: row(*id, key, priority), leads: Leads::To(smallvec![target]), newest: false });
        }
        let intake = Intake { taken, looked_to, ..Intake::default() };
        self.tell(Input::Polled { source: 0, poll, result: Ok(intake) });
    }

    pub fn next(&mut self) -> (BatchId, Batch) {
        self.given.pop_front().expect("a batch was given")
    }

    /// Answers a batch with one outcome for all.
    pub fn answer(&mut self, batch: BatchId, items: usize, outcome: &Outcome) {
        self.tell(Input::Outcomes { batch, outcomes: vec![outcome.clone(); items] });
    }

    /// The next batch, which must be of this step, done.
    pub fn done(&mut self, step: &str) -> Vec<Item> {
        let (batch, work) = self.next();
        assert_eq!(&*work.step, step);
        let output = Some(Arc::new(serde_json::json!({ "of": step })));
        self.answer(batch, work.items.len(), &Outcome::Done(output));
        work.items
    }

    pub fn commit(&mut self) -> Vec<Op> {
        let (write, request) = self.written.pop_front().expect("something is written");
        self.tell(Input::Written { write, result: Ok(Reply::Committed) });
        request.ops
    }

    pub fn open_runs(&self) -> usize {
        self.core.status().open_runs
    }
}

fn row(id: EventId, key: &str, priority: u8) -> Arc<Event> {
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
        payload: None,
    })
}

pub fn failed(failure: Failure) -> Outcome {
    Outcome::Failed(failure)
}

pub fn keys(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| &*item.key).collect()
}

/// Rows that the operations delete because their run has succeeded.
pub fn settled(ops: &[Op]) -> Vec<EventId> {
    ops.iter().flat_map(|op| if let Op::Settle { events, .. } = op { events.clone() } else { Vec::new() }).collect()
}
