//! The hand-off under every interleaving that loom finds. The gate is the shipped file, compiled here with loom's lock.

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
#[path = "gate.rs"]
mod gate;

use std::{
    task::{Wake, Waker},
    time::Duration,
};

use honeyflow_runtime::Moment;
use loom::{sync::Notify, thread};

use self::gate::Gate as Locked;
use crate::{
    core::{Carried, Checkout, Core, Effects, Ending, Key, Lent, Next, Open, PickUp, Request, Rules, State},
    server::Server,
    settings::Settings,
};

#[derive(Clone, Debug)]
struct Plug;

impl Carried for Plug {
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

/// The gate, without the effects that only a shell can carry out.
struct Gate<K>(Locked<K>);

impl Gate<Plug> {
    fn enter<R>(&self, step: impl FnOnce(&mut Core<Plug>, &mut Effects<Plug>) -> R) -> Option<R> {
        let mut result = None;
        self.0.enter(&mut result, &mut None, step);
        result
    }
}

type Shared = loom::sync::Arc<Gate<Plug>>;

const NOW: Moment = Moment(1_000_000);
const SOON: Moment = Moment(2_000_000);
const LATE: Moment = Moment(3_000_000);

/// One server with so many connections, all idle.
fn pool(connections: u32) -> Shared {
    let settings = Settings {
        connections_per_server: Some(connections),
        start_jitter: Duration::ZERO,
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let gate = Gate(Locked::new(Core::new(Rules::from(&settings), State::Active, 1)));
    gate.enter(|core, effects| {
        core.discovered(&[Server::at(([127, 0, 0, 1], 1).into())], NOW, effects);
        let mut opens: Vec<Open> = Vec::new();
        core.reconcile(NOW, &mut opens, effects);
        for open in &opens {
            core.opened(open, Plug, 1, Duration::ZERO, NOW, effects);
        }
    });
    loom::sync::Arc::new(gate)
}

fn begin(gate: &Gate<Plug>, due: Moment, waker: &Waker) -> Checkout<Plug> {
    let request = Request { due, ..Request::default() };
    gate.enter(|core, effects| core.checkout(&request, NOW, waker, effects)).expect("no panic")
}

/// Waits until there is a connection or a refusal.
fn get(gate: &Gate<Plug>, due: Moment) -> Option<Lent<Plug>> {
    let signal = std::sync::Arc::new(Signal(Notify::new()));
    let waker = Waker::from(signal.clone());
    let waiter = match begin(gate, due, &waker) {
        Checkout::Lent(lent) => return Some(lent),
        Checkout::Refused(_) => return None,
        Checkout::Queued(waiter) => waiter,
    };
    loop {
        signal.0.wait();
        match gate.enter(|core, effects| core.pick_up(waiter, || NOW, &waker, effects)).expect("no panic") {
            PickUp::Lent(lent) => return Some(lent),
            PickUp::Refused(_) => return None,
            PickUp::Waiting => {}
        }
    }
}

fn back(gate: &Gate<Plug>, connection: Key) {
    gate.enter(|core, effects| core.checkin(connection, Ending::Answered, 0, NOW, effects));
}

fn get_and_return(gate: &Gate<Plug>) {
    let lent = get(gate, LATE).expect("nobody closes");
    back(gate, lent.connection);
}

/// Comes and goes, whatever it has been given.
fn get_and_leave(gate: &Gate<Plug>) {
    match begin(gate, LATE, Waker::noop()) {
        Checkout::Lent(lent) => back(gate, lent.connection),
        Checkout::Queued(waiter) => {
            gate.enter(|core, effects| core.cancel(waiter, NOW, effects));
        }
        Checkout::Refused(refusal) => panic!("{refusal:?}"),
    }
}

/// Idle, lent, waiting.
fn crowd(gate: &Gate<Plug>) -> (usize, usize, usize) {
    gate.enter(|core, _| {
        core.audit();
        core.crowd()
    })
    .expect("the audit passes")
}

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

fn apart(gate: &Shared, run: impl FnOnce(&Gate<Plug>) + 'static) -> thread::JoinHandle<()> {
    let gate = gate.clone();
    thread::spawn(move || run(&gate))
}

#[test]
fn pl_176_two_users_and_one_who_leaves_lose_nothing() {
    explore(|| {
        let gate = pool(1);
        let others = [apart(&gate, get_and_return), apart(&gate, get_and_leave)];
        get_and_return(&gate);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(crowd(&gate), (1, 0, 0));
    });
}

/// PL-112: two operations of each of three, on two connections.
#[test]
fn pl_176_nobody_hangs_when_three_use_two() {
    explore(|| {
        let gate = pool(2);
        let others = [apart(&gate, get_and_return), apart(&gate, get_and_return)];
        get_and_return(&gate);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(crowd(&gate), (2, 0, 0));
    });
}

#[test]
fn pl_176_a_return_races_with_the_waiters_deadline() {
    explore(|| {
        let gate = pool(1);
        let held = get(&gate, LATE).expect("idle").connection;
        let waiting = apart(&gate, |gate| {
            if let Some(lent) = get(gate, SOON) {
                back(gate, lent.connection);
            }
        });
        let expiring = apart(&gate, |gate| {
            gate.enter(|core, effects| core.expire(SOON, effects));
        });
        back(&gate, held);
        expiring.join().unwrap();
        // Whoever came to wait after the clock had struck is told at the next stroke.
        gate.enter(|core, effects| core.expire(SOON, effects));
        waiting.join().unwrap();
        // A loan that had come to its deadline lost its connection; otherwise it is idle again.
        let cut = gate.enter(|core, _| core.counters().use_timeouts).unwrap() as usize;
        assert_eq!(crowd(&gate), (1 - cut, 0, 0));
    });
}

#[test]
fn pl_176_closing_races_with_a_return_and_a_waiter() {
    explore(|| {
        let gate = pool(1);
        let held = get(&gate, LATE).expect("idle").connection;
        let waiting = apart(&gate, |gate| {
            if let Some(lent) = get(gate, LATE) {
                back(gate, lent.connection);
            }
        });
        let closing = apart(&gate, |gate| {
            gate.enter(|core, effects| {
                core.begin_drain(Next::Closed, false, effects);
            });
            gate.enter(|core, effects| core.finish_drain(NOW, effects));
        });
        back(&gate, held);
        closing.join().unwrap();
        waiting.join().unwrap();
        let (idle, lent, waiting) = crowd(&gate);
        assert_eq!((idle, lent, waiting), (0, 0, 0), "closed: nothing is left");
    });
}

/// PL-73: a step that panics breaks the pool at once; whoever waits is told.
#[test]
fn pl_73_a_panic_inside_the_section_breaks_the_pool_and_wakes_everybody() {
    explore(|| {
        let gate = pool(1);
        let _held = get(&gate, LATE).expect("idle");
        let waiting = apart(&gate, |gate| assert!(get(gate, LATE).is_none()));
        let result = gate.enter(|_, _| -> u32 { std::panic::resume_unwind(Box::new("planted")) });
        assert_eq!(result, None);
        waiting.join().unwrap();
        let (state, why) = gate.enter(|core, _| (core.state(), core.broken_by())).unwrap();
        assert_eq!(state, State::Broken);
        assert!(why.unwrap().contains("planted"));
    });
}
