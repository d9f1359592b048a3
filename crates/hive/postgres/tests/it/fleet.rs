//! Limits of a whole fleet on a real server: straight, and through a pooler.

use std::sync::Arc;

use futures_util::future::{FutureExt, ready};
use honeyflow_conformance::fleet::Open;
use honeyflow_hive::HiveStore;

use crate::Field;

fn connections(field: Field) -> impl Open {
    let field = Arc::new(field);
    move || {
        let hive: Arc<dyn HiveStore> = field.open();
        ready(hive).boxed()
    }
}

async fn straight() -> Option<impl Open> {
    Field::straight().await.map(connections)
}

async fn pooled() -> Option<impl Open> {
    Field::pooled().await.map(connections)
}

mod directly {
    honeyflow_conformance::fleet_suite!(maybe super::straight);
}

mod through_a_pooler {
    honeyflow_conformance::fleet_suite!(maybe super::pooled);
}
