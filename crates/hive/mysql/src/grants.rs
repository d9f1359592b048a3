//! The rights that a node's account needs, as statements for an administrator who creates the tables under another
//! account.

use crate::{literal, schema::TABLES};

/// The grants for Honeyflow's own account on existing tables: it may change their rows and nothing else. Leases are
/// never deleted. An account that may also `create` in the database creates the tables itself.
pub fn for_honeyflow(database: &str, user: &str, host: &str) -> String {
    let account = format!("{}@{}", literal::name(user), literal::name(host));
    let grant = |table: &&str| {
        let rights = if *table == "hive_lease" { "select, insert, update" } else { "select, insert, update, delete" };
        format!("grant {rights} on {}.{} to {account};\n", literal::name(database), literal::name(table))
    };
    TABLES.iter().map(grant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_granted_and_no_lease_may_be_deleted() {
        let grants = for_honeyflow("shop", "worker", "10.%");
        assert_eq!(grants.lines().count(), TABLES.len());
        for table in TABLES {
            assert!(grants.contains(&format!("on `shop`.`{table}` to `worker`@`10.%`;")), "{table}");
        }
        let leases = grants.lines().find(|line| line.contains("hive_lease")).unwrap();
        assert!(!leases.contains("delete"), "{leases}");
    }
}
