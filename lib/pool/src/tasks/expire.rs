//! The expiry task: sleeps until the earliest deadline, then lets the pool's core time out the waiters, loans and leaving
//! servers that are due. A new, earlier deadline wakes it by `signals.expiry`.

use std::sync::Arc;

use crate::{connect::Connector, shared::Shared};

pub async fn run<C: Connector>(shared: Arc<Shared<C>>) {
    loop {
        super::fail_point("pool-expiry-panics");
        let now = shared.now();
        let Some(next) = shared.enter(|core, effects| core.expire(now, effects)) else {
            // The pool has closed: no deadline comes any more, and the owner of this task ends it.
            return std::future::pending().await;
        };
        let sleep = tokio::time::sleep_until(shared.instant(next));
        tokio::select! {
            () = sleep => {}
            () = shared.signals.expiry.notified() => {}
        }
    }
}
