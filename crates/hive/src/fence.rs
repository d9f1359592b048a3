//! The fence as SQL, one text per dialect: stores put it into the transaction that writes.

use crate::term::Fence;

/// One row = the fence holds. Parameters: 1 lease, 2 epoch, 3 holder (hyphenated lower-case UUID).
pub const SQLITE: &str =
    "select 1 from hive_lease where hive = 'honeyflow' and name = ?1 and epoch = ?2 and holder = ?3";

/// Rows = the fences that hold, locked until the transaction ends: whoever would take a lease waits for those who act
/// under it. `columns` are selected of `hive_lease`, by name of the lease. A transaction over several leases locks them
/// in this order too.
pub fn postgres<'f>(hive: &str, fences: impl IntoIterator<Item = &'f Fence>, columns: &str) -> String {
    let quoted = |text: &str| format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let mut shown: Vec<String> = fences
        .into_iter()
        .map(|fence| format!("({}, {}, '{}'::uuid)", quoted(fence.lease()), fence.epoch().0, fence.holder()))
        .collect();
    shown.sort_unstable();
    shown.dedup();
    let (hive, shown) = (quoted(hive), shown.join(", "));
    format!(
        "select {columns} from hive_lease where hive = {hive} and (name, epoch, holder) in ({shown}) order by name for share"
    )
}
