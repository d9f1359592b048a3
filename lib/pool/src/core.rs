//! Everything that the pool knows and decides, without clock, tasks or I/O: the ring, the connections, the waiters, and
//! what follows from each event. No task owns it: the shell holds it under one lock, and carries out the effects after
//! it has released the lock.
//!
//! Invariants, checked by [`Core::audit`] after every step of the property tests:
//! - no connection of an eligible server is idle while a waiter may take it;
//! - lent + idle + closing = open, per server and in total;
//! - every counter equals a recount.

mod apply_rules;
mod audit;
mod control;
mod counters;
mod expire;
mod handoff;
mod health;
mod hedge;
pub mod histogram;
mod pace;
mod queue;
mod reconcile;
mod ring;
mod rules;
mod slot_map;
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

pub use control::{DrainReport, DrainTarget, State};
pub use counters::{Counters, Record, Times};
pub use handoff::{Checkout, Ending, Judgement, LentConnection, PickUp, Refusal, Request};
pub use hedge::{Flights, OvertakenRequest};
pub use queue::Class;
pub use reconcile::{ConnectFailure, PendingConnect};
pub use ring::{RingChange, ServerState};
pub use rules::Rules;
pub use slot_map::Key;
pub use status::{ServerStatus, Status};

use control::DrainProgress;
use expire::SharedLoan;
use pace::Pace;
use queue::Queue;
use reconcile::ReplaceReason;
use ring::ServerRow;
use slot_map::SlotMap;
use waiting::Waiter;

use crate::server::ServerId;

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use crate::renamed::{Drained, Failed, Lent, Next, Open, Overtaken, Tried};

/// The old name of [`PooledConnection`].
#[doc(hidden)]
pub use self::PooledConnection as Carried;

/// A connection as the core sees it: the core lends clones of it and asks for its condition.
pub trait PooledConnection: Clone {
    fn broken(&self) -> bool;

    /// Whether the server still accepts new requests on the connection.
    fn takes_more(&self) -> bool {
        true
    }

    fn answered_wrongly(&self) -> bool {
        false
    }
}

/// What the shell must do after it has released the lock.
#[derive(Debug)]
pub struct Effects<K> {
    pub wake: Wakes,
    /// Connections to close. The shell reports each back with [`Core::closed`].
    pub close: Vec<(Key, K)>,
    /// Connections to probe. The shell reports each back with [`Core::probed`] and a checkin.
    pub probe: Vec<LentConnection<K>>,
    /// The call sites of overdue loans.
    pub overdue: Vec<&'static Location<'static>>,
    pub changes: Vec<Change>,
    /// The expiry task must look again: something is due earlier than it expects.
    pub rearm: bool,
    /// The reconciler must look again.
    pub reconcile: bool,
}

/// The waiters to wake: nearly always none or one.
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

    /// Takes all wakers: the first, and the others if there are any.
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
    /// Whether there is nothing to do except perhaps to wake waiters.
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

/// A change of the pool or of a server, for operators.
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
    /// A server has refused our login for longer than a starting server does: an operator must check the password.
    LoginRefused {
        id: ServerId,
        why: Arc<str>,
    },
}

/// The fields that every loan uses come first and together, so that two threads that take turns exchange few cache
/// lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Core<K> {
    state: State,
    /// Whether the connection opened last is shared; `None` before the first.
    shared: Option<bool>,
    /// Retry budget in hundredths of a try.
    retry_credit: u32,
    speculate_credit: u32,
    waiting_in_all: usize,
    /// The number of loans; orphans are not counted.
    loans: usize,
    turn: u64,
    /// When the expiry task looks next.
    armed: Moment,
    tick_at: Moment,
    /// The latest time that any input carried.
    seen: Moment,
    random: u64,
    counters: Counters,
    servers: SlotMap<ServerRow>,
    connections: SlotMap<ConnectionRow<K>>,
    /// The current loans of shared connections.
    out: SlotMap<SharedLoan>,
    /// The servers that a request without a target may use.
    eligible: Vec<Key>,
    rules: Rules,
    draining: Option<DrainProgress>,
    waiters: SlotMap<Waiter>,
    /// The waiters that accept any eligible server.
    waiting: Queue,
    sequence: u64,
    last_arrival: Moment,
    pace: Pace,
    broken_by: Option<Arc<str>>,
    by_id: HashMap<ServerId, Key>,
    /// The ring, in the order in which servers joined.
    ring: Vec<Key>,
    closing: usize,
    opening: u32,
    cursor: usize,
    canary: u32,
    ticked_checkouts: u64,
    /// Requests whose hedge was quicker and that have no answer yet.
    overtaken: Vec<OvertakenRequest>,
}

/// A connection. The fields that every loan uses come together, in few cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
struct ConnectionRow<K> {
    /// Streams in use: loans, loans granted to a waiter, and orphans.
    in_flight: u32,
    /// How many requests it gets at once.
    streams: u32,
    orphans: u32,
    /// It carries one request at a time and is closed if that request is cut off. This never changes for a connection.
    exclusive: bool,
    /// It gets no new requests and closes when the last one has ended.
    retiring: bool,
    in_ready: bool,
    warned: bool,
    /// Whether the server has ever answered on this connection.
    answered: bool,
    replace_reason: Option<ReplaceReason>,
    server: Key,
    carried: K,
    age_due: Moment,
    /// The deadline of the loan, for an exclusive connection.
    due: Moment,
    lent_at: Moment,
    idle_since: Moment,
    record: Record,
    site: Option<&'static Location<'static>>,
    replacing: bool,
    /// When each orphan lost its caller, oldest first.
    orphaned: VecDeque<Moment>,
    opened_at: Moment,
    idle_max: Duration,
    /// How many requests it could carry.
    offered: u32,
    /// How far its maximum age and idle time are lowered, in thousandths of a tenth, so that connections do not all
    /// expire together.
    lowered: [u16; 2],
}

impl<K> ConnectionRow<K> {
    fn takes_more(&self) -> bool {
        !self.retiring && self.in_flight < self.streams
    }
}

impl<K: PooledConnection> ConnectionRow<K> {
    /// Whether its server has said goodbye. The watcher may not have reported that yet.
    #[inline]
    fn says_goodbye(&self) -> bool {
        !self.carried.takes_more()
    }
}

/// The servers that a request has tried; three fit without an allocation.
pub type TriedServers = SmallVec<[Key; 3]>;

const TICK: Duration = Duration::from_millis(100);

impl<K: PooledConnection> Core<K> {
    /// `seed` is the only source of randomness: the same seed and inputs give the same effects.
    pub fn new(rules: Rules, state: State, seed: u64) -> Core<K> {
        Core {
            rules,
            state,
            draining: None,
            broken_by: None,
            servers: SlotMap::default(),
            by_id: HashMap::new(),
            ring: Vec::new(),
            eligible: Vec::new(),
            connections: SlotMap::default(),
            out: SlotMap::default(),
            waiters: SlotMap::default(),
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

    /// Returns true with a probability of `per_billion` in 10⁹.
    #[inline]
    fn draw_chance(&mut self, per_billion: u32) -> bool {
        // A multiplication and a shift, since a division is slower.
        ((u128::from(self.draw()) * 1_000_000_000) >> 64) < u128::from(per_billion)
    }

    /// Draws a time evenly from zero to `most`.
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

    /// Returns the counters and resets them to zero.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
