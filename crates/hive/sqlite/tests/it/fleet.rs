//! The suite of several members and their limits, on one file.

use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};
use honeyflow_hive::HiveStore;
use honeyflow_hive_sqlite::{Options, SqliteHive};

use crate::Shop;

async fn fresh() -> impl Fn() -> BoxFuture<'static, Arc<dyn HiveStore>> {
    let shop = Shop::fresh();
    move || {
        let hive: Arc<dyn HiveStore> = Arc::new(SqliteHive::open(&Options::new(shop.path())).unwrap());
        Box::pin(ready(hive))
    }
}

honeyflow_conformance::fleet_suite!(fresh);
