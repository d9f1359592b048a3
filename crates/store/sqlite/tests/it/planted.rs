//! RL-43: the suite finds the planted bugs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use honeyflow_conformance::store::{self, Harness};
use honeyflow_store_sqlite::planted::plant;

use crate::conformance::fresh;

fn fails(bug: &'static str, case: impl AsyncFnOnce(&Harness)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    plant(Some(bug));
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { case(&fresh().await).await })));
    plant(None);
    result.is_err()
}

/// PB-2
#[test]
fn rl_43_a_journal_without_a_fence_is_found() {
    assert!(fails("PB-2", async |store| store::ob_44_a_stale_owner_changes_nothing(store).await));
    assert!(!fails("PB-2", async |store| store::every_write_may_be_repeated(store).await), "other cases still pass");
}

/// PB-20
#[test]
fn rl_43_a_park_that_leaves_its_rows_is_found() {
    assert!(fails("PB-20", async |store| store::ob_48_parking_writes_the_entry_and_deletes_the_row(store).await));
    assert!(!fails("PB-20", async |store| store::ob_44_a_stale_owner_changes_nothing(store).await));
}
