//! The fence as SQL, one text per dialect: stores put it into the transaction that writes.

/// One row = the fence holds. Parameters: 1 lease, 2 epoch, 3 holder (hyphenated lower-case UUID).
pub const SQLITE: &str =
    "select 1 from hive_lease where hive = 'honeyflow' and name = ?1 and epoch = ?2 and holder = ?3";
