//! The grants that a role needs, as statements for an operator who installs the tables under another role.

use crate::literal;

const TABLES: [&str; 11] =
    ["meta", "outbox", "checkpoint", "failure", "parked", "dedupe", "definition", "pause", "signal", "task", "run"];

/// Returns the grants for Honeyflow's role: its own tables, those of the hive, and reading the tables that documents
/// are made of. Nothing else: no superuser, no replication. It includes `update`, because locking a row requires it.
pub fn for_honeyflow(role: &str, read: &[&str]) -> String {
    let role = literal::name(role);
    let ours = TABLES.map(|table| format!("honeyflow_{table}")).join(", ");
    let mut grants = format!(
        "grant select, insert, update, delete on {ours} to {role};\n\
         grant select, insert, update, delete on hive_lease to {role};\n\
         grant usage on sequence honeyflow_outbox_id_seq to {role};\n"
    );
    for table in read {
        grants.push_str(&format!("grant select on {} to {role};\n", literal::name(table)));
    }
    grants
}

/// Returns the grants for an application that writes events itself. If triggers write them, it needs none.
pub fn for_application(role: &str) -> String {
    format!("grant insert on honeyflow_outbox to {};\n", literal::name(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_21_every_table_is_granted() {
        let grants = for_honeyflow("worker", &["book"]);
        for line in crate::schema::ddl(64).lines().filter_map(|line| line.strip_prefix("create table ")) {
            let table = line.trim_end_matches(" (");
            assert!(grants.contains(table), "{table} is not granted");
        }
        assert!(grants.contains("grant select on \"book\" to \"worker\""));
    }
}
