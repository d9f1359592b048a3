//! RL-43: proves with planted bugs that the suite finds the bugs it was written for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use honeyflow_conformance::sink;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::planted::plant;
use serde_json::json;

use crate::{OnDisk, open, stamp};

fn fails(bug: &'static str, case: impl AsyncFnOnce(&OnDisk)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    plant(Some(bug));
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(&OnDisk::new()))));
    plant(None);
    result.is_err()
}

/// PB-3
#[test]
fn rl_43_a_sink_that_compares_no_versions_is_found() {
    assert!(fails("no-version-check", async |backend| sink::older_is_stale(backend).await));
    assert!(fails("no-version-check", async |backend| sink::a_batch_is_in_order(backend).await));
    assert!(!fails("no-version-check", async |backend| sink::newer_wins(backend).await), "the rest still works");
}

/// PB-28
#[test]
fn rl_43_a_delete_without_tombstone_is_found() {
    assert!(fails("no-tombstone", async |backend| sink::a_delayed_write_does_not_resurrect(backend).await));
    assert!(fails("no-tombstone", async |backend| sink::delete_of_an_absent_key_is_done(backend).await));
    assert!(!fails("no-tombstone", async |backend| sink::older_is_stale(backend).await), "the rest still works");
}

/// A disk that fails to sync is not a bug of this program, but it is planted in the same way.
#[tokio::test]
async fn f27_after_a_failed_sync_the_index_is_suspect() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()));
    plant(Some("sync-fails"));
    let sink = open(home.path());
    plant(None);
    for n in 0..2 {
        let answers = sink.write(vec![sink::put("a", stamp(1, n), json!({}))]).await;
        let [Outcome::Failed(failure)] = &answers[..] else { panic!("taken for durable: {answers:?}") };
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, "index-suspect"), "no second sync makes it good");
    }
    drop(sink);
    let after_restart = honeyflow_sink_tantivy::TantivySink::open(crate::options(home.path()));
    assert_eq!(after_restart.err().unwrap().code, "index-damaged");
}
