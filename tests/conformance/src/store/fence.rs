//! An owner whose term has ended changes nothing.

use std::sync::Arc;

use futures_util::future::join_all;
use honeyflow_event::Kind;
use honeyflow_hive::contract::HeldLease;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Op, Reply, Request, Statement, Write,
    write::{CheckpointOutcome, FanOut, History},
};

use super::{Harness, RawRow, charge, checkpoint, new_event, park, run, settle};

pub async fn ob_44_a_stale_owner_changes_nothing(h: &Harness) {
    let stale = h.stale_fence().await;
    let event = h.book("1").await;
    let fan_out =
        RawRow { kind: Some(Kind::FanOut), entity: "book", key: "7".into(), priority: Some(7), ..RawRow::default() };
    let fan_out = h.raw(fan_out).await;
    let statement = h.edge.clone().unwrap_or_else(|| Arc::new(empty_edge()));
    let history = History { run: run("1", "index"), version: 1, verdict: "succeeded", steps: serde_json::json!([]) };
    let before = h.picture().await;
    for op in [
        settle(&[event], &[run("1", "index")]),
        charge("1", 1),
        park("1", "index", &[event]),
        Op::ParkRow { event, failure: Failure::reject("payload-too-large", "too large") },
        checkpoint("1", &[event], CheckpointOutcome::Skipped, vec![new_event("emitted")]),
        Op::Replace { event, by: vec![new_event("2")] },
        Op::FanOut(Box::new(FanOut {
            event: fan_out,
            root: event,
            tenant: "".into(),
            entity: "book".into(),
            workflow: None,
            statement,
            causes: vec!["7".into()],
            after: None,
            page: 10,
            payload: "{}".into(),
            pending_max: 100,
        })),
        Op::History(Box::new(history)),
    ] {
        // Alone, and after another operation: the whole list is refused.
        for ops in [vec![op.clone()], vec![settle(&[event], &[]), op.clone()]] {
            let reply = h.write(&stale, ops).await;
            assert!(matches!(reply, Reply::Fenced), "{op:?}: {reply:?}");
            assert_eq!(before, h.picture().await, "{op:?}");
        }
    }
}

/// An edge that leads nowhere, for stores without edges: the fence is compared before the statement matters.
fn empty_edge() -> Statement {
    Statement {
        place: "edge".into(),
        text: "select 1 where 1 in $keys and 1 = 0".into(),
        key: vec![honeyflow_store::KeyColumn { name: "id".into(), kind: honeyflow_store::KeyType::Integer }],
        result_key: Vec::new(),
        json: Vec::new(),
    }
}

pub async fn ob_44_one_refused_write_leaves_others_alone(h: &Harness) {
    let stale = h.stale_fence().await;
    let look = honeyflow_hive::Request::Look { leases: vec![super::LEASE.into()] };
    let honeyflow_hive::Reply::Leases { leases, .. } = h.hive.call(look).await.expect("look") else {
        panic!("no leases")
    };
    let node = leases[0].holder.expect("a holder");
    let held = vec![HeldLease { lease: super::LEASE.into(), epoch: leases[0].epoch }];
    let released = honeyflow_hive::Request::Release { node, held, cause: "test".into() };
    h.hive.call(released).await.expect("release");
    let fresh = honeyflow_hive::member::take_as_member(&*h.hive, node, super::LEASE).await.expect("take").fence();
    let mut all = Vec::new();
    for n in 0..40 {
        all.push(h.book(&n.to_string()).await);
    }
    // The writes are sent at the same time, so that a store that groups writes has them in one transaction.
    let writes = all.iter().enumerate().map(|(n, id)| {
        let fence = if n % 2 == 0 { fresh.clone() } else { stale.clone() };
        h.call(Request::Write(Write { fence, ops: vec![settle(&[*id], &[])] }))
    });
    for (n, reply) in join_all(writes).await.into_iter().enumerate() {
        let reply = reply.expect("write");
        assert_eq!(matches!(reply, Reply::Committed), n % 2 == 0, "{n}: {reply:?}");
        assert_eq!(matches!(reply, Reply::Fenced), n % 2 == 1, "{n}: {reply:?}");
    }
    let left: Vec<_> = all.iter().copied().skip(1).step_by(2).collect();
    assert_eq!(h.waiting_ids().await, left);
}
