//! New rules for what is there already. Sizes follow by the reconciler; the times of connections, how much they carry and
//! when things are looked at change here. `mode` alone counts for new connections only.

use std::time::Duration;

use honeyflow_runtime::Moment;

use super::{Carried, Core, Effects, Key, Row, Rules, open::Worn};

/// The most that a connection's times are lowered by is a tenth, in so many steps.
pub const STEPS: u64 = 1000;

fn lowered(time: Duration, by: u16) -> Duration {
    time - time / (10 * STEPS as u32) * u32::from(by)
}

impl<K> Row<K> {
    /// When it is too old, and for how long it may be idle.
    pub(super) fn set_times(&mut self, rules: &Rules) {
        self.age_due = self.opened_at.after(lowered(rules.max_age, self.lowered[0]));
        self.idle_max = lowered(rules.max_idle, self.lowered[1]);
    }
}

impl<K: Carried> Core<K> {
    /// New rules from now on.
    pub fn set_rules(&mut self, rules: Rules, now: Moment, effects: &mut Effects<K>) {
        let before = std::mem::replace(&mut self.rules, rules);
        for (_, server) in self.servers.iter_mut() {
            server.tier = self.rules.tier_of(&server.server);
            server.connecting.no_later_than(now.after(self.rules.max_backoff));
        }
        let connections: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for connection in connections {
            self.fit(connection, &before, now, effects);
        }
        self.refresh_eligible(now, effects);
        // Whatever is out may be due earlier than it was.
        self.armed = now;
        effects.reconcile = true;
        effects.rearm = true;
    }

    fn fit(&mut self, connection: Key, before: &Rules, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.connections.get_mut(connection) else { return };
        row.set_times(&self.rules);
        if row.worn == Some(Worn::Age) && !row.replacing && now < row.age_due {
            row.worn = None;
        }
        let carries = |rules: &Rules| row.offered.min(rules.streams_per_connection).max(1);
        let (was, is) = (carries(before), carries(&self.rules));
        if was != is && !row.exclusive {
            row.streams = is;
        }
        // What the transport was told when it was opened, and whether a connection is shared, stays for its life: another
        // takes its place.
        let other_kind = self.rules.streams(row.offered) != 1 && row.exclusive || is == 1 && !row.exclusive;
        let stale = was != is && other_kind || before.write_timeout != self.rules.write_timeout;
        if stale && row.worn.is_none() {
            row.worn = Some(Worn::Settings);
        }
        let server = row.server;
        match (row.in_ready, row.takes_more()) {
            (true, false) => {
                row.in_ready = false;
                let server = self.servers.get_mut(server).expect("the server of a connection exists");
                server.ready.retain(|other| *other != connection);
            }
            (false, true) => self.offer(connection, now, effects),
            _ => {}
        }
    }
}
