//! Reports to the hives whether this node can take traffic, whenever that changes. It is a separate task, because it
//! may wait for a store and no other task waits for it. A node that joins is not ready until this task reports it.

use std::sync::Arc;

use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    sample::BEAT,
    serve::{App, until_stopped},
};

pub(crate) async fn run(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(BEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = None;
    while !app.node.hives.is_empty() {
        let check = async {
            tick.tick().await;
            app.sampler.can_take_traffic().await
        };
        let ready = tokio::select! {
            ready = check => ready,
            () = until_stopped(&mut stopped) => return,
        };
        if reported.replace(ready) != Some(ready) {
            app.node.hives.iter().for_each(|view| view.hive.ready(ready));
        }
    }
}
