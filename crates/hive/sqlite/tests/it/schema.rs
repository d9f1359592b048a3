//! The hive's tables: with which hive's rows a fence is compared, and which table versions the program accepts.

use honeyflow_hive::{HiveStore, Request, contract::HIVE, fence, member};
use honeyflow_runtime::Class;

use crate::{Shop, join, node};

/// HV-4: two hives in one file may hold a lease of the same name.
#[tokio::test]
async fn hv_4_a_fence_holds_in_its_own_hive_alone() {
    let shop = Shop::fresh();
    let hive = honeyflow_hive_sqlite::open(&shop.path(), "north").unwrap();
    let term = member::take(&hive, node(), "duty/report").await.unwrap();
    let shown = term.fence();
    let (epoch, holder) = (shown.epoch().0.cast_signed(), shown.holder().to_string());
    let application = shop.application();
    let holds = |hive: &str| {
        let mut statement = application.prepare(fence::SQLITE).unwrap();
        statement.exists((hive, shown.lease().to_string(), epoch, &holder)).unwrap()
    };
    assert!(holds("north"));
    assert!(!holds(HIVE), "a lease of the same name in another hive does not count");
}

/// HV-5: tables of a newer version may have another meaning, so they are refused.
#[tokio::test]
async fn hv_5_tables_of_a_newer_version_are_refused() {
    let shop = Shop::fresh();
    let first = shop.hive();
    first.call(join(node())).await.unwrap();
    drop(first);
    shop.application().execute("update hive_meta set value = '99' where name = 'schema'", []).unwrap();
    let hive = shop.hive();
    for request in [join(node()), Request::View] {
        let failure = hive.call(request).await.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, "schema-too-new"), "{failure}");
    }
}
