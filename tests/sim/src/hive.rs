//! A hive in one thread: members with their own clocks, the memory backend's rows as the store, and a network that
//! delays, loses and duplicates messages. One seed draws everything; the same seed gives the same history.

pub mod campaign;
pub mod check;
mod fault;
mod node;

use std::collections::{BTreeMap, VecDeque};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply, Request,
    contract::{EventKind, HeldLease, QUEEN, View},
    member::{Effect, Input},
};
use honeyflow_hive_memory::Rows;
use honeyflow_invariant::{
    Breach,
    fence::AcceptedWrite,
    hive::{MintedLease, ReceivedVersion, TermInterval},
};
use honeyflow_runtime::Failure;

pub use fault::{Fault, Plan};
pub use node::Node;

use crate::random::Random;

pub const MILLI: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;
pub const SOURCE: &str = "shop";
pub const DUTY: &str = "duty/report";
/// Above this many nodes, views are compared by their hash.
const WHOLE_VIEWS_MAX: usize = 50;
/// Hive time at the start of a world.
const EPOCH_MS: u64 = 200_000_000_000;

/// The network faults of calls.
#[derive(Clone, Debug, Default)]
pub struct Net {
    pub latency_us: u64,
    /// Refused calls, per mille.
    pub refused: u64,
    pub unanswered: u64,
    pub slow: u64,
    pub doubled: u64,
    /// Calls that are executed at once and answered late, per mille.
    pub late: u64,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub nodes: usize,
    pub shards: u32,
    pub ttl_ms: u64,
    pub heartbeat_ms: u64,
    /// The drift of the clocks, per mille and by machine.
    pub drift: Vec<i64>,
    pub net: Net,
    pub stands: bool,
}

impl Options {
    /// Options without faults.
    pub fn calm(nodes: usize, shards: u32) -> Options {
        Options {
            seed: 1,
            nodes,
            shards,
            ttl_ms: 6_000,
            heartbeat_ms: 2_000,
            drift: vec![0; nodes],
            net: Net { latency_us: 2_000, ..Net::default() },
            stands: true,
        }
    }
}

enum Happening {
    Tick {
        who: usize,
    },
    Arrives {
        who: usize,
        call: u64,
        request: Request,
        back: u64,
        answered: bool,
    },
    Answers {
        who: usize,
        call: u64,
        result: Result<Reply, Failure>,
    },
    Hears {
        who: usize,
        input: Input,
    },
    /// Work under a lease has ended.
    Leaves {
        who: usize,
        held: HeldLease,
    },
    /// A write under a term reaches the store.
    Writes {
        fence: Fence,
    },
    Works {
        who: usize,
    },
    Strikes(Fault),
    Restarts {
        machine: usize,
    },
    /// The duty fails on this node: other nodes have to try.
    Fails {
        who: usize,
    },
    Accepts,
}

#[derive(Debug, Default)]
pub struct History {
    pub breaches: Vec<Breach>,
    pub minted: Vec<MintedLease>,
    /// Accepted writes with their times; the writes of a failed server are lost with it.
    pub accepted: Vec<(u64, AcceptedWrite)>,
    pub refused: u64,
    pub reigns: Vec<TermInterval>,
    pub shown: Vec<ReceivedVersion>,
    pub versions: Vec<u64>,
    pub published: Vec<Epoch>,
    pub granted: u64,
    pub lost: u64,
    pub buried: u64,
    pub calls: BTreeMap<&'static str, u64>,
}

pub struct World {
    pub options: Options,
    pub now: u64,
    pub rows: Rows,
    /// How far the store's clock has stepped.
    pub offset_ms: i64,
    pub steps: u64,
    /// Until this time no node reaches the store.
    pub down_until: u64,
    pub nodes: Vec<Node>,
    pub history: History,
    pub random: Random,
    pub healed_at: Option<u64>,
    /// How often the store failed over or was restored.
    pub lineages: u64,
    /// The machine on which the duty fails.
    pub failing: Option<usize>,
    pub restored: bool,
    pub traffic: bool,
    pub trace: u64,
    past: VecDeque<(u64, Rows)>,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    beaten: BTreeMap<NodeId, (u64, u64)>,
    events_read: u64,
    effects: Vec<Effect>,
}

impl World {
    pub fn new(options: Options) -> World {
        let random = Random::new(options.seed ^ 0x4815_1623);
        World {
            now: 0,
            rows: Rows::default(),
            offset_ms: 0,
            steps: 0,
            down_until: 0,
            nodes: Vec::new(),
            history: History::default(),
            random,
            healed_at: None,
            lineages: 0,
            failing: None,
            restored: false,
            traffic: true,
            trace: options.seed,
            past: VecDeque::new(),
            queue: BTreeMap::new(),
            number: 0,
            beaten: BTreeMap::new(),
            events_read: 0,
            effects: Vec::new(),
            options,
        }
    }

    /// A world in which all nodes start together.
    pub fn started(options: Options) -> World {
        let mut world = World::new(options);
        for machine in 0..world.options.nodes {
            world.start(machine);
        }
        world
    }

    pub fn hive_ms(&self) -> u64 {
        (EPOCH_MS + self.now / MILLI).saturating_add_signed(self.offset_ms)
    }

    /// Hive time for a request of this node. It is the store's clock; with a planted bug, the node's own wall clock.
    fn hive_ms_for(&self, who: usize) -> u64 {
        if !honeyflow_hive::planted::on("node clock") {
            return self.hive_ms();
        }
        let node = &self.nodes[who];
        EPOCH_MS + node.local(self.now).0 / MILLI + node.machine as u64 * self.options.ttl_ms
    }

    pub fn start(&mut self, machine: usize) -> usize {
        let who = self.nodes.len();
        self.nodes.push(Node::new(&self.options, machine, who, self.now));
        self.deliver(who, Input::Shards { source: SOURCE.into(), count: self.options.shards, pinned_only: false });
        self.deliver(who, Input::Want(DUTY.into()));
        let identity = self.nodes[who].identity(self.options.seed);
        self.deliver(who, Input::Identity(identity));
        let wait = self.random.below(50 * MILLI);
        self.after(wait, Happening::Works { who });
        who
    }

    pub fn plan(&mut self, at: u64, fault: Fault) {
        self.after(at.saturating_sub(self.now), Happening::Strikes(fault));
    }

    fn after(&mut self, wait: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((self.now + wait, self.number), happening);
    }

    pub fn pass(&mut self, micros: u64) {
        self.until(self.now + micros);
    }

    pub fn until(&mut self, end: u64) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, number), happening) = entry.remove_entry();
            self.now = self.now.max(at);
            self.trace = (self.trace.rotate_left(5) ^ at ^ number).wrapping_mul(0x517C_C1B7_2722_0A95);
            self.remember();
            self.happen(happening);
        }
        self.now = self.now.max(end);
    }

    /// Remembers the rows as a standby or a backup may have them.
    fn remember(&mut self) {
        if self.past.back().is_none_or(|(at, _)| self.now - at >= 50 * MILLI) {
            self.past.push_back((self.now, self.rows.clone()));
            if self.past.len() > 200 {
                self.past.pop_front();
            }
        }
    }

    pub(crate) fn rows_before(&self, micros: u64) -> Rows {
        let wanted = self.now.saturating_sub(micros);
        let found = self.past.iter().rev().find(|(at, _)| *at <= wanted).or(self.past.front());
        found.map_or_else(|| self.rows.clone(), |(_, rows)| rows.clone())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick { who } => {
                if self.nodes[who].tick_at <= self.now {
                    self.nodes[who].tick_at = u64::MAX;
                    self.deliver(who, Input::Tick);
                }
            }
            Happening::Arrives { who, call, request, back, answered } => {
                let cut = self.nodes[who].cut_until > self.now;
                let result = if cut || self.down_until > self.now {
                    Err(Failure::retry("unreachable", "the store does not answer"))
                } else {
                    self.apply(who, request)
                };
                if answered && self.nodes[who].deaf_until <= self.now {
                    self.after(back, Happening::Answers { who, call, result });
                }
            }
            Happening::Answers { who, call, result } => self.deliver(who, Input::Answer { call, result }),
            Happening::Hears { who, input } => self.deliver(who, input),
            Happening::Leaves { who, held } => {
                if self.nodes[who].paused_until > self.now {
                    let wait = self.nodes[who].paused_until - self.now;
                    return self.after(wait, Happening::Leaves { who, held });
                }
                self.leaves(who, &held);
                self.deliver(who, Input::Left(held));
            }
            Happening::Writes { fence } => {
                if self.down_until <= self.now && self.rows.holds(&fence) {
                    let accepted = AcceptedWrite { lease: fence.lease().clone(), epoch: fence.epoch() };
                    self.history.accepted.push((self.now, accepted));
                } else {
                    self.history.refused += 1;
                }
            }
            Happening::Works { who } => self.works(who),
            Happening::Strikes(fault) => self.apply_fault(fault),
            Happening::Restarts { machine } => {
                if !self.nodes.iter().any(|node| node.machine == machine && node.alive) {
                    self.start(machine);
                }
            }
            Happening::Fails { who } => self.give_up_duty(who),
            Happening::Accepts => {
                let accept = Request::AcceptRestore { cause: "a person".into() };
                let _ = self.rows.apply(self.hive_ms(), accept);
                self.note_events();
            }
        }
    }

    /// Delivers an input. A paused node receives it when it wakes.
    pub fn deliver(&mut self, who: usize, input: Input) {
        if !self.nodes[who].alive {
            return;
        }
        if self.nodes[who].paused_until > self.now {
            let wait = self.nodes[who].paused_until - self.now;
            return self.after(wait, Happening::Hears { who, input });
        }
        let mut effects = std::mem::take(&mut self.effects);
        let local = self.nodes[who].local(self.now);
        self.nodes[who].member.step(input, local, &mut effects);
        let ended = |(term, _): &(honeyflow_hive::Term, u64)| !term.lives_at(local);
        let ended: Vec<Name> =
            self.nodes[who].terms.iter().filter(|(_, term)| ended(term)).map(|(lease, _)| lease.clone()).collect();
        ended.iter().for_each(|lease| self.ends(who, lease));
        for effect in effects.drain(..) {
            self.carry_out(who, effect);
        }
        self.effects = effects;
        self.rearm(who);
    }

    fn rearm(&mut self, who: usize) {
        let node = &mut self.nodes[who];
        let at = node.world(node.member.wake_at()).max(self.now + 1);
        if node.alive && at < node.tick_at {
            node.tick_at = at;
            self.after(at - self.now, Happening::Tick { who });
        }
    }

    fn carry_out(&mut self, who: usize, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Call { call, request, .. } => self.send(who, call, request),
            Effect::Identify => {
                let identity = self.nodes[who].identity(self.options.seed);
                self.after(1, Happening::Hears { who, input: Input::Identity(identity) });
            }
            Effect::Granted(term) => {
                self.history.granted += 1;
                self.trace ^= term.epoch().0;
                self.note_duty(who, term.lease());
                let node = &mut self.nodes[who];
                if let Some(before) = node.terms.insert(term.lease().clone(), (term, now)) {
                    node.note_end(before, now, &mut self.history.reigns);
                }
            }
            Effect::Lost { lease, .. } => {
                self.history.lost += 1;
                self.ends(who, &lease);
            }
            Effect::Leave { held, .. } => {
                // Most work ends soon, some never does.
                let wait = self.random.below(300 * MILLI);
                if !self.random.one_in(12) {
                    self.after(wait, Happening::Leaves { who, held });
                }
            }
            Effect::Trust(until) => self.check_trust(who, until),
            Effect::Changed { view, .. } => self.note_view(who, &view),
            Effect::Engaged(engaged) => {
                self.nodes[who].engaged = Some(engaged);
                self.check_unknown(who);
            }
            Effect::Notice { code, .. } => *self.history.calls.entry(code).or_default() += 1,
            Effect::Limits(_) | Effect::Stuck | Effect::Removed => {}
            Effect::Refused(failure) => {
                self.nodes[who].refused = Some(failure);
                self.kill(who);
            }
            Effect::Left => self.kill(who),
        }
    }

    fn ends(&mut self, who: usize, lease: &Name) {
        let now = self.now;
        if let Some(ended) = self.nodes[who].terms.remove(lease) {
            self.nodes[who].note_end(ended, now, &mut self.history.reigns);
        }
    }

    /// Leaves a lease. If the term is an earlier one, there is nothing to leave.
    fn leaves(&mut self, who: usize, held: &HeldLease) {
        if self.nodes[who].terms.get(&held.lease).is_some_and(|(term, _)| term.epoch() == held.epoch) {
            self.ends(who, &held.lease);
        }
    }

    pub fn kill(&mut self, who: usize) {
        let leases: Vec<Name> = self.nodes[who].terms.keys().cloned().collect();
        leases.iter().for_each(|lease| self.ends(who, lease));
        self.nodes[who].alive = false;
    }

    fn send(&mut self, who: usize, call: u64, request: Request) {
        *self.history.calls.entry(name_of(&request)).or_default() += 1;
        let net = self.options.net.clone();
        let calm = self.healed_at.is_some();
        let r = &mut self.random;
        let (mut there, mut back) = (1 + r.below(net.latency_us), 1 + r.below(net.latency_us));
        let draw = r.below(1000);
        if !calm && r.per_mille(net.slow) {
            there += r.below(3 * SECOND);
        }
        if !calm && net.late > 0 && r.per_mille(net.late) {
            back += r.below(3 * SECOND);
        }
        if !calm && draw < net.refused {
            let failure = Err(Failure::retry("refused", "the connection was refused"));
            return self.after(there + back, Happening::Answers { who, call, result: failure });
        }
        let answered = calm || draw >= net.refused + net.unanswered;
        // A proxy may send a request twice.
        if !calm && self.random.per_mille(net.doubled) {
            let again = there + self.random.below(4 * SECOND);
            let request = request.clone();
            self.after(again, Happening::Arrives { who, call, request, back, answered: false });
        }
        self.after(there, Happening::Arrives { who, call, request, back, answered });
    }

    fn apply(&mut self, who: usize, request: Request) -> Result<Reply, Failure> {
        let hive_ms = self.hive_ms_for(who);
        let beats = match &request {
            Request::Beat { node, read_only: false, .. } | Request::Join { node, .. } => Some(*node),
            _ => None,
        };
        if let Request::Leave { node } = &request {
            self.beaten.remove(node);
        }
        let reply = self.rows.apply(hive_ms, request);
        // A heartbeat that is repeated, or comes after its node was removed, renews nothing. A join that its node gave
        // up does not count either.
        let renewed = match &reply {
            Ok(Reply::Joined(_)) => true,
            Ok(Reply::Beat(status)) => status.renewed,
            _ => false,
        };
        let lives = self.nodes[who].member.node();
        if let Some(node) = beats.filter(|node| renewed && lives == Some(*node)) {
            self.beaten.insert(node, (self.now, self.options.ttl_ms));
        }
        if let Ok(Reply::Counted { counts, published: true, .. }) = &reply {
            self.history.published.push(counts.epoch);
        }
        self.note_events();
        reply
    }

    /// Reads the events that the store has written since the last call.
    fn note_events(&mut self) {
        let read = Request::Events { after: self.events_read, max: u32::MAX };
        let events = match self.rows.apply(self.hive_ms(), read) {
            Ok(Reply::Events(news)) => {
                self.events_read = news.head.version;
                news.events
            }
            // After a jump of the version the gap is expected.
            Ok(Reply::View(view)) if view.head.version != self.events_read => {
                let newest = Request::History { lease: None, until_ms: None, max: 1 };
                let Ok(Reply::History(events)) = self.rows.apply(self.hive_ms(), newest) else { return };
                self.history.versions.clear();
                self.events_read = view.head.version;
                events
            }
            _ => return,
        };
        for event in events {
            self.history.versions.push(event.version);
            match (event.kind, event.lease, event.epoch, event.node) {
                (EventKind::Taken | EventKind::HandedOver, Some(lease), Some(epoch), Some(node)) => {
                    let (lease, holder) = (lease.to_string(), node.to_string());
                    self.history.minted.push(MintedLease { lease, epoch, holder });
                }
                (EventKind::Buried, _, _, Some(node)) => self.note_burial(node),
                _ => {}
            }
        }
    }

    fn note_burial(&mut self, node: NodeId) {
        self.history.buried += 1;
        let Some((beaten_at, ttl_ms)) = self.beaten.remove(&node) else { return };
        // The store counts whole milliseconds.
        let silent_ms = (self.now - beaten_at).div_ceil(MILLI);
        let breach = honeyflow_invariant::hive::no_live_member_is_removed(&node.to_string(), silent_ms, ttl_ms);
        self.history.breaches.extend(breach);
    }

    fn note_view(&mut self, who: usize, view: &View) {
        let queen = view.leases.iter().find(|row| &*row.name == QUEEN).filter(|row| !row.free);
        self.nodes[who].queen = queen.and_then(|row| row.holder);
        self.nodes[who].knows = view.nodes.len();
        if self.restored {
            return;
        }
        let mut content = check::content(view);
        // Large hives have too many views to keep them whole.
        if view.nodes.len() > WHOLE_VIEWS_MAX {
            content = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(content.as_bytes()));
        }
        let of = format!("{:?} {:?}", view.head.origin, view.head.lineage);
        let node = format!("{who} {:?}", self.nodes[who].member.node());
        self.history.shown.push(ReceivedVersion { node, of, version: view.head.version, content });
    }

    /// Lets a node write under its terms now and then, and gives it requests now and then.
    fn works(&mut self, who: usize) {
        if !self.nodes[who].alive {
            return;
        }
        if self.nodes[who].paused_until > self.now {
            let wait = self.nodes[who].paused_until - self.now;
            return self.after(wait, Happening::Works { who });
        }
        let local = self.nodes[who].local(self.now);
        let fences: Vec<Fence> = self.nodes[who].terms.values().filter_map(|(term, _)| term.fence_at(local)).collect();
        for fence in fences {
            let late =
                if self.healed_at.is_none() && self.random.one_in(20) { self.random.below(4 * SECOND) } else { 0 };
            let wait = 1 + self.random.below(self.options.net.latency_us) + late;
            self.after(wait, Happening::Writes { fence });
        }
        if self.traffic && self.nodes[who].is_used() {
            self.deliver(who, Input::Traffic(local));
        }
        let wait = self.random.between(50 * MILLI, 150 * MILLI);
        self.after(wait, Happening::Works { who });
    }

    /// The living nodes that hold this lease under a term.
    pub fn holders(&self, lease: &str) -> Vec<usize> {
        let holds = |node: &Node| {
            node.alive
                && node.paused_until <= self.now
                && node.terms.get(lease).is_some_and(|(term, _)| term.lives_at(node.local(self.now)))
        };
        (0..self.nodes.len()).filter(|who| holds(&self.nodes[*who])).collect()
    }

    pub fn queen(&self) -> Option<usize> {
        self.holders(QUEEN).first().copied()
    }

    pub fn leases(&self) -> Vec<String> {
        let shards = (0..self.options.shards).map(|shard| format!("shard/{SOURCE}/{shard}"));
        let queen = self.options.stands.then(|| QUEEN.to_owned());
        shards.chain(queen).chain([DUTY.to_owned()]).collect()
    }

    /// The number of requests to the store so far.
    pub fn operations(&self) -> u64 {
        OPERATIONS.iter().filter_map(|name| self.history.calls.get(name)).sum()
    }

    pub fn vacant(&self) -> Vec<String> {
        self.leases().into_iter().filter(|lease| self.holders(lease).is_empty()).collect()
    }
}

const OPERATIONS: [&str; 13] = [
    "join",
    "beat",
    "leave",
    "bury",
    "look",
    "take",
    "hand-over",
    "release",
    "set-heir",
    "count",
    "tally",
    "view",
    "other",
];

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Join { .. } => "join",
        Request::Beat { .. } => "beat",
        Request::Leave { .. } => "leave",
        Request::Remove { .. } => "bury",
        Request::Look { .. } => "look",
        Request::Take { .. } => "take",
        Request::HandOver { .. } => "hand-over",
        Request::Release { .. } => "release",
        Request::SetSuccessor { .. } => "set-heir",
        Request::Count { .. } => "count",
        Request::Tally => "tally",
        Request::View | Request::Events { .. } => "view",
        _ => "other",
    }
}
