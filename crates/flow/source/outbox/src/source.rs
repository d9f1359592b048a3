//! The shell: one poll of the store, the statements that its rows ask for, and nothing else.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Source, Taken};
use honeyflow_store::{Load, Poll, Reply, Request, Store, misplaced, statement::Expand};

use crate::{
    entity::Entity,
    intake::{Answer, Ask, Asks, CONTAINERS_MAX, Here},
    route::Routes,
};

/// Statements under way at a time: enough that the store never waits for us.
const ASKS_UNDER_WAY_MAX: usize = 8;
/// An edge statement gives at most [`CONTAINERS_MAX`] keys and one; longer than this it has no index to go by.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Events of one outbox, with the documents they lead to.
#[derive(Clone)]
pub struct OutboxSource {
    store: Arc<dyn Store>,
    routes: Arc<Routes>,
    shards: u16,
}

impl OutboxSource {
    pub fn new(store: Arc<dyn Store>, entities: &[Entity]) -> OutboxSource {
        OutboxSource { store, routes: Arc::new(Routes::new(entities)), shards: 1 }
    }

    /// Into how many shards the store cuts its events: what leads to a document of another one goes there as a row.
    #[must_use]
    pub fn sharded(self, shards: u16) -> OutboxSource {
        OutboxSource { shards, ..self }
    }

    async fn take(self, request: Poll) -> Result<Intake, Failure> {
        let here = Here { shard: request.shard, shards: self.shards };
        let polled = match self.store.call(Request::Poll(request)).await? {
            Reply::Polled(polled) => polled,
            other => return Err(misplaced(&other)),
        };
        let mut asks = Asks::default();
        let drafts: Vec<_> = polled.events.iter().map(|event| self.routes.draft(event, &mut asks)).collect();
        let answers = self.ask(&asks.list).await;
        let newest_from = polled.events.len().saturating_sub(polled.newest);
        let taken = polled.events.into_iter().zip(drafts).enumerate().map(|(n, (event, draft))| {
            let leads = draft.settle(&event, &asks.list, &answers, here)?;
            Ok(Taken { event: Arc::new(event), leads, newest: n >= newest_from })
        });
        Ok(Intake {
            taken: taken.collect::<Result<_, Failure>>()?,
            oversized: polled.oversized,
            resumed: polled.resumed,
            looked_to: polled.looked_to,
            next_due_ms: polled.next_due_ms,
            store_ms: polled.store_ms,
            schema_version: polled.schema_version,
        })
    }

    async fn ask(&self, asks: &[Ask]) -> Vec<Answer> {
        if asks.is_empty() {
            return Vec::new();
        }
        let store = Arc::clone(&self.store);
        let under_way = asks.iter().cloned().map(move |ask| {
            let load = Load {
                statement: ask.statement,
                keys: vec![ask.cause],
                expand: Some(Expand { after: None, limit: CONTAINERS_MAX as u32 + 1 }),
                timeout: ASK_TIMEOUT,
            };
            store.call(Request::Load(load)).map(|reply| match reply? {
                Reply::Keys(keys) => Ok(keys),
                other => Err(misplaced(&other)),
            })
        });
        stream::iter(under_way).buffered(ASKS_UNDER_WAY_MAX).collect().await
    }
}

impl Source for OutboxSource {
    fn poll(&self, request: Poll) -> BoxFuture<'static, Result<Intake, Failure>> {
        self.clone().take(request).boxed()
    }
}
