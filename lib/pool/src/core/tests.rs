//! Tests of the core alone, with a number as clock. `World` plays the shell: it stores what the core asked for, and
//! reports the results.

mod handoff;
mod health;
mod keys;
mod random;
mod reconcile;
mod ring;

use std::{
    cell::Cell,
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Wake, Waker},
};

use super::*;
use crate::{
    server::Server,
    settings::{Settings, apply_planted_bug},
};

/// A connection that is only a number and its condition.
#[derive(Clone, Debug, Default)]
struct Wire {
    number: u32,
    broken: Rc<Cell<bool>>,
    leaving: Rc<Cell<bool>>,
    wrong: Rc<Cell<bool>>,
}

impl PooledConnection for Wire {
    fn broken(&self) -> bool {
        self.broken.get()
    }

    fn takes_more(&self) -> bool {
        !self.leaving.get()
    }

    fn answered_wrongly(&self) -> bool {
        self.wrong.get()
    }
}

#[derive(Default)]
struct WakeCounter(AtomicU32);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    core: Core<Wire>,
    now: Moment,
    effects: Effects<Wire>,
    opens: Vec<PendingConnect>,
    wires: u32,
    streams: u32,
    woken: Arc<WakeCounter>,
    wakers: HashMap<Key, Arc<WakeCounter>>,
}

fn server(number: u8) -> Server {
    Server::at(([10, 0, 0, number], 9042).into()).named(format!("s{number}"))
}

fn quiet() -> Settings {
    Settings {
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

thread_local! {
    /// Worlds start with other settings; the test's settings follow as a change once all connections are open.
    static CHANGED_LIVE: Cell<bool> = const { Cell::new(false) };
}

impl World {
    fn new(settings: &Settings, servers: u8) -> World {
        let mut world = World::begun(settings, servers);
        world.change_live(settings);
        world
    }

    fn begun(settings: &Settings, servers: u8) -> World {
        let first = if CHANGED_LIVE.get() { &quiet() } else { settings };
        let mut world = World {
            core: Core::new(Rules::from(&apply_planted_bug(first.clone())), State::Active, 7),
            now: Moment::from_millis(1_000_000),
            effects: Effects::default(),
            opens: Vec::new(),
            wires: 0,
            streams: 1,
            woken: Arc::default(),
            wakers: HashMap::new(),
        };
        let all: Vec<Server> = (1..=servers).map(server).collect();
        world.discover(&all);
        world
    }

    /// A world in which every connection is open.
    fn full(settings: &Settings, servers: u8) -> World {
        World::shared(settings, servers, 1)
    }

    fn shared(settings: &Settings, servers: u8, streams: u32) -> World {
        let mut world = World::begun(settings, servers);
        world.streams = streams;
        world.fill();
        world.change_live(settings);
        world.fill();
        world
    }

    fn change_live(&mut self, settings: &Settings) {
        if CHANGED_LIVE.get() {
            self.set(settings);
        }
    }

    fn set(&mut self, settings: &Settings) {
        let rules = Rules::from(&apply_planted_bug(settings.clone()));
        self.core.set_rules(rules, self.now, &mut self.effects);
        self.after();
    }

    fn fill(&mut self) {
        loop {
            self.reconcile();
            if self.opens.is_empty() {
                break;
            }
            for open in std::mem::take(&mut self.opens) {
                self.open(&open);
            }
        }
    }

    fn discover(&mut self, servers: &[Server]) -> RingChange {
        let change = self.core.discovered(servers, self.now, &mut self.effects);
        self.after();
        change
    }

    fn reconcile(&mut self) -> Moment {
        let next = self.core.reconcile(self.now, &mut self.opens, &mut self.effects);
        self.after();
        next
    }

    fn open(&mut self, open: &PendingConnect) -> Option<Key> {
        self.wires += 1;
        let wire = Wire { number: self.wires, ..Wire::default() };
        let key = self.core.opened(open, wire, self.streams, Duration::from_millis(3), self.now, &mut self.effects);
        self.after();
        key
    }

    fn fail(&mut self, open: &PendingConnect, refused: bool) {
        let failed = ConnectFailure { refused, ..ConnectFailure::of(crate::error::Kind::Connect, "no") };
        self.core.failed(open, &failed, self.now, &mut self.effects);
        self.after();
    }

    fn request(&self) -> Request<'static> {
        let (due, site) = (self.now.after(Duration::from_secs(5)), Some(Location::caller()));
        Request { due, site, ..Request::default() }
    }

    fn ask(&mut self, request: &Request<'_>) -> Checkout<Wire> {
        let woken: Arc<WakeCounter> = Arc::default();
        let waker = Waker::from(woken.clone());
        let checkout = self.core.checkout(request, self.now, &waker, &mut self.effects);
        if let Checkout::Queued(waiter) = checkout {
            self.wakers.insert(waiter, woken);
        }
        self.after();
        checkout
    }

    fn lent(&mut self) -> LentConnection<Wire> {
        let request = self.request();
        self.lent_for(&request)
    }

    fn lent_for(&mut self, request: &Request<'_>) -> LentConnection<Wire> {
        match self.ask(request) {
            Checkout::Lent(lent) => lent,
            other => panic!("no connection: {other:?}"),
        }
    }

    fn queued(&mut self) -> Key {
        let request = self.request();
        self.queued_for(&request)
    }

    fn queued_for(&mut self, request: &Request<'_>) -> Key {
        match self.ask(request) {
            Checkout::Queued(waiter) => waiter,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn refused(&mut self, request: &Request<'_>) -> Refusal {
        match self.ask(request) {
            Checkout::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn pick_up(&mut self, waiter: Key) -> PickUp<Wire> {
        let waker = Waker::from(self.woken.clone());
        let found = self.core.pick_up(waiter, || self.now, &waker, &mut self.effects);
        self.after();
        found
    }

    fn picked(&mut self, waiter: Key) -> LentConnection<Wire> {
        match self.pick_up(waiter) {
            PickUp::Lent(lent) => lent,
            other => panic!("nothing to pick up: {other:?}"),
        }
    }

    fn back(&mut self, lent: &LentConnection<Wire>) {
        self.end(lent, Ending::Answered);
    }

    fn end(&mut self, lent: &LentConnection<Wire>, ending: Ending) {
        self.core.checkin(lent.connection, ending, 1000, self.now, &mut self.effects);
        if let Some(loan) = lent.loan {
            self.core.end_shared_loan(loan, self.now, &mut self.effects);
        }
        self.after();
    }

    fn cancel(&mut self, waiter: Key) {
        self.core.cancel(waiter, self.now, &mut self.effects);
        self.after();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.core.expire(self.now, &mut self.effects);
        self.after();
    }

    /// Wakes and closes at once what the shell would wake and close soon after, and checks the invariants.
    fn after(&mut self) {
        self.wake();
        self.core.audit();
        for (server, _) in std::mem::take(&mut self.effects.close) {
            self.core.closed(server, &mut self.effects);
        }
        for probe in std::mem::take(&mut self.effects.probe) {
            self.core.checkin(probe.connection, Ending::Unused, 0, self.now, &mut self.effects);
        }
        self.wake();
        self.core.audit();
    }

    fn wake(&mut self) {
        let (first, more) = self.effects.wake.take();
        first.into_iter().chain(more).for_each(Waker::wake);
    }

    fn key(&self, number: u8) -> Key {
        self.core.server_key(&server(number).id).expect("a server of the ring")
    }

    fn state(&self, number: u8) -> ServerState {
        self.core.servers.get(self.key(number)).expect("a server of the ring").state
    }

    fn was_woken(&self, waiter: Key) -> bool {
        self.wakers.get(&waiter).is_some_and(|woken| woken.0.load(Ordering::Relaxed) > 0)
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
