//! Several members and their limits, in memory.

use std::{sync::Arc, time::Instant};

use futures_util::future::{BoxFuture, ready};
use honeyflow_hive::HiveStore;
use honeyflow_hive_memory::MemoryHive;

async fn fresh() -> impl Fn() -> BoxFuture<'static, Arc<dyn HiveStore>> {
    let begun = Instant::now();
    let store = Arc::new(MemoryHive::new(move || 200_000_000_000 + begun.elapsed().as_millis() as u64));
    move || {
        let store: Arc<dyn HiveStore> = store.clone();
        Box::pin(ready(store))
    }
}

honeyflow_conformance::fleet_suite!(fresh);
