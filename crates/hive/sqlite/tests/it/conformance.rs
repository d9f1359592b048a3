//! The suite of the contract.

use honeyflow_conformance::hive::Harness;

use crate::Shop;

async fn fresh() -> Harness {
    let shop = Shop::fresh();
    Harness { hive: shop.hive(), many_nodes: false, keep: Box::new(shop) }
}

honeyflow_conformance::hive_suite!(fresh);
