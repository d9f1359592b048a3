//! The conformance suite of the hive on SQLite.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, ready};
use honeyflow_conformance::hive::Rig;
use honeyflow_hive::HiveStore;
use honeyflow_hive_sqlite::{Options, SqliteHive};

use crate::Shop;

async fn fresh() -> Shop {
    Shop::fresh()
}

impl Rig for Shop {
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>> {
        let patient = Duration::from_secs(20);
        let options = Options { hive: hive.to_owned(), busy_timeout: Some(patient), ..Options::new(self.path()) };
        let hive: Arc<dyn HiveStore> = Arc::new(SqliteHive::open(&options).unwrap());
        Box::pin(ready(hive))
    }

    fn step_clock(&self, by_ms: i64) -> BoxFuture<'_, bool> {
        let stepped = |column: &str| {
            // The column `slot` counts seconds, the others milliseconds.
            let by = if column == "slot" { by_ms.div_euclid(1_000) } else { by_ms };
            format!("{column} = case {column} when 0 then 0 else {column} - {by} end")
        };
        for (table, columns) in [
            ("hive_node", &["expires_ms", "engaged_ms"][..]),
            ("hive_lease", &["since_ms"]),
            ("hive_view", &["lineage_ms", "counted_ms"]),
            ("hive_event", &["at_ms"]),
            ("hive_limit", &["pool_ms", "effective_ms", "slot"]),
            ("hive_share", &["until_ms"]),
        ] {
            let columns: Vec<String> = columns.iter().map(|column| stepped(column)).collect();
            self.change(&format!("update {table} set {}", columns.join(", ")));
        }
        Box::pin(ready(true))
    }

    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        self.change("update hive_view set lineage = 'another'");
        Box::pin(ready(true))
    }

    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        self.change("update hive_event set kind = 'swarmed' where version = (select max(version) from hive_event)");
        Box::pin(ready(true))
    }

    fn wipe(&self) -> BoxFuture<'_, bool> {
        for table in ["node", "lease", "view", "event", "limit", "share"] {
            self.change(&format!("delete from hive_{table}"));
        }
        Box::pin(ready(true))
    }

    fn waits_for_lineage(&self) -> bool {
        false
    }
}

impl Shop {
    fn change(&self, sql: &str) {
        let application = self.application();
        application.busy_timeout(Duration::from_secs(20)).unwrap();
        application.execute(sql, []).unwrap();
    }
}

honeyflow_conformance::hive_suite!(fresh);
