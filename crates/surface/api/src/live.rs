//! `GET /v1/live`: sends one snapshot per second to all watching clients, as server-sent events. It is made once for
//! all.
//!
//! A slow client skips snapshots: a snapshot that it has not read is replaced by the newest one, never queued.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::{Response, StatusCode},
};
use futures_util::stream;
use tokio::{
    sync::{Semaphore, watch},
    time::MissedTickBehavior,
};

use crate::{
    answer::{self, Refusal},
    codes,
    page::View,
    sample::BEAT,
    serve::{App, until_stopped},
};

pub(crate) struct Live {
    places: Arc<Semaphore>,
    frames: watch::Sender<Bytes>,
    stopped: watch::Receiver<bool>,
}

impl Live {
    pub fn new(clients_max: usize, stopped: watch::Receiver<bool>) -> Live {
        Live { places: Arc::new(Semaphore::new(clients_max)), frames: watch::Sender::new(Bytes::new()), stopped }
    }

    pub fn answer(&self) -> Result<Response<Body>, Refusal> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let refusal = Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                codes::refusal::TOO_MANY_WATCHERS,
                "too many pages are watching",
            );
            return Err(refusal.hint("close some").retry_after(std::time::Duration::from_secs(5)));
        };
        let mut frames = self.frames.subscribe();
        // The current frame may be old: no frames are made while no client watches.
        frames.borrow_and_update();
        let watching = (place, frames, self.stopped.clone());
        let frames = stream::unfold(watching, |(place, mut frames, mut stopped)| async move {
            let frame = tokio::select! {
                changed = frames.changed() => { changed.ok()?; frames.borrow_and_update().clone() }
                () = until_stopped(&mut stopped) => return None,
            };
            Some((Ok::<_, std::convert::Infallible>(frame), (place, frames, stopped)))
        });
        Ok(answer::with_type(StatusCode::OK, "text/event-stream", Body::from_stream(frames)))
    }
}

/// Samples the counters once a second; makes a snapshot if a client watches.
pub(crate) async fn run(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(BEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = until_stopped(&mut stopped) => return,
        }
        app.sampler.beat();
        if app.live.frames.receiver_count() == 0 {
            continue;
        }
        let view = View::new(&app.node, &app.sampler.sample().await);
        match serde_json::to_string(&view) {
            Ok(snapshot) => drop(app.live.frames.send_replace(format!("data: {snapshot}\n\n").into())),
            Err(error) => tracing::error!(%error, "cannot write a snapshot"),
        }
    }
}
