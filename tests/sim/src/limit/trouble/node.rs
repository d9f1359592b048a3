//! A process: the limiter as it ships, a heartbeat that tells it what a member's does, and the programs that ask. All of it
//! runs in one task, which stands still while the process is paused, and by a clock of its own.

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

/// What is known of a process from outside.
#[derive(Clone)]
pub struct Process {
    pub number: u64,
    inside: Arc<Inside>,
}

struct Inside {
    id: Mutex<NodeId>,
    /// By how many it should divide; and the most it has ever heard of.
    divisor: AtomicU64,
    highest: AtomicU64,
    /// When its store last answered, by the start of the question.
    trusts_from_ns: AtomicU64,
}

impl Process {
    fn new(number: u64, id: NodeId, now_ns: u64) -> Process {
        let inside = Inside {
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

    fn counted(&self, count: u64) {
        self.inside.divisor.store(count.max(1), Ordering::Relaxed);
        self.inside.highest.fetch_max(count, Ordering::Relaxed);
    }

    fn is(&self, id: NodeId) {
        *self.inside.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn knows_no_count(&self) {
        let highest = self.inside.highest.load(Ordering::Relaxed);
        self.inside.divisor.store(EXPECTED_NODES.max(highest), Ordering::Relaxed);
    }
}

/// From the machine's side.
pub struct Node {
    pub process: Process,
    jobs: UnboundedSender<Job>,
    task: JoinHandle<()>,
    stands: Arc<Mutex<Stands>>,
}

/// When nothing runs, and whether its clock does.
#[derive(Clone, Copy, Default)]
struct Stands {
    from_ns: u64,
    until_ns: u64,
    /// What its clock has missed, and misses.
    slept_ns: u64,
    sleeps: bool,
}

impl Stands {
    /// Whatever happens at the moment itself still happens.
    fn still(&self, now_ns: u64) -> bool {
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
        let (clock, hand) = LocalClock::by_hand();
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
        let stands = Arc::new(Mutex::new(Stands::default()));
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

    pub fn stand_still(&self, now_ns: u64, ms: u64, sleeps: bool) -> bool {
        let mut stands = self.stands.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns < stands.until_ns {
            return false;
        }
        let slept_ns = stands.slept_ns + if stands.sleeps { stands.until_ns - stands.from_ns } else { 0 };
        *stands = Stands { from_ns: now_ns, until_ns: now_ns + ms * MILLI, slept_ns, sleeps };
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
    stands: Arc<Mutex<Stands>>,
    wake: Pin<Box<Sleep>>,
}

impl Body {
    fn set_clock(&self, now_ns: u64, stands: &Stands) {
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
        if stands.still(now_ns) {
            body.wake.as_mut().reset(body.world.at(stands.until_ns));
            let _ = body.wake.as_mut().poll(context);
            return Poll::Pending;
        }
        body.set_clock(now_ns, &stands);
        // Threads take turns as they like: at times programs run before the drawing task knows what time it is.
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

/// What a member's heartbeat does, as far as limits hear of it.
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
                // Until it has heard of it, whatever it lends it lends under the name that it had.
                process.is(node);
                process.inside.trusts_from_ns.store(began_ns, Ordering::Relaxed);
                process.knows_no_count();
                limits.trusted();
                limits.rejoined();
                limits.named(node);
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
                    process.counted(count);
                    limits.trusted();
                    limits.counted(count, count);
                    limits.noticed(status.head.limits);
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

/// Past what a member trusts in, its limits are told.
async fn trust(limits: Limits, process: Process, world: World) {
    let trust_ns = world.lock().plan.ttl_ms * MILLI / 10 * 8;
    let mut told = None;
    loop {
        let from_ns = process.inside.trusts_from_ns.load(Ordering::Relaxed);
        if world.now_ns() >= from_ns + trust_ns && told != Some(from_ns) {
            limits.cut_off();
            told = Some(from_ns);
        }
        let until_ns = if told == Some(from_ns) { world.now_ns() + SECOND / 20 } else { from_ns + trust_ns };
        sleep_until(world.at(until_ns)).await;
    }
}
