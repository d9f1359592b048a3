//! The expiry task: sleeps until the earliest deadline, then lets the core end what is due.

use std::sync::Arc;

use crate::{connect::Connector, shared::Shared};

pub async fn run<C: Connector>(shared: Arc<Shared<C>>) {
    loop {
        super::fail_point("pool-expiry-panics");
        let now = shared.now();
        let Some(next) = shared.enter(|core, effects| core.expire(now, effects)) else {
            return std::future::pending().await;
        };
        let sleep = tokio::time::sleep_until(shared.instant(next));
        tokio::select! {
            () = sleep => {}
            () = shared.signals.expiry.notified() => {}
        }
    }
}
