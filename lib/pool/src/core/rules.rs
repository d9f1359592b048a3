//! The settings in the form that the core reads under its lock.

use std::{sync::Arc, time::Duration};

use crate::{
    server::Server,
    settings::{IdleOrder, Mode, Settings, WhenEmpty},
};

/// The settings of the core. The fields that every loan reads come first.
#[derive(Clone, PartialEq, Debug)]
#[repr(C)]
pub struct Rules {
    pub loan_warn: Duration,
    pub decay: Option<u32>,
    pub retry_budget: u32,
    pub speculate_budget: u32,
    pub lifo: bool,
    pub fail_when_empty: bool,
    pub early_refusal: bool,
    pub mode: Mode,
    pub queue_limit: usize,
    pub max: Option<u32>,
    pub deadline: Duration,
    pub start_jitter: Duration,
    pub max_backoff: Duration,
    pub target: Option<u32>,
    pub streams_per_connection: u32,
    pub max_connecting: u32,
    pub max_age: Duration,
    pub max_idle: Duration,
    pub recycle_budget: u32,
    pub local_datacentre: Option<Arc<str>>,
    pub local_rack: Option<Arc<str>>,
    pub allow_remote: bool,
    pub max_orphans: u32,
    pub suspect_stay: Duration,
    pub slow_start: Duration,
    pub drain_timeout: Duration,
    pub write_timeout: Duration,
}

/// The most connects to one server at the same time.
pub const CONNECTING_PER_SERVER: u32 = 2;
pub const REMOTE: u8 = 2;

impl From<&Settings> for Rules {
    fn from(settings: &Settings) -> Rules {
        Rules {
            mode: settings.mode,
            fail_when_empty: settings.when_empty == WhenEmpty::Fail,
            deadline: settings.deadline,
            queue_limit: settings.queue_limit,
            early_refusal: settings.early_refusal,
            start_jitter: settings.start_jitter,
            max_backoff: settings.max_backoff,
            target: settings.connections_per_server,
            max: settings.max_connections_per_server,
            streams_per_connection: settings.streams_per_connection,
            max_connecting: settings.max_connecting,
            lifo: settings.idle_order == IdleOrder::Lifo,
            decay: settings.decay_per_billion,
            max_age: settings.max_age,
            max_idle: settings.max_idle,
            recycle_budget: settings.recycle_budget,
            local_datacentre: settings.local_datacentre.as_deref().map(Arc::from),
            local_rack: settings.local_rack.as_deref().map(Arc::from),
            allow_remote: settings.allow_remote,
            max_orphans: settings.max_orphans,
            suspect_stay: settings.suspect_stay,
            slow_start: settings.slow_start,
            speculate_budget: settings.speculate_budget,
            retry_budget: settings.retry_budget,
            loan_warn: settings.loan_warn,
            drain_timeout: settings.drain_timeout,
            write_timeout: settings.write_timeout,
        }
    }
}

impl Rules {
    /// How many connections each server should have.
    pub fn target(&self, shared: bool) -> u32 {
        self.target.unwrap_or(if shared { 2 } else { 3 })
    }

    pub fn max(&self, shared: bool) -> u32 {
        self.max.unwrap_or(0).max(self.target(shared))
    }

    pub fn decay(&self, shared: bool) -> u32 {
        self.decay.unwrap_or(if shared { 0 } else { 100_000 })
    }

    /// How many requests a connection gets at once if it can carry `offered`.
    pub fn streams(&self, offered: u32) -> u32 {
        match self.mode {
            Mode::Exclusive => 1,
            Mode::Auto | Mode::Shared => offered.min(self.streams_per_connection).max(1),
        }
    }

    /// 0 for the local rack, 1 for the local datacentre, 2 for others. Without a local datacentre every server has tier
    /// 0.
    pub fn tier_of(&self, server: &Server) -> u8 {
        match (&self.local_datacentre, &self.local_rack) {
            (None, _) => 0,
            (Some(local), _) if server.datacentre.as_ref() != Some(local) => REMOTE,
            (Some(_), Some(local)) if server.rack.as_ref() != Some(local) => 1,
            (Some(_), _) => 0,
        }
    }

    pub fn wants(&self, tier: u8) -> bool {
        tier < REMOTE || self.allow_remote
    }
}
