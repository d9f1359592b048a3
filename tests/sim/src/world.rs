//! The world: one queue of things that will happen, in the order of time and then of their making.

use std::collections::BTreeMap;

use honeyflow_engine::core::{BatchId, Effect, Input, WorkerId, WriteId, fact::Fact, input::Work, plan::SourceId};
use honeyflow_engine::shell::evaluate;
use honeyflow_event::{Key, Stamp, Target};
use honeyflow_hive::{contract, member};
use honeyflow_invariant::{Breach, exclusion::Held};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::{Intake, Leads, Taken};
use honeyflow_step::Outcome as StepOutcome;
use honeyflow_store::{Polled, Reply, Request};
use smallvec::smallvec;

use crate::{
    check,
    fault::{self, AGAIN, Fault},
    history::History,
    model_sink::ModelSink,
    model_store::ModelStore,
    node::{Incarnation, Life, Worker},
    options::{EXTENSION, LIVENESS, MILLI, Options, SAFETY, SECOND},
    random::Random,
    shapes::{self, Shapes},
    steps::{Executed, Seen, Surroundings},
    workload::{Application, Transaction},
};

/// What a seed came to.
#[derive(Debug)]
pub struct Outcome {
    pub options: Options,
    pub breaches: Vec<Breach>,
    /// Why this seed proves nothing.
    pub void: Vec<String>,
    pub trace: u64,
    pub stats: Stats,
    /// The nodes that did not come to rest, as they show themselves.
    pub nodes: Vec<String>,
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty() && self.void.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub simulated_us: u64,
    pub happenings: u64,
    pub changes: u64,
    pub runs: u64,
    pub faults: u64,
    pub planned: u64,
    pub stale_refused: u64,
    pub fenced: u64,
    pub late_commits: u64,
    pub parked: u64,
    pub quiet_after_ms: Option<u64>,
}

pub fn run(seed: u64) -> Outcome {
    let options = Options::draw(seed);
    let played = std::panic::catch_unwind(|| run_watching(seed, None));
    played.unwrap_or_else(|panic| {
        // a core that stops is as wrong as one that answers wrongly
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let breaches = vec![Breach::new("panic", text)];
        Outcome { options, breaches, void: Vec::new(), trace: 0, stats: Stats::default(), nodes: Vec::new() }
    })
}

/// Tells on stderr what happens to one key.
pub fn run_watching(seed: u64, key: Option<String>) -> Outcome {
    let mut world = World::new(Options::draw(seed));
    world.watched = key;
    world.play();
    check::judge(world)
}

enum Happening {
    Tick {
        who: usize,
    },
    /// A request arrives at the database; the answer travels back for `back`.
    HiveArrives {
        who: usize,
        source: SourceId,
        call: u64,
        sent_at: Moment,
        request: contract::Request,
        ends: Ends,
        back: u64,
    },
    HiveAnswers {
        who: usize,
        source: SourceId,
        call: u64,
        sent_at: Moment,
        result: Result<contract::Reply, Failure>,
    },
    StoreArrives {
        who: usize,
        asked: Asked,
        request: Request,
        ends: Ends,
        back: u64,
    },
    Hears {
        who: usize,
        input: Input,
    },
    /// The core tells the member.
    Tells {
        who: usize,
        source: SourceId,
        input: member::Input,
    },
    Works {
        who: usize,
        worker: WorkerId,
        batch: BatchId,
        work: Work,
        answer: Answer,
    },
    NewWorker {
        who: usize,
    },
    Begins,
    Commits(Transaction),
    Strikes(Fault),
    Restarts {
        node: usize,
    },
    Migrated,
    Kills {
        who: usize,
    },
    /// A pause is over; `since` is how many grants there were before.
    Wakes {
        who: usize,
        since: usize,
    },
}

/// How a request ends, whatever the database makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Well,
    /// Never executed.
    Refused,
    /// Executed, and reported as failed.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Recover(SourceId, u64),
    Poll(SourceId, u64),
    Write(WriteId),
}

/// How a batch is answered.
#[derive(Clone, Copy, Debug)]
struct Answer {
    after: u64,
    twice: bool,
    partial: bool,
    never: bool,
}

pub struct World {
    pub options: Options,
    pub shapes: Shapes,
    pub store: ModelStore,
    pub sinks: Vec<ModelSink>,
    pub application: Application,
    pub history: History,
    pub loads: BTreeMap<(Key, Stamp), Seen>,
    pub incarnations: Vec<Incarnation>,
    pub stats: Stats,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    now: u64,
    random: Random,
    trace: u64,
    healed: bool,
    watched: Option<String>,
    store_down_until: u64,
    migrating: bool,
    effects: Vec<Effect>,
    member_effects: Vec<member::Effect>,
    facts: Vec<Fact>,
}

impl World {
    pub fn new(options: Options) -> World {
        let shapes = shapes::draw(&options);
        World {
            store: ModelStore::new(options.shards),
            sinks: shapes.sinks.iter().map(|name| ModelSink::new(name.clone())).collect(),
            application: Application::new(options.seed),
            history: History::default(),
            loads: BTreeMap::new(),
            incarnations: Vec::new(),
            stats: Stats::default(),
            queue: BTreeMap::new(),
            number: 0,
            now: 0,
            random: Random::new(options.seed ^ 0x5EED_0004),
            trace: options.seed,
            healed: false,
            watched: None,
            store_down_until: 0,
            migrating: false,
            effects: Vec::new(),
            member_effects: Vec::new(),
            facts: Vec::new(),
            shapes,
            options,
        }
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    fn play(&mut self) {
        for node in 0..self.options.nodes {
            let at = self.random.below(SECOND);
            self.after(at, Happening::Restarts { node });
        }
        self.after(0, Happening::Begins);
        for planned in fault::plan(&self.options) {
            self.stats.planned += 1;
            self.after(planned.at, Happening::Strikes(planned.fault));
        }
        self.until(SAFETY);
        // whoever was not hit yet, for want of a lease, is waited for
        while self.stats.faults < self.stats.planned && self.now < SAFETY + EXTENSION {
            self.until(self.now + SECOND / 4);
        }
        let healed_at = self.now;
        self.heal();
        let mut look_at = self.now;
        while self.now < healed_at + LIVENESS {
            look_at += SECOND / 4;
            self.until(look_at);
            if self.is_quiet() {
                self.stats.quiet_after_ms = Some((self.now - healed_at) / MILLI);
                break;
            }
        }
        self.stats.simulated_us = self.now;
    }

    /// Nothing fails any more; every node that was lost comes back.
    fn heal(&mut self) {
        self.healed = true;
        self.store_down_until = 0;
        self.sinks.iter_mut().for_each(|sink| sink.down_until = 0);
        if std::mem::take(&mut self.migrating) {
            self.store.schema_version += 1;
        }
        for incarnation in &mut self.incarnations {
            incarnation.cut_off_until = 0;
            incarnation.workers.values_mut().for_each(|worker| worker.hangs = false);
        }
        for node in 0..self.options.nodes {
            let running = |incarnation: &&Incarnation| incarnation.node == node && incarnation.life == Life::Running;
            if !self.incarnations.iter().any(|incarnation| running(&incarnation)) {
                self.after(MILLI, Happening::Restarts { node });
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.application.is_idle()
            && self.store.outbox.is_empty()
            && self.incarnations.iter().all(|one| !one.is_alive() || one.core.in_memory() == (0, 0))
    }

    fn until(&mut self, end: u64) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, number), happening) = entry.remove_entry();
            self.now = self.now.max(at);
            self.stats.happenings += 1;
            self.store.journal.at = self.stats.happenings;
            self.trace = mix(self.trace, at ^ number.rotate_left(20) ^ (kind(&happening) << 56));
            self.happen(happening);
        }
        self.now = self.now.max(end);
    }

    fn watch(&self, key: &str, what: impl FnOnce() -> String) {
        if self.watched.as_deref() == Some(key) {
            eprintln!("{:>12} {:>7} {key}: {}", self.now, self.stats.happenings, what());
        }
    }

    fn after(&mut self, wait: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((self.now + wait, self.number), happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick { who } => self.tick(who),
            Happening::HiveArrives { who, source, call, sent_at, request, ends, back } => {
                let result = self
                    .at_database(who, ends, |world| world.store.hive.apply(ModelStore::hive_ms(world.now), request));
                self.after(back, Happening::HiveAnswers { who, source, call, sent_at, result });
            }
            Happening::HiveAnswers { who, source, call, sent_at, result } => {
                if self.is_deferred(who) {
                    let wait = self.incarnations[who].paused_until - self.now;
                    self.after(wait, Happening::HiveAnswers { who, source, call, sent_at, result });
                } else if self.incarnations[who].is_alive() {
                    self.member_hears(who, source, member::Input::Answer { call, sent_at, result });
                }
            }
            Happening::StoreArrives { who, asked, request, ends, back } => {
                // half of what a paused node was about to send goes out when it wakes up
                if self.is_deferred(who) && back % 2 == 0 {
                    let wait = self.incarnations[who].paused_until - self.now;
                    self.after(wait, Happening::StoreArrives { who, asked, request, ends, back });
                    return;
                }
                if self.watched.is_some() {
                    self.watch_request(who, &request, ends);
                }
                let result = self.at_database(who, ends, |world| world.store.apply(world.now, request));
                let input = self.heard(asked, result);
                let wait = match (&input, asked) {
                    // the shell waits before it asks again
                    (Input::Recovered { result: Err(_), .. }, Asked::Recover(..)) => SECOND / 2,
                    _ => 0,
                };
                self.after(back + wait, Happening::Hears { who, input });
            }
            Happening::Hears { who, input } => {
                if self.is_deferred(who) {
                    let wait = self.incarnations[who].paused_until - self.now;
                    self.after(wait, Happening::Hears { who, input });
                } else if self.incarnations[who].is_alive() {
                    self.core_hears(who, input);
                }
            }
            Happening::Tells { who, source, input } => {
                if self.is_deferred(who) {
                    let wait = self.incarnations[who].paused_until - self.now;
                    self.after(wait, Happening::Tells { who, source, input });
                } else if self.incarnations[who].is_alive() {
                    self.member_hears(who, source, input);
                }
            }
            Happening::Works { who, worker, batch, work, answer } => self.works(who, worker, batch, work, answer),
            Happening::NewWorker { who } => self.new_worker(who),
            Happening::Begins => self.begins(),
            Happening::Commits(transaction) => {
                for planned in &transaction.events {
                    self.watch(&planned.event.key, || format!("commit {transaction:?}"));
                }
                self.application.commit(&mut self.store, self.now, transaction);
            }
            Happening::Strikes(fault) => self.strikes(fault),
            Happening::Restarts { node } => self.start(node),
            Happening::Migrated => {
                if std::mem::take(&mut self.migrating) {
                    self.store.schema_version += 1;
                }
            }
            Happening::Kills { who } => self.dies(who),
            Happening::Wakes { who, since } => {
                // a pause that nobody noticed, or after which nothing can be sent, was none
                let number = self.incarnations[who].number;
                let noticed = self.history.held[since..].iter().any(|held| held.holder != number);
                if noticed && self.store_down_until <= self.now {
                    self.stats.faults += 1;
                } else {
                    self.after(AGAIN, Happening::Strikes(Fault::Pause));
                }
            }
        }
    }

    fn watch_request(&self, who: usize, request: &Request, ends: Ends) {
        let key = self.watched.as_deref().unwrap_or_default();
        if let Request::Recover = request {
            self.watch(key, || format!("incarnation {who} recovers {:?}, {ends:?}", self.store.journaled(key)));
        }
        let Request::Write(write) = request else { return };
        let holds = self.store.hive.admits(&write.fence);
        for op in &write.ops {
            let events = match op {
                honeyflow_store::Op::Settle { events, .. } => events.as_slice(),
                _ => &[],
            };
            let stored = &self.store.journal.stored;
            let text = format!("{op:?}");
            if text.contains(&format!("\"{key}\""))
                || events.iter().any(|id| stored.get(id).is_some_and(|e| &*e.key == key))
            {
                self.watch(key, || format!("incarnation {who} writes {text}, {ends:?}, fence holds: {holds}"));
            }
        }
    }

    fn is_deferred(&self, who: usize) -> bool {
        self.incarnations[who].paused_until > self.now
    }

    fn at_database<T>(
        &mut self,
        who: usize,
        ends: Ends,
        execute: impl FnOnce(&mut World) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let cut_off = self.incarnations[who].cut_off_until > self.now;
        if ends == Ends::Refused || cut_off || self.store_down_until > self.now {
            return Err(Failure::retry("unreachable", "the database does not answer"));
        }
        let result = execute(self);
        if ends == Ends::Unknown { Err(Failure::retry("unknown", "the answer was lost")) } else { result }
    }

    fn heard(&mut self, asked: Asked, result: Result<Reply, Failure>) -> Input {
        match asked {
            Asked::Recover(source, recovery) => {
                let result = result.map(|reply| match reply {
                    Reply::Recovered(found) => found,
                    other => unreachable!("asked to recover, got {other:?}"),
                });
                Input::Recovered { source, recovery, result }
            }
            Asked::Poll(source, poll) => {
                let result = result.map(|reply| match reply {
                    Reply::Polled(polled) => self.intake(polled),
                    other => unreachable!("asked to poll, got {other:?}"),
                });
                Input::Polled { source, poll, result }
            }
            Asked::Write(write) => Input::Written { write, result },
        }
    }

    /// What a source makes of a poll.
    fn intake(&self, polled: Polled) -> Intake {
        let regular = polled.events.len() - polled.newest;
        let mut intake = Intake {
            oversized: polled.oversized,
            looked_to: polled.looked_to,
            next_due_ms: polled.next_due_ms,
            store_ms: polled.store_ms,
            schema_version: polled.schema_version,
            ..Intake::default()
        };
        for (place, event) in polled.events.into_iter().enumerate() {
            let leads = if event.format > 1 {
                Leads::Unreadable(Failure::reject("unknown-format", "written by a later version"))
            } else if self.migrating && &*event.entity == "tag" {
                Leads::Held(Failure::retry("no-table", "a table is missing"))
            } else {
                Leads::To(smallvec![Target { entity: event.entity.clone(), key: event.key.clone() }])
            };
            intake.taken.push(Taken { event: event.into(), leads, newest: place >= regular });
        }
        intake
    }

    fn tick(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() || incarnation.tick_at > self.now {
            return;
        }
        incarnation.tick_at = u64::MAX;
        if incarnation.paused_until > self.now {
            let wait = incarnation.paused_until - self.now;
            incarnation.tick_at = incarnation.paused_until;
            self.after(wait, Happening::Tick { who });
            return;
        }
        for source in 0..self.options.shards {
            if self.incarnations[who].is_alive() {
                self.member_hears(who, source, member::Input::Tick);
            }
        }
        if self.incarnations[who].is_alive() {
            self.core_hears(who, Input::Tick);
        }
    }

    fn rearm(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() {
            return;
        }
        let at = incarnation.wake_at().max(self.now + 1);
        if at < incarnation.tick_at {
            incarnation.tick_at = at;
            self.after(at - self.now, Happening::Tick { who });
        }
    }

    fn member_hears(&mut self, who: usize, source: SourceId, input: member::Input) {
        let now = self.incarnations[who].local(self.now);
        let mut effects = std::mem::take(&mut self.member_effects);
        self.incarnations[who].members[usize::from(source)].step(input, now, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                member::Effect::Call { call, request } => {
                    let (there, back, ends) = self.travel();
                    let happening = Happening::HiveArrives { who, source, call, sent_at: now, request, ends, back };
                    self.after(there, happening);
                }
                member::Effect::Granted(term) => {
                    let (lease, epoch) = (term.lease().to_string(), term.epoch());
                    self.trace = mix(self.trace, epoch.0);
                    let holder = self.incarnations[who].number;
                    self.history.held.push(Held { lease, epoch, holder });
                    self.incarnations[who].leases += 1;
                    self.core_hears(who, Input::Granted(term));
                }
                member::Effect::Lost { lease, .. } => {
                    let incarnation = &mut self.incarnations[who];
                    incarnation.leases = incarnation.leases.saturating_sub(1);
                    if incarnation.leases == 0 && incarnation.pauses_before_write.take().is_some() {
                        self.after(AGAIN, Happening::Strikes(Fault::Pause));
                    }
                    self.core_hears(who, Input::Lost { lease });
                }
                member::Effect::Trust(until) => self.core_hears(who, Input::Trust { source, until }),
                member::Effect::Left if self.incarnations[who].left + 1 < self.incarnations[who].members.len() => {
                    self.incarnations[who].left += 1;
                }
                member::Effect::Refused(_) | member::Effect::Buried | member::Effect::Left => {
                    self.dies(who);
                    let node = self.incarnations[who].node;
                    let wait = self.random.between(50 * MILLI, SECOND);
                    self.after(wait, Happening::Restarts { node });
                }
            }
        }
        self.member_effects = effects;
        self.rearm(who);
    }

    fn core_hears(&mut self, who: usize, input: Input) {
        let now = self.incarnations[who].local(self.now);
        let mut effects = std::mem::take(&mut self.effects);
        let incarnation = &mut self.incarnations[who];
        incarnation.core.advance(input, now, &mut effects);
        incarnation.core.take_facts(&mut self.facts);
        let (runs, rows) = incarnation.core.in_memory();
        self.history.most_runs = self.history.most_runs.max(runs);
        self.history.most_rows = self.history.most_rows.max(rows);
        let holder = incarnation.number;
        for fact in self.facts.drain(..) {
            if let Some(key) = self.watched.as_deref()
                && self.history.key_of(holder, &fact) == Some(key)
            {
                eprintln!("{:>12} {key}: incarnation {who} {fact:?}", self.now);
            }
            self.history.note(holder, &fact, &self.shapes);
        }
        for effect in effects.drain(..) {
            self.carry_out(who, effect);
        }
        self.effects = effects;
        self.rearm(who);
    }

    fn carry_out(&mut self, who: usize, effect: Effect) {
        let (asked, request) = match effect {
            Effect::Recover { source, recovery } => (Asked::Recover(source, recovery), Request::Recover),
            Effect::Poll { source, poll, request } => (Asked::Poll(source, poll), Request::Poll(request)),
            Effect::Write { write, request, .. } => (Asked::Write(write), Request::Write(request)),
            Effect::Give { worker, batch, work, .. } => return self.give(who, worker, batch, work),
            Effect::Mint { source, lease, floor } => {
                return self.tell(who, source, member::Input::Mint { lease, floor });
            }
            Effect::Drained => {
                return (0..self.options.shards).for_each(|source| self.tell(who, source, member::Input::Leave));
            }
            Effect::Judge { judge, items, .. } => {
                let input = Input::Judged { judge, results: items.iter().map(evaluate::judge).collect() };
                let wait = 1 + self.random.below(self.options.steps.latency_us);
                return self.after(wait, Happening::Hears { who, input });
            }
            Effect::Cancel { .. } | Effect::Left { .. } | Effect::Alarm { .. } => return,
        };
        let (mut there, back, mut ends) = self.travel();
        if let (Asked::Write(_), Some(pause)) = (asked, self.incarnations[who].pauses_before_write) {
            self.incarnations[who].pauses_before_write = None;
            if self.has_peer(who) {
                self.incarnations[who].paused_until = self.now + pause;
                there += pause;
                ends = Ends::Well;
                let since = self.history.held.len();
                self.after(pause, Happening::Wakes { who, since });
            } else {
                self.after(AGAIN, Happening::Strikes(Fault::Pause));
            }
        }
        self.after(there, Happening::StoreArrives { who, asked, request, ends, back });
    }

    /// The member has a thread of its own: it hears a moment later.
    fn tell(&mut self, who: usize, source: SourceId, input: member::Input) {
        self.after(1, Happening::Tells { who, source, input });
    }

    /// There, back, and how it ends.
    fn travel(&mut self) -> (u64, u64, Ends) {
        let faults = self.options.store.clone();
        let r = &mut self.random;
        let (mut there, back) = (1 + r.below(faults.latency_us), 1 + r.below(faults.latency_us));
        if self.healed {
            return (there, back, Ends::Well);
        }
        if r.per_mille(faults.slow) {
            there += r.below(4 * SECOND);
        }
        let ends = match r.below(1000) {
            n if n < faults.refused => Ends::Refused,
            n if n < faults.refused + faults.unknown => Ends::Unknown,
            _ => Ends::Well,
        };
        (there, back, ends)
    }

    fn give(&mut self, who: usize, worker: WorkerId, batch: BatchId, work: Work) {
        let faults = self.options.steps.clone();
        let r = &mut self.random;
        let mut begin = 1 + r.below(faults.latency_us);
        let mut answer = Answer { after: 1 + r.below(faults.latency_us), twice: false, partial: false, never: false };
        if !self.healed {
            answer.twice = r.per_mille(faults.twice);
            answer.partial = r.per_mille(faults.partial);
            if r.per_mille(faults.slow) {
                begin += r.below(SECOND);
            }
            if r.per_mille(faults.late) {
                answer.after += r.between(SECOND, 12 * SECOND);
            }
            if let Some(worker) = self.incarnations[who].workers.get_mut(&worker) {
                answer.never = std::mem::take(&mut worker.hangs);
            }
        }
        self.after(begin, Happening::Works { who, worker, batch, work, answer });
    }

    fn works(&mut self, who: usize, worker: WorkerId, batch: BatchId, work: Work, answer: Answer) {
        if self.is_deferred(who) {
            let wait = self.incarnations[who].paused_until - self.now;
            self.after(wait, Happening::Works { who, worker, batch, work, answer });
            return;
        }
        // of a dead worker or node, half of what it had begun still arrives at its target
        let alive = self.incarnations[who].is_alive() && self.incarnations[who].workers.contains_key(&worker);
        if !alive && batch.is_multiple_of(2) {
            return;
        }
        let input = match work {
            Work::Evaluate { graph, step, items } => {
                Input::Evaluated { batch, results: evaluate::all(&graph, step, &items) }
            }
            Work::Execute { workflow, step, batch: work } => {
                let mut surroundings = Surroundings {
                    options: &self.options,
                    shapes: &self.shapes,
                    application: &self.application,
                    sinks: &mut self.sinks,
                    loads: &mut self.loads,
                    random: &mut self.random,
                    checkpointed: &self.store.journal.checkpointed,
                    effects: &mut self.history.effects,
                    faulty: !self.healed,
                    now: (self.now, self.stats.happenings),
                };
                let executed = surroundings.execute(workflow, step, &work);
                if self.watched.is_some() {
                    for item in &work.items {
                        let step = &work.step;
                        self.watch(&item.key, || {
                            format!("incarnation {who} batch {batch}/{} executes {step}: {item:?}", work.items.len())
                        });
                    }
                }
                match executed {
                    Executed::Outcomes(outcomes) => Input::Outcomes { batch, outcomes },
                    Executed::Died if alive => return self.worker_dies_of(who, worker, batch),
                    Executed::Died => return,
                }
            }
        };
        if !alive || answer.never {
            return;
        }
        self.answer(who, input, answer);
    }

    fn answer(&mut self, who: usize, mut input: Input, answer: Answer) {
        if let (Input::Outcomes { outcomes, .. }, true) = (&mut input, answer.partial) {
            // a lone item that is not answered for is a bad answer, and charged: only larger batches are cut
            if outcomes.len() > 1 {
                outcomes.pop();
            }
        }
        if let (Input::Outcomes { batch, outcomes }, true) = (&input, answer.twice) {
            let again = Input::Outcomes { batch: *batch, outcomes: reordered(outcomes) };
            self.after(answer.after + 5 * MILLI, Happening::Hears { who, input: again });
        }
        self.after(answer.after, Happening::Hears { who, input });
    }

    fn worker_dies_of(&mut self, who: usize, worker: WorkerId, batch: BatchId) {
        if batch.is_multiple_of(2) {
            self.after(MILLI, Happening::Hears { who, input: Input::Unanswered { batch } });
        } else {
            self.worker_dies(who, worker);
        }
    }

    fn worker_dies(&mut self, who: usize, worker: WorkerId) {
        if self.incarnations[who].workers.remove(&worker).is_some() {
            self.after(MILLI, Happening::Hears { who, input: Input::WorkerLost { worker } });
            self.after(100 * MILLI, Happening::NewWorker { who });
        }
    }

    fn new_worker(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() {
            return;
        }
        incarnation.next_worker += 1;
        let worker = incarnation.next_worker;
        incarnation.workers.insert(worker, Worker::default());
        let kinds = u16::try_from(self.shapes.plan.kinds.len()).unwrap_or(1);
        let room = (0..kinds).map(|kind| (kind, self.options.room)).collect();
        self.after(0, Happening::Hears { who, input: Input::Hello { worker, room } });
    }

    fn begins(&mut self) {
        if !self.healed {
            let wait = self.random.between(self.options.change_every_us / 4, self.options.change_every_us * 7 / 4);
            self.after(wait, Happening::Begins);
            if let Some((takes, transaction)) = self.application.begin(&mut self.store, &self.shapes, &self.options) {
                self.after(takes, Happening::Commits(transaction));
            }
        }
    }

    fn start(&mut self, node: usize) {
        let runs = |one: &Incarnation| one.node == node && one.life == Life::Running && one.cut_off_until <= self.now;
        if self.incarnations.iter().any(runs) {
            return;
        }
        let number = self.incarnations.len() as u64 + 1;
        let plan = self.shapes.plan.clone();
        self.incarnations.push(Incarnation::new(&self.options, plan, node, number, self.now));
        let who = self.incarnations.len() - 1;
        for _ in 0..self.options.workers {
            self.new_worker(who);
        }
        for source in 0..self.options.shards {
            let lease = self.shapes.plan.sources[usize::from(source)].lease.clone();
            self.member_hears(who, source, member::Input::Want(lease));
        }
    }

    fn dies(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if incarnation.is_alive() {
            incarnation.life = Life::Dead;
            let missed = incarnation.pauses_before_write.take();
            self.history.gone(incarnation.number, &self.shapes);
            if missed.is_some() {
                self.after(AGAIN, Happening::Strikes(Fault::Pause));
            }
        }
    }

    fn strikes(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        let hit = self.hits(fault);
        if self.watched.is_some() {
            eprintln!("{:>12} {fault:?} strikes, hit: {hit}", self.now);
        }
        if !hit {
            self.after(AGAIN, Happening::Strikes(fault));
            return;
        }
        self.stats.faults += u64::from(fault != Fault::Pause);
    }

    /// False: there is nobody to hit just now.
    fn hits(&mut self, fault: Fault) -> bool {
        let ttl = self.options.ttl_ms * MILLI;
        match fault {
            Fault::StoreOutage => {
                self.store_down_until = self.now + self.random.between(100 * MILLI, 4 * SECOND);
                return true;
            }
            Fault::SinkOutage => {
                let sink = usize::try_from(self.random.below(self.sinks.len() as u64)).unwrap_or(0);
                self.sinks[sink].down_until = self.now + self.random.between(SECOND, 6 * SECOND);
                return true;
            }
            Fault::SinkAhead => return self.sink_gets_ahead(),
            Fault::Migration => {
                self.migrating = true;
                let wait = self.random.between(SECOND / 2, 3 * SECOND);
                self.after(wait, Happening::Migrated);
                return true;
            }
            _ => {}
        }
        let Some(who) = self.victim(fault) else { return false };
        let node = self.incarnations[who].node;
        match fault {
            Fault::Crash => {
                self.dies(who);
                let wait = self.random.between(100 * MILLI, ttl * 2);
                self.after(wait, Happening::Restarts { node });
            }
            Fault::Pause => {
                // long enough for others to find out and to take over; it lands with the next write
                let pause = ttl * 2 + self.random.between(SECOND, 3 * SECOND);
                self.incarnations[who].pauses_before_write = Some(pause);
            }
            Fault::Double => {
                self.incarnations[who].cut_off_until = self.now + self.random.between(ttl / 2, ttl * 3);
                self.after(MILLI, Happening::Restarts { node });
            }
            Fault::CutOff => {
                self.incarnations[who].cut_off_until = self.now + self.random.between(100 * MILLI, ttl * 2);
            }
            Fault::Drain => {
                self.incarnations[who].life = Life::Draining;
                self.core_hears(who, Input::Drain);
                // whoever does not end by itself is ended
                self.after(5 * SECOND, Happening::Kills { who });
                self.after(6 * SECOND, Happening::Restarts { node });
            }
            Fault::WorkerDies => {
                let workers: Vec<WorkerId> = self.incarnations[who].workers.keys().copied().collect();
                let worker = *self.random.pick(&workers);
                self.worker_dies(who, worker);
            }
            Fault::WorkerHangs => {
                self.incarnations[who].workers.values_mut().take(1).for_each(|worker| worker.hangs = true);
            }
            Fault::StoreOutage | Fault::SinkOutage | Fault::SinkAhead | Fault::Migration => {}
        }
        true
    }

    /// Someone has written under an epoch that is not there yet; then the row changes, and is to be seen in the sink.
    fn sink_gets_ahead(&mut self) -> bool {
        let number = usize::try_from(self.random.below(self.sinks.len() as u64)).unwrap_or(0);
        let Some(shape) = self.shapes.workflows.iter().find(|shape| shape.sinks.values().any(|sink| *sink == number))
        else {
            return false;
        };
        let keys: Vec<Key> = self.sinks[number].held.keys().cloned().collect();
        if keys.is_empty() || matches!(&*shape.entity, "msg" | "note") {
            return false;
        }
        let place = (shape.entity.clone(), self.random.pick(&keys).clone());
        let ahead = ModelStore::hive_ms(self.now) + self.random.between(1, 20_000);
        let Some(transaction) = self.application.touch(&mut self.store, &place) else { return false };
        let stamp = Stamp::new(honeyflow_event::Epoch(ahead), 7);
        let body = Some(std::sync::Arc::new(serde_json::json!("from another life")));
        let written = self.sinks[number].write(&place.1, stamp, &body, self.stats.happenings);
        self.after(1, Happening::Commits(transaction));
        written.is_ok()
    }

    /// A running incarnation that holds a lease, and for a pause one with something about to reach a sink.
    fn victim(&mut self, fault: Fault) -> Option<usize> {
        let now = self.now;
        let fits = |one: &Incarnation| one.life == Life::Running && one.leases > 0 && one.paused_until <= now;
        let mut found: Vec<usize> = (0..self.incarnations.len()).filter(|who| fits(&self.incarnations[*who])).collect();
        match fault {
            Fault::Pause => {
                let fits = |one: &Incarnation| one.pauses_before_write.is_none() && one.cut_off_until <= now;
                found.retain(|who| self.has_peer(*who) && fits(&self.incarnations[*who]));
            }
            Fault::WorkerDies | Fault::WorkerHangs => found.retain(|who| !self.incarnations[*who].workers.is_empty()),
            _ => {}
        }
        (!found.is_empty()).then(|| *self.random.pick(&found))
    }

    /// Someone else could take over.
    fn has_peer(&self, who: usize) -> bool {
        self.incarnations.iter().enumerate().any(|(other, one)| {
            other != who && one.life == Life::Running && one.paused_until <= self.now && one.cut_off_until <= self.now
        })
    }
}

/// The second answer of a worker that answers twice says something else.
fn reordered(outcomes: &[StepOutcome]) -> Vec<StepOutcome> {
    outcomes.iter().rev().cloned().collect()
}

fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(5) ^ value).wrapping_mul(0x517C_C1B7_2722_0A95)
}

fn kind(happening: &Happening) -> u64 {
    match happening {
        Happening::Tick { .. } => 1,
        Happening::HiveArrives { .. } => 2,
        Happening::HiveAnswers { .. } => 3,
        Happening::StoreArrives { .. } => 4,
        Happening::Hears { .. } => 5,
        Happening::Works { .. } => 6,
        Happening::NewWorker { .. } => 7,
        Happening::Begins => 8,
        Happening::Commits(_) => 9,
        Happening::Strikes(_) => 10,
        Happening::Restarts { .. } => 11,
        Happening::Migrated => 12,
        Happening::Kills { .. } => 13,
        Happening::Tells { .. } => 14,
        Happening::Wakes { .. } => 15,
    }
}
