//! The suite of several members and their limits, on one server.

use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};
use honeyflow_hive::{HiveStore, contract::HIVE};
use honeyflow_hive_mysql::MysqlHive;

use crate::TestDatabase;

async fn fresh() -> Option<impl Fn() -> BoxFuture<'static, Arc<dyn HiveStore>>> {
    let place = Arc::new(TestDatabase::fresh().await?);
    // Nodes may still be leaving when the test has ended, so no other test reuses this database.
    std::mem::forget(place.clone());
    Some(move || -> BoxFuture<'static, Arc<dyn HiveStore>> {
        let hive: Arc<dyn HiveStore> = Arc::new(MysqlHive::open(&place.options(HIVE)).unwrap());
        Box::pin(ready(hive))
    })
}

honeyflow_conformance::fleet_suite!(maybe fresh);
