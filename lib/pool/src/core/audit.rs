//! Checks the core's invariants: recounts every counter, and checks that no connection is idle while a waiter may take
//! it.

use super::{Core, PooledConnection, waiting::Outcome};

impl<K: PooledConnection> Core<K> {
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn audit(&self) {
        let mut loans = 0;
        for (key, server) in self.servers.iter() {
            let own = || self.connections.iter().filter(move |(_, row)| row.server == key).map(|(_, row)| row);
            let count = |is: &dyn Fn(&super::ConnectionRow<K>) -> bool| own().filter(|row| is(row)).count() as u32;
            assert_eq!(server.serving, count(&|row| !row.retiring), "serving");
            assert_eq!(server.retiring, count(&|row| row.retiring), "retiring");
            assert_eq!(server.in_flight, own().map(|row| row.in_flight).sum::<u32>(), "in flight");
            assert_eq!(server.orphans, own().map(|row| row.orphans).sum::<u32>(), "orphans");
            let (lent, idle) = (count(&|row| row.in_flight > 0), count(&|row| row.in_flight == 0));
            assert_eq!(lent + idle + server.closing, server.serving + server.retiring + server.closing, "open");
            for (connection, row) in self.connections.iter().filter(|(_, row)| row.server == key) {
                // Requests that began when the settings allowed more may finish.
                let most = if row.exclusive { 1 } else { row.offered };
                assert!(row.in_flight <= most && row.streams <= most, "more requests than streams");
                assert!(row.orphans <= row.in_flight, "an orphan is in flight");
                assert_eq!(row.orphaned.len(), row.orphans as usize, "one time per orphan");
                let listed = server.ready.iter().filter(|other| **other == connection).count();
                assert_eq!(listed, usize::from(row.in_ready), "listed once, if ready");
                assert_eq!(row.in_ready, row.takes_more(), "ready, if it takes more");
                loans += (row.in_flight - row.orphans) as usize;
            }
            let waits_here =
                self.waiters.iter().filter(|(_, waiter)| waiter.is_queued() && waiter.target == Some(key)).count();
            assert_eq!(server.waiting.len(), waits_here, "waiters of a server");
            assert!(server.ready.is_empty() || waits_here == 0, "idle while a waiter wants this server");
            let idle = server.eligible && !server.ready.is_empty();
            let passed_over = self
                .waiters
                .iter()
                .filter(|(_, waiter)| idle && waiter.is_queued() && waiter.target.is_none() && waiter.may_take(key));
            assert_eq!(passed_over.count(), 0, "idle while a waiter may take it");
            assert_eq!(server.eligible, self.eligible.contains(&key), "eligible");
        }
        assert_eq!(self.loans, loans, "loans");
        let queued = self.waiters.iter().filter(|(_, waiter)| waiter.is_queued()).count();
        assert_eq!(self.waiting_in_all, queued, "waiters");
        assert_eq!(self.closing, self.servers.iter().map(|(_, row)| row.closing as usize).sum::<usize>(), "closing");
        let opening: u32 = self.servers.iter().map(|(_, row)| row.opening + row.replacing).sum();
        assert_eq!(self.opening, opening, "opening");
        let given = self.waiters.iter().filter(|(_, waiter)| matches!(waiter.outcome, Outcome::Given(_))).count();
        assert!(given <= self.loans + self.waiters.len(), "given");
    }
}
