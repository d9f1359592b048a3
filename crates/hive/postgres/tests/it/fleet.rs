//! The suite of several members and their limits on a real server: directly, and through a pooler.

use std::sync::Arc;

use futures_util::future::{FutureExt, ready};
use honeyflow_conformance::fleet::OpenStore;
use honeyflow_hive::HiveStore;

use crate::TestDatabase;

fn connections(field: TestDatabase) -> impl OpenStore {
    let field = Arc::new(field);
    move || {
        let hive: Arc<dyn HiveStore> = field.open();
        ready(hive).boxed()
    }
}

async fn straight() -> Option<impl OpenStore> {
    TestDatabase::straight().await.map(connections)
}

async fn pooled() -> Option<impl OpenStore> {
    TestDatabase::pooled().await.map(connections)
}

mod directly {
    honeyflow_conformance::fleet_suite!(maybe super::straight);
}

mod through_a_pooler {
    honeyflow_conformance::fleet_suite!(maybe super::pooled);
}
