//! The conformance suite of the hive on MySQL and MariaDB.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use honeyflow_conformance::hive::Rig;
use honeyflow_hive::HiveStore;
use honeyflow_hive_mysql::{MysqlHive, schema};

use crate::TestDatabase;

impl Rig for TestDatabase {
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>> {
        let hive: Arc<dyn HiveStore> = Arc::new(MysqlHive::open(&self.options(hive)).unwrap());
        Box::pin(ready(hive))
    }

    fn step_clock(&self, by_ms: i64) -> BoxFuture<'_, bool> {
        let stepped = move |column: &str| {
            // The column `slot` counts seconds, the others milliseconds.
            let by = if column == "slot" { by_ms.div_euclid(1_000) } else { by_ms };
            format!("{column} = case {column} when 0 then 0 else {column} - {by} end")
        };
        async move {
            for (table, columns) in [
                ("hive_node", &["expires_ms", "engaged_ms"][..]),
                ("hive_lease", &["since_ms"]),
                ("hive_view", &["lineage_ms", "counted_ms"]),
                ("hive_event", &["at_ms"]),
                ("hive_limit", &["pool_ms", "effective_ms", "slot"]),
                ("hive_share", &["until_ms"]),
            ] {
                let columns: Vec<String> = columns.iter().map(|column| stepped(column)).collect();
                self.change(&format!("update {table} set {}", columns.join(", "))).await;
            }
            true
        }
        .boxed()
    }

    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        async {
            self.change("update hive_view set lineage = 'another'").await;
            true
        }
        .boxed()
    }

    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        async {
            self.change("update hive_event set kind = 'swarmed' order by version desc limit 1").await;
            true
        }
        .boxed()
    }

    fn wipe(&self) -> BoxFuture<'_, bool> {
        async {
            for table in schema::TABLES.iter().filter(|table| **table != "hive_meta") {
                self.change(&format!("delete from {table}")).await;
            }
            true
        }
        .boxed()
    }
}

honeyflow_conformance::hive_suite!(maybe TestDatabase::fresh);
