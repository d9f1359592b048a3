//! Support for the tests of connectors: the behaviour that each must show on a pool ([`suite`]), and a cluster in
//! memory that needs no sockets and works with a paused clock ([`memory`]).
//!
//! A connector's tests implement [`Rig`] for their servers and pass it to [`conformance!`](crate::conformance), as here
//! with the cluster in memory:
//!
//! ```
//! honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Shared, start_paused = true);
//! # fn main() {}
//! ```

pub mod memory;
pub mod suite;

use std::{future::Future, time::Duration};

use crate::{
    connect::Connector,
    loan::Loan,
    pool::Pool,
    server::Server,
    settings::{Settings, SettingsError},
};

/// A generous time limit, which only stops tests that hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Servers of one protocol that can be stopped and restarted, and the few requests that the suite sends to them.
pub trait Rig: Sized + Send + Sync + 'static {
    type Connector: Connector;

    /// Starts this number of servers.
    fn start(servers: usize) -> impl Future<Output = Self> + Send;

    /// Starts a new pool on these servers. A rig that uses a special clock passes it to the pool here.
    ///
    /// # Errors
    /// What is wrong with the settings.
    fn pool(&self, settings: Settings) -> Result<Pool<Self::Connector>, SettingsError>;

    fn server(&self, at: usize) -> Server;

    /// An exchange that succeeds.
    fn ask(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// An exchange that is not answered.
    fn hang(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// An exchange that the server refuses because the request is wrong.
    fn refuse(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// An exchange that succeeds, on a connection outside of the pool.
    fn ask_once(
        on: &<Self::Connector as Connector>::Connection,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// Stops a server as if it was killed: its connections end, and new ones are refused.
    fn stop(&self, at: usize) -> impl Future<Output = ()> + Send;

    fn restart(&self, at: usize) -> impl Future<Output = ()> + Send;

    /// Makes every server answer discovery with these servers. An empty list makes the answer useless. Only the
    /// behaviours about discovery call this.
    fn tell(&self, cluster: &[usize]);

    /// Pauses a server: it accepts and reads, and answers nothing until `silent` is false again. Requests that came
    /// meanwhile may stay unanswered.
    fn silence(&self, at: usize, silent: bool);

    /// The number of open connections, counted at the server.
    fn open(&self, at: usize) -> usize;

    /// The number of connections that the server has ever accepted.
    fn accepted(&self, at: usize) -> usize;
}

/// Waits until the condition holds.
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
pub async fn eventually(what: &str, is_so: impl Fn() -> bool + Send) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

/// # Panics
/// If it takes longer than [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Makes one test for each behaviour of [`suite`], with this rig. The tests are `#[tokio::test]`; further arguments of
/// the macro become arguments of that attribute: `conformance!(Mine, start_paused = true)`.
#[macro_export]
macro_rules! conformance {
    ($rig:ty $(, $($how:tt)*)?) => {
        $crate::conformance!(@each [$rig] [$($($how)*)?]
            pl_13_the_pool_fills_and_whatever_ends_is_replaced
            pl_20_a_loan_comes_back_on_every_way_out
            pl_24_an_error_of_the_request_keeps_cause_and_connection
            pl_5_a_drain_serves_and_leaves_no_connection
            pl_25_on_and_once_mean_that_server
            pl_30_one_deadline_covers_waiting_and_use
            pl_32_waiters_are_served_in_order
            pl_33_a_full_queue_and_an_empty_pool_refuse_at_once
            pl_23_cancelling_loses_nothing
            pl_86_an_idempotent_request_survives_a_server
            pl_40_what_is_worn_is_replaced_first_and_closed_then
            pl_52_a_server_that_is_added_is_found_and_filled
            pl_52_a_server_that_goes_away_is_let_go_of
            pl_51_discovery_that_fails_changes_nothing_and_goes_on
            pl_81_a_server_that_answers_nothing_is_passed_by
            pl_87_a_silent_connection_is_closed_and_a_living_one_stays
            pl_101_commands_work_right_after_the_start
            pl_116_counts_add_up
        );
    };
    (@each $rig:tt $how:tt $($name:ident)*) => { $($crate::conformance!(@one $rig $how $name);)* };
    (@one [$rig:ty] [$($how:tt)*] $name:ident) => {
        #[tokio::test($($how)*)]
        async fn $name() {
            $crate::testing::suite::$name::<$rig>().await;
        }
    };
}
