//! A node's part in a hive, as one pure state machine: `(state, input, now) → effects`.
//!
//! It is made of small machines, each with its transition table: [`trust`] (membership and heartbeat), [`pulse`] (is the
//! main runtime alive), [`watch`] (who is dead), [`lineage`] (where the store comes from), [`view`] (what everybody sees),
//! [`lease`] and [`take`] (one lease's life), [`give`] (hand-over), [`place`] (who should have what), [`queen`], [`count`] and
//! [`leave`]. This file is what they share: inputs, effects, and in which order things are judged. Trust comes first, so
//! that whatever arrives late revives nothing; then deadlines; then the input; then whatever has become possible.

mod beat;
mod calls;
mod config;
mod count;
mod give;
mod lease;
mod leave;
mod lineage;
mod once;
mod place;
mod pulse;
mod queen;
mod take;
pub mod traits;
mod trust;
mod view;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};

use self::{
    calls::{Asked, Calls, Sent},
    count::Count,
    lease::{Kind, Lease},
    leave::Draining,
    lineage::Lineage,
    place::Source,
    pulse::Pulse,
    trust::{Phase, Trust},
    view::Known,
    watch::Watch,
};
use crate::{
    contract::{Event, Held, NodeId, QUEEN, Reply, Request, View},
    term::Term,
};

pub use config::Config;
pub use count::Engaged;
pub use once::{take, take_as_member};

#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A fresh identity, as it was asked for.
    Identity(NodeId),
    Answer {
        call: u64,
        result: Result<Reply, Failure>,
    },
    /// This duty should be led by someone who wants it, perhaps by us.
    Want(Name),
    /// Not any more: it is released.
    Unwant(Name),
    /// Released, and not taken again for a while: others may have more luck with it.
    SitOut {
        lease: Name,
        wait: Duration,
    },
    /// Our part of a source's shards should be ours. `pinned_only`: those that nobody is pinned to wait.
    Shards {
        source: Name,
        count: u32,
        pinned_only: bool,
    },
    /// Nobody works on a source's shards here any more: they are released.
    NoShards(Name),
    /// A new epoch is due: the sequence runs short, or a sink is ahead of `floor`.
    Mint {
        lease: Name,
        floor: Epoch,
    },
    /// A store has refused what was written under this epoch.
    Stale {
        lease: Name,
        epoch: Epoch,
    },
    /// What was under way under this epoch has ended, as [`Effect::Leave`] has asked.
    Left(Held),
    HandOver {
        lease: Name,
        to: Option<NodeId>,
    },
    /// When the last request was served.
    Traffic(Moment),
    /// May be given traffic.
    Ready(bool),
    /// The main runtime is alive.
    Pulse,
    /// Lead nothing new, and hand over what is led.
    Drain,
    Leave,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Not answered until then, it counts as unanswered; whatever comes later is not heard.
    Call {
        call: u64,
        request: Request,
        until: Moment,
    },
    /// A fresh identity is needed.
    Identify,
    Granted(Term),
    /// Come to an end under this epoch until then, and say [`Input::Left`]; afterwards its term is dead.
    Leave {
        held: Held,
        until: Moment,
    },
    Lost {
        lease: Name,
        cause: &'static str,
    },
    /// Every term is good until here.
    Trust(Moment),
    /// The view has changed: by these events, or as a whole.
    Changed {
        view: Arc<View>,
        events: Option<Vec<Event>>,
    },
    Engaged(Engaged),
    /// The hive's limits have this version.
    Limits(u64),
    /// Something a person should read, once.
    Notice {
        code: &'static str,
        message: String,
    },
    /// The main runtime has stood still for too long: whoever can should end the process.
    Stuck,
    /// Being a member is hopeless, with the reason.
    Refused(Failure),
    /// Buried by others: everything held is lost; it comes back under a fresh identity.
    Buried,
    Left,
}

/// A copy is another possible future of the same node, for those who explore them: nothing that happens to the one
/// happens to the other.
#[derive(Clone, Debug)]
pub struct Member {
    config: Config,
    node: Option<NodeId>,
    now: Moment,
    random: u64,
    calls: Calls,
    trust: Trust,
    pulse: Pulse,
    watch: Watch,
    lineage: Lineage,
    known: Known,
    count: Count,
    engaged_told: Option<Engaged>,
    limits_told: Option<u64>,
    leases: BTreeMap<Name, Lease>,
    sources: Vec<Source>,
    /// Dead, though the view may still show them.
    gone: BTreeSet<NodeId>,
    /// Leases that name us as the next holder, and since when we know.
    heir_of: BTreeMap<Name, Moment>,
    look_as_heir_at: Moment,
    /// Who is queen, as long as her row stands.
    queen_seen: Option<NodeId>,
    traffic: Option<Moment>,
    /// As the store was last told.
    traffic_told: Option<Moment>,
    ready: bool,
    draining: Option<Draining>,
    /// Who should have what has to be judged anew.
    unplaced: bool,
    /// By node: whether its shards would be ours.
    inherits: BTreeMap<NodeId, bool>,
    /// An answered beat has told of the others since somebody was last buried.
    told: bool,
    /// Goes up when the store is not the one it was: answers of the one before count as none.
    store: u64,
    /// Epochs that the store shows lower than they were.
    fallen: Vec<Held>,
    beat_early_at: Moment,
    give_at: Moment,
    sweep_at: Moment,
    probe_at: Moment,
    /// Once per beat.
    tally_due: bool,
    mend_due: bool,
    count_due: bool,
}

impl Member {
    pub fn new(config: Config) -> Member {
        let mut leases = BTreeMap::new();
        if config.stands {
            leases.insert(QUEEN.into(), Lease::new(Kind::Queen, true));
        }
        Member {
            node: None,
            now: Moment::default(),
            random: config.seed | 1,
            calls: Calls::default(),
            trust: Trust::new(),
            pulse: Pulse::default(),
            watch: Watch::default(),
            lineage: Lineage::default(),
            known: Known::default(),
            count: Count::new(config.expected_nodes),
            engaged_told: None,
            limits_told: None,
            leases,
            sources: Vec::new(),
            gone: BTreeSet::new(),
            heir_of: BTreeMap::new(),
            look_as_heir_at: Moment::FAR,
            queen_seen: None,
            traffic: None,
            traffic_told: None,
            ready: config.ready,
            draining: None,
            unplaced: true,
            inherits: BTreeMap::new(),
            told: false,
            store: 0,
            fallen: Vec::new(),
            beat_early_at: Moment::FAR,
            give_at: Moment::default(),
            sweep_at: Moment::default(),
            probe_at: Moment::default(),
            tally_due: false,
            mend_due: false,
            count_due: false,
            config,
        }
    }

    /// None before the first one was given.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// What it holds, dead or alive.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.leases.values().filter_map(Lease::term)
    }

    pub fn step(&mut self, input: Input, now: Moment, effects: &mut Vec<Effect>) {
        let passed = now.since(self.now);
        self.now = self.now.max(now);
        if self.trust.runs_out(self.now) {
            self.end_terms("no heartbeat was answered in time", effects);
        }
        self.judge_pulse(passed, effects);
        for sent in self.calls.overdue(self.now) {
            let within = sent.until.since(sent.at);
            self.answer(&sent, Err(calls::no_answer(within)), effects);
        }
        self.hear(input, effects);
        self.act(effects);
        self.say_engaged(effects);
    }

    fn hear(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Identity(node) => self.identified(node),
            Input::Answer { call, result } => {
                if let Some(sent) = self.calls.answered(call) {
                    self.answer(&sent, result, effects);
                }
            }
            Input::Want(lease) => self.want(lease),
            Input::Unwant(lease) => self.unwant(&lease, Moment::FAR, effects),
            Input::SitOut { lease, wait } => self.unwant(&lease, self.now.after(wait), effects),
            Input::Shards { source, count, pinned_only } => self.want_shards(source, count, pinned_only),
            Input::NoShards(source) => self.unwant_shards(&source),
            Input::Mint { lease, floor } => self.mint_above(&lease, floor, effects),
            Input::Stale { lease, epoch } => self.refused(&lease, epoch, effects),
            Input::Left(held) => self.has_left(&held, effects),
            Input::HandOver { lease, to } => self.asked_to_give(&lease, to),
            Input::Traffic(at) => self.engage(at),
            Input::Ready(ready) => self.set_ready(ready),
            Input::Pulse => self.pulsed(),
            Input::Drain => self.drain(),
            Input::Leave => self.leave(effects),
        }
    }

    fn answer(&mut self, sent: &Sent, result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let is_ours =
            sent.store == self.store || sent.asked.is_of_a_node() || crate::planted::on("answers of another store");
        let result = if is_ours { result } else { Err(calls::another_store()) };
        match &sent.asked {
            Asked::Join => self.joined(sent, result, effects),
            Asked::Beat { read_only } => self.beaten(sent, *read_only, result, effects),
            Asked::View => self.viewed(sent, result, effects),
            Asked::Lineage => self.beat_soon(result.is_ok()),
            Asked::Behind => self.went_back(result.is_ok()),
            Asked::Mend => {}
            Asked::Sweep => self.swept(&result),
            Asked::Bury(told) => self.buried_others(told, result, effects),
            Asked::Count(told) => self.counted_as_queen(told, result, effects),
            Asked::Tally => self.tallied(&result),
            Asked::Look(names) => self.looked(sent, names, result, effects),
            Asked::Take(names) => self.taken(names, result, effects),
            Asked::Mint(names) => self.minted(names, result, effects),
            Asked::Give(name, heir) => self.given(name, *heir, result),
            Asked::Release(names) => self.released(names, &result),
            Asked::Heir(name, heir) => self.announced(name, *heir, &result, effects),
            Asked::Leave => self.has_asked_to_leave(result.is_ok(), effects),
        }
    }

    /// After every input: whatever has become possible.
    fn act(&mut self, effects: &mut Vec<Effect>) {
        match self.trust.phase {
            Phase::Out => self.join_if_due(effects),
            Phase::In => {
                self.beat_early();
                self.beat_if_due(effects);
                if self.trust.holds(self.now) {
                    self.read_view_if_outdated(effects);
                    self.place_if_changed(effects);
                    self.see_to_leases(effects);
                    self.see_to_hand_overs(effects);
                    self.bury_the_dead(effects);
                    self.sweep_if_due(effects);
                    self.see_to_the_count(effects);
                }
                self.leave_when_given(effects);
            }
            Phase::Leaving => self.leave_when_settled(effects),
            Phase::Joining | Phase::Gone => {}
        }
    }

    /// When the next `Tick` is due.
    pub fn wake_at(&self) -> Moment {
        let mut at = self.calls.deadline();
        match self.trust.phase {
            Phase::Out if self.node.is_some() => at = at.min(self.trust.beat_at),
            Phase::In => {
                if !self.calls.is_beating() {
                    at = at.min(self.trust.beat_at).min(self.beat_early_at);
                }
                if self.trust.holds(self.now) {
                    at = at.min(self.trust.until).min(self.leases_wake_at());
                    at = at.min(self.sweep_wake_at()).min(self.probe_wake_at());
                }
                if self.config.pulsed {
                    at = at.min(self.now.after(self.pulse_step()));
                }
                at = at.min(self.count.stale_at(self.now)).min(self.leave_wake_at());
            }
            Phase::Leaving if !self.calls.is_open(|_| true) => at = at.min(self.ask_at()),
            _ => {}
        }
        // A time that has come and leads to nothing must not be asked for again and again.
        if at == Moment::FAR { at } else { at.max(self.now.after(Duration::from_millis(1))) }
    }

    /// Draws numbers that the seed decides.
    fn random(&mut self) -> u64 {
        // xorshift64*: good enough to keep nodes out of step.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next beat tells what has come of it.
    fn beat_soon(&mut self, answered: bool) {
        let wait = if answered { Duration::ZERO } else { self.retry_wait() };
        self.trust.sooner(self.now.after(wait));
    }

    /// Before what has failed is tried again.
    fn retry_wait(&mut self) -> Duration {
        let random = self.random();
        self.config.retry(random)
    }

    fn call(&mut self, asked: Asked, request: Request, effects: &mut Vec<Effect>) {
        let within = match asked {
            Asked::Take(_) | Asked::Mint(_) | Asked::Give(..) => self.config.mint_deadline(),
            Asked::Leave => self.config.deadline().min(self.left_to_leave()),
            _ => self.config.deadline(),
        };
        let (at, version, store) = (self.now, self.lineage.version, self.store);
        let sent = Sent { asked, at, until: at.after(within), version, store };
        self.calls.send(sent, request, effects);
    }

    /// May lead: asked for, and nothing speaks against it.
    fn is_eligible(&self) -> bool {
        self.config.eligible && self.draining.is_none() && !self.pulse.is_deaf()
    }

    fn say_engaged(&mut self, effects: &mut Vec<Effect>) {
        let engaged = self.count.engaged(self.now);
        if self.engaged_told != Some(engaged) {
            self.engaged_told = Some(engaged);
            effects.push(Effect::Engaged(engaged));
        }
    }
}

/// For what a node draws by itself, the same every time it is asked.
fn spread(one: NodeId, other: NodeId, below: Duration) -> Duration {
    let mut text = [0; 32];
    text[..16].copy_from_slice(one.0.as_bytes());
    text[16..].copy_from_slice(other.0.as_bytes());
    let micros = u64::try_from(below.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(xxhash_rust::xxh64::xxh64(&text, 0) % micros)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
