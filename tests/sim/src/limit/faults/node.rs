//! A process: the shipped limiter, a heartbeat that informs it as a member's does, and the programs that take permits.
//! All of it runs in one task with its own clock; the task does not run while the process is paused.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::State,
    limit::{Config, Limits, Service, clock::LocalClock},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::{Sleep, sleep, sleep_until, timeout},
};

use super::{
    job::{self, Job},
    plan::{EXPECTED_NODES, MILLI, SECOND},
    store::Line,
    world::{World, definitions},
};

/// A process as seen from outside.
#[derive(Clone)]
pub struct Process {
    pub number: u64,
    inside: Arc<ProcessState>,
}

struct ProcessState {
    id: Mutex<NodeId>,
    /// The number of nodes by which it should divide.
    divisor: AtomicU64,
    /// The highest number of nodes that it ever received.
    highest: AtomicU64,
    /// The start of the last answered request to the store.
    trusts_from_ns: AtomicU64,
}

impl Process {
    fn new(number: u64, id: NodeId, now_ns: u64) -> Process {
        let inside = ProcessState {
            id: Mutex::new(id),
            divisor: AtomicU64::new(EXPECTED_NODES),
            highest: AtomicU64::new(0),
            trusts_from_ns: AtomicU64::new(now_ns),
        };
        Process { number, inside: Arc::new(inside) }
    }

    pub fn id(&self) -> NodeId {
        *self.inside.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn divisor(&self) -> u64 {
        self.inside.divisor.load(Ordering::Relaxed)
    }

    fn set_count(&self, count: u64) {
        self.inside.divisor.store(count.max(1), Ordering::Relaxed);
        self.inside.highest.fetch_max(count, Ordering::Relaxed);
    }

    fn set_id(&self, id: NodeId) {
        *self.inside.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn forget_count(&self) {
        let highest = self.inside.highest.load(Ordering::Relaxed);
        self.inside.divisor.store(EXPECTED_NODES.max(highest), Ordering::Relaxed);
    }
}

/// A running process, as its machine controls it.
pub struct Node {
    pub process: Process,
    jobs: UnboundedSender<Job>,
    task: JoinHandle<()>,
    stands: Arc<Mutex<PauseState>>,
}

/// When the process is paused, and whether its clock stops meanwhile.
#[derive(Clone, Copy, Default)]
struct PauseState {
    from_ns: u64,
    until_ns: u64,
    /// The total time for which its clock was stopped.
    slept_ns: u64,
    sleeps: bool,
}

impl PauseState {
    /// Events at the first instant of the pause still happen.
    fn is_paused(&self, now_ns: u64) -> bool {
        (self.from_ns + 1..self.until_ns).contains(&now_ns)
    }
}

impl Node {
    pub fn start(world: &World, machine: usize, number: u64) -> Node {
        let (id, drift_ppm) = {
            let mut inner = world.lock();
            (inner.new_id(), inner.random.between(0, 600).cast_signed() - 300)
        };
        let now_ns = world.now_ns();
        world.lock().history.began_ns.insert(number, now_ns);
        let process = Process::new(number, id, now_ns);
        let line = Arc::new(Line { world: world.clone(), machine });
        let (clock, hand) = LocalClock::manual();
        let config = Config {
            expected_nodes: EXPECTED_NODES,
            clock,
            boot: Arc::new(world.clone()),
            ..Config::new(line.clone(), id)
        };
        let (service, limits) = Service::new(config);
        for definition in definitions(&world.lock().plan) {
            limits.define(&definition).expect("a limit");
        }
        let (jobs, asked) = unbounded_channel();
        let stands = Arc::new(Mutex::new(PauseState::default()));
        let body = Body {
            service: Box::pin(service.run(std::future::pending())),
            heart: Box::pin(heart(line, limits.clone(), process.clone(), world.clone())),
            trust: Box::pin(trust(limits.clone(), process.clone(), world.clone())),
            programs: FuturesUnordered::new(),
            jobs: asked,
            limits,
            process: process.clone(),
            world: world.clone(),
            began_ns: now_ns,
            drift_ppm,
            hand,
            stands: stands.clone(),
            wake: Box::pin(sleep(Duration::ZERO)),
        };
        Node { process, jobs, task: tokio::spawn(body), stands }
    }

    pub fn ask(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    pub fn pause(&self, now_ns: u64, ms: u64, sleeps: bool) -> bool {
        let mut stands = self.stands.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns < stands.until_ns {
            return false;
        }
        let slept_ns = stands.slept_ns + if stands.sleeps { stands.until_ns - stands.from_ns } else { 0 };
        *stands = PauseState { from_ns: now_ns, until_ns: now_ns + ms * MILLI, slept_ns, sleeps };
        true
    }

    pub fn crash(self) {
        self.task.abort();
    }
}

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Body {
    service: Part,
    heart: Part,
    trust: Part,
    programs: FuturesUnordered<Part>,
    jobs: UnboundedReceiver<Job>,
    limits: Limits,
    process: Process,
    world: World,
    began_ns: u64,
    drift_ppm: i64,
    hand: Arc<AtomicU64>,
    stands: Arc<Mutex<PauseState>>,
    wake: Pin<Box<Sleep>>,
}

impl Body {
    fn set_clock(&self, now_ns: u64, stands: &PauseState) {
        let asleep_ns = if stands.sleeps { now_ns.min(stands.until_ns) - stands.from_ns } else { 0 };
        let awake_ns = now_ns - self.began_ns - stands.slept_ns - asleep_ns;
        let drift_ns = i128::from(awake_ns) * i128::from(self.drift_ppm) / 1_000_000;
        let local_ns = u64::try_from(i128::from(awake_ns) + drift_ns).unwrap_or(0);
        self.hand.fetch_max(local_ns, Ordering::Relaxed);
    }

    fn poll_programs(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(job)) = self.jobs.poll_recv(context) {
            let run = job::run(job, self.limits.clone(), self.process.clone(), self.world.clone());
            self.programs.push(Box::pin(run));
        }
        while let Poll::Ready(Some(())) = self.programs.poll_next_unpin(context) {}
    }
}

impl Future for Body {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let body = &mut *self;
        let now_ns = body.world.now_ns();
        let stands = *body.stands.lock().unwrap_or_else(PoisonError::into_inner);
        if stands.is_paused(now_ns) {
            body.wake.as_mut().reset(body.world.at(stands.until_ns));
            let _ = body.wake.as_mut().poll(context);
            return Poll::Pending;
        }
        body.set_clock(now_ns, &stands);
        // Threads run in any order: sometimes programs run before the drawing task has read the time.
        let programs_first = (now_ns / MILLI).is_multiple_of(2);
        if programs_first {
            body.poll_programs(context);
        }
        for part in [&mut body.heart, &mut body.trust, &mut body.service] {
            let _ = part.as_mut().poll(context);
        }
        body.poll_programs(context);
        Poll::Pending
    }
}

/// A member's heartbeat, as far as it affects limits.
async fn heart(line: Arc<Line>, limits: Limits, process: Process, world: World) {
    let (heartbeat_ms, ttl_ms) = {
        let inner = world.lock();
        (inner.plan.heartbeat_ms, inner.plan.ttl_ms)
    };
    let deadline = Duration::from_millis(ttl_ms / 3);
    let (mut is_member, mut joins) = (false, 0_u64);
    loop {
        let began_ns = world.now_ns();
        if !is_member {
            let node = if joins > 0 { world.lock().new_id() } else { process.id() };
            joins += 1;
            let join = Request::Join { node, name: "node".into(), heartbeat_ms, ttl_ms, meta: "{}".to_owned() };
            if let Ok(Ok(Reply::Joined(_))) = timeout(deadline, line.call(join)).await {
                is_member = true;
                // Until the limiter knows the new id, it gives slots under the old one.
                process.set_id(node);
                process.inside.trusts_from_ns.store(began_ns, Ordering::Relaxed);
                process.forget_count();
                limits.on_trust_renewed();
                limits.forget_node_counts();
                limits.set_node(node);
                continue;
            }
        } else {
            let node = process.id();
            let beat = Request::Beat { node, read_only: false, state: State::default() };
            if let Ok(Ok(Reply::Beat(status))) = timeout(deadline, line.call(beat)).await {
                is_member = status.member;
                if is_member {
                    process.inside.trusts_from_ns.store(began_ns, Ordering::Relaxed);
                    let count = world.lock().members.len() as u64;
                    process.set_count(count);
                    limits.on_trust_renewed();
                    limits.set_node_counts(count, count);
                    limits.on_limits_version(status.head.limits);
                    let wait_ms = world.lock().random.between(heartbeat_ms * 9 / 10, heartbeat_ms * 11 / 10);
                    sleep(Duration::from_millis(wait_ms)).await;
                }
                continue;
            }
        }
        let wait_ms = world.lock().random.between(ttl_ms / 60, ttl_ms / 12);
        sleep(Duration::from_millis(wait_ms)).await;
    }
}

/// Informs the limits when the member's trust has ended.
async fn trust(limits: Limits, process: Process, world: World) {
    let trust_ns = world.lock().plan.ttl_ms * MILLI / 10 * 8;
    let mut told = None;
    loop {
        let from_ns = process.inside.trusts_from_ns.load(Ordering::Relaxed);
        if world.now_ns() >= from_ns + trust_ns && told != Some(from_ns) {
            limits.on_trust_lost();
            told = Some(from_ns);
        }
        let until_ns = if told == Some(from_ns) { world.now_ns() + SECOND / 20 } else { from_ns + trust_ns };
        sleep_until(world.at(until_ns)).await;
    }
}
