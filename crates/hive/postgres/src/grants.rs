//! The rights that a node's role needs, as statements for an administrator who creates the tables under another role.

use crate::{literal, schema};

/// Grants the hive's tables and nothing else: no superuser, no replication. The functions identify the server; every
/// role may call them, unless an administrator has revoked that.
pub fn for_honeyflow(role: &str) -> String {
    let role = literal::name(role);
    let tables = schema::tables().collect::<Vec<_>>().join(", ");
    format!(
        "grant select, insert, update, delete on {tables} to {role};\n\
         grant execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_insert_lsn() to {role};\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_granted() {
        let grants = for_honeyflow("worker");
        for table in schema::tables() {
            assert!(grants.contains(table), "{table} is not granted");
        }
        assert!(grants.contains("to \"worker\""), "{grants}");
    }
}
