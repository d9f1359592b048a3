//! For the tests of connectors: what every one of them must do on a pool ([`suite`]), and a cluster in memory that needs no
//! sockets and goes by a stopped clock ([`memory`]).
//!
//! A connector's tests implement [`Rig`] for their own servers and name it to [`conformance!`](crate::conformance), as here
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

/// Generous: only against hanging.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Servers of one protocol, as many as asked for, that can be stopped; and the few requests that the suite makes.
pub trait Rig: Sized + Send + Sync + 'static {
    type Connector: Connector;

    /// So many servers, all up.
    fn start(servers: usize) -> impl Future<Output = Self> + Send;

    /// A pool of its own on those servers. Whoever has another clock than the wall's starts it here.
    ///
    /// # Errors
    /// What is wrong with the settings.
    fn pool(&self, settings: Settings) -> Result<Pool<Self::Connector>, SettingsError>;

    fn server(&self, at: usize) -> Server;

    /// A good exchange.
    fn ask(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// An exchange that is not answered.
    fn hang(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// One that the server refuses for the request's own fault.
    fn refuse(
        loan: Loan<Self::Connector>,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// A good exchange on a connection outside of the pool.
    fn ask_once(
        on: &<Self::Connector as Connector>::Connection,
    ) -> impl Future<Output = Result<(), <Self::Connector as Connector>::Error>> + Send;

    /// As if killed: connections are gone, new ones refused.
    fn stop(&self, at: usize) -> impl Future<Output = ()> + Send;

    fn restart(&self, at: usize) -> impl Future<Output = ()> + Send;

    /// From now on every server says that these are there, whenever it is asked; nobody, and the answer is of no use.
    /// Not called by behaviours that have nothing to do with discovery.
    fn tell(&self, cluster: &[usize]);

    /// As if stopped: it accepts and reads, and says nothing until it speaks again. What it was asked meanwhile may
    /// stay unanswered.
    fn silence(&self, at: usize, silent: bool);

    /// Connections that are open, counted at the server.
    fn open(&self, at: usize) -> usize;

    /// Connections that were ever accepted, counted there too.
    fn accepted(&self, at: usize) -> usize;
}

/// Waits until it is so.
///
/// # Panics
/// If it is not for a long time.
pub async fn eventually(what: &str, is_so: impl Fn() -> bool + Send) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

/// # Panics
/// If it takes a long time.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// One test for each behaviour of [`suite`], on servers of this kind. The tests run as `#[tokio::test]`, with what follows
/// the name in brackets: `conformance!(Mine, start_paused = true)`.
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
