//! Several shards of one source in one core: each has its own lease and stamps, and none blocks another.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_engine::core::{
    BatchId, Core, Effect, Input, WriteId,
    input::Work,
    plan::{Limits, Plan, SourceId, SourcePlan},
};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{Member, NodeId, Term, contract::HeldLease, member};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Moment;
use honeyflow_source::Intake;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{Poll, RecoveredState, Reply, Write};

use crate::table::{leads_to, now, plain, plan, row, taken};

struct Shards {
    plan: Arc<Plan>,
    core: Core,
    now: Moment,
    polls: BTreeMap<SourceId, (u64, Poll)>,
    given: Vec<(BatchId, Batch)>,
    written: Vec<(WriteId, Write)>,
    left: Vec<Name>,
}

impl Shards {
    fn new(count: u16, limits: Limits) -> Shards {
        let mut plan = plan(&plain(), limits);
        let first = plan.sources.remove(0);
        for shard in 0..count {
            let lease = format!("shard/shop/{shard}").into();
            plan.sources.push(SourcePlan { shard, lease, ..first.clone() });
        }
        Shards::with_plan(plan)
    }

    fn with_plan(plan: Plan) -> Shards {
        let count = u16::try_from(plan.sources.len()).unwrap();
        let plan = Arc::new(plan);
        let mut shards = Shards {
            core: Core::new(plan.clone(), 7),
            plan,
            now: Moment::from_millis(1_000_000),
            polls: BTreeMap::new(),
            given: Vec::new(),
            written: Vec::new(),
            left: Vec::new(),
        };
        let kinds = u16::try_from(shards.plan.kinds.len()).unwrap();
        shards.send(Input::Hello { worker: 0, room: (0..kinds).map(|kind| (kind, 8)).collect() });
        for source in 0..count {
            shards.grant(source);
        }
        shards
    }

    fn lease(&self, source: SourceId) -> Name {
        self.plan.sources[usize::from(source)].lease.clone()
    }

    /// The lease as it was granted.
    fn held(&self, source: SourceId) -> HeldLease {
        HeldLease { lease: self.lease(source), epoch: Epoch(1) }
    }

    fn grant(&mut self, source: SourceId) {
        let hive = MemoryHive::new(|| 1);
        let term = now(member::take(&hive, NodeId(uuid::Uuid::from_u128(1)), &self.lease(source))).expect("free");
        self.send(Input::Trust { source, until: Moment::FAR });
        self.send(Input::Granted(term));
        self.send(Input::Recovered { source, recovery: 1, result: Ok(RecoveredState::default()) });
    }

    fn send(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.advance(input, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Poll { source, poll, request } => {
                    self.polls.insert(source, (poll, request));
                }
                Effect::Give { batch, work: Work::Execute { batch: work, .. }, .. } => self.given.push((batch, work)),
                Effect::Write { write, request, .. } => self.written.push((write, request)),
                Effect::Left(held) => self.left.push(held.lease),
                _ => {}
            }
        }
    }

    /// Answers that shard's poll with rows of these ids and keys.
    fn rows(&mut self, source: SourceId, rows: &[(i64, &str)]) {
        while !self.polls.contains_key(&source) {
            self.now = self.now.after(Duration::from_millis(1));
            self.send(Input::Tick);
        }
        let (poll, _) = self.polls.remove(&source).unwrap();
        let events = rows.iter().map(|(id, key)| row(*id, key, 4));
        let taken = events.map(|event| (leads_to(&event), event)).map(|(leads, event)| taken(event, leads)).collect();
        self.send(Input::Polled { source, poll, result: Ok(Intake { taken, ..Intake::default() }) });
    }

    /// Answers all batches as done; returns the keys of their items.
    fn done(&mut self) -> Vec<String> {
        let mut keys = Vec::new();
        for (batch, work) in std::mem::take(&mut self.given) {
            keys.extend(work.items.iter().map(|item| item.key.to_string()));
            let document = Some(Arc::new(serde_json::json!({ "title": "t" })));
            let outcomes = work.items.iter().map(|_| Outcome::Done(document.clone())).collect();
            self.send(Input::Outcomes { batch, outcomes });
        }
        keys
    }

    fn commit(&mut self) -> Vec<Name> {
        let mut leases = Vec::new();
        for (write, request) in std::mem::take(&mut self.written) {
            leases.push(request.fence.lease().clone());
            self.send(Input::Written { write, result: Ok(Reply::Committed) });
        }
        leases
    }
}

#[test]
fn hv_58_each_shard_acknowledges_under_its_own_lease() {
    let mut shards = Shards::new(2, Limits::default());
    shards.rows(0, &[]);
    shards.rows(1, &[]);
    shards.rows(0, &[(1, "a")]);
    shards.rows(1, &[(2, "b")]);
    let mut loaded = shards.done();
    loaded.sort_unstable();
    assert_eq!(loaded, ["a", "b"]);
    shards.done();
    let mut leases = shards.commit();
    leases.sort_unstable();
    assert_eq!(leases, [shards.lease(0), shards.lease(1)]);
    assert_eq!(shards.core.status().open_runs, 0);
}

/// RL-23: one batch may have items of several sources.
#[test]
fn rl_23_each_item_carries_the_install_of_its_own_source() {
    let mut plan = plan(&plain(), Limits::default());
    let shop = plan.sources[0].clone();
    plan.sources.push(SourcePlan { name: "depot".into(), lease: "shard/depot/0".into(), port: 1, ..shop });
    (plan.sources[0].install_id, plan.sources[1].install_id) = (7, 8);
    let mut shards = Shards::with_plan(plan);
    let kinds = u16::try_from(shards.plan.kinds.len()).unwrap();
    shards.send(Input::Hello { worker: 0, room: (0..kinds).map(|kind| (kind, 0)).collect() });
    shards.rows(0, &[(1, "a")]);
    shards.rows(1, &[(1, "b")]);
    shards.send(Input::Hello { worker: 0, room: (0..kinds).map(|kind| (kind, 8)).collect() });
    assert_eq!(shards.given.len(), 1, "one batch");
    let mut installs: Vec<_> = shards.given[0].1.items.iter().map(|item| (&*item.key, item.install_id)).collect();
    installs.sort_unstable();
    assert_eq!(installs, [("a", 7), ("b", 8)]);
}

/// HV-55: polling stops, the batches in progress end, and only then the shard is left; the other shard continues.
#[test]
fn hv_55_a_shard_is_left_once_its_batches_have_ended() {
    let mut shards = Shards::new(2, Limits::default());
    shards.rows(0, &[(1, "held"), (2, "other")]);
    let held = std::mem::take(&mut shards.given);
    shards.send(Input::Leave(shards.held(0)));
    assert!(shards.left.is_empty(), "a worker still holds its load");
    shards.rows(1, &[(3, "b")]);
    assert_eq!(shards.done(), ["b"], "the other shard's load");
    assert_eq!(shards.done(), ["b"], "and its index");

    shards.given = held;
    shards.done();
    assert!(shards.given.is_empty(), "no further step is begun under a shard that is to be left");
    assert_eq!(shards.left, [shards.lease(0)]);
    assert_eq!(shards.commit(), [shards.lease(1)], "its rows stay for the next owner");
    shards.now = shards.now.after(Duration::from_secs(20));
    shards.polls.clear();
    shards.send(Input::Tick);
    assert!(!shards.polls.contains_key(&0), "not polled any more");
    assert!(shards.polls.contains_key(&1));
}

/// The shard is left only after its pending acknowledgement; otherwise the row would be processed twice.
#[test]
fn hv_55_a_shard_is_left_after_its_writes() {
    let mut shards = Shards::new(1, Limits::default());
    shards.rows(0, &[(1, "a")]);
    shards.done();
    shards.done();
    assert_eq!(shards.written.len(), 1);
    shards.send(Input::Leave(shards.held(0)));
    assert!(shards.left.is_empty());
    shards.commit();
    assert_eq!(shards.left, [shards.lease(0)]);
}

/// A request to leave an earlier term does not apply to the next one.
#[test]
fn hv_55_a_request_to_leave_an_older_term_is_ignored() {
    let mut shards = Shards::new(1, Limits::default());
    shards.send(Input::Leave(HeldLease { epoch: Epoch(0), ..shards.held(0) }));
    assert!(shards.left.is_empty());
    shards.rows(0, &[(1, "a")]);
    shards.send(Input::Leave(shards.held(0)));
    assert!(shards.left.is_empty(), "a worker still holds it");
    shards.grant(0);
    shards.done();
    assert!(shards.left.is_empty(), "a new term was granted meanwhile");
}

/// Creates a member that holds this lease; returns it with its term.
fn member_of(lease: &Name, at: Moment) -> (Member, Term) {
    let mut member = Member::new(member::Config { stands: false, ..member::Config::new("node", "{}") });
    let (mut rows, mut effects, mut term) = (honeyflow_hive_memory::Rows::default(), Vec::new(), None);
    member.step(member::Input::Identity(NodeId(uuid::Uuid::from_u128(2))), at, &mut effects);
    member.step(member::Input::Want(lease.clone()), at, &mut effects);
    while term.is_none() {
        assert!(!effects.is_empty(), "it never gets the lease");
        for effect in std::mem::take(&mut effects) {
            match effect {
                member::Effect::Call { call, request, .. } => {
                    let result = rows.apply(1_000_000, request);
                    member.step(member::Input::Answer { call, result }, at, &mut effects);
                }
                member::Effect::Granted(granted) => term = Some(granted),
                _ => {}
            }
        }
    }
    (member, term.expect("it was granted"))
}

/// HV-41: the member ends a term before the core receives the loss; from then on no step begins under that term.
#[test]
fn hv_41_nothing_is_begun_under_a_term_that_has_ended() {
    let mut shards = Shards::new(1, Limits::default());
    let (mut member, term) = member_of(&shards.lease(0), shards.now);
    shards.send(Input::Granted(term.clone()));
    shards.send(Input::Recovered { source: 0, recovery: 2, result: Ok(RecoveredState::default()) });
    shards.rows(0, &[(1, "a")]);
    assert_eq!(shards.done(), ["a"], "loaded");
    assert_eq!(shards.given.len(), 1, "to be indexed");
    shards.done();
    shards.commit();
    shards.rows(0, &[(2, "b")]);
    member.step(member::Input::Leave, shards.now, &mut Vec::new());
    assert!(!term.lives_at(shards.now));
    assert_eq!(shards.done(), ["b"], "given before it ended");
    assert_eq!(shards.given.len(), 0, "no further step is given out");
    shards.now = shards.now.after(Duration::from_secs(5));
    shards.send(Input::Tick);
    assert!(shards.given.is_empty() && shards.written.is_empty());
}

/// Steps of a shard without trust wait outside the queue, so that they do not block other shards.
#[test]
fn a_shard_without_trust_blocks_no_other() {
    let limits = Limits { poll_rows_max: 4_000, ..Limits::default() };
    let mut shards = Shards::new(2, limits);
    let kinds = u16::try_from(shards.plan.kinds.len()).unwrap();
    shards.send(Input::Hello { worker: 0, room: (0..kinds).map(|kind| (kind, 0)).collect() });
    shards.send(Input::Trust { source: 0, until: Moment::default() });
    let names: Vec<String> = (0..600).map(|n| format!("k{n}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    shards.rows(0, &rows);
    shards.rows(1, &[(1_000, "b")]);
    shards.send(Input::Hello { worker: 0, room: (0..kinds).map(|kind| (kind, 1)).collect() });
    assert_eq!(shards.done(), ["b"]);
    shards.done();
    shards.send(Input::Trust { source: 0, until: Moment::FAR });
    assert_eq!(shards.done().len(), 500, "back in their order");
}

/// WF-94: shards share the room; the first one to poll does not get all of it.
#[test]
fn wf_94_shards_share_the_room() {
    let limits = Limits { runs_max: 2_000, poll_rows_max: 2_000, ..Limits::default() };
    let mut shards = Shards::new(8, limits);
    // The shards that were granted first have asked for all the room.
    while !shards.polls.is_empty() {
        for (source, (poll, _)) in std::mem::take(&mut shards.polls) {
            shards.send(Input::Polled { source, poll, result: Ok(Intake::default()) });
        }
    }
    shards.now = shards.now.after(Duration::from_secs(1));
    shards.send(Input::Tick);
    let room = |poll: &Poll| match &poll.sweep {
        Some(sweep) => sweep.room,
        None => poll.levels.iter().map(|level| level.room).sum::<u32>() + poll.newest,
    };
    let asked: Vec<u32> = shards.polls.values().map(|(_, poll)| room(poll)).collect();
    assert_eq!(asked, [250; 8]);
}

/// Idle shards poll at the same time: one request to the store instead of many.
#[test]
fn ob_93_idle_shards_poll_together() {
    let mut shards = Shards::new(4, Limits::default());
    let mut moments: BTreeMap<Moment, usize> = BTreeMap::new();
    let end = shards.now.after(Duration::from_secs(30));
    let settled = shards.now.after(Duration::from_secs(5));
    while shards.now < end {
        for source in shards.polls.keys().copied().collect::<Vec<_>>() {
            let (poll, _) = shards.polls.remove(&source).unwrap();
            if shards.now > settled {
                *moments.entry(shards.now).or_default() += 1;
            }
            shards.send(Input::Polled { source, poll, result: Ok(Intake::default()) });
        }
        shards.now = shards.core.wake_at().max(shards.now);
        shards.send(Input::Tick);
    }
    assert!(moments.len() > 200, "about ten a second: {}", moments.len());
    assert!(moments.values().all(|together| *together == 4), "{moments:?}");
}
