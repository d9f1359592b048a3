//! What every hive promises. A backend makes a fresh [`Rig`] and names it to [`hive_suite!`](crate::hive_suite).

pub mod bee;
pub mod booking;
pub mod engaged;
pub mod events;
pub mod handover;
pub mod lease;
pub mod limit;
pub mod lineage;
pub mod membership;
pub mod slots;

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all, ready};
use honeyflow_hive::{HiveStore, contract::View};

pub use bee::Bee;

/// A fresh store of one backend, in which no hive was ever made and no lineage has to be waited for.
pub trait Rig: Send + Sync {
    /// A connection of its own to the hive of that name in this store. Dropped, it is as if its process had died.
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>>;

    /// The store's clock steps, or, which is the same to the rules, every stored instant steps the other way: of nodes,
    /// view, events and limits, in all hives of the rig. False if that cannot be had; the case is skipped.
    fn step_clock(&self, _by_ms: i64) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// What the hives have recorded is no longer what the server says it is. False: skipped.
    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// The newest event of each hive was written by a newer version, and is of a kind that nobody here knows.
    /// False: skipped.
    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Everything is lost, under open connections. False: skipped.
    fn wipe(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Whether a new lineage is waited for. Not on SQLite: it is the same file.
    fn waits_for_lineage(&self) -> bool {
        true
    }

    /// Whether a state that went back stands still until a person has accepted it. On Redis it is a new lineage.
    fn holds_after_restore(&self) -> bool {
        true
    }
}

/// What a case works with.
pub struct Table<'a> {
    rig: &'a dyn Rig,
    case: &'static str,
}

/// The hive that all cases use, and its neighbour.
pub const HIVE: &str = "conformance";
pub const NEIGHBOUR: &str = "neighbour";

pub const HEARTBEAT_MS: u64 = 2_000;
/// Longer than any pause of a busy machine: where a life has to end, the clock is moved.
pub const TTL_MS: u64 = 30_000;

/// How many do the same at once, where a rule is about races.
pub const RACERS: usize = 8;

impl<'a> Table<'a> {
    pub fn new(rig: &'a dyn Rig, case: &'static str) -> Table<'a> {
        Table { rig, case }
    }

    pub async fn open(&self) -> Arc<dyn HiveStore> {
        self.rig.open(HIVE).await
    }

    /// Joined on a connection of its own, ready and eligible.
    pub async fn bee(&self) -> Bee {
        let bee = self.newcomer("bee").await;
        bee.beat().await;
        bee
    }

    /// Joined, and no more.
    pub async fn newcomer(&self, name: &str) -> Bee {
        Bee::join(self.open().await, name, TTL_MS).await
    }

    pub async fn bees(&self, count: usize) -> Vec<Bee> {
        join_all((0..count).map(|_| self.bee())).await
    }

    /// What stands, as somebody sees it who has not joined.
    pub async fn view(&self) -> View {
        bee::view(&*self.open().await).await
    }

    pub async fn step_clock(&self, by_ms: i64) -> bool {
        self.or_skip(self.rig.step_clock(by_ms).await, "the clock of this store cannot be moved")
    }

    pub async fn change_lineage(&self) -> bool {
        self.or_skip(self.rig.change_lineage().await, "this store has one lineage")
    }

    pub async fn write_newer_event(&self) -> bool {
        self.or_skip(self.rig.write_newer_event().await, "this store holds kinds, not their names")
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

/// Makes a test of every case. `$fresh` is an async function that answers a [`Rig`](crate::hive::Rig); after `maybe` one
/// that answers none where there is no server, having said so.
#[macro_export]
macro_rules! hive_suite {
    (@tests $fresh:path; $($theme:ident :: $case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let rig = $fresh().await;
                $crate::hive::$theme::$case(&$crate::hive::Table::new(&rig, stringify!($case))).await;
            }
        )*
    };
    (@maybe $fresh:path; $($theme:ident :: $case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(rig) = $fresh().await else { return };
                $crate::hive::$theme::$case(&$crate::hive::Table::new(&rig, stringify!($case))).await;
            }
        )*
    };
    (@cases $mode:ident $fresh:path) => {
        $crate::hive_suite! { @$mode $fresh;
            membership::hv_9_join_inserts_never_upserts
            membership::hv_9_of_many_joins_of_one_identity_one_is_answered
            membership::hv_9_who_has_joined_is_neither_ready_nor_eligible
            membership::hv_8_two_nodes_of_one_name_are_two_members
            membership::hv_11_a_beat_renews_the_node_alone
            membership::hv_11_a_beat_tells_of_the_sixteen_soonest_to_expire
            membership::hv_11_a_beat_tells_of_the_queen
            membership::hv_10_a_read_only_beat_writes_nothing
            membership::hv_13_a_node_without_row_is_no_member
            membership::hv_14_a_burial_names_the_beat_that_was_watched
            membership::hv_14_an_expired_node_is_buried
            membership::hv_14_of_many_buriers_one_buries
            membership::node_clock_decides_death
            membership::store_outage_buries_everyone
            membership::old_identity_after_restart
            membership::hv_15_instants_too_far_ahead_are_written_back
            membership::hv_18_meta_is_kept_as_it_was_given
            membership::hv_21_leaving_deletes_the_row
            membership::hv_4_hives_do_not_see_each_other
            lease::hv_5_look_makes_what_is_missing
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
            lease::hv_9_who_is_not_eligible_takes_nothing
            lease::hv_34_who_has_expired_takes_nothing
            lease::hv_35_only_the_holder_releases
            lease::hv_55_many_leases_are_taken_at_once
            handover::hv_36_a_hand_over_to_itself_mints_anew
            handover::hv_36_who_is_not_eligible_may_still_mint_its_own_anew
            handover::hv_45_a_hand_over_is_never_vacant
            handover::hv_45_only_who_may_lead_is_an_heir
            handover::hv_45_an_heir_is_announced_and_gets_warm
            handover::hv_41_only_a_fence_that_holds_names_an_heir
            handover::no_word_on_exit
            events::hv_5_a_store_without_hive_shows_nothing
            events::hv_19_each_change_has_one_version_and_one_event
            events::hv_19_versions_are_gapless_while_many_change
            events::hv_20_events_bring_the_rows_they_concern
            events::hv_20_a_gap_is_answered_by_the_whole_view
            events::hv_18_an_event_of_a_newer_version_is_told_all_the_same
            events::hv_19_old_events_are_forgotten
            events::hv_32_history_is_told_by_lease_and_time
            events::missed_chore_leaves_no_trace
            events::leader_needs_to_be_reachable_to_ask_who_leads
            engaged::hv_17_alive_ready_engaged
            engaged::hv_27_nobody_stays_engaged_longer_than_its_time
            engaged::hv_28_the_queen_publishes_on_change_and_now_and_then
            engaged::hv_28_the_queen_buries_as_she_counts
            engaged::paused_queen_overwrites_count
            engaged::hv_28_only_the_queen_counts_for_all
            lineage::hv_23_another_lineage_mints_nothing
            lineage::hv_23_a_new_lineage_is_waited_for
            lineage::hv_23_of_many_finders_one_records
            lineage::hv_61_a_new_bucket_in_a_new_lineage_begins_empty
            lineage::hv_23_a_hive_made_by_us_needs_no_wait
            lineage::hv_23_a_state_that_went_back_is_held
            lineage::flushall_lowers_epoch
            limit::hv_71_a_limit_is_defined_once
            limit::hv_71_a_change_comes_into_force_later
            limit::hv_61_a_draw_gives_half_the_pool_or_a_need_whole
            limit::hv_61_the_pool_fills_at_its_rate
            limit::hv_61_many_draws_at_once_give_no_more
            booking::hv_63_many_at_once_book_no_more_than_there_is
            booking::hv_63_who_wants_too_much_gets_an_equal_part_of_the_second_after
            booking::hv_63_a_decision_of_the_store_forgets_nothing_of_who_booked
            booking::hv_63_what_is_booked_does_not_fill_the_pool
            booking::hv_60_a_clock_that_went_back_books_nothing_twice
            booking::hv_63_a_small_or_slow_limit_is_not_booked
            lineage::hv_63_a_new_bucket_in_a_new_lineage_is_booked
            limit::hv_65_exact_admits_to_the_last_permit
            limit::hv_65_many_at_once_are_counted_exactly
            limit::hv_65_a_calendar_quota_begins_anew_with_its_window
            limit::hv_71_a_quota_that_changes_in_its_window_counts_what_was_used
            limit::hv_69_peek_takes_nothing_and_refund_gives_back
            limit::hv_70_several_limits_are_all_or_nothing
            limit::hv_70_opposite_orders_do_not_lock_each_other_out
            limit::refusal_still_counts_elsewhere
            limit::double_burst_at_window_edge
            limit::long_window_lost_on_rollout
            limit::deny_cache_outlives_change
            limit::hv_72_full_and_idle_buckets_are_swept
            limit::hv_4_limits_of_hives_are_apart
            slots::hv_68_slots_never_exceed_their_number
            slots::hv_68_an_ask_may_be_repeated
            slots::hv_68_slots_of_the_dead_return
            slots::hv_68_who_has_not_joined_has_no_slots
            slots::hv_68_fewer_slots_are_told_to_everybody
            slots::hv_68_slots_outlive_a_change_to_a_rate
            slots::hv_72_that_a_node_has_no_slots_is_forgotten
        }
    };
    (maybe $fresh:path) => { $crate::hive_suite!(@cases maybe $fresh); };
    ($fresh:path) => { $crate::hive_suite!(@cases tests $fresh); };
}
