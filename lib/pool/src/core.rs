//! Everything the pool knows and decides, without clock, tasks or I/O: the ring, the connections, who waits, and what
//! follows from each event. It belongs to no task; the shell holds it under one lock and carries out the effects
//! afterwards.
//!
//! Invariants, checked by [`Core::audit`] after every step of the property tests:
//! - no connection of an eligible server is idle beside a waiter that may take it;
//! - lent + idle + closing = open, per server and in all;
//! - every count is what a recount gives.

mod audit;
mod control;
mod count;
mod expire;
mod fit;
mod handoff;
mod health;
pub mod histogram;
mod open;
mod pace;
mod queue;
mod race;
mod ring;
mod rules;
mod slots;
mod status;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::{HashMap, VecDeque},
    panic::Location,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use honeyflow_runtime::Moment;
use smallvec::SmallVec;

pub use control::{Drained, Next, State};
pub use count::{Counters, Record, Times};
pub use handoff::{Checkout, Ending, Judgement, Lent, PickUp, Refusal, Request};
pub use open::{Failed, Open};
pub use queue::Class;
pub use race::{Flights, Overtaken};
pub use ring::{RingChange, ServerState};
pub use rules::Rules;
pub use slots::Key;
pub use status::{ServerStatus, Status};

use control::Draining;
use expire::Out;
use open::Worn;
use pace::Pace;
use queue::Queue;
use ring::ServerRow;
use slots::Slots;
use waiting::Waiter;

use crate::server::ServerId;

/// What the core hands out and asks how it is.
pub trait Carried: Clone {
    fn broken(&self) -> bool;

    /// Whether its server has not said goodbye.
    fn takes_more(&self) -> bool {
        true
    }

    fn answered_wrongly(&self) -> bool {
        false
    }
}

/// What is to be done after the lock has been released.
#[derive(Debug)]
pub struct Effects<K> {
    pub wake: Wakes,
    /// Each is reported back with [`Core::closed`].
    pub close: Vec<(Key, K)>,
    /// Each is reported back with [`Core::probed`] and a checkin.
    pub probe: Vec<Lent<K>>,
    /// Loans out for too long, by where they were taken.
    pub overdue: Vec<&'static Location<'static>>,
    pub changes: Vec<Change>,
    /// The expiry task must look again: something is due earlier than it thinks.
    pub rearm: bool,
    /// The reconciler must look again.
    pub reconcile: bool,
}

/// Who is to be woken: nobody or one, nearly always.
#[derive(Debug, Default)]
pub struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakes {
    #[inline]
    pub fn add(&mut self, waker: Option<Waker>) {
        if self.first.is_none() {
            self.first = waker;
        } else {
            self.more.extend(waker);
        }
    }

    /// The first, and the others if there are any.
    #[inline]
    pub fn take(&mut self) -> (Option<Waker>, Vec<Waker>) {
        (self.first.take(), if self.more.is_empty() { Vec::new() } else { std::mem::take(&mut self.more) })
    }
}

impl<K> Default for Effects<K> {
    fn default() -> Effects<K> {
        Effects {
            wake: Wakes::default(),
            close: Vec::new(),
            probe: Vec::new(),
            overdue: Vec::new(),
            changes: Vec::new(),
            rearm: false,
            reconcile: false,
        }
    }
}

impl<K> Effects<K> {
    /// Whether nothing is left to do, but perhaps somebody to wake.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.rearm
            && !self.reconcile
            && self.close.is_empty()
            && self.probe.is_empty()
            && self.changes.is_empty()
            && self.overdue.is_empty()
    }
}

/// Something that people may want to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    State {
        before: State,
        now: State,
    },
    Joined(ServerId),
    Left(ServerId),
    Server {
        id: ServerId,
        before: ServerState,
        now: ServerState,
    },
    /// It refuses our login for longer than one does that is only starting: somebody has to look at the password.
    LoginRefused {
        id: ServerId,
        why: Arc<str>,
    },
}

/// What every loan touches stands first and together: two threads in turn then exchange few lines of memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Core<K> {
    state: State,
    /// Whether the last opened connection could be shared.
    shared: Option<bool>,
    /// In hundredths of a try.
    retry_credit: u32,
    speculate_credit: u32,
    waiting_in_all: usize,
    /// Loans, orphans not counted.
    loans: usize,
    turn: u64,
    /// When the expiry task will look next.
    armed: Moment,
    tick_at: Moment,
    /// The latest time that anybody came with.
    seen: Moment,
    random: u64,
    counters: Counters,
    servers: Slots<ServerRow>,
    connections: Slots<Row<K>>,
    /// Loans of shared connections, for as long as they are out.
    out: Slots<Out>,
    /// Servers that an untargeted request may choose from.
    eligible: Vec<Key>,
    rules: Rules,
    draining: Option<Draining>,
    waiters: Slots<Waiter>,
    /// Those who take any eligible server.
    waiting: Queue,
    sequence: u64,
    last_arrival: Moment,
    pace: Pace,
    broken_by: Option<Arc<str>>,
    by_id: HashMap<ServerId, Key>,
    /// The ring, in the order servers came.
    ring: Vec<Key>,
    closing: usize,
    opening: u32,
    cursor: usize,
    canary: u32,
    ticked_checkouts: u64,
    /// Those that lost a race and have not been answered yet.
    overtaken: Vec<Overtaken>,
}

/// A connection. What every loan touches stands together, in few lines of the processor's memory.
#[derive(Debug)]
#[repr(C, align(64))]
struct Row<K> {
    /// Streams in use: loans, granted ones and orphans.
    in_flight: u32,
    /// How many it is given at once.
    streams: u32,
    orphans: u32,
    /// One request at a time, and closed if that does not come to its end: for as long as it lives.
    exclusive: bool,
    /// Takes no more requests and closes when empty.
    retiring: bool,
    in_ready: bool,
    warned: bool,
    /// Whether anything ever was, on this connection.
    answered: bool,
    worn: Option<Worn>,
    server: Key,
    carried: K,
    age_due: Moment,
    /// Of an exclusive connection on loan.
    due: Moment,
    lent_at: Moment,
    idle_since: Moment,
    record: Record,
    site: Option<&'static Location<'static>>,
    replacing: bool,
    /// Since when each of the orphans is one, in that order.
    orphaned: VecDeque<Moment>,
    opened_at: Moment,
    idle_max: Duration,
    /// How many it could carry.
    offered: u32,
    /// By how much of a tenth its times are lowered, in thousandths: age and idle time.
    lowered: [u16; 2],
}

impl<K> Row<K> {
    fn takes_more(&self) -> bool {
        !self.retiring && self.in_flight < self.streams
    }
}

impl<K: Carried> Row<K> {
    /// Its server has said goodbye, whether or not we have been told.
    #[inline]
    fn says_goodbye(&self) -> bool {
        !self.carried.takes_more()
    }
}

/// Enough for several tries of one request without allocation of their own.
pub type Tried = SmallVec<[Key; 3]>;

const TICK: Duration = Duration::from_millis(100);

impl<K: Carried> Core<K> {
    /// `seed` is all the chance there is: the same seed and inputs give the same effects.
    pub fn new(rules: Rules, state: State, seed: u64) -> Core<K> {
        Core {
            rules,
            state,
            draining: None,
            broken_by: None,
            servers: Slots::default(),
            by_id: HashMap::new(),
            ring: Vec::new(),
            eligible: Vec::new(),
            connections: Slots::default(),
            out: Slots::default(),
            waiters: Slots::default(),
            waiting: Queue::default(),
            waiting_in_all: 0,
            loans: 0,
            closing: 0,
            opening: 0,
            shared: None,
            sequence: 0,
            last_arrival: Moment::default(),
            turn: 0,
            cursor: 0,
            canary: 0,
            pace: Pace::default(),
            armed: Moment::FAR,
            tick_at: Moment::FAR,
            ticked_checkouts: 0,
            overtaken: Vec::new(),
            retry_credit: Core::<K>::RETRY_CREDIT_AT_FIRST,
            speculate_credit: Core::<K>::SPECULATE_CREDIT_MAX,
            counters: Counters::default(),
            random: seed,
            seen: Moment::default(),
        }
    }

    /// splitmix64
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// So many times in 10⁹.
    #[inline]
    fn falls(&mut self, per_billion: u32) -> bool {
        // Scaled down by a product, since a division takes its time.
        ((u128::from(self.draw()) * 1_000_000_000) >> 64) < u128::from(per_billion)
    }

    /// Evenly from zero to `most`.
    fn draw_time(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        Duration::from_micros(self.draw() % micros.max(1))
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// The values until now; counting begins anew.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
