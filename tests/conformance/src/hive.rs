//! What every hive store promises. A backend makes a new [`Rig`] and names it to [`hive_suite!`](crate::hive_suite).

pub mod engaged;
pub mod events;
pub mod handover;
pub mod lease;
pub mod limit;
pub mod lineage;
pub mod membership;
pub mod reservation;
pub mod slots;
pub mod test_member;

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all, ready};
use honeyflow_hive::{HiveStore, contract::View};

pub use test_member::TestMember;

/// A new store of one backend, in which there was no hive before, and no lineage to wait for.
pub trait Rig: Send + Sync {
    /// Opens a separate connection to the hive of that name in this store. Dropping it is like the death of its
    /// process.
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>>;

    /// Steps the store's clock. A rig may also step every stored instant the other way, which is the same to the rules:
    /// of nodes, view, events and limits, in all hives of the rig. Returns false if that is impossible; the case is
    /// then skipped.
    fn step_clock(&self, _by_ms: i64) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Makes the recorded lineage of the hives differ from the server's. Returns false: the case is skipped.
    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Makes the newest event of each hive one of a newer version, with a kind that this version does not know. Returns
    /// false: the case is skipped.
    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Deletes all data, under open connections. Returns false: the case is skipped.
    fn wipe(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Whether a node waits after a new lineage. Not on SQLite: it is the same file.
    fn waits_for_lineage(&self) -> bool {
        true
    }

    /// Whether a restored state is held until a person accepts it. On Redis it is a new lineage.
    fn holds_after_restore(&self) -> bool {
        true
    }
}

/// What a case works with: a rig, and the case's name.
pub struct TestContext<'a> {
    rig: &'a dyn Rig,
    case: &'static str,
}

/// The hive that all cases use, and a second one in the same store.
pub const HIVE: &str = "conformance";
pub const NEIGHBOUR: &str = "neighbour";

pub const HEARTBEAT_MS: u64 = 2_000;
/// Longer than any pause of a busy machine: where a member has to expire, the test steps the clock.
pub const TTL_MS: u64 = 30_000;

/// The number of concurrent callers, where a rule is about races.
pub const RACERS: usize = 8;

impl<'a> TestContext<'a> {
    pub fn new(rig: &'a dyn Rig, case: &'static str) -> TestContext<'a> {
        TestContext { rig, case }
    }

    pub async fn open(&self) -> Arc<dyn HiveStore> {
        self.rig.open(HIVE).await
    }

    /// A member with its own connection, ready and eligible.
    pub async fn member(&self) -> TestMember {
        let member = self.newcomer("bee").await;
        member.beat().await;
        member
    }

    /// A member that has joined and sent no heartbeat.
    pub async fn newcomer(&self, name: &str) -> TestMember {
        TestMember::join(self.open().await, name, TTL_MS).await
    }

    pub async fn members(&self, count: usize) -> Vec<TestMember> {
        join_all((0..count).map(|_| self.member())).await
    }

    /// The view, as a process sees it that has not joined.
    pub async fn view(&self) -> View {
        test_member::view(&*self.open().await).await
    }

    pub async fn step_clock(&self, by_ms: i64) -> bool {
        self.or_skip(self.rig.step_clock(by_ms).await, "the clock of this store cannot be moved")
    }

    pub async fn change_lineage(&self) -> bool {
        self.or_skip(self.rig.change_lineage().await, "this store has one lineage")
    }

    pub async fn write_newer_event(&self) -> bool {
        self.or_skip(self.rig.write_newer_event().await, "this store keeps event kinds in memory, not their names")
    }

    pub async fn wipe(&self) -> bool {
        self.or_skip(self.rig.wipe().await, "this store cannot be wiped")
    }

    fn or_skip(&self, done: bool, why: &str) -> bool {
        if !done {
            println!("SKIPPED hive/{}: {why}", self.case);
        }
        done
    }
}

/// Makes a test of every case. `$fresh` is an async function that returns a [`Rig`](crate::hive::Rig). After `maybe`,
/// it returns None where there is no server, and has printed why.
#[macro_export]
macro_rules! hive_suite {
    (@tests $fresh:path; $($theme:ident :: $case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let rig = $fresh().await;
                $crate::hive::$theme::$case(&$crate::hive::TestContext::new(&rig, stringify!($case))).await;
            }
        )*
    };
    (@maybe $fresh:path; $($theme:ident :: $case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(rig) = $fresh().await else { return };
                $crate::hive::$theme::$case(&$crate::hive::TestContext::new(&rig, stringify!($case))).await;
            }
        )*
    };
    (@cases $mode:ident $fresh:path) => {
        $crate::hive_suite! { @$mode $fresh;
            membership::hv_9_join_inserts_never_upserts
            membership::hv_9_concurrent_joins_of_one_identity_admit_one
            membership::hv_9_a_new_member_is_neither_ready_nor_eligible
            membership::hv_8_two_nodes_of_one_name_are_two_members
            membership::hv_11_a_beat_renews_the_node_alone
            membership::hv_11_a_beat_returns_the_sixteen_soonest_to_expire
            membership::hv_11_a_beat_returns_the_queen
            membership::hv_10_a_read_only_beat_writes_nothing
            membership::hv_13_a_node_without_row_is_no_member
            membership::hv_14_a_removal_names_the_beat_that_was_watched
            membership::hv_14_an_expired_node_is_removed
            membership::hv_14_concurrent_removals_remove_a_node_once
            membership::node_clock_decides_death
            membership::store_outage_buries_everyone
            membership::old_identity_after_restart
            membership::hv_15_instants_too_far_ahead_are_written_back
            membership::hv_18_meta_is_stored_as_it_was_given
            membership::hv_21_leaving_deletes_the_row
            membership::hv_4_hives_do_not_see_each_other
            lease::hv_5_look_creates_missing_leases
            lease::hv_5_a_lease_outlives_its_holder
            lease::hv_33_epochs_only_grow
            lease::hv_33_an_epoch_is_above_its_floor
            lease::hv_33_an_epoch_beyond_its_limit_is_refused
            lease::hv_34_take_compares_the_epoch_seen
            lease::hv_34_a_held_lease_is_not_free
            lease::two_queens_by_check_then_set
            lease::take_robs_live_holder_by_old_snapshot
            lease::same_name_two_leaders
            lease::renew_matches_name_only
            lease::idle_queen_dethroned
            lease::hv_9_an_ineligible_node_takes_no_lease
            lease::hv_34_an_expired_node_takes_no_lease
            lease::hv_35_only_the_holder_releases
            lease::hv_55_many_leases_are_taken_in_one_request
            handover::hv_36_a_transfer_to_itself_mints_a_new_epoch
            handover::hv_36_an_ineligible_holder_may_still_mint_its_own_lease
            handover::hv_45_a_transferred_lease_is_never_free
            handover::hv_45_only_an_eligible_member_becomes_successor
            handover::hv_45_a_successor_is_announced_and_becomes_warm
            handover::hv_41_only_a_valid_fence_names_a_successor
            handover::no_word_on_exit
            events::hv_5_a_store_without_hive_shows_nothing
            events::hv_19_each_change_has_one_version_and_one_event
            events::hv_19_versions_are_gapless_while_many_change
            events::hv_20_events_come_with_the_rows_they_concern
            events::hv_20_a_gap_is_answered_by_the_whole_view
            events::hv_18_an_event_of_a_newer_version_is_still_delivered
            events::hv_19_old_events_are_forgotten
            events::hv_32_history_is_filtered_by_lease_and_time
            events::missed_chore_leaves_no_trace
            events::leader_needs_to_be_reachable_to_ask_who_leads
            engaged::hv_17_alive_ready_engaged
            engaged::hv_27_a_node_stays_engaged_for_30_s_at_most
            engaged::hv_28_the_queen_publishes_on_change_and_periodically
            engaged::hv_28_the_queen_removes_nodes_as_she_counts
            engaged::paused_queen_overwrites_count
            engaged::hv_28_only_the_queen_publishes_counts
            lineage::hv_23_another_lineage_mints_nothing
            lineage::hv_23_a_new_lineage_is_waited_for
            lineage::hv_23_concurrent_finders_record_a_lineage_once
            lineage::hv_61_a_new_bucket_in_a_new_lineage_begins_empty
            lineage::hv_23_a_hive_made_by_us_needs_no_wait
            lineage::hv_23_a_restored_state_waits_for_a_person
            lineage::flushall_lowers_epoch
            limit::hv_71_a_limit_is_defined_once
            limit::hv_71_a_change_takes_effect_later
            limit::hv_61_a_draw_gives_half_the_pool_or_a_whole_need
            limit::hv_61_the_pool_fills_at_its_rate
            limit::hv_61_concurrent_draws_give_no_more_than_the_pool
            reservation::hv_63_concurrent_reservations_stay_within_the_second
            reservation::hv_63_excess_demand_is_split_equally_in_the_second_after
            reservation::hv_63_an_exact_take_keeps_what_nodes_have_reserved
            reservation::hv_63_reserved_permits_do_not_fill_the_pool
            reservation::hv_60_a_clock_that_went_back_reserves_nothing_twice
            reservation::hv_63_a_small_or_slow_limit_is_not_reserved
            lineage::hv_63_a_new_bucket_in_a_new_lineage_counts_as_reserved
            limit::hv_65_exact_admits_to_the_last_permit
            limit::hv_65_concurrent_takes_are_counted_exactly
            limit::hv_65_a_calendar_quota_restarts_with_its_window
            limit::hv_71_a_quota_that_changes_in_its_window_counts_what_was_used
            limit::hv_69_peek_takes_nothing_and_refund_gives_back
            limit::hv_70_several_limits_are_all_or_nothing
            limit::hv_70_opposite_orders_do_not_deadlock
            limit::refusal_still_counts_elsewhere
            limit::double_burst_at_window_edge
            limit::long_window_lost_on_rollout
            limit::deny_cache_outlives_change
            limit::hv_72_full_and_idle_buckets_are_swept
            limit::hv_4_limits_of_hives_are_apart
            slots::hv_68_slots_never_exceed_their_number
            slots::hv_68_a_request_for_slots_may_be_repeated
            slots::hv_68_slots_of_removed_nodes_return
            slots::hv_68_a_node_that_has_not_joined_gets_no_slots
            slots::hv_68_a_lower_number_of_slots_reaches_every_node
            slots::hv_68_slots_outlive_a_change_to_a_rate
            slots::hv_72_a_row_without_slots_is_swept
        }
    };
    (maybe $fresh:path) => { $crate::hive_suite!(@cases maybe $fresh); };
    ($fresh:path) => { $crate::hive_suite!(@cases tests $fresh); };
}
