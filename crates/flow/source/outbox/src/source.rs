//! The shell of the outbox source: polls the store once, and executes the edge queries of its rows.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_source::{Intake, Source, TakenEvent};
use honeyflow_store::{Load, Poll, Reply, Request, Store, mismatched_reply, statement::Expand};

use crate::{
    entity::Entity,
    intake::{Answer, CONTAINERS_MAX, EdgeQueries, EdgeQuery, PolledShard},
    route::Routes,
};

/// Edge queries under way at a time: enough that the store never waits for us.
const QUERIES_UNDER_WAY_MAX: usize = 8;
/// The time-out of an edge query. It returns at most [`CONTAINERS_MAX`] + 1 keys; if it takes longer, it lacks an
/// index.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// A source of the events of one outbox, with the documents they lead to.
#[derive(Clone)]
pub struct OutboxSource {
    store: Arc<dyn Store>,
    routes: Arc<Routes>,
    shards: u16,
}

impl OutboxSource {
    /// `messages` are the names of entities that have messages only.
    pub fn new(store: Arc<dyn Store>, entities: &[Entity], messages: &[Name]) -> OutboxSource {
        OutboxSource { store, routes: Arc::new(Routes::new(entities, messages)), shards: 1 }
    }

    /// Sets the number of shards of the store: an event that leads to a document of another shard reaches it by a row.
    #[must_use]
    pub fn sharded(self, shards: u16) -> OutboxSource {
        OutboxSource { shards, ..self }
    }

    async fn take(self, request: Poll) -> Result<Intake, Failure> {
        let here = PolledShard { shard: request.shard, shards: self.shards };
        let polled = match self.store.call(Request::Poll(request)).await? {
            Reply::Polled(polled) => polled,
            other => return Err(mismatched_reply(&other)),
        };
        let mut queries = EdgeQueries::default();
        let drafts: Vec<_> = polled.events.iter().map(|event| self.routes.draft(event, &mut queries)).collect();
        let answers = self.run_queries(&queries.list).await;
        let newest_from = polled.events.len().saturating_sub(polled.newest);
        let taken = polled.events.into_iter().zip(drafts).enumerate().map(|(n, (event, draft))| {
            let leads = draft.settle(&event, &queries.list, &answers, here)?;
            Ok(TakenEvent { event: Arc::new(event), leads, newest: n >= newest_from })
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

    async fn run_queries(&self, queries: &[EdgeQuery]) -> Vec<Answer> {
        if queries.is_empty() {
            return Vec::new();
        }
        let store = Arc::clone(&self.store);
        let under_way = queries.iter().cloned().map(move |query| {
            let load = Load {
                statement: query.statement,
                keys: vec![query.cause],
                expand: Some(Expand { after: None, limit: CONTAINERS_MAX as u32 + 1 }),
                timeout: QUERY_TIMEOUT,
            };
            store.call(Request::Load(load)).map(|reply| match reply? {
                Reply::Keys(keys) => Ok(keys),
                other => Err(mismatched_reply(&other)),
            })
        });
        stream::iter(under_way).buffered(QUERIES_UNDER_WAY_MAX).collect().await
    }
}

impl Source for OutboxSource {
    fn poll(&self, request: Poll) -> BoxFuture<'static, Result<Intake, Failure>> {
        self.clone().take(request).boxed()
    }
}
