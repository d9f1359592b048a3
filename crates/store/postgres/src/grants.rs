//! What roles may do, as statements for whoever installs the tables under another role.

use crate::literal;

const TABLES: [&str; 11] =
    ["meta", "outbox", "checkpoint", "failure", "parked", "dedupe", "definition", "pause", "signal", "task", "run"];

/// For Honeyflow's own role: our tables, those of the hive, and reading what documents are made of. Nothing else: no
/// superuser, no replication. Changing a row is part of it because locking one is.
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

/// For an application that writes events itself. Where triggers write them, it needs nothing.
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
