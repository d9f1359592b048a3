//! Plays a plan, heals the world, and checks that every node then gives what it should.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use honeyflow_invariant::Breach;
use tokio::sync::oneshot;

use super::{
    history::{Excuse, History},
    job::Job,
    node::Node,
    plan::{BOTH, EXACT, Fault, MILLI, POOL, Plan, SECOND, SLOTS, SLOTS_MAX},
    world::World,
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Happening {
    Ask { machine: usize, what: JobKind },
    Fault(Fault),
    Starts { machine: usize },
    Bury,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JobKind {
    Pool,
    Store,
    All,
    Slots,
}

struct Cast {
    world: World,
    plan: Plan,
    nodes: Vec<Option<Node>>,
    processes: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    order: u64,
}

/// Returns the history, the breaches found so far, and how long it took.
pub async fn play(plan: &Plan) -> (History, Vec<Breach>, u64) {
    let world = World::new(plan);
    let mut cast = Cast {
        nodes: (0..plan.nodes).map(|_| None).collect(),
        plan: plan.clone(),
        processes: 0,
        queue: BinaryHeap::new(),
        happenings: BTreeMap::new(),
        order: 0,
        world: world.clone(),
    };
    for machine in 0..plan.nodes {
        let at_ns = world.lock().random.below(300) * MILLI;
        cast.push(at_ns, Happening::Starts { machine });
        for what in [JobKind::Pool, JobKind::Store, JobKind::All, JobKind::Slots] {
            cast.ask_later(machine, what, at_ns);
        }
    }
    for (at_ms, fault) in &plan.faults {
        cast.push(at_ms * MILLI, Happening::Fault(*fault));
    }
    cast.push(SECOND / 4, Happening::Bury);
    cast.until(plan.safety_ms * MILLI).await;
    let breaches = cast.heal().await;
    let (mut inner, end_ns) = (world.lock(), world.now_ns());
    inner.look_at_laws(end_ns);
    (std::mem::take(&mut inner.history), breaches, end_ns)
}

/// How many requests come in place of one: none in a lull of nearly half a second, and after it all that have gathered.
fn times(lulls: bool, now_ns: u64) -> u64 {
    match now_ns % (2 * SECOND) / MILLI {
        _ if !lulls => 1,
        0..400 => 0,
        400..500 => 5,
        _ => 1,
    }
}

impl Cast {
    fn push(&mut self, at_ns: u64, happening: Happening) {
        self.order += 1;
        self.happenings.insert(self.order, happening);
        self.queue.push(Reverse((at_ns, self.order)));
    }

    /// Schedules the next job of this kind, by its rate per second on all nodes together.
    fn ask_later(&mut self, machine: usize, what: JobKind, now_ns: u64) {
        let all = match what {
            JobKind::Pool => self.plan.pool.0 as f64 * self.plan.demand as f64 / 100.0,
            JobKind::Store => 70.0,
            JobKind::All => 8.0,
            JobKind::Slots => 30.0,
        };
        let mut inner = self.world.lock();
        let wait = -(1.0 - inner.random.unit()).ln() / all * self.plan.nodes as f64 * SECOND as f64;
        drop(inner);
        self.push(now_ns + (wait as u64).max(1), Happening::Ask { machine, what });
    }

    async fn until(&mut self, end_ns: u64) {
        while let Some(Reverse((at_ns, number))) = self.queue.pop() {
            if at_ns >= end_ns {
                break;
            }
            let Some(happening) = self.happenings.remove(&number) else { continue };
            if at_ns > self.world.now_ns() {
                tokio::time::sleep_until(self.world.at(at_ns)).await;
            }
            self.happen(happening, at_ns);
        }
        tokio::time::sleep_until(self.world.at(end_ns)).await;
    }

    fn happen(&mut self, happening: Happening, at_ns: u64) {
        let now_ns = self.world.now_ns();
        match happening {
            Happening::Ask { machine, what } => {
                self.ask_later(machine, what, at_ns);
                let Some(node) = &self.nodes[machine] else { return };
                let random = &mut self.world.lock().random;
                for _ in 0..times(self.plan.lulls, now_ns) {
                    node.ask(match what {
                        JobKind::Pool => Job::of_pool(random, 4),
                        JobKind::Store => Job::of_store(random),
                        JobKind::All => Job::All { cost: random.between(1, 2) },
                        JobKind::Slots => Job::of_slots(random),
                    });
                }
            }
            Happening::Starts { machine } => {
                self.processes += 1;
                self.nodes[machine] = Some(Node::start(&self.world, machine, self.processes));
            }
            Happening::Bury => {
                self.push(now_ns + SECOND / 4, Happening::Bury);
                self.world.lock().bury(now_ns);
            }
            Happening::Fault(fault) => self.fault(fault, now_ns),
        }
    }

    fn fault(&mut self, fault: Fault, now_ns: u64) {
        let world = self.world.clone();
        let mut inner = world.lock();
        match fault {
            Fault::Crash { machine, back_after_ms } => {
                let Some(node) = self.nodes[machine].take() else { return };
                inner.history.counts.crashed += 1;
                inner.history.slots.remove(&node.process.id());
                drop(inner);
                node.crash();
                self.push(now_ns + back_after_ms * MILLI, Happening::Starts { machine });
            }
            Fault::Pause { machine, ms } => {
                let Some(node) = &self.nodes[machine] else { return };
                node.pause(now_ns, ms, false);
            }
            Fault::Sleep { machine, ms } => {
                let Some(node) = &self.nodes[machine] else { return };
                if node.pause(now_ns, ms, true) {
                    inner.history.excuses.push(Excuse::Slept { until_ns: now_ns + ms * MILLI });
                }
            }
            Fault::Cut { machine, ms } => inner.cut_until_ns[machine] = now_ns + ms * MILLI,
            Fault::Deaf { machine, ms } => inner.deaf_until_ns[machine] = now_ns + ms * MILLI,
            Fault::Away { ms } => inner.away_until_ns = now_ns + ms * MILLI,
            Fault::Forgets => inner.forget(now_ns),
            Fault::Step { ms } => inner.step_clock(ms, now_ns),
            Fault::Set { rate, burst } => inner.set(rate, burst, now_ns),
        }
    }

    /// Ends all faults and starts all nodes. Then every node must be able to take everything again.
    async fn heal(&mut self) -> Vec<Breach> {
        let world = self.world.clone();
        {
            let mut inner = world.lock();
            inner.healed = true;
            inner.away_until_ns = 0;
            inner.cut_until_ns.fill(0);
            inner.deaf_until_ns.fill(0);
        }
        for machine in 0..self.nodes.len() {
            if self.nodes[machine].is_none() {
                self.happen(Happening::Starts { machine }, world.now_ns());
            }
        }
        // Paused nodes wake up, expired nodes are removed, and reservations and lent slots have ended.
        let quiet_ns = world.now_ns() + 2 * self.plan.ttl_ms * MILLI + 5 * SECOND;
        while world.now_ns() < quiet_ns {
            tokio::time::sleep(Duration::from_millis(250)).await;
            world.lock().bury(world.now_ns());
        }
        let mut breaches = Vec::new();
        for machine in 0..self.nodes.len() {
            let Some(node) = &self.nodes[machine] else { continue };
            for (limit, cost) in [(POOL, 1), (EXACT, 1), (BOTH[0], 1), (SLOTS, SLOTS_MAX)] {
                let (tell, told) = oneshot::channel();
                node.ask(Job::Prove { limit, cost, tell });
                match tokio::time::timeout(Duration::from_secs(8), told).await {
                    Ok(Ok(Ok(()))) => {}
                    other => {
                        let what = format!(
                            "{limit} refuses {cost} on machine {machine}, long after the last fault: {other:?}"
                        );
                        breaches.push(Breach::new("HV-69", what));
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        breaches
    }
}
