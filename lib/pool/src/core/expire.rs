//! Deadlines: ends waits and loans that are due, reports overdue loans, and cuts off servers whose drain time is over.

use std::panic::Location;

use honeyflow_runtime::Moment;

use super::{Core, Effects, Ending, Judgement, Key, PooledConnection, waiting::Outcome};
use crate::error::Kind;

/// A loan of a shared connection. The connection has many loans and does not know the age of each.
#[derive(Debug)]
pub struct SharedLoan {
    since: Moment,
    site: &'static Location<'static>,
    reported: bool,
}

impl<K: PooledConnection> Core<K> {
    #[inline]
    pub(super) fn begin_shared_loan(&mut self, site: Option<&'static Location<'static>>, now: Moment) -> Option<Key> {
        site.map(|site| self.out.insert(SharedLoan { since: now, site, reported: false }))
    }

    /// Ends a loan of a shared connection. If it is overdue and was not reported yet, it is reported now.
    #[inline]
    pub fn end_shared_loan(&mut self, loan: Key, now: Moment, effects: &mut Effects<K>) {
        let due = self.out.get(loan).filter(|out| !out.reported).map(|out| out.since.after(self.rules.loan_warn));
        if due.is_some_and(|due| due <= now) {
            self.report_overdue(now, effects);
        }
        self.out.discard(loan);
    }

    /// Reports the overdue loans of shared connections, each once.
    pub(super) fn report_overdue(&mut self, now: Moment, effects: &mut Effects<K>) {
        for (_, out) in self.out.iter_mut() {
            if !out.reported && out.since.after(self.rules.loan_warn) <= now {
                out.reported = true;
                self.counters.overdue_loans += 1;
                effects.overdue.push(out.site);
            }
        }
    }

    /// Ends the waits and loans that are due and makes the regular checks. Returns when to call it again.
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
            .filter(|(_, waiter)| waiter.is_queued() && waiter.due <= now)
            .map(|(key, _)| key)
            .collect();
        for waiter in due {
            self.counters.waiters_expired += 1;
            self.fail_waiter(waiter, Kind::WaitTimeout, effects);
        }
        self.expire_loans(now, effects);
        self.expire_leaving(now, effects);
        self.signal_drain(effects);
        let waiters = self.waiters.iter().filter(|(_, waiter)| waiter.is_queued()).map(|(_, waiter)| waiter.due);
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
            // Granted to a waiter that has not picked it up: the waiter fails, the connection was not used and stays.
            let given = self.waiters.iter().find(|(_, waiter)| waiter.outcome == Outcome::Given(connection));
            if let Some((waiter, _)) = given {
                self.counters.waiters_expired += 1;
                let row = self.waiters.get_mut(waiter).expect("found above");
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

    /// Counts a request that was not answered by its deadline. For an exclusive connection, both the expiry task and
    /// the caller report it: the first report removes the connection, the second finds no connection or a later loan.
    /// `exclusive`: when the loan of an exclusive connection began.
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
            self.signal_drain(effects);
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
                self.cut_off(connection, effects);
            }
        }
    }
}
