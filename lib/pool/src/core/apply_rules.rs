//! Applies changed rules to the connections that exist. The reconciler adapts the number of connections; this file
//! adapts their maximum age and idle time, how many requests they carry, and the deadlines. Only `mode` holds for new
//! connections alone.

use std::time::Duration;

use honeyflow_runtime::Moment;

use super::{ConnectionRow, Core, Effects, Key, PooledConnection, Rules, reconcile::ReplaceReason};

/// A connection's maximum age and idle time are lowered by up to a tenth, in this many steps.
pub const STEPS: u64 = 1000;

fn lowered(time: Duration, by: u16) -> Duration {
    time - time / (10 * STEPS as u32) * u32::from(by)
}

impl<K> ConnectionRow<K> {
    /// Sets when it is too old, and how long it may be idle.
    pub(super) fn set_times(&mut self, rules: &Rules) {
        self.age_due = self.opened_at.after(lowered(rules.max_age, self.lowered[0]));
        self.idle_max = lowered(rules.max_idle, self.lowered[1]);
    }
}

impl<K: PooledConnection> Core<K> {
    /// Replaces the rules and applies the new ones to servers and connections.
    pub fn set_rules(&mut self, rules: Rules, now: Moment, effects: &mut Effects<K>) {
        let before = std::mem::replace(&mut self.rules, rules);
        for (_, server) in self.servers.iter_mut() {
            server.tier = self.rules.tier_of(&server.server);
            server.connecting.no_later_than(now.after(self.rules.max_backoff));
        }
        let connections: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for connection in connections {
            self.apply_rules_to(connection, &before, now, effects);
        }
        self.refresh_eligible(now, effects);
        // Loans may now be due earlier.
        self.armed = now;
        effects.reconcile = true;
        effects.rearm = true;
    }

    fn apply_rules_to(&mut self, connection: Key, before: &Rules, now: Moment, effects: &mut Effects<K>) {
        let Some(row) = self.connections.get_mut(connection) else { return };
        row.set_times(&self.rules);
        if row.replace_reason == Some(ReplaceReason::Age) && !row.replacing && now < row.age_due {
            row.replace_reason = None;
        }
        let carries = |rules: &Rules| row.offered.min(rules.streams_per_connection).max(1);
        let (was, is) = (carries(before), carries(&self.rules));
        if was != is && !row.exclusive {
            row.streams = is;
        }
        // The write timeout, and whether a connection is shared, are fixed when it is opened. If they change, the
        // connection is replaced.
        let other_kind = self.rules.streams(row.offered) != 1 && row.exclusive || is == 1 && !row.exclusive;
        let stale = was != is && other_kind || before.write_timeout != self.rules.write_timeout;
        if stale && row.replace_reason.is_none() {
            row.replace_reason = Some(ReplaceReason::Settings);
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
