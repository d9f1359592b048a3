//! The model database keeps the contract that real backends keep (RL-27). Requests of operators, fan-out pages and
//! idempotency keys of the event endpoint are not modelled: no core sends them in a simulation. Its hive is the memory
//! backend's, which runs the hive's suite itself.

mod store {
    use std::sync::Arc;

    use futures_util::future::ready;
    use honeyflow_conformance::store::{Harness, RawRow};
    use honeyflow_event::{Changes, Event, EventId, Kind, PRIORITY_DEFAULT};
    use honeyflow_sim::{model_store::ModelStore, port::ModelPort};

    async fn fresh() -> Harness {
        let port = ModelPort::default();
        let (inserts, clock) = (port.clone(), port.clone());
        Harness {
            store: Arc::new(port.clone()),
            hive: Arc::new(port),
            insert: Box::new(move |raw| Box::pin(ready(insert(&inserts, raw)))),
            pass: Box::new(move |time| {
                clock.model().0 += u64::try_from(time.as_micros()).unwrap_or(0);
                Box::pin(ready(()))
            }),
            edge: None,
            keep: Box::new(()),
        }
    }

    fn insert(port: &ModelPort, raw: RawRow) -> EventId {
        let mut model = port.model();
        let store_ms = ModelStore::clock_ms(model.0);
        let store = &mut model.1;
        let event = Event {
            id: raw.id.unwrap_or_else(|| store.take_id()),
            format: 1,
            kind: raw.kind.unwrap_or(Kind::Row),
            tenant: "".into(),
            entity: raw.entity.into(),
            key: raw.key.into(),
            priority: raw.priority.unwrap_or(PRIORITY_DEFAULT),
            workflow: raw.workflow.map(Into::into),
            created_ms: store_ms,
            dedupe: raw.dedupe.map(Into::into),
            traceparent: None,
            root: None,
            change: Changes::UNKNOWN,
            columns: None,
            payload: raw.payload.map(Into::into),
        };
        let id = event.id;
        store.insert(event, raw.ready_in_ms.map(|wait| store_ms + wait));
        id
    }

    honeyflow_conformance::store_suite! { @tests fresh;
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
        ob_44_settle_deletes_exactly_the_rows_named
        ob_44_missing_rows_count_as_settled
        ob_44_one_refused_write_leaves_others_alone
        ob_47_charges_are_recovered_and_cleared_by_success
        wf_80_checkpoints_are_recovered_with_their_rows
        wf_33_emitted_events_are_stored_once
        wf_80_the_end_of_a_wait_replaces_the_wait
        wf_35_a_signal_is_found_by_name_and_key_until_it_expires
        wf_35_a_signal_is_stored_once
        wf_35_a_stale_owner_stores_no_signal
        a_replaced_row_is_replaced_once
        append_stores_events_as_they_are
        ob_18_a_finished_event_is_not_run_again_under_its_dedupe_key
        wf_20_equal_content_keeps_its_version
        wf_20_concurrent_puts_agree
        wf_21_a_begun_run_finds_its_definition
        ob_99_events_that_still_wait_are_found_by_id
    }
}
