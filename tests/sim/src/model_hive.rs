//! Members and leases in the same database as the outbox, so that a fence is compared with the lease row itself. The
//! rows are those of the memory backend.

use honeyflow_hive::{Fence, Reply, Request};
use honeyflow_hive_memory::Rows;
use honeyflow_runtime::Failure;

#[derive(Clone, Debug, Default)]
pub struct ModelHive {
    pub rows: Rows,
}

impl ModelHive {
    /// `hive_ms`: milliseconds since 2020 on the store's clock.
    pub fn apply(&mut self, hive_ms: u64, request: Request) -> Result<Reply, Failure> {
        self.rows.apply(hive_ms, request)
    }

    /// Compares the fence with the lease row.
    pub fn admits(&self, fence: &Fence) -> bool {
        self.rows.holds(fence)
    }
}
