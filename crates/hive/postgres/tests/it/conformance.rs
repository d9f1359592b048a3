//! The conformance suite of the hive: directly on the server, and through a pooler that gives each transaction another
//! session.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use honeyflow_conformance::hive::Rig;
use honeyflow_hive::HiveStore;
use honeyflow_hive_postgres::{Options, PostgresHive};

use crate::TestDatabase;

impl TestDatabase {
    /// An SQL condition that selects the hives of this test only.
    fn ours(&self) -> String {
        format!("hive like '{}'", self.hive("%"))
    }
}

impl Rig for TestDatabase {
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>> {
        let options = Options { hive: self.hive(hive).into(), ..self.options() };
        let hive: Arc<dyn HiveStore> = Arc::new(PostgresHive::open(&options).unwrap());
        Box::pin(ready(hive))
    }

    fn step_clock(&self, by_ms: i64) -> BoxFuture<'_, bool> {
        let stepped = |column: &str| {
            // The column `slot` counts seconds, the others milliseconds.
            let by = if column == "slot" { by_ms.div_euclid(1_000) } else { by_ms };
            format!("{column} = case {column} when 0 then 0 else {column} - ({by}) end")
        };
        let tables = [
            ("hive_node", &["expires_ms", "engaged_ms"][..]),
            ("hive_lease", &["since_ms"]),
            ("hive_view", &["lineage_ms", "counted_ms"]),
            ("hive_event", &["at_ms"]),
            ("hive_limit", &["pool_ms", "effective_ms", "slot"]),
            ("hive_share", &["until_ms"]),
        ];
        let step = tables.map(|(table, columns)| {
            let columns: Vec<String> = columns.iter().map(|column| stepped(column)).collect();
            format!("update {table} set {} where {}", columns.join(", "), self.ours())
        });
        async move {
            self.run(&step.join(";\n")).await;
            true
        }
        .boxed()
    }

    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        async {
            self.run(&format!("update hive_view set lineage = 'another' where {}", self.ours())).await;
            true
        }
        .boxed()
    }

    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        let ours = self.ours();
        async move {
            let newest = format!("(select max(version) from hive_event where {ours})");
            self.run(&format!("update hive_event set kind = 'swarmed' where {ours} and version = {newest}")).await;
            true
        }
        .boxed()
    }

    fn wipe(&self) -> BoxFuture<'_, bool> {
        let tables = ["node", "lease", "view", "event", "limit", "share"];
        let wipe = tables.map(|table| format!("delete from hive_{table} where {}", self.ours()));
        async move {
            self.run(&wipe.join(";\n")).await;
            true
        }
        .boxed()
    }
}

mod straight {
    honeyflow_conformance::hive_suite!(maybe crate::TestDatabase::straight);
}

mod through_a_pooler {
    honeyflow_conformance::hive_suite!(maybe crate::TestDatabase::pooled);
}
