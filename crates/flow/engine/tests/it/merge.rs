//! Which rows are merged, which wait, and when rows are deleted.

use honeyflow_engine::core::{Input, plan::Limits};
use honeyflow_event::{Epoch, Stamp};
use honeyflow_step::Outcome;
use honeyflow_store::Reply;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, keys, plain, settled};

#[test]
fn ob_39_rows_of_a_key_merge_until_an_attempt_is_given_out() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a"), (2, "a"), (3, "b")]);
    assert_eq!(keys(&table.done("load")), ["a", "b"], "one run for both rows of a");
    table.done("index");
    assert_eq!(settled(&table.commit()), [1, 2, 3]);
}

/// OB-40: and WF-66.
#[test]
fn ob_40_one_run_per_key_until_its_acknowledgement_has_committed() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.rows(&[(2, "a"), (3, "a")]);
    table.done("index");
    assert!(table.given.is_empty(), "the key is held until the commit");
    assert_eq!(settled(&table.commit()), [1]);
    assert_eq!(keys(&table.done("load")), ["a"], "the rows that arrived meanwhile form one run");
    table.done("index");
    assert_eq!(settled(&table.commit()), [2, 3]);
    assert_eq!(table.open_runs(), 0);
}

/// RL-13: no row is deleted before the sink has confirmed; then exactly the rows that the run read are.
#[test]
fn rl_13_a_row_is_deleted_by_its_id_after_its_sink_has_confirmed() {
    let mut table = Table::new(&plain());
    table.rows(&[(7, "a")]);
    table.done("load");
    assert!(table.written.is_empty());
    table.done("index");
    assert_eq!(settled(&table.commit()), [7]);
}

/// RL-10: a write refused by a higher sequence of the same epoch is superseded, and the step is done. If a higher epoch
/// refused it, the reason is unknown: the core asks for a higher epoch, and the run begins again.
#[test]
fn rl_10_refused_by_a_newer_epoch_is_not_superseded() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, work) = table.next();
    let sent = work.items[0].stamp;
    let superseded = Stamp::new(sent.epoch(), 77);
    table.answer(batch, 1, &Outcome::Stale { stored: superseded });
    assert_eq!((settled(&table.commit()), table.minted), (vec![1], 0));

    table.rows(&[(2, "a")]);
    table.done("load");
    let (batch, work) = table.next();
    let newer = Stamp::new(Epoch(work.items[0].stamp.epoch().0 + 5), 1);
    table.answer(batch, 1, &Outcome::Stale { stored: newer });
    assert_eq!((table.minted, table.written.len()), (1, 0), "the row stays");
    assert_eq!((table.open_runs(), table.reason()), (1, "shard-moving"));
    assert_eq!(table.alarms, ["sink-ahead"]);
}

/// HV-50: the core asks for the next epoch before the old one is used up, and no step waits for it.
#[test]
fn hv_50_the_next_epoch_comes_without_a_pause() {
    let limits = Limits { sequence_max: 128, ..Limits::default() };
    let mut table = Table::with_limits(&plain(), limits);
    let mut row = 0;
    let mut load = |table: &mut Table| {
        row += 1;
        table.rows(&[(row, &row.to_string())]);
        let stamp = table.given.front().map(|(_, work)| work.items[0].stamp);
        if stamp.is_some() {
            table.done("load");
            table.done("index");
            assert_eq!(settled(&table.commit()), [row]);
        }
        stamp
    };
    let first = load(&mut table).expect("stamped");
    while table.minted == 0 {
        assert!(load(&mut table).is_some_and(|stamp| stamp.epoch() == first.epoch()));
    }
    // The new epoch has not been granted yet: work continues under the rest of the old one.
    let meanwhile = load(&mut table).expect("nothing waits");
    assert_eq!((meanwhile.epoch(), table.minted), (first.epoch(), 1));
    assert!(meanwhile.sequence() > 120, "{meanwhile}");
    // The old epoch is used up: only now the work waits, and it continues as soon as the new epoch is granted.
    while load(&mut table).is_some() {}
    assert_eq!(table.minted, 1);
    table.mint();
    let (_, work) = table.next();
    assert!(work.items[0].stamp.epoch() > first.epoch());
}

/// WF-23: a row that owes runs to two workflows is deleted with the last of them.
#[test]
fn wf_23_a_row_is_deleted_with_its_last_obligation() {
    let mut both = plain();
    both.push(Workflow::new("mail").on("shop", "book").step("call", step("work")));
    let mut table = Table::new(&both);
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit()), [0_i64; 0], "mail is still owed");
    table.done("call");
    assert_eq!(settled(&table.commit()), [1]);
}

/// OB-44: a refused acknowledgement does not count as one.
#[test]
fn ob_44_a_refused_acknowledgement_frees_no_key() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    let (write, _) = table.written.pop_front().expect("written");
    table.send(Input::Written { write, result: Ok(Reply::Fenced) });
    assert_eq!((table.open_runs(), table.minted), (1, 1), "it asks whether the lease is still ours");
    table.send(Input::Lost { lease: "shard/shop/0".into() });
    assert_eq!(table.open_runs(), 0, "all runs are dropped; the row is still in the table");
}

#[test]
fn wf_94_without_workers_sources_give_at_most_max_runs() {
    let limits = Limits { runs_max: 8, ..Limits::default() };
    let mut table = Table::with_limits(&plain(), limits);
    let asked = table.polled();
    let room: u32 = asked.levels.iter().map(|level| level.room).sum::<u32>() + asked.newest;
    assert!((1..=8).contains(&room), "{room}");
    let names: Vec<String> = (0..room).map(|n| n.to_string()).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    assert!(table.open_runs() <= 8);
}

/// A person's change does not wait behind a reindex of the same key.
#[test]
fn wf_69_a_newer_event_raises_the_priority_of_its_run() {
    let one_by_one = Workflow::new("index").on("shop", "book").step("load", step("load").set("batch", 1));
    let mut table = Table::new(&[one_by_one]);
    table.send(Input::Hello { worker: 0, room: Vec::new() });
    table.rows_at(8, &[(1, "other"), (2, "book")]);
    table.rows(&[(3, "book")]);
    table.send(Input::Hello { worker: 0, room: vec![(1, 1)] });
    assert_eq!(keys(&table.done("load")), ["book"]);
    assert_eq!(keys(&table.done("load")), ["other"]);
    assert!(table.given.is_empty(), "no step is given out twice");
    let mut gone = settled(&table.commit());
    while !table.written.is_empty() {
        gone.extend(settled(&table.commit()));
    }
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3]);
}
