//! The old names of public types and methods. They keep programs compiling that use them, and forward to the new names.

use std::net::SocketAddr;

use honeyflow_runtime::Moment;

use crate::{
    connect, control,
    core::{self, Core, Effects, Key, PooledConnection},
    error, loan, outage, request_options,
    server::Server,
    settings,
};

#[deprecated(since = "0.1.0", note = "renamed to RetryPolicy")]
pub type Again = connect::RetryPolicy;

#[deprecated(since = "0.1.0", note = "renamed to CompiledSettings")]
pub type Compiled = settings::CompiledSettings;

#[deprecated(since = "0.1.0", note = "renamed to DetachedConnection")]
pub type Detached<C> = loan::DetachedConnection<C>;

#[deprecated(since = "0.1.0", note = "renamed to DownServer")]
pub type Down = outage::DownServer;

#[deprecated(since = "0.1.0", note = "renamed to DrainReport")]
pub type Drained = core::DrainReport;

#[deprecated(since = "0.1.0", note = "renamed to Execution")]
pub type Executed = error::Execution;

#[deprecated(since = "0.1.0", note = "renamed to ConnectFailure")]
pub type Failed = core::ConnectFailure;

#[deprecated(since = "0.1.0", note = "renamed to LentConnection")]
pub type Lent<K> = core::LentConnection<K>;

#[deprecated(since = "0.1.0", note = "renamed to Transition")]
pub type Moved = control::Transition;

#[deprecated(since = "0.1.0", note = "renamed to DrainTarget")]
pub type Next = core::DrainTarget;

#[deprecated(since = "0.1.0", note = "renamed to PendingConnect")]
pub type Open = core::PendingConnect;

#[deprecated(since = "0.1.0", note = "renamed to OvertakenRequest")]
pub type Overtaken = core::OvertakenRequest;

#[deprecated(since = "0.1.0", note = "renamed to TriedServers")]
pub type Tried = core::TriedServers;

#[deprecated(since = "0.1.0", note = "renamed to LastError")]
pub type Trouble = outage::LastError;

#[deprecated(since = "0.1.0", note = "renamed to RequestOptions")]
pub type Want = request_options::RequestOptions;

impl core::State {
    #[deprecated(since = "0.1.0", note = "renamed to allows_discovery")]
    pub fn looks(self) -> bool {
        self.allows_discovery()
    }
}

impl<K: PooledConnection> Core<K> {
    #[deprecated(since = "0.1.0", note = "renamed to break_after_panic")]
    pub fn broke(&mut self, why: &str, effects: &mut Effects<K>) {
        self.break_after_panic(why, effects);
    }

    #[deprecated(since = "0.1.0", note = "renamed to break_pool")]
    pub fn breaks(&mut self, why: &str, effects: &mut Effects<K>) {
        self.break_pool(why, effects);
    }

    #[deprecated(since = "0.1.0", note = "renamed to on_goodbye")]
    pub fn goes(&mut self, connection: Key, now: Moment, effects: &mut Effects<K>) {
        self.on_goodbye(connection, now, effects);
    }

    #[deprecated(since = "0.1.0", note = "renamed to mark_answered")]
    pub fn heard_on(&mut self, connection: Key) {
        self.mark_answered(connection);
    }

    #[deprecated(since = "0.1.0", note = "renamed to find_server")]
    pub fn meant(&self, server: &Server) -> Option<Key> {
        self.find_server(server)
    }

    #[deprecated(since = "0.1.0", note = "renamed to discovery_candidates")]
    pub fn askable(&self, turn: usize) -> Vec<Server> {
        self.discovery_candidates(turn)
    }

    #[deprecated(since = "0.1.0", note = "renamed to on_removed_notice")]
    pub fn removed_said(&mut self, address: SocketAddr) {
        self.on_removed_notice(address);
    }

    #[deprecated(since = "0.1.0", note = "renamed to on_down_notice")]
    pub fn doubt(&mut self, address: SocketAddr, now: Moment, effects: &mut Effects<K>) {
        self.on_down_notice(address, now, effects);
    }

    #[deprecated(since = "0.1.0", note = "renamed to has_untried_server")]
    pub fn another(&self, tried: &[Key]) -> bool {
        self.has_untried_server(tried)
    }

    #[deprecated(since = "0.1.0", note = "renamed to usage")]
    pub fn crowd(&self) -> (usize, usize, usize) {
        self.usage()
    }

    #[deprecated(since = "0.1.0", note = "renamed to end_shared_loan")]
    pub fn loan_over(&mut self, loan: Key, now: Moment, effects: &mut Effects<K>) {
        self.end_shared_loan(loan, now, effects);
    }

    #[deprecated(since = "0.1.0", note = "renamed to end_orphan")]
    pub fn orphan_over(
        &mut self,
        connection: Key,
        gone_at: Moment,
        answered: bool,
        now: Moment,
        effects: &mut Effects<K>,
    ) {
        self.end_orphan(connection, gone_at, answered, now, effects);
    }
}
