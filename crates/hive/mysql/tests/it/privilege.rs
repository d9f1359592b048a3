//! Which rights an account needs.

use std::sync::Arc;

use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{
        HeldLease, Removal,
        limit::{self, Draw, Key, Rule, Slots},
    },
    member,
};
use honeyflow_hive_mysql::{Flavour, MysqlHive, Options, grants, schema};
use honeyflow_runtime::Class;

use crate::{TestDatabase, join, node, server};

/// Creates an account with the rights that `granted` returns, and opens the hive with it.
async fn account(place: &TestDatabase, granted: impl FnOnce(&str) -> String) -> Arc<MysqlHive> {
    let user = format!("u{}", &node().to_string()[..8]);
    place.change(&format!("create user `{user}`@`127.0.0.1` identified by 'x'")).await;
    place.change(&granted(&user)).await;
    let (_, server) = place.url.split_once('@').unwrap();
    Arc::new(MysqlHive::open(&Options::new(format!("mysql://{user}:x@{server}"))).unwrap())
}

async fn done(hive: &MysqlHive, request: Request) -> Reply {
    let asked = format!("{request:?}");
    hive.call(request).await.unwrap_or_else(|failure| panic!("{asked}: {failure}"))
}

/// Writes and removes every kind of row.
async fn use_every_table(hive: &MysqlHive) {
    let (me, other): (NodeId, NodeId) = (node(), node());
    let term = member::take(hive, me, "queen").await.unwrap();
    done(hive, join(other)).await;
    let rule = Rule::count(5);
    let set = limit::Request::Set { limit: "api".into(), was: None, rule, after_ms: 0 };
    done(hive, Request::Limit(set)).await;
    let draw = Draw { limit: "api".into(), key: Key(1), want: 1, need: 1, reserve: None };
    done(hive, Request::Limit(limit::Request::Draw(vec![draw]))).await;
    let asks = vec![Slots { limit: "api".into(), key: Key(2), seq: 1, wants: 2 }];
    done(hive, Request::Limit(limit::Request::Slots { node: other, asks })).await;
    let bury = vec![Removal { node: other, beat: 0, silent: true, cause: "x".into() }];
    done(hive, Request::Count { fence: term.fence(), every_ms: 0, remove: bury }).await;
    let sweep = Request::Sweep { fence: term.fence(), event_ms: 0, events_max: 0, idle_ms: 0, rows_max: 100 };
    assert!(matches!(done(hive, sweep).await, Reply::Swept { events: 5.., buckets: 1.. }));
    done(hive, Request::Mend).await;
    let held = vec![HeldLease { lease: "queen".into(), epoch: term.epoch() }];
    assert!(
        matches!(done(hive, Request::Release { node: me, held, cause: "x".into() }).await, Reply::Released(r) if r.len() == 1)
    );
    done(hive, Request::Leave { node: me }).await;
}

#[tokio::test]
async fn an_account_needs_no_more_than_what_is_printed() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    let is_mariadb = place.number("select version() like '%mariadb%'").await == 1;
    let flavour = if is_mariadb { Flavour::Mariadb } else { Flavour::Mysql };
    for statement in schema::ddl(flavour).split(";\n").filter(|statement| !statement.is_empty()) {
        place.change(statement).await;
    }
    let hive = account(&place, |user| grants::for_honeyflow(place.name(), user, "127.0.0.1")).await;
    use_every_table(&hive).await;
}

#[tokio::test]
async fn an_account_that_may_create_needs_no_administrator() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    let database = place.name();
    let rights = "create, select, insert, update, delete";
    let hive = account(&place, |user| format!("grant {rights} on `{database}`.* to `{user}`@`127.0.0.1`")).await;
    use_every_table(&hive).await;
}

#[tokio::test]
async fn a_missing_privilege_says_what_to_do() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    let database = place.name();
    let hive = account(&place, |user| format!("grant select on `{database}`.* to `{user}`@`127.0.0.1`")).await;
    let failure = hive.call(join(node())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "no-privilege"), "{failure}");
    assert!(failure.message.contains("administrator"), "{failure}");
}
