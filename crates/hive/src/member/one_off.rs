//! Takes one term without sending heartbeats afterwards: for commands and tests.

use std::sync::Arc;

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment, time::BootClock};

use super::{Config, millis};
use crate::{
    codes,
    contract::{Claim, HiveStore, Mint, NodeId, Reply, Request, State},
    term::Term,
};

/// Joins, and takes the lease. The term has no end: finish before the time to live is over, because then other nodes
/// may take the lease and stores refuse the fence.
///
/// # Errors
/// The store's failure, or `lease-held` if another node holds it.
pub async fn take(store: &dyn HiveStore, node: NodeId, lease: &str) -> Result<Term, Failure> {
    let (heartbeat_ms, ttl_ms) = (millis(Config::HEARTBEAT), millis(Config::TIME_TO_LIVE));
    let join = Request::Join { node, name: "once".into(), heartbeat_ms, ttl_ms, meta: "{}".to_owned() };
    // A reply `Refused(Known)` is fine: the node has joined before.
    store.call(join).await?;
    take_as_member(store, node, lease).await
}

/// Sends a heartbeat, reads the lease and takes it, as a node that has joined.
///
/// # Errors
/// The store's failure, or `lease-held` if another node holds it.
pub async fn take_as_member(store: &dyn HiveStore, node: NodeId, lease: &str) -> Result<Term, Failure> {
    let misplaced = || Failure::fatal(codes::MISPLACED_REPLY, "the hive's store answered with a reply of another kind");
    let state = State { ready: true, eligible: true, ..State::default() };
    let Reply::Beat(status) = store.call(Request::Beat { node, read_only: false, state }).await? else {
        return Err(misplaced());
    };
    let lineage: Name = status.head.server.as_str().into();
    if status.head.lineage.as_deref() != Some(&*lineage) {
        let was = status.head.lineage.as_deref().map(Name::from);
        store.call(Request::NewLineage { was, found: lineage.clone() }).await?;
    }
    let lease: Name = lease.into();
    let Reply::Leases { leases, .. } = store.call(Request::Look { leases: vec![lease.clone()] }).await? else {
        return Err(misplaced());
    };
    let row = leases.into_iter().next().ok_or_else(misplaced)?;
    if !row.free {
        let holder = row.holder.map_or_else(|| "unknown".to_owned(), |holder| holder.to_string());
        return Err(Failure::fatal(codes::LEASE_HELD, format!("lease {lease} is held by node {holder}")));
    }
    let claims = vec![Claim::new(lease.clone(), row.epoch)];
    let mint = Mint { lineage, watched: false };
    match store.call(Request::Take { node, claims, cause: "once".into(), mint }).await? {
        Reply::Taken(taken) if !taken.is_empty() => {
            Ok(Term::granted(lease, taken[0].epoch, node, Moment::FAR, Arc::new(BootClock)))
        }
        other => Err(Failure::retry(codes::LEASE_RACED, format!("the store did not grant lease {lease}: {other:?}"))),
    }
}
