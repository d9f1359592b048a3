//! What every store promises. A backend makes a new [`Harness`] and names it to [`store_suite!`](crate::store_suite).
//!
//! Each case gets its own harness. Cases use the store through requests alone; only rows that an application would
//! write come through a hook.

mod admin;
mod append;
mod definition;
mod fence;
mod journal;
mod parked;
mod poll;
mod settle;
mod signal;

use std::{any::Any, sync::Arc, time::Duration};

pub use admin::*;
pub use append::*;
pub use definition::*;
pub use fence::*;
use futures_util::future::BoxFuture;
use honeyflow_event::{Changes, Event, EventId, Kind, PRIORITY_DEFAULT, PRIORITY_LEVELS, Stamp};
use honeyflow_hive::{
    Fence, HiveStore, NodeId, Term,
    contract::{Claim, Mint},
};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply, NewEvent, Op, Poll, PollReply, RecoveredState, Reply, Request, RunKey, Statement, Store, Write,
    admin::{ParkedFilter, ParkedRow, RetryMode},
    poll::{Level, Sweep},
    write::{Checkpoint, CheckpointOutcome, ParkRequest},
};
pub use journal::*;
pub use parked::*;
pub use poll::*;
pub use settle::*;
pub use signal::*;

/// A store that only this test uses, and its hive.
pub struct Harness {
    pub store: Arc<dyn Store>,
    pub hive: Arc<dyn HiveStore>,
    /// Inserts a row as an application would, with only the columns that are set; returns its id.
    pub insert: Box<dyn Fn(RawRow) -> BoxFuture<'static, EventId> + Send + Sync>,
    /// Lets time pass on the store's clock.
    pub pass: Box<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>,
    /// An edge statement that leads from the cause `7` to the containers `11` to `35`, if the store supports edges.
    pub edge: Option<Arc<Statement>>,
    /// Folders and the like, dropped last.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// A row as an application writes it; columns that are not set are left out of the insert.
#[derive(Clone, Debug, Default)]
pub struct RawRow {
    pub id: Option<EventId>,
    pub kind: Option<Kind>,
    pub entity: &'static str,
    pub key: String,
    pub priority: Option<u8>,
    pub workflow: Option<&'static str>,
    /// `ready_at`, relative to now; it may be in the past.
    pub ready_in_ms: Option<i64>,
    pub dedupe: Option<&'static str>,
    pub payload: Option<String>,
}

pub const LEASE: &str = "shard/conformance/0";
const FAR: EventId = EventId::MAX;

impl Harness {
    pub async fn book(&self, key: &str) -> EventId {
        (self.insert)(RawRow { entity: "book", key: key.into(), ..RawRow::default() }).await
    }

    pub async fn raw(&self, raw: RawRow) -> EventId {
        (self.insert)(raw).await
    }

    pub async fn term(&self) -> Term {
        let node = NodeId(uuid::Uuid::new_v4());
        honeyflow_hive::member::take(&*self.hive, node, LEASE).await.expect("a fresh hive gives a term")
    }

    /// A fence that was valid until its lease got a new epoch.
    pub async fn stale_fence(&self) -> Fence {
        let term = self.term().await;
        let head = match self.hive.call(honeyflow_hive::Request::View).await.expect("view") {
            honeyflow_hive::Reply::View(view) => view.head,
            other => panic!("{other:?}"),
        };
        let request = honeyflow_hive::Request::HandOver {
            node: term.holder(),
            successor: term.holder(),
            claims: vec![Claim::new(LEASE.into(), term.epoch())],
            cause: "test".into(),
            mint: Mint { lineage: head.server.into(), watched: false },
        };
        let minted = self.hive.call(request).await.expect("hand over");
        let honeyflow_hive::Reply::Taken(held) = &minted else { panic!("{minted:?}") };
        assert!(held[0].epoch > term.epoch(), "{minted:?}");
        term.fence()
    }

    pub async fn call(&self, request: Request) -> Result<Reply, Failure> {
        self.store.call(request).await
    }

    pub async fn write(&self, fence: &Fence, ops: Vec<Op>) -> Reply {
        self.call(Request::Write(Write { fence: fence.clone(), ops })).await.expect("write")
    }

    pub async fn commit(&self, fence: &Fence, ops: Vec<Op>) {
        let reply = self.write(fence, ops).await;
        assert!(matches!(reply, Reply::Committed), "{reply:?}");
    }

    pub async fn poll(&self, poll: Poll) -> PollReply {
        match self.call(Request::Poll(poll)).await.expect("poll") {
            Reply::Polled(polled) => polled,
            other => panic!("{other:?}"),
        }
    }

    /// All events that are due now, in the order of levels.
    pub async fn waiting(&self) -> Vec<Event> {
        self.poll(everything()).await.events
    }

    pub async fn waiting_ids(&self) -> Vec<EventId> {
        ids(&self.waiting().await)
    }

    pub async fn append(&self, events: Vec<NewEvent>) -> Vec<EventId> {
        match self.call(Request::Append { events, idempotency: None }).await.expect("append") {
            Reply::Appended { ids, repeated: false } => ids,
            other => panic!("{other:?}"),
        }
    }

    pub async fn recover(&self) -> RecoveredState {
        self.recover_shard(0).await
    }

    pub async fn recover_shard(&self, shard: u16) -> RecoveredState {
        match self.call(Request::Recover { shard }).await.expect("recover") {
            Reply::Recovered(recovered) => recovered,
            other => panic!("{other:?}"),
        }
    }

    pub async fn admin(&self, admin: Admin) -> AdminReply {
        match self.call(Request::Admin(admin)).await.expect("admin") {
            Reply::Admin(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub async fn parked(&self) -> Vec<ParkedRow> {
        match self.admin(Admin::Parked { filter: ParkedFilter::default(), after: 0, limit: 1000 }).await {
            AdminReply::Parked(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    /// All stored data, without times: two equal texts mean that nothing has changed.
    pub async fn picture(&self) -> String {
        let sweep = Sweep { from: 0, to: FAR, room: 10_000, known: Arc::default() };
        let mut events = self.poll(Poll { sweep: Some(sweep), ..everything() }).await.events;
        events.iter_mut().for_each(|event| event.created_ms = 0);
        let mut parked = self.parked().await;
        parked.iter_mut().for_each(|row| row.parked_ms = 0);
        let mut recovered = self.recover().await;
        recovered.failures.iter_mut().for_each(|charged| charged.due_in = Duration::ZERO);
        let AdminReply::Lag(mut lag) = self.admin(Admin::Lag).await else { panic!("no lag") };
        lag.oldest_ms = 0;
        let AdminReply::History(mut history) = self.admin(Admin::History { limit: 100 }).await else {
            panic!("no history")
        };
        history.iter_mut().for_each(|run| run["ended_ms"] = 0.into());
        let RecoveredState { failures, checkpoints, .. } = recovered;
        format!("{events:#?}\n{parked:#?}\n{failures:#?}\n{checkpoints:#?}\n{lag:?}\n{history:?}")
    }
}

/// A poll with room for all rows, from the start.
pub fn everything() -> Poll {
    Poll {
        shard: 0,
        levels: [Level { after: 0, room: 10_000 }; PRIORITY_LEVELS],
        newest: 0,
        sweep: None,
        passed_over: Vec::new(),
        payload_bytes_max: 1 << 20,
    }
}

pub fn ids(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}

pub fn run(key: &str, workflow: &str) -> RunKey {
    RunKey { tenant: "".into(), entity: "book".into(), key: key.into(), workflow: workflow.into() }
}

pub fn new_event(key: &str) -> NewEvent {
    NewEvent {
        kind: Kind::Row,
        tenant: "".into(),
        entity: "book".into(),
        key: key.into(),
        priority: PRIORITY_DEFAULT,
        workflow: None,
        delay: None,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    }
}

pub fn retry(filter: ParkedFilter) -> Admin {
    Admin::RetryParked { filter, mode: RetryMode::Continue }
}

pub fn settle(events: &[EventId], runs: &[RunKey]) -> Op {
    Op::Settle { events: events.to_vec(), runs: runs.to_vec() }
}

pub fn charge(key: &str, attempts: u32) -> Op {
    Op::Charge {
        run: run(key, "index"),
        step: "load".into(),
        index: 0,
        attempts,
        due_in: Duration::from_secs(60),
        failure: Failure::reject("bad-value", "no number"),
    }
}

pub fn park(key: &str, workflow: &str, events: &[EventId]) -> Op {
    Op::Park(Box::new(ParkRequest {
        run: run(key, workflow),
        message: None,
        events: events.to_vec(),
        priority: 3,
        version: 2,
        step: "load".into(),
        attempts: 5,
        failure: Failure::reject("bad-value", "no number"),
        change: Changes::UPDATE,
        columns: Some(r#"["title"]"#.into()),
        payload: Some("{\"a\":1}".into()),
        kind: Kind::Row,
    }))
}

pub fn checkpoint(key: &str, covers: &[EventId], outcome: CheckpointOutcome, emit: Vec<NewEvent>) -> Op {
    Op::Checkpoint(Box::new(Checkpoint {
        run: run(key, "index"),
        version: 2,
        covers: covers.to_vec(),
        phase: 0,
        step: "call".into(),
        index: 0,
        attempt: 1,
        stamp: Stamp((1 << 61) + 5),
        outcome,
        emit,
    }))
}

/// Makes a test of every case. `$fresh` is an async function that returns a [`Harness`](crate::store::Harness); after
/// `maybe`, it returns None where there is no server.
#[macro_export]
macro_rules! store_suite {
    (@tests $fresh:path; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let harness = $fresh().await;
                $crate::store::$case(&harness).await;
            }
        )*
    };
    (@maybe $fresh:path; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let Some(harness) = $fresh().await else { return };
                $crate::store::$case(&harness).await;
            }
        )*
    };
    (@run $fresh:path; $($case:ident)*) => {
        $( $crate::store::$case(&$fresh().await).await; )*
    };
    (@cases $mode:ident $fresh:path) => {
        $crate::store_suite! { @$mode $fresh;
            ob_4_a_plain_insert_is_a_complete_event
            ob_2_ids_are_never_used_again
            ob_36_a_poll_is_in_the_order_of_priority_then_id
            ob_36_a_poll_never_exceeds_its_room
            ob_36_rows_up_to_the_position_are_not_read_again
            ob_36_the_newest_come_last_and_only_once
            ob_37_a_sweep_finds_an_id_below_the_position
            ob_37_a_sweep_skips_known_ids
            rows_that_are_passed_over_stay_where_they_are
            a_poll_returns_how_far_it_has_looked
            ob_18_a_delayed_row_is_not_polled_before_it_is_due
            ob_18_a_due_row_is_polled_below_the_position
            an_oversized_row_is_named_and_not_read
            an_oversized_row_is_parked_whole
            ob_44_settle_deletes_exactly_the_rows_named
            ob_44_missing_rows_count_as_settled
            ob_44_a_stale_owner_changes_nothing
            ob_44_one_refused_write_leaves_others_alone
            every_write_may_be_repeated
            ob_48_parking_writes_the_entry_and_deletes_the_row
            ob_48_a_row_with_further_obligations_is_not_deleted
            ob_48_retry_makes_an_event_for_that_workflow_alone
            ob_48_retry_resets_the_attempts
            ob_48_drop_removes_the_filtered_entries
            ob_48_parked_entries_are_paged
            ob_49_success_heals_parked_entries_of_the_same_workflow
            ob_59_parked_messages_are_kept_apart
            ob_47_charges_are_recovered_and_cleared_by_success
            ob_61_a_shard_recovers_only_its_own_runs
            wf_80_checkpoints_are_recovered_with_their_rows
            wf_33_emitted_events_are_stored_once
            wf_80_the_end_of_a_wait_replaces_the_wait
            wf_35_a_signal_is_found_by_name_and_key_until_it_expires
            wf_35_a_signal_is_stored_once
            wf_35_a_stale_owner_stores_no_signal
            a_replaced_row_is_replaced_once
            ob_29_a_fan_out_goes_page_by_page
            ob_29_a_fan_out_waits_while_too_many_are_pending
            append_stores_events_as_they_are
            append_with_the_same_idempotency_key_is_a_repeat
            append_with_another_body_is_a_conflict
            ob_18_a_finished_event_is_not_run_again_under_its_dedupe_key
            a_pause_is_stored_until_it_is_resumed
            ob_82_lag_is_counted_in_the_store
            history_events_and_tasks_are_listed
            ob_99_events_that_still_wait_are_found_by_id
            wf_20_equal_content_keeps_its_version
            wf_20_concurrent_puts_agree
            wf_21_a_begun_run_finds_its_definition
            wf_74_a_retried_run_is_polled_with_its_checkpoints
            wf_74_a_replay_drops_the_named_outputs
        }
    };
    (maybe $fresh:path) => { $crate::store_suite!(@cases maybe $fresh); };
    ($fresh:path) => { $crate::store_suite!(@cases tests $fresh); };
}

/// Runs all cases one after the other, each on a new harness.
pub async fn run_all<F: Future<Output = Harness>>(fresh: impl Fn() -> F) {
    crate::store_suite!(@cases run fresh);
}
