//! What the clock ends: waits, loans, the stay of servers that leave.

use std::panic::Location;

use honeyflow_runtime::Moment;

use super::{Carried, Core, Effects, Ending, Judgement, Key, waiting::Outcome};
use crate::error::Kind;

/// A loan of a shared connection, which cannot say itself which of its many loans is old.
#[derive(Debug)]
pub struct Out {
    since: Moment,
    site: &'static Location<'static>,
    told: bool,
}

impl<K: Carried> Core<K> {
    #[inline]
    pub(super) fn loan_out(&mut self, site: Option<&'static Location<'static>>, now: Moment) -> Option<Key> {
        site.map(|site| self.out.insert(Out { since: now, site, told: false }))
    }

    /// The loan has come back; if too late and nobody has said so yet, that is said now.
    #[inline]
    pub fn loan_over(&mut self, loan: Key, now: Moment, effects: &mut Effects<K>) {
        let due = self.out.get(loan).filter(|out| !out.told).map(|out| out.since.after(self.rules.loan_warn));
        if due.is_some_and(|due| due <= now) {
            self.tell_overdue(now, effects);
        }
        self.out.discard(loan);
    }

    /// Loans of shared connections that are out for too long, each told once.
    pub(super) fn tell_overdue(&mut self, now: Moment, effects: &mut Effects<K>) {
        for (_, out) in self.out.iter_mut() {
            if !out.told && out.since.after(self.rules.loan_warn) <= now {
                out.told = true;
                self.counters.overdue_loans += 1;
                effects.overdue.push(out.site);
            }
        }
    }

    /// Whatever is due: waiters, loans, ticks. Says when to look again.
    pub fn expire(&mut self, now: Moment, effects: &mut Effects<K>) -> Moment {
        self.seen = self.seen.max(now);
        if now >= self.tick_at {
            self.tick(now, effects);
        }
        if now >= self.armed {
            self.expire_due(now, effects);
        }
        self.armed.min(self.tick_at)
    }

    fn expire_due(&mut self, now: Moment, effects: &mut Effects<K>) {
        let due: Vec<Key> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.queued() && waiter.due <= now)
            .map(|(key, _)| key)
            .collect();
        for waiter in due {
            self.counters.waiters_expired += 1;
            self.fail_waiter(waiter, Kind::WaitTimeout, effects);
        }
        self.expire_loans(now, effects);
        self.expire_leaving(now, effects);
        self.drained(effects);
        let waiters = self.waiters.iter().filter(|(_, waiter)| waiter.queued()).map(|(_, waiter)| waiter.due);
        let loans = self.connections.iter().filter(|(_, row)| row.in_flight > 0).map(|(_, row)| {
            let warn = if row.warned || !row.exclusive { Moment::FAR } else { row.lent_at.after(self.rules.loan_warn) };
            row.due.min(warn)
        });
        let leaving = self.servers.iter().map(|(_, row)| row.leaves_by);
        self.armed = waiters.chain(loans).chain(leaving).min().unwrap_or(Moment::FAR);
    }

    fn expire_loans(&mut self, now: Moment, effects: &mut Effects<K>) {
        let mut late: Vec<Key> = Vec::new();
        for (key, row) in self.connections.iter_mut() {
            if !row.exclusive || row.in_flight == 0 {
                continue;
            }
            if !row.warned && row.lent_at.after(self.rules.loan_warn) <= now {
                row.warned = true;
                self.counters.overdue_loans += 1;
                effects.overdue.extend(row.site);
            }
            if row.due <= now {
                late.push(key);
            }
        }
        for connection in late {
            // Given and not picked up: its waiter is told, the connection is as good as before.
            let given = self.waiters.iter().find(|(_, waiter)| waiter.outcome == Outcome::Given(connection));
            if let Some((waiter, _)) = given {
                self.counters.waiters_expired += 1;
                let row = self.waiters.get_mut(waiter).expect("found just now");
                row.outcome = Outcome::Failed(Kind::WaitTimeout);
                self.counters.checkins += 1;
                self.give_back(connection, Ending::Unused, 0, now, effects);
                continue;
            }
            if let Some((server, begun)) = self.connections.get(connection).map(|row| (row.server, row.lent_at)) {
                self.timed_out(connection, server, Some(begun), now, effects);
            }
        }
    }

    /// A use was not answered by its deadline: counted here alone. Of an exclusive connection two come to know of it, the
    /// clock and whoever waits; it goes with the first, and the second finds nothing, or another's loan.
    /// `exclusive`: since when it was on loan.
    pub fn timed_out(
        &mut self,
        connection: Key,
        server: Key,
        exclusive: Option<Moment>,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        if let Some(begun) = exclusive {
            if self.connections.get(connection).is_none_or(|row| row.in_flight == 0 || row.lent_at != begun) {
                return;
            }
            self.remove(connection, effects);
            self.drained(effects);
        }
        self.counters.use_timeouts += 1;
        self.judge(server, Judgement::Silent, now, effects);
    }

    fn expire_leaving(&mut self, now: Moment, effects: &mut Effects<K>) {
        let due: Vec<Key> = self.servers.iter().filter(|(_, row)| row.leaves_by <= now).map(|(key, _)| key).collect();
        for server in due {
            if let Some(row) = self.servers.get_mut(server) {
                row.leaves_by = Moment::FAR;
            }
            let late: Vec<Key> =
                self.connections.iter().filter(|(_, row)| row.server == server).map(|(key, _)| key).collect();
            for connection in late {
                self.cut(connection, effects);
            }
        }
    }
}
