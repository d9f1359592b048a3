//! The state of the model: three members and a store at one instant, and the queue of events that follow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    hash::{Hash, Hasher},
    sync::Arc,
};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::QUEEN,
    member::{Effect, Input},
};
use honeyflow_hive_memory::Rows;
use honeyflow_invariant::Breach;
use honeyflow_runtime::Failure;
use xxhash_rust::xxh3::Xxh3;

use crate::{Beginning, Depth, Fault, fault::LOST, node::Node};

/// The short profile, in microseconds.
pub const TTL: u64 = 1_500_000;
pub const HEARTBEAT: u64 = 500_000;
/// The network latency in one direction.
const LATENCY: u64 = 4_000;
const SECOND: u64 = 1_000_000;
const SOURCE: &str = "shop";
const SHARDS: u32 = 2;
/// Hive time at the start of the model.
const EPOCH_MS: u64 = 200_000_000_000;
/// The time at which all leases are held and all nodes know each other.
const AT_REST: u64 = 12 * SECOND;

#[derive(Clone, Debug)]
pub enum Happening {
    Ticks {
        who: usize,
    },
    Arrives {
        who: usize,
        call: u64,
        request: Request,
        answered: bool,
        again: bool,
    },
    Answers {
        who: usize,
        call: u64,
        result: Result<Reply, Failure>,
    },
    Identifies {
        who: usize,
        node: NodeId,
    },
    Wakes {
        who: usize,
    },
    /// The operator accepts the restored state.
    Accepts,
}

/// The store: the leases and the writes under fences, which are lost together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub rows: Rows,
    pub accepted: BTreeMap<Name, Epoch>,
}

/// Which kinds of events have happened on the path to this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedEvents {
    pub buried: bool,
    pub taken: bool,
    pub handed_over: bool,
    pub refused: bool,
    pub lineage: bool,
}

#[derive(Clone, Debug)]
pub struct Hive {
    pub now: u64,
    pub nodes: Vec<Node>,
    pub(crate) store: Arc<Store>,
    /// Earlier states of the store by time, no further back than what can be lost.
    past: Vec<(u64, Arc<Store>)>,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    offset_ms: i64,
    servers: u32,
    restored: bool,
    pub(crate) minted: BTreeMap<Name, Epoch>,
    pub(crate) beaten: BTreeMap<NodeId, u64>,
    pub(crate) events_read: u64,
    pub(crate) seen: ObservedEvents,
    pub(crate) breaches: Vec<Breach>,
    /// Whether breaches are recorded: not before the hive is at rest.
    pub(crate) judged: bool,
    depth: Depth,
    faults_left: u32,
    fails_until: u64,
    over: bool,
    digest: u64,
}

impl Hive {
    /// Starts the nodes one after the other, and runs until the hive is at rest.
    pub fn begin(beginning: &Beginning) -> Hive {
        let Beginning { drifts, queen_died, depth } = *beginning;
        let nodes = drifts.iter().enumerate().map(|(number, drift)| Node::new(number, *drift)).collect();
        let mut hive = Hive {
            now: 0,
            nodes,
            store: Arc::default(),
            past: Vec::new(),
            queue: BTreeMap::new(),
            number: 0,
            offset_ms: 0,
            servers: 0,
            restored: false,
            minted: BTreeMap::new(),
            beaten: BTreeMap::new(),
            events_read: 0,
            seen: ObservedEvents::default(),
            breaches: Vec::new(),
            judged: false,
            depth,
            faults_left: depth.faults,
            fails_until: 0,
            over: false,
            digest: 0,
        };
        for who in 0..hive.nodes.len() {
            let shards = Input::Shards { source: SOURCE.into(), count: SHARDS, pinned_only: false };
            hive.deliver(who, shards);
            let node = hive.nodes[who].fresh_identity();
            hive.after(who as u64 * 150_000, Happening::Identifies { who, node });
        }
        hive.until(AT_REST);
        assert!(hive.vacant().is_empty(), "at rest no node holds {:?}", hive.vacant());
        (hive.seen, hive.judged) = (ObservedEvents::default(), true);
        let reigns = |node: &Node| node.fences(hive.now).any(|fence| &**fence.lease() == QUEEN);
        if let Some(queen) = hive.nodes.iter().position(reigns).filter(|_| queen_died) {
            hive.kill(queen);
        }
        hive.fails_until = hive.now + micros(depth.first_within);
        hive.seal();
        hive
    }

    pub fn hive_ms(&self) -> u64 {
        (EPOCH_MS + self.now / 1000).saturating_add_signed(self.offset_ms)
    }

    /// Whether this future has been checked to its end.
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub fn may_fail(&self) -> bool {
        self.faults_left > 0 && self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= self.fails_until)
    }

    pub fn is_another(&self) -> bool {
        self.servers > 0 || self.restored
    }

    pub fn is_restored(&self) -> bool {
        self.restored
    }

    pub fn has_stepped(&self) -> bool {
        self.offset_ms != 0
    }

    pub fn seen(&self) -> ObservedEvents {
        self.seen
    }

    pub fn next(&self) -> Option<&Happening> {
        self.queue.first_key_value().map(|(_, happening)| happening)
    }

    pub(crate) fn take_next(&mut self) -> Option<Happening> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.now = self.now.max(at);
        Some(happening)
    }

    pub fn step(&mut self) {
        if let Some(happening) = self.take_next() {
            self.process(happening);
            self.judge();
        }
    }

    pub fn inject(&mut self, fault: Fault) {
        self.faults_left -= 1;
        self.fails_until = self.now + micros(self.depth.next_within);
        self.apply_fault(fault);
        self.judge();
        if self.faults_left == 0 {
            self.recover();
        }
    }

    /// Runs on without faults; the hive must recover.
    pub fn recover(&mut self) {
        self.over = true;
        let awake = self.nodes.iter().filter(|node| node.alive).map(|node| node.paused_until);
        let late = self.queue.iter().filter(|(_, happening)| matches!(happening, Happening::Arrives { .. }));
        let calm_at = awake.chain(late.map(|((at, _), _)| *at)).fold(self.now, u64::max);
        // Requests in flight still have to arrive, followed by a heartbeat of every node.
        self.until(calm_at + HEARTBEAT * 3 / 2);
        let troubled = self.is_another() || self.has_stepped();
        let limit = TTL * 2 + SECOND + if troubled { TTL } else { 0 };
        while self.now < calm_at + limit && !self.vacant().is_empty() {
            if self.restored {
                self.after(0, Happening::Accepts);
            }
            self.until(self.now + 20_000);
        }
        self.judge_vacancy(calm_at, limit);
    }

    fn until(&mut self, end: u64) {
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    pub(crate) fn after(&mut self, wait: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((self.now + wait, self.number), happening);
    }

    fn process(&mut self, happening: Happening) {
        match happening {
            Happening::Ticks { who } => {
                if self.nodes[who].ticks_at <= self.now {
                    self.nodes[who].ticks_at = u64::MAX;
                    self.deliver(who, Input::Tick);
                }
            }
            Happening::Arrives { who, call, request, answered, .. } => self.execute(who, call, request, answered),
            Happening::Answers { who, call, result } => self.deliver(who, Input::Answer { call, result }),
            Happening::Identifies { who, node } => self.deliver(who, Input::Identity(node)),
            Happening::Wakes { who } => {
                for fence in std::mem::take(&mut self.nodes[who].in_hand) {
                    self.write_under(&fence);
                }
                self.deliver(who, Input::Tick);
            }
            Happening::Accepts => {
                let accept = Request::AcceptRestore { cause: "a person".into() };
                let hive_ms = self.hive_ms();
                let _ = self.store_mut().rows.apply(hive_ms, accept);
                self.read_events();
            }
        }
    }

    fn store_mut(&mut self) -> &mut Store {
        let kept = self.now.saturating_sub(LOST);
        // Keep the last state that cannot be lost, and all later ones.
        let before = self.past.iter().rposition(|(at, _)| *at <= kept).unwrap_or(0);
        self.past.drain(..before);
        self.past.push((self.now, Arc::clone(&self.store)));
        Arc::make_mut(&mut self.store)
    }

    pub(crate) fn execute(&mut self, who: usize, call: u64, request: Request, answered: bool) {
        let beats = match &request {
            Request::Beat { node, read_only: false, .. } | Request::Join { node, .. } => Some(*node),
            _ => None,
        };
        if let Request::Leave { node } = &request {
            self.beaten.remove(node);
        }
        let hive_ms = self.hive_ms();
        let result = self.store_mut().rows.apply(hive_ms, request);
        // A heartbeat that is repeated, or comes after its node was removed, renews nothing. A join that its node gave
        // up does not count either.
        let renewed = match &result {
            Ok(Reply::Joined(_)) => true,
            Ok(Reply::Beat(status)) => status.renewed,
            _ => false,
        };
        let lives = self.nodes[who].id();
        if let Some(node) = beats.filter(|node| renewed && lives == Some(*node)) {
            self.beaten.insert(node, self.now);
        }
        self.read_events();
        if answered {
            self.after(LATENCY, Happening::Answers { who, call, result });
        }
    }

    fn deliver(&mut self, who: usize, input: Input) {
        if !self.nodes[who].alive {
            return;
        }
        // A paused node receives it when it wakes.
        if self.nodes[who].paused_until > self.now {
            let wait = self.nodes[who].paused_until - self.now + 1;
            let happening = match input {
                Input::Answer { call, result } => Happening::Answers { who, call, result },
                Input::Identity(node) => Happening::Identifies { who, node },
                _ => Happening::Ticks { who },
            };
            if matches!(happening, Happening::Ticks { .. }) {
                self.nodes[who].ticks_at = self.now + wait;
            }
            return self.after(wait, happening);
        }
        let mut effects = Vec::new();
        self.nodes[who].deliver(input, self.now, &mut effects);
        for effect in effects {
            self.carry_out(who, effect);
        }
        let node = &mut self.nodes[who];
        let at = node.wakes_at().max(self.now + 1);
        if node.alive && at < node.ticks_at {
            node.ticks_at = at;
            self.after(at - self.now, Happening::Ticks { who });
        }
    }

    fn carry_out(&mut self, who: usize, effect: Effect) {
        match effect {
            Effect::Call { call, request, .. } => {
                self.after(LATENCY, Happening::Arrives { who, call, request, answered: true, again: false });
            }
            Effect::Identify => {
                let node = self.nodes[who].fresh_identity();
                self.after(1, Happening::Identifies { who, node });
            }
            Effect::Leave { held, .. } => {
                let mut more = Vec::new();
                self.nodes[who].deliver(Input::Left(held), self.now, &mut more);
                for effect in more {
                    self.carry_out(who, effect);
                }
            }
            Effect::Trust(until) => self.judge_trust(who, until),
            Effect::Refused(_) | Effect::Left => self.kill(who),
            _ => {}
        }
    }

    pub(crate) fn kill(&mut self, who: usize) {
        self.nodes[who].alive = false;
    }

    /// Pauses the node. It keeps the fences that it has.
    pub(crate) fn pause(&mut self, who: usize, long: u64) {
        let in_hand = self.nodes[who].fences(self.now).collect();
        let node = &mut self.nodes[who];
        (node.in_hand, node.paused_until, node.ticks_at) = (in_hand, self.now + long, u64::MAX);
        self.after(long, Happening::Wakes { who });
    }

    pub(crate) fn step_clock(&mut self, by_ms: i64) {
        self.offset_ms += by_ms;
    }

    pub(crate) fn fail_over(&mut self) {
        self.servers += 1;
        self.lose_recent_writes();
        let server = format!("server-{}", self.servers);
        Arc::make_mut(&mut self.store).rows.move_to_server(&server);
    }

    pub(crate) fn restore(&mut self) {
        self.restored = true;
        self.lose_recent_writes();
        self.after(SECOND, Happening::Accepts);
    }

    fn lose_recent_writes(&mut self) {
        let kept = self.now.saturating_sub(LOST);
        let found = self.past.iter().find(|(at, _)| *at >= kept);
        if let Some((_, store)) = found {
            self.store = Arc::clone(store);
        }
        self.past.clear();
        self.beaten.retain(|_, at| *at < kept);
        let hive_ms = self.hive_ms();
        if let Ok(Reply::View(view)) = Arc::make_mut(&mut self.store).rows.apply(hive_ms, Request::View) {
            self.events_read = view.head.version;
        }
    }

    pub fn leases() -> BTreeSet<Name> {
        let shards = (0..SHARDS).map(|shard| format!("shard/{SOURCE}/{shard}").into());
        shards.chain([QUEEN.into()]).collect()
    }

    /// The leases that no running node holds.
    pub fn vacant(&self) -> BTreeSet<Name> {
        let mut vacant = Hive::leases();
        for node in self.nodes.iter().filter(|node| node.is_up(self.now)) {
            vacant.retain(|lease| node.fences(self.now).all(|fence| fence.lease() != lease));
        }
        vacant
    }

    /// Computes the digest of everything that decides what can happen next. It distinguishes the states.
    pub fn seal(&mut self) {
        struct Digest(Xxh3);
        impl Write for Digest {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.update(text.as_bytes());
                Ok(())
            }
        }
        let mut digest = Digest(Xxh3::new());
        let Hive { now, nodes, store, queue, offset_ms, servers, restored, faults_left, fails_until, over, .. } = self;
        let _ = write!(digest, "{now} {nodes:?} {store:?} {offset_ms} {servers} {restored} ");
        let _ = write!(digest, "{faults_left} {fails_until} {over} {:?} {:?} ", self.seen, self.breaches);
        for ((at, _), happening) in queue {
            let _ = write!(digest, "{at} {happening:?} ");
        }
        self.digest = digest.0.digest();
    }
}

impl Hash for Hive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl PartialEq for Hive {
    fn eq(&self, other: &Hive) -> bool {
        self.digest == other.digest
    }
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
