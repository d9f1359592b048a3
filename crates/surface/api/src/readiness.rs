//! Tells the hives whether this node may be given traffic, whenever that changes. A task of its own: it may wait for a
//! store, and nobody waits for it. A node that joins is not ready before it was said here.

use std::sync::Arc;

use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    sample::BEAT,
    serve::{App, until},
};

pub(crate) async fn run(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(BEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = None;
    while !app.node.hives.is_empty() {
        let looked = async {
            tick.tick().await;
            app.sampler.may_be_given_traffic().await
        };
        let ready = tokio::select! {
            ready = looked => ready,
            () = until(&mut stopped) => return,
        };
        if said.replace(ready) != Some(ready) {
            app.node.hives.iter().for_each(|of| of.hive.ready(ready));
        }
    }
}
