//! The ring: the known servers, changed by difference. A server that fails stays; only discovery or the settings make
//! one leave, and then what is on loan there may finish.

use std::collections::VecDeque;

use honeyflow_runtime::Moment;

use super::{
    Carried, Change, Core, Effects, Key, health::Health, histogram::Histogram, open::Connecting, pace::Pace,
    queue::Queue,
};
use crate::{
    error::Kind,
    outage::{Down, Trouble},
    server::{Server, ServerId},
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerState {
    Up,
    /// Slow or silent: gets hardly anything until it has proved itself.
    Suspect,
    /// Without an open connection.
    Down,
    /// No longer part of the cluster: what is on loan may finish.
    Leaving,
}

/// What every loan touches stands first and together.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ServerRow {
    /// Connections with a free stream, in the order they became so.
    pub ready: VecDeque<Key>,
    pub in_flight: u32,
    pub orphans: u32,
    pub served: u64,
    pub last_turn: u64,
    pub eligible: bool,
    pub state: ServerState,
    /// Known from the settings alone.
    pub provisional: bool,
    pub tier: u8,
    pub health: Health,
    pub uses: Histogram,
    pub waits: Histogram,
    pub pace: Pace,
    /// Those who want this server and no other.
    pub waiting: Queue,
    pub server: Server,
    /// Connections that take requests.
    pub serving: u32,
    pub retiring: u32,
    pub closing: u32,
    pub opening: u32,
    pub replacing: u32,
    pub connecting: Connecting,
    pub last_error: Option<Trouble>,
    pub leaves_by: Moment,
    pub absent: u32,
    pub removed_said: bool,
    pub connects: Histogram,
}

impl ServerRow {
    pub fn down(&self) -> Down {
        Down { server: self.server.clone(), trouble: self.last_error.clone() }
    }

    /// A use has ended with an answer, after so many microseconds.
    #[inline]
    pub fn answered(&mut self, micros: u64) {
        self.uses.record_micros(micros);
        self.health.answered(micros);
    }

    pub fn took_at_least(&mut self, micros: u64) {
        self.uses.record_micros(micros);
        self.health.took(micros);
    }
}

/// What a discovery round changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RingChange {
    pub joined: Vec<ServerId>,
    pub leaving: Vec<ServerId>,
    /// Absent for the first time: to be looked at again soon.
    pub absent: Vec<ServerId>,
}

impl<K: Carried> Core<K> {
    pub(super) fn add_server(&mut self, server: Server, provisional: bool, now: Moment, effects: &mut Effects<K>) {
        let jitter = self.draw_time(self.rules.start_jitter);
        let id = server.id.clone();
        let key = self.servers.insert(ServerRow {
            provisional,
            tier: self.rules.tier_of(&server),
            server,
            state: ServerState::Down,
            ready: VecDeque::new(),
            serving: 0,
            retiring: 0,
            closing: 0,
            opening: 0,
            replacing: 0,
            in_flight: 0,
            orphans: 0,
            waiting: Queue::default(),
            pace: Pace::default(),
            connecting: Connecting::first(now.after(jitter)),
            last_error: None,
            health: Health::new(self.rules.suspect_stay),
            eligible: false,
            leaves_by: Moment::FAR,
            absent: 0,
            removed_said: false,
            last_turn: 0,
            served: 0,
            connects: Histogram::with_room(),
            waits: Histogram::with_room(),
            uses: Histogram::with_room(),
        });
        self.by_id.insert(id.clone(), key);
        self.ring.push(key);
        effects.changes.push(Change::Joined(id));
        effects.reconcile = true;
    }

    /// The configured servers, as their names resolve now. With discovery they are only a beginning: those whose address
    /// is known stay as they are. Without it they are the ring.
    pub fn seeds(&mut self, seeds: &[Server], whole: bool, now: Moment, effects: &mut Effects<K>) {
        let discovered = self.ring.iter().any(|key| self.servers.get(*key).is_some_and(|row| !row.provisional));
        if whole || !discovered {
            for seed in seeds {
                let known = self.ring.iter().any(|key| {
                    self.servers
                        .get(*key)
                        .is_some_and(|row| row.server.address == seed.address && row.state != ServerState::Leaving)
                });
                if !known {
                    self.add_server(seed.clone(), true, now, effects);
                }
            }
        }
        if whole {
            let gone: Vec<Key> = self
                .ring
                .iter()
                .copied()
                .filter(|key| {
                    self.servers
                        .get(*key)
                        .is_some_and(|row| !seeds.iter().any(|seed| seed.address == row.server.address))
                })
                .collect();
            gone.into_iter().for_each(|key| self.leave(key, now, effects));
        }
    }

    /// One good round: all servers of the cluster, translated and filtered. `asked` is the address that was dialled.
    pub fn discovered(&mut self, found: &[Server], now: Moment, effects: &mut Effects<K>) -> RingChange {
        let mut change = RingChange::default();
        for server in found {
            match self.by_id.get(&server.id).copied() {
                Some(key) if self.servers.get(key).is_some_and(|row| row.server.address == server.address) => {
                    if let Some(row) = self.servers.get_mut(key) {
                        (row.absent, row.removed_said, row.provisional) = (0, false, false);
                        row.server = server.clone();
                        row.tier = self.rules.tier_of(server);
                    }
                    continue;
                }
                Some(moved) => self.leave(moved, now, effects),
                None => {}
            }
            let same_address = self.ring.iter().copied().find(|key| {
                self.servers
                    .get(*key)
                    .is_some_and(|row| row.server.address == server.address && row.state != ServerState::Leaving)
            });
            if let Some(key) = same_address {
                if self.servers.get(key).is_some_and(|row| row.provisional) {
                    self.adopt(key, server);
                    change.joined.push(server.id.clone());
                    continue;
                }
                self.leave(key, now, effects);
            }
            self.add_server(server.clone(), false, now, effects);
            change.joined.push(server.id.clone());
        }
        let unseen: Vec<Key> = self
            .ring
            .iter()
            .copied()
            .filter(|key| {
                self.servers.get(*key).is_some_and(|row| {
                    row.state != ServerState::Leaving && !found.iter().any(|server| server.id == row.server.id)
                })
            })
            .collect();
        for key in unseen {
            let Some(row) = self.servers.get_mut(key) else { continue };
            row.absent += 1;
            let id = row.server.id.clone();
            if row.provisional || row.removed_said || row.absent >= 2 {
                self.leave(key, now, effects);
                change.leaving.push(id);
            } else {
                change.absent.push(id);
            }
        }
        self.refresh_eligible(now, effects);
        effects.reconcile = true;
        change
    }

    /// A configured server turns out to be this one: its connections stay.
    fn adopt(&mut self, key: Key, server: &Server) {
        let Some(row) = self.servers.get_mut(key) else { return };
        self.by_id.remove(&row.server.id);
        self.by_id.insert(server.id.clone(), key);
        row.server = server.clone();
        row.tier = self.rules.tier_of(server);
        row.provisional = false;
        row.absent = 0;
    }

    /// A server said that another was removed: one round without it is enough.
    pub fn removed_said(&mut self, address: std::net::SocketAddr) {
        for (_, row) in self.servers.iter_mut() {
            row.removed_said |= row.server.address == address;
        }
    }

    pub(super) fn leave(&mut self, key: Key, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get_mut(key) else { return };
        if row.state == ServerState::Leaving {
            return;
        }
        let (id, before) = (row.server.id.clone(), row.state);
        row.state = ServerState::Leaving;
        row.leaves_by = now.after(self.rules.drain_timeout);
        self.armed = self.armed.min(row.leaves_by);
        self.by_id.remove(&id);
        effects.changes.push(Change::Server { id, before, now: ServerState::Leaving });
        self.fail_waiters_of(key, Kind::UnknownServer, effects);
        let connections: Vec<Key> =
            self.connections.iter().filter(|(_, row)| row.server == key).map(|(key, _)| key).collect();
        for connection in connections {
            self.retire(connection, effects);
        }
        self.refresh_eligible(now, effects);
        self.forget_if_empty(key, effects);
        effects.rearm = true;
    }

    /// A server that left goes with its last connection.
    pub(super) fn forget_if_empty(&mut self, key: Key, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get(key) else { return };
        let empty = row.serving + row.retiring + row.closing + row.opening + row.replacing == 0;
        if row.state == ServerState::Leaving && empty {
            effects.changes.push(Change::Left(row.server.id.clone()));
            self.servers.remove(key);
            self.ring.retain(|other| *other != key);
        }
    }

    /// Which servers untargeted requests may choose from: those up in the nearest tier that has one; if none is up
    /// anywhere, the suspect ones.
    pub(super) fn refresh_eligible(&mut self, now: Moment, effects: &mut Effects<K>) {
        for at in 0..self.ring.len() {
            self.refresh_state(self.ring[at], now, effects);
        }
        let of_state = |state: ServerState| {
            let rows = self.ring.iter().filter_map(|key| Some((*key, self.servers.get(*key)?)));
            let open: Vec<(Key, u8)> = rows
                .filter(|(_, row)| row.state == state && row.serving > 0 && self.rules.wants(row.tier))
                .map(|(key, row)| (key, row.tier))
                .collect();
            let nearest = open.iter().map(|(_, tier)| *tier).min();
            open.into_iter().filter(|(_, tier)| Some(*tier) == nearest).map(|(key, _)| key).collect::<Vec<_>>()
        };
        let mut eligible = of_state(ServerState::Up);
        if eligible.is_empty() {
            eligible = of_state(ServerState::Suspect);
        }
        if eligible == self.eligible {
            return;
        }
        for (key, row) in self.servers.iter_mut() {
            row.eligible = eligible.contains(&key);
        }
        self.eligible = eligible;
        self.offer_all(now, effects);
    }

    fn refresh_state(&mut self, key: Key, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get_mut(key) else { return };
        let state = match row.state {
            ServerState::Leaving => ServerState::Leaving,
            _ if row.serving == 0 => ServerState::Down,
            _ if row.health.suspect() => ServerState::Suspect,
            _ => ServerState::Up,
        };
        if state == row.state {
            return;
        }
        let before = std::mem::replace(&mut row.state, state);
        let id = row.server.id.clone();
        match (before, state) {
            (ServerState::Down, _) => row.health.returned(now),
            (_, ServerState::Down) => row.health.went_down(),
            _ => {}
        }
        effects.changes.push(Change::Server { id, before, now: state });
        if state == ServerState::Down {
            self.fail_waiters_of(key, Kind::ServerDown, effects);
        }
    }

    fn fail_waiters_of(&mut self, key: Key, kind: Kind, effects: &mut Effects<K>) {
        let waiting: Vec<Key> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.target == Some(key) && waiter.queued())
            .map(|(key, _)| key)
            .collect();
        for waiter in waiting {
            self.fail_waiter(waiter, kind, effects);
        }
    }

    pub fn server_key(&self, id: &ServerId) -> Option<Key> {
        self.by_id.get(id).copied()
    }

    /// The one that is meant: by its id; one that goes by its address may have been given a name since.
    pub fn meant(&self, server: &Server) -> Option<Key> {
        self.server_key(&server.id).or_else(|| {
            let unnamed = server.id.as_str().parse() == Ok(server.address);
            let here = |key: &Key| {
                let row = self.servers.get(*key);
                row.is_some_and(|row| row.server.address == server.address && row.state != ServerState::Leaving)
            };
            self.ring.iter().copied().filter(|_| unnamed).find(here)
        })
    }

    pub fn server(&self, key: Key) -> Option<&Server> {
        self.servers.get(key).map(|row| &row.server)
    }

    /// Servers to ask for the others, live ones first, beginning after `turn`.
    pub fn askable(&self, turn: usize) -> Vec<Server> {
        let here = |live: bool| {
            let rows = self.ring.iter().filter_map(|key| self.servers.get(*key));
            rows.filter(move |row| row.state != ServerState::Leaving && (row.serving > 0) == live)
                .map(|row| row.server.clone())
        };
        let mut live: Vec<Server> = here(true).collect();
        if !live.is_empty() {
            let turn = turn % live.len();
            live.rotate_left(turn);
        }
        live.extend(here(false));
        live
    }
}
