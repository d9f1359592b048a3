//! The ring: the known servers. Each discovery round changes it only by the difference. A server that fails stays in
//! the ring; only discovery or the settings remove one, and then its loans may finish.

use std::collections::VecDeque;

use honeyflow_runtime::Moment;

use super::{
    Change, Core, Effects, Key, PooledConnection, health::Health, histogram::Histogram, pace::Pace, queue::Queue,
    reconcile::ConnectBackoff,
};
use crate::{
    error::Kind,
    outage::{DownServer, LastError},
    server::{Server, ServerId},
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerState {
    Up,
    /// Slow or silent: it gets few requests until it answers well again.
    Suspect,
    /// The server has no open connection.
    Down,
    /// No longer part of the cluster: its loans may finish.
    Leaving,
}

/// A server of the ring. The fields that every loan uses come first and together.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ServerRow {
    /// The connections with a free stream, in the order in which they became ready.
    pub ready: VecDeque<Key>,
    pub in_flight: u32,
    pub orphans: u32,
    pub served: u64,
    pub last_turn: u64,
    pub eligible: bool,
    pub state: ServerState,
    /// Known only from the settings; discovery has not confirmed it.
    pub provisional: bool,
    pub tier: u8,
    pub health: Health,
    pub uses: Histogram,
    pub waits: Histogram,
    pub pace: Pace,
    /// The waiters that want this server only.
    pub waiting: Queue,
    pub server: Server,
    /// Connections that take requests.
    pub serving: u32,
    pub retiring: u32,
    pub closing: u32,
    pub opening: u32,
    pub replacing: u32,
    pub connecting: ConnectBackoff,
    pub last_error: Option<LastError>,
    pub leaves_by: Moment,
    pub absent: u32,
    pub removal_announced: bool,
    pub connects: Histogram,
}

impl ServerRow {
    pub fn down(&self) -> DownServer {
        DownServer { server: self.server.clone(), trouble: self.last_error.clone() }
    }

    /// Records a request that was answered after `micros` microseconds.
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
    /// Absent for the first time: another round follows soon.
    pub absent: Vec<ServerId>,
}

impl<K: PooledConnection> Core<K> {
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
            connecting: ConnectBackoff::first(now.after(jitter)),
            last_error: None,
            health: Health::new(self.rules.suspect_stay),
            eligible: false,
            leaves_by: Moment::FAR,
            absent: 0,
            removal_announced: false,
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

    /// Takes the configured servers, as their names resolve now. With discovery they are only the start, and a server
    /// whose address is known stays as it is. Without discovery (`whole`) they are the ring.
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

    /// Takes the result of a successful discovery round: all servers of the cluster, translated and filtered.
    pub fn discovered(&mut self, found: &[Server], now: Moment, effects: &mut Effects<K>) -> RingChange {
        let mut change = RingChange::default();
        for server in found {
            match self.by_id.get(&server.id).copied() {
                Some(key) if self.servers.get(key).is_some_and(|row| row.server.address == server.address) => {
                    if let Some(row) = self.servers.get_mut(key) {
                        (row.absent, row.removal_announced, row.provisional) = (0, false, false);
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
            if row.provisional || row.removal_announced || row.absent >= 2 {
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

    /// Gives a configured server the identity that discovery found at its address; its connections stay.
    fn adopt(&mut self, key: Key, server: &Server) {
        let Some(row) = self.servers.get_mut(key) else { return };
        self.by_id.remove(&row.server.id);
        self.by_id.insert(server.id.clone(), key);
        row.server = server.clone();
        row.tier = self.rules.tier_of(server);
        row.provisional = false;
        row.absent = 0;
    }

    /// Notes a notice that a server was removed: it then leaves after one round without it.
    pub fn on_removed_notice(&mut self, address: std::net::SocketAddr) {
        for (_, row) in self.servers.iter_mut() {
            row.removal_announced |= row.server.address == address;
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

    /// Removes a leaving server after its last connection has closed.
    pub(super) fn forget_if_empty(&mut self, key: Key, effects: &mut Effects<K>) {
        let Some(row) = self.servers.get(key) else { return };
        let empty = row.serving + row.retiring + row.closing + row.opening + row.replacing == 0;
        if row.state == ServerState::Leaving && empty {
            effects.changes.push(Change::Left(row.server.id.clone()));
            self.servers.remove(key);
            self.ring.retain(|other| *other != key);
        }
    }

    /// Updates which servers a request without a target may use: those that are up in the nearest tier that has one; if
    /// no server is up, the suspect ones.
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
            _ if row.health.is_suspect() => ServerState::Suspect,
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
            .filter(|(_, waiter)| waiter.target == Some(key) && waiter.is_queued())
            .map(|(key, _)| key)
            .collect();
        for waiter in waiting {
            self.fail_waiter(waiter, kind, effects);
        }
    }

    pub fn server_key(&self, id: &ServerId) -> Option<Key> {
        self.by_id.get(id).copied()
    }

    /// Finds a server by its id. A server whose id is its address is also found by that address, since discovery may
    /// have given it another id meanwhile.
    pub fn find_server(&self, server: &Server) -> Option<Key> {
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

    /// The servers that discovery may ask, connected ones first, rotated by `turn`.
    pub fn discovery_candidates(&self, turn: usize) -> Vec<Server> {
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
