//! Checks the hand-off under every interleaving that loom finds. It compiles the shipped lock of the core with loom's
//! mutex.

mod sync {
    pub use loom::sync::{Mutex, MutexGuard};

    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("a panic never leaves the section")
    }
}
mod core {
    pub use crate::core::*;
}
#[expect(clippy::duplicate_mod, reason = "the same file with another lock is the point")]
#[path = "core_lock.rs"]
mod core_lock;

use std::{
    task::{Wake, Waker},
    time::Duration,
};

use honeyflow_runtime::Moment;
use loom::{sync::Notify, thread};

use crate::{
    core::{
        Checkout, Core, DrainTarget, Effects, Ending, Key, LentConnection, PendingConnect, PickUp, PooledConnection,
        Request, Rules, State,
    },
    server::Server,
    settings::Settings,
};

#[derive(Clone, Debug)]
struct Plug;

impl PooledConnection for Plug {
    fn broken(&self) -> bool {
        false
    }
}

struct Signal(Notify);

impl Wake for Signal {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// The lock of the core, without the effects that only a shell can carry out.
struct TestCore<K>(core_lock::CoreLock<K>);

impl TestCore<Plug> {
    fn enter<R>(&self, step: impl FnOnce(&mut Core<Plug>, &mut Effects<Plug>) -> R) -> Option<R> {
        let mut result = None;
        self.0.enter(&mut result, &mut None, step);
        result
    }
}

type SharedCore = loom::sync::Arc<TestCore<Plug>>;

const NOW: Moment = Moment(1_000_000);
const SOON: Moment = Moment(2_000_000);
const LATE: Moment = Moment(3_000_000);

/// A core with one server and `connections` idle connections.
fn pool(connections: u32) -> SharedCore {
    let settings = Settings {
        connections_per_server: Some(connections),
        start_jitter: Duration::ZERO,
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let shared = TestCore(core_lock::CoreLock::new(Core::new(Rules::from(&settings), State::Active, 1)));
    shared.enter(|core, effects| {
        core.discovered(&[Server::at(([127, 0, 0, 1], 1).into())], NOW, effects);
        let mut opens: Vec<PendingConnect> = Vec::new();
        core.reconcile(NOW, &mut opens, effects);
        for open in &opens {
            core.opened(open, Plug, 1, Duration::ZERO, NOW, effects);
        }
    });
    loom::sync::Arc::new(shared)
}

fn begin(shared: &TestCore<Plug>, due: Moment, waker: &Waker) -> Checkout<Plug> {
    let request = Request { due, ..Request::default() };
    shared.enter(|core, effects| core.checkout(&request, NOW, waker, effects)).expect("no panic")
}

/// Waits until there is a connection or a refusal.
fn get(shared: &TestCore<Plug>, due: Moment) -> Option<LentConnection<Plug>> {
    let signal = std::sync::Arc::new(Signal(Notify::new()));
    let waker = Waker::from(signal.clone());
    let waiter = match begin(shared, due, &waker) {
        Checkout::Lent(lent) => return Some(lent),
        Checkout::Refused(_) => return None,
        Checkout::Queued(waiter) => waiter,
    };
    loop {
        signal.0.wait();
        match shared.enter(|core, effects| core.pick_up(waiter, || NOW, &waker, effects)).expect("no panic") {
            PickUp::Lent(lent) => return Some(lent),
            PickUp::Refused(_) => return None,
            PickUp::Waiting => {}
        }
    }
}

fn back(shared: &TestCore<Plug>, connection: Key) {
    shared.enter(|core, effects| core.checkin(connection, Ending::Answered, 0, NOW, effects));
}

fn get_and_return(shared: &TestCore<Plug>) {
    let lent = get(shared, LATE).expect("the pool stays open");
    back(shared, lent.connection);
}

/// Asks for a connection and leaves at once, with or without one.
fn get_and_leave(shared: &TestCore<Plug>) {
    match begin(shared, LATE, Waker::noop()) {
        Checkout::Lent(lent) => back(shared, lent.connection),
        Checkout::Queued(waiter) => {
            shared.enter(|core, effects| core.cancel(waiter, NOW, effects));
        }
        Checkout::Refused(refusal) => panic!("{refusal:?}"),
    }
}

/// The numbers of idle connections, loans and waiters.
fn crowd(shared: &TestCore<Plug>) -> (usize, usize, usize) {
    shared
        .enter(|core, _| {
            core.audit();
            core.usage()
        })
        .expect("the audit passes")
}

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

fn apart(shared: &SharedCore, run: impl FnOnce(&TestCore<Plug>) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

#[test]
fn pl_176_two_callers_and_one_that_leaves_lose_no_connection() {
    explore(|| {
        let shared = pool(1);
        let others = [apart(&shared, get_and_return), apart(&shared, get_and_leave)];
        get_and_return(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(crowd(&shared), (1, 0, 0));
    });
}

/// PL-112: three callers take and return a loan, on two connections.
#[test]
fn pl_176_three_callers_share_two_connections_and_none_hangs() {
    explore(|| {
        let shared = pool(2);
        let others = [apart(&shared, get_and_return), apart(&shared, get_and_return)];
        get_and_return(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(crowd(&shared), (2, 0, 0));
    });
}

#[test]
fn pl_176_a_return_races_with_the_waiters_deadline() {
    explore(|| {
        let shared = pool(1);
        let held = get(&shared, LATE).expect("idle").connection;
        let waiting = apart(&shared, |shared| {
            if let Some(lent) = get(shared, SOON) {
                back(shared, lent.connection);
            }
        });
        let expiring = apart(&shared, |shared| {
            shared.enter(|core, effects| core.expire(SOON, effects));
        });
        back(&shared, held);
        expiring.join().unwrap();
        // A request that began to wait after the expiry fails at the next one.
        shared.enter(|core, effects| core.expire(SOON, effects));
        waiting.join().unwrap();
        // If the loan reached its deadline, its connection was closed; otherwise the connection is idle again.
        let cut = shared.enter(|core, _| core.counters().use_timeouts).unwrap() as usize;
        assert_eq!(crowd(&shared), (1 - cut, 0, 0));
    });
}

#[test]
fn pl_176_closing_races_with_a_return_and_a_waiter() {
    explore(|| {
        let shared = pool(1);
        let held = get(&shared, LATE).expect("idle").connection;
        let waiting = apart(&shared, |shared| {
            if let Some(lent) = get(shared, LATE) {
                back(shared, lent.connection);
            }
        });
        let closing = apart(&shared, |shared| {
            shared.enter(|core, effects| {
                core.begin_drain(DrainTarget::Closed, false, effects);
            });
            shared.enter(|core, effects| core.finish_drain(NOW, effects));
        });
        back(&shared, held);
        closing.join().unwrap();
        waiting.join().unwrap();
        let (idle, lent, waiting) = crowd(&shared);
        assert_eq!((idle, lent, waiting), (0, 0, 0), "closed: nothing is left");
    });
}

/// PL-73: a step that panics breaks the pool at once, and all waiters fail.
#[test]
fn pl_73_a_panic_inside_the_section_breaks_the_pool_and_wakes_all_waiters() {
    explore(|| {
        let shared = pool(1);
        let _held = get(&shared, LATE).expect("idle");
        let waiting = apart(&shared, |shared| assert!(get(shared, LATE).is_none()));
        let result = shared.enter(|_, _| -> u32 { std::panic::resume_unwind(Box::new("planted")) });
        assert_eq!(result, None);
        waiting.join().unwrap();
        let (state, why) = shared.enter(|core, _| (core.state(), core.broken_by())).unwrap();
        assert_eq!(state, State::Broken);
        assert!(why.unwrap().contains("planted"));
    });
}
