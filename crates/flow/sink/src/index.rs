//! `search.index`: the step that writes a run's document into a sink; a `null` document deletes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use honeyflow_step::{Batch, Outcome, Step};

use crate::{Sink, Write};

pub struct IndexStep {
    sink: Arc<dyn Sink>,
}

impl IndexStep {
    pub fn new(sink: Arc<dyn Sink>) -> IndexStep {
        IndexStep { sink }
    }
}

impl Step for IndexStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let sink = self.sink.clone();
        Box::pin(async move {
            let writes = batch
                .items
                .into_iter()
                .map(|item| Write { key: item.key, stamp: item.stamp, document: item.input })
                .collect();
            let outcomes = sink.write(writes).await;
            outcomes
                .into_iter()
                .map(|outcome| match outcome {
                    crate::Outcome::Done => Outcome::Done(None),
                    crate::Outcome::Stale { stored } => Outcome::Stale { stored },
                    crate::Outcome::Failed(failure) => Outcome::Failed(failure),
                })
                .collect()
        })
    }
}
