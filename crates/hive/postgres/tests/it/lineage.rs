//! A promoted standby has the same rows and another lineage.

use std::path::Path;

use honeyflow_conformance::hive::{TTL_MS, TestMember, test_member::eligible_state};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Reply, Request,
    contract::{
        Mint, Refusal,
        limit::{self, ExactTake, Key},
    },
};
use honeyflow_hive_postgres::Options;
use honeyflow_runtime::Class;
use sqlx_core::{connection::Connection, query_scalar::query_scalar};
use sqlx_postgres::PgConnection;

use crate::{database, run};

const LEASE: &str = "shard/x/0";

fn claim(bee: &TestMember, lineage: &str) -> Request {
    match bee.claim("other", Epoch(0)) {
        Request::Take { node, claims, cause, .. } => {
            Request::Take { node, claims, cause, mint: Mint { lineage: lineage.into(), watched: false } }
        }
        other => other,
    }
}

/// HV-51, and the defect that is known elsewhere as `replica_answers_under_limit`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_23_a_promoted_standby_is_another_lineage() {
    let Some(mut server) = honeyflow_services::throwaway_postgres() else { return };
    let url = database(server.url(), "lineage").await;
    let options = Options::new(&*url);
    let hive = honeyflow_hive_postgres::PostgresHive::open(&options).unwrap();
    let bee = TestMember::join(std::sync::Arc::new(hive), "a", TTL_MS).await;
    bee.beat().await;
    let held = bee.take(LEASE).await;
    bee.look("other").await;
    let old: Name = bee.lineage.clone();
    assert!(old.ends_with("-00000001"), "{old}");
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let data: String = query_scalar("select current_setting('data_directory')").fetch_one(&mut admin).await.unwrap();
    drop(admin);
    server.stop();
    std::fs::write(Path::new(&data).join("standby.signal"), "").unwrap();
    server.start().unwrap();
    // A replica may be late by any amount of time: neither leases nor limits are read from it.
    let takes = vec![ExactTake { limit: "api".into(), key: Key(1), cost: 1, window: None }];
    for request in [
        Request::Beat { node: bee.id, read_only: false, state: eligible_state() },
        Request::Beat { node: bee.id, read_only: true, state: eligible_state() },
        Request::View,
        Request::Look { leases: vec![LEASE.into()] },
        Request::Tally,
        Request::History { lease: None, until_ms: None, max: 1 },
        Request::Limit(limit::Request::Limits),
        Request::Limit(limit::Request::Exact { takes: takes.clone(), peek: true }),
        Request::Limit(limit::Request::Exact { takes, peek: false }),
    ] {
        let mut failure = bee.hive.call(request.clone()).await.unwrap_err();
        if failure.code == "no-connection" {
            // The first request met the broken connection.
            failure = bee.hive.call(request.clone()).await.unwrap_err();
        }
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{request:?}: {failure}");
    }
    let mut admin = PgConnection::connect(&url).await.unwrap();
    run(&mut admin, "select pg_promote(true)").await;
    let head = bee.beat().await.head;
    assert_eq!(head.lineage.as_deref(), Some(&*old));
    assert!(head.server.ends_with("-00000002"), "before any checkpoint: {}", head.server);
    assert_eq!(head.server.split('-').next(), old.split('-').next());
    for lineage in [&*old, &head.server] {
        assert_eq!(bee.call(claim(&bee, lineage)).await, Reply::Refused(Refusal::Lineage));
    }
    let found: Name = head.server.as_str().into();
    assert_eq!(bee.call(Request::NewLineage { was: Some(old), found }).await, Reply::Done);
    let reply = bee.call(claim(&bee, &head.server)).await;
    assert!(matches!(reply, Reply::Refused(Refusal::Early { .. })), "{reply:?}");
    assert_eq!(bee.look(LEASE).await.epoch, held);
}
