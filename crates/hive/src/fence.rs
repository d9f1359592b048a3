//! The fence as text, one per dialect. Code that writes under a term puts it into the statement, transaction or script
//! that writes, so that the store compares the fence and writes in one atomic step.
//!
//! | store              | put before the write                          | refused if it gives            |
//! |--------------------|-----------------------------------------------|--------------------------------|
//! | SQLite             | [`sqlite`], after `begin immediate`           | no row: roll back              |
//! | PostgreSQL         | [`postgres`], first in the transaction        | fewer rows than fences         |
//! | MySQL, MariaDB     | [`mysql`], first in the transaction           | fewer rows than fences         |
//! | Redis              | [`REDIS`], in the script that writes          | false: return without writing  |
//!
//! Each text is a complete query, so a single statement can contain it: `insert into report select 'done' from (…)
//! fence`. On servers the row stays locked until the transaction ends, and a node that wants to take the lease waits
//! for that. Keep the transaction short, and limit its time (`idle_in_transaction_session_timeout`,
//! `idle_transaction_timeout`).

use crate::term::Fence;

/// A query that gives one row if the fence holds. Parameters: 1 hive, 2 lease, 3 epoch, 4 holder (hyphenated lower-case
/// UUID).
pub const SQLITE: &str = "select 1 from hive_lease where hive = ?1 and name = ?2 and epoch = ?3 and holder = ?4";

/// A query that gives one row per fence that holds, ordered by lease name. `columns` are columns of `hive_lease`.
/// SQLite has one writer: during a transaction that began `immediate` no node can take a lease.
pub fn sqlite<'f>(hive: &str, fences: impl IntoIterator<Item = &'f Fence>, columns: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let shown = shown(fences, |fence| each(fence, quoted));
    format!("select {columns} from hive_lease where hive = {} and ({shown}) order by name", quoted(hive))
}

/// A query that gives one row per fence that holds, and locks these rows until the transaction ends: a node that wants
/// to take such a lease waits until the holder's transaction is over. `columns` are columns of `hive_lease`. Rows are
/// ordered by lease name; a transaction over several leases locks them in this order too.
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

/// The same as [`postgres`], for MySQL and MariaDB. Values are written as hexadecimal, because the meaning of a
/// backslash depends on the session.
pub fn mysql<'f>(hive: &str, fences: impl IntoIterator<Item = &'f Fence>, columns: &str) -> String {
    let quoted = |text: &str| {
        use std::fmt::Write;
        let hex = text.bytes().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        format!("_utf8mb4 x'{hex}'")
    };
    let shown = shown(fences, |fence| each(fence, quoted));
    let hive = quoted(hive);
    format!("select {columns} from hive_lease where hive = {hive} and ({shown}) order by name lock in share mode")
}

fn each(fence: &Fence, quoted: impl Fn(&str) -> String) -> String {
    let (lease, holder) = (quoted(fence.lease()), quoted(&fence.holder().to_string()));
    format!("name = {lease} and epoch = {} and holder = {holder}", fence.epoch().0)
}

fn shown<'f>(fences: impl IntoIterator<Item = &'f Fence>, each: impl Fn(&Fence) -> String) -> String {
    let mut shown: Vec<String> = fences.into_iter().map(each).collect();
    shown.sort_unstable();
    shown.dedup();
    if shown.is_empty() { "1 = 0".to_owned() } else { shown.join(" or ") }
}

/// A condition in Lua: true = the fence holds. `KEYS` 1 and 2 are [`redis_keys`], `ARGV` 1 to 3 are
/// [`redis_arguments`]. A script runs alone, so no node can take the lease before the script ends:
///
/// ```
/// let script = format!("if not ({}) then return 0 end redis.call('RPUSH', KEYS[3], ARGV[4]) return 1", honeyflow_hive::fence::REDIS);
/// # assert!(script.contains("HGET"));
/// ```
pub const REDIS: &str =
    "redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] and redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[3]";

/// The keys of the hive's epochs and holders. In a cluster, all keys of a script need the same tag in braces.
pub fn redis_keys(hive: &str) -> [String; 2] {
    [format!("{{hive:{hive}}}:epoch"), format!("{{hive:{hive}}}:holder")]
}

/// Lease, epoch and holder, as text because numbers in Lua are not exact.
pub fn redis_arguments(fence: &Fence) -> [String; 3] {
    [fence.lease().to_string(), fence.epoch().0.to_string(), fence.holder().to_string()]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use honeyflow_event::Epoch;
    use honeyflow_runtime::{Moment, time::BootClock};
    use uuid::Uuid;

    use super::*;
    use crate::{contract::NodeId, term::Term};

    fn fence(lease: &str, epoch: u64) -> Fence {
        let holder = NodeId(Uuid::from_u128(7));
        Term::granted(lease.into(), Epoch(epoch), holder, Moment::FAR, Arc::new(BootClock)).fence()
    }

    #[test]
    fn hv_42_lease_epoch_and_holder_are_named_together() {
        let fence = fence("duty/it's", 42);
        let id = "00000000-0000-0000-0000-000000000007";
        assert_eq!(
            sqlite("a'b", [&fence], "name"),
            format!(
                "select name from hive_lease where hive = 'a''b' and (name = 'duty/it''s' and epoch = 42 and holder = \
                 '{id}') order by name"
            )
        );
        let postgres = postgres("a'b", [&fence], "name");
        assert!(postgres.contains(&format!("(E'duty/it''s', 42, '{id}'::uuid)")) && postgres.ends_with("for share"));
        let mysql = mysql("a", [&fence], "1");
        assert!(mysql.contains("hive = _utf8mb4 x'61' and") && mysql.ends_with("lock in share mode"), "{mysql}");
        assert_eq!(redis_arguments(&fence), ["duty/it's", "42", id]);
        assert_eq!(redis_keys("shop"), ["{hive:shop}:epoch", "{hive:shop}:holder"]);
    }

    #[test]
    fn hv_41_no_fence_holds_nothing() {
        assert!(sqlite("a", [], "1").contains("and (1 = 0)"));
        assert!(mysql("a", [], "1").contains("and (1 = 0)"));
    }

    #[test]
    fn hv_41_several_fences_are_shown_in_one_order() {
        let (one, other) = (fence("duty/a", 1), fence("duty/b", 2));
        assert_eq!(sqlite("h", [&other, &one, &one], "1"), sqlite("h", [&one, &other], "1"));
    }
}
