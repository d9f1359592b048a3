//! HV-90: the fast path of a request allocates nothing. This is a separate program, because counting replaces the
//! allocator.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use allocation_counter::measure;
use honeyflow_hive::{
    Hive, NodeId, Traffic,
    limit::{Config, Definition, Limit, Service},
    service::Options,
};
use honeyflow_hive_layer::EngagedLayer;
use honeyflow_hive_memory::MemoryHive;
use http::Method;
use uuid::Uuid;

const CHECKS: u64 = 1_000;

fn store() -> Arc<MemoryHive> {
    let begun = Instant::now();
    Arc::new(MemoryHive::new(move || 200_000_000_000 + begun.elapsed().as_millis() as u64))
}

/// Fills the local permits: takes many and gives them back unused.
async fn fill_local_permits(limit: &Limit, key: &str) {
    let taken = limit.key(key).take(4 * CHECKS, Duration::from_secs(30)).await;
    taken.expect("the store has them").refund(4 * CHECKS);
}

#[tokio::test]
async fn hv_90_the_local_check_allocates_nothing() {
    let (service, limits) = Service::new(Config::new(store(), NodeId(Uuid::new_v4())));
    tokio::spawn(service.run(std::future::pending()));
    limits.set_node_counts(1, 1);
    // Batches of this limit live for half an hour.
    let limit = limits.define(&Definition::parse("api", "1000000/h burst 1000000").unwrap()).unwrap();
    for key in ["", "client-7"] {
        fill_local_permits(&limit, key).await;
        let mut taken = 0;
        let counted = measure(|| taken = (0..CHECKS).filter(|_| limit.key(key).take_local(1).is_some()).count());
        assert_eq!((taken as u64, counted.count_total), (CHECKS, 0), "key {key:?}");
        // `try_take` does not wait if there are local permits.
        let permit = limit.key(key).try_take(1);
        let counted =
            measure(|| drop(futures_util::FutureExt::now_or_never(permit).expect("at once").expect("a permit")));
        assert_eq!(counted.count_total, 0, "key {key:?}");
    }
    fill_local_permits(&limit, "").await;
    let mut taken = 0;
    let counted = measure(|| taken = (0..CHECKS).filter(|_| limit.whole().take_local(1).is_some()).count());
    assert_eq!((taken as u64, counted.count_total), (CHECKS, 0));
    let counted = measure(|| drop(limit.key("new-client").take_local(1)));
    assert_eq!(counted.count_total, 0, "neither does a check that finds no permits");
}

#[test]
fn hv_90_the_engaged_mark_allocates_nothing() {
    let (traffic, method) = (Traffic::default(), Method::POST);
    let layer = EngagedLayer::new(traffic.clone());
    let counted = measure(|| (0..CHECKS).for_each(|_| layer.mark_request(&method, "/orders/17")));
    assert_eq!(counted.count_total, 0);
    let counted = measure(|| (0..CHECKS).for_each(|_| layer.mark_request(&method, "/healthz")));
    assert_eq!(counted.count_total, 0, "neither does a request that does not count");
}

#[tokio::test]
async fn hv_90_checking_a_term_allocates_nothing() {
    let hive = Hive::join(store(), Options::named("one")).await.expect("joined");
    let counted = hive.lead("duty/report", async |term| {
        let mut lived = 0;
        let counted = measure(|| lived = (0..CHECKS).filter(|_| term.check()).count());
        Ok((lived as u64, counted.count_total))
    });
    assert_eq!(counted.await.expect("led"), (CHECKS, 0));
}
